from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kx.errors import KxError, RunCorrupt, UnknownName
from kx.paths import Home
from search.engine import Budget, Crew, Engine, SearchResult
from search.evaluation.pool import Evaluated
from search.outcome import Rejected
from search.planners.graph_planner import GraphPlanner, Knowledge
from search.program import Program
from search.run_store import Run, create_run, open_run, run_ids
from search.task import load_task
from tests.unit.search.doubles import SwitchAuthor, TableEvaluator, concept

SWITCHES = {"scan": "associative-scan-operator", "exp": "exp2-trick", "pad": "bank-conflict-padding"}
FACTORS = {"scan": 4.0, "exp": 1.5, "pad": 0.8}
KNOWLEDGE = Knowledge(
    {
        "associative-scan-operator": concept("associative-scan-operator", bottlenecks=("latency",), fit=9),
        "exp2-trick": concept("exp2-trick", bottlenecks=("compute",), fit=7),
        "bank-conflict-padding": concept("bank-conflict-padding", bottlenecks=("synchronization",), fit=5),
    },
    {},
    {},
)


def new_run(tmp_path: Path) -> Run:
    return create_run(Home(tmp_path), {"task": "mamba_scan"})


def engine(run: Run, evaluator: TableEvaluator, budget: Budget | None = None, **crew: Any) -> Engine:
    author = SwitchAuthor(SWITCHES)
    defaults: dict[str, Any] = {
        "planner": GraphPlanner(author, "scan", KNOWLEDGE),
        "author": author,
        "evaluator": evaluator,
        "preflight": lambda program: None,
        "prompt": lambda model, node, program, outcome: f"prompt of {node.id}",
    }
    return Engine(load_task("mamba_scan"), run, Crew(**{**defaults, **crew}), budget or Budget(evaluations=40))


def fingerprint(result: SearchResult) -> tuple[str, float, dict[str, Any]]:
    return result.best.digest, result.score, result.model.to_json()


def test_search_combines_the_changes_that_pay(tmp_path: Path) -> None:
    result = engine(new_run(tmp_path), TableEvaluator(FACTORS)).search()
    assert set(result.best.choices) == {"scan", "exp"}
    assert result.score > 4.0 * 1.5
    assert [node.action.concepts for node in result.model.path(result.model.best().id)][1:] == [
        ("associative-scan-operator",),
        ("exp2-trick",),
    ]


def test_first_action_follows_the_bottleneck_not_the_order_of_the_author(tmp_path: Path) -> None:
    for switches in (SWITCHES, dict(reversed(SWITCHES.items()))):
        author = SwitchAuthor(switches)
        run = new_run(tmp_path)
        planner = GraphPlanner(author, "scan", KNOWLEDGE)
        engine(run, TableEvaluator(FACTORS), Budget(evaluations=2), author=author, planner=planner).search()
        chosen = next(event for event in run.events() if event["kind"] == "selected")
        assert chosen["title"] == "turn scan on"


def test_several_open_nodes_are_refined_at_once_and_their_programs_evaluated_together(tmp_path: Path) -> None:
    batches: list[int] = []

    class Counting(TableEvaluator):
        def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Iterator[tuple[int, Evaluated]]:
            batches.append(len(jobs))
            return super().evaluate(jobs)

    run = new_run(tmp_path)
    result = engine(run, Counting(FACTORS), Budget(evaluations=40, batch=2, nodes=3)).search()
    assert max(batches) == 6
    assert result.score > 4.0 * 1.5
    first_round = [event["node"] for event in run.events() if event["kind"] == "selected" and event["round"] == 1]
    assert first_round == ["n1", "n2", "n3"]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("killed_after", [1, 2, 5, 8])
def test_killed_search_resumes_without_repeating_an_evaluation(tmp_path: Path, killed_after: int, nodes: int) -> None:
    budget = Budget(evaluations=40, nodes=nodes)
    whole = engine(new_run(tmp_path / "whole"), TableEvaluator(FACTORS), budget).search()
    run = new_run(tmp_path / "killed")
    first = TableEvaluator(FACTORS, fail_after=killed_after)
    with pytest.raises(KeyboardInterrupt):
        engine(run, first, budget).search()
    with (run.folder / "events.jsonl").open("ab") as stream:
        stream.write(b'{"kind": "evaluated", "progr')
    second = TableEvaluator(FACTORS)
    resumed = engine(open_run(Home(tmp_path / "killed"), run.id), second, budget).search()
    assert fingerprint(resumed) == fingerprint(whole)
    assert not set(first.evaluated) & set(second.evaluated)
    assert resumed.repeated == killed_after
    evaluated = [event["program"] for event in run.events() if event["kind"] == "evaluated"]
    assert len(evaluated) == len(set(evaluated)) == whole.evaluations


def test_resuming_a_finished_run_evaluates_nothing(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    whole = engine(run, TableEvaluator(FACTORS)).search()
    again = TableEvaluator(FACTORS)
    assert fingerprint(engine(run, again).search()) == fingerprint(whole)
    assert again.evaluated == []


@pytest.mark.parametrize("nodes", [1, 3])
def test_budget_is_never_exceeded(tmp_path: Path, nodes: int) -> None:
    for evaluations in (1, 2, 3, 7):
        evaluator = TableEvaluator(FACTORS)
        result = engine(new_run(tmp_path), evaluator, Budget(evaluations=evaluations, nodes=nodes)).search()
        assert len(evaluator.evaluated) <= evaluations
        assert result.evaluations <= evaluations


def test_failures_have_no_score_and_their_concept_is_given_up(tmp_path: Path) -> None:
    result = engine(new_run(tmp_path), TableEvaluator(FACTORS, wrong=frozenset({"scan"}))).search()
    assert "scan" not in result.best.choices
    failed = [node for node in result.model.nodes.values() if node.status == "failed"]
    assert failed
    assert all(node.score is None for node in failed)
    assert len(failed) <= 3


def test_rejected_programs_never_reach_the_evaluator(tmp_path: Path) -> None:
    def refuse(program: Program) -> Rejected | None:
        return Rejected("urn:kx:constraint:x", "too many threads") if "exp" in program.choices else None

    evaluator = TableEvaluator(FACTORS)
    run = new_run(tmp_path)
    engine(run, evaluator, preflight=refuse).search()
    rejected = [e["program"] for e in run.events() if e["kind"] == "evaluated" and e["outcome"]["kind"] == "Rejected"]
    assert rejected
    assert not set(rejected) & set(evaluator.evaluated)


def test_seed_that_fails_is_an_error_of_the_task(tmp_path: Path) -> None:
    def refuse(program: Program) -> Rejected:
        return Rejected("urn:kx:constraint:x", "no")

    with pytest.raises(KxError, match="seed of mamba_scan does not pass"):
        engine(new_run(tmp_path), TableEvaluator(FACTORS), preflight=refuse).search()


def test_corrupt_line_in_the_middle_is_named(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    engine(run, TableEvaluator(FACTORS)).search()
    lines = (run.folder / "events.jsonl").read_text().splitlines()
    lines[1] = lines[1][:20]
    (run.folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(RunCorrupt, match=r"line 2 of events\.jsonl"):
        engine(run, TableEvaluator(FACTORS)).search()


def test_run_folders_are_found_and_damage_is_told(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(UnknownName, match="no run is called 'latest'"):
        open_run(home, "latest")
    run = new_run(tmp_path)
    assert run_ids(home) == [run.id]
    assert open_run(home, "latest").id == run.id
    (run.folder / "run.json").write_text("{")
    with pytest.raises(RunCorrupt, match=r"run.json can't be read"):
        open_run(home, run.id)


def test_events_are_readable_json_lines(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    engine(run, TableEvaluator(FACTORS)).search()
    lines = (run.folder / "events.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"evaluated", "selected", "closed", "stopped"}
