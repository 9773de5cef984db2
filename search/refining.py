"""Local refinement of one action: batches of programs until improvement stagnates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from search.authors import Refinement
from search.outcome import Outcome, Scored, describe, kind_of, score_against
from search.program import Program
from search.world_model import Attempt, Node

NO_PROGRAM = "NoProgram"
"""Outcome of an attempt whose author wrote no program."""


@dataclass
class NodeWork:
    """An open node whose action is being written and refined.

    Attributes:
        node: as selected.
        refinement: the author at work on it.
        limit: most programs.
        repairs: whether a failure is worth another attempt.
        min_gain: a batch improves if its best score exceeds the best before by this factor.
        prompt: digest of the prompt.
    """

    node: Node
    refinement: Refinement
    limit: int
    repairs: bool
    min_gain: float
    prompt: str
    attempts: list[Attempt] = field(default_factory=list)
    is_done: bool = False
    _best: float | None = None

    def next(self, count: int) -> Sequence[Program]:
        """The next batch; empty, and done, when there is none."""
        batch = self.refinement.next(min(count, self.limit - len(self.attempts)))
        self.is_done = not batch
        return batch

    def learn(self, batch: Sequence[Program], outcomes: Sequence[Outcome], seed: Scored) -> None:
        """Take a batch's outcomes, and decide whether to go on.

        Args:
            seed: the seed's outcome, against which scores are told.
        """
        for program, outcome in zip(batch, outcomes, strict=True):
            score = score_against(outcome, seed) if isinstance(outcome, Scored) else None
            self.attempts.append(Attempt(program.digest, kind_of(outcome), score, describe(outcome)))
            self.refinement.learn(program, outcome, score)
        self.is_done = len(self.attempts) >= self.limit or self._is_stagnant()

    def record(self) -> list[Attempt]:
        """All attempts, with those that gave no program."""
        return [*self.attempts, *(Attempt("", NO_PROGRAM, None, text) for text in self.refinement.complaints())]

    def _is_stagnant(self) -> bool:
        top = max((attempt.score for attempt in self.attempts if attempt.score is not None), default=None)
        if top is None:
            return not self.repairs
        if self._best is not None and top <= self._best * self.min_gain:
            return True
        self._best = top
        return False
