"""Which threadgroups of a large launch to run, how many each stands for, and how far the totals may be off.

Threadgroups at the ends of an axis differ from the others (a ragged tail, a halo, the first and last rows under a
causal mask), so they are strata of their own; in between, each axis is cut into as many pieces as there are draws
and every piece is drawn from once (a Latin hypercube), so that work which grows along an axis is met evenly.
Every threadgroup is drawn with a known chance, and weighs one over it: totals have no bias.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metalsim.errors import InputError

Extents = tuple[int, int, int]
_LEAST_DRAWS_PER_BOX = 3


@dataclass(frozen=True)
class Sample:
    """Threadgroups of a launch.

    Attributes:
        extents: threadgroups of the launch per axis, x first.
        indices: linear indices to run, ascending, x fastest; for ``run(..., threadgroups=...)``.
        weights: how many threadgroups of the launch each of them stands for; their sum is the launch's.
        strata: number of the box that each was drawn from.
    """

    extents: Extents
    indices: tuple[int, ...]
    weights: tuple[float, ...]
    strata: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it has every threadgroup."""
        return len(self.indices) == self.extents[0] * self.extents[1] * self.extents[2]

    def relative_error(self, work: npt.NDArray[Any] | Sequence[float]) -> float:
        """Standard error of the weighted total of ``work``, as a share of it; 0 for a whole launch.

        Estimated from how much threadgroups that lie next to each other in the sample differ, along the axis on
        which they differ least (successive differences: W. G. Cochran, Sampling Techniques, 3rd ed., 8.12).

        Args:
            work: what each sampled threadgroup did, in the order of ``indices``.
        """
        values, weights = np.asarray(work, np.float64), np.asarray(self.weights)
        total = float((values * weights).sum())
        if self.is_whole or total == 0:
            return 0.0
        variance = 0.0
        for stratum in set(self.strata):
            chosen = np.array([number == stratum for number in self.strata])
            population, drawn = float(weights[chosen].sum()), int(chosen.sum())
            if drawn >= population:
                continue
            # A box of which one was drawn says nothing about itself: the whole sample speaks for it.
            spread = self._spread(values, chosen if drawn > 1 else np.ones_like(chosen))
            variance += population**2 * (1 - drawn / population) * spread / drawn
        return float(np.sqrt(variance) / abs(total))

    def _spread(self, values: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_]) -> float:
        """Variance of neighbours, along the axis on which it is least."""
        if chosen.sum() < 2:
            return 0.0
        x, y, _ = self.extents
        places = np.asarray(self.indices)[chosen]
        kept = values[chosen]
        spreads = []
        for axis in (places % x, places // x % y, places // (x * y)):
            ordered = kept[np.lexsort((places, axis))]
            spreads.append(float((np.diff(ordered) ** 2).mean() / 2))
        return min(spreads)


def threadgroups_per_grid(grid: Extents, threadgroup: Extents) -> Extents:
    """Threadgroups per axis of a launch of ``grid`` threads.

    Args:
        grid: threads per axis.
        threadgroup: threads per axis of a threadgroup, at least 1; clamped to the grid.
    """
    x, y, z = (-(-extent // min(extent, size)) for extent, size in zip(grid, threadgroup, strict=True))
    return (x, y, z)


def choose_threadgroups(threadgroups: int | Extents, seed: int, budget: int) -> Sample:
    """Choose threadgroups to run instead of all.

    Args:
        threadgroups: of the launch, per axis (``threadgroups_per_grid``) or in all along x. Given per axis, the edges
            of each axis are known, and work that grows along one axis is met evenly.
        seed: of the draw.
        budget: at most that many are run.

    Raises:
        InputError: no threadgroups, or no budget.
    """
    extents = (threadgroups, 1, 1) if isinstance(threadgroups, int) else threadgroups
    if min(extents) < 1 or budget < 1:
        raise InputError(f"{budget} threadgroups cannot be chosen of {extents}")
    total = extents[0] * extents[1] * extents[2]
    if total <= budget:
        return Sample(extents, tuple(range(total)), (1.0,) * total, (0,) * total)
    boxes = _boxes(extents, budget)
    chance = random.Random(seed)
    weights: dict[int, float] = {}
    strata: dict[int, int] = {}
    for number, (box, draws) in enumerate(zip(boxes, _draws(boxes, budget), strict=True)):
        for place, weight in _drawn(box, draws, chance):
            index = place[0] + extents[0] * (place[1] + extents[1] * place[2])
            weights[index] = weights.get(index, 0.0) + weight
            strata[index] = number
    order = sorted(weights)
    return Sample(extents, tuple(order), tuple(weights[i] for i in order), tuple(strata[i] for i in order))


_Box = tuple[range, range, range]


def _size(box: _Box) -> int:
    return len(box[0]) * len(box[1]) * len(box[2])


def _boxes(extents: Extents, budget: int) -> list[_Box]:
    """The launch cut into first, inner and last per axis, or less finely when the budget is small."""
    for places in ((1, -1), (-1,)):
        x, y, z = (_cut(extent, places) for extent in extents)
        boxes = list(itertools.product(x, y, z))
        if _LEAST_DRAWS_PER_BOX * len(boxes) <= budget:
            return boxes
    return [(range(extents[0]), range(extents[1]), range(extents[2]))]


def _cut(extent: int, places: tuple[int, ...]) -> list[range]:
    """An axis cut at places from its start, or from its end where negative; without empty pieces."""
    cuts = sorted({0, extent, *(place % extent for place in places)})
    return [range(start, end) for start, end in itertools.pairwise(cuts)]


def _draws(boxes: Sequence[_Box], budget: int) -> list[int]:
    """Draws of each box: one or two, and the rest of the budget by size."""
    sizes = [_size(box) for box in boxes]
    draws = [min(size, 2) if 2 * len(boxes) <= budget else 1 for size in sizes]
    rest = budget - sum(draws)
    for number in sorted(range(len(boxes)), key=lambda k: sizes[k]):
        remaining = sum(sizes[k] for k in range(len(boxes)) if sizes[k] >= sizes[number]) or 1
        more = min(sizes[number] - draws[number], rest * sizes[number] // remaining)
        draws[number] += more
        rest -= more
    return draws


def _drawn(box: _Box, draws: int, chance: random.Random) -> list[tuple[Extents, float]]:
    """Places drawn from a box with their weights."""
    size = _size(box)
    if draws >= size:
        return [((x, y, z), 1.0) for x, y, z in itertools.product(*box)]
    long = [axis for axis in range(3) if len(box[axis]) > 1]
    if len(long) == 1:
        return _drawn_from_line(box, long[0], draws, chance)
    columns = []
    for axis in box:
        pieces = chance.sample(range(draws), draws)
        columns.append([axis[int((piece + chance.random()) * len(axis) / draws)] for piece in pieces])
    return [((x, y, z), size / draws) for x, y, z in zip(*columns, strict=True)]


def _drawn_from_line(box: _Box, axis: int, draws: int, chance: random.Random) -> list[tuple[Extents, float]]:
    """One place of each of ``draws`` pieces of a line."""
    line, result = box[axis], []
    for piece in range(draws):
        start, end = piece * len(line) // draws, (piece + 1) * len(line) // draws
        place = [box[0][0], box[1][0], box[2][0]]
        place[axis] = line[chance.randrange(start, end)]
        result.append(((place[0], place[1], place[2]), float(end - start)))
    return result
