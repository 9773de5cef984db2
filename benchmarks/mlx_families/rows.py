"""Kernels with one threadgroup per row: rms_norm, layer_norm, their gradients, softmax, logsumexp.

As normalization.cpp, softmax.cpp and logsumexp.cpp launch them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, Size, draw, exact
from metalsim import Fresh

_EPS = 1e-5
_LAYER_NORM_FAULT = "out-of-range layer_norm.metal"
"""Rows that are not a multiple of 256: threads wholly past the row's end index a thread's array below 0."""


def _sizes(rows: int, axis: int, reads: int, looped_limit: int) -> tuple[Size, Size]:
    threads = 1024 if axis > looped_limit else -(-axis // (32 * reads)) * 32
    return (rows * threads, 1, 1), (threads, 1, 1)


def rms_norm(rows: int, axis: int, dtype: str, weighted: bool = True) -> KernelLaunch:
    """``RMSNorm::eval_gpu``; without a weight ``w`` is one element and its stride 0."""
    x, w = draw(1, (rows, axis), dtype), draw(2, (axis if weighted else 1,), dtype)
    grid, group = _sizes(rows, axis, 4, 4096)
    wide = exact(x)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + _EPS) * exact(w)
    return KernelLaunch(
        family="rms_norm", file="rms_norm.metal", entry=f"rms{'_looped' if axis > 4096 else ''}{dtype}", dtype=dtype,
        shape=f"{rows}x{axis}{'' if weighted else ' no weight'}",
        buffers={0: x, 1: w, 2: Fresh(dtype, x.shape), 3: np.float32(_EPS), 4: np.uint32(axis), 5: np.uint32(weighted)},  # type: ignore[arg-type, dict-item]
        grid=grid, threadgroup=group, expected={"out": expected}, half_roundings=2,
    )  # fmt: skip


def rms_norm_gradient(rows: int, axis: int, dtype: str, weighted: bool = True) -> KernelLaunch:
    """``RMSNormVJP::eval_gpu`` up to the sum of the weight's gradients over threadgroups."""
    looped = axis > 4096
    per_group = 1 if looped else -(-rows // 512)
    groups = -(-rows // per_group)
    x, g, w = draw(1, (rows, axis), dtype), draw(3, (rows, axis), dtype), draw(2, (axis if weighted else 1,), dtype)
    grid, group = _sizes(groups, axis, 4, 4096)
    wide, gradient, weight = exact(x), exact(g), exact(w)
    n = 1 / np.sqrt((wide**2).mean(-1, keepdims=True) + _EPS)
    gx = gradient * weight * n - wide * (gradient * weight * wide).mean(-1, keepdims=True) * n**3
    padded = np.zeros((groups * per_group, axis))
    padded[:rows] = gradient * wide * n
    expected = {"gx": gx}
    buffers: dict[int, Array | Fresh] = {
        0: x, 1: w, 2: g, 3: Fresh(dtype, x.shape), 4: np.zeros(1, x.dtype),  # type: ignore[arg-type]
        5: np.array(_EPS, np.float32), 6: np.array(axis, np.uint32), 7: np.array(weighted, np.uint32),
    }  # fmt: skip
    if weighted:
        expected["gw"] = padded.reshape(groups, per_group, axis).sum(1)
        buffers[4] = Fresh(dtype, (groups, axis))  # type: ignore[arg-type]
    if not looped:
        buffers |= {8: np.array(rows, np.uint32), 9: np.array(per_group, np.uint32)}
    return KernelLaunch(
        family="rms_norm", file="rms_norm.metal", entry=f"vjp_rms{'_looped' if looped else ''}{dtype}", dtype=dtype,
        shape=f"{rows}x{axis}{'' if weighted else ' no weight'}", buffers=buffers, grid=grid, threadgroup=group,
        expected=expected, constants={20: weighted}, roundings=8,
    )  # fmt: skip


def layer_norm(rows: int, axis: int, dtype: str) -> KernelLaunch:
    """``LayerNorm::eval_gpu``."""
    looped = axis > 6656
    x, w, b = draw(1, (rows, axis), dtype), draw(2, (axis,), dtype), draw(3, (axis,), dtype)
    grid, group = _sizes(rows, axis, 4 if looped else 8, 6656)
    wide = exact(x)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPS) * exact(w) + exact(b)
    return KernelLaunch(
        family="layer_norm", file="layer_norm.metal", entry=f"layer_norm{'_looped' if looped else ''}{dtype}",
        dtype=dtype, shape=f"{rows}x{axis}", grid=grid, threadgroup=group,
        buffers={0: x, 1: w, 2: b, 3: Fresh(dtype, x.shape), 4: np.float32(_EPS), 5: np.uint32(axis),  # type: ignore[arg-type, dict-item]
                 6: np.uint32(1), 7: np.uint32(1)},  # type: ignore[dict-item]
        expected={"out": expected}, roundings=8, half_roundings=3,
        known=() if looped or axis % 256 in (0, *range(249, 256)) else (_LAYER_NORM_FAULT,),
    )  # fmt: skip


def layer_norm_gradient(rows: int, axis: int, dtype: str) -> KernelLaunch:
    """``LayerNormVJP::eval_gpu`` up to the sums over rows."""
    looped = axis > 8192
    x, w, g = draw(1, (rows, axis), dtype), draw(2, (axis,), dtype), draw(3, (rows, axis), dtype)
    grid, group = _sizes(rows, axis, 4 if looped else 8, 8192)
    wide, weight, gradient = exact(x), exact(w), exact(g)
    centred = wide - wide.mean(-1, keepdims=True)
    n = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPS)
    wg = weight * gradient
    mean = wg.mean(-1, keepdims=True), (wg * centred).mean(-1, keepdims=True)
    gx = n * (wg - mean[0]) - centred * n * mean[1] * n * n
    return KernelLaunch(
        family="layer_norm", file="layer_norm.metal", entry=f"vjp_layer_norm{'_looped' if looped else ''}{dtype}",
        dtype=dtype, shape=f"{rows}x{axis}", grid=grid, threadgroup=group,
        buffers={0: x, 1: w, 2: g, 3: Fresh(dtype, x.shape), 4: Fresh(dtype, x.shape), 5: np.float32(_EPS),  # type: ignore[arg-type, dict-item]
                 6: np.uint32(axis), 7: np.uint32(1)},  # type: ignore[dict-item]
        expected={"gx": gx, "gw": gradient * centred * n}, constants={20: True}, roundings=8,
        known=() if looped or axis % 256 in (0, *range(249, 256)) else (_LAYER_NORM_FAULT,),
    )  # fmt: skip


def softmax(rows: int, axis: int, dtype: str, precise: bool) -> KernelLaunch:
    """``Softmax::eval_gpu``; float16 and bfloat16 sum in their own type unless ``precise``."""
    x = draw(1, (rows, axis), dtype)
    grid, group = _sizes(rows, axis, 4, 4096)
    weights = np.exp(exact(x) - exact(x).max(-1, keepdims=True))
    name = "precise_" if precise and dtype != "float32" else ""
    return KernelLaunch(
        family="softmax", file="softmax.metal", dtype=dtype, shape=f"{rows}x{axis}", grid=grid, threadgroup=group,
        entry=f"{'looped' if axis > 4096 else 'block'}_softmax_{name}{dtype}",
        buffers={0: x, 1: Fresh(dtype, x.shape), 2: np.int32(axis)},  # type: ignore[arg-type, dict-item]
        expected={"out": weights / weights.sum(-1, keepdims=True)}, roundings=8, half_roundings=1 if name else 16,
    )  # fmt: skip


def logsumexp(rows: int, axis: int, dtype: str) -> KernelLaunch:
    """``LogSumExp::eval_gpu``."""
    x = draw(1, (rows, axis), dtype)
    grid, group = _sizes(rows, axis, 4, 4096)
    top = exact(x).max(-1)
    return KernelLaunch(
        family="softmax", file="logsumexp.metal", dtype=dtype, shape=f"{rows}x{axis}", grid=grid, threadgroup=group,
        entry=f"{'looped' if axis > 4096 else 'block'}_logsumexp_{dtype}",
        buffers={0: x, 1: Fresh(dtype, (rows,)), 2: np.int32(axis)},  # type: ignore[arg-type, dict-item]
        expected={"out": top + np.log(np.exp(exact(x) - top[:, None]).sum(-1))},
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the families."""
    for dtype in FLOATS:
        for rows, axis in ((3, 1000), (2, 33), (2, 4096), (2, 5001)):
            yield rms_norm(rows, axis, dtype)
            yield rms_norm_gradient(rows, axis, dtype)
            yield logsumexp(rows, axis, dtype)
            for precise in (True,) if dtype == "float32" else (True, False):
                yield softmax(rows, axis, dtype, precise)
        yield rms_norm(3, 515, dtype, weighted=False)
        yield rms_norm_gradient(600, 40, dtype)
        yield rms_norm_gradient(3, 515, dtype, weighted=False)
        for rows, axis in ((3, 1000), (2, 33), (2, 1024), (2, 8195)):
            yield layer_norm(rows, axis, dtype)
            yield layer_norm_gradient(rows, axis, dtype)
