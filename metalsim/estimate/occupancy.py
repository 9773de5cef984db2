"""How many threadgroups of a launch a chip holds at once, and what keeps more of them out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from metalsim.estimate.chip import ChipModel
from metalsim.estimate.counters import Counters

Limit = Literal["threads", "registers", "threadgroup memory", "launch"]


@dataclass(frozen=True)
class Residency:
    """How a launch lies on a chip.

    Attributes:
        threadgroups: that one core can hold at once.
        busiest: threadgroups that the busiest core gets over the whole launch.
        waves: rounds of residency that the launch needs, at least 1.
        threadgroups_in_flight: at once on the whole chip.
        threads_in_flight: the same in threads.
        limit: what keeps more out; ``launch`` when everything fits at once.
        limited_by: the core's limit in words.
    """

    threadgroups: int
    busiest: int
    waves: float
    threadgroups_in_flight: int
    threads_in_flight: int
    limit: Limit
    limited_by: str


def find_residency(counters: Counters, chip: ChipModel) -> Residency:
    """How the launch lies on the chip, for the register need that ``counters`` estimates.

    A threadgroup stays on one core; the least of three limits decides how many fit: threads of a core, its register
    file, its threadgroup memory. The sources of the figures: docs/estimate.md.
    """
    shape = counters.shape
    threads = shape.simd_groups_per_threadgroup * shape.simd_width
    cores = int(chip["gpu-cores"])
    registers = min(max(counters.registers, 1), chip["registers-per-thread"])
    fitting: dict[Limit, float] = {
        "threads": chip["resident-threads-per-core"] / threads,
        "registers": chip["register-file-bytes-per-core"] / (4 * registers) / threads,
    }
    words: dict[Limit, str] = {
        "threads": f"{chip['resident-threads-per-core']:.0f} threads per core",
        "registers": f"the register file at about {registers:.0f} registers per thread",
        "threadgroup memory": f"threadgroup memory at {counters.threadgroup_memory_bytes} B per threadgroup",
    }
    if counters.threadgroup_memory_bytes:
        fitting["threadgroup memory"] = chip["threadgroup-bytes-per-core"] / counters.threadgroup_memory_bytes
    limit = min(fitting, key=lambda name: fitting[name])
    resident = max(1, math.floor(fitting[limit]))
    in_flight = min(shape.threadgroups, cores * resident)
    return Residency(
        threadgroups=resident,
        busiest=max(1, math.ceil(shape.threadgroups / cores)),
        waves=max(1.0, shape.threadgroups / (cores * resident)),
        threadgroups_in_flight=in_flight,
        threads_in_flight=min(shape.threads, in_flight * shape.threads_per_threadgroup),
        limit="launch" if shape.threadgroups <= in_flight else limit,
        limited_by=words[limit],
    )
