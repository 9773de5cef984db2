"""Where NaNs are born: calls around the floating-point operations that can make one, and reading their marks.

Each place that makes a NaN of operands that are none gets a number, in the order in which places first did so. The
NaN carries that number in its topmost payload bits, which arithmetic and conversions between the formats keep: a
NaN in an output tells its place, and one that was selected away on the way is not told of. Number 0 is any other
NaN (of an input, a constant), 63 memory that was never written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from metalsim.build.ir import (
    FAST_MATH_FLAGS,
    Instruction,
    read_callee,
    read_type,
    skip_words,
    split_arguments,
    vector_shape,
)
from metalsim.build.values import result_type

LAST_NUMBER = 62
NEVER_WRITTEN = 63
"""Number of the pattern that fills variables and memory before they are written."""

_OPERATORS = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/", "frem": "fmod"}
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}
_CARRIER = {"float": "float", "double": "double", "half": "i16", "bfloat": "i16"}
# Neither makes a NaN of other numbers, or the NaN is no number's fault.
_HARMLESS = re.compile(
    r"^(?:msim_|__|llvm\.(?:fabs|copysign|minnum|maxnum|minimum|maximum|floor|ceil|trunc|rint|nearbyint|round|ldexp|is\b)"
    r"|(?:fabs|copysign|fmin|fmax|floor|ceil|trunc|rint|nearbyint|round|ldexp|nextafter|frexp|modf)f?$)"
)
_ATTRIBUTE = re.compile(r"\s*(?:noundef|nofpclass\([^)]*\)|inreg)(?=\s)")
_HOOK_ARGUMENTS = 3

HOOKS = {
    f"msim_born_{suffix}": f"declare {kind} @msim_born_{suffix}({', '.join([kind] * 4)}, i32, i32) nounwind"
    for kind, suffix in (("float", "f32"), ("double", "f64"), ("i16", "f16"), ("i16", "bf16"))
}
"""Declarations of the runtime's functions, by name."""


@dataclass(frozen=True)
class Operation:
    """A floating-point operation that can make a NaN.

    Attributes:
        name: an operator (``/``), or the function's name (``log``).
        type: of the result and the operands in IR, maybe a vector.
        operands: as text, at most 3.
    """

    name: str
    type: str
    operands: tuple[str, ...]


def operation_of(instruction: Instruction, is_defined: Callable[[str], bool]) -> Operation | None:
    """The operation of an instruction whose result may be a NaN that no operand was; None for any other.

    Args:
        instruction: of a function.
        is_defined: whether the module defines the function of that name: its own instructions are looked at then.
    """
    body = instruction.body
    if instruction.opcode in _OPERATORS:
        kind, end = read_type(body, skip_words(body, FAST_MATH_FLAGS))
        return Operation(_OPERATORS[instruction.opcode], kind, tuple(split_arguments(body[end:])))
    if instruction.opcode == "atomicrmw":
        parts = split_arguments(body)
        kind, end = read_type(parts[1])
        if kind in _SUFFIX and re.match(r"(?:volatile )?fadd ", parts[0]):
            return Operation("+", kind, (instruction.result, parts[1][end:].split()[0]))
        return None
    if instruction.opcode != "call" or not instruction.result:
        return None
    kind = result_type(instruction)
    name, arguments = read_callee(body)
    if vector_shape(kind)[1] not in _SUFFIX or not name or _HARMLESS.match(name) or is_defined(name):
        return None
    operands = tuple(value for value in (_operand(argument, kind) for argument in arguments) if value)
    plain = name.split(".")[1] if name.startswith("llvm.") else name.removesuffix("f")
    return Operation(plain, kind, operands[:_HOOK_ARGUMENTS]) if operands else None


def _operand(argument: str, kind: str) -> str:
    """The value of a call's argument of type ``kind``; empty for one of another type."""
    found, end = read_type(argument)
    while found == kind:
        attribute = _ATTRIBUTE.match(argument, end)
        if not attribute:
            return argument[end:].strip()
        end = attribute.end()
    return ""


class BirthHooks:
    """Writes the calls that look at results.

    Args:
        fresh_name: gives names for values.
    """

    def __init__(self, fresh_name: Callable[[], str]) -> None:
        self._fresh_name = fresh_name

    def lines(self, operation: Operation, raw: str, result: str, site: int) -> list[str]:
        """Instructions that define ``result`` as ``raw``, its NaNs marked.

        Args:
            operation: what was computed.
            raw: name of the value that the operation defines.
            result: name that the rest of the function uses.
            site: number for the runtime.
        """
        lanes, element = vector_shape(operation.type)
        if lanes == 1:
            return self._scalar(operation, raw, result, site)
        made: list[str] = []
        so_far = raw
        for lane in range(lanes):
            parts = [self._fresh_name() for _ in (raw, *operation.operands)]
            for part, value in zip(parts, (raw, *operation.operands), strict=True):
                made.append(f"{part} = extractelement {operation.type} {value}, i32 {lane}")
            marked = self._fresh_name()
            made += self._scalar(Operation("", element, tuple(parts[1:])), parts[0], marked, site)
            target = result if lane == lanes - 1 else self._fresh_name()
            made.append(f"{target} = insertelement {operation.type} {so_far}, {element} {marked}, i32 {lane}")
            so_far = target
        return made

    def _scalar(self, operation: Operation, raw: str, result: str, site: int) -> list[str]:
        kind = operation.type
        carrier, suffix = _CARRIER[kind], _SUFFIX[kind]
        made: list[str] = []
        values = [raw, *operation.operands]
        if carrier != kind:
            names = [self._fresh_name() for _ in values]
            made += [f"{n} = bitcast {kind} {v} to {carrier}" for n, v in zip(names, values, strict=True)]
            values = names
        count = len(values) - 1
        values += [values[0]] * (_HOOK_ARGUMENTS - count)
        target = result if carrier == kind else self._fresh_name()
        given = ", ".join(f"{carrier} {value}" for value in values)
        made.append(f"{target} = call {carrier} @msim_born_{suffix}({given}, i32 {count}, i32 {site})")
        if carrier != kind:
            made.append(f"{result} = bitcast {carrier} {target} to {kind}")
        return made


@dataclass(frozen=True)
class Arrival:
    """Elements of an output that hold the NaN of one place.

    Attributes:
        buffer: name of the output.
        index: of the first of them, row-major.
        count: how many.
    """

    buffer: str
    index: int
    count: int


def arrivals(outputs: Mapping[str, npt.NDArray[Any]]) -> dict[int, Arrival]:
    """Where the marked NaNs of a traced launch ended, by the number of their place; the first output that has them."""
    found: dict[int, Arrival] = {}
    for name, array in outputs.items():
        for number, (index, count) in _numbers(np.ravel(array)).items():
            found.setdefault(number, Arrival(name, index, count))
    return found


def _numbers(flat: npt.NDArray[Any]) -> dict[int, tuple[int, int]]:
    """First index and count of each number among the NaNs of a flat array."""
    if flat.dtype.names:
        parts: dict[int, tuple[int, int]] = {}
        for name in flat.dtype.names:
            parts = (
                {**_numbers(np.ascontiguousarray(flat[name]).reshape(-1)), **parts} if flat[name].ndim == 1 else parts
            )
        return parts
    shift = {"float32": 16, "float16": 3, "bfloat16": 0, "float64": 45}.get(flat.dtype.name)
    if shift is None:
        return {}
    places = np.flatnonzero(np.isnan(flat.astype(np.float32) if flat.dtype == ml_dtypes.bfloat16 else flat))
    bits = flat.view(f"u{flat.itemsize}")[places] >> shift
    numbers = bits.astype(np.uint64) & np.uint64(NEVER_WRITTEN)
    values, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    return {
        int(value): (int(places[at]), int(count))
        for value, at, count in zip(values, first, counts, strict=True)
        if value
    }
