"""What compiled code does to memory that no access hook sees: a thread's own arrays, constant tables, divisions.

Accesses of a thread's own array are hooked only where their address is computed at run time; clang's own
array-bounds check does not see those through a pointer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metalsim.build.ir import Function, Instruction, Module, read_type, split_arguments, vector_shape
from metalsim.build.values import Addresses, PointerOrigins, first_name, operand_element

_ARRAY = re.compile(r"^\[\s*(\d+)\s+x\s+(.+)\]$", re.DOTALL)
_CONSTANT = re.compile(r'^(@(?:"(?:[^"\\]|\\.)*"|[-a-zA-Z$._0-9]+)) = (?:[a-z_]+ )*?constant ')
_WORDS = {
    "half": "half",
    "bfloat": "bfloat",
    "float": "float",
    "i8": "char",
    "i16": "short",
    "i32": "int",
    "i64": "long",
}
LARGE_FRAME_BYTES = 1 << 16
"""Thread memory of one function from which on its line is kept, to tell whose stack overflowed."""

HOOKS = {
    "msim_own_load": "declare void @msim_own_load(ptr, i32, i32, ptr, i64) nounwind",
    "msim_own_store": "declare void @msim_own_store(ptr, i32, i32, ptr, i64) nounwind",
    "msim_divisor": "declare void @msim_divisor(i64, i32) nounwind",
    "msim_index_site": "declare void @msim_index_site(i32) nounwind",
    "msim_kept": "declare void @msim_kept(ptr, i32, i32, i32) nounwind",
}
"""Declarations of the runtime's functions, by name."""

FLOAT_CODES = {"float": 0, "half": 1, "bfloat": 2, "double": 3}
"""Formats as msim_kept numbers them."""


@dataclass(frozen=True)
class Extent:
    """A whole variable.

    Attributes:
        name: of the alloca or the global, with its sigil.
        bytes: of the variable.
        element_bytes: of an element of it, where it is an array; else 1.
        words: its type: ``float[4]``; ``24 bytes`` for a structure.
    """

    name: str
    bytes: int
    element_bytes: int
    words: str


def extent_of(module: Module, name: str, type_text: str) -> Extent:
    """The extent of a variable called ``name`` of a type in IR."""
    size = module.byte_size(type_text)
    shape, inner = "", type_text
    while match := _ARRAY.match(inner):
        shape, inner = shape + f"[{match[1]}]", match[2].strip()
    lanes, element = vector_shape(inner)
    if not shape and lanes == 3:
        size = 4 * (size // 3)  # a vector of three takes the room of four, and is copied with it
    if not shape or element not in _WORDS:
        return Extent(name, size, 1, f"{size} bytes")
    words = _WORDS[element] + (str(lanes) if lanes > 1 else "") + shape
    return Extent(name, size, max(module.byte_size(inner), 1), words)


def constant_tables(module: Module) -> dict[str, Extent]:
    """Global constants by name."""
    found: dict[str, Extent] = {}
    for line in module.lines:
        match = _CONSTANT.match(line) if line.startswith("@") else None
        if match:
            found[match[1]] = extent_of(module, match[1], read_type(line, match.end())[0])
    return found


def own_arrays(module: Module, function: Function) -> dict[str, Extent]:
    """Local variables of a function that stayed in memory, by name."""
    found: dict[str, Extent] = {}
    for name, instruction in function.definitions().items():
        if instruction.opcode == "alloca":
            type_text, _ = read_type(split_arguments(instruction.body)[0])
            found[name] = extent_of(module, name, type_text)
    return found


def guarded(
    pointer: str, size: int, origins: PointerOrigins, addresses: Addresses, extents: dict[str, Extent]
) -> Extent | None:
    """The variable that ``ptr %x`` should be an address inside of, where that is not certain for ``size`` bytes."""
    name = first_name(pointer)
    roots = origins.roots(name) if name else frozenset()
    extent = extents.get(next(iter(roots))) if len(roots) == 1 else None
    if extent is None or origins.is_computed(name):
        return extent
    address = addresses.of(name)
    outside = address.offset < 0 or address.offset + size > extent.bytes
    return extent if address.terms == (extent.name,) and outside else None


def divisor_of(instruction: Instruction) -> tuple[str, str] | None:
    """``(type, value)`` of a scalar integer division's divisor that is no constant."""
    if instruction.opcode not in {"sdiv", "udiv", "srem", "urem"}:
        return None
    value = split_arguments(instruction.body)[-1]
    kind = operand_element(instruction)
    scalar = re.search(rf"\b{kind} ", split_arguments(instruction.body)[0]) and "<" not in instruction.body
    return (kind, value) if scalar and value.startswith("%") else None
