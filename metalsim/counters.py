"""What a launch did, from static block profiles and what the runtime counted.

The runtime executes some threadgroups of a launch; everything here is scaled from those to the whole
launch by threads, which is exact when the threadgroups do equal work (``Counters.scale`` says how far
it was stretched). Figures of a SIMD-group follow the hardware: a block that any lane executes is
issued for all lanes, as often as the busiest lane executes it, so divergence costs both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from metalsim.blocks import ORDERING_CYCLES, BlockProfile
from metalsim.operations import (
    BARRIER,
    COLLECTIVE_CLASSES,
    TRANSCENDENTAL_CLASSES,
    is_floating_arithmetic,
    priced_as,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from metalsim.instrument import Site

LINE_BYTES = 128
MATRIX_MULTIPLY_OPERATIONS = 2 * 8**3
"""Floating-point operations of one multiplication of 8x8 matrices."""
DEVICE_LOAD, THREADGROUP_LOAD, CONSTANT_LOAD = "device-load", "threadgroup-load", "constant-load"
_SPACES = (DEVICE_LOAD, THREADGROUP_LOAD, CONSTANT_LOAD)


class RunCounts(Protocol):
    """What ``count`` reads from the runtime's raw counts (``metalsim.raw.RawCounts``).

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
class Chain:
    """A dependent chain of operations of one SIMD-group.

    Attributes:
        steps: how often each operation class lies on it; ``device-load``, ``threadgroup-load``,
            ``constant-load`` and ``atomic`` count rounds of memory accesses that must be waited for,
            ``barrier`` threadgroup barriers.
    """

    steps: Mapping[str, float]

    def cycles(self, latencies: Mapping[str, float]) -> float:
        """Cycles, given the latency of each class by its priced name (``operations.priced_as``).

        Raises:
            KeyError: a class on the chain has no latency.
        """
        return sum(count * latencies[priced_as(name)] for name, count in self.steps.items() if count)


@dataclass(frozen=True)
class Counters:
    """What a launch did; totals are for the whole launch.

    Attributes:
        shape: size of the launch.
        sampled_threadgroups: how many threadgroups were executed.
        scale: threads of the launch over threads executed; every total was multiplied by it.
        operations: instructions issued per operation class, summed over SIMD-groups.
        arithmetic_operations: floating-point operations of all lanes, a fused multiply-add counting 2.
        lane_utilization: share of lanes that did work in what was issued, 0 to 1.
        longest_chain: dependent chain of the slowest SIMD-group seen.
        mean_chain: mean over threadgroups of each one's slowest SIMD-group.
        device_bytes_read, device_bytes_written: bytes that lanes asked for.
        device_accesses: SIMD-group loads, stores and atomics of device memory.
        device_line_bytes: bytes of distinct lines per SIMD-group access: what crosses L1.
        merged_line_bytes: the same with neighbouring accesses of a block counted once, as they fetch
            the same lines: what L1 must find or fetch.
        window_lines: lines that a SIMD-group touches in one execution of a typical block; what L1 must
            hold per SIMD-group so that the next execution finds them.
        compulsory_bytes: bytes of distinct lines per threadgroup: what crosses L2 at least.
        compulsory_read_bytes: the part that is read.
        footprint_bytes: bytes of lines that the launch touches at all: what crosses DRAM at least;
            at most the buffers' size.
        threadgroup_bytes: bytes that lanes moved to and from threadgroup memory.
        threadgroup_accesses: SIMD-group accesses of threadgroup memory.
        bank_cycles: cycles that those take with 32 banks of 4 bytes.
        barriers: threadgroup barriers executed, once per threadgroup.
        simd_barriers: simdgroup barriers, once per SIMD-group.
        threadgroup_memory_bytes: threadgroup memory of one threadgroup.
        registers: 32-bit registers per thread, an estimate from the IR.
    """

    shape: LaunchShape
    sampled_threadgroups: int
    scale: float
    operations: Mapping[str, float]
    arithmetic_operations: float
    lane_utilization: float
    longest_chain: Chain
    mean_chain: Chain
    device_bytes_read: float
    device_bytes_written: float
    device_accesses: float
    device_line_bytes: float
    merged_line_bytes: float
    window_lines: float
    compulsory_bytes: float
    compulsory_read_bytes: float
    footprint_bytes: float
    threadgroup_bytes: float
    threadgroup_accesses: float
    bank_cycles: float
    barriers: float
    simd_barriers: float
    threadgroup_memory_bytes: int
    registers: int

    @property
    def bank_conflict_cycles(self) -> float:
        """Bank cycles beyond what the moved bytes need at 32 banks of 4 bytes."""
        return max(0.0, self.bank_cycles - max(self.threadgroup_accesses, self.threadgroup_bytes / LINE_BYTES))

    @property
    def shuffles(self) -> float:
        """SIMD-group shuffles and broadcasts of one 32-bit word."""
        return self.operations.get("shuffle", 0.0)

    @property
    def transcendental_operations(self) -> float:
        """Issued instructions of the complex pipeline: exp, log, sin, divide, square root and so on."""
        return sum(count for name, count in self.operations.items() if name in TRANSCENDENTAL_CLASSES)

    @property
    def coalescing(self) -> float:
        """Share of the bytes of moved lines that some lane asked for; 1 is perfect, over 1 is broadcast."""
        requested = self.device_bytes_read + self.device_bytes_written
        return requested / self.device_line_bytes if self.device_line_bytes else 1.0


def count(sites: Sequence[Site], blocks: Sequence[BlockProfile], raw: RunCounts, shape: LaunchShape) -> Counters:
    """Derives the counters of a launch.

    Args:
        sites: ``Instrumented.sites``.
        blocks: ``Instrumented.blocks``.
        raw: what the runtime counted in the threadgroups that it executed, at least one.
        shape: of the whole launch.
    """
    groups, totals = raw.groups, raw.sites
    scale = shape.threads / max(1, int(groups["threads"].sum()))
    issues = _issues(raw.block_counts, shape)
    chains = _chain_steps(sites, blocks, raw.sites, issues)
    executed = raw.block_counts.sum(axis=(0, 2), dtype=np.float64)
    issued = issues.sum(axis=(0, 2))
    lines = (groups["device_lines_read"].sum() + groups["device_lines_written"].sum()) * LINE_BYTES * scale
    merged, window = _merged_lines(blocks, totals)
    slots = float((issued * [sum(block.operations.values()) for block in blocks]).sum()) * shape.simd_width
    work = float((executed * [sum(block.operations.values()) for block in blocks]).sum())
    return Counters(
        shape=shape,
        sampled_threadgroups=len(raw.threadgroups),
        scale=scale,
        operations=_operations(blocks, issued * scale, groups, scale),
        arithmetic_operations=(_arithmetic(blocks, executed) + _matrix_arithmetic(groups)) * scale,
        lane_utilization=work / slots if slots else 1.0,
        longest_chain=_longest(chains),
        mean_chain=_mean(chains),
        device_bytes_read=float(groups["device_bytes_read"].sum()) * scale,
        device_bytes_written=float(groups["device_bytes_written"].sum()) * scale,
        device_accesses=float(totals["device_simd_accesses"].sum()) * scale,
        device_line_bytes=float(totals["device_lines"].sum()) * LINE_BYTES * scale,
        merged_line_bytes=merged * LINE_BYTES * scale,
        window_lines=window,
        compulsory_bytes=float(lines),
        compulsory_read_bytes=float(groups["device_lines_read"].sum()) * LINE_BYTES * scale,
        footprint_bytes=float(min(lines, shape.buffer_bytes)),
        threadgroup_bytes=float(totals["threadgroup_bytes"].sum()) * scale,
        threadgroup_accesses=float(totals["threadgroup_simd_accesses"].sum()) * scale,
        bank_cycles=float(totals["threadgroup_bank_cycles"].sum()) * scale,
        barriers=float(groups["barriers"].sum()) * scale,
        simd_barriers=float(groups["simd_barriers"].sum()) * scale,
        threadgroup_memory_bytes=int(groups["threadgroup_bytes"].max()),
        registers=max((block.registers for block in blocks if executed[block.index]), default=0),
    )


def _issues(block_counts: NDArray[Any], shape: LaunchShape) -> NDArray[np.float64]:
    """[G, B, S]: how often each SIMD-group issues each block, the most that any of its lanes executes it."""
    groups, blocks, threads = block_counts.shape
    width = shape.simd_width
    padded = -(-threads // width) * width
    lanes = np.zeros((groups, blocks, padded), dtype=np.float64)
    lanes[:, :, :threads] = block_counts
    result: NDArray[np.float64] = lanes.reshape(groups, blocks, padded // width, width).max(axis=3)
    return result


def _operations(
    blocks: Sequence[BlockProfile], issued: NDArray[np.float64], groups: NDArray[Any], scale: float
) -> dict[str, float]:
    """Instructions issued by class; collectives as the runtime saw them, vectors by component."""
    result: dict[str, float] = {}
    for block in blocks:
        for name, amount in block.operations.items():
            if name not in COLLECTIVE_CLASSES and name != BARRIER:
                result[name] = result.get(name, 0.0) + amount * float(issued[block.index])
    seen = {
        "shuffle": ("shuffle_simd_ops", "broadcast_simd_ops"),
        "simd-reduction": ("reduction_simd_ops",),
        "simd-prefix": ("prefix_simd_ops",),
        "vote": ("vote_simd_ops",),
        "matrix-multiply": ("matrix_simd_ops",),
    }
    for name, fields in seen.items():
        total = sum(float(groups[field].sum()) for field in fields) * scale
        if total:
            result[name] = total
    return {name: amount for name, amount in result.items() if amount}


def _arithmetic(blocks: Sequence[BlockProfile], executed: NDArray[np.float64]) -> float:
    total = 0.0
    for block in blocks:
        for name, amount in block.operations.items():
            if is_floating_arithmetic(name):
                total += amount * (2 if name.endswith("-fma") else 1) * float(executed[block.index])
    return total


def _matrix_arithmetic(groups: NDArray[Any]) -> float:
    return float(groups["matrix_simd_ops"].sum()) * MATRIX_MULTIPLY_OPERATIONS


def _merged_lines(blocks: Sequence[BlockProfile], totals: NDArray[Any]) -> tuple[float, float]:
    """Lines with neighbours counted once; lines per execution of a block, weighted by its traffic."""
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
    return merged, weighted / merged if merged else 0.0


class _ChainSteps:
    """Chain of every SIMD-group executed: [G, S, classes]."""

    def __init__(self, names: list[str], amounts: NDArray[np.float64]) -> None:
        self.names = names
        self.amounts = amounts
        weights = np.array([_ordering_weight(name) for name in names])
        self.cycles = amounts @ weights

    def chain(self, amounts: NDArray[np.float64]) -> Chain:
        return Chain({name: float(value) for name, value in zip(self.names, amounts, strict=True) if value})


def _ordering_weight(name: str) -> float:
    loads = {DEVICE_LOAD: 400, THREADGROUP_LOAD: 30, CONSTANT_LOAD: 30}
    return float(loads.get(name, ORDERING_CYCLES.get(name, 4)))


def _chain_steps(
    sites: Sequence[Site], blocks: Sequence[BlockProfile], totals: NDArray[Any], issues: NDArray[np.float64]
) -> _ChainSteps:
    spaces = [_space_shares(totals[site.index]) for site in sites]
    names = [*_SPACES, *sorted({name for block in blocks for name in block.chain} | {"atomic"})]
    column = {name: index for index, name in enumerate(names)}
    groups, _, simd_groups = issues.shape
    amounts = np.zeros((groups, simd_groups, len(names)))
    home = {site: block.index for block in blocks for site in block.sites}
    for block in blocks:
        issued = issues[:, block.index, :]
        for name, steps in block.chain.items():
            amounts[:, :, column[name]] += steps * issued
        for site in block.chain_sites:
            if sites[site].kind == "atomic":
                amounts[:, :, column["atomic"]] += issued
                continue
            for space, share in zip(_SPACES, spaces[site], strict=True):
                amounts[:, :, column[space]] += share * issued
        for space, waited in _awaited(block, spaces, home, issues).items():
            amounts[:, :, column[space]] += waited
    return _ChainSteps(names, amounts)


def _awaited(
    block: BlockProfile,
    spaces: Sequence[tuple[float, float, float]],
    home: Mapping[int, int],
    issues: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Rounds of waiting for loads that other blocks issued: at most one per execution of either block."""
    issued = issues[:, block.index, :]
    result: dict[str, NDArray[np.float64]] = {}
    for site in block.awaited_sites:
        space = _SPACES[int(np.argmax(spaces[site]))]
        rounds = np.minimum(issued, issues[:, home[site], :])
        result[space] = np.maximum(result.get(space, rounds), rounds)
    return result


def _space_shares(totals: Any) -> tuple[float, float, float]:
    """Share of a site's accesses that went to device, threadgroup and constant memory."""
    counts = [float(totals[f"{space}_accesses"]) for space in ("device", "threadgroup", "constant")]
    total = sum(counts)
    return (counts[0] / total, counts[1] / total, counts[2] / total) if total else (0.0, 0.0, 0.0)


def _longest(steps: _ChainSteps) -> Chain:
    flat = steps.amounts.reshape(-1, len(steps.names))
    return steps.chain(flat[int(np.argmax(steps.cycles.reshape(-1)))])


def _mean(steps: _ChainSteps) -> Chain:
    slowest = steps.cycles.argmax(axis=1)
    return steps.chain(steps.amounts[np.arange(len(slowest)), slowest].mean(axis=0))
