"""A whole search whose planner and author are a model: plans, programs, repairs, allowances, resuming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kx.paths import Home
from search.authors.model_author import ModelAuthor
from search.engine import Budget, Crew, Engine, SearchResult
from search.models import AllowanceSpent, Question, Reply, ReplyAwaited
from search.models.reply_log import Correspondent, Logged, ReplyLog
from search.models.spending import Allowance, Metered, Price
from search.planners.model_planner import ModelPlanner
from search.run_store import Run, create_run, open_run
from search.task import load_task
from tests.unit.search.replies import ScriptedModel, SpeedEvaluator, plan_reply, reply_of, with_speed

TASK = load_task("mamba_scan")
CONCEPTS = ("exp2-trick", "associative-scan-operator")
EMPTY = plan_reply("n0")


def fast(factor: float) -> str:
    return reply_of(with_speed(TASK.seed, factor), TASK)


def engine(run: Run, model: Any, budget: Budget | None = None, evaluator: SpeedEvaluator | None = None) -> Engine:
    author = ModelAuthor(model, TASK)
    planner = ModelPlanner(model, lambda tree, node, program, outcome: f"plan after {node.id} in round {tree.round}",
                           CONCEPTS)  # fmt: skip
    crew = Crew(
        planner,
        author,
        evaluator or SpeedEvaluator(),
        preflight=lambda program: None,
        prompt=lambda tree, node, program, outcome: f"write {node.id}: {node.action.title}",
    )
    return Engine(TASK, run, crew, budget or Budget(evaluations=20, attempts_per_node=3, batch=1))


def new_run(tmp_path: Path) -> Run:
    return create_run(Home(tmp_path), {"task": "mamba_scan"})


def search(tmp_path: Path, replies: list[Any], **budget: Any) -> tuple[SearchResult, ScriptedModel]:
    model = ScriptedModel(list(replies), EMPTY)
    options = Budget(**{"evaluations": 20, "attempts_per_node": 3, "batch": 1, **budget})
    return engine(new_run(tmp_path), model, options).search(), model


def test_plan_program_refinement_and_next_plan(tmp_path: Path) -> None:
    result, model = search(tmp_path, [plan_reply("n0", "use exp2"), fast(2), fast(3), fast(2.9), EMPTY], evaluations=4)
    assert result.score == pytest.approx(3.0)
    assert [question.purpose for question in model.questions] == ["plan", "write", "refine", "refine"]
    assert result.best.author == "llm:scripted"
    assert result.model.nodes["n1"].belief.rating == 6.0
    assert model.rewards == [0.5, 1.0, 1.0, 1.0]
    assert "// speed 2" in model.questions[2].text
    assert "write n1: use exp2" in model.questions[2].text


def test_failure_goes_back_with_all_that_the_gate_said(tmp_path: Path) -> None:
    broken = fast(2).replace("// speed 2", "broken")
    result, model = search(tmp_path, [plan_reply("n0", "use exp2"), broken, fast(2)], attempts_per_node=2)
    assert [question.purpose for question in model.questions][:3] == ["plan", "write", "repair"]
    assert "undeclared identifier 'broken'" in model.questions[2].text
    assert "body:4: expected ';'" in model.questions[2].text
    assert result.score == pytest.approx(2.0)
    assert [attempt.outcome for attempt in result.model.nodes["n1"].attempts] == ["CompileFailed", "Scored"]


def test_reply_without_a_program_is_mended_and_never_evaluated(tmp_path: Path) -> None:
    result, model = search(
        tmp_path, [plan_reply("n0", "use exp2"), "I can't see the kernel.", fast(2)], attempts_per_node=1
    )
    assert [question.purpose for question in model.questions][:3] == ["plan", "write", "mend"]
    assert "no ```json block" in model.questions[2].text
    assert "I can't see the kernel." in model.questions[2].text
    assert result.evaluations == 2
    assert result.score == pytest.approx(2.0)


def test_author_that_never_writes_a_program_fails_the_node_without_an_evaluation(tmp_path: Path) -> None:
    refusal = Reply("", "scripted", flaw="the model refused: no")
    result, _ = search(tmp_path, [plan_reply("n0", "use exp2"), "?", refusal, "??"])
    node = result.model.nodes["n1"]
    assert (node.status, node.score, result.evaluations) == ("failed", None, 1)
    assert [attempt.outcome for attempt in node.attempts] == ["NoProgram"]
    assert "```json" in node.attempts[0].summary
    assert result.stopped_because == "scripted has nothing more to propose"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("do something clever", "no ```json block"),
        ('{"insert": [{"parent": "n0"}]}', "insert.0.title"),
        ('{"remove": []}', "remove"),
        (plan_reply("n7", "x"), "there is no node 'n7'"),
        (plan_reply("n0", "a", "b", "c", "d"), "at most 3"),
        (plan_reply("n0", "same", "SAME"), "already has a child titled"),
        (plan_reply("n0", "x").replace("exp2-trick", "exp2-trik"), "did you mean exp2-trick"),
        (plan_reply("n0", "x").replace('"rating": 6.0', '"rating": 60'), "insert.0.rating"),
        (plan_reply("n0", prune=[{"node": "n0", "reason": "x"}]), "n0 is closed"),
    ],
)
def test_plan_that_does_not_fit_goes_back_with_its_flaw(tmp_path: Path, plan: str, said: str) -> None:
    result, model = search(tmp_path, [plan, plan_reply("n0", "use exp2"), fast(2)], attempts_per_node=1)
    assert model.questions[1].purpose == "mend"
    assert said in model.questions[1].text
    assert result.score == pytest.approx(2.0)


def test_planner_that_never_gives_a_plan_ends_the_search_with_the_reason(tmp_path: Path) -> None:
    result, model = search(tmp_path, ["nothing"] * 20)
    assert result.stopped_because.startswith("scripted gave no plan that fits")
    assert len(model.questions) <= 9
    assert result.score == 1.0


def test_update_prune_and_split_edit_the_tree(tmp_path: Path) -> None:
    part = json.loads(plan_reply("n0", "part")[8:-4])["insert"][0]
    del part["parent"]
    edits = {
        "update": [{"node": "n2", "rating": 9.0, "confidence": 0.9, "note": "now it pays"}],
        "split": [{"node": "n3", "into": [part | {"title": "first half"}, part | {"title": "second half"}]}],
    }
    result, _ = search(
        tmp_path,
        [plan_reply("n0", "one", "two", "three"), fast(2), plan_reply("n1", **edits), fast(3),
         plan_reply("n2", prune=[{"node": "n4", "reason": "no use"}]), fast(4), EMPTY, EMPTY, EMPTY, EMPTY],
        attempts_per_node=1,
    )  # fmt: skip
    nodes = result.model.nodes
    assert nodes["n2"].belief.rating == 9.0
    assert "now it pays" in nodes["n2"].notes
    assert nodes["n3"].status == "pruned"
    assert "split into n4, n5" in nodes["n3"].notes
    assert [nodes[name].action.title for name in ("n4", "n5")] == ["first half", "second half"]
    assert nodes["n4"].status == "pruned"
    assert nodes["n5"].score == pytest.approx(4.0)


@pytest.mark.parametrize("replies_before_the_kill", range(1, 6))
def test_killed_search_asks_nothing_twice_and_ends_alike(tmp_path: Path, replies_before_the_kill: int) -> None:
    script = [plan_reply("n0", "one", "two"), fast(2), fast(3), fast(2.5), plan_reply("n1", "three"), fast(4),
              fast(1.5),
              EMPTY, fast(5), fast(4.9), EMPTY, EMPTY, EMPTY, EMPTY]  # fmt: skip

    def run_with(run: Run, replies: list[Any], after: str = EMPTY) -> tuple[SearchResult, ScriptedModel]:
        model = ScriptedModel(replies, after)
        logged = Logged(model, ReplyLog(run))
        return engine(run, logged).search(), model

    whole, _ = run_with(new_run(tmp_path / "whole"), list(script))
    run = new_run(tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        run_with(run, list(script[:replies_before_the_kill]), after="")
    resumed, model = run_with(open_run(Home(tmp_path / "killed"), run.id), list(script))
    assert resumed.model.to_json() == whole.model.to_json()
    assert resumed.best.digest == whole.best.digest
    assert len(list((run.folder / "replies").iterdir())) == len(list((tmp_path / "whole").glob("runs/*/replies/*")))
    replied = [event for event in run.events() if event["kind"] == "replied"]
    assert len(replied) == replies_before_the_kill + len(model.questions)


@pytest.mark.parametrize(
    ("allowance", "said"),
    [(Allowance(tokens=3000), "3000 tokens"), (Allowance(cost_usd=0.01), "0.01 US dollars"),
     (Allowance(seconds=1.2), "1 seconds")],
)  # fmt: skip
def test_allowance_ends_the_search_well(tmp_path: Path, allowance: Allowance, said: str) -> None:
    model = ScriptedModel([plan_reply("n0", "one", "two"), fast(2), fast(3), fast(4), fast(5)])
    metered = Metered(model, allowance, {"scripted": Price(3.0, 5.0)})
    result = engine(new_run(tmp_path), metered).search()
    assert said in result.stopped_because
    assert len(model.questions) == 3
    assert metered.spent.tokens == 3600
    assert metered.spent.cost_usd == pytest.approx(3 * (0.003 + 0.001))
    assert result.score >= 1.0


def test_key_never_reaches_the_run_folder(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    log = ReplyLog(run, ("sk-secret/é",))
    log.keep(Question("write", "n1", "the key is sk-secret/é"), 0, Reply("echo sk-secret/é", "m"))
    for path in run.folder.rglob("*"):
        if path.is_file():
            assert "sk-secret" not in path.read_text()
    reply = log.find(Question("write", "n1", "the key is sk-secret/é"), 0)
    assert reply is not None
    assert reply.text == "echo [key]"


def test_by_hand_the_run_waits_and_goes_on_with_each_reply(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    answers = [plan_reply("n0", "use exp2"), fast(2), fast(3), fast(2), EMPTY, EMPTY]
    asked: list[str] = []
    while True:
        log = ReplyLog(run)
        try:
            result = engine(run, Logged(Correspondent(log), log)).search()
        except ReplyAwaited as exc:
            assert [question.text for question in log.waiting()] == [exc.question.text]
            asked.append(exc.question.purpose)
            log.keep(exc.question, log.count(exc.question), Reply(answers.pop(0), "person"))
            assert not list(log.waiting())
            continue
        break
    assert asked[:4] == ["plan", "write", "refine", "refine"]
    assert result.best.author == "person"
    assert result.score == pytest.approx(3.0)


def test_spent_allowance_is_an_error_only_outside_a_search() -> None:
    with pytest.raises(AllowanceSpent, match="tokens budget of 0"):
        Metered(ScriptedModel([""]), Allowance(tokens=0)).ask(Question("write", "n1", "x"))
