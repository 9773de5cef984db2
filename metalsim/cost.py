"""Estimates how long a launch takes on a chip whose figures are known; an estimate, not a measurement.

docs/estimate.md derives the formula and names the source of each kind of constant. No figure of a
chip is in this file: they come from the knowledge graph through ``ChipModel.from_quantities``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from metalsim.counters import CONSTANT_LOAD, DEVICE_LOAD, THREADGROUP_LOAD, Chain, Counters
from metalsim.errors import InputError
from metalsim.operations import BARRIER, FREE, LOAD, STORE, priced_as

Bound = Literal["bandwidth", "compute", "latency", "synchronization"]


@dataclass(frozen=True)
class ChipQuantity:
    """A figure that an estimate needs of every chip: name, unit, what it means."""

    name: str
    unit: str
    meaning: str


_MACHINE = (
    ChipQuantity("gpu-cores", "cores", "GPU cores"),
    ChipQuantity("gpu-clock", "GHz", "shader clock under load"),
    ChipQuantity("schedulers-per-core", "schedulers", "each issues one SIMD-group's instruction per cycle"),
    ChipQuantity("simd-width", "lanes", "lanes of a SIMD-group"),
    ChipQuantity("memory-bandwidth", "GB/s", "nominal DRAM bandwidth, 1e9 B/s"),
    ChipQuantity("attainable-bandwidth-fraction", "1", "share of it that a streaming kernel reaches"),
    ChipQuantity("cache-line", "B", "line of L1 and unit of a memory transaction"),
    ChipQuantity("l1-bytes-per-core", "B", "L1 data cache per core"),
    ChipQuantity("l2-bytes", "B", "GPU L2 cache"),
    ChipQuantity("slc-bytes", "B", "system-level cache"),
    ChipQuantity("l1-bandwidth", "B per core-cycle", "data path from L1 into a core"),
    ChipQuantity("l2-bandwidth", "B per core-cycle", "path from L2 to one core"),
    ChipQuantity("slc-bandwidth-ratio", "1", "SLC bandwidth over nominal DRAM bandwidth"),
    ChipQuantity("threadgroup-bandwidth", "B per core-cycle", "threadgroup memory path"),
    ChipQuantity("threadgroup-banks", "banks", "banks of threadgroup memory"),
    ChipQuantity("threadgroup-bank-width", "B", "width of a bank"),
    ChipQuantity("l1-latency", "cycles", "device load that hits L1"),
    ChipQuantity("threadgroup-latency", "cycles", "load from threadgroup memory"),
    ChipQuantity("l2-latency", "cycles", "device load that hits L2"),
    ChipQuantity("slc-latency", "ns", "device load that hits the SLC"),
    ChipQuantity("dram-latency", "ns", "device load from DRAM"),
    ChipQuantity("resident-threads-per-core", "threads", "most threads that a core holds"),
    ChipQuantity("register-file-bytes-per-core", "B", "register file of a core"),
    ChipQuantity("registers-per-thread", "registers", "32-bit registers of a thread before it spills"),
    ChipQuantity("threadgroup-bytes-per-core", "B", "physical threadgroup memory of a core"),
    ChipQuantity("barrier-latency", "cycles", "threadgroup barrier once the last SIMD-group arrived"),
    ChipQuantity("barrier-latency-per-simd-group", "cycles", "added wait per SIMD-group of the threadgroup"),
    ChipQuantity("launch-overhead", "us", "fixed cost of a launch within a running command encoder"),
)

OPERATION_CLASSES: Mapping[str, str] = {
    "float32": "float add, subtract, multiply",
    "float32-fma": "float fused multiply-add",
    "float16": "half add, multiply, fused multiply-add",
    "bfloat16": "bfloat arithmetic with its conversions",
    "convert-bfloat": "float from and to bfloat",
    "compare-select": "compare, select, min, max",
    "int32": "integer add, subtract, logic of up to 32 bits",
    "int-shift": "shift, bit extract, bit reverse, popcount",
    "int-multiply": "32-bit integer multiply and multiply-add",
    "int-divide": "integer divide and remainder",
    "int64": "64-bit integer add, logic, compare, shift; pointer arithmetic",
    "int64-multiply": "64-bit integer multiply",
    "convert": "float from and to integer; round, floor, trunc",
    "exp2": "exp2, log2",
    "exp": "exp, log, exp10, log10",
    "sine": "sin, cos",
    "transcendental": "tanh, pow, erf, atan and other composed functions",
    "reciprocal": "1/x, correctly rounded",
    "fast-reciprocal": "fast 1/x",
    "divide": "x/y, correctly rounded",
    "fast-divide": "fast x/y",
    "sqrt": "square root, correctly rounded",
    "rsqrt": "reciprocal square root, fast square root",
    "shuffle": "simd_shuffle family, broadcast, ballot, vote",
    "simd-reduction": "simd_sum, simd_max and the like",
    "simd-prefix": "simd_prefix_*",
    "quad-reduction": "quad_sum and the like",
    "matrix-multiply": "one 8x8x8 simdgroup multiply-accumulate",
    "atomic": "device or threadgroup atomic",
    "branch": "branch, switch, call",
    "other": "an instruction that the classifier does not know, traffic of thread-private arrays",
}
"""Priced operation classes and what falls into them."""

CHIP_QUANTITIES: tuple[ChipQuantity, ...] = _MACHINE + tuple(
    ChipQuantity(f"{kind}-cycles-{name}", "cycles", f"{meaning}: {what}")
    for name, meaning in OPERATION_CLASSES.items()
    for kind, what in (
        ("issue", "scheduler cycles per SIMD-group instruction"),
        ("latency", "cycles until a dependent instruction can use the result"),
    )
)
"""Every quantity that ``ChipModel.from_quantities`` asks for; the values live in the graph's Turtle."""


@dataclass(frozen=True)
class ChipModel:
    """The figures of one chip by quantity name, complete.

    Attributes:
        quantities: values in the units of ``CHIP_QUANTITIES``.
    """

    quantities: Mapping[str, float]

    @classmethod
    def from_quantities(cls, quantities: Mapping[str, float]) -> ChipModel:
        """Takes what an estimate needs from a chip's quantities; others are ignored.

        Raises:
            InputError: a quantity is missing, not finite or negative.
        """
        taken: dict[str, float] = {}
        for quantity in CHIP_QUANTITIES:
            value = quantities.get(quantity.name)
            if value is None:
                raise InputError(
                    f"the chip's profile lacks the quantity {quantity.name!r}",
                    f"add it in {quantity.unit}: {quantity.meaning}",
                )
            if not math.isfinite(value) or value < 0:
                raise InputError(f"quantity {quantity.name!r} is {value}, which no chip has")
            taken[quantity.name] = float(value)
        return cls(taken)

    def __getitem__(self, name: str) -> float:
        return self.quantities[name]

    def issue_cycles(self, operation: str) -> float:
        """Scheduler cycles of one SIMD-group instruction; memory instructions take one slot."""
        return 1.0 if operation in {LOAD, STORE} else self.quantities[f"issue-cycles-{priced_as(operation)}"]

    def cycles_of(self, nanoseconds: float) -> float:
        """Cycles of the shader clock."""
        return nanoseconds * self["gpu-clock"]

    def microseconds(self, cycles: float) -> float:
        """Time of ``cycles`` of the shader clock in us."""
        return cycles / (self["gpu-clock"] * 1e3)


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
        bound_by: which term decides.
        occupancy: resident SIMD-groups of a busy core over the most it can hold, 0 to 1.
        notes: what limits residency and bandwidth, what was assumed, in words.
    """

    time_us: float
    parts: EstimateParts
    bound_by: Bound
    occupancy: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Residency:
    """How the launch lies on the chip.

    Attributes:
        threadgroups: resident on one busy core at once.
        busiest: threadgroups that the busiest core gets over the whole launch.
        waves: rounds of residency that the launch needs, at least 1.
        limited_by: what keeps more threadgroups out, in words.
    """

    threadgroups: int
    busiest: int
    waves: float
    limited_by: str


@dataclass(frozen=True)
class _Caches:
    """The launch's device traffic at each level.

    Attributes:
        l1_cycles: cycles of one core's L1, one line or one ``l1-bandwidth`` of data at a time.
        l2, slc, dram: bytes of lines that cross each level.
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
    residency = _residency(counters, chip)
    caches = _caches(counters, chip, residency)
    bandwidth_us, narrowest = _bandwidth(counters, chip, residency, caches)
    compute_us = _compute(counters, chip, residency)
    latency_us, synchronization_us = _latency(counters, chip, residency, caches)
    parts = EstimateParts(bandwidth_us, compute_us, latency_us, synchronization_us, chip["launch-overhead"])
    serial_us = latency_us + synchronization_us
    longest_us = max(bandwidth_us, compute_us, serial_us)
    bound: Bound = "bandwidth" if longest_us == bandwidth_us else "compute"
    if longest_us == serial_us:
        bound = "synchronization" if synchronization_us > latency_us else "latency"
    resident = min(residency.threadgroups, residency.busiest) * counters.shape.simd_groups_per_threadgroup
    occupancy = min(1.0, resident * chip["simd-width"] / chip["resident-threads-per-core"])
    return Estimate(
        parts.launch_us + longest_us,
        parts,
        bound,
        occupancy,
        _notes(counters, chip, residency, f"bandwidth term: {narrowest}", caches.note),
    )


def _residency(counters: Counters, chip: ChipModel) -> _Residency:
    shape = counters.shape
    threads = shape.simd_groups_per_threadgroup * shape.simd_width
    cores = int(chip["gpu-cores"])
    registers = min(max(counters.registers, 1), chip["registers-per-thread"])
    by_registers = chip["register-file-bytes-per-core"] / (4 * registers)
    limits = {
        f"{chip['resident-threads-per-core']:.0f} threads per core": chip["resident-threads-per-core"] / threads,
        f"the register file at about {registers:.0f} registers per thread": by_registers / threads,
    }
    if counters.threadgroup_memory_bytes:
        name = f"threadgroup memory at {counters.threadgroup_memory_bytes} B per threadgroup"
        limits[name] = chip["threadgroup-bytes-per-core"] / counters.threadgroup_memory_bytes
    limited_by = min(limits, key=lambda name: limits[name])
    resident = max(1, math.floor(limits[limited_by]))
    busiest = max(1, math.ceil(shape.threadgroups / cores))
    waves = max(1.0, shape.threadgroups / (cores * resident))
    return _Residency(resident, busiest, waves, limited_by)


def _caches(counters: Counters, chip: ChipModel, residency: _Residency) -> _Caches:
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
    return _Caches(
        l1_cycles=l1_cycles,
        l2=compulsory + repeated * (1 - l1_hits),
        slc=footprint + shared * (1 - l2_share),
        dram=caches["DRAM"],
        load_latency_cycles=latency,
        note=f"device lines served by {shares}; a load takes about {latency:.0f} cycles",
    )


def _bandwidth(counters: Counters, chip: ChipModel, residency: _Residency, caches: _Caches) -> tuple[float, str]:
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


def _compute(counters: Counters, chip: ChipModel, residency: _Residency) -> float:
    """Issue time of the busiest core in us."""
    cycles = sum(amount * chip.issue_cycles(name) for name, amount in counters.operations.items() if name != FREE)
    resident = min(residency.threadgroups, residency.busiest)
    simd_groups = resident * counters.shape.simd_groups_per_threadgroup
    schedulers = min(chip["schedulers-per-core"], simd_groups)
    share = residency.busiest / max(1, counters.shape.threadgroups)
    return chip.microseconds(cycles * share / schedulers)


def _latency(counters: Counters, chip: ChipModel, residency: _Residency, caches: _Caches) -> tuple[float, float]:
    """Time of the dependent chain without its barriers, and of the barriers, in us."""
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
    return chip.microseconds(chosen[0]), chip.microseconds(chosen[1])


def _notes(counters: Counters, chip: ChipModel, residency: _Residency, *more: str) -> tuple[str, ...]:
    shape = counters.shape
    notes = [
        "an estimate from counted operations and published figures, not a measurement",
        f"{residency.threadgroups} threadgroups fit on a core, limited by {residency.limited_by}; "
        f"{shape.threadgroups} threadgroups on {chip['gpu-cores']:.0f} cores, {residency.waves:.2f} waves",
        *more,
    ]
    if counters.sampled_threadgroups < shape.threadgroups:
        notes.append(
            f"scaled by {counters.scale:.4g} from {counters.sampled_threadgroups} threadgroups of {shape.threadgroups}"
        )
    if counters.registers > chip["registers-per-thread"]:
        notes.append(
            f"about {counters.registers} registers per thread are alive at once: this likely spills, "
            "which the estimate does not price"
        )
    if shape.threadgroups < chip["gpu-cores"]:
        notes.append("fewer threadgroups than cores: some cores stay idle")
    return tuple(notes)
