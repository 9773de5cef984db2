from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.retrieval.questions import HALVES, Half, Question, deal, load_questions, read_questions
from kgraph.graph import KnowledgeGraph
from retrieval.entries import curated_entries

FIGURES_OF_CHIPS = ("urn:kx:chip:", "urn:kx:quantity:")


@pytest.fixture(scope="module")
def halves() -> dict[Half, tuple[Question, ...]]:
    return {half: load_questions(half) for half in HALVES}


def test_every_answer_is_an_entry_or_a_figure_of_a_chip(
    curated_graph: KnowledgeGraph, halves: dict[Half, tuple[Question, ...]]
) -> None:
    known = {entry.id for entry in curated_entries(curated_graph)}
    for question in (question for half in HALVES for question in halves[half]):
        for answer in question.answers:
            found = answer in known or (answer.startswith(FIGURES_OF_CHIPS) and curated_graph.describe(answer))
            assert found, f"{question.id}: {answer} is no node of the graph"
        assert len(set(question.answers)) == len(question.answers), question.id


def test_halves_are_large_enough_and_share_no_question(halves: dict[Half, tuple[Question, ...]]) -> None:
    assert all(len(halves[half]) >= 80 for half in HALVES)
    questions = [question for half in HALVES for question in halves[half]]
    assert max(Counter(question.id for question in questions).values()) == 1
    assert max(Counter(question.text.casefold() for question in questions).values()) == 1


def test_both_halves_have_every_topic_and_misspelt_tokens(halves: dict[Half, tuple[Question, ...]]) -> None:
    topics = {half: Counter(question.topic for question in halves[half]) for half in HALVES}
    styles = {half: Counter(question.style for question in halves[half]) for half in HALVES}
    assert topics["tuning"].keys() == topics["held_out"].keys()
    assert styles["tuning"].keys() == styles["held_out"].keys()
    assert all(abs(topics["tuning"][topic] - topics["held_out"][topic]) <= 3 for topic in topics["tuning"])
    assert all(styles[half]["wrong-token"] >= 7 for half in HALVES)


def test_dealing_gives_each_half_the_same_share_and_heeds_the_id_only() -> None:
    questions = [Question(f"q{number}", f"style{number % 3}", "topic", "text", ("a",)) for number in range(41)]
    dealt = deal(questions)
    assert sorted(len(dealt[half]) for half in HALVES) == [20, 21]
    by_style = {half: Counter(question.style for question in dealt[half]) for half in HALVES}
    assert all(abs(by_style["tuning"][style] - by_style["held_out"][style]) <= 1 for style in by_style["tuning"])
    reworded = deal([replace(question, text="other", answers=("b",)) for question in reversed(questions)])
    for half in HALVES:
        assert [question.id for question in reworded[half]] == [question.id for question in dealt[half]]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"answers": []}, "no answer"), ({"answer": ["a"]}, "a question has")],
)
def test_a_record_that_is_no_question_is_refused(tmp_path: Path, change: dict[str, list[str]], message: str) -> None:
    record = {"id": "q", "style": "how-to", "topic": "fact", "text": "why?", "answers": ["a"]} | change
    path = tmp_path / "new.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_questions(path)
