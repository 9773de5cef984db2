from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.retrieval.answers import AnswerResolver, read_any_questions
from benchmarks.retrieval.measure import Figures, figures, rank_of_answer, resolve
from benchmarks.retrieval.questions import Question
from kgraph.graph import KnowledgeGraph
from retrieval.entries import curated_entries


@pytest.fixture(scope="module")
def resolver(curated_graph: KnowledgeGraph) -> AnswerResolver:
    return AnswerResolver(curated_graph, curated_entries(curated_graph))


@pytest.mark.parametrize(
    ("answer", "entry"),
    [
        ("urn:kx:mapping:ldmatrix-to-metal-simdgroup-load", "urn:kx:mapping:ldmatrix-to-metal-simdgroup-load"),
        ("map:ldmatrix-to-metal-simdgroup-load", "urn:kx:mapping:ldmatrix-to-metal-simdgroup-load"),
        ("mapping:ldmatrix-to-metal-simdgroup-load", "urn:kx:mapping:ldmatrix-to-metal-simdgroup-load"),
        ("limit:simd-width", "urn:kx:constraint:simd-width"),
        ("urn:kx:quantity:m3-max-memory-bandwidth", "urn:kx:chip:m3-max"),
        ("online-softmax", "urn:kx:concept:online-softmax"),
        ("Online softmax", "urn:kx:concept:online-softmax"),
        ("m3-max", "urn:kx:chip:m3-max"),
        ("__shfl_xor_sync", "urn:kx:mapping:shfl-xor-sync-to-metal-simd-shuffle-xor"),
        ("__shfl_xor_sync", "urn:kx:primitive:cuda:shfl-xor-sync"),
        ("simd_shuffle_xor", "urn:kx:primitive:metal:simd-shuffle-xor"),
    ],
)
def test_answers_are_found_however_they_are_written(resolver: AnswerResolver, answer: str, entry: str) -> None:
    assert entry in resolver.resolve(answer)


def test_an_iri_is_no_other_node(resolver: AnswerResolver) -> None:
    assert resolver.resolve("urn:kx:concept:online-softmax") == {"urn:kx:concept:online-softmax"}


@pytest.mark.parametrize("answer", ["urn:kx:mapping:no-such", "no such thing at all", "nosuch:thing", ""])
def test_an_answer_that_no_node_gives_is_told(resolver: AnswerResolver, answer: str) -> None:
    question = Question("q", "", "", "text", (answer, "limit:simd-width"))
    (asked,) = resolve([question], resolver)
    assert asked.unresolved == (answer,)
    assert asked.answers == {"urn:kx:constraint:simd-width"}


def test_figures_of_known_ranks() -> None:
    assert figures([1, 5, 6, None]) == Figures(4, 0.5, 0.75, (1 + 1 / 5 + 1 / 6) / 4)
    with pytest.raises(ValueError, match="no question"):
        figures([])


def test_rank_is_of_the_first_hit_that_answers() -> None:
    assert rank_of_answer(["a", "b", "c"], frozenset({"c", "b"})) == 2
    assert rank_of_answer(["a"], frozenset({"c"})) is None


@pytest.mark.parametrize(
    "content",
    [
        '{"text": "what", "answers": ["simd-width"]}\n\n{"question": "why", "answer": "simd-width"}\n',
        json.dumps(
            [{"query": "what", "nodes": ["simd-width"]}, {"text": "why", "expected": ["simd-width"], "id": "x"}]
        ),
    ],
    ids=["lines", "list"],
)
def test_questions_of_other_people_are_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "q").write_text(content)
    questions = read_any_questions(tmp_path / "q")
    assert [(question.text, question.answers) for question in questions] == [
        ("what", ("simd-width",)),
        ("why", ("simd-width",)),
    ]


def test_a_question_without_answer_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "q").write_text('{"text": "what", "answers": ["a"]}\n{"text": "why"}')
    with pytest.raises(ValueError, match="question 2"):
        read_any_questions(tmp_path / "q")
