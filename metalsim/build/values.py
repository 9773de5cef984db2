"""What is known about the values of a function: where pointers come from, types, used lanes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from metalsim.build.ir import (
    FAST_MATH_FLAGS,
    Function,
    Instruction,
    Module,
    read_type,
    skip_words,
    split_arguments,
    vector_shape,
)

_ANY_NAME = re.compile(r'[%@](?:"(?:[^"\\]|\\.)*"|[-a-zA-Z$._0-9]+)')
_CASTS = frozenset(
    {"trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint"}
    | {"inttoptr", "bitcast", "addrspacecast"}
)


def first_name(text: str) -> str:
    """The first ``%local`` or ``@global`` that ``text`` mentions; empty without one."""
    match = _ANY_NAME.search(text)
    return match[0] if match else ""


class PointerOrigins:
    """Which pointers of a function provably come from its own local variables (allocas)."""

    def __init__(self, function: Function) -> None:
        self._definitions = function.definitions()
        self._roots: dict[str, frozenset[str]] = {}
        self._computed: dict[str, bool] = {}

    def roots(self, name: str) -> frozenset[str]:
        """What ``name`` may point into: alloca names, ``@global`` names, ``buffer 3``, or ``?`` for unknown."""
        if name not in self._roots:
            self._roots[name] = self._trace(name)
        return self._roots[name]

    def is_computed(self, name: str) -> bool:
        """Whether the address depends on an index or a branch, instead of being a constant part of a variable."""
        if name not in self._computed:
            definition = self._definitions.get(name)
            sources = _pointer_sources(definition) if definition is not None else []
            self._computed[name] = bool(sources) and (_varies(definition) or self.is_computed(sources[0]))
        return self._computed[name]

    def is_local(self, pointer: str) -> bool:
        """Whether the typed pointer ``ptr %x`` certainly points into an alloca of the function."""
        name = first_name(pointer)
        return bool(name) and all(root.startswith("%") for root in self.roots(name))

    def _trace(self, name: str) -> frozenset[str]:
        pending, seen, roots = [name], set[str](), set[str]()
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            definition = self._definitions.get(current)
            if definition is None:
                roots.add(current if current.startswith("@") else "?")
            elif definition.opcode == "alloca":
                roots.add(current)
            elif definition.opcode == "call" and (buffer := _BUFFER_CALL.search(definition.body)):
                roots.add(f"buffer {buffer[1]}")
            else:
                sources = _pointer_sources(definition)
                pending.extend(sources)
                if not sources:
                    roots.add("?")
        return frozenset(roots)


_BUFFER_CALL = re.compile(r"@msim_buffer\(i32 (?:noundef )?(\d+)\)")


def _varies(instruction: Instruction | None) -> bool:
    if instruction is None or instruction.opcode in {"bitcast", "addrspacecast", "freeze"}:
        return False
    if instruction.opcode != "getelementptr":
        return True
    indices = [part.split()[-1] for part in split_arguments(instruction.body)[2:]]
    return any(not index.lstrip("-").isdigit() for index in indices)


def _pointer_sources(instruction: Instruction) -> list[str]:
    """Pointers that ``instruction``'s result is derived from; empty when that cannot be told."""
    body = instruction.body
    if instruction.opcode == "phi":
        values = [value for value, _ in instruction.incoming()]
        return values if all(value[:1] in "%@" for value in values) else []
    if instruction.opcode == "select":
        values = [part.rsplit(None, 1)[-1] for part in split_arguments(body)[1:3]]
        return values if all(value[:1] in "%@" for value in values) else []
    if instruction.opcode == "getelementptr":
        pointers = [part for part in split_arguments(body)[1:] if part.startswith("ptr")]
        names = _ANY_NAME.findall(pointers[0]) if pointers else []
        return names[:1]
    if instruction.opcode in {"bitcast", "addrspacecast", "freeze"}:
        return _ANY_NAME.findall(body.split(" to ")[0])[:1]
    return []


@dataclass(frozen=True)
class Address:
    """A pointer as base and variable parts plus a constant.

    Attributes:
        terms: what varies, equal for two pointers only if they differ by a constant.
        offset: constant bytes.
    """

    terms: tuple[str, ...]
    offset: int


class Addresses:
    """Addresses of a function's pointers, to see which accesses are neighbours."""

    def __init__(self, module: Module, definitions: dict[str, Instruction]) -> None:
        self._module = module
        self._definitions = definitions

    def of(self, pointer: str) -> Address:
        """The address of the pointer named ``pointer``."""
        definition = self._definitions.get(pointer)
        if definition is None or definition.opcode != "getelementptr":
            return Address((pointer,), 0)
        parts = split_arguments(definition.body)
        if len(parts) != 3:
            return Address((pointer,), 0)
        element, _ = read_type(parts[0], skip_words(parts[0], _SKIPPED_WORDS))
        size = self._module.byte_size(element)
        base = self.of(first_name(parts[1]))
        terms, constant = self._index(parts[2].rsplit(None, 1)[-1])
        scaled = tuple(f"{size}*{term}" for term in terms)
        return Address((*base.terms, *scaled), base.offset + constant * size)

    def _index(self, name: str) -> tuple[tuple[str, ...], int]:
        """Variable part and constant of an index."""
        if name.lstrip("-").isdigit():
            return (), int(name)
        definition = self._definitions.get(name)
        body = definition.body if definition else ""
        if definition and definition.opcode in {"sext", "zext"}:
            return self._index(first_name(body))
        if definition and (definition.opcode == "add" or body.startswith("disjoint ")):
            last = split_arguments(body)[-1]
            if last.lstrip("-").isdigit():
                terms, constant = self._index(first_name(body))
                return terms, constant + int(last)
        return (name,), 0


_SKIPPED_WORDS = FAST_MATH_FLAGS | frozenset(
    {"nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "inbounds", "nusw", "volatile", "atomic"}
    | {"noundef", "zeroext", "signext", "nonnull", "noalias", "inreg", "fastcc", "coldcc", "spir_func"}
)
_PREDICATES = frozenset(
    {"eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle", "true", "false", "ord", "uno"}
    | {"oeq", "ogt", "oge", "olt", "ole", "one", "ueq", "une"}
)
_WORD = re.compile(r"\s*([A-Za-z_]+)(?:\([^)]*\))?(?=\s)")


def _first_type(body: str) -> str:
    """The first type of ``body`` after flags, attributes and predicates."""
    position = 0
    while True:
        match = _WORD.match(body, position)
        if not match or match[1] not in (_SKIPPED_WORDS | _PREDICATES | {"align", "range", "nofpclass"}):
            return read_type(body, position)[0]
        position = match.end()
        number = re.compile(r"\s*\d+(?=\s)").match(body, position)
        if match[1] == "align" and number:
            position = number.end()


def operand_element(instruction: Instruction) -> str:
    """Element type of an arithmetic instruction's operands (``float``, ``i32``, ``ptr``)."""
    if instruction.opcode == "select":
        return vector_shape(read_type(split_arguments(instruction.body)[1])[0])[1]
    return vector_shape(_first_type(instruction.body))[1]


def result_type(instruction: Instruction) -> str:
    """Type of the instruction's value as text; empty when it has none or it isn't known."""
    opcode, body = instruction.opcode, instruction.body
    if not instruction.result:
        return ""
    if opcode in {"getelementptr", "alloca"}:
        return "ptr"
    if opcode in _CASTS:
        return body.rsplit(" to ", 1)[-1].strip()
    if opcode == "select":
        return read_type(split_arguments(body)[1])[0]
    if opcode in {"icmp", "fcmp"}:
        lanes, _ = vector_shape(_first_type(body))
        return f"<{lanes} x i1>" if lanes > 1 else "i1"
    if opcode == "extractelement":
        return vector_shape(_first_type(body))[1]
    if opcode == "shufflevector":
        lanes, _ = vector_shape(read_type(split_arguments(body)[2])[0])
        return f"<{lanes} x {vector_shape(_first_type(body))[1]}>"
    if opcode == "atomicrmw":
        return read_type(split_arguments(body)[1])[0]
    if opcode in {"cmpxchg", "extractvalue", "insertvalue"}:
        return ""
    return _first_type(body)


_ELEMENTWISE = (
    frozenset({"fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "select", "icmp", "fcmp", "phi", "freeze"})
    | frozenset({"trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp"})
    | frozenset({"add", "sub", "and", "or", "xor", "shl", "lshr", "ashr", "mul"})
    | frozenset({"udiv", "sdiv", "urem", "srem"})
)


def used_lanes(
    function: Function,
    users: dict[str, list[Instruction]],
    is_elementwise_call: Callable[[Instruction], bool],
) -> dict[str, int]:
    """Bit mask of the lanes of each vector value that reach something other than vector shuffling.

    Args:
        function: where the values are defined.
        users: instructions that read a value, by its name.
        is_elementwise_call: whether a call computes lane ``i`` of its result from lane ``i`` of its
            arguments only.
    """
    widths = {}
    for name, definition in function.definitions().items():
        lanes, _ = vector_shape(result_type(definition))
        if lanes > 1:
            widths[name] = lanes
    used = dict.fromkeys(widths, 0)
    changed = True
    while changed:
        changed = False
        for name, width in widths.items():
            mask = used[name]
            for user in users[name]:
                mask |= _lanes_read(user, name, used, width, is_elementwise_call)
            if mask != used[name]:
                used[name], changed = mask, True
    return used


def _lanes_read(
    user: Instruction,
    name: str,
    used: dict[str, int],
    width: int,
    is_elementwise_call: Callable[[Instruction], bool],
) -> int:
    """Lanes of ``name`` that ``user`` needs, given which lanes of its own result are used."""
    opcode, parts, everything = user.opcode, split_arguments(user.body), (1 << width) - 1
    if opcode == "extractelement":
        index = parts[1].split()[-1]
        return 1 << int(index) if index.isdigit() else everything
    if opcode == "insertelement":
        index = parts[2].split()[-1]
        kept = used.get(user.result, everything)
        return kept & ~(1 << int(index)) if index.isdigit() else kept
    if opcode == "shufflevector":
        return _shuffled_lanes(parts, name, used.get(user.result, 0), everything)
    elementwise = opcode in _ELEMENTWISE or (opcode == "call" and is_elementwise_call(user))
    return used.get(user.result, everything) if elementwise else everything


def _shuffled_lanes(parts: list[str], name: str, wanted: int, everything: int) -> int:
    lanes = everything.bit_length()
    mask_text = parts[2]
    if "zeroinitializer" in mask_text:
        picks: list[int] = [0] * vector_shape(read_type(mask_text)[0])[0]
    else:
        entries = re.findall(r"i32 (\d+|poison|undef)", mask_text[mask_text.index(">") :])
        picks = [int(entry) if entry.isdigit() else -1 for entry in entries]
    result = 0
    for position, pick in enumerate(picks):
        if pick < 0 or not wanted >> position & 1:
            continue
        source = parts[0] if pick < lanes else parts[1]
        if source.rsplit(None, 1)[-1] == name:
            result |= 1 << (pick % lanes)
    return result
