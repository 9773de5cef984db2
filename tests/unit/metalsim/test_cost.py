"""The cost model: complete inputs, sensible bounds, and the directions in which it must move."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgraph.graph import KnowledgeGraph
from kx.paths import Home
from metalsim.errors import InputError
from metalsim.estimate.cost import CHIP_QUANTITIES, ChipModel, Estimate, estimate
from metalsim.estimate.counters import Chain, Counters, LaunchShape

# A made-up chip with round figures: 10 cores at 1 GHz, 100 GB/s of which all is attainable.
ROUND = {
    "gpu-cores": 10, "gpu-clock": 1.0, "schedulers-per-core": 4, "simd-width": 32, "memory-bandwidth": 100,
    "attainable-bandwidth-fraction": 1.0, "cache-line": 128, "l1-bytes-per-core": 8192, "l2-bytes": 1 << 20,
    "slc-bytes": 8 << 20, "l1-bandwidth": 64, "l2-bandwidth": 32, "slc-bandwidth-ratio": 2.0,
    "threadgroup-bandwidth": 128, "threadgroup-banks": 32, "threadgroup-bank-width": 4, "l1-latency": 50,
    "threadgroup-latency": 30, "l2-latency": 100, "slc-latency": 250, "dram-latency": 400,
    "resident-threads-per-core": 2048, "register-file-bytes-per-core": 1 << 20, "registers-per-thread": 128,
    "threadgroup-bytes-per-core": 65536, "barrier-latency": 30, "barrier-latency-per-simd-group": 2,
    "launch-overhead": 2.0,
}  # fmt: skip


def chip(**changes: float) -> ChipModel:
    values: dict[str, float] = {quantity.name: 4.0 for quantity in CHIP_QUANTITIES} | ROUND
    for name in values:
        if name.startswith("issue-cycles-float"):
            values[name] = 1.0
    return ChipModel.from_quantities(values | {name.replace("_", "-"): value for name, value in changes.items()})


def counters(
    threadgroups: int = 1000,
    threads: int = 256,
    chain: dict[str, float] | None = None,
    operations: dict[str, float] | None = None,
    **changes: Any,
) -> Counters:
    """An elementwise kernel: a load and a store of one float per thread, coalesced."""
    total = threadgroups * threads
    lines = changes.pop("lines", 8.0 * total)
    base = Counters(
        shape=LaunchShape(total, threadgroups, threads, 1 << 40),
        sampled_threadgroups=threadgroups,
        scale=1.0,
        sampling_error=0.0,
        operations=operations if operations is not None else {"load": total / 32, "store": total / 32},
        arithmetic_operations=0.0,
        transcendental_operations=0.0,
        integer_operations=0.0,
        matrix_multiplies={},
        lane_utilization=1.0,
        longest_chain=Chain(chain or {"device-load": 1.0, "store": 1.0}),
        mean_chain=Chain(chain or {"device-load": 1.0, "store": 1.0}),
        device_bytes_read=4.0 * total,
        device_bytes_written=4.0 * total,
        device_accesses=2.0 * total / 32,
        device_line_bytes=lines,
        segments=total / 32,
        segment_read_lines=lines / 256,
        segment_written_lines=lines / 256,
        merged_line_bytes=lines,
        window_lines=2.0,
        compulsory_bytes=lines,
        compulsory_read_bytes=lines / 2,
        footprint_bytes=lines,
        threadgroup_bytes=0.0,
        threadgroup_bytes_read=0.0,
        threadgroup_bytes_written=0.0,
        threadgroup_accesses=0.0,
        bank_cycles=0.0,
        bank_conflict_cycles=0.0,
        barriers=0.0,
        simd_barriers=0.0,
        threadgroup_memory_bytes=0,
        registers=16,
        thread_array_bytes=0,
        thread_array_accesses=0.0,
        thread_array_bytes_read=0.0,
        thread_array_bytes_written=0.0,
    )
    return dataclasses.replace(base, **changes)


def test_every_apple_chip_with_all_figures_can_be_estimated(tmp_path: Path) -> None:
    profiles = [chip for chip in KnowledgeGraph.open(Home(tmp_path)).chips() if chip.family.startswith("apple")]
    units = {quantity.name: quantity.unit for quantity in CHIP_QUANTITIES}
    complete = [profile for profile in profiles if units.keys() <= profile.quantities.keys()]
    assert {"m1", "m1-max", "m3-max", "m4-max", "m5-max"} <= {profile.slug for profile in complete}
    copied = counters(threadgroups=65536)
    for profile in complete:
        model = ChipModel.from_quantities({name: item.value for name, item in profile.quantities.items()})
        assert {name: item.unit for name, item in profile.quantities.items() if name in units} == units
        result = estimate(copied, model)
        attainable = model["memory-bandwidth"] * 1e3 * model["attainable-bandwidth-fraction"]
        assert result.bound_by == "bandwidth", profile.slug
        assert result.time_us == pytest.approx(copied.footprint_bytes / attainable, rel=0.05), profile.slug


def test_a_missing_quantity_is_named() -> None:
    values = {quantity.name: 1.0 for quantity in CHIP_QUANTITIES}
    del values["latency-cycles-exp2"]
    with pytest.raises(InputError, match="latency-cycles-exp2"):
        ChipModel.from_quantities(values)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_an_impossible_quantity_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="gpu-clock"):
        ChipModel.from_quantities({quantity.name: 1.0 for quantity in CHIP_QUANTITIES} | {"gpu-clock": value})


def test_an_elementwise_copy_takes_bytes_over_bandwidth() -> None:
    result = estimate(counters(threadgroups=100_000), chip())
    assert result.bound_by == "bandwidth"
    assert result.parts.bandwidth_us == pytest.approx(100_000 * 256 * 8 / 100e3)
    assert result.time_us == result.parts.bandwidth_us + 2.0
    assert result.occupancy == 1.0
    assert any("DRAM" in note for note in result.notes)


def test_issue_time_is_cycles_over_schedulers() -> None:
    """1000 threadgroups of 8 SIMD-groups on 10 cores: each core issues 100 * 8 * 5000 instructions on 4 schedulers."""
    busy = counters(operations={"float32-fma": 1000 * 8 * 5000.0}, lines=0.0)
    result = estimate(busy, chip())
    assert result.bound_by == "compute"
    assert result.parts.compute_us == pytest.approx(100 * 8 * 5000 / 4 / 1e3)


def test_one_simd_group_uses_one_scheduler() -> None:
    work = {"float32-fma": 10_000.0}
    one = estimate(counters(1, 32, operations=work), chip()).parts.compute_us
    four = estimate(counters(1, 128, operations=work), chip()).parts.compute_us
    eight = estimate(counters(1, 256, operations=work), chip()).parts.compute_us
    assert one == pytest.approx(10.0)
    assert four == eight == pytest.approx(2.5)


def scan(threadgroups: int, threads: int, rounds: float) -> Counters:
    """A scan over 2048 steps of 768 channels; ``rounds`` loads of a thread must be waited for."""
    chain = {"device-load": rounds, "float32-fma": 2 * rounds, "exp": rounds}
    lines = 768 * 2048 * 16.0
    issued = 768 * 2048 / 32 * 40.0
    return counters(threadgroups, threads, chain=chain, operations={"float32-fma": issued}, lines=lines)


def test_a_sequential_scan_is_latency_bound_and_a_parallel_one_several_times_faster() -> None:
    sequential = estimate(scan(24, 32, 2048), chip())
    parallel = estimate(scan(768, 32, 2048 / 32), chip())
    assert sequential.bound_by == "latency"
    assert sequential.parts.latency_us > 3 * sequential.parts.bandwidth_us
    assert sequential.time_us > 3 * parallel.time_us


def test_more_resident_threads_hide_latency() -> None:
    chain = {"device-load": 100.0}
    roomy = estimate(counters(chain=chain, registers=16), chip())
    tight = estimate(counters(chain=chain, registers=128, threadgroup_memory_bytes=32768), chip())
    assert tight.occupancy < roomy.occupancy
    assert tight.parts.latency_us > 2 * roomy.parts.latency_us
    assert any("threadgroup memory" in note for note in tight.notes)


def test_register_file_limits_residency() -> None:
    small = chip(register_file_bytes_per_core=212992)
    result = estimate(counters(registers=104), small)
    assert result.occupancy == pytest.approx(512 / 2048)  # 212992 / (4 * 104) = 512 threads
    assert any("registers" in note for note in result.notes)


def test_too_many_registers_are_reported_as_a_spill() -> None:
    assert any("spills" in note for note in estimate(counters(registers=200), chip()).notes)
    assert not any("spills" in note for note in estimate(counters(registers=100), chip()).notes)


def test_barriers_add_to_the_chain_and_can_dominate() -> None:
    chain = {"float32-add": 1.0, "barrier": 1000.0}
    result = estimate(counters(10, 256, chain=chain, lines=0.0), chip())
    assert result.bound_by == "synchronization"
    assert result.parts.synchronization_us == pytest.approx(1000 * (30 + 2 * 8) / 1e3)


def test_uncoalesced_lines_cost_more() -> None:
    packed = estimate(counters(threadgroups=10_000), chip()).time_us
    scattered = estimate(counters(threadgroups=10_000, lines=10_000 * 256 * 64.0), chip()).time_us
    assert scattered > 6 * packed


def test_rereading_a_small_footprint_is_cheaper_than_a_large_one() -> None:
    again = counters(threadgroups=10_000, footprint_bytes=float(1 << 20))
    assert estimate(again, chip()).time_us < 0.5 * estimate(counters(threadgroups=10_000), chip()).time_us


def test_bank_conflicts_cost_less_with_wider_banks() -> None:
    conflicts = counters(threadgroup_bytes=1e6, threadgroup_accesses=1e4, bank_conflict_cycles=3.2e7, lines=0.0)
    narrow = estimate(conflicts, chip()).parts.bandwidth_us
    wide = estimate(conflicts, chip(threadgroup_bank_width=8)).parts.bandwidth_us
    assert narrow == pytest.approx(2 * wide, rel=0.01)


def test_cores_without_a_threadgroup_stay_idle() -> None:
    work = {"float32-fma": 1e6}
    few = estimate(counters(2, 256, operations=work), chip())
    many = estimate(counters(20, 256, operations=work), chip())
    assert few.parts.compute_us == pytest.approx(5 * many.parts.compute_us)
    assert any("idle" in note for note in few.notes)


def test_the_slowest_simd_group_bounds_an_unbalanced_launch() -> None:
    uneven = counters(
        10, 32, longest_chain=Chain({"device-load": 1000.0}), mean_chain=Chain({"device-load": 10.0}), lines=128.0
    )
    assert estimate(uneven, chip()).parts.latency_us >= 1000 * 400 / 1e3


def test_an_empty_kernel_takes_the_launch() -> None:
    empty = counters(
        1, 32, operations={}, chain={"store": 0.0}, lines=0.0, device_bytes_read=0.0, device_bytes_written=0.0
    )
    assert estimate(empty, chip()).time_us == pytest.approx(2.0)


factors = st.floats(1.0, 50.0)


@given(factors, factors, factors, st.integers(1, 400), st.sampled_from([32, 128, 256, 1024]))
def test_more_of_anything_is_never_faster(
    bytes_factor: float, work_factor: float, chain_factor: float, threadgroups: int, threads: int
) -> None:
    def at(bytes_by: float, work_by: float, chain_by: float) -> Estimate:
        total = threadgroups * threads
        return estimate(
            counters(
                threadgroups,
                threads,
                chain={"device-load": 3 * chain_by, "exp": 5 * chain_by, "barrier": chain_by},
                operations={"float32-fma": work_by * total, "exp": work_by * total / 8},
                lines=8.0 * total * bytes_by,
            ),
            chip(),
        )

    base = at(1, 1, 1)
    for more in (at(bytes_factor, 1, 1), at(1, work_factor, 1), at(1, 1, chain_factor)):
        assert more.time_us >= base.time_us - 1e-9
    parts = base.parts
    longest = max(parts.bandwidth_us, parts.compute_us, parts.latency_us + parts.synchronization_us)
    assert base.time_us == pytest.approx(parts.launch_us + longest)
    assert 0 < base.occupancy <= 1


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_more_threadgroups_are_never_faster(one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    assert estimate(counters(fewer), chip()).time_us <= estimate(counters(more), chip()).time_us + 1e-9
