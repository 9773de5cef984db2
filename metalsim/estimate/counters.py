"""What a launch did, from static block profiles and what the runtime counted.

The runtime executes some threadgroups of a launch; everything here is scaled from those to the whole launch, by
the weights of a ``metalsim.estimate.sampling.Sample`` or else by threads, which is exact when the threadgroups do equal
work (``Counters.scale`` says how far it was stretched, ``sampling_error`` how far it may be off). Figures of a
SIMD-group follow the hardware: a block that any lane executes is issued for all lanes, as often as the busiest
lane executes it, so divergence costs both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from metalsim.build.blocks import BlockProfile
from metalsim.build.operations import (
    BARRIER,
    COLLECTIVE_CLASSES,
    INTEGER_CLASSES,
    TRANSCENDENTAL_CLASSES,
    is_floating_arithmetic,
)
from metalsim.errors import InputError
from metalsim.estimate.chains import CONSTANT_LOAD, DEVICE_LOAD, THREADGROUP_LOAD, Chain, chain_steps
from metalsim.estimate.sampling import Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from metalsim.build.instrument import Site
    from metalsim.estimate.cost import Estimate

__all__ = [
    "CONSTANT_LOAD", "DEVICE_LOAD", "THREADGROUP_LOAD", "Chain", "Counters", "LaunchShape", "RunCounts", "count",
    "counters_to_json",
]  # fmt: skip

LINE_BYTES = 128
MATRIX_MULTIPLY_OPERATIONS = 2 * 8**3
"""Floating-point operations of one multiplication of 8x8 matrices."""
_MATRIX_KINDS = ("float", "half", "bfloat")


class RunCounts(Protocol):
    """What ``count`` reads from the runtime's raw counts (``metalsim.execute.raw.RawCounts``).

    Shapes:
        threadgroups: [G] linear indices of the threadgroups that were executed.
        block_counts: [G, B, T] executions per threadgroup, block and thread of a full threadgroup.
        sites: [N] record array with the fields of SITE_COUNTS.
        groups: [G] record array with the fields of GROUP_COUNTS.
    """

    @property
    def threadgroups(self) -> NDArray[Any]:
        """Linear indices of the executed threadgroups."""
        ...

    @property
    def block_counts(self) -> NDArray[Any]:
        """Executions by threadgroup, block and thread."""
        ...

    @property
    def sites(self) -> NDArray[Any]:
        """Memory statistics by site."""
        ...

    @property
    def groups(self) -> NDArray[Any]:
        """Statistics by executed threadgroup."""
        ...


@dataclass(frozen=True)
class LaunchShape:
    """Size of a launch.

    Attributes:
        threads: threads of the whole grid.
        threadgroups: threadgroups of the whole grid.
        threads_per_threadgroup: threads of a full threadgroup.
        buffer_bytes: bytes of all device buffers together; bounds what a launch can touch.
        simd_width: lanes of a SIMD-group.
    """

    threads: int
    threadgroups: int
    threads_per_threadgroup: int
    buffer_bytes: int
    simd_width: int = 32

    @property
    def simd_groups_per_threadgroup(self) -> int:
        """SIMD-groups of a full threadgroup, the last one possibly partial."""
        return -(-self.threads_per_threadgroup // self.simd_width)


@dataclass(frozen=True)
class Counters:
    """What a launch did; totals are for the whole launch.

    Attributes:
        shape: size of the launch.
        sampled_threadgroups: how many threadgroups were executed.
        scale: threads of the launch over threads executed.
        sampling_error: standard error of instructions or lines (the larger one) as a share of them, from how much
            the executed threadgroups differ; 0 when all were executed.
        operations: instructions issued per operation class, summed over SIMD-groups.
        arithmetic_operations: floating-point operations of all lanes, a fused multiply-add counting 2.
        transcendental_operations: exp, log, sin, divide, square root and the like, of all lanes.
        integer_operations: integer arithmetic, logic, shifts and address arithmetic, of all lanes.
        matrix_multiplies: 8x8 matrix products by the type of the left factor: float, half, bfloat.
        lane_utilization: share of lanes that did work in what was issued, 0 to 1.
        longest_chain: dependent chain of the slowest SIMD-group seen.
        mean_chain: mean over threadgroups of each one's slowest SIMD-group.
        device_bytes_read, device_bytes_written: bytes that lanes asked for; an atomic operation does both.
        device_accesses: SIMD-group loads, stores and atomics of device memory.
        device_line_bytes: bytes of distinct lines per SIMD-group access: what crosses L1.
        segments: what a SIMD-group does between two barriers, where that touches device memory.
        segment_read_lines, segment_written_lines: distinct lines per segment, summed. What the compiler moves or
            merges between barriers makes no difference to them.
        merged_line_bytes: ``device_line_bytes`` with neighbouring accesses of a block counted once, as they fetch
            the same lines: what L1 must find or fetch.
        window_lines: lines that a SIMD-group touches in one execution of a typical block; what L1 must
            hold per SIMD-group so that the next execution finds them.
        compulsory_bytes: bytes of distinct lines per threadgroup: what crosses L2 at least.
        compulsory_read_bytes: the part that is read.
        footprint_bytes: bytes of lines that the launch touches at all: what crosses DRAM at least;
            at most the buffers' size.
        threadgroup_bytes: bytes that lanes moved to and from threadgroup memory, those of an atomic operation once.
        threadgroup_bytes_read, threadgroup_bytes_written: the two parts; an atomic operation does both.
        threadgroup_accesses: SIMD-group accesses of threadgroup memory.
        bank_cycles: cycles that those take with 32 banks of 4 bytes.
        bank_conflict_cycles: the part that an even use of the banks would save.
        barriers: threadgroup barriers executed, once per threadgroup.
        simd_barriers: simdgroup barriers, once per SIMD-group.
        threadgroup_memory_bytes: threadgroup memory of one threadgroup.
        registers: 32-bit registers per thread, an estimate from the IR.
        thread_array_bytes: bytes per thread of arrays that no register can hold (``metalsim.build.threadarrays``).
        thread_array_accesses: accesses of those by all lanes.
        thread_array_bytes_read, thread_array_bytes_written: bytes of those accesses.
    """

    shape: LaunchShape
    sampled_threadgroups: int
    scale: float
    sampling_error: float
    operations: Mapping[str, float]
    arithmetic_operations: float
    transcendental_operations: float
    integer_operations: float
    matrix_multiplies: Mapping[str, float]
    lane_utilization: float
    longest_chain: Chain
    mean_chain: Chain
    device_bytes_read: float
    device_bytes_written: float
    device_accesses: float
    device_line_bytes: float
    segments: float
    segment_read_lines: float
    segment_written_lines: float
    merged_line_bytes: float
    window_lines: float
    compulsory_bytes: float
    compulsory_read_bytes: float
    footprint_bytes: float
    threadgroup_bytes: float
    threadgroup_bytes_read: float
    threadgroup_bytes_written: float
    threadgroup_accesses: float
    bank_cycles: float
    bank_conflict_cycles: float
    barriers: float
    simd_barriers: float
    threadgroup_memory_bytes: int
    registers: int
    thread_array_bytes: int
    thread_array_accesses: float
    thread_array_bytes_read: float
    thread_array_bytes_written: float

    @property
    def shuffles(self) -> float:
        """SIMD-group shuffles and broadcasts of one 32-bit word."""
        return self.operations.get("shuffle", 0.0)

    @property
    def transcendental_instructions(self) -> float:
        """Issued instructions of the complex pipeline: exp, log, sin, divide, square root and so on."""
        return sum(count for name, count in self.operations.items() if name in TRANSCENDENTAL_CLASSES)

    @property
    def coalescing(self) -> float:
        """Share of the bytes of moved lines that some lane asked for; 1 is perfect, over 1 is broadcast."""
        requested = self.device_bytes_read + self.device_bytes_written
        return requested / self.device_line_bytes if self.device_line_bytes else 1.0


def count(
    sites: Sequence[Site],
    blocks: Sequence[BlockProfile],
    raw: RunCounts,
    shape: LaunchShape,
    sample: Sample | None = None,
) -> Counters:
    """Derives the counters of a launch.

    Args:
        sites: ``Instrumented.sites``.
        blocks: ``Instrumented.blocks``.
        raw: what the runtime counted in the threadgroups that it executed, at least one.
        shape: of the whole launch.
        sample: by which those threadgroups were chosen; None when all count alike.

    Raises:
        InputError: the sample has other threadgroups than were executed.
    """
    groups = raw.groups
    scale = shape.threads / max(1, int(groups["threads"].sum()))
    weights = _weights(raw, scale, sample)
    issues = _issues(raw.block_counts, shape)
    work = _Work(blocks, raw.block_counts, issues, weights)
    chains = chain_steps(sites, blocks, raw.sites, issues)

    def total(*names: str) -> float:
        return float(sum((groups[name] * weights).sum() for name in names))

    lines = total("device_lines_read", "device_lines_written") * LINE_BYTES
    moved = total("device_lines") * LINE_BYTES
    merged_share, window = _merged_lines(blocks, raw.sites)
    matrices = {kind: total(f"matrix_{kind}_simd_ops") for kind in ("half", "bfloat")}
    matrices = {"float": total("matrix_simd_ops") - sum(matrices.values()), **matrices}
    arithmetic = work.lanes(is_floating_arithmetic) + work.lanes(lambda name: name.endswith("-fma"))
    return Counters(
        shape=shape,
        sampled_threadgroups=len(raw.threadgroups),
        scale=scale,
        sampling_error=_sampling_error(work.per_group, groups, weights, shape, sample, raw.threadgroups),
        operations=work.operations | _collectives(total),
        arithmetic_operations=arithmetic + sum(matrices.values()) * MATRIX_MULTIPLY_OPERATIONS,
        transcendental_operations=work.lanes(TRANSCENDENTAL_CLASSES.__contains__),
        integer_operations=work.lanes(INTEGER_CLASSES.__contains__),
        matrix_multiplies={kind: amount for kind, amount in matrices.items() if amount},
        lane_utilization=work.lane_utilization(shape.simd_width),
        longest_chain=chains.longest(),
        mean_chain=chains.mean(weights),
        device_bytes_read=total("device_bytes_read"),
        device_bytes_written=total("device_bytes_written"),
        device_accesses=total("device_simd_accesses"),
        device_line_bytes=moved,
        segments=total("device_segments"),
        segment_read_lines=total("device_segment_lines_read"),
        segment_written_lines=total("device_segment_lines_written"),
        merged_line_bytes=moved * merged_share,
        window_lines=window,
        compulsory_bytes=lines,
        compulsory_read_bytes=total("device_lines_read") * LINE_BYTES,
        footprint_bytes=float(min(lines, shape.buffer_bytes)),
        threadgroup_bytes=total("threadgroup_bytes_moved"),
        threadgroup_bytes_read=total("threadgroup_bytes_read"),
        threadgroup_bytes_written=total("threadgroup_bytes_written"),
        threadgroup_accesses=total("threadgroup_simd_accesses"),
        bank_cycles=total("threadgroup_bank_cycles"),
        bank_conflict_cycles=total("threadgroup_bank_conflict_cycles"),
        barriers=total("barriers"),
        simd_barriers=total("simd_barriers"),
        threadgroup_memory_bytes=int(groups["threadgroup_bytes"].max()),
        registers=max((block.registers for block in work.executed_blocks), default=0),
        thread_array_bytes=sum({b.function: b.thread_array_bytes for b in work.executed_blocks}.values()),
        thread_array_accesses=work.sum("thread_accesses"),
        thread_array_bytes_read=work.sum("thread_bytes_read"),
        thread_array_bytes_written=work.sum("thread_bytes_written"),
    )


def _weights(raw: RunCounts, scale: float, sample: Sample | None) -> NDArray[np.float64]:
    """[G]: how many threadgroups of the launch each executed one stands for."""
    if sample is None:
        return np.full(len(raw.threadgroups), scale)
    if tuple(raw.threadgroups.tolist()) != sample.indices:
        raise InputError(
            "the sample has other threadgroups than were executed", "run(..., threadgroups=sample.indices)"
        )
    return np.array(sample.weights, np.float64)


def _sampling_error(
    issued: NDArray[np.float64],
    groups: NDArray[Any],
    weights: NDArray[np.float64],
    shape: LaunchShape,
    sample: Sample | None,
    executed: NDArray[Any],
) -> float:
    """Relative standard error of what was issued or of the lines, whichever is larger."""
    if len(executed) >= shape.threadgroups:
        return 0.0
    if sample is None:
        sample = Sample((shape.threadgroups, 1, 1), tuple(executed.tolist()), tuple(weights), (0,) * len(executed))
    lines = groups["device_lines_read"] + groups["device_lines_written"]
    return max(sample.relative_error(issued), sample.relative_error(lines))


class _Work:
    """Executions of the blocks, in lanes and as issued, with the launch's weights.

    Shapes:
        executed: [B] executions by lanes; issued: [B] by SIMD-groups; both for the whole launch.
        per_group: [G] instructions issued by each executed threadgroup.
    """

    def __init__(
        self,
        blocks: Sequence[BlockProfile],
        block_counts: NDArray[Any],
        issues: NDArray[np.float64],
        weights: NDArray[np.float64],
    ) -> None:
        self._blocks = blocks
        self.executed = weights @ block_counts.sum(axis=2, dtype=np.float64)
        by_group = issues.sum(axis=2)
        self.issued = weights @ by_group
        self._sizes = np.array([float(sum(block.operations.values())) for block in blocks])
        self.per_group = by_group @ self._sizes
        self.executed_blocks = [block for block in blocks if self.executed[block.index]]
        self._lanes: dict[str, float] = {}
        self.operations: dict[str, float] = {}
        for block in self.executed_blocks:
            for name, amount in block.operations.items():
                self._lanes[name] = self._lanes.get(name, 0.0) + amount * float(self.executed[block.index])
                if name not in COLLECTIVE_CLASSES and name != BARRIER:
                    issued = amount * float(self.issued[block.index])
                    self.operations[name] = self.operations.get(name, 0.0) + issued

    def lanes(self, wanted: Callable[[str], bool]) -> float:
        """Operations of the wanted classes by all lanes."""
        return sum(amount for name, amount in self._lanes.items() if wanted(name))

    def sum(self, attribute: str) -> float:
        """An attribute of the blocks, per execution, summed over the executions of all lanes."""
        return float(sum(getattr(block, attribute) * self.executed[block.index] for block in self.executed_blocks))

    def lane_utilization(self, simd_width: int) -> float:
        """Share of lanes that did work in what was issued."""
        slots = float((self.issued * self._sizes).sum()) * simd_width
        return float((self.executed * self._sizes).sum()) / slots if slots else 1.0


def _issues(block_counts: NDArray[Any], shape: LaunchShape) -> NDArray[np.float64]:
    """[G, B, S]: how often each SIMD-group issues each block, the most that any of its lanes executes it."""
    groups, blocks, threads = block_counts.shape
    width = shape.simd_width
    padded = -(-threads // width) * width
    lanes = np.zeros((groups, blocks, padded), dtype=np.float64)
    lanes[:, :, :threads] = block_counts
    result: NDArray[np.float64] = lanes.reshape(groups, blocks, padded // width, width).max(axis=3)
    return result


def _collectives(total: Callable[..., float]) -> dict[str, float]:
    """Collectives as the runtime saw them: vectors by component, shuffles by 32-bit word."""
    seen = {
        "shuffle": total("shuffle_simd_ops", "broadcast_simd_ops"),
        "simd-reduction": total("reduction_simd_ops"),
        "simd-prefix": total("prefix_simd_ops"),
        "vote": total("vote_simd_ops"),
        "matrix-multiply": total("matrix_simd_ops"),
    }
    return {name: amount for name, amount in seen.items() if amount}


def _merged_lines(blocks: Sequence[BlockProfile], totals: NDArray[Any]) -> tuple[float, float]:
    """Share of the lines that is left when neighbours count once, and lines per execution of a block.

    The latter is weighted by the blocks' traffic.
    """
    merged = weighted = 0.0
    for block in blocks:
        traffic = window = 0.0
        for group in block.neighbours:
            lines = [float(totals[site]["device_lines"]) for site in group]
            accesses = [float(totals[site]["device_simd_accesses"]) for site in group]
            traffic += max(lines)
            window += max(line / access if access else 0.0 for line, access in zip(lines, accesses, strict=True))
        merged += traffic
        weighted += traffic * window
    every = float(totals["device_lines"].sum())
    return merged / every if every else 1.0, weighted / merged if merged else 0.0


def counters_to_json(counters: Counters, estimated: Estimate | None = None) -> dict[str, float]:
    """The counters of a launch as a flat dictionary; totals are for the whole launch, docs/estimate.md explains each.

    Args:
        counters: of the launch.
        estimated: for a chip; adds what is in flight at once on all its cores, and the chain in its cycles.
    """
    accesses, segments = counters.device_accesses, counters.segments
    access_lines = counters.device_line_bytes / LINE_BYTES
    segment_lines = counters.segment_read_lines + counters.segment_written_lines
    told: dict[str, float] = {
        "threads": counters.shape.threads,
        "threadgroups": counters.shape.threadgroups,
        "threads_per_threadgroup": counters.shape.threads_per_threadgroup,
        "sampled_threadgroups": counters.sampled_threadgroups,
        "sampling_error": counters.sampling_error,
        "device_bytes_read": counters.device_bytes_read,
        "device_bytes_written": counters.device_bytes_written,
        "device_simd_accesses": accesses,
        "device_lines": access_lines,
        "device_lines_per_simd_access": access_lines / accesses if accesses else 0.0,
        "segments": segments,
        "segment_device_lines_read": counters.segment_read_lines,
        "segment_device_lines_written": counters.segment_written_lines,
        "device_lines_per_segment": segment_lines / segments if segments else 0.0,
        "threadgroup_device_lines": counters.compulsory_bytes / LINE_BYTES,
        "threadgroup_bytes_read": counters.threadgroup_bytes_read,
        "threadgroup_bytes_written": counters.threadgroup_bytes_written,
        "threadgroup_memory_bytes": counters.threadgroup_memory_bytes,
        "bank_cycles": counters.bank_cycles,
        "bank_conflict_cycles": counters.bank_conflict_cycles,
        "barriers": counters.barriers,
        "simd_barriers": counters.simd_barriers,
        "shuffles": counters.shuffles,
        "reductions": counters.operations.get("simd-reduction", 0.0),
        "prefix_operations": counters.operations.get("simd-prefix", 0.0),
        "votes": counters.operations.get("vote", 0.0),
        "matrix_multiplies": sum(counters.matrix_multiplies.values()),
        **{f"matrix_multiplies_{kind}": counters.matrix_multiplies.get(kind, 0.0) for kind in _MATRIX_KINDS},
        "arithmetic_operations": counters.arithmetic_operations,
        "transcendental_operations": counters.transcendental_operations,
        "integer_operations": counters.integer_operations,
        "lane_utilization": counters.lane_utilization,
        "longest_chain_operations": sum(counters.longest_chain.steps.values()),
        "registers_per_thread": counters.registers,
        "thread_array_bytes": counters.thread_array_bytes,
        "thread_array_accesses": counters.thread_array_accesses,
    }
    if estimated:
        told |= {
            "longest_chain_cycles": estimated.longest_chain_cycles,
            "threads_in_flight": estimated.residency.threads_in_flight,
            "threadgroups_in_flight": estimated.residency.threadgroups_in_flight,
        }
    return {name: int(value) if float(value).is_integer() else value for name, value in told.items()}
