"""Estimates how long a launch takes on a chip whose figures are known; an estimate, not a measurement.

docs/estimate.md derives the formula and names the source of each kind of constant. No figure of a
chip is in this file: they come from the knowledge graph through ``ChipModel.from_quantities``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from metalsim.build.operations import BARRIER, FREE, LOAD, STORE
from metalsim.errors import InputError
from metalsim.estimate.chains import CONSTANT_LOAD, DEVICE_LOAD, THREADGROUP_LOAD, Chain
from metalsim.estimate.chip import CHIP_QUANTITIES, OPERATION_CLASSES, ChipModel, ChipQuantity
from metalsim.estimate.counters import Counters, LaunchShape, count
from metalsim.estimate.occupancy import Residency, find_residency

if TYPE_CHECKING:
    from metalsim.estimate.sampling import Sample
    from metalsim.execute.launch import Program, RunResult

__all__ = [
    "CHIP_QUANTITIES", "OPERATION_CLASSES", "Bound", "ChipModel", "ChipQuantity", "Estimate", "EstimateParts",
    "Residency", "estimate", "estimate_run", "estimate_to_json",
]  # fmt: skip

Bound = Literal["bandwidth", "compute", "latency", "synchronization", "launch"]


@dataclass(frozen=True)
class EstimateParts:
    """The terms of an estimate, each in us as if it alone limited the launch.

    Attributes:
        bandwidth_us: data through the narrowest of DRAM, SLC, L2, L1 and threadgroup memory.
        compute_us: instruction issue.
        latency_us: the dependent chain of a thread, repeated for every wave of threadgroups.
        synchronization_us: threadgroup barriers on that chain; adds to the latency.
        launch_us: fixed cost.
    """

    bandwidth_us: float
    compute_us: float
    latency_us: float
    synchronization_us: float
    launch_us: float


@dataclass(frozen=True)
class Estimate:
    """An estimated time.

    Attributes:
        time_us: ``launch + max(bandwidth, compute, latency + synchronization)``.
        parts: the terms.
        bound_by: which term is the largest.
        occupancy: resident SIMD-groups of a busy core over the most it can hold, 0 to 1.
        residency: threads and threadgroups in flight, and what limits them.
        longest_chain_cycles: of the slowest SIMD-group seen, waiting for its loads and barriers included.
        notes: what limits residency and bandwidth, what was assumed, in words.
    """

    time_us: float
    parts: EstimateParts
    bound_by: Bound
    occupancy: float
    residency: Residency
    longest_chain_cycles: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Caches:
    """The launch's device traffic at each level.

    Attributes:
        l1_cycles: cycles of one core's L1, one line or one ``l1-bandwidth`` of data at a time.
        l2, slc, dram: bytes of lines that cross each level; thread arrays that no register can hold included.
        load_latency_cycles: mean over the levels that serve the lines.
        note: the shares in words.
    """

    l1_cycles: float
    l2: float
    slc: float
    dram: float
    load_latency_cycles: float
    note: str


def estimate(counters: Counters, chip: ChipModel) -> Estimate:
    """Estimates the time of a launch on a chip.

    Args:
        counters: what the launch does.
        chip: the chip's figures.
    """
    residency = find_residency(counters, chip)
    caches = _caches(counters, chip, residency)
    bandwidth_us, narrowest = _bandwidth(counters, chip, residency, caches)
    compute_us = _compute(counters, chip, residency)
    chain = _chain_times(counters, chip, residency, caches)
    parts = EstimateParts(bandwidth_us, compute_us, chain.latency_us, chain.synchronization_us, chip["launch-overhead"])
    resident = min(residency.threadgroups, residency.busiest) * counters.shape.simd_groups_per_threadgroup
    return Estimate(
        time_us=parts.launch_us + max(bandwidth_us, compute_us, chain.latency_us + chain.synchronization_us),
        parts=parts,
        bound_by=_bound_by(parts),
        occupancy=min(1.0, resident * chip["simd-width"] / chip["resident-threads-per-core"]),
        residency=residency,
        longest_chain_cycles=chain.longest_cycles,
        notes=_notes(counters, chip, residency, f"bandwidth term: {narrowest}", caches.note),
    )


def _bound_by(parts: EstimateParts) -> Bound:
    serial_us = parts.latency_us + parts.synchronization_us
    longest_us = max(parts.bandwidth_us, parts.compute_us, serial_us)
    if parts.launch_us > longest_us:
        return "launch"
    if longest_us == serial_us:
        return "synchronization" if parts.synchronization_us > parts.latency_us else "latency"
    return "bandwidth" if longest_us == parts.bandwidth_us else "compute"


def estimate_run(
    compiled: Program,
    result: RunResult,
    *,
    grid: tuple[int, int, int],
    buffer_bytes: int,
    quantities: Mapping[str, float],
    sample: Sample | None = None,
) -> tuple[Counters, Estimate]:
    """Counts and estimates a launch that was run in mode ``counted``.

    Args:
        compiled: what was run, of ``compile_kernel`` or ``compile_file``.
        result: of ``run`` or ``run_file``.
        grid: threads per axis of the whole launch.
        buffer_bytes: of all device buffers together.
        quantities: the chip's figures by name, in the units of ``CHIP_QUANTITIES``.
        sample: by which the threadgroups were chosen (``metalsim.estimate.sampling``); None when all were run,
            or when those that were run stand for the others alike.

    Raises:
        InputError: nothing was counted, a figure of the chip is missing, the sample is another one.
    """
    if result.raw is None:
        raise InputError("nothing was counted", "compile with mode='counted', and mind the launch's findings")
    threads = grid[0] * grid[1] * grid[2]
    shape = LaunchShape(threads, result.threadgroups_total, result.threads_per_threadgroup, buffer_bytes)
    counters = count(compiled.sites, compiled.blocks, result.raw, shape, sample)
    return counters, estimate(counters, ChipModel.from_quantities(quantities))


def estimate_to_json(estimated: Estimate, chip: str) -> dict[str, Any]:
    """An estimate as a dictionary.

    Args:
        estimated: for that chip.
        chip: its name.

    Returns:
        ``chip``, ``time_us``, ``bound_by``, ``parts`` in us by name, ``occupancy`` of a busy core from 0 to 1,
        ``threads_in_flight``, ``threadgroups_in_flight``, ``residency_limit``, ``notes``.
    """
    return {
        "chip": chip,
        "time_us": estimated.time_us,
        "bound_by": estimated.bound_by,
        "parts": {name.removesuffix("_us"): value for name, value in asdict(estimated.parts).items()},
        "occupancy": estimated.occupancy,
        "threads_in_flight": estimated.residency.threads_in_flight,
        "threadgroups_in_flight": estimated.residency.threadgroups_in_flight,
        "residency_limit": estimated.residency.limit,
        "notes": list(estimated.notes),
    }


def _caches(counters: Counters, chip: ChipModel, residency: Residency) -> _Caches:
    """Bytes each level passes and the mean latency of a device load."""
    compulsory, footprint = counters.compulsory_bytes, counters.footprint_bytes
    merged = max(counters.merged_line_bytes, compulsory)
    crossing_l1 = max(counters.device_line_bytes, merged)
    repeated, shared = merged - compulsory, compulsory - footprint
    resident = min(residency.threadgroups, residency.busiest)
    window = counters.window_lines * chip["cache-line"] * counters.shape.simd_groups_per_threadgroup
    working_set = resident * min(window, compulsory / max(1, counters.shape.threadgroups))
    l1_hits = min(1.0, chip["l1-bytes-per-core"] / working_set) if working_set else 1.0
    l2_share = min(1.0, chip["l2-bytes"] / footprint) if footprint else 1.0
    slc_share = min(1.0, chip["slc-bytes"] / footprint) if footprint else 1.0
    caches = {
        "L1": crossing_l1 - merged + repeated * l1_hits,
        "L2": repeated * (1 - l1_hits) + shared * l2_share,
        "SLC": shared * max(0.0, slc_share - l2_share),
        "DRAM": footprint + shared * (1 - max(slc_share, l2_share)),
    }
    latencies = {
        "L1": chip["l1-latency"],
        "L2": chip["l2-latency"],
        "SLC": chip.cycles_of(chip["slc-latency"]),
        "DRAM": chip.cycles_of(chip["dram-latency"]),
    }
    served = sum(caches.values())
    latency = sum(caches[level] * latencies[level] for level in caches) / served if served else 0.0
    requested = counters.device_bytes_read + counters.device_bytes_written
    l1_cycles = max(merged / chip["cache-line"], requested / chip["l1-bandwidth"])
    shares = ", ".join(f"{level} {100 * caches[level] / served:.0f} %" for level in caches) if served else "none"
    arrays = _thread_arrays(counters, chip, residency)
    return _Caches(
        l1_cycles=l1_cycles + arrays["L1"] / chip["l1-bandwidth"],
        l2=compulsory + repeated * (1 - l1_hits) + arrays["L2"],
        slc=footprint + shared * (1 - l2_share) + arrays["SLC"],
        dram=caches["DRAM"] + arrays["DRAM"],
        load_latency_cycles=latency,
        note=f"device lines served by {shares}; a load takes about {latency:.0f} cycles",
    )


def _thread_arrays(counters: Counters, chip: ChipModel, residency: Residency) -> dict[str, float]:
    """Bytes of thread arrays that cross each level, which keeps as much of the resident threads' arrays as fits."""
    moved = counters.thread_array_bytes_read + counters.thread_array_bytes_written
    on_chip = max(1, residency.threads_in_flight * counters.thread_array_bytes)
    on_core = min(residency.threadgroups, residency.busiest) * counters.shape.threads_per_threadgroup
    beyond_l1 = 1 - min(1.0, chip["l1-bytes-per-core"] / max(1, on_core * counters.thread_array_bytes))
    beyond_l2 = 1 - min(1.0, chip["l2-bytes"] / on_chip)
    beyond_slc = 1 - min(1.0, max(chip["slc-bytes"], chip["l2-bytes"]) / on_chip)
    crossing_l2 = moved * beyond_l1
    return {"L1": moved, "L2": crossing_l2, "SLC": crossing_l2 * beyond_l2, "DRAM": crossing_l2 * beyond_slc}


def _bandwidth(counters: Counters, chip: ChipModel, residency: Residency, caches: _Caches) -> tuple[float, str]:
    """The slowest data path's time in us and its name."""
    nominal = chip["memory-bandwidth"] * 1e3  # bytes per us
    on_busiest_core = residency.busiest / max(1, counters.shape.threadgroups)
    wide_banks = 4.0 / chip["threadgroup-bank-width"] * 32.0 / chip["threadgroup-banks"]
    threadgroup_cycles = max(counters.threadgroup_accesses, counters.threadgroup_bytes / chip["threadgroup-bandwidth"])
    threadgroup_cycles += counters.bank_conflict_cycles * wide_banks
    times = {
        "DRAM": caches.dram / (nominal * chip["attainable-bandwidth-fraction"]),
        "SLC": caches.slc / (nominal * chip["slc-bandwidth-ratio"]),
        "L2": chip.microseconds(caches.l2 * on_busiest_core / chip["l2-bandwidth"]),
        "L1": chip.microseconds(caches.l1_cycles * on_busiest_core),
        "threadgroup memory": chip.microseconds(threadgroup_cycles * on_busiest_core),
    }
    narrowest = max(times, key=lambda name: times[name])
    return times[narrowest], narrowest


def _compute(counters: Counters, chip: ChipModel, residency: Residency) -> float:
    """Issue time of the busiest core in us."""
    cycles = sum(amount * chip.issue_cycles(name) for name, amount in counters.operations.items() if name != FREE)
    resident = min(residency.threadgroups, residency.busiest)
    simd_groups = resident * counters.shape.simd_groups_per_threadgroup
    schedulers = min(chip["schedulers-per-core"], simd_groups)
    share = residency.busiest / max(1, counters.shape.threadgroups)
    return chip.microseconds(cycles * share / schedulers)


@dataclass(frozen=True)
class _ChainTimes:
    """Time of the dependent chain without its barriers, of the barriers, and cycles of the slowest chain seen."""

    latency_us: float
    synchronization_us: float
    longest_cycles: float


def _chain_times(counters: Counters, chip: ChipModel, residency: Residency, caches: _Caches) -> _ChainTimes:
    barrier = (
        chip["barrier-latency"] + chip["barrier-latency-per-simd-group"] * counters.shape.simd_groups_per_threadgroup
    )
    latencies = {name: chip[f"latency-cycles-{name}"] for name in OPERATION_CLASSES} | {
        DEVICE_LOAD: caches.load_latency_cycles,
        THREADGROUP_LOAD: chip["threadgroup-latency"],
        CONSTANT_LOAD: chip["l1-latency"],
        STORE: 1.0,
        LOAD: 1.0,
        BARRIER: 0.0,
    }

    simd_groups = max(1, counters.shape.threadgroups * counters.shape.simd_groups_per_threadgroup)
    transfer = (caches.l1_cycles + caches.l2 / chip["l2-bandwidth"]) / simd_groups

    def cycles(chain: Chain) -> tuple[float, float]:
        own_data = transfer if chain.steps.get(DEVICE_LOAD) else 0.0
        return chain.cycles(latencies) + own_data, chain.steps.get(BARRIER, 0.0) * barrier

    longest, mean = cycles(counters.longest_chain), cycles(counters.mean_chain)
    in_waves = mean[0] * residency.waves, mean[1] * residency.waves
    chosen = longest if sum(longest) > sum(in_waves) else in_waves
    return _ChainTimes(chip.microseconds(chosen[0]), chip.microseconds(chosen[1]), sum(longest))


def _notes(counters: Counters, chip: ChipModel, residency: Residency, *more: str) -> tuple[str, ...]:
    shape = counters.shape
    notes = [
        "an estimate from counted operations and published figures, not a measurement",
        f"{residency.threadgroups} threadgroups fit on a core, limited by {residency.limited_by}; "
        f"{shape.threadgroups} threadgroups on {chip['gpu-cores']:.0f} cores, {residency.waves:.2f} waves",
        *more,
    ]
    if counters.sampled_threadgroups < shape.threadgroups:
        notes.append(
            f"scaled by {counters.scale:.4g} from {counters.sampled_threadgroups} threadgroups of "
            f"{shape.threadgroups}, with a standard error of about {100 * counters.sampling_error:.1f} %"
        )
    if counters.thread_array_accesses:
        notes.append(
            f"arrays of {counters.thread_array_bytes} B per thread are indexed by what only the run knows: no register "
            "can hold them, so they are priced as device memory behind the caches"
        )
    if counters.registers > chip["registers-per-thread"]:
        notes.append(
            f"about {counters.registers} registers per thread are alive at once: this likely spills, "
            "which the estimate does not price"
        )
    if shape.threadgroups < chip["gpu-cores"]:
        notes.append("fewer threadgroups than cores: some cores stay idle")
    return tuple(notes)
