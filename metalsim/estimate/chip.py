"""The figures of a chip that an estimate needs: their names, units and meaning; the values come from outside.

docs/estimate.md names the source of each kind of figure; the values live in the knowledge graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from metalsim.build.operations import LOAD, STORE, priced_as
from metalsim.errors import InputError


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
