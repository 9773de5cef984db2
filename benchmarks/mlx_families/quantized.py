"""Affine quantization and products with quantized matrices, as quantized.cpp launches them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, Size, draw, exact, numpy_dtype, threads
from metalsim import Fresh

_FILE = "quantized.metal"
_NAMES = {"float32": "float", "float16": "float16_t", "bfloat16": "bfloat16_t"}

_OVERLAP = "race quantized.h"
"""Outputs not a multiple of 8: the last two SIMD-groups compute and write some twice, with the same values."""
_LOADER_FAULT = "out-of-range quantized.h"
"""qmm_t with a last tile of fewer than 32 columns: load_safe compares the row of the weights' tile with the tile's
depth, not with its height, so that weights, scales and biases past the matrix's end are read (and not used)."""


@dataclass(frozen=True)
class Matrix:
    """A quantized matrix ``[rows, columns]``.

    Attributes:
        packed: uint8 ``[rows, columns * bits / 8]``, lowest bits first.
        scales: ``[rows, columns / group]``.
        biases: likewise.
        exact: float64 ``[rows, columns]``.
        group: elements that share a scale.
        bits: of an element.
    """

    packed: Array
    scales: Array
    biases: Array
    exact: Array
    group: int
    bits: int

    @classmethod
    def draw(cls, rows: int, columns: int, dtype: str, group: int, bits: int) -> Matrix:
        """Random elements, scales and biases."""
        random = np.random.default_rng(7)
        q = random.integers(0, 1 << bits, (rows, columns), dtype=np.uint8)
        scales = random.uniform(0.01, 0.02, (rows, columns // group)).astype(numpy_dtype(dtype))
        biases = (-exact(scales) * (1 << (bits - 1))).astype(numpy_dtype(dtype))
        wide = q * np.repeat(exact(scales), group, 1) + np.repeat(exact(biases), group, 1)
        return cls(pack(q, bits), scales, biases, wide, group, bits)

    def suffix(self, dtype: str) -> str:
        """Of kernel names."""
        return f"{_NAMES[dtype]}_gs_{self.group}_b_{self.bits}"


def pack(q: Array, bits: int) -> Array:
    """Elements of ``bits`` bits, one after another, lowest first: uint8."""
    spread = (q[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(spread.reshape(*q.shape[:-1], -1), axis=-1, bitorder="little")


def _product(
    name: str, m: Matrix, x: Array, expected: Array, dtype: str, sizes: tuple[int, ...], place: tuple[Size, Size],
    known: tuple[str, ...] = (),
) -> KernelLaunch:  # fmt: skip
    buffers: dict[int, Array | Fresh] = {
        0: m.packed.view(np.uint32), 1: m.scales, 2: m.biases, 3: x, 4: Fresh(dtype, expected.shape),  # type: ignore[arg-type]
    }  # fmt: skip
    buffers |= {5 + i: np.array(size, np.int32) for i, size in enumerate(sizes)}
    return KernelLaunch(
        family="quantized", file=_FILE, entry=name, dtype=dtype, buffers=buffers, grid=threads(*place),
        threadgroup=place[1], shape=f"{x.shape} by {m.exact.shape}, {m.bits} bits, groups of {m.group}",
        # Dequantized tiles and the inputs' scaled copies are kept in the inputs' type.
        expected={"y": expected}, roundings=32, half_roundings=3, known=known,
    )  # fmt: skip


def qmv(rows: int, n: int, k: int, dtype: str, group: int, bits: int) -> KernelLaunch:
    """``qmv``: vectors by the transposed matrix ``[n, k]``."""
    m, x = Matrix.draw(n, k, dtype, group, bits), draw(1, (rows, k), dtype)
    per_word = {3: 8, 5: 8, 6: 4}.get(bits, 32 // bits)
    fast = n % 8 == 0 and k % (per_word * (1 if bits == 2 else 2) * 32) == 0
    return _product(
        f"affine_qmv_{'fast_' if fast else ''}{m.suffix(dtype)}_batch_0", m, x, exact(x) @ m.exact.T, dtype, (k, n),
        ((rows, -(-n // 8), 1), (32, 2, 1)), (_OVERLAP,) if n % 8 else (),
    )  # fmt: skip


def qvm(rows: int, n: int, k: int, dtype: str, group: int, bits: int) -> KernelLaunch:
    """``qvm``: vectors by the matrix ``[k, n]``."""
    m, x = Matrix.draw(k, n, dtype, group, bits), draw(1, (rows, k), dtype)
    return _product(
        f"affine_qvm_{m.suffix(dtype)}_batch_0", m, x, exact(x) @ m.exact, dtype, (k, n),
        ((rows, -(-n // 64), 1), (32, 2, 1)),
    )  # fmt: skip


def qmm(rows: int, n: int, k: int, dtype: str, transpose: bool, bits: int) -> KernelLaunch:
    """``qmm``: a matrix by ``[n, k]`` transposed, or by ``[k, n]``."""
    m = Matrix.draw(*((n, k) if transpose else (k, n)), dtype, 32, bits)
    x = draw(1, (rows, k), dtype)
    aligned = f"_alN_{str(n % 32 == 0).lower()}" if transpose else ""
    return _product(
        f"affine_qmm_{'t' if transpose else 'n'}_{m.suffix(dtype)}{aligned}_batch_0", m, x,
        exact(x) @ (m.exact.T if transpose else m.exact), dtype, (k, n, rows),
        ((-(-n // 32), -(-rows // 32), 1), (32, 2, 2)), (_LOADER_FAULT,) if transpose and n % 32 else (),
    )  # fmt: skip


def dequantize(rows: int, k: int, dtype: str, bits: int) -> KernelLaunch:
    """``affine_dequantize``."""
    m = Matrix.draw(rows, k, dtype, 64, bits)
    packs = rows * k // {3: 8, 5: 8, 6: 4}.get(bits, 8 // bits)
    return KernelLaunch(
        family="quantized", file=_FILE, entry=f"affine_dequantize_{m.suffix(dtype)}", dtype=dtype,
        shape=f"{(rows, k)} {bits} bits", grid=(packs, 1, 1), threadgroup=(min(packs, 1024), 1, 1),
        buffers={0: m.packed, 1: m.scales, 2: m.biases, 3: Fresh(dtype, (rows, k))},  # type: ignore[arg-type]
        expected={"out": m.exact}, half_roundings=3,
    )  # fmt: skip


def quantize(rows: int, k: int, dtype: str, bits: int) -> KernelLaunch:
    """``affine_quantize`` of values that are exact multiples of their group's scale."""
    group, top = 64, (1 << bits) - 1
    random = np.random.default_rng(3)
    q = random.integers(0, top + 1, (rows, k // group, group))
    q[..., 0], q[..., 1] = 0, top
    # Values from -top to 0, times a power of 2: the edge is the least one, the scale that power.
    step = 2.0 ** random.integers(-3, 3, (rows, k // group, 1))
    w = ((q - top) * step).reshape(rows, k)
    stored = w.astype(numpy_dtype(dtype))
    count = rows * k // (group // 32)
    return KernelLaunch(
        family="quantized", file=_FILE, entry=f"affine_quantize_{_NAMES[dtype]}_gs_{group}_b_{bits}", dtype=dtype,
        shape=f"{(rows, k)} {bits} bits", grid=(count, 1, 1), threadgroup=(min(count, 1024), 1, 1),
        buffers={0: stored, 1: Fresh("uint8", (rows, k * bits // 8)), 2: Fresh(dtype, (rows, k // group)),  # type: ignore[arg-type]
                 3: Fresh(dtype, (rows, k // group))},  # type: ignore[arg-type]
        expected={"out": pack(q.reshape(rows, k).astype(np.uint8), bits), "scales": step[..., 0],
                  "biases": -top * step[..., 0]},
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the family."""
    for dtype in FLOATS:
        for bits in (4, 8):
            yield qmv(2, 40, 512, dtype, 64, bits)
            yield qmv(2, 37, 320, dtype, 32, bits)
        yield qmv(1, 16, 1024, dtype, 64, 3)
        yield qvm(3, 96, 77, dtype, 32, 4)
        for bits in (4, 6):
            yield qmm(45, 64, 96, dtype, True, bits)
            yield qmm(33, 50, 64, dtype, True, bits)
        yield qmm(45, 96, 70, dtype, False, 4)
        for bits in (2, 3, 4, 8):
            yield dequantize(3, 128, dtype, bits)
        for bits in (2, 4):
            yield quantize(3, 128, dtype, bits)
