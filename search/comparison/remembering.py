"""Outcomes kept by content: the same program is not evaluated again for another strategy or seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kx.errors import DataMalformed
from kx.paths import write_atomically
from search.engine import Evaluator
from search.evaluation.pool import Evaluated
from search.outcome import TimedOut, outcome_from_json, outcome_to_json
from search.program import Program


@dataclass(frozen=True)
class RememberingEvaluator:
    """An evaluator with a folder of outcomes.

    A limit of time is the machine's rather than the program's, so an outcome of that kind is not kept.

    Attributes:
        evaluator: asked for what is not known yet.
        folder: of the outcomes.
        key: whatever an outcome depends on beside the program: task, chip, back end, versions.
    """

    evaluator: Evaluator
    folder: Path
    key: str

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Iterator[tuple[int, Evaluated]]:
        """As ``Evaluator.evaluate``; known outcomes are told with 0 seconds."""
        known = {index: found for index, (program, _) in enumerate(jobs) if (found := self._find(program))}
        fresh = [index for index in range(len(jobs)) if index not in known]
        made: dict[int, Evaluated] = {}
        for position, evaluated in self.evaluator.evaluate([jobs[index] for index in fresh]):
            self._keep(jobs[fresh[position]][0], evaluated)
            made[fresh[position]] = evaluated
        for index in range(len(jobs)):
            yield index, known.get(index) or made[index]

    def _find(self, program: Program) -> Evaluated | None:
        try:
            data: dict[str, Any] = json.loads(self._path(program).read_text(encoding="utf-8"))
            return Evaluated(outcome_from_json(data["outcome"]), int(data["seed"]), 0.0)
        except (OSError, ValueError, KeyError, TypeError, DataMalformed):
            return None  # a damaged record costs an evaluation, never an answer

    def _keep(self, program: Program, evaluated: Evaluated) -> None:
        if not isinstance(evaluated.outcome, TimedOut):
            record = {
                "program": program.to_json(),
                "seed": evaluated.seed,
                "outcome": outcome_to_json(evaluated.outcome),
            }
            write_atomically(self._path(program), json.dumps(record))

    def _path(self, program: Program) -> Path:
        digest = hashlib.sha256(f"{self.key}/{program.digest}".encode()).hexdigest()[:32]
        return self.folder / digest[:2] / f"{digest}.json"
