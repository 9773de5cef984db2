"""Reductions over everything, rows and columns, and arg reductions, as reduce.cpp and primitives.cpp launch them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, Size, draw, exact, strides, threads
from metalsim import Fresh

_FUNCTIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
_FILE = "reduce.metal"
_OVERLAP = "race reduce_row.h"
"""Rows not a multiple of 4: the last threadgroup starts earlier and writes results of the one before it again."""


def _values(shape: tuple[int, ...], dtype: str, operation: str) -> Array:
    x = draw(1, shape, dtype, 0.01 if operation == "prod" else 1.0)
    return (x + x.dtype.type(1)) if operation == "prod" else x


def _half_roundings(dtype: str, count: int) -> float:
    """halves are added up in their own type, in a tree of lanes over sums of a thread's elements."""
    return 1.0 if dtype == "float32" else 8.0 + count / 16


def reduce_all(size: int, dtype: str, operation: str) -> tuple[KernelLaunch, ...]:
    """``all_reduce_dispatch``: one threadgroup up to 4096 elements, else 128 rows and then their results."""
    x = _values((size,), dtype, operation)
    function = _FUNCTIONS[operation]
    common = {"family": "reduce", "file": _FILE, "entry": f"all_reduce_{operation}{dtype}", "dtype": dtype,
              "roundings": 32.0, "half_roundings": _half_roundings(dtype, size)}  # fmt: skip
    length = np.array(size, np.uint64)
    if size <= 4096:
        group = (-(-size // 128) * 32, 1, 1)
        buffers: dict[int, Array | Fresh] = {0: x, 1: Fresh(dtype, (1,)), 2: length, 3: length}  # type: ignore[arg-type]
        expected = {"out": np.array([function(exact(x))])}
        return (KernelLaunch(shape=f"({size},)", buffers=buffers, grid=group, threadgroup=group, expected=expected,
                             **common),)  # type: ignore[arg-type]  # fmt: skip
    rows = 128
    row = -(-size // rows)
    parts = np.array([function(exact(x[i * row : (i + 1) * row]), initial=None) for i in range(rows)])
    width = -(-min(-(-row // 4), 1024) // 32) * 32
    first = KernelLaunch(
        shape=f"({size},) by {rows}", grid=(width, rows, 1), threadgroup=(width, 1, 1), expected={"out": parts},
        buffers={0: x, 1: Fresh(dtype, (rows,)), 2: length, 3: np.array(row, np.uint64)}, **common,  # type: ignore[arg-type]
    )  # fmt: skip
    rounded, count = parts.astype(x.dtype), np.array(rows, np.uint64)
    second = KernelLaunch(
        shape=f"({rows},)", grid=(32, 1, 1), threadgroup=(32, 1, 1),
        expected={"out": np.array([function(exact(rounded))])},
        buffers={0: rounded, 1: Fresh(dtype, (1,)), 2: count, 3: count}, **common,  # type: ignore[arg-type]
    )  # fmt: skip
    return first, second


def _row_threads(row: int) -> int:
    if row <= 512:
        return 32
    return 128 if row <= 1024 else min(1024, -(-row // 128) * 32)


def _arguments(
    first: dict[int, Array], kept: tuple[int, ...], kept_by: tuple[int, ...], reduced: tuple[int, ...],
    reduced_by: tuple[int, ...],
) -> dict[int, Array]:  # fmt: skip
    """``encode`` of the argument structures: empty shapes become one 0."""
    return {
        **first,
        4: np.array(kept or (0,), np.int32), 5: np.array(kept_by or (0,), np.int64), 6: np.array(len(kept), np.int32),
        7: np.array(reduced or (0,), np.int32), 8: np.array(reduced_by or (0,), np.int64),
        9: np.array(len(reduced), np.int32),
    }  # fmt: skip


def reduce_rows(shape: tuple[int, ...], dtype: str, operation: str) -> KernelLaunch:
    """Contiguous: the last axis of ``[rows, row]``, or the first and last axis of ``[a, rows, row]``."""
    x = _values(shape, dtype, operation)
    rows, row = shape[-2:]
    outer = shape[0] if len(shape) == 3 else 1
    expected = _FUNCTIONS[operation](exact(x), axis=(0, 2) if len(shape) == 3 else 1)
    buffers: dict[int, Array | Fresh] = {0: x, 1: Fresh(dtype, (rows,))}  # type: ignore[arg-type]
    grid: Size
    arguments = _arguments(
        {2: np.array(row, np.uint64), 3: np.array(outer, np.uint64)}, (rows,), (row,),
        (outer,) if outer > 1 else (), (rows * row,) if outer > 1 else (),
    )  # fmt: skip
    if row <= 64:
        name, suffix = "row_reduce_small", "_1_reduce_"
        small = (outer < 32 and row <= 8) or outer <= 8
        grid = (rows, 1, 1) if small else (32, rows, 1)
        group = (min(rows, 1024), 1, 1) if small else (32, 1, 1)
        buffers |= arguments
    elif outer == 1 and rows >= 32:
        name, suffix, group = "row_reduce_simple", "_", (_row_threads(row), 1, 1)
        grid = (group[0], -(-rows // 4), 1)
        buffers |= {2: np.array(row, np.uint64), 3: np.array(rows, np.int64)}
    else:
        name, suffix, group = "row_reduce_looped", "_1_reduce_", (_row_threads(row), 1, 1)
        grid = (group[0], rows, 1)
        buffers |= arguments
    return KernelLaunch(
        family="reduce", file=_FILE, entry=f"{name}{suffix}{operation}{dtype}", dtype=dtype, shape=f"{shape}",
        buffers=buffers, grid=grid, threadgroup=group, expected={"out": expected}, roundings=32,
        half_roundings=_half_roundings(dtype, row * outer),
        known=(_OVERLAP,) if name == "row_reduce_simple" and rows % 4 else (),
    )  # fmt: skip


def reduce_columns(shape: tuple[int, int, int], dtype: str, operation: str) -> KernelLaunch:
    """The middle axis of ``[outer, column, stride]``; of a reduction in two passes the first one."""
    x = _values(shape, dtype, operation)
    outer, column, stride = shape
    out_size = outer * stride
    kept, kept_by = ((outer,), (column * stride,)) if outer > 1 else ((), ())
    buffers: dict[int, Array | Fresh] = {0: x, **_arguments(
        {2: np.array(column, np.uint64), 3: np.array(stride, np.int64)}, kept, kept_by, (column,), (stride,)
    ), 10: np.array(1, np.uint64)}  # fmt: skip
    expected = _FUNCTIONS[operation](exact(x), axis=1)
    blocks, grid, group = 0, (0, 0, 0), (256, 1, 1)
    if column < 32:
        name, groups_x = "col_reduce_small_1", -(-stride // 4)
        group = (min(groups_x, 32), min(8, 1024 // min(groups_x, 32), column), 1)
        grid = threads((-(-groups_x // group[0]), outer, 1), group)
    elif stride < 32 and column >= 1024:
        name, blocks = "col_reduce_longcolumn_1", 128 if column >= 32768 else 32
        group = (stride, min(32, -(-column // blocks)), 1)
        grid = threads((outer, 1, blocks), group)
        buffers[11] = np.array(out_size, np.uint64)
        step, starts = group[1] * blocks, [block * group[1] for block in range(blocks)]
        taken = [[r for r in range(column) if start <= r % step < start + group[1]] for start in starts]
    elif column > 256:
        name, blocks = "col_reduce_2pass_1_32_32", 32
        grid = (256 * -(-stride // 32), outer * blocks, 1)
        buffers[11] = np.array(outer, np.uint64)
        taken = [[r for r in range(column) if r // 32 % blocks == block] for block in range(blocks)]
    else:
        name, grid = "col_reduce_looped_1_32_32", (256 * -(-stride // 32), outer, 1)
    if blocks:
        empty = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}[operation]
        function = _FUNCTIONS[operation]
        expected = np.stack([function(exact(x)[:, rows], axis=1, initial=empty) for rows in taken])
    buffers[1] = Fresh(dtype, expected.shape)  # type: ignore[arg-type]
    return KernelLaunch(
        family="reduce", file=_FILE, entry=f"{name}_reduce_{operation}{dtype}", dtype=dtype, shape=f"{shape}",
        buffers=buffers, grid=grid, threadgroup=group, expected={"out": expected}, roundings=32,
        half_roundings=_half_roundings(dtype, column),
    )  # fmt: skip


def arg_reduce(shape: tuple[int, int], axis: int, dtype: str, largest: bool) -> KernelLaunch:
    """``ArgReduce::eval_gpu``."""
    x = draw(1, shape, dtype)
    size, rest = shape[axis], shape[1 - axis]
    width = -(-min(-(-size // 4), 1024) // 32) * 32
    by = strides(shape)
    expected = (np.argmax if largest else np.argmin)(exact(x), axis)
    return KernelLaunch(
        family="arg_reduce", file="arg_reduce.metal", entry=f"arg{'max' if largest else 'min'}_{dtype}", dtype=dtype,
        shape=f"{shape} axis {axis}", grid=(width, rest, 1), threadgroup=(width, 1, 1),
        buffers={0: x, 1: Fresh("uint32", (rest,)), 2: np.array([rest], np.int32),
                 3: np.array([by[1 - axis]], np.int64), 4: np.array([1], np.int64), 5: np.array(1, np.uint64),
                 6: np.array(by[axis], np.int64), 7: np.array(size, np.uint64)},
        expected={"out": expected.astype(np.uint32)},
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the families."""
    for dtype in FLOATS:
        for operation in _FUNCTIONS:
            yield from reduce_all(1001, dtype, operation)
            yield reduce_rows((40, 333), dtype, operation)
            yield reduce_columns((2, 100, 45), dtype, operation)
        yield from reduce_all(50001, dtype, "max")
        yield reduce_all(50001, dtype, "sum")[0]
        for shape in ((70, 33), (5, 777), (45, 700), (3, 7, 130), (9, 6, 20)):
            yield reduce_rows(shape, dtype, "sum")
        for columns in ((3, 9, 50), (2, 1500, 7), (1, 300, 70), (3, 64, 33)):
            yield reduce_columns(columns, dtype, "sum")
        for axis, largest in ((0, True), (1, True), (1, False)):
            yield arg_reduce((45, 333), axis, dtype, largest)
