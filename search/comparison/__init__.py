"""Search strategies compared on the same programs, the same gates and the same number of evaluations.

naive      the seed alone
evolution  mutation and crossover of block choices, without the graph
full       the engine with the world model, planned from the graph
random     uniform draws from the block space
tpe        Optuna's tree-structured Parzen estimator over the same axes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from search.outcome import Outcome
from search.program import Program


class Strategy(Protocol):
    """Proposes programs and hears what became of them."""

    name: str

    def ask(self, count: int) -> Sequence[Program]:
        """Up to ``count`` programs that were not proposed before; none when there are no more."""
        ...

    def tell(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """What became of a proposed program, the seed among them; ``score`` is against the seed."""
        ...


@dataclass(frozen=True)
class Curve:
    """How one strategy did with one seed.

    Attributes:
        strategy: its name; seed: of its draws.
        best: best score after each evaluation, the seed's 1.0 first.
        program: digest of the best program.
    """

    strategy: str
    seed: int
    best: tuple[float, ...]
    program: str

    def reached(self, score: float) -> int | None:
        """Evaluations until ``score`` was reached, None where it was not."""
        return next((count for count, best in enumerate(self.best, start=1) if best >= score), None)
