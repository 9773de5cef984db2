"""Rotary position embedding, as rope.cpp launches it (rows that are rotated as a whole)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, draw, exact
from benchmarks.mlx_families.pointwise import block_dims
from metalsim import Fresh

_BASE = 10000.0
_SCALE = 0.5


def _rotated(x: Array, positions: Array, inverse: Array, traditional: bool, forward: bool) -> Array:
    """Float64 ``[B, N, T, D]``; ``positions`` ``[B, T]``, ``inverse`` frequencies ``[D/2]``."""
    angle = positions[:, None, :, None] * inverse
    cos, sin = np.cos(angle), np.sin(angle) * (1 if forward else -1)
    half = x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if traditional else (x[..., :half], x[..., half:])
    out = np.empty(x.shape)
    rotated = first * cos - second * sin, first * sin + second * cos
    if traditional:
        out[..., 0::2], out[..., 1::2] = rotated
    else:
        out[..., :half], out[..., half:] = rotated
    return out


def rope(
    shape: tuple[int, int, int, int], dtype: str, *, traditional: bool = False, forward: bool = True,
    given: bool = False, swapped: bool = False,
) -> KernelLaunch:  # fmt: skip
    """``RoPE::eval_gpu`` of ``[B, N, T, D]``.

    Args:
        shape: of the input as the model sees it.
        dtype: of the input.
        traditional: pairs of neighbours, not halves.
        forward: or the gradient.
        given: frequencies come in a buffer.
        swapped: the input's memory order is B, T, N, D.
    """
    B, N, T, D = shape
    x = draw(1, (B, T, N, D) if swapped else shape, dtype)
    seen = exact(x.swapaxes(1, 2) if swapped else x)
    single = T == 1 and B == 1 and not swapped
    offset = np.array([7 + 3 * b for b in range(B)], np.int32)
    inverse = _BASE ** (-np.arange(D // 2) / (D // 2))
    frequencies = (1 / inverse).astype(np.float32)
    positions = _SCALE * (offset[:, None] + np.arange(T))
    expected = _rotated(seen, positions, 1 / exact(frequencies) if given else inverse, traditional, forward)
    buffers: dict[int, Array | Fresh] = {
        0: x, 1: Fresh(dtype, shape), 2: offset, 3: np.array(_SCALE, np.float32),  # type: ignore[arg-type]
    }  # fmt: skip
    if single:
        buffers[4] = np.array(T * D, np.int64)
        grid = (D // 2, B * N, 1)
    else:
        buffers[4] = np.array([D, N * D, 1] if swapped else [T * D, D, 1], np.int64)
        buffers |= {5: np.array([T * D, D, 1], np.int64), 6: np.array(1, np.int64), 7: np.array(N, np.int32)}
        grid = (D // 2, T, B * -(-N // 4))
    if given:
        buffers |= {10: frequencies, 11: np.array(1, np.int64)}
    else:
        buffers[10] = np.array(math.log2(_BASE), np.float32)
    return KernelLaunch(
        family="rope", file="rope.metal", entry=f"rope_{'single_' if single else ''}{'freqs_' if given else ''}{dtype}",
        dtype=dtype, shape=f"{shape}", buffers=buffers, grid=grid, threadgroup=block_dims(*grid),
        expected={"out": expected}, constants={1: forward, 2: traditional, 3: swapped},
        # The angle is rounded, in proportion to the position.
        roundings=4 + 2 * float(positions.max()),
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the family."""
    for dtype in FLOATS:
        yield rope((2, 5, 13, 64), dtype)
        yield rope((1, 3, 7, 80), dtype, traditional=True)
        yield rope((2, 6, 11, 64), dtype, given=True)
        yield rope((2, 6, 11, 64), dtype, swapped=True)
        yield rope((1, 6, 11, 64), dtype, forward=False)
        yield rope((1, 8, 1, 128), dtype)
        yield rope((1, 8, 1, 128), dtype, given=True, traditional=True)
