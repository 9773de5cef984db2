"""Algorithm 1 of K-Search: select an action, refine it until improvement stagnates, evolve the world model.

The engine decides as a function of the configuration, the knowledge fixed in run.json and the outcomes so
far, and of nothing else. So a killed run resumes by deciding again from the start with the logged outcomes
at hand: what was evaluated is not evaluated again, and the same best is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kx.errors import KxError, RunCorrupt
from search.authors import Assignment, Author, Edit
from search.evaluation.pool import Evaluated
from search.models import AllowanceSpent
from search.outcome import (
    Outcome,
    Rejected,
    Scored,
    describe,
    outcome_to_json,
)
from search.planners import Planner
from search.program import Program
from search.refining import NodeWork
from search.run_store import Run, logged_outcome
from search.task import Task
from search.world_model import Node, WorldModel


@dataclass(frozen=True)
class Budget:
    """When to stop.

    Attributes:
        evaluations: most programs to evaluate, the seed included.
        attempts_per_node: most programs per action (local refinement).
        batch: programs of a node evaluated side by side; refinement looks at results after each batch.
        nodes: open nodes refined at once.
        patience: rounds without a new best after which the search ends.
        min_gain: a program is an improvement if its score exceeds the best by this factor.
    """

    evaluations: int = 40
    attempts_per_node: int = 4
    batch: int = 2
    nodes: int = 1
    patience: int = 10
    min_gain: float = 1.005


class Evaluator(Protocol):
    """Evaluates programs side by side (``WorkerPool``)."""

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Any:
        """Yields (index, Evaluated) in the order of ``jobs``."""
        ...


@dataclass(frozen=True)
class Crew:
    """Who does the work.

    Attributes:
        planner, author, evaluator: see their protocols.
        preflight: the first broken hard constraint of a program, or None.
        prompt: renders the prompt of an action: (tree, node, parent program, parent outcome) -> text.
        watch: told about each event, for a live view; may do nothing.
    """

    planner: Planner
    author: Author
    evaluator: Evaluator
    preflight: Callable[[Program], Rejected | None]
    prompt: Callable[[WorldModel, Node, Program, Scored], str]
    watch: Callable[[str, dict[str, Any]], None] = lambda kind, fields: None


@dataclass(frozen=True)
class SearchResult:
    """What a finished search found.

    Attributes:
        best: the program; outcome, score: of it; score is against the seed.
        seed: the seed's outcome; evaluations: programs evaluated or rejected in the whole run.
        repeated: evaluations taken from the log of an earlier part of the run.
        stopped_because: in words.
    """

    best: Program
    outcome: Scored
    score: float
    seed: Scored
    evaluations: int
    repeated: int
    stopped_because: str
    model: WorldModel


@dataclass
class Engine:
    """One search. ``run`` is its folder; outcomes already in its log are not evaluated again."""

    task: Task
    run: Run
    crew: Crew
    budget: Budget
    seed: int = 0
    model: WorldModel = field(default_factory=WorldModel)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _logged: dict[str, Outcome] = field(default_factory=dict)
    _programs: dict[str, Program] = field(default_factory=dict)
    _repeated: int = 0

    def search(self) -> SearchResult:
        """Run to the end of the budget.

        Raises:
            KxError: the seed itself does not pass the gates: the task is broken, not a candidate.
        """
        self.run.drop_partial_event()
        for event in self.run.events():
            if event["kind"] == "evaluated":
                self._logged[event["program"]] = logged_outcome(self.run, event)
        root, seed_outcome = self._plant_seed()
        try:
            self.crew.planner.propose(self.model, root, self.task.seed, seed_outcome)
            stopped = self._iterate(seed_outcome)
        except AllowanceSpent as exc:
            stopped = exc.message
        except BaseException:
            self.run.save_world_model(self.model.to_json())
            raise
        return self._finish(seed_outcome, stopped)

    def _iterate(self, seed_outcome: Scored) -> str:
        """Rounds until the search should stop; returns why it did."""
        quiet_rounds = 0
        while True:
            self.run.save_world_model(self.model.to_json())
            if self._is_spent():
                return f"the budget of {self.budget.evaluations} evaluations is used up"
            if quiet_rounds >= self.budget.patience:
                return f"no improvement in {quiet_rounds} rounds"
            nodes = self._next_nodes()
            if not nodes:
                return self.crew.planner.trouble or "no action is left to try"
            self.model.round += 1
            best_before = self.model.best().score or 0.0
            for closed in self._try(nodes, seed_outcome):
                if not self._is_spent():
                    self._evolve(closed)
                best = self.model.best().id
                self._tell("closed", node=closed.id, status=closed.status, score=closed.score, best=best)
            improved = (self.model.best().score or 0.0) > best_before * self.budget.min_gain
            quiet_rounds = 0 if improved else quiet_rounds + 1

    def _is_spent(self) -> bool:
        return len(self._outcomes) >= self.budget.evaluations

    def _plant_seed(self) -> tuple[Node, Scored]:
        program = self.task.seed
        outcome = self._evaluate_all([(program, "n0")])[program.digest]
        if not isinstance(outcome, Scored):
            raise KxError(
                f"the seed of {self.task.name} does not pass the gates: {describe(outcome)}",
                "this is a fault of the task or of this machine, not of the search",
            )
        root = self.model.plant(program.digest, 1.0, describe(outcome))
        return root, outcome

    def _next_nodes(self) -> list[Node]:
        """The most promising open nodes; when the frontier is empty, more proposals below the best nodes first."""
        nodes = self.model.select(self.budget.nodes)
        if nodes:
            return nodes
        scored = sorted(
            (item for item in self.model.nodes.values() if item.status == "closed"),
            key=lambda item: -(item.score or 0.0),
        )
        for parent in scored:
            program, outcome = self._programs[parent.program], self._outcomes[parent.program]
            if isinstance(outcome, Scored) and self.crew.planner.propose(self.model, parent, program, outcome):
                return self.model.select(self.budget.nodes)
        return []

    def _try(self, nodes: Sequence[Node], seed_outcome: Scored) -> list[Node]:
        """Have the actions written and refined side by side; close their nodes with what came of them."""
        works: list[NodeWork] = []
        for node in nodes:
            left = self.budget.evaluations - len(self._outcomes) - sum(work.limit for work in works)
            if left > 0 or not works:
                works.append(self._begin(node, max(1, left)))
        while active := [work for work in works if not work.is_done]:
            batches = [(work, work.next(self.budget.batch)) for work in active]
            outcomes = self._evaluate_all([(program, work.node.id) for work, batch in batches for program in batch])
            for work, batch in batches:
                if batch:
                    work.learn(batch, [outcomes[program.digest] for program in batch], seed_outcome)
        return [self.model.close(work.node.id, work.record(), work.prompt) for work in works]

    def _begin(self, node: Node, left: int) -> NodeWork:
        parent = self.model.nodes[node.parent or ""]
        program, outcome = self._programs[parent.program], self._outcomes[parent.program]
        if not isinstance(outcome, Scored):
            raise RunCorrupt(f"run {self.run.id}: node {parent.id} has no score", "start a new run")
        prompt = self.crew.prompt(self.model, node, program, outcome)
        digest = self.run.save_prompt(prompt)
        self._tell("selected", node=node.id, title=node.action.title, priority=round(self.model.priority(node), 3))
        edit = Edit(node.action.concepts, node.action.changes, node.action.title)
        limit = min(self.budget.attempts_per_node, left)
        known, draw = frozenset(self._outcomes), f"{self.seed}/{node.id}"
        author = self.crew.author
        refinement = author.begin(Assignment(node.id, program, outcome, edit, prompt, limit, known, draw))
        return NodeWork(node, refinement, limit, author.repairs, self.budget.min_gain, digest)

    def _evaluate_all(self, programs: Sequence[tuple[Program, str]]) -> dict[str, Outcome]:
        """Outcomes by program; known ones from memory or the log, others from pre-flight or the evaluator.

        Args:
            programs: each with the id of its node.
        """
        jobs: dict[str, tuple[Program, str]] = {}
        for program, node in programs:
            self.run.save_program(program)
            self._programs[program.digest] = program
            if program.digest in self._outcomes or program.digest in jobs:
                continue
            if program.digest in self._logged:
                self._outcomes[program.digest] = self._logged[program.digest]
                self._repeated += 1
                self._watch("replayed", node, program, self._logged[program.digest])
                continue
            rejected = self.crew.preflight(program)
            if rejected is not None:
                self._record(node, program, Evaluated(rejected, 0, 0.0))
            else:
                jobs[program.digest] = (program, node)
        work = list(jobs.values())
        seeded = [(program, evaluation_seed(self.seed, program)) for program, _ in work]
        for index, evaluated in self.crew.evaluator.evaluate(seeded):
            self._record(work[index][1], work[index][0], evaluated)
        return {program.digest: self._outcomes[program.digest] for program, _ in programs}

    def _record(self, node: str, program: Program, evaluated: Evaluated) -> None:
        self._outcomes[program.digest] = evaluated.outcome
        self.run.append(
            "evaluated", node=node, program=program.digest, author=program.author, seed=evaluated.seed,
            seconds=round(evaluated.seconds, 3), outcome=outcome_to_json(evaluated.outcome),
        )  # fmt: skip
        self._watch("evaluated", node, program, evaluated.outcome)

    def _watch(self, kind: str, node: str, program: Program, outcome: Outcome) -> None:
        fields = {"node": node, "program": program, "outcome": outcome, "evaluations": len(self._outcomes)}
        self.crew.watch(kind, fields)

    def _evolve(self, closed: Node) -> None:
        program, outcome = self._programs.get(closed.program), self._outcomes.get(closed.program)
        if program is not None and isinstance(outcome, Scored):
            self.crew.planner.evolve(self.model, closed, program, outcome)
        else:
            self.crew.planner.evolve(self.model, closed, None, None)

    def _tell(self, kind: str, **fields: Any) -> None:
        """Log a decision; decisions are for readers, only outcomes are read back."""
        if not self._replaying():
            self.run.append(kind, round=self.model.round, **fields)
        self.crew.watch(kind, fields)

    def _replaying(self) -> bool:
        return len(self._outcomes) < len(self._logged)

    def _finish(self, seed_outcome: Scored, stopped: str) -> SearchResult:
        best = self.model.best()
        outcome = self._outcomes[best.program]
        if not isinstance(outcome, Scored):
            raise RunCorrupt(f"run {self.run.id}: the best node {best.id} has no score", "start a new run")
        self.run.save_world_model(self.model.to_json())
        count = len(self._outcomes)
        self.run.append("stopped", because=stopped, best=best.program, score=best.score, evaluations=count)
        return SearchResult(
            self._programs[best.program], outcome, best.score or 1.0, seed_outcome,
            count, self._repeated, stopped, self.model,
        )  # fmt: skip


def evaluation_seed(run_seed: int, program: Program) -> int:
    """The seed that draws a program's inputs: fixed by the run and the program, unknown to the program."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}/{program.digest}".encode()).digest()[:4], "big")
