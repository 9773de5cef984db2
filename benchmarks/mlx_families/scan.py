"""Prefix sums and the like, as scan.cpp launches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, draw, exact
from metalsim import Fresh

_OPERATIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "sum": (lambda x: np.cumsum(x, -1), 0.0),
    "prod": (lambda x: np.cumprod(x, -1), 1.0),
    "max": (lambda x: np.maximum.accumulate(x, -1), -np.inf),
    "min": (lambda x: np.minimum.accumulate(x, -1), np.inf),
    "logaddexp": (lambda x: np.logaddexp.accumulate(x, -1), -np.inf),
}


def _expected(x: Array, operation: str, inclusive: bool, reverse: bool) -> Array:
    """Along the last axis."""
    accumulate, start = _OPERATIONS[operation]
    wide = exact(x)[..., ::-1] if reverse else exact(x)
    if not inclusive:
        first = np.full((*wide.shape[:-1], 1), start)
        wide = np.concatenate([first, wide[..., :-1]], -1)
    result = accumulate(wide)
    return result[..., ::-1] if reverse else result


def _name(kind: str, operation: str, dtype: str, inclusive: bool, reverse: bool) -> str:
    way = f"{'reverse_' if reverse else ''}{'inclusive' if inclusive else 'exclusive'}"
    return f"{kind}_scan_{way}_{operation}_{dtype}_{dtype}"


def _values(shape: tuple[int, ...], dtype: str, operation: str) -> Array:
    # Products of values near 1 stay in range for halves.
    x = draw(1, shape, dtype, 0.01 if operation == "prod" else 1.0)
    return (x + x.dtype.type(1)) if operation == "prod" else x


def contiguous(rows: int, size: int, dtype: str, operation: str, inclusive: bool, reverse: bool) -> KernelLaunch:
    """Along the last axis, one threadgroup per row."""
    x = _values((rows, size), dtype, operation)
    threads = 1024
    if size <= 4 * 1024:
        threads = -(-size // 128) * 32
    elif size <= 4 * 2048:
        threads = -(-(size // 2) // 128) * 32
    return KernelLaunch(
        family="scan", file="scan.metal", entry=_name("contig", operation, dtype, inclusive, reverse), dtype=dtype,
        shape=f"{rows}x{size}", grid=(threads, rows, 1), threadgroup=(threads, 1, 1),
        buffers={0: x, 1: Fresh(dtype, x.shape), 2: np.uint64(size)},  # type: ignore[arg-type, dict-item]
        expected={"out": _expected(x, operation, inclusive, reverse)},
        roundings=32, half_roundings=32 if operation == "prod" else 12,
    )  # fmt: skip


def strided(
    batch: int, size: int, stride: int, dtype: str, operation: str, inclusive: bool, reverse: bool
) -> KernelLaunch:
    """Along the middle of three axes, 32 columns per threadgroup."""
    x = _values((batch, size, stride), dtype, operation)
    blocks = -(-stride // 32)
    expected = _expected(x.swapaxes(1, 2), operation, inclusive, reverse).swapaxes(1, 2)
    return KernelLaunch(
        family="scan", file="scan.metal", entry=_name("strided", operation, dtype, inclusive, reverse), dtype=dtype,
        shape=f"{batch}x{size}x{stride}", grid=(256, batch * blocks, 1), threadgroup=(256, 1, 1),
        buffers={0: x, 1: Fresh(dtype, x.shape), 2: np.uint64(size), 3: np.uint64(stride), 4: np.uint64(blocks)},  # type: ignore[arg-type, dict-item]
        expected={"out": expected}, roundings=32, half_roundings=32 if operation == "prod" else 12,
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the family."""
    for dtype in FLOATS:
        for inclusive, reverse in ((True, False), (False, False), (True, True), (False, True)):
            yield contiguous(2, 1000, dtype, "sum", inclusive, reverse)
            yield strided(2, 70, 45, dtype, "sum", inclusive, reverse)
        yield contiguous(2, 9001, dtype, "max", True, False)
        for operation in ("prod", "max", "min", "logaddexp"):
            yield contiguous(2, 333, dtype, operation, True, False)
            yield strided(1, 33, 31, dtype, operation, False, False)
