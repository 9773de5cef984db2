"""Strategies over the block space that know nothing of the graph."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from search.authors.block_author import BlockAuthor, Rejected
from search.authors.block_space import Choices
from search.outcome import Outcome
from search.program import Program

_DRAWS = 200_000
"""Random draws after which a valid program is taken not to exist."""


def draw_program(author: BlockAuthor, rng: random.Random) -> Program | None:
    """A program of the block space, every valid combination as likely as any other."""
    axes = author.space.axes
    for _ in range(_DRAWS):
        choices: Choices = {name: rng.choice(list(axis.options)) for name, axis in axes.items()}
        if author.space.flaw(choices) is None:
            written = author.compose(choices)
            if not isinstance(written, Rejected):
                return written
    return None


@dataclass
class RandomSearch:
    """Uniform draws, each program once."""

    author: BlockAuthor
    seed: int
    name: str = "random"
    _proposed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"random/{self.seed}")

    def ask(self, count: int) -> Sequence[Program]:
        """Fresh draws."""
        found: list[Program] = []
        for _ in range(50 * count):
            if len(found) == count:
                break
            program = draw_program(self.author, self._rng)
            if program is not None and program.digest not in self._proposed:
                self._proposed.add(program.digest)
                found.append(program)
        return found

    def tell(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """Nothing is learned."""
        self._proposed.add(program.digest)


@dataclass
class Evolution:
    """Steady-state evolution: tournament, then one random edit, other sizes, or a crossover of two parents.

    The edits are those that the author offers, all as likely: what they are good for is not known here.

    Attributes:
        population: survivors; tournament: drawn to find a parent; crossover: share of children with two parents.
    """

    author: BlockAuthor
    seed: int
    population: int = 8
    tournament: int = 3
    crossover: float = 0.25
    name: str = "evolution"
    _alive: list[tuple[float, Program]] = field(default_factory=list)
    _proposed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"evolution/{self.seed}")

    def ask(self, count: int) -> Sequence[Program]:
        """Fresh children of the population."""
        found: list[Program] = []
        for _ in range(200 * count):
            if len(found) == count or not self._alive:
                break
            child = self._child()
            if child is not None and child.digest not in self._proposed:
                self._proposed.add(child.digest)
                found.append(child)
        return found

    def tell(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """The best survive; a failure does not."""
        self._proposed.add(program.digest)
        if score is not None:
            self._alive.append((score, program))
            self._alive.sort(key=lambda pair: -pair[0])
            del self._alive[self.population :]

    def _child(self) -> Program | None:
        rng, space = self._rng, self.author.space
        first = self.author.choices_of(self._parent())
        second = self.author.choices_of(self._parent())
        if first is None or second is None:
            return None
        if rng.random() < self.crossover:
            mixed = {name: rng.choice((first[name], second[name])) for name in space.axes}
            written = self.author.compose(mixed)
        else:
            edits = self.author.capabilities(first)
            changes = dict(rng.choice(edits).changes) if edits and rng.random() < 0.6 else {}
            start = {**first, **changes}
            resized = self.author.resize(start, 1, rng) if rng.random() < 0.5 or not changes else []
            written = resized[0] if resized else self.author.compose(start)
        return None if isinstance(written, Rejected) else written

    def _parent(self) -> Program:
        drawn = [self._rng.choice(self._alive) for _ in range(self.tournament)]
        return max(drawn, key=lambda pair: pair[0])[1]
