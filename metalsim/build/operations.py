"""What an IR instruction costs on the GPU: its operation class, found by static inspection.

Classes carry the names of the chip quantities that price them (``issue-cycles-<class>``), with the
arithmetic classes one step finer (``float32-add``, ``float32-multiply``); ``priced_as`` folds those.
Counts are instructions of one lane: a vector operation counts once per lane that somebody uses,
since the GPU's instructions are scalar.

Differences between the CPU's IR and what a GPU compiler emits that are undone here: a multiply
whose only use is an add is one fused multiply-add (the CPU build forbids contraction); a comparison
that only feeds selects or branches, a small constant shift that only feeds an add, negation,
absolute value and half-to-float conversion are free (operand modifiers, fused forms:
metal-benchmarks README, ALU layout). docs/estimate.md lists them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from metalsim.build.ir import MEMORY_CALL, Function, Instruction, read_callee, read_type, split_arguments, vector_shape
from metalsim.build.values import PointerOrigins, first_name, operand_element, result_type, used_lanes

FREE = "free"
LOAD, STORE, ATOMIC, BARRIER, OTHER = "load", "store", "atomic", "barrier", "other"
THREAD_MEMORY = "thread-memory"
COLLECTIVE_CLASSES = frozenset({"shuffle", "vote", "simd-reduction", "simd-prefix", "matrix-multiply"})

_FLOAT_PREFIX = {"float": "float32", "half": "float16", "bfloat": "bfloat16"}
_FLOAT_BINARY = {"fadd": "add", "fsub": "add", "fmul": "multiply"}
_INT_BINARY = frozenset({"add", "sub", "and", "or", "xor"})
_SHIFTS = frozenset({"shl", "lshr", "ashr"})
_DIVISIONS = frozenset({"udiv", "sdiv", "urem", "srem"})
_CASTS = frozenset(
    {"trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint"}
    | {"inttoptr", "bitcast", "addrspacecast"}
)
_CONVERSIONS = frozenset({"fptoui", "fptosi", "uitofp", "sitofp"})
_FREE_OPCODES = frozenset(
    {"phi", "bitcast", "freeze", "extractelement", "insertelement", "shufflevector", "extractvalue"}
    | {"insertvalue", "alloca", "zext", "sext", "trunc", "ptrtoint", "inttoptr", "addrspacecast"}
    | {"fneg", "ret", "unreachable", "fence"}
)
_FREE_CALLS = re.compile(
    r"^llvm\.(lifetime|assume|dbg|experimental\.noalias|invariant|launder|strip|expect|ssa|annotation"
    r"|var\.annotation|ptr\.annotation|stacksave|stackrestore|donothing|prefetch|trap|fabs|canonicalize"
    r"|fake\.use|objectsize|is\.constant|sideeffect|pseudoprobe)\b"
)
_TYPE_SUFFIX = re.compile(r"^(v\d+)?(f16|f32|f64|bf16|i\d+|p\d+)$")

_FUNCTION_CLASSES = {
    "exp2": ("exp2", "log2"),
    "exp": ("exp", "log", "exp10", "log10"),
    "sine": ("sin", "cos", "sincos"),
    "transcendental": (
        *("tan", "tanh", "sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh"),
        *("pow", "powi", "erf", "erfc", "cbrt", "hypot", "fmod", "remainder", "expm1", "log1p"),
        *("tgamma", "lgamma", "frexp", "modf", "ldexp"),
    ),
    "sqrt": ("sqrt",),
    "convert": (
        *("floor", "ceil", "trunc", "rint", "nearbyint", "round", "roundeven", "lround", "lrint"),
        *("fptosi.sat", "fptoui.sat"),
    ),
    "compare-select": (
        *("minnum", "maxnum", "minimum", "maximum", "minimumnum", "maximumnum", "fmin", "fmax"),
        *("smin", "smax", "umin", "umax", "abs", "is.fpclass", "scmp", "ucmp"),
    ),
    "int32": (
        *("copysign", "uadd.sat", "sadd.sat", "usub.sat", "ssub.sat"),
        *("uadd.with.overflow", "sadd.with.overflow", "usub.with.overflow", "ssub.with.overflow"),
    ),
    "int-shift": ("ctpop", "bitreverse", "bswap", "ctlz", "cttz", "fshl", "fshr"),
    "int-multiply": ("umul.with.overflow", "smul.with.overflow"),
    FREE: ("fabs",),
}
_CLASS_OF_FUNCTION = {name: cls for cls, names in _FUNCTION_CLASSES.items() for name in names}
_ELEMENTWISE_STEMS = frozenset(_CLASS_OF_FUNCTION) | {"fma", "fmuladd"}

# Byte offset of ``op`` in msim_request, and the order of its codes: include/metalsim/abi.h.
_REQUEST_OPERATION_OFFSET = 16
_COLLECTIVES = (
    *("simd-reduction",) * 7,
    *("simd-prefix",) * 4,
    *("shuffle",) * 10,
    *("vote",) * 5,
    FREE,  # simdgroup_barrier emits no instruction (facts: AGX threadgroup_barrier cost)
    "matrix-multiply",
    FREE,  # lanes meeting for a matrix load or store
)


def priced_as(operation: str) -> str:
    """The chip quantity's class that prices ``operation``.

    ``float32-add`` and ``float32-multiply`` share ``float32``; all half and all bfloat arithmetic is
    ``float16`` and ``bfloat16``; a vote is priced as a shuffle (the same measured rate), pointer
    arithmetic as 64-bit integer arithmetic, and traffic of thread-private arrays as ``other``.
    """
    if operation in {"float32-add", "float32-multiply"}:
        return "float32"
    if operation.startswith(("float16-", "bfloat16-")):
        return operation.split("-", maxsplit=1)[0]
    return {"vote": "shuffle", "address": "int64", THREAD_MEMORY: OTHER}.get(operation, operation)


def is_floating_arithmetic(operation: str) -> bool:
    """Whether ``operation`` is an add, multiply or fused multiply-add of any floating type."""
    return operation.startswith(("float32-", "float16-", "bfloat16-"))


TRANSCENDENTAL_CLASSES = frozenset(
    {"exp2", "exp", "sine", "transcendental", "sqrt", "rsqrt", "reciprocal", "fast-reciprocal"}
    | {"divide", "fast-divide"}
)
"""Classes that run on the complex pipeline; what ``Counters.transcendental_operations`` sums."""
INTEGER_CLASSES = frozenset({"int32", "int-shift", "int-multiply", "int-divide", "int64", "int64-multiply", "address"})
"""What ``Counters.integer_operations`` sums; comparisons are none of it."""


@dataclass(frozen=True)
class Operation:
    """Class and count (scalar instructions of one lane) of one IR instruction."""

    name: str
    count: int = 1


class Classifier:
    """Classifies the instructions of one function; knows who uses each value and which lanes."""

    def __init__(self, function: Function, origins: PointerOrigins) -> None:
        self.origins = origins
        self.definitions = function.definitions()
        self.users: dict[str, list[Instruction]] = defaultdict(list)
        self.block_of: dict[int, int] = {}
        for number, block in enumerate(function.blocks):
            for instruction in block.instructions:
                self.block_of[instruction.first_line] = number
                for name in dict.fromkeys(instruction.value_names()):
                    self.users[name].append(instruction)
        self.lanes = used_lanes(function, self.users, _is_elementwise_call)
        self._interface = self._interface_allocas(function)
        self._names_of_local: dict[frozenset[str], list[str]] = defaultdict(list)
        for name, definition in self.definitions.items():
            if definition.opcode in {"alloca", "getelementptr"}:
                self._names_of_local[origins.roots(name)].append(name)
        self._fused: dict[str, str] = {}
        self._absorbed: set[str] = set()
        for block in function.blocks:
            for instruction in block.instructions:
                self._fuse(instruction)

    def classify(self, instruction: Instruction) -> Operation:
        """Class and count of ``instruction``."""
        opcode = instruction.opcode
        if instruction.result in self._absorbed or opcode in _FREE_OPCODES:
            return self._cast(instruction) if opcode in _CASTS else Operation(FREE)
        if instruction.result in self._fused:
            return Operation(self._fused[instruction.result], self._lane_count(instruction))
        if opcode in {"load", "store", "atomicrmw", "cmpxchg"}:
            return self._memory(instruction)
        if opcode == "call":
            return self._call(instruction)
        if opcode == "br":
            return Operation("branch") if len(instruction.label_names()) > 1 else Operation(FREE)
        if opcode == "switch":
            return Operation("branch", max(1, len(instruction.label_names()) - 1))
        if opcode == "getelementptr":
            return self._address(instruction)
        return self._arithmetic(instruction)

    def is_interface(self, name: str) -> bool:
        """Whether the pointer ``name`` leads to memory that only carries arguments of runtime calls."""
        roots = self.origins.roots(name)
        return bool(roots) and roots <= self._interface

    def _arithmetic(self, instruction: Instruction) -> Operation:
        opcode, count = instruction.opcode, self._lane_count(instruction)
        element = operand_element(instruction)
        if opcode in _FLOAT_BINARY:
            prefix = _FLOAT_PREFIX.get(element)
            return Operation(f"{prefix}-{_FLOAT_BINARY[opcode]}" if prefix else OTHER, count)
        if opcode == "fdiv":
            return Operation(_division(instruction), count)
        if opcode == "frem":
            return Operation("transcendental", count)
        wide = element in {"i64", "i128"} or element.startswith("ptr")
        if opcode in {"icmp", "fcmp", "select"}:
            compares_wide = wide and opcode == "icmp" and not element.startswith("ptr")
            return Operation("int64" if compares_wide else "compare-select", count)
        if opcode in _INT_BINARY:
            return Operation("int64" if wide else "int32", count)
        if opcode in _SHIFTS:
            return Operation("int64" if wide else "int-shift", count)
        if opcode == "mul":
            return Operation("int64-multiply" if wide else "int-multiply", count)
        if opcode in _DIVISIONS:
            divisor = split_arguments(instruction.body)[-1]
            # a constant divisor becomes a high multiply (two low multiplies' time) and a shift
            return Operation("int-multiply", 2 * count) if divisor.isdigit() else Operation("int-divide", count)
        return self._cast(instruction) if opcode in _CASTS else Operation(OTHER, count)

    def _cast(self, instruction: Instruction) -> Operation:
        if instruction.opcode in _CONVERSIONS:
            return Operation("convert", self._lane_count(instruction))
        if instruction.opcode in {"fpext", "fptrunc"} and "bfloat" in instruction.body:
            return Operation("convert-bfloat", self._lane_count(instruction))
        return Operation(FREE)

    def _memory(self, instruction: Instruction) -> Operation:
        if instruction.opcode in {"atomicrmw", "cmpxchg"} or instruction.body.startswith("atomic"):
            return Operation(ATOMIC)
        pointer = split_arguments(instruction.body)[1]
        if self.origins.is_local(pointer):
            return Operation(FREE) if self.is_interface(first_name(pointer)) else Operation(THREAD_MEMORY)
        return Operation(LOAD if instruction.opcode == "load" else STORE)

    def _address(self, instruction: Instruction) -> Operation:
        """A base and one index fold into the access; more indices or a moving base need arithmetic."""
        parts = split_arguments(instruction.body)[1:]
        variable = sum(1 for part in parts[1:] if part.rsplit(None, 1)[-1].startswith("%"))
        base = self.definitions.get(parts[0].rsplit(None, 1)[-1])
        moving = base is not None and base.opcode in {"phi", "select", "getelementptr"} and variable > 0
        feeds_phi = any(user.opcode == "phi" for user in self.users[instruction.result])
        count = max(0, variable - 1) + (1 if moving or feeds_phi else 0)
        return Operation("address", count) if count else Operation(FREE)

    def _call(self, instruction: Instruction) -> Operation:
        callee, arguments = read_callee(instruction.body)
        count = self._lane_count(instruction)
        if callee.startswith(("msim_", "__ubsan_")):
            return self._runtime_call(callee, arguments, instruction)
        if _FREE_CALLS.match(callee):
            return Operation(FREE)
        if MEMORY_CALL.match(callee):
            if self.is_interface(first_name(arguments[0])):
                return Operation(FREE)
            length = arguments[2].split()[-1]
            return Operation("copied-bytes", int(length) if length.isdigit() else 16)
        reduced = re.match(r"llvm\.vector\.reduce\.(\w+)", callee)
        if reduced:
            return self._vector_reduction(instruction, reduced[1])
        stem = function_stem(callee)
        element = vector_shape(result_type(instruction))[1]
        if stem in {"fma", "fmuladd"}:
            return Operation(f"{_FLOAT_PREFIX.get(element, 'float32')}-fma", count)
        if stem == "sqrt" and _is_fast(instruction):
            return Operation("rsqrt", count)
        if stem in _CLASS_OF_FUNCTION:
            name = _CLASS_OF_FUNCTION[stem]
            return Operation("int64" if name == "int32" and element == "i64" else name, count)
        if callee in {"__truncsfbf2", "__extendbfsf2"}:
            return Operation("convert-bfloat")
        if callee in {"__truncsfhf2", "__extendhfsf2"}:
            return Operation(FREE)
        return Operation("branch") if callee and not callee.startswith("llvm.") else Operation(OTHER)

    def _runtime_call(self, callee: str, arguments: list[str], call: Instruction) -> Operation:
        if callee == "msim_barrier":
            return Operation(BARRIER)
        if callee in {"msim_collective", "msim_vote"}:
            code = self._collective_code(arguments, call)
            fallback = "vote" if callee == "msim_vote" else "shuffle"
            return Operation(_COLLECTIVES[code] if 0 <= code < len(_COLLECTIVES) else fallback)
        return Operation(FREE)

    def _collective_code(self, arguments: list[str], call: Instruction) -> int:
        """The operation's code: the call's second argument, or what was stored into its request."""
        if len(arguments) > 1 and arguments[1].split()[-1].isdigit():
            return int(arguments[1].split()[-1])
        roots = self.origins.roots(first_name(arguments[0]))
        stores = [
            (user.first_line, code)
            for name in self._names_of_local[roots]
            for user in self.users[name]
            if user.first_line < call.first_line and self._same_block(user, call)
            if (code := self._stored_code(name, user)) >= 0
        ]
        return max(stores)[1] if stores else -1

    def _stored_code(self, name: str, user: Instruction) -> int:
        """The operation's code that ``user`` writes through ``name`` into a request; -1 if it doesn't."""
        offset = self._constant_offset(name)
        if user.opcode == "store" and offset == _REQUEST_OPERATION_OFFSET:
            stored = re.match(r"i32 (\d+), ptr ", user.body)
            return int(stored[1]) if stored and first_name(user.body) == name else -1
        callee, arguments = read_callee(user.body) if user.opcode == "call" else ("", [])
        match = MEMORY_CALL.match(callee)
        if match and match[1] == "memset":
            length = arguments[2].split()[-1]
            if first_name(arguments[0]) == name and arguments[1].endswith(" 0") and length.isdigit():
                covered = range(offset, offset + int(length))
                return 0 if _REQUEST_OPERATION_OFFSET in covered else -1
        return -1

    def _constant_offset(self, name: str) -> int:
        """Bytes from the start of its local variable, for ``gep i8`` with a constant; else 0."""
        definition = self.definitions.get(name)
        body = definition.body if definition and definition.opcode == "getelementptr" else ""
        match = re.search(r"i8, ptr \S+, i64 (\d+)$", body)
        return int(match[1]) if match else 0

    def _vector_reduction(self, call: Instruction, kind: str) -> Operation:
        _, arguments = read_callee(call.body)
        lanes, element = vector_shape(read_type(arguments[-1])[0])
        if kind in {"fadd", "fmul"}:
            suffix = "add" if kind == "fadd" else "multiply"
            return Operation(f"{_FLOAT_PREFIX.get(element, 'float32')}-{suffix}", lanes)
        name = "compare-select" if kind.endswith(("min", "max", "minimum", "maximum")) else "int32"
        return Operation("int-multiply" if kind == "mul" else name, lanes - 1)

    def _lane_count(self, instruction: Instruction) -> int:
        return max(1, self.lanes.get(instruction.result, 1).bit_count())

    def _only_arithmetic_user(self, name: str) -> Instruction | None:
        """The one instruction that computes with ``name``, picked lanes of a vector followed through."""
        while True:
            users = self.users[name]
            if len(users) != 1 or users[0].value_names().count(name) != 1:
                return None
            if users[0].opcode not in {"shufflevector", "extractelement"}:
                return users[0]
            name = users[0].result

    def _same_block(self, one: Instruction, other: Instruction) -> bool:
        return self.block_of[one.first_line] == self.block_of[other.first_line]

    def _fuse(self, instruction: Instruction) -> None:
        """Marks what becomes part of another instruction on the GPU."""
        opcode, result = instruction.opcode, instruction.result
        if opcode in {"icmp", "fcmp"}:
            users = self.users[result]
            if users and all(user.opcode in {"select", "br"} for user in users):
                self._absorbed.add(result)
            return
        user = self._only_arithmetic_user(result) if result else None
        if user is None or not self._same_block(instruction, user) or user.result in self._fused:
            return
        if opcode == "fmul" and user.opcode in {"fadd", "fsub"}:
            if self._lane_count(instruction) != self._lane_count(user):
                return
            prefix = _FLOAT_PREFIX.get(operand_element(instruction))
            if prefix:
                self._absorbed.add(result)
                self._fused[user.result] = f"{prefix}-fma"
        elif opcode == "mul" and user.opcode in {"add", "sub"} and operand_element(instruction) != "i64":
            self._absorbed.add(result)
            self._fused[user.result] = "int-multiply"
        elif opcode == "shl" and user.opcode in {"add", "sub", "or"}:
            amount = split_arguments(instruction.body)[-1]
            if amount in {"1", "2", "3", "4"} and operand_element(instruction) != "i64":
                self._absorbed.add(result)
        elif opcode == "call" and user.opcode == "fdiv" and _is_reciprocal(user):
            if function_stem(read_callee(instruction.body)[0]) != "sqrt":
                return
            self._absorbed.add(result)
            self._fused[user.result] = "rsqrt"

    def _interface_allocas(self, function: Function) -> frozenset[str]:
        """Allocas whose address reaches a runtime call or is stored: arguments of collectives."""
        escaped: set[str] = set()
        for block in function.blocks:
            for instruction in block.instructions:
                names: list[str] = []
                if instruction.opcode == "call" and "@msim_" in instruction.body:
                    names = instruction.value_names()
                elif instruction.opcode == "store":
                    value = split_arguments(instruction.body)[0]
                    names = [first_name(value)] if value.startswith("ptr") else []
                for name in names:
                    escaped.update(root for root in self.origins.roots(name) if root.startswith("%"))
        return frozenset(escaped)


def function_stem(callee: str) -> str:
    """``exp2`` for ``llvm.exp2.v4f32``, ``exp2f`` and ``exp2``; the callee itself when unknown."""
    if callee.startswith("llvm."):
        parts = callee.split(".")[1:]
        while parts and _TYPE_SUFFIX.match(parts[-1]):
            parts.pop()
        return ".".join(parts)
    for candidate in (callee, callee.removesuffix("f"), callee.removesuffix("f16"), callee.lstrip("_")):
        if candidate in _ELEMENTWISE_STEMS:
            return candidate
    return callee


def _is_elementwise_call(call: Instruction) -> bool:
    return function_stem(read_callee(call.body)[0]) in _ELEMENTWISE_STEMS


def _is_fast(instruction: Instruction) -> bool:
    words = set(instruction.body.split(None, 8)[:8])
    return bool(words & {"fast", "afn", "arcp"})


def _is_reciprocal(division: Instruction) -> bool:
    first = split_arguments(division.body)[0]
    return first.endswith(" 1.000000e+00") or bool(re.search(r"(splat|<).*1\.000000e\+00", first))


def _division(instruction: Instruction) -> str:
    name = "reciprocal" if _is_reciprocal(instruction) else "divide"
    return f"fast-{name}" if _is_fast(instruction) else name
