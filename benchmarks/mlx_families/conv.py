"""Convolutions, as conv.cpp launches them: implicit gemm, depthwise, unfolding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, draw, exact, strides, threads
from benchmarks.mlx_families.pointwise import block_dims
from metalsim import Fresh

_PARAMS = np.dtype([
    *((name, np.int32) for name in ("N", "C", "O")),
    *((name, np.int32, 2) for name in ("iS", "wS", "oS", "str", "pad", "kdil", "idil")),
    *((name, np.int64, 4) for name in ("in_strides", "wt_strides", "out_strides")),
    ("groups", np.int32), ("flip", np.bool_),
], align=True)  # fmt: skip
_GEMM_PARAMS = np.dtype([
    (name, np.int32)
    for name in (
        "M", "N", "K", "gemm_k_iterations", "inp_jump_w", "inp_jump_h", "inp_jump_c", "tiles_n", "tiles_m",
        "swizzle_log",
    )
])  # fmt: skip


@dataclass(frozen=True)
class Convolution:
    """``[N, H, W, C]`` with filters ``[O, KH, KW, C / groups]``.

    Attributes:
        N: batch.
        H: input rows.
        W: input columns.
        C: input channels.
        O: output channels.
        filter: rows and columns.
        stride: of the outputs in the input.
        padding: zeros around the input.
        dilation: of the filter.
        groups: of channels.
    """

    N: int
    H: int
    W: int
    C: int
    O: int  # noqa: E741
    filter: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        size, pairs = (self.H, self.W), zip(self.filter, self.stride, self.padding, self.dilation, strict=True)
        each = [(n + 2 * p - d * (f - 1) - 1) // s + 1 for n, (f, s, p, d) in zip(size, pairs, strict=True)]
        return each[0], each[1]

    def __str__(self) -> str:
        extra = f"{f' stride {self.stride}' if self.stride != (1, 1) else ''}"
        extra += f"{f' groups {self.groups}' if self.groups > 1 else ''}"
        return f"{self.N}x{self.H}x{self.W}x{self.C} to {self.O} by {self.filter}{extra}"

    def arrays(self, dtype: str) -> tuple[Array, Array]:
        """Input and filters."""
        return draw(1, (self.N, self.H, self.W, self.C), dtype), draw(
            2, (self.O, *self.filter, self.C // self.groups), dtype
        )

    def params(self) -> Array:
        """``MLXConvParams<2>``."""
        params = np.zeros((), _PARAMS)
        shapes = (
            (self.N, self.H, self.W, self.C),
            (self.O, *self.filter, self.C // self.groups),
            (self.N, *self.out, self.O),
        )
        values = {
            "N": self.N, "C": self.C, "O": self.O, "iS": (self.H, self.W), "wS": self.filter, "oS": self.out,
            "str": self.stride, "pad": self.padding, "kdil": self.dilation, "idil": (1, 1),
            "in_strides": strides(shapes[0]), "wt_strides": strides(shapes[1]), "out_strides": strides(shapes[2]),
            "groups": self.groups,
        }  # fmt: skip
        for name, value in values.items():
            params[name] = value
        return params

    def patches(self, x: Array) -> Array:
        """Input elements under the filter: ``[N, OH, OW, KH, KW, C]``."""
        (ph, pw), (sh, sw), (dh, dw) = self.padding, self.stride, self.dilation
        padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
        rows = np.arange(self.out[0])[:, None] * sh + np.arange(self.filter[0]) * dh
        columns = np.arange(self.out[1])[:, None] * sw + np.arange(self.filter[1]) * dw
        return np.asarray(padded[:, rows[:, None, :, None], columns[None, :, None, :]])

    def result(self, x: Array, w: Array) -> Array:
        """Float64 ``[N, OH, OW, O]``."""
        patches = self.patches(exact(x))
        split = patches.reshape(*patches.shape[:-1], self.groups, self.C // self.groups)
        filters = exact(w).reshape(self.groups, self.O // self.groups, *self.filter, self.C // self.groups)
        result = np.einsum("nhwijgc,goijc->nhwgo", split, filters)
        return np.asarray(result.reshape(self.N, *self.out, self.O))


def implicit_gemm(c: Convolution, dtype: str) -> KernelLaunch:
    """``implicit_gemm_conv_2D_gpu``."""
    channels, n = c.C // c.groups, c.O // c.groups
    m, k = c.N * c.out[0] * c.out[1], c.filter[0] * c.filter[1] * channels
    wm, wn, bk = 2, 2, 16
    bm = 64 if m >= 8192 and channels >= 64 else 32
    bn = 64 if bm == 64 or n >= 64 else 32
    if n <= 16:
        bn, wm, wn = 8, 4, 1
    taps, special = c.filter[0] * c.filter[1], 0
    iterations = taps * -(-channels // bk)
    if channels <= 2:
        iterations, special = -(-k // bk), channels
    elif channels <= 4:
        iterations, special = -(-(taps * 4) // bk), channels
    small = not special and max(c.filter) <= 16
    by = strides((c.N, c.H, c.W, c.C))
    ijw, ijh = by[2] * c.dilation[1], by[1] * c.dilation[0]
    params = np.zeros((), _GEMM_PARAMS)
    values = {
        "M": m, "N": n, "K": k, "gemm_k_iterations": iterations, "inp_jump_w": ijw,
        "inp_jump_h": ijh - (c.filter[1] - 1) * ijw,
        "inp_jump_c": bk - (c.filter[0] - 1) * ijh - (c.filter[1] - 1) * ijw, "tiles_n": -(-n // bn),
        "tiles_m": -(-m // bm),
    }  # fmt: skip
    for name, value in values.items():
        params[name] = value
    x, w = c.arrays(dtype)
    expected, group = c.result(x, w), (32, wn, wm)
    return KernelLaunch(
        family="conv", file="steel/conv/kernels/steel_conv.metal", dtype=dtype, shape=str(c),
        entry=f"implicit_gemm_conv_2d_{dtype}_bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}_channel_{special or 'l'}"
              f"_filter_{'s' if small else 'l'}",
        buffers={0: x, 1: w, 2: Fresh(dtype, expected.shape), 3: c.params(), 4: params},  # type: ignore[arg-type]
        grid=threads((-(-n // bn), -(-m // bm), c.groups), group), threadgroup=group, expected={"C": expected},
        roundings=16,
    )  # fmt: skip


def depthwise(c: Convolution, dtype: str) -> KernelLaunch:
    """``depthwise_conv_2D_gpu``: a filter for each of a multiple of 8 channels."""
    x, w = c.arrays(dtype)
    expected, (rows, columns, channels) = c.result(x, w), (4, 8, 8)
    group = (channels, columns, rows)
    return KernelLaunch(
        family="conv", file="conv.metal", dtype=dtype, shape=str(c), entry=f"depthwise_conv_2d_{dtype}",
        buffers={0: x, 1: w, 2: Fresh(dtype, expected.shape), 3: c.params()},  # type: ignore[arg-type]
        grid=threads((c.C // channels, -(-c.out[1] // columns), -(-c.out[0] // rows) * c.N), group), threadgroup=group,
        expected={"out": expected}, roundings=16,
        constants={0: c.filter[0], 1: c.filter[1], 10: c.stride[0], 11: c.stride[1], 100: rows,
                   101: columns, 200: False},
    )  # fmt: skip


def depthwise_1d(batch: int, length: int, channels: int, taps: int, dtype: str) -> KernelLaunch:
    """``depthwise_conv_1D_gpu``."""
    x, w = draw(1, (batch, length, channels), dtype), draw(2, (channels, taps, 1), dtype)
    count = length - taps + 1
    windows = np.lib.stride_tricks.sliding_window_view(exact(x), taps, axis=1)
    grid = (channels, count, batch)
    return KernelLaunch(
        family="conv", file="conv.metal", dtype=dtype, shape=f"{x.shape} by {taps}", entry=f"depthwise_conv_1d_{dtype}",
        buffers={0: x, 1: w, 2: Fresh(dtype, (batch, count, channels)), 3: np.array(strides(x.shape), np.int32),  # type: ignore[arg-type]
                 4: np.array(taps, np.int32)},
        grid=grid, threadgroup=block_dims(*grid),
        expected={"out": np.einsum("btck,ck->btc", windows, exact(w)[..., 0])},
        roundings=16,
    )  # fmt: skip


def unfold(c: Convolution, dtype: str) -> KernelLaunch:
    """``explicit_gemm_conv_ND_gpu``: patches as rows, all in one step."""
    x, _ = c.arrays(dtype)
    patches = c.patches(exact(x))
    grid = (c.C, c.filter[0] * c.filter[1], c.N * c.out[0] * c.out[1])
    return KernelLaunch(
        family="conv", file="conv.metal", dtype=dtype, shape=str(c), entry=f"naive_unfold_nd_{dtype}_2",
        buffers={0: x, 1: Fresh(dtype, patches.shape), 2: c.params(), 3: np.array(0, np.int32)},  # type: ignore[arg-type]
        grid=grid, threadgroup=block_dims(*grid), expected={"out": patches}, roundings=0, half_roundings=0,
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the family."""
    for dtype in FLOATS:
        yield implicit_gemm(Convolution(2, 9, 7, 16, 32), dtype)
        yield implicit_gemm(Convolution(1, 11, 9, 3, 13, (5, 3), (2, 1), (2, 0)), dtype)
        yield implicit_gemm(Convolution(1, 9, 9, 32, 64, dilation=(2, 1), groups=2), dtype)
        yield implicit_gemm(Convolution(1, 7, 5, 32, 5, (1, 1), padding=(0, 0)), dtype)
        yield depthwise(Convolution(2, 9, 11, 16, 16, groups=16), dtype)
        yield depthwise(Convolution(1, 13, 10, 16, 16, (5, 3), (2, 2), (2, 1), groups=16), dtype)
        yield depthwise_1d(2, 17, 5, 4, dtype)
        yield unfold(Convolution(2, 6, 5, 3, 4, stride=(2, 1)), dtype)
