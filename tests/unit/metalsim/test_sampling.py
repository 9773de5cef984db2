"""Samples of threadgroups stand for whole launches, also where threadgroups differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalsim import CompileFailure, compile_kernel, run
from metalsim.errors import InputError
from metalsim.estimate.cost import ChipModel, estimate
from metalsim.estimate.counters import Counters, LaunchShape, count
from metalsim.estimate.sampling import Sample, choose_threadgroups, threadgroups_per_grid
from tests.unit.metalsim.launching import Launcher
from tests.unit.metalsim.test_cost import chip

Extents = tuple[int, int, int]


def positions(sample: Sample) -> list[Extents]:
    x, y, _ = sample.extents
    return [(i % x, i // x % y, i // (x * y)) for i in sample.indices]


def total(sample: Sample, work: Callable[[int, int, int], float]) -> float:
    return sum(work(*place) * weight for place, weight in zip(positions(sample), sample.weights, strict=True))


@given(st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5)), st.integers(0, 2**32), st.integers(1, 100))
def test_weights_are_those_of_the_launch(extents: Extents, seed: int, budget: int) -> None:
    sample = choose_threadgroups(extents, seed, budget)
    launched = extents[0] * extents[1] * extents[2]
    assert sample == choose_threadgroups(extents, seed, budget)
    assert 1 <= len(sample.indices) <= budget
    assert list(sample.indices) == sorted(set(sample.indices))
    assert 0 <= sample.indices[0] <= sample.indices[-1] < launched
    assert sum(sample.weights) == pytest.approx(launched)
    assert sample.is_whole == (launched == len(sample.indices))
    assert sample.relative_error([3.0] * len(sample.indices)) == 0


def test_threadgroups_of_a_grid_are_rounded_up_and_clamped() -> None:
    assert threadgroups_per_grid((100, 3, 1), (32, 8, 1)) == (4, 1, 1)


@pytest.mark.parametrize("wrong", [(0, 4), ((4, 0, 1), 4), (4, 0)])
def test_nothing_to_choose_from_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError):
        choose_threadgroups(wrong[0], 0, wrong[1])


def test_what_only_edges_do_counts_once() -> None:
    """The last of 1000 threadgroups works 500 times as much: half of the launch, and it is always seen."""
    for seed in range(20):
        sample = choose_threadgroups(1000, seed, 12)
        assert total(sample, lambda x, y, z: 1000.0 if x == 999 else 2.0) == pytest.approx(999 * 2 + 1000)


@pytest.mark.parametrize(
    ("extents", "work"),
    [
        ((64, 1, 1), lambda x, y, z: x + 1),
        ((16, 8, 2), lambda x, y, z: x + 1),
        ((8, 16, 2), lambda x, y, z: 16 - y),
        ((200, 1, 1), lambda x, y, z: 10 if x < 77 else 0),
        ((40, 30, 1), lambda x, y, z: (10 if x < 39 else 1) * (10 if y < 29 else 3)),
    ],
    ids=["triangle", "causal, heads, batch", "triangle on y", "empty from 77 on", "ragged on two axes"],
)
def test_totals_have_no_bias_and_the_error_is_stated(extents: Extents, work: Callable[[int, int, int], float]) -> None:
    x, y, z = extents
    whole = sum(work(i, j, k) for i in range(x) for j in range(y) for k in range(z))
    errors, stated = [], []
    for seed in range(200):
        sample = choose_threadgroups(extents, seed, 32)
        errors.append(total(sample, work) / whole - 1)
        stated.append(sample.relative_error([work(*place) for place in positions(sample)]))
    spread = float(np.std(errors))
    assert abs(np.mean(errors)) < 4 * spread / np.sqrt(200) + 1e-9
    assert spread < 0.06
    assert spread <= np.mean(stated) + 1e-9
    assert np.mean(stated) < 0.12


def test_unequal_work_without_order_is_uncertain() -> None:
    """Every second threadgroup does nothing: neighbours in the sample differ, and that is said."""
    sample = choose_threadgroups(1000, 0, 30)
    error = sample.relative_error([float(i % 2) for i in sample.indices])
    assert 0.1 < error < 0.3  # 1 / sqrt(30) is 0.18


def counted_twice(
    launcher: Launcher, source: str, grid: Extents, threadgroup: Extents, budget: int
) -> tuple[Counters, Counters]:
    """Counters of the whole launch and from a sample."""
    inputs = {"x": np.ones(1 << 14, np.float32)}
    compiled = compile_kernel(
        launcher.kernel(source, inputs, {"out": ("float32", (1 << 14,))}), mode="counted", cache=launcher.cache
    )
    assert not isinstance(compiled, CompileFailure), compiled.messages
    sample = choose_threadgroups(threadgroups_per_grid(grid, threadgroup), 5, budget)
    results = []
    for chosen in (None, sample):
        indices = chosen.indices if chosen else None
        result = run(compiled, inputs, {}, grid=grid, threadgroup=threadgroup, threadgroups=indices)
        assert result.raw is not None
        threads = grid[0] * grid[1] * grid[2]
        shape = LaunchShape(threads, result.threadgroups_total, result.threads_per_threadgroup, 1 << 40)
        results.append(count(compiled.sites, compiled.blocks, result.raw, shape, chosen))
    assert results[0].sampling_error == 0
    assert results[1].sampled_threadgroups <= budget < results[0].sampled_threadgroups
    return results[0], results[1]


def assert_close(whole: Counters, part: Counters, tolerance: float) -> None:
    for name in (
        "device_bytes_read", "device_bytes_written", "device_line_bytes", "merged_line_bytes", "compulsory_bytes",
        "segments", "segment_read_lines", "arithmetic_operations", "barriers", "threadgroup_bytes", "bank_cycles",
    ):  # fmt: skip
        assert getattr(part, name) == pytest.approx(getattr(whole, name), rel=tolerance), name
    for name, amount in whole.operations.items():
        assert part.operations[name] == pytest.approx(amount, rel=tolerance), name
    model: ChipModel = chip()
    assert estimate(part, model).time_us == pytest.approx(estimate(whole, model).time_us, rel=tolerance)


CAUSAL = """
threadgroup float tile[32];
uint lane = thread_position_in_threadgroup.x, row = threadgroup_position_in_grid.x;
float sum = 0;
for (uint k = 0; k <= row; k++) {
    tile[lane] = x[(k * 32 + lane) & 16383];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += exp(tile[31 - lane]) * tile[lane];
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
out[(threadgroup_position_in_grid.y * 64 + row) * 32 + lane] = sum;
"""


def test_causal_work(counted: Launcher) -> None:
    """64 blocks of rows, each with one block of columns more than the last, for 8 heads."""
    whole, part = counted_twice(counted, CAUSAL, (64 * 32, 8, 1), (32, 1, 1), 48)
    assert_close(whole, part, 0.05)
    assert part.sampling_error < 0.1
    assert part.longest_chain == whole.longest_chain  # the last row of blocks is always run


def test_a_ragged_tail(counted: Launcher) -> None:
    source = """
uint i = thread_position_in_grid.x;
float sum = 0;
for (uint k = 0; k < 8; k++) sum += x[(i + k * 977) & 16383];
out[i & 16383] = sum;
"""
    whole, part = counted_twice(counted, source, (100 * 64 + 5, 1, 1), (64, 1, 1), 10)
    assert part.device_bytes_written == whole.device_bytes_written == (100 * 64 + 5) * 4
    assert part.operations == whole.operations
    assert_close(whole, part, 0.02)


def test_empty_threadgroups(counted: Launcher) -> None:
    """Of 256 threadgroups the first 150 work; the rest ends at once."""
    source = """
if (threadgroup_position_in_grid.x >= 150) return;
uint i = thread_position_in_grid.x;
float sum = 0;
for (uint k = 0; k < 16; k++) sum += x[(i * 3 + k * 64) & 16383];
out[i & 16383] = sum;
"""
    whole, part = counted_twice(counted, source, (256 * 32, 1, 1), (32, 1, 1), 40)
    assert part.device_bytes_written == pytest.approx(150 * 128, rel=0.05)
    assert_close(whole, part, 0.05)


def test_counts_of_other_threadgroups_are_refused(counted: Launcher) -> None:
    inputs = {"x": np.ones(64, np.float32)}
    source = "out[thread_position_in_grid.x] = x[thread_position_in_grid.x];"
    compiled = compile_kernel(
        counted.kernel(source, inputs, {"out": ("float32", (64,))}), mode="counted", cache=counted.cache
    )
    assert not isinstance(compiled, CompileFailure)
    result = run(compiled, inputs, {}, grid=(64, 1, 1), threadgroup=(8, 1, 1), threadgroups=[1, 2])
    assert result.raw is not None
    with pytest.raises(InputError, match="other threadgroups"):
        count(compiled.sites, compiled.blocks, result.raw, LaunchShape(64, 8, 8, 512), choose_threadgroups(8, 0, 2))
