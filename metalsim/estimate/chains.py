"""The longest chain of dependent operations of each SIMD-group, from static profiles and counted executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metalsim.build.blocks import ORDERING_CYCLES, BlockProfile
from metalsim.build.operations import priced_as

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from metalsim.build.instrument import Site

DEVICE_LOAD, THREADGROUP_LOAD, CONSTANT_LOAD = "device-load", "threadgroup-load", "constant-load"
_SPACES = (DEVICE_LOAD, THREADGROUP_LOAD, CONSTANT_LOAD)


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


class ChainSteps:
    """Chains of the SIMD-groups that were executed.

    Shapes:
        amounts: [G, S, C] steps by threadgroup, SIMD-group and operation class.
    """

    def __init__(self, names: list[str], amounts: NDArray[np.float64]) -> None:
        self.names = names
        self.amounts = amounts
        weights = np.array([_ordering_weight(name) for name in names])
        self._cycles = amounts @ weights

    def longest(self) -> Chain:
        """Of the slowest SIMD-group."""
        flat = self.amounts.reshape(-1, len(self.names))
        return self._chain(flat[int(np.argmax(self._cycles.reshape(-1)))])

    def mean(self, weights: NDArray[np.float64]) -> Chain:
        """Mean over threadgroups of each one's slowest SIMD-group.

        Args:
            weights: [G] how many threadgroups of the launch each stands for.
        """
        slowest = self._cycles.argmax(axis=1)
        chosen = self.amounts[np.arange(len(slowest)), slowest]
        return self._chain((chosen * (weights / weights.sum())[:, None]).sum(axis=0))

    def _chain(self, amounts: NDArray[np.float64]) -> Chain:
        return Chain({name: float(value) for name, value in zip(self.names, amounts, strict=True) if value})


def _ordering_weight(name: str) -> float:
    loads = {DEVICE_LOAD: 400, THREADGROUP_LOAD: 30, CONSTANT_LOAD: 30}
    return float(loads.get(name, ORDERING_CYCLES.get(name, 4)))


def chain_steps(
    sites: Sequence[Site], blocks: Sequence[BlockProfile], totals: NDArray[Any], issues: NDArray[np.float64]
) -> ChainSteps:
    """The chains of the SIMD-groups that were executed.

    Args:
        sites: ``Instrumented.sites``.
        blocks: ``Instrumented.blocks``.
        totals: [N] of SITE_COUNTS, by site.
        issues: [G, B, S] how often each SIMD-group issued each block.
    """
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
    return ChainSteps(names, amounts)


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
