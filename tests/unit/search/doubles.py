"""Stand-ins for the search's collaborators, small enough to see through."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kgraph.model import Concept, Impacts
from search.authors import Assignment, Edit
from search.authors.block_author import BlockRefinement
from search.evaluation.pool import Evaluated
from search.outcome import Mismatch, Outcome, Scored, WorkloadTime
from search.program import Program


def scored(time_us: float, **parts_us: float) -> Scored:
    parts = parts_us or {"latency": time_us}
    times = tuple(WorkloadTime(label, time_us, time_us, time_us, parts, "latency") for label in ("short", "long"))
    return Scored("estimated", times, ("twin",), ("causality",), 0.1)


def concept(slug: str, *, bottlenecks: tuple[str, ...], fit: int = 5, difficulty: int = 1, **more: object) -> Concept:
    known = Concept(slug, f"urn:kx:concept:{slug}", slug, "compute", slug, ("scan",), bottlenecks, (), (), (),
                    difficulty, Impacts(5, 5, fit))  # fmt: skip
    return replace(known, **more)  # type: ignore[arg-type]


class SwitchAuthor:
    """Programs are sets of switches; each edit turns one on, its variations change a size."""

    name = "switch-author"
    repairs = False

    def __init__(self, switches: dict[str, str]) -> None:
        self.switches = switches

    def begin(self, assignment: Assignment) -> BlockRefinement:
        first = self.write(assignment.parent, assignment.edit)
        rng = random.Random(f"{assignment.seed}/{first.digest}")
        more = self.variations(assignment.parent, assignment.edit, assignment.attempts - 1, rng)
        return BlockRefinement.of((first, *more), assignment)

    def edits(self, program: Program) -> Sequence[Edit]:
        return [
            Edit((slug,), {switch: 1}, f"turn {switch} on")
            for switch, slug in self.switches.items()
            if switch not in program.choices
        ]

    def write(self, program: Program, edit: Edit) -> Program:
        choices = {**program.choices, **edit.changes}
        stage = replace(program.stages[0], body=f"// {sorted(choices.items())}")
        concepts = tuple(sorted({*program.concepts, *edit.concepts}))
        return Program(program.task, (stage,), concepts, choices, self.name)

    def variations(self, program: Program, edit: Edit, count: int, rng: random.Random) -> Sequence[Program]:
        sizes = rng.sample(range(2, 9), count)
        return [self.write(program, replace(edit, changes=dict.fromkeys(edit.changes, size))) for size in sizes]


class TableEvaluator:
    """Time is 100 us over the product of the switched-on factors; ``wrong`` switches give a mismatch."""

    def __init__(self, factors: dict[str, float], wrong: frozenset[str] = frozenset(), fail_after: int = 10**9) -> None:
        self.factors, self.wrong, self.fail_after = factors, wrong, fail_after
        self.evaluated: list[str] = []

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Iterator[tuple[int, Evaluated]]:
        for index, (program, seed) in enumerate(jobs):
            if len(self.evaluated) >= self.fail_after:
                raise KeyboardInterrupt
            self.evaluated.append(program.digest)
            yield index, Evaluated(self._outcome(program), seed, 0.01)

    def _outcome(self, program: Program) -> Outcome:
        if self.wrong & set(program.choices):
            return Mismatch("twin", "y", 1.0, 1e-3, 0.0, (0,))
        time = 100.0
        for name, size in program.choices.items():
            time /= self.factors[name] * (1 + int(size) / 100)
        return scored(time)
