"""Merge sort in one block and in several, as sort.cpp launches it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, draw, threads
from metalsim import Fresh

_PER_THREAD = 4


def block_sort(rows: int, size: int, dtype: str, arguments: bool, last_axis: bool = True) -> KernelLaunch:
    """``single_block_sort``: along the last axis, or the first one."""
    x = draw(1, (rows, size) if last_axis else (size, rows), dtype)
    threads_needed = -(-size // _PER_THREAD)
    bn = next(b for b in (32, 64, 128, 256, 512) if threads_needed <= b)
    axis = -1 if last_axis else 0
    kind = "uint32" if arguments else dtype
    order = np.argsort(x, axis, kind="stable")
    expected = order.astype(np.uint32) if arguments else np.take_along_axis(x, order, axis)
    sorted_stride, row_stride = (1, size) if last_axis else (rows, 1)
    values = (size, sorted_stride, sorted_stride, row_stride, row_stride)
    buffers: dict[int, Array | Fresh] = {0: x, 1: Fresh(kind, x.shape)}  # type: ignore[arg-type]
    buffers |= {2 + i: np.array(value, np.int32) for i, value in enumerate(values)}
    group = (bn, 1, 1)
    return KernelLaunch(
        family="sort", file="sort.metal", dtype=dtype, shape=f"{rows}x{size}{'' if last_axis else ' axis 0'}",
        entry=f"c{'arg' if arguments else ''}_block_sort_{dtype}_{kind}_bn{bn}_tn{_PER_THREAD}",
        buffers=buffers, grid=threads((1, rows, 1), group), threadgroup=group, expected={"out": expected},
        roundings=0, half_roundings=0,
    )  # fmt: skip


def _partition(a: Array, b: Array, diagonal: int) -> int:
    """How many of the first ``diagonal`` merged elements come from ``a``; equal ones come from ``a`` first."""
    merged = np.argsort(np.concatenate([a, b]), kind="stable")
    return int((merged[:diagonal] < len(a)).sum())


def multi_block_sort(rows: int, size: int, dtype: str) -> tuple[KernelLaunch, KernelLaunch, KernelLaunch]:
    """The first three kernels of ``multi_block_sort``: sort of blocks, partition and merge of pairs of blocks."""
    bn, per_block = 512, 512 * _PER_THREAD
    blocks = -(-size // per_block)
    x = draw(1, (rows, size), dtype)
    pieces = [np.arange(start, min(start + per_block, size)) for start in range(0, size, per_block)]
    first = np.concatenate([piece[0] + np.argsort(x[:, piece], -1, kind="stable") for piece in pieces], -1)
    values = np.take_along_axis(x, first, -1)
    kinds = f"{dtype}_uint32_bn{bn}_tn{_PER_THREAD}"
    common = {"family": "sort", "file": "sort.metal", "dtype": dtype, "shape": f"{rows}x{size}", "roundings": 0.0,
              "half_roundings": 0.0}  # fmt: skip
    group = (bn, 1, 1)
    sort = KernelLaunch(
        entry=f"sort_mbsort_{kinds}", grid=threads((blocks, rows, 1), group), threadgroup=group,
        buffers={0: x, 1: Fresh(dtype, x.shape), 2: Fresh("uint32", x.shape), 3: np.int32(size), 4: np.int32(1),  # type: ignore[arg-type, dict-item]
                 5: np.int32(1), 6: np.array([rows], np.int32), 7: np.array([size], np.int64)},  # type: ignore[dict-item]
        expected={"out_vals": values, "out_idxs": first.astype(np.uint32)}, **common,  # type: ignore[arg-type]
    )  # fmt: skip
    partitions = np.zeros((rows, blocks + 1), np.uint32)
    merged, order = values.copy(), first.copy()
    for row in range(rows):
        for i in range(blocks + 1):
            start = min(size, i // 2 * 2 * per_block)
            middle, end = min(size, start + per_block), min(size, start + 2 * per_block)
            diagonal = min(end - start, i % 2 * per_block)
            partitions[row, i] = start + _partition(values[row, start:middle], values[row, middle:end], diagonal)
        for start in range(0, size, 2 * per_block):
            part = slice(start, min(size, start + 2 * per_block))
            by = np.argsort(values[row, part], kind="stable")
            merged[row, part], order[row, part] = values[row, part][by], first[row, part][by]
    sizes = {3: np.int32(size), 4: np.int32(2), 5: np.int32(blocks)}
    group = (blocks + 1, 1, 1)
    partition = KernelLaunch(
        entry=f"partition_mbsort_{kinds}", grid=threads((1, rows, 1), group), threadgroup=group,
        buffers={0: Fresh("uint32", partitions.shape), 1: values, 2: first.astype(np.uint32), **sizes},  # type: ignore[dict-item]
        expected={"block_partitions": partitions}, **common,  # type: ignore[arg-type]
    )  # fmt: skip
    group = (bn, 1, 1)
    merge = KernelLaunch(
        entry=f"merge_mbsort_{kinds}", grid=threads((blocks, rows, 1), group), threadgroup=group,
        buffers={0: partitions, 1: values, 2: first.astype(np.uint32), 3: Fresh(dtype, x.shape),  # type: ignore[arg-type]
                 4: Fresh("uint32", x.shape), 5: np.int32(size), 6: np.int32(2), 7: np.int32(blocks)},  # type: ignore[dict-item]
        expected={"dev_vals_out": merged, "dev_idxs_out": order.astype(np.uint32)}, **common,  # type: ignore[arg-type]
    )  # fmt: skip
    return sort, partition, merge


def launches() -> Iterator[KernelLaunch]:
    """All launches of the family."""
    for dtype in FLOATS:
        for rows, size in ((3, 45), (2, 1000)):
            yield block_sort(rows, size, dtype, arguments=False)
            yield block_sort(rows, size, dtype, arguments=True)
        yield block_sort(5, 200, dtype, arguments=False, last_axis=False)
        yield from multi_block_sort(2, 5001, dtype)
