"""Counters of real launches against counts made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from metalsim import CompileFailure, RunResult, compile_kernel, run
from metalsim.build.blocks import BlockProfile
from metalsim.build.instrument import Site
from metalsim.estimate.counters import Chain, Counters, LaunchShape, count
from metalsim.execute.raw import GROUP_COUNTS, SITE_COUNTS, RawCounts
from metalsim.model import DType
from tests.unit.metalsim.launching import Launcher

Arrays = dict[str, np.ndarray[Any, Any]]


def launched(
    launcher: Launcher,
    source: str,
    inputs: Arrays,
    outputs: dict[str, tuple[DType, tuple[int, ...]]],
    threads: int,
    threadgroup: int,
    sample: list[int] | None = None,
) -> tuple[Counters, RunResult]:
    compiled = compile_kernel(launcher.kernel(source, inputs, outputs), mode="counted", cache=launcher.cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    shapes = {name: shape for name, (_, shape) in outputs.items()}
    result = run(compiled, inputs, shapes, grid=(threads, 1, 1), threadgroup=(threadgroup, 1, 1), threadgroups=sample)
    assert result.raw is not None
    buffer_bytes = sum(a.nbytes for a in inputs.values()) + sum(a.nbytes for a in result.outputs.values())
    shape = LaunchShape(threads, result.threadgroups_total, result.threads_per_threadgroup, buffer_bytes)
    return count(compiled.sites, compiled.blocks, result.raw, shape), result


def floats(count: int) -> np.ndarray[Any, Any]:
    return np.linspace(0.1, 1.0, count, dtype=np.float32)


STREAM = """
const int lane = thread_position_in_grid.x;
float total = 0;
for (int i = 0; i < x_shape[0] / 64; i++) {
    total = total * 0.5f + exp(x[i * 64 + lane]);
}
y[lane] = total;
"""


def test_loads_multiply_adds_and_exponentials_per_iteration(counted: Launcher) -> None:
    """24 iterations, 2 SIMD-groups: each iteration one load, one fused multiply-add, one exp."""
    counters, _ = launched(counted, STREAM, {"x": floats(24 * 64)}, {"y": ("float32", (64,))}, 64, 64)
    assert counters.operations["float32-fma"] == 24 * 2
    assert counters.operations["exp"] == 24 * 2
    assert counters.transcendental_instructions == 24 * 2
    assert counters.transcendental_operations == 24 * 64
    assert counters.arithmetic_operations == 2 * 24 * 64
    assert counters.device_bytes_read == 24 * 64 * 4
    assert counters.device_bytes_written == 64 * 4
    assert counters.device_accesses == (24 + 1) * 2
    assert counters.device_line_bytes == counters.merged_line_bytes == (24 + 1) * 2 * 128
    assert counters.compulsory_bytes == counters.footprint_bytes == (24 + 1) * 2 * 128
    assert counters.coalescing == 1.0
    assert counters.lane_utilization == 1.0
    assert counters.longest_chain.steps["exp"] == 24
    assert counters.longest_chain.steps["float32-fma"] == 24
    assert 1 <= counters.longest_chain.steps["device-load"] <= 24
    assert counters.barriers == 0


def test_divergence_costs_both_sides(counted: Launcher) -> None:
    source = """
    const int lane = thread_position_in_grid.x;
    float v = x[lane];
    if (lane < 8) { v = exp(v); y[lane] = v; } else { v = sin(v); y[lane] = v * 2; }
    """
    counters, _ = launched(counted, source, {"x": floats(32)}, {"y": ("float32", (32,))}, 32, 32)
    assert (counters.operations["exp"], counters.operations["sine"]) == (1, 1)
    assert 0.4 < counters.lane_utilization < 0.9


def test_a_simd_group_iterates_as_often_as_its_busiest_lane(counted: Launcher) -> None:
    source = """
    const int lane = thread_position_in_grid.x;
    float v = x[lane];
    for (int i = 0; i <= lane; i++) v = exp(v) * 0.25f;
    y[lane] = v;
    """
    counters, _ = launched(counted, source, {"x": floats(64)}, {"y": ("float32", (64,))}, 64, 64)
    assert counters.operations["exp"] == 32 + 64
    assert counters.longest_chain.steps["exp"] == 64
    assert counters.mean_chain.steps["exp"] == 64  # of the threadgroup's slowest SIMD-group


def test_sampling_a_uniform_launch_is_exact(counted: Launcher) -> None:
    source = """
    threadgroup float shared[64];
    const uint i = thread_position_in_grid.x, at = thread_position_in_threadgroup.x;
    const float v = x[i];
    shared[at] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = simd_sum(shared[63 - at]) + simd_shuffle_xor(v, 1);
    """
    inputs, outputs = {"x": floats(512)}, {"y": ("float32", (512,))}
    whole, _ = launched(counted, source, inputs, outputs, 512, 64)  # type: ignore[arg-type]
    part, _ = launched(counted, source, inputs, outputs, 512, 64, [1, 6])  # type: ignore[arg-type]
    assert (part.sampled_threadgroups, part.scale, whole.scale) == (2, 4.0, 1.0)
    assert dataclasses.replace(part, sampled_threadgroups=8, scale=1.0) == whole
    assert whole.barriers == 8
    assert whole.operations["simd-reduction"] == whole.operations["shuffle"] == 16
    assert whole.shuffles == 16
    assert whole.threadgroup_memory_bytes == 256
    assert whole.threadgroup_bytes == 2 * 512 * 4
    assert whole.bank_conflict_cycles == 0
    chain = whole.longest_chain.steps
    assert chain["barrier"] == chain["simd-reduction"] == 1
    assert (chain["device-load"], chain["threadgroup-load"]) == (1, 1)


def test_a_smaller_threadgroup_at_the_edge_counts_its_own_threads(counted: Launcher) -> None:
    source = "y[thread_position_in_grid.x] = x[thread_position_in_grid.x] * 2.0f;"
    inputs, outputs = {"x": floats(100)}, {"y": ("float32", (100,))}
    counters, _ = launched(counted, source, inputs, outputs, 100, 32)  # type: ignore[arg-type]
    assert counters.scale == 1.0
    assert counters.device_bytes_read == counters.device_bytes_written == 400
    assert counters.operations["float32-multiply"] == 4


def test_bank_conflicts_and_uncoalesced_accesses_show(counted: Launcher) -> None:
    source = """
    threadgroup float shared[1024];
    const uint lane = thread_position_in_grid.x;
    shared[lane * 32] = x[lane * 32];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[lane] = shared[lane * 32];
    """
    inputs, outputs = {"x": floats(1024)}, {"y": ("float32", (32,))}
    counters, _ = launched(counted, source, inputs, outputs, 32, 32)  # type: ignore[arg-type]
    assert counters.bank_cycles == 2 * 32
    assert counters.bank_conflict_cycles == 2 * 31
    assert counters.device_line_bytes == (32 + 1) * 128
    assert counters.coalescing == pytest.approx(256 / (33 * 128))


def test_neighbouring_loads_fetch_their_lines_once(counted: Launcher) -> None:
    """Each lane reads four adjacent floats: four accesses of four lines each, but only four lines."""
    source = """
    const uint lane = thread_position_in_grid.x;
    y[lane] = x[lane * 4] + x[lane * 4 + 1] + x[lane * 4 + 2] + x[lane * 4 + 3];
    """
    inputs, outputs = {"x": floats(128)}, {"y": ("float32", (32,))}
    counters, _ = launched(counted, source, inputs, outputs, 32, 32)  # type: ignore[arg-type]
    assert counters.device_line_bytes == (16 + 1) * 128
    assert counters.merged_line_bytes == counters.compulsory_bytes == (4 + 1) * 128
    assert counters.window_lines == 5


def test_the_footprint_never_exceeds_the_buffers(counted: Launcher) -> None:
    source = """
    const uint i = thread_position_in_grid.x;
    y[i] = x[thread_position_in_threadgroup.x];
    """
    inputs, outputs = {"x": floats(64)}, {"y": ("float32", (1024,))}
    counters, _ = launched(counted, source, inputs, outputs, 1024, 64)  # type: ignore[arg-type]
    assert counters.compulsory_bytes == 2 * 1024 * 4
    assert counters.footprint_bytes == 64 * 4 + 1024 * 4


def hand_made() -> tuple[tuple[Site, ...], tuple[BlockProfile, ...], RawCounts]:
    """One threadgroup of 40 threads: a block that loads, one that awaits it, 3 and 5 times."""
    sites = (Site(0, "load", 4, 1, "body"), Site(1, "store", 4, 2, "body"))
    blocks = (
        BlockProfile(0, "f", 1, "body", {"load": 1}, {}, (), (), (0,), ((0,),), 4),
        BlockProfile(1, "f", 2, "body", {"float32-fma": 2, "store": 1}, {"float32-fma": 2}, (), (0,), (1,), ((1,),), 9),
        BlockProfile(2, "f", 3, "body", {"exp": 7}, {"exp": 7}, (), (), (), (), 99),
    )  # fmt: skip
    executions = np.zeros((1, 3, 40), np.uint32)
    executions[0, 0, :] = 3
    executions[0, 1, :20] = 5
    totals = np.zeros(2, SITE_COUNTS)
    totals["device_accesses"] = [90, 100]
    totals["threadgroup_accesses"] = [30, 0]
    totals["device_simd_accesses"], totals["device_lines"] = [6, 5], [60, 5]
    groups = np.zeros(1, GROUP_COUNTS)
    groups["threads"], groups["device_lines"] = 40, 65
    return sites, blocks, RawCounts(np.array([0]), executions, totals, groups)


def test_chains_follow_executions_spaces_and_awaited_loads() -> None:
    sites, blocks, raw = hand_made()
    counters = count(sites, blocks, raw, LaunchShape(80, 2, 40, 1 << 20))
    assert counters.scale == 2.0
    # SIMD-group 0: block 0 three times, block 1 five times; SIMD-group 1 only block 0
    assert counters.operations == {"load": 2 * (3 + 3), "float32-fma": 2 * 10, "store": 2 * 5}
    # the load is waited for at most as often as it was issued; three in four accesses hit device memory
    assert counters.longest_chain.steps == {"device-load": 3.0, "float32-fma": 10.0}
    assert counters.registers == 9  # the block with 99 was never executed
    assert counters.merged_line_bytes == 2 * 65 * 128
    assert counters.window_lines == pytest.approx((60 * 10 + 5 * 1) / 65)


def test_a_chain_is_priced_by_class() -> None:
    chain = Chain({"float32-add": 3, "float32-fma": 2, "vote": 1, "device-load": 2})
    assert chain.cycles({"float32": 3, "float32-fma": 6, "shuffle": 4, "device-load": 100}) == 9 + 12 + 4 + 200
    with pytest.raises(KeyError):
        chain.cycles({"float32": 3})
