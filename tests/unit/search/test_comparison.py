"""Strategies on one field: what they propose, what they learn, and that the contest is fair and repeatable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kx.errors import UnknownName
from search.authors.block_author import BlockAuthor
from search.comparison import Curve
from search.comparison.contest import Field, run_strategy, summarize, write_data
from search.comparison.picture import draw
from search.comparison.remembering import RememberingEvaluator
from search.comparison.strategies import draw_program
from search.evaluation.pool import Evaluated
from search.outcome import Mismatch, Outcome, TimedOut
from search.planners.graph_planner import Knowledge
from search.program import Program
from search.task import load_task
from tests.unit.search.doubles import concept, scored

TASK = load_task("mamba_scan")
KNOWLEDGE = Knowledge(
    {"associative-scan-operator": concept("associative-scan-operator", bottlenecks=("latency",))}, {}, {}
)


class LandscapeEvaluator:
    """A smooth landscape over the choices: lanes along the sequence and many items pay, one axis is wrong."""

    def __init__(self) -> None:
        self.evaluated: list[str] = []

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Any:
        for index, (program, seed) in enumerate(jobs):
            self.evaluated.append(program.digest)
            yield index, Evaluated(self._outcome(program), seed, 0.01)

    def _outcome(self, program: Program) -> Outcome:
        choices = program.choices
        if choices.get("math") == "fast":
            return Mismatch("twin", "y", 1.0, 1e-3, 0.0, (0,))
        time = 100.0
        if choices.get("mapping") == "sequence-lanes":
            time /= 4 * (1 + int(choices["items"]) / 8)
        return scored(time / (1.3 if choices.get("exponential") == "exp2" else 1.0))


def field(evaluations: int = 30, evaluator: Any = None) -> Field:
    return Field(TASK, evaluator or LandscapeEvaluator(), lambda program: None, KNOWLEDGE, evaluations)


@pytest.mark.parametrize("name", ["naive", "evolution", "full", "random", "tpe"])
def test_curve_starts_at_the_seed_never_falls_and_keeps_to_the_budget(name: str) -> None:
    shared = field(25)
    curve = run_strategy(name, 3, shared)
    assert curve.best[0] == 1.0
    assert list(curve.best) == sorted(curve.best)
    assert len(curve.best) <= 25
    evaluated = shared.evaluator.evaluated  # type: ignore[attr-defined]
    assert len(evaluated) == len(set(evaluated)) == len(curve.best)
    assert run_strategy(name, 3, field(25)) == curve, "the same seed gives the same curve"


@pytest.mark.parametrize("name", ["evolution", "random", "tpe"])
def test_other_seeds_go_other_ways(name: str) -> None:
    assert len({run_strategy(name, seed, field(12)).best for seed in range(4)}) > 1


def test_evolution_finds_the_hill_that_random_draws_seldom_do() -> None:
    evolved = sorted(run_strategy("evolution", seed, field(60)).best[-1] for seed in range(5))
    assert evolved[2] > 4


def test_random_draws_are_valid_and_differ() -> None:
    import random

    author = BlockAuthor(TASK)
    rng = random.Random(1)
    drawn = [draw_program(author, rng) for _ in range(20)]
    assert all(
        program is not None and author.space.flaw(author.space.complete(program.choices)) is None for program in drawn
    )
    assert len({program.digest for program in drawn if program}) > 15
    assert len({program.choices["mapping"] for program in drawn if program}) > 1


def test_unknown_strategy_is_told() -> None:
    with pytest.raises(UnknownName, match="annealing"):
        run_strategy("annealing", 0, field())


def test_summary_has_medians_intervals_and_evaluations_to_the_target() -> None:
    curves = [Curve("a", 0, (1.0, 2.0, 4.0), "p"), Curve("a", 1, (1.0, 3.0, 3.0), "p"), Curve("a", 2, (1.0, 1.0), "p"),
              Curve("b", 0, (1.0, 1.0, 1.0), "p")]  # fmt: skip
    first, second = summarize(curves, 3, 3.0)
    assert first.median == (1.0, 2.0, 3.0)
    assert first.low[2] <= 3.0 <= first.high[2]
    assert first.low[0] == first.high[0] == 1.0
    assert first.reached == 3
    assert second.reached is None


def test_data_and_picture_are_written(tmp_path: Path) -> None:
    curves = [run_strategy(name, 0, field(8)) for name in ("naive", "random")]
    summaries = summarize(curves, 8, 2.0)
    write_data(tmp_path / "deep" / "curves.json", curves, summaries, {"kernel": "x"})
    data = json.loads((tmp_path / "deep" / "curves.json").read_text())
    assert data["curves"][1]["best"] == list(curves[1].best)
    draw(tmp_path / "curves.png", summaries, "x", 2.0)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_known_outcomes_are_not_evaluated_again_and_damage_costs_only_time(tmp_path: Path) -> None:
    inner = LandscapeEvaluator()
    kept = RememberingEvaluator(inner, tmp_path, "key")
    author = BlockAuthor(TASK)
    jobs = [(author.write(TASK.seed, edit), 5) for edit in author.edits(TASK.seed)][:4]
    first = dict(kept.evaluate(jobs[:2]))
    again = dict(kept.evaluate(jobs))
    assert len(inner.evaluated) == 4
    assert [again[index].outcome for index in range(2)] == [first[index].outcome for index in range(2)]
    assert list(again) == [0, 1, 2, 3]
    for path in tmp_path.rglob("*.json"):
        path.write_text(path.read_text()[:40])
    dict(kept.evaluate(jobs))
    assert len(inner.evaluated) == 8
    dict(RememberingEvaluator(inner, tmp_path, "other chip").evaluate(jobs[:1]))
    assert len(inner.evaluated) == 9


def test_time_limit_is_the_machines_and_is_not_kept(tmp_path: Path) -> None:
    class Slow:
        count = 0

        def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Any:
            for index, (_, seed) in enumerate(jobs):
                self.count += 1
                yield index, Evaluated(TimedOut(1.0), seed, 1.0)

    slow = Slow()
    kept = RememberingEvaluator(slow, tmp_path, "key")
    for _ in range(2):
        dict(kept.evaluate([(TASK.seed, 1)]))
    assert slow.count == 2
