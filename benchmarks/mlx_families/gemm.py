"""Matrix products: steel gemm (fused, split along K) and gemv, as matmul.cpp launches them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, draw, exact, threads
from benchmarks.mlx_families.pointwise import block_dims
from metalsim import Fresh

_PARAMS = np.dtype([
    *((name, np.int32) for name in ("M", "N", "K", "lda", "ldb", "ldd", "tiles_n", "tiles_m")),
    *((name, np.int64) for name in ("batch_stride_a", "batch_stride_b", "batch_stride_d")),
    *((name, np.int32) for name in ("swizzle_log", "gemm_k_iterations_aligned", "batch_ndim")),
], align=True)  # fmt: skip
_ADD_PARAMS = np.dtype(
    [("ldc", np.int32), ("fdc", np.int32), ("batch_stride_c", np.int64), ("alpha", np.float32), ("beta", np.float32)],
    align=True,
)
_SPLIT_PARAMS = np.dtype([
    (name, np.int32)
    for name in (
        "M", "N", "K", "lda", "ldb", "ldc", "tiles_n", "tiles_m", "split_k_partitions", "split_k_partition_stride",
        "split_k_partition_size", "swizzle_log", "gemm_k_iterations_aligned",
    )
])  # fmt: skip


_EPILOGUE_FAULT = "out-of-range mma.h"
"""apply_epilogue_safe tests columns but not rows: the last tile reads the added matrix past its end."""
_GEMV_FAULTS = ("divergence gemv.h", "race gemv.h", "race body")
"""Several faults, all without effect on results where SIMD-groups run in step and lanes that ended hold their values.

The barriers stand in branches that not all threads take (219, 350, 400); the one between the write of partial sums
and their sum has mem_none, which orders no memory; lanes past the last row return before shuffles that read them
(the sums of these are not used); and the last rows are computed and written twice, with the same values.
"""


@dataclass(frozen=True)
class Product:
    """A matrix product ``[batch, M, K] @ [batch, K, N]``.

    Attributes:
        M: rows.
        N: columns.
        K: summed over.
        transpose_a: the first operand lies in memory as ``[K, M]``.
        transpose_b: the second one as ``[N, K]``.
        batch: products.
        add: a matrix is added: ``alpha * A @ B + beta * C``.
        device: last letter of the GPU's architecture name, which chooses the tiles.
    """

    M: int
    N: int
    K: int
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    add: bool = False
    device: str = "c"

    @property
    def ways(self) -> str:
        """n or t for each operand."""
        return ("t" if self.transpose_a else "n") + ("t" if self.transpose_b else "n")

    def __str__(self) -> str:
        extra = f"{f' batch={self.batch}' if self.batch > 1 else ''}{' axpby' if self.add else ''}"
        return f"{self.M}x{self.N}x{self.K} {self.ways}{extra}"

    def operands(self, dtype: str) -> tuple[Array, Array, Array]:
        """A and B as they lie in memory, and their product in float64."""
        a, b = draw(1, (self.batch, self.M, self.K), dtype), draw(2, (self.batch, self.K, self.N), dtype)
        result = exact(a) @ exact(b)
        if self.transpose_a:
            a = np.ascontiguousarray(a.swapaxes(1, 2))
        if self.transpose_b:
            b = np.ascontiguousarray(b.swapaxes(1, 2))
        return a, b, np.asarray(result)


def _tiles(p: Product, dtype: str) -> tuple[int, int, int, int, int]:
    """``GEMM_TPARAM_MACRO``: bm, bn, bk, wm, wn."""
    nt = not p.transpose_a and p.transpose_b
    if p.device in "gp":
        if nt:
            return 64, 32, 32, 2, 2
        if dtype != "float32":
            return 64, 64, 16, 1, 2
    if p.device == "d":  # all of these products are small for such a device
        if dtype != "float32":
            return (64, 32, 32, 2, 2) if nt else (64, 64, 16, 1, 2)
        return (32, 64, 16, 1, 2) if nt else (64, 32, 32, 2, 2)
    return 64, 64, 16, 2, 2


def _filled(dtype: np.dtype[np.void], values: Mapping[str, float]) -> Array:
    params = np.zeros((), dtype)
    for name, value in values.items():
        params[name] = value
    return params


def fused(p: Product, dtype: str) -> KernelLaunch:
    """``steel_matmul_regular_axpby``."""
    bm, bn, bk, wm, wn = _tiles(p, dtype)
    a, b, expected = p.operands(dtype)
    tn, tm = -(-p.N // bn), -(-p.M // bm)
    params = _filled(_PARAMS, {
        "M": p.M, "N": p.N, "K": p.K, "lda": p.M if p.transpose_a else p.K, "ldb": p.K if p.transpose_b else p.N,
        "ldd": p.N, "tiles_n": tn, "tiles_m": tm, "batch_stride_a": p.M * p.K, "batch_stride_b": p.K * p.N,
        "batch_stride_d": p.M * p.N, "gemm_k_iterations_aligned": p.K // bk, "batch_ndim": 1,
    })  # fmt: skip
    buffers: dict[int, Array | Fresh] = {0: a, 1: b, 3: Fresh(dtype, expected.shape), 4: params}  # type: ignore[arg-type]
    if p.add:
        c = draw(3, expected.shape, dtype)
        values = {"ldc": p.N, "fdc": 1, "batch_stride_c": p.M * p.N, "alpha": 0.5, "beta": 2}
        buffers |= {2: c, 5: _filled(_ADD_PARAMS, values)}
        expected = 0.5 * expected + 2 * exact(c)
    group = (32, wn, wm)
    return KernelLaunch(
        family="gemm", file="steel/gemm/kernels/steel_gemm_fused.metal", dtype=dtype, shape=str(p),
        entry=f"steel_gemm_fused_{p.ways}_{dtype}_{dtype}_bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}",
        buffers=buffers, grid=threads((tn, tm, p.batch), group), threadgroup=group, expected={"D": expected},
        constants={10: False, 100: p.add, 110: p.add, 200: p.M % bm == 0, 201: p.N % bn == 0, 202: p.K % bk == 0},
        roundings=16, known=(_EPILOGUE_FAULT,) if p.add and p.M % bm else (),
    )  # fmt: skip


def split(p: Product, dtype: str) -> tuple[KernelLaunch, KernelLaunch]:
    """``steel_gemm_splitk_axpby``: products of parts of K in float32, and their sum."""
    bm, bn, bk = 16 if p.M < 40 else 32, 16 if p.N < 40 else 32, 16
    tiles = -(-p.M // 32) * -(-p.N // 32)
    wished = 1 << max(0, (p.K // 16 // tiles) - 1).bit_length()
    partitions = min(max(2, wished), 32)
    iterations = p.K // bk // partitions
    size = iterations * bk
    a, b, expected = p.operands(dtype)
    tn, tm = -(-p.N // bn), -(-p.M // bm)
    params = _filled(_SPLIT_PARAMS, {
        "M": p.M, "N": p.N, "K": p.K, "lda": p.M if p.transpose_a else p.K, "ldb": p.K if p.transpose_b else p.N,
        "ldc": p.N, "tiles_n": tn, "tiles_m": tm, "split_k_partitions": partitions,
        "split_k_partition_stride": p.M * p.N, "split_k_partition_size": size, "gemm_k_iterations_aligned": iterations,
    })  # fmt: skip
    wide_a, wide_b = exact(a[0].T if p.transpose_a else a[0]), exact(b[0].T if p.transpose_b else b[0])
    edges = [i * size for i in range(partitions)] + [p.K]
    parts = np.stack([wide_a[:, start:end] @ wide_b[start:end] for start, end in pairwise(edges)])
    aligned = f"MN_{'t' if p.M % bm == 0 and p.N % bn == 0 else 'n'}aligned_K_{'t' if p.K % bk == 0 else 'n'}aligned"
    file, group = "steel/gemm/kernels/steel_gemm_splitk.metal", (32, 2, 2)
    first = KernelLaunch(
        family="gemm", file=file, dtype=dtype, shape=f"{p} in {partitions}",
        entry=f"steel_gemm_splitk_{p.ways}_{dtype}_float32_bm{bm}_bn{bn}_bk{bk}_wm2_wn2_{aligned}",
        buffers={0: a, 1: b, 2: Fresh("float32", parts.shape), 3: params},
        grid=threads((tn, tm, partitions), group), threadgroup=group, expected={"C": parts}, roundings=16,
    )  # fmt: skip
    second = KernelLaunch(
        family="gemm", file=file, dtype=dtype, shape=f"{p} in {partitions}",
        entry=f"steel_gemm_splitk_accum_{dtype}_float32",
        buffers={0: parts.astype(np.float32), 1: Fresh(dtype, expected.shape), 2: np.array(partitions, np.int32),  # type: ignore[arg-type]
                 3: np.array(p.M * p.N, np.int32), 4: np.array(p.N, np.int32)},
        grid=(p.N, p.M, 1), threadgroup=block_dims(p.N, p.M, 1), expected={"D": expected}, roundings=16,
    )  # fmt: skip
    return first, second


def gemv(outputs: int, inputs: int, dtype: str, transpose: bool, add: bool = False, batch: int = 1) -> KernelLaunch:
    """``gemv_axbpy``: the matrix is ``[outputs, inputs]``, or with ``transpose`` ``[inputs, outputs]``."""
    tm, tn, sm, sn, bm, bn = 4, 4, 1, 32, 1, 1
    if transpose:
        sm, sn = (4, 8) if inputs >= 8192 and outputs >= 2048 else (8, 4)
        bn = 16 if outputs >= 2048 else 4 if outputs >= 512 else 2
        tn = 1 if outputs < tn else tn
        per_group = bn * sn * tn
    else:
        bm = 8 if outputs >= 4096 else 4
        if inputs <= 64:
            bm, sm, sn = 1, 8, 4
        elif inputs >= 16 * outputs:
            bm, bn = 1, 8
        tm = 1 if outputs < tm else tm
        per_group = bm * sm * tm
    matrix, vector = draw(1, (batch, outputs, inputs), dtype), draw(2, (batch, inputs), dtype)
    expected = np.einsum("boi,bi->bo", exact(matrix), exact(vector))
    if transpose:
        matrix = np.ascontiguousarray(matrix.swapaxes(1, 2))
    buffers: dict[int, Array | Fresh] = {
        0: matrix, 1: vector, 3: Fresh(dtype, expected.shape), 4: np.array(inputs, np.int32),  # type: ignore[arg-type]
        5: np.array(outputs, np.int32), 6: np.array(matrix.shape[-1], np.int32), 9: np.array(1, np.int32),
        10: np.array([batch], np.int32), 11: np.array([inputs], np.int64), 12: np.array([inputs * outputs], np.int64),
    }  # fmt: skip
    if add:
        bias = draw(3, expected.shape, dtype)
        buffers |= {2: bias, 7: np.array(0.5, np.float32), 8: np.array(2, np.float32),
                    13: np.array([outputs], np.int64), 14: np.array(1, np.int32)}  # fmt: skip
        expected = 0.5 * expected + 2 * exact(bias)
    group = (32, bn, bm)
    return KernelLaunch(
        family="gemv", file="gemv.metal", dtype=dtype, shape=f"{batch}x{outputs}x{inputs}{' axpby' if add else ''}",
        entry=f"gemv_{'t_' if transpose else ''}{dtype}_bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm{tm}_tn{tn}_nc0_axpby{int(add)}",
        buffers=buffers, grid=threads((-(-outputs // per_group), 1, batch), group), threadgroup=group,
        expected={"out_vec": expected}, roundings=16, half_roundings=3 if add else 1,
        known=_GEMV_FAULTS,
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the families."""
    for dtype in FLOATS:
        yield fused(Product(64, 64, 32), dtype)
        yield fused(Product(65, 70, 50), dtype)
        yield fused(Product(50, 33, 47, transpose_b=True, device="g"), dtype)
        yield fused(Product(50, 33, 47, transpose_a=True, batch=2), dtype)
        yield fused(Product(50, 65, 47, transpose_a=True, transpose_b=True, add=True, device="d"), dtype)
        yield from split(Product(33, 30, 500), dtype)
        yield from split(Product(64, 32, 512, transpose_b=True), dtype)
        for transpose in (False, True):
            yield gemv(100, 333, dtype, transpose)
            yield gemv(3, 1001, dtype, transpose)
            yield gemv(77, 50, dtype, transpose, add=True, batch=2)
            yield gemv(520, 131, dtype, transpose)
