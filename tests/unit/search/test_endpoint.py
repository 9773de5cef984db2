"""The real client against a server that misbehaves in every scripted way: a reply, or a clear end in time."""

from __future__ import annotations

import threading
import time

import pytest

from search.models import EndpointFailed, Question, Reply
from search.models.endpoint import Endpoint, RetryRule
from search.models.mixture import Mixture
from tests.scripted_endpoint import KEY, Answer, in_order, serve

QUICK = RetryRule(attempts=3, first_wait_s=0.01, longest_wait_s=0.3, answer_s=1.0, whole_s=3.0)
QUESTION = Question("write", "n1", "write a kernel")


def ask(*answers: Answer, rule: RetryRule = QUICK) -> tuple[Reply, int, list[str]]:
    notices: list[str] = []
    with serve(in_order(*answers)) as server:
        endpoint = Endpoint("scripted", server.url, KEY, rule, notice=notices.append)
        reply = endpoint.ask(QUESTION)
        assert server.keys[-1] == KEY
        assert server.prompts[-1] == QUESTION.text
    return reply, len(server.prompts), notices


def test_reply_comes_with_its_tokens_and_model() -> None:
    reply, count, _ = ask(Answer("hello"))
    assert (reply.text, reply.model, reply.prompt_tokens, reply.completion_tokens, reply.flaw, count) == (
        "hello", "scripted", 1000, 200, "", 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(status=500),
        Answer(status=503),
        Answer(status=429),
        Answer(close=True),
        Answer(raw=b'{"choices": [{"mess'),
        Answer(raw=b"{}"),
        Answer(raw=b'{"choices": []}'),
        Answer(raw=b"<html>busy</html>"),
        Answer(stall_s=1.5),
    ],
    ids=["500", "503", "429", "closed", "cut-json", "empty-json", "no-choice", "html", "stall"],
)
def test_passing_trouble_is_tried_again_and_told(trouble: Answer) -> None:
    reply, count, notices = ask(trouble, Answer("at last"))
    assert reply.text == "at last"
    assert count == 2
    assert len(notices) == 1
    assert "trying again" in notices[0]


def test_retry_after_is_obeyed() -> None:
    started = time.monotonic()
    _, count, _ = ask(Answer(status=429, headers={"Retry-After": "0.25"}), Answer("now"))
    assert count == 2
    assert time.monotonic() - started >= 0.25


def test_retry_after_of_an_hour_is_cut_to_the_longest_wait() -> None:
    started = time.monotonic()
    ask(Answer(status=429, headers={"Retry-After": "3600"}), Answer("now"))
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        (Answer("bad key", status=401), "refuses the key: ", "OPENAI_API_KEY"),
        (Answer("not yours", status=403), "refuses the key: ", "OPENAI_API_KEY"),
        (Answer("too long", status=400), "status 400: ", ""),
        (Answer("pay first", status=429, error_code="insufficient_quota"), "no quota left", "raise it"),
    ],
)
def test_what_no_retry_can_mend_ends_at_once(answer: Answer, said: str, hint: str) -> None:
    with serve(in_order(answer)) as server, pytest.raises(EndpointFailed, match=said) as caught:
        Endpoint("scripted", server.url, KEY, QUICK).ask(QUESTION)
    assert len(server.prompts) == 1
    assert hint in caught.value.hint
    assert KEY not in str(caught.value)


def test_unknown_model_is_told_with_those_that_exist() -> None:
    with serve(in_order(Answer("x")), known=("scripted-large",)) as server, pytest.raises(EndpointFailed) as caught:
        Endpoint("scripted-larg", server.url, KEY, QUICK).ask(QUESTION)
    assert "scripted-larg'" in caught.value.message
    assert "scripted-large" in caught.value.hint


def test_dead_endpoint_ends_within_its_limit_and_says_where() -> None:
    with serve(in_order(Answer("x"))) as server:
        url = server.url
    started = time.monotonic()
    endpoint = Endpoint("scripted", url, KEY, QUICK)
    with pytest.raises(EndpointFailed, match="gave no reply after 3 tries: no connection") as caught:
        endpoint.ask(QUESTION)
    assert time.monotonic() - started < QUICK.whole_s
    assert url in caught.value.message


@pytest.mark.parametrize("answer", [Answer(stall_s=60), Answer(dribble=True)], ids=["silent", "dribbling"])
def test_server_that_never_ends_is_left_within_the_limit(answer: Answer) -> None:
    rule = RetryRule(attempts=2, first_wait_s=0.01, answer_s=0.4, whole_s=1.0)
    started = time.monotonic()
    with serve(in_order(answer)) as server, pytest.raises(EndpointFailed):
        Endpoint("scripted", server.url, KEY, rule).ask(QUESTION)
    assert time.monotonic() - started < 3


def test_circuit_opens_after_failures_in_a_row() -> None:
    rule = RetryRule(attempts=1, failures_to_open=2, answer_s=1.0)
    with serve(in_order(Answer(status=500))) as server:
        endpoint = Endpoint("scripted", server.url, KEY, rule)
        for _ in range(2):
            with pytest.raises(EndpointFailed, match="status 500"):
                endpoint.ask(QUESTION)
        with pytest.raises(EndpointFailed, match="failed 2 times in a row"):
            endpoint.ask(QUESTION)
    assert len(server.prompts) == 2


def test_cancelling_ends_a_wait_at_once() -> None:
    rule = RetryRule(attempts=5, first_wait_s=30.0, longest_wait_s=30.0, whole_s=600.0)
    with serve(in_order(Answer(status=500))) as server:
        endpoint = Endpoint("scripted", server.url, KEY, rule)
        threading.Timer(0.3, endpoint.cancelled.set).start()
        started = time.monotonic()
        with pytest.raises(EndpointFailed):
            endpoint.ask(QUESTION)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("answer", "flaw"),
    [
        (Answer("half a ker", finish_reason="length"), "cut off"),
        (Answer("", refusal="I can't help with that."), "refused: I can't help"),
        (Answer("", finish_reason="content_filter"), "filter"),
        (Answer("  \n"), "empty"),
    ],
)
def test_reply_that_is_not_whole_carries_its_flaw(answer: Answer, flaw: str) -> None:
    reply, count, _ = ask(answer)
    assert flaw in reply.flaw
    assert count == 1


def test_mixture_goes_on_without_a_dead_model() -> None:
    with serve(in_order(Answer("alive"))) as server:
        dead = Endpoint("dead", server.url, KEY, QUICK)
        alive = Endpoint("scripted", server.url, KEY, QUICK)
        mixture = Mixture([dead, alive], {"dead": 5.0, "scripted": 1.0}, seed=1)
        assert [mixture.ask(QUESTION).text for _ in range(4)] == ["alive"] * 4
    assert server.models.count("dead") == 1


def test_bandit_comes_to_prefer_the_model_that_succeeds() -> None:
    with serve(in_order(Answer("x")), known=("good", "poor")) as server:
        models = [Endpoint(name, server.url, KEY, QUICK) for name in ("good", "poor")]
        mixture = Mixture(models, {}, "bandit")
        for _ in range(20):
            reply = mixture.ask(QUESTION)
            mixture.learn(reply, 1.0 if reply.model == "good" else 0.0)
    assert server.models.count("good") >= 14
    assert server.models.count("poor") >= 1
