"""What a buffer parameter's type holds: ``float4`` is four float32, ``packed_half3`` three float16 without padding."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metalsim.execute.launch import numpy_dtype
from metalsim.model import DType

_DTYPES: dict[str, DType] = {
    "float": "float32", "half": "float16", "bfloat": "bfloat16", "bool": "bool", "char": "int8", "uchar": "uint8",
    "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32", "long": "int64", "ulong": "uint64",
    "size_t": "uint64", "float16_t": "float16", "bfloat16_t": "bfloat16",
    "int8_t": "int8", "int16_t": "int16", "int32_t": "int32", "int64_t": "int64",
    "uint8_t": "uint8", "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64",
}  # fmt: skip
_ELEMENT = re.compile(r"(?P<packed>packed_)?(?:_?atomic[_<])?(?P<name>[a-z]\w*?)(?P<width>[234])?>?")


@dataclass(frozen=True)
class Element:
    """Element of a buffer.

    Attributes:
        dtype: of its components.
        width: components, 1 for a scalar.
        bytes: with padding.
    """

    dtype: DType
    width: int
    bytes: int


def read_element(kind: str) -> Element | None:
    """The element that a C type names; None for a structure.

    Args:
        kind: without pointer or reference, such as ``float4`` or ``atomic_uint``.
    """
    match = _ELEMENT.fullmatch(kind)
    dtype = _DTYPES.get(match["name"]) if match else None
    if match is None or dtype is None:
        return None
    width = int(match["width"] or 1)
    places = 4 if width == 3 and not match["packed"] else width
    return Element(dtype, width, places * numpy_dtype(dtype).itemsize)
