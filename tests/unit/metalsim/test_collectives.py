"""SIMD-group and quad-group functions of every element type and of vectors, against a model in numpy; atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metalsim.execute.launch import numpy_dtype
from metalsim.model import DType
from tests.unit.metalsim.launching import Launcher

Array = np.ndarray[Any, Any]
TYPES: tuple[DType, ...] = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32",
)  # fmt: skip
METAL = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
    "float16": "half", "bfloat16": "bfloat", "float32": "float",
}  # fmt: skip
LANES = np.arange(32)


def _groups(width: int, function: Callable[[Array], Any]) -> Callable[[Array], Array]:
    """``function`` of each run of ``width`` lanes, which gives a value for each lane or one for all."""

    def apply(v: Array) -> Array:
        return np.concatenate([np.broadcast_to(function(run), width) for run in v.reshape(-1, width)])

    return apply


def _exclusive(ufunc: np.ufunc, identity: int) -> Callable[[Array], Array]:
    return lambda v: np.concatenate([[identity], ufunc.accumulate(v)[:-1]])


def _filled(v: Array, fill: Array, delta: int, width: int) -> Array:
    """Values moved up by ``delta`` inside runs of ``width``; the fill's last values come in from below."""
    runs = [np.concatenate([f[width - delta :], r[: width - delta]]) for r, f in zip(
        v.reshape(-1, width), fill.reshape(-1, width), strict=True)]  # fmt: skip
    return np.concatenate(runs)


def _filled_down(v: Array, fill: Array, delta: int, width: int) -> Array:
    return _filled(v[::-1], fill[::-1], delta, width)[::-1]


def functions(prefix: str, width: int) -> dict[str, Callable[[Array], Array]]:
    """By their text, with ``v`` for the value and a fill of ``v + 1``; values are small integers."""
    model: dict[str, Callable[[Array], Any]] = {
        "sum(v)": np.sum,
        "min(v)": np.min,
        "max(v)": np.max,
        "product(p)": lambda v: np.prod(np.where(v % 4 == 0, 2, 1)),
        "prefix_inclusive_sum(v)": np.cumsum,
        "prefix_exclusive_sum(v)": _exclusive(np.add, 0),
        "prefix_inclusive_product(p)": lambda v: np.cumprod(np.where(v % 4 == 0, 2, 1)),
        "prefix_exclusive_product(p)": lambda v: _exclusive(np.multiply, 1)(np.where(v % 4 == 0, 2, 1)),
        "broadcast(v, 3)": lambda v: v[3],
        "broadcast_first(v)": lambda v: v[0],
        "shuffle(v, ushort(lane % W ^ 2))": lambda v: v[np.arange(len(v)) ^ 2],
        "shuffle_xor(v, 3)": lambda v: v[np.arange(len(v)) ^ 3],
        "shuffle_rotate_up(v, 1)": lambda v: np.roll(v, 1),
        "shuffle_rotate_down(v, 3)": lambda v: np.roll(v, -3),
        "shuffle_and_fill_up(v, f, 2)": lambda v: _filled(v, v + 1, 2, len(v)),
        "shuffle_and_fill_down(v, f, 1)": lambda v: _filled_down(v, v + 1, 1, len(v)),
        "shuffle_and_fill_up(v, f, 1, 2)": lambda v: _filled(v, v + 1, 1, 2),
        "shuffle_and_fill_down(v, f, 1, W)": lambda v: _filled_down(v, v + 1, 1, len(v)),
    }
    return {f"{prefix}_{text.replace('W', str(width))}": _groups(width, f) for text, f in model.items()}


FUNCTIONS = functions("simd", 32) | functions("quad", 4)
BITS = {
    f"{prefix}_{name}(v)": _groups(width, ufunc.reduce)
    for prefix, width in (("simd", 32), ("quad", 4))
    for name, ufunc in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor))
}


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("dtype", TYPES)
def test_collectives_of_every_type(launch: Launcher, dtype: DType, vector: bool) -> None:
    """Values are small, so that every type holds the results."""
    whole = "int" in dtype
    chosen = FUNCTIONS | (BITS if whole else {})
    kind = f"vec<{METAL[dtype]}, 3>" if vector else METAL[dtype]
    lines = [f"typedef {kind} T; typedef {METAL[dtype]} E;", "ushort lane = thread_index_in_simdgroup;"]
    lines.append("T v(x[lane]), f = v + T(1), p = T(E(x[lane] % E(4) == E(0) ? 2 : 1));" if whole else "")
    lines.append("" if whole else "T v(x[lane]), f = v + T(1), p = T(E(int(x[lane]) % 4 == 0 ? 2 : 1));")
    lines += ["v.x = f.x = p.x = 1;"] if vector else []
    end = ".y" if vector else ""
    lines += [f"out[{32 * k} + lane] = {text}{end};" for k, text in enumerate(chosen)]
    small = np.array([1, 2, 3, 0] * 2 + [1] * 3 + [5] + [2, 1] * 9 + [0, 3])
    x = small.astype(numpy_dtype(dtype))
    result = launch("\n".join(lines), {"x": x}, {"out": (dtype, (len(chosen), 32))}, grid=32, threadgroup=32)
    assert result.findings == ()
    for (text, model), row in zip(chosen.items(), result.outputs["out"], strict=True):
        np.testing.assert_array_equal(row.astype(np.float64), model(small), err_msg=text)


def test_votes(launch: Launcher) -> None:
    source = """\
ushort lane = thread_index_in_simdgroup;
simd_vote v = simd_ballot(x[lane] > 0); quad_vote q = quad_ballot(x[lane] > 0);
device uint* o = out + 12 * lane;
o[0] = uint((simd_vote::vote_t)v); o[1] = uint((ulong)simd_active_threads_mask()); o[2] = v.any() + 2 * v.all();
o[3] = uint((quad_vote::vote_t)q); o[4] = uint((uint)quad_active_threads_mask()); o[5] = q.any() + 2 * q.all();
o[6] = simd_all(x[lane] < 9) + 2 * simd_any(x[lane] > 9); o[7] = quad_all(x[lane] > 0) + 2 * quad_any(x[lane] > 0);
o[8] = simd_is_first(); o[9] = quad_is_first(); o[10] = popcount(uint(static_cast<ulong>(v)));
o[11] = lane < 8 ? uint(static_cast<ulong>(simd_active_threads_mask())) : 0;
"""
    x = np.random.default_rng(1).integers(-3, 4, 32).astype(np.int32)
    x[4:8] = 1
    result = launch(source, {"x": x}, {"out": ("uint32", (32, 12))}, grid=32, threadgroup=32)
    yes = x > 0
    ballot = int(sum(1 << int(i) for i in np.flatnonzero(yes)))
    for lane, row in enumerate(result.outputs["out"].tolist()):
        quad = yes[lane // 4 * 4 :][:4]
        bits = int(sum(1 << int(i) for i in np.flatnonzero(quad)))
        votes = int(quad.any()) + 2 * int(quad.all())
        expected = [ballot, 0xFFFFFFFF, 1, bits, 15, votes, 1, int(quad.all()) + 2 * int(quad.any())]
        assert row == [*expected, lane == 0, lane % 4 == 0, ballot.bit_count(), 255 if lane < 8 else 0], lane


def test_shuffle_after_the_first_lane_ended_takes_no_request_from_it(launch: Launcher) -> None:
    source = """\
ushort lane = thread_index_in_simdgroup;
if (lane < 2) { out[lane] = 0; return; }
out[lane] = simd_shuffle_xor(x[lane], ushort(4)) + simd_broadcast(x[lane], ushort(9));
"""
    x = np.arange(32, dtype=np.int32)
    result = launch(source, {"x": x}, {"out": ("int32", (32,))}, grid=32, threadgroup=32)
    expected = (x ^ 4) + 9
    there = [lane for lane in range(2, 32) if lane ^ 4 >= 2]
    np.testing.assert_array_equal(result.outputs["out"][there], expected[there])


SETTINGS = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ATOMICS = """\
#define RELAXED memory_order_relaxed
uint i = thread_position_in_grid.x, n = count[0];
device atomic_uint* u = (device atomic_uint*)out; device atomic_int* s = (device atomic_int*)(out + 16);
device atomic_float* f = (device atomic_float*)(out + 24); device atomic_ulong* w = (device atomic_ulong*)(out + 32);
threadgroup atomic_int t[3];
if (thread_index_in_threadgroup < 3) atomic_store_explicit(&t[thread_index_in_threadgroup], 0, RELAXED);
threadgroup_barrier(mem_flags::mem_threadgroup);
if (i < n) {
  int v = x[i];
  atomic_fetch_add_explicit(u, uint(v), RELAXED); atomic_fetch_sub_explicit(u + 1, uint(v), RELAXED);
  atomic_fetch_and_explicit(u + 2, uint(v), RELAXED); atomic_fetch_or_explicit(u + 3, uint(v), RELAXED);
  atomic_fetch_xor_explicit(u + 4, uint(v), RELAXED); atomic_fetch_max_explicit(u + 5, uint(v), RELAXED);
  atomic_fetch_min_explicit(s, v, RELAXED); atomic_fetch_max_explicit(s + 1, v, RELAXED);
  atomic_fetch_add_explicit(f, float(v), RELAXED); atomic_fetch_sub_explicit(f + 1, float(v), RELAXED);
  atomic_max_explicit(w, ulong(uint(v)) << 20, RELAXED); atomic_min_explicit(w + 1, ulong(uint(v)), RELAXED);
  uint seen = atomic_load_explicit(u + 6, RELAXED);
  while (!atomic_compare_exchange_weak_explicit(u + 6, &seen, seen * 3 + uint(v & 1), RELAXED, RELAXED)) {}
  atomic_fetch_add_explicit(&t[uint(v) % 3], 1, RELAXED);
  if (atomic_exchange_explicit(s + 2, 7, RELAXED) == 0) atomic_fetch_add_explicit(s + 3, 1, RELAXED);
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (thread_index_in_threadgroup < 3)
  atomic_fetch_add_explicit(u + 8 + thread_index_in_threadgroup,
    uint(atomic_load_explicit(&t[thread_index_in_threadgroup], RELAXED)), RELAXED);
"""


@SETTINGS
@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8, max_size=90), threads=st.integers(3, 64))
def test_atomics_of_any_values(launch: Launcher, values: list[int], threads: int) -> None:
    x, count = np.array(values, np.int64).astype(np.int32), np.full(8, len(values), np.uint32)
    grid = -(-len(values) // threads) * threads
    result = launch(
        ATOMICS, {"x": x, "count": count}, {"out": ("uint32", (40,))}, grid=grid, threadgroup=threads, init_value=0
    )
    assert result.findings == ()
    out, unsigned = result.outputs["out"], x.astype(np.uint32)
    total, chain = int(unsigned.astype(np.uint64).sum()), 0
    for value in values:
        chain = (chain * 3 + (value & 1)) % 2**32
    expected = [total % 2**32, -total % 2**32, 0, np.bitwise_or.reduce(unsigned), np.bitwise_xor.reduce(unsigned)]
    assert out[:7].tolist() == [*map(int, expected), int(unsigned.max()), chain]
    assert out[8:11].tolist() == [int((unsigned % 3 == k).sum()) for k in range(3)]
    assert out[16:20].view(np.int32).tolist() == [min(0, int(x.min())), max(0, int(x.max())), 7, 1]
    sums = np.zeros(1, np.float32)
    for value in x.astype(np.float32):
        sums += value
    np.testing.assert_array_equal(out[24:26].view(np.float32), [sums[0], -sums[0]])
    assert out[32:36].view(np.uint64).tolist() == [int(unsigned.max()) << 20, 0]
