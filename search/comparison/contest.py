"""A contest: several strategies, several seeds, one budget; curves, medians and intervals."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kx.errors import KxError, UnknownName
from kx.paths import Home, write_atomically
from search.authors.block_author import BlockAuthor
from search.comparison import Curve, Strategy
from search.comparison.strategies import Evolution, RandomSearch
from search.engine import Budget, Crew, Engine, Evaluator, evaluation_seed
from search.evaluation.pool import Evaluated
from search.outcome import Outcome, Rejected, Scored, describe, score_against
from search.planners.graph_planner import GraphPlanner, Knowledge
from search.program import Program
from search.run_store import create_run
from search.task import Task

NAMES = ("naive", "evolution", "full", "random", "tpe")
RESAMPLES = 2000
EVALUATION_SEED = 0
"""Of the inputs: the same for all strategies, so that a program has one outcome."""


@dataclass(frozen=True)
class Field:
    """What all strategies share.

    Attributes:
        task, evaluator: the programs' task and judge.
        preflight: the first broken hard limit of a program, or None.
        knowledge: what ``full`` takes from the graph; without observations, so that no run helps another.
        evaluations: budget of each curve, the seed included; batch: programs evaluated side by side.
    """

    task: Task
    evaluator: Evaluator
    preflight: Callable[[Program], Rejected | None]
    knowledge: Knowledge
    evaluations: int
    batch: int = 2


def run_strategy(name: str, seed: int, field_: Field) -> Curve:
    """One strategy with one seed.

    Raises:
        UnknownName: no such strategy.
        EnvironmentLacking: a peer's package is not installed.
    """
    if name == "full":
        return _run_engine(seed, field_)
    strategy = _strategy(name, seed, BlockAuthor(field_.task))
    seed_program = field_.task.seed
    outcomes = _evaluate(field_, [seed_program])
    reference = outcomes[0]
    if not isinstance(reference, Scored):
        raise KxError(f"the seed of {field_.task.name} does not pass the gates: {describe(reference)}")
    best, best_program = [1.0], seed_program.digest
    if strategy is not None:
        strategy.tell(seed_program, reference, 1.0)
    while strategy is not None and len(best) < field_.evaluations:
        batch = list(strategy.ask(min(field_.batch, field_.evaluations - len(best))))
        if not batch:
            break
        for program, outcome in zip(batch, _evaluate(field_, batch), strict=True):
            score = score_against(outcome, reference) if isinstance(outcome, Scored) else None
            strategy.tell(program, outcome, score)
            if score is not None and score > best[-1]:
                best_program = program.digest
            best.append(max(best[-1], score or 0.0))
    return Curve(name, seed, tuple(best), best_program)


def _strategy(name: str, seed: int, author: BlockAuthor) -> Strategy | None:
    if name == "naive":
        return None
    if name == "evolution":
        return Evolution(author, seed)
    if name == "random":
        return RandomSearch(author, seed)
    if name == "tpe":
        from search.comparison.tpe import ParzenSearch

        return ParzenSearch(author, seed)
    raise UnknownName(f"no strategy is called {name!r}", f"strategies: {', '.join(NAMES)}")


def _evaluate(field_: Field, programs: Sequence[Program]) -> list[Outcome]:
    """Outcomes in order; a program that pre-flight rejects costs an evaluation like any other."""
    outcomes: list[Outcome | None] = [field_.preflight(program) for program in programs]
    left = [index for index, outcome in enumerate(outcomes) if outcome is None]
    jobs = [(programs[index], evaluation_seed(EVALUATION_SEED, programs[index])) for index in left]
    for position, evaluated in field_.evaluator.evaluate(jobs):
        outcomes[left[position]] = evaluated.outcome
    return [outcome for outcome in outcomes if outcome is not None]


@dataclass
class _OneSeed:
    """Evaluates with the contest's seed of inputs, whatever the engine's is."""

    field_: Field
    order: list[str] = field(default_factory=list)

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Any:
        same = [(program, evaluation_seed(EVALUATION_SEED, program)) for program, _ in jobs]
        for index, evaluated in self.field_.evaluator.evaluate(same):
            yield index, Evaluated(evaluated.outcome, evaluated.seed, evaluated.seconds)


def _run_engine(seed: int, field_: Field) -> Curve:
    author = BlockAuthor(field_.task)
    crew = Crew(
        planner=GraphPlanner(author, field_.task.kernel_class, field_.knowledge),
        author=author,
        evaluator=_OneSeed(field_),
        preflight=field_.preflight,
        prompt=lambda tree, node, program, outcome: node.action.title,
    )
    # Patience is the budget's: the others don't stop early either.
    budget = Budget(evaluations=field_.evaluations, batch=field_.batch, patience=field_.evaluations)
    with TemporaryDirectory() as folder:
        run = create_run(Home(Path(folder)), {"task": field_.task.name})
        result = Engine(field_.task, run, crew, budget, seed).search()
        events = [event for event in run.events() if event["kind"] == "evaluated"]
    reference = result.seed
    best: list[float] = []
    for event in events:
        score = _score(event["outcome"], reference)
        best.append(max(best[-1] if best else 1.0, score))
    return Curve("full", seed, tuple(best), result.best.digest)


def _score(outcome: Mapping[str, Any], reference: Scored) -> float:
    if outcome["kind"] != "Scored":
        return 0.0
    product = 1.0
    for item, base in zip(outcome["workloads"], reference.workloads, strict=True):
        product *= base.time_us / float(item["time_us"])
    return float(product ** (1.0 / len(reference.workloads)))


@dataclass(frozen=True)
class Summary:
    """What the curves of one strategy say.

    Attributes:
        median, low, high: of the best score after each evaluation: median over seeds with a 95 % interval
            from resampling the seeds.
        final: best score of each seed; reached: evaluations to the target, median over seeds (a seed that
            did not reach it counts as infinitely many), None where most did not.
    """

    strategy: str
    seeds: int
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    final: tuple[float, ...]
    reached: float | None


def summarize(curves: Sequence[Curve], evaluations: int, target: float) -> list[Summary]:
    """One summary per strategy, in the order of their first curves."""
    found = []
    for name in dict.fromkeys(curve.strategy for curve in curves):
        own = [curve for curve in curves if curve.strategy == name]
        columns = [[_at(curve, count) for curve in own] for count in range(evaluations)]
        bounds = [_interval(column, f"{name}/{count}") for count, column in enumerate(columns)]
        counts = sorted(_or_infinity(curve.reached(target)) for curve in own)
        middle = statistics.median(counts)
        found.append(
            Summary(
                name, len(own), tuple(statistics.median(column) for column in columns),
                tuple(low for low, _ in bounds), tuple(high for _, high in bounds),
                tuple(curve.best[-1] for curve in own), None if middle == float("inf") else middle,
            )
        )  # fmt: skip
    return found


def _at(curve: Curve, count: int) -> float:
    return curve.best[min(count, len(curve.best) - 1)]


def _or_infinity(value: int | None) -> float:
    return float("inf") if value is None else float(value)


def _interval(values: Sequence[float], seed: str) -> tuple[float, float]:
    """95 % percentile interval of the median over resampled seeds."""
    if len(set(values)) == 1:
        return values[0], values[0]
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def write_data(path: Path, curves: Sequence[Curve], summaries: Sequence[Summary], about: Mapping[str, Any]) -> None:
    """All curves and summaries as JSON."""
    data = {**about, "curves": [asdict(curve) for curve in curves], "summaries": [asdict(item) for item in summaries]}
    write_atomically(path, json.dumps(data, indent=1))
