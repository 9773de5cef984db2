"""Searches by language models and by hand, through the commands: a real client, a real server, real gates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search import session
from search.authors.block_author import BlockAuthor
from search.models import endpoint
from search.task import load_task
from tests.cli.conftest import Kx, parse_one_object
from tests.scripted_endpoint import KEY, Answer, in_order, serve
from tests.unit.search.replies import SpeedEvaluator, plan_reply, reply_of, with_speed

TASK = load_task("mamba_scan")
EMPTY = plan_reply("n0")


def fast(factor: float) -> str:
    return reply_of(with_speed(TASK.seed, factor), TASK)


@pytest.fixture
def quick_evaluation(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpeedEvaluator]:
    """The gates answered from the program's text, for tests of what stands around them."""

    class Pool(SpeedEvaluator):
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    pool = Pool()
    monkeypatch.setattr(session, "WorkerPool", lambda setting: pool)
    yield pool


RULE = endpoint.RetryRule(attempts=2, first_wait_s=0.01, longest_wait_s=0.1, answer_s=1.0, whole_s=2.0)


@pytest.mark.slow
def test_model_searches_with_real_gates_and_bad_programs_are_told_and_repaired(
    kx: Kx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    author = BlockAuthor(TASK)
    edit = next(edit for edit in author.edits(TASK.seed) if "associative-scan-operator" in edit.concepts)
    good = author.write(TASK.seed, edit)
    seed = TASK.seed.stages[0]
    broken = replace(TASK.seed, stages=(replace(seed, body="broken;\n" + seed.body),))
    wrong = replace(TASK.seed, stages=(replace(seed, body=seed.body.replace("exp(", "1.01f * exp(")),))
    script = in_order(
        Answer(plan_reply("n0", "scan in parallel")),
        Answer(reply_of(broken, TASK)),
        Answer(reply_of(wrong, TASK)),
        Answer(reply_of(good, TASK)),
        Answer(EMPTY),
    )
    with serve(script) as server:
        result = kx("search", "--kernel", "mamba_scan", "--model", "scripted", "--base-url", server.url, "--json")
    assert result.exit_code == 0, result.output
    payload = json.loads(result.stdout)
    assert payload["best"]["score"] > 2
    log = (home / "runs" / payload["run"] / "events.jsonl").read_text().splitlines()
    outcomes = [event["outcome"]["kind"] for event in map(json.loads, log) if event["kind"] == "evaluated"]
    assert outcomes == ["Scored", "CompileFailed", "Mismatch", "Scored"]
    assert "It failed: does not compile" in server.prompts[2]
    assert "is off by" in server.prompts[3]
    assert all("threads" in prompt for prompt in server.prompts), "hard limits stand in every prompt"
    assert set(server.keys) == {KEY}
    for path in (home / "runs").rglob("*"):
        if path.is_file():
            assert KEY not in path.read_text(encoding="utf-8"), path


def test_by_hand_prompt_and_submit_drive_a_search(kx: Kx, quick_evaluation: SpeedEvaluator, tmp_path: Path) -> None:
    first = parse_one_object(kx("search", "--kernel", "mamba_scan", "--by-hand", "--json"))
    run = first["run"]
    assert first["waiting"] == {"node": "n0", "purpose": "plan"}
    question = parse_one_object(kx("prompt", run, "--json"))
    assert question["purpose"] == "plan"
    assert "Concepts that serve this kernel class" in question["prompt"]
    assert kx("prompt", run, "next").stdout == question["prompt"] + "\n"

    def submit(node: str, text: str) -> Any:
        (tmp_path / "reply.md").write_text(text)
        return kx("submit", run, node, str(tmp_path / "reply.md"))

    said = submit("n0", plan_reply("n0", "use exp2"))
    assert said.exit_code == 0, said.output
    assert f"kx submit {run} n1 FILE" in said.stdout
    writing = kx("prompt", run, "n1").stdout
    assert "# The action: one change\nuse exp2" in writing
    assert "```metal mamba_scan" in writing
    assert "(mend)" in submit("n1", "no program here").stdout
    assert "no ```json block" in kx("prompt", run).stdout
    assert "(refine)" in submit("n1", fast(3)).stdout
    stranger = submit("n9", fast(2))
    assert stranger.exit_code == 2
    assert "it waits for: n1 (refine)" in stranger.stderr
    again = kx("resume", run)
    assert again.exit_code == 0
    assert "n1 (refine)" in again.stdout
    submit("n1", fast(2.5))
    submit("n1", EMPTY)
    last = submit("next", EMPTY)
    assert "3.00x the naive seed" in last.stdout
    assert "nothing more to propose" in last.stdout
    finished = submit("n1", fast(9))
    assert finished.exit_code == 2
    assert "kx search --by-hand" in finished.stderr
    shown = parse_one_object(kx("show", run, "--json"))
    assert shown["world_model"]["best"] == "n1"
    assert len(quick_evaluation.evaluated) == 3


def test_prompt_of_any_run_tried_open_and_next(kx: Kx, quick_evaluation: SpeedEvaluator) -> None:
    run = parse_one_object(kx("search", "--kernel", "mamba_scan", "--budget", "3", "--json"))["run"]
    tree = parse_one_object(kx("show", run, "--json"))["world_model"]["nodes"]
    tried = next(node["id"] for node in tree if node["prompt"])
    still_open = next(node["id"] for node in tree if node["status"] == "open")
    for name in (tried, still_open):
        title = next(node["action"]["title"] for node in tree if node["id"] == name)
        assert f"# The action: one change\n{title}" in kx("prompt", run, name).stdout
    assert "Edit the world model" in kx("prompt", run, "next").stdout
    for name, said in (("n99", "n0, n1"), ("n0", "is the seed"), ("", "waits for no reply")):
        result = kx("prompt", run, *([name] if name else []))
        assert result.exit_code == 2
        assert said in result.stderr


def test_graph_plans_while_a_model_writes(kx: Kx, quick_evaluation: SpeedEvaluator) -> None:
    with serve(in_order(Answer(fast(2)), Answer(fast(3)), Answer(fast(2.5)))) as server:
        result = kx(
            "search", "--kernel", "mamba_scan", "--model", "scripted", "--base-url", server.url, "--planner", "graph",
            "--budget", "4", "--json",
        )  # fmt: skip
    payload = parse_one_object(result)
    assert payload["best"]["score"] == pytest.approx(3.0)
    assert not any("Edit the world model" in prompt for prompt in server.prompts)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer("wrong key", status=401), "set OPENAI_API_KEY"),
        (Answer(status=500), "kx resume goes on"),
        (Answer(close=True), "kx resume goes on"),
        (Answer(stall_s=30), "kx resume goes on"),
        (Answer("you have none", status=429, error_code="insufficient_quota"), "quota"),
    ],
    ids=["401", "500", "closed", "stall", "quota"],
)
def test_endpoint_that_fails_ends_the_run_with_the_reason_and_resume_finishes_it(
    kx: Kx, home: Path, quick_evaluation: SpeedEvaluator, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    monkeypatch.setattr(endpoint.Endpoint, "ask", with_rule(endpoint.Endpoint.ask))
    good = [Answer(plan_reply("n0", "use exp2")), Answer(fast(2))]
    mended = False
    left = [*good, Answer(fast(3)), Answer(fast(2.5)), Answer(EMPTY)]

    def script(prompt: str) -> Answer:
        if len(left) == 3 and not mended:
            return answer
        return left.pop(0) if len(left) > 1 else left[0]

    with serve(script) as server:
        broken = kx("search", "--kernel", "mamba_scan", "--model", "scripted", "--base-url", server.url)
        assert broken.exit_code == 3, broken.output
        assert said in broken.stderr
        mended = True
        result = kx("resume", "--json")
    payload = parse_one_object(result)
    assert payload["best"]["score"] == pytest.approx(3.0)
    assert len(quick_evaluation.evaluated) == len(set(quick_evaluation.evaluated)) == 4
    assert len(list((home / "runs" / payload["run"] / "replies").iterdir())) == 6


def with_rule(ask: Any) -> Any:
    def asked(self: endpoint.Endpoint, question: Any) -> Any:
        self.rule = RULE
        return ask(self, question)

    return asked


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--model", "x"), 3, "OPENAI_API_KEY"),
        (("--model", "x", "--by-hand"), 2, "exclude each other"),
        (("--model", "x=0"), 2, "no positive number"),
        (("--model", "x", "--price", "y=1,2"), 2, "--price names y"),
        (("--model", "x", "--price", "x=1"), 2, "does not parse"),
        (("--model", "x", "--cost", "1"), 2, "--price NAME=IN,OUT"),
        (("--model", "x", "--base-url", "localhost:1"), 2, "no URL"),
        (("--model", "x", "--base-url", "http://me:pw@localhost/v1"), 2, "holds a user or password"),
        (("--tokens", "9"), 2, "--tokens needs --model"),
        (("--planner", "graph"), 2, "--planner needs --model"),
    ],
)
def test_options_that_make_no_sense_write_nothing(
    kx: Kx, home: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    result = kx("search", "--kernel", "mamba_scan", *options)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert not (home / "runs").exists()


def test_token_budget_ends_a_search_with_its_best_so_far(kx: Kx, quick_evaluation: SpeedEvaluator) -> None:
    with serve(in_order(Answer(plan_reply("n0", "a", "b")), Answer(fast(2)), Answer(fast(3)))) as server:
        result = kx(
            "search", "--kernel", "mamba_scan", "--model", "scripted", "--base-url", server.url, "--tokens", "3000",
            "--json",
        )  # fmt: skip
    payload = parse_one_object(result)
    assert payload["stopped_because"] == "the models' tokens budget of 3000 tokens is used up"
    assert payload["best"]["score"] >= 1.0


def test_empty_or_missing_reply_file_is_told_and_loses_nothing(
    kx: Kx, quick_evaluation: SpeedEvaluator, tmp_path: Path
) -> None:
    run = parse_one_object(kx("search", "--kernel", "mamba_scan", "--by-hand", "--json"))["run"]
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, said in (("empty", "is empty"), ("binary", "UTF-8"), ("nowhere", "does not exist")):
        result = kx("submit", run, "n0", str(tmp_path / name))
        assert result.exit_code == 2
        assert said in result.stderr
    assert parse_one_object(kx("prompt", run, "--json"))["waiting"] is True
