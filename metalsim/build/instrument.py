"""Rewrites LLVM IR text so that the runtime sees every memory access and, if asked, every block.

A hook call stands in front of each access whose pointer does not provably come from a local
variable of the same function. In counted mode each basic block reports its execution, and its
operations are classified statically (``metalsim.build.operations``), which is what the cost estimate is
built from. docs/estimate.md says how. In traced mode the floating-point operations are looked at as well
(``metalsim.build.births``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from metalsim.build.births import HOOKS as BIRTH_HOOKS
from metalsim.build.births import BirthHooks, operation_of
from metalsim.build.blocks import BlockProfile, profile_function
from metalsim.build.guards import (
    FLOAT_CODES,
    LARGE_FRAME_BYTES,
    Extent,
    constant_tables,
    divisor_of,
    guarded,
    own_arrays,
)
from metalsim.build.guards import HOOKS as GUARD_HOOKS
from metalsim.build.ir import (
    MEMORY_CALL,
    Block,
    Function,
    Instruction,
    Module,
    read_callee,
    read_module,
    read_type,
    split_arguments,
    vector_shape,
)
from metalsim.build.values import Addresses, PointerOrigins, first_name

SiteKind = Literal["load", "store", "atomic", "arithmetic", "index", "frame"]
HookMode = Literal["checked", "counted", "traced", "plain"]

_HOOKS = {
    "msim_load": "declare void @msim_load(ptr, i32, i32) nounwind",
    "msim_store": "declare void @msim_store(ptr, i32, i32) nounwind",
    "msim_atomic": "declare void @msim_atomic(ptr, i32, i32) nounwind",
    "msim_block": "declare void @msim_block(i32) nounwind",
}
USER_FILES = ("body", "header")
"""What ``#line`` calls the parts of a kernel in MLX's convention."""
_BROKEN_PROMISES = re.compile(
    r"\s(?:memory\([^)]*\)|nosync|willreturn|speculatable|nofree|readnone|readonly|writeonly|argmemonly)(?=[\s}])"
)


@dataclass(frozen=True)
class Site:
    """One place in the program that accesses memory, or in traced mode computes with floating-point numbers.

    Attributes:
        index: number passed to the hook.
        kind: ``load``, ``store``, ``atomic``, ``arithmetic``, ``index`` (of an array, or a divisor) or ``frame``
            (a function with large arrays).
        bytes: bytes of one lane's access; 0 when only known at run time (a memcpy of variable length).
        line: line of the kernel's body or header (1-based), 0 when it comes from neither.
        place: ``body``, ``header`` or empty.
        operation: what is computed: an operator or a function's name; of an access of the thread's own array, its
            type.
        buffer: position of the buffer that the pointer certainly comes from, -1 for unknown.
        element_bytes: of the thread's own array.
    """

    index: int
    kind: SiteKind
    bytes: int
    line: int
    place: str
    operation: str = ""
    buffer: int = -1
    element_bytes: int = 1


@dataclass(frozen=True)
class Instrumented:
    """A rewritten module.

    Attributes:
        text: the IR with hooks.
        sites: by ``Site.index``.
        blocks: by ``BlockProfile.index``; empty in checked mode.
    """

    text: str
    sites: tuple[Site, ...]
    blocks: tuple[BlockProfile, ...]


class Places:
    """Resolves debug locations to lines of the user's source."""

    def __init__(self, module: Module, user_files: Sequence[str] = USER_FILES) -> None:
        self._metadata = module.metadata
        self._user_files = frozenset(user_files)
        self._cache: dict[int, tuple[str, int]] = {}

    def of(self, location: int) -> tuple[str, int]:
        """``(place, line)`` of the innermost location in ``body`` or ``header``; ``("", 0)`` without one.

        An operator of the shim that was inlined is thereby charged to the user's line that used it.
        """
        if location not in self._cache:
            self._cache[location] = self._resolve(location)
        return self._cache[location]

    def _resolve(self, location: int) -> tuple[str, int]:
        seen: set[int] = set()
        while location in self._metadata and location not in seen:
            seen.add(location)
            kind, values = self._metadata[location]
            if kind != "DILocation":
                break
            place = self._file_of(_reference(values.get("scope", "")))
            line = int(values.get("line", "0"))
            if place in self._user_files and line > 0:
                return place, line
            location = _reference(values.get("inlinedAt", ""))
        return "", 0

    def _file_of(self, scope: int) -> str:
        seen: set[int] = set()
        while scope in self._metadata and scope not in seen:
            seen.add(scope)
            kind, values = self._metadata[scope]
            if kind == "DIFile":
                return values.get("filename", "").strip('"')
            scope = _reference(values.get("file", "") or values.get("scope", ""))
        return ""


def _reference(text: str) -> int:
    return int(text[1:]) if text.startswith("!") and text[1:].isdigit() else -1


@dataclass(frozen=True)
class _Access:
    """A hook to insert: pointer with its type, bytes as an i32 operand, and how many those are."""

    kind: SiteKind
    pointer: str
    length: str
    bytes: int
    before: tuple[str, ...] = ()
    own: Extent | None = None
    buffer: int = -1


class _Rewriter:
    """Collects the lines to insert into one module."""

    def __init__(self, module: Module, mode: HookMode, user_files: Sequence[str]) -> None:
        self.module = module
        self.counted = mode == "counted"
        self.traced = mode == "traced"
        self.guarded = mode != "counted"
        self._tables = constant_tables(module) if self.guarded else {}
        self._extents: dict[str, Extent] = {}
        self._addresses = Addresses(module, {})
        self.places = Places(module, user_files)
        self.sites: list[Site] = []
        self.blocks: list[BlockProfile] = []
        self.inserted: dict[int, list[str]] = {}
        self.renamed: dict[int, tuple[str, str]] = {}
        self.appended: dict[int, list[str]] = {}
        self._defined = {function.name for function in module.functions}
        self._births = BirthHooks(self._temporary)
        self._temporaries = 0
        self._block: Block | None = None

    def rewrite(self) -> str:
        for function in self.module.functions:
            self._rewrite_function(function)
        lines: list[str] = []
        for index, line in enumerate(self.module.lines):
            lines.extend(self.inserted.get(index, ()))
            renamed = line.replace(*self.renamed[index], 1) if index in self.renamed else line
            lines.append(_BROKEN_PROMISES.sub("", renamed) if line.startswith("attributes #") else renamed)
            lines.extend(self.appended.get(index, ()))
        return "\n".join([*lines, *self._missing_declarations(), ""])

    def _rewrite_function(self, function: Function) -> None:
        origins = PointerOrigins(function)
        self._extents = {**self._tables, **own_arrays(self.module, function)} if self.guarded else {}
        self._addresses = Addresses(self.module, function.definitions())
        self._keep_frame(function, origins)
        sites_of_line: dict[int, tuple[int, ...]] = {}
        for block in function.blocks:
            self._block = block
            for instruction in block.instructions:
                accesses = self._accesses(instruction, origins)
                if accesses:
                    sites_of_line[instruction.first_line] = self._insert(instruction, accesses)
                if self.guarded:
                    self._guard(instruction)
                if self.traced:
                    self._mark_births(instruction)
                    self._look_at_kept(instruction, origins)
        if self.counted:
            profiles = profile_function(self.module, function, sites_of_line, len(self.blocks), self.places.of, origins)
            for block, profile in zip(function.blocks, profiles, strict=True):
                self._insert_block_hook(block, profile)
            self.blocks.extend(profiles)

    def _keep_frame(self, function: Function, origins: PointerOrigins) -> None:
        """A site for a function whose arrays may overflow a thread's memory, at the first line that uses them."""
        own = {name: extent.bytes for name, extent in self._extents.items() if name.startswith("%")}
        total = sum(own.values())
        if total < LARGE_FRAME_BYTES:
            return
        largest = max(own, key=own.__getitem__)
        for block in function.blocks:
            for instruction in block.instructions:
                place, line = self.places.of(instruction.location)
                if line and any(largest in origins.roots(name) for name in instruction.value_names()):
                    self.sites.append(Site(len(self.sites), "frame", total, line, place))
                    return

    def _guard(self, instruction: Instruction) -> None:
        """Hooks in front of divisions and of clang's reports of an index out of range."""
        reports = instruction.opcode == "call" and "@__ubsan_handle_out_of_bounds" in instruction.body
        divisor = divisor_of(instruction)
        if not reports and divisor is None:
            return
        place, line = self.places.of(instruction.location)
        site = len(self.sites)
        self.sites.append(Site(site, "index", 0, line, place))
        made = [f"call void @msim_index_site(i32 {site})"]
        if divisor is not None:
            kind, value = divisor
            wide = value if kind == "i64" else self._temporary()
            made = [] if kind == "i64" else [f"{wide} = sext {kind} {value} to i64"]
            made.append(f"call void @msim_divisor(i64 {wide}, i32 {site})")
        suffix = _location_suffix(instruction)
        self.inserted.setdefault(instruction.first_line, []).extend(f"  {text}{suffix}" for text in made)

    def _look_at_kept(self, instruction: Instruction, origins: PointerOrigins) -> None:
        """A hook after a store of floating-point numbers: are they the pattern of what was never written?"""
        if instruction.opcode != "store":
            return
        found = _plain_access(instruction, self.module)
        body = instruction.body.removeprefix("volatile ")
        code = FLOAT_CODES.get(vector_shape(read_type(body)[0])[1])
        if found is None or code is None or origins.is_local(found[1]):
            return
        access = self._access("store", found[1], f"i32 {found[2]}", found[2])
        place, line = self.places.of(instruction.location)
        site = len(self.sites)
        self.sites.append(Site(site, "index", found[2], line, place))
        call = f"call void @msim_kept({access.pointer}, {access.length}, i32 {code}, i32 {site})"
        suffix = _location_suffix(instruction)
        self.appended.setdefault(instruction.last_line, []).extend(
            f"  {text}{suffix}" for text in (*access.before, call)
        )

    def _mark_births(self, instruction: Instruction) -> None:
        operation = operation_of(instruction, self._defined.__contains__)
        if operation is None:
            return
        place, line = self.places.of(instruction.location)
        site = len(self.sites)
        self.sites.append(Site(site, "arithmetic", 0, line, place, operation.name))
        raw = self._temporary()
        if instruction.opcode == "atomicrmw":
            # Nothing else runs meanwhile: what the memory now holds can be computed again and marked.
            pointer = _pointer_of(split_arguments(instruction.body)[0].split("fadd ", 1)[1])
            marked = self._temporary()
            made = [f"{raw} = fadd {operation.type} {', '.join(operation.operands)}"]
            made += self._births.lines(operation, raw, marked, site)
            made.append(f"store {operation.type} {marked}, {pointer}")
        else:
            self.renamed[instruction.first_line] = (f"{instruction.result} =", f"{raw} =")
            made = self._births.lines(operation, raw, instruction.result, site)
        suffix = _location_suffix(instruction)
        self.appended.setdefault(instruction.last_line, []).extend(f"  {text}{suffix}" for text in made)

    def _insert_block_hook(self, block: Block, profile: BlockProfile) -> None:
        first = next((item for item in block.instructions if item.first_line == block.insert_line), None)
        call = f"  call void @msim_block(i32 {profile.index}){_location_suffix(first)}"
        self.inserted.setdefault(block.insert_line, []).insert(0, call)

    def _place_of(self, access: Instruction) -> tuple[str, int]:
        """The access's place; the nearest one in its block for an access that the optimizer moved or merged.

        Not in counted mode: a finding is better with a line nearby, a count that is charged to one is wrong.
        """
        place = self.places.of(access.location)
        if place[1] or self._block is None or self.counted:
            return place
        lines = [item.first_line for item in self._block.instructions]
        at = lines.index(access.first_line)
        others = sorted(self._block.instructions, key=lambda item: abs(lines.index(item.first_line) - at))
        known = (self.places.of(item.location) for item in others)
        return next((found for found in known if found[1]), place)

    def _insert(self, instruction: Instruction, accesses: list[_Access]) -> tuple[int, ...]:
        place, line = self._place_of(instruction)
        lines = self.inserted.setdefault(instruction.first_line, [])
        indices = []
        for access in accesses:
            index = len(self.sites)
            own = access.own
            words, element_bytes = (own.words, own.element_bytes) if own else ("", 1)
            self.sites.append(Site(index, access.kind, access.bytes, line, place, words, access.buffer, element_bytes))
            suffix = _location_suffix(instruction)
            lines.extend(f"  {text}{suffix}" for text in access.before)
            hook, more = str(access.kind), ""
            if own:
                hook, more = f"own_{'load' if hook == 'load' else 'store'}", f", ptr {own.name}, i64 {own.bytes}"
            lines.append(f"  call void @msim_{hook}({access.pointer}, {access.length}, i32 {index}{more}){suffix}")
            indices.append(index)
        return tuple(indices)

    def _accesses(self, instruction: Instruction, origins: PointerOrigins) -> list[_Access]:
        """Hooks that ``instruction`` needs; none for one that touches no memory but local variables'."""
        opcode = instruction.opcode
        if opcode in {"load", "store", "atomicrmw", "cmpxchg"}:
            found = _plain_access(instruction, self.module)
            if found is None:
                return []
            kind, pointer, size = found
            own = guarded(pointer, size, origins, self._addresses, self._extents) if self.guarded else None
            if own is None and origins.is_local(pointer):
                return []
            access = self._access(kind, pointer, f"i32 {size}", size)
            return [replace(access, own=own, buffer=_buffer_of(pointer, origins))]
        if opcode == "call":
            callee, arguments = read_callee(instruction.body)
            match = MEMORY_CALL.match(callee)
            if match:
                return self._memory_intrinsic(match[1], arguments, origins)
        return []

    def _memory_intrinsic(self, operation: str, arguments: list[str], origins: PointerOrigins) -> list[_Access]:
        length = arguments[2].split()
        constant = length[1].isdigit()
        size = int(length[1]) if constant else 0
        before: tuple[str, ...] = ()
        operand = f"i32 {size}"
        if not constant and length[0] == "i32":
            operand = f"i32 {length[1]}"
        elif not constant:
            name = self._temporary()
            before = (f"{name} = trunc {length[0]} {length[1]} to i32",)
            operand = f"i32 {name}"
        pointers: list[tuple[SiteKind, str]] = [("store", arguments[0])]
        if operation != "memset":
            pointers.insert(0, ("load", arguments[1]))
        result: list[_Access] = []
        for kind, argument in pointers:
            pointer = _without_attributes(argument)
            if not origins.is_local(pointer):
                result.append(self._access(kind, pointer, operand, size, before))
                before = ()
        return result

    def _access(self, kind: SiteKind, pointer: str, length: str, size: int, before: tuple[str, ...] = ()) -> _Access:
        space = re.match(r"ptr addrspace\((\d+)\) ", pointer)
        if space:
            name = self._temporary()
            before = (*before, f"{name} = addrspacecast {pointer} to ptr")
            pointer = f"ptr {name}"
        return _Access(kind, pointer, length, size, before)

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"%msim.t{self._temporaries}"

    def _missing_declarations(self) -> list[str]:
        present = {
            name
            for line in self.module.lines
            if line.startswith(("declare", "define"))
            for name in re.findall(r"@(msim_\w+)\(", line)
        }
        hooks = {name: text for name, text in _HOOKS.items() if self.counted or name != "msim_block"}
        hooks |= {**(BIRTH_HOOKS if self.traced else {}), **(GUARD_HOOKS if self.guarded else {})}
        return [text for name, text in hooks.items() if name not in present]


def _buffer_of(pointer: str, origins: PointerOrigins) -> int:
    """Position of the buffer that the typed pointer comes from; -1 when it may be another one."""
    name = first_name(pointer)
    roots = origins.roots(name) if name else frozenset()
    words = next(iter(roots)).split() if len(roots) == 1 else []
    return int(words[1]) if words[:1] == ["buffer"] else -1


def _location_suffix(instruction: Instruction | None) -> str:
    return f", !dbg !{instruction.location}" if instruction and instruction.location >= 0 else ""


def _without_attributes(argument: str) -> str:
    """``ptr noundef align 4 %x`` as ``ptr %x``; a constant expression stays whole."""
    type_text, end = read_type(argument)
    rest = argument[end:].strip()
    start = re.search(r"[%@]|\b(?:getelementptr|inttoptr|null|addrspacecast|undef|poison)\b", rest)
    return f"{type_text} {rest[start.start() :]}" if start else argument


def _plain_access(instruction: Instruction, module: Module) -> tuple[SiteKind, str, int] | None:
    """``(kind, typed pointer, bytes)`` of a load, store, atomicrmw or cmpxchg."""
    words = instruction.body.split(None, 2)
    body = instruction.body
    kind: SiteKind = "store" if instruction.opcode == "store" else "load"
    while words and words[0] in {"atomic", "volatile", "weak"}:
        if words[0] == "atomic":
            kind = "atomic"
        body = body.split(None, 1)[1]
        words = body.split(None, 2)
    parts = split_arguments(body)
    if instruction.opcode == "load":
        return kind, _pointer_of(parts[1]), module.byte_size(read_type(parts[0])[0])
    if instruction.opcode == "store":
        return kind, _pointer_of(parts[1]), module.byte_size(read_type(parts[0])[0])
    pointer = parts[0]
    if instruction.opcode == "atomicrmw":
        if pointer.split(None, 1)[0] == "volatile":
            pointer = pointer.split(None, 1)[1]
        pointer = pointer.split(None, 1)[1]  # the operation's name stands first
    return "atomic", _pointer_of(pointer), module.byte_size(read_type(parts[1])[0])


def _pointer_of(part: str) -> str:
    """The typed pointer without what may follow it (``syncscope``, an ordering)."""
    type_text, end = read_type(part)
    rest = part[end:].strip()
    name = re.match(r'[%@](?:"(?:[^"\\]|\\.)*"|[-a-zA-Z$._0-9]+)', rest)
    if name:
        return f"{type_text} {name[0]}"
    opening = rest.find("(")
    return f"{type_text} {rest[: rest.rfind(')') + 1]}" if opening >= 0 else f"{type_text} {rest.split()[0]}"


def instrument(ll_text: str, *, mode: HookMode, user_files: Sequence[str] = USER_FILES) -> Instrumented:
    """Inserts the hooks into a module.

    Args:
        ll_text: textual LLVM IR (opaque pointers), compiled with ``-gline-tables-only`` so that lines
            are known; ``#line`` directives name the user's files ``body`` and ``header``.
        mode: ``checked`` hooks memory accesses only; ``counted`` hooks basic blocks too and profiles
            their operations; ``traced`` hooks accesses and marks NaNs where they are born; ``plain`` hooks
            nothing.
        user_files: names of the files whose lines are reported.

    Returns:
        Valid IR: unknown lines are kept as they are.
    """
    if mode == "plain":
        return Instrumented(ll_text, (), ())
    rewriter = _Rewriter(read_module(ll_text), mode, user_files)
    text = rewriter.rewrite()
    return Instrumented(text, tuple(rewriter.sites), tuple(rewriter.blocks))
