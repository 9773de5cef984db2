"""Metal's integer functions in every integer type, against Python's integers of any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metalsim.model import DType
from tests.unit.metalsim.launching import Launcher

TYPES: tuple[DType, ...] = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
METAL = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort",
    "int32": "int", "uint32": "uint", "int64": "long", "uint64": "ulong",
}  # fmt: skip


class Width:
    """What an integer type can hold."""

    def __init__(self, dtype: DType) -> None:
        self.bits = np.dtype(dtype).itemsize * 8
        self.low, self.high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def wrap(self, value: int) -> int:
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if value > self.high else value

    def clip(self, value: int) -> int:
        return min(max(value, self.low), self.high)

    def raw(self, value: int) -> int:
        return value & ((1 << self.bits) - 1)


def _rotate(w: Width, a: int, n: int) -> int:
    k = w.raw(n) % w.bits
    return w.raw(a) << k | w.raw(a) >> (w.bits - k)


def _insert(w: Width, base: int, insert: int, offset: int, bits: int) -> int:
    mask = ((1 << bits) - 1) << offset
    return (w.raw(base) & ~mask) | (w.raw(insert) << offset & mask)


def _extract(w: Width, a: int, offset: int, bits: int) -> int:
    field = w.raw(a) >> offset & ((1 << bits) - 1)
    return field - (1 << bits) if w.low < 0 and bits and field >> (bits - 1) else field


FUNCTIONS: dict[str, Callable[[Width, int, int, int], int]] = {
    "abs(a)": lambda w, a, b, c: abs(a),
    "T(absdiff(a, b))": lambda w, a, b, c: abs(a - b),
    "addsat(a, b)": lambda w, a, b, c: w.clip(a + b),
    "subsat(a, b)": lambda w, a, b, c: w.clip(a - b),
    "hadd(a, b)": lambda w, a, b, c: (a + b) >> 1,
    "rhadd(a, b)": lambda w, a, b, c: (a + b + 1) >> 1,
    "mulhi(a, b)": lambda w, a, b, c: a * b >> w.bits,
    "madhi(a, b, c)": lambda w, a, b, c: (a * b >> w.bits) + c,
    "madsat(a, b, c)": lambda w, a, b, c: w.clip(a * b + c),
    "min(a, b)": lambda w, a, b, c: min(a, b),
    "max(a, b)": lambda w, a, b, c: max(a, b),
    "min3(a, b, c)": lambda w, a, b, c: min(a, b, c),
    "max3(a, b, c)": lambda w, a, b, c: max(a, b, c),
    "median3(a, b, c)": lambda w, a, b, c: sorted((a, b, c))[1],
    "clamp(a, min(b, c), max(b, c))": lambda w, a, b, c: sorted((a, b, c))[1],
    "clz(a)": lambda w, a, b, c: w.bits - w.raw(a).bit_length(),
    "ctz(a)": lambda w, a, b, c: (w.raw(a) & -w.raw(a)).bit_length() - 1 if a else w.bits,
    "popcount(a)": lambda w, a, b, c: w.raw(a).bit_count(),
    "reverse_bits(a)": lambda w, a, b, c: int(f"{w.raw(a):0{w.bits}b}"[::-1], 2),
    "rotate(a, b)": lambda w, a, b, c: _rotate(w, a, b),
    "extract_bits(a, 3, 4)": lambda w, a, b, c: _extract(w, a, 3, 4),
    "extract_bits(a, 0, 8 * sizeof(T))": lambda w, a, b, c: a,
    "extract_bits(a, 2, 0)": lambda w, a, b, c: 0,
    "insert_bits(a, b, 2, 5)": lambda w, a, b, c: _insert(w, a, b, 2, 5),
    "insert_bits(a, b, 0, 8 * sizeof(T))": lambda w, a, b, c: b,
    "select(a, b, a < c)": lambda w, a, b, c: b if a < c else a,
    "a * b + c": lambda w, a, b, c: a * b + c,
}  # fmt: skip


def kernel_text(vector: bool) -> str:
    """Every function of the scalars a, b and c, or of vectors that hold them in their second component."""
    lines = ["uint i = thread_position_in_grid.x;"]
    if vector:
        lines += [f"V {name} = V(x[3 * i + {k}]); {name}.x = 1;" for k, name in enumerate("abc")]
        pick = "V({}).y"
    else:
        lines += [f"T {name} = x[3 * i + {k}];" for k, name in enumerate("abc")]
        pick = "{}"
    for k, function in enumerate(FUNCTIONS):
        written = "V" + function[1:] if vector and function.startswith("T(") else function
        lines.append(f"out[i * {len(FUNCTIONS)} + {k}] = {pick.format(written)};")
    return "\n".join(lines)


def check(launch: Launcher, dtype: DType, rows: list[tuple[int, int, int]], *, vector: bool) -> None:
    x = np.array(rows, dtype)
    header = "#define V vec<T, 3>\n" if vector else ""
    shape = (len(rows), len(FUNCTIONS))
    source = f"typedef {METAL[dtype]} T;\n" + kernel_text(vector)
    result = launch(source, {"x": x}, {"out": (dtype, shape)}, grid=len(rows), threadgroup=32, header=header)
    assert result.findings == ()
    w = Width(dtype)
    for row, (a, b, c) in zip(result.outputs["out"], rows, strict=True):
        expected = [w.wrap(reference(w, a, b, c)) for reference in FUNCTIONS.values()]
        actual = [int(value) for value in row]
        wrong = {f: (got, want) for f, got, want in zip(FUNCTIONS, actual, expected, strict=True) if got != want}
        assert wrong == {}, (a, b, c)


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("dtype", TYPES)
def test_on_the_edges_of_each_type(launch: Launcher, dtype: DType, vector: bool) -> None:
    w = Width(dtype)
    edges = sorted({w.low, w.low + 1, w.clip(-1), 0, 1, 7, w.high - 1, w.high})
    check(launch, dtype, [(a, b, c) for a in edges for b in edges for c in edges[::3]], vector=vector)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), dtype=st.sampled_from(TYPES))
def test_on_any_values(launch: Launcher, data: st.DataObject, dtype: DType) -> None:
    value = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    rows = data.draw(st.lists(st.tuples(value, value, value), min_size=8, max_size=40))
    check(launch, dtype, rows, vector=False)


def test_products_of_24_bits(launch: Launcher) -> None:
    """mul24 sees the low 24 bits only, with their sign."""
    source = """\
uint i = thread_position_in_grid.x;
int a = x[2 * i], b = x[2 * i + 1];
out[4 * i] = mul24(a, b); out[4 * i + 1] = mad24(a, b, 5); out[4 * i + 2] = int(mul24(uint(a), uint(b)));
out[4 * i + 3] = mad24(int2(a), int2(b), int2(7)).y;
"""
    rows = [(3, -4), (0x7FFFFF, 2), (-0x800000, 3), (0x12345678, 0x9ABCDE), (0x1000001, 5), (0, 9)]
    x = np.array(rows, np.int64).astype(np.int32)
    result = launch(source, {"x": x}, {"out": ("int32", (len(rows), 4))}, grid=len(rows), threadgroup=8)
    w = Width("int32")

    def low(value: int) -> int:
        value &= 0xFFFFFF
        return value - 0x1000000 if value >> 23 else value

    for row, (a, b) in zip(result.outputs["out"].tolist(), rows, strict=True):
        unsigned = w.wrap((a & 0xFFFFFF) * (b & 0xFFFFFF))
        assert row == [w.wrap(low(a) * low(b)), w.wrap(low(a) * low(b) + 5), unsigned, w.wrap(low(a) * low(b) + 7)]
