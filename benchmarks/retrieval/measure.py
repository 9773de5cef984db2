"""How well each ranking finds the nodes that answer a question."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.retrieval.answers import AnswerResolver
from benchmarks.retrieval.questions import Question
from retrieval.lexical import LexicalWeights
from retrieval.ranking import FusionWeights

DEPTH = 10
_ALONE = FusionWeights(dense=0.0, lexical=0.0, graph=0.0, repeat=0.0, priors={})
METHODS = {
    "dense only": replace(_ALONE, dense=1.0),
    "lexical only": replace(_ALONE, lexical=1.0),
    # Titles and names of nodes, and one step along the edges: neither texts nor embeddings.
    "graph only": replace(_ALONE, lexical=1.0, graph=1.0, words=LexicalWeights(text=0.0)),
    "fused": FusionWeights(),
}


@dataclass(frozen=True)
class Asked:
    """A question with the entries that answer it.

    Attributes:
        question: as written.
        answers: ids of entries; any one of them answers.
        unresolved: answers that no node of the graph gives.
    """

    question: Question
    answers: frozenset[str]
    unresolved: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """Of one method over some questions.

    Attributes:
        questions: how many.
        recall_at_5, recall_at_10: share of the questions with an answer among the first 5 and 10 hits.
        mean_reciprocal_rank: of the first answer; 0 where none is among the first 10.
    """

    questions: int
    recall_at_5: float
    recall_at_10: float
    mean_reciprocal_rank: float


def resolve(questions: Iterable[Question], resolver: AnswerResolver) -> list[Asked]:
    """Every question with the entries that answer it."""
    asked = []
    for question in questions:
        resolved = {answer: resolver.resolve(answer) for answer in question.answers}
        asked.append(
            Asked(
                question,
                frozenset().union(*resolved.values()),
                tuple(answer for answer, found in resolved.items() if not found),
            )
        )
    return asked


def rank_of_answer(hits: Sequence[str], answers: frozenset[str]) -> int | None:
    """Rank, from 1, of the first hit that answers; None when none does."""
    return next((rank for rank, hit in enumerate(hits, start=1) if hit in answers), None)


def figures(ranks: Sequence[int | None]) -> Figures:
    """Figures of the ranks of the first answers.

    Raises:
        ValueError: there are none.
    """
    if not ranks:
        raise ValueError("no question to measure")
    found = [rank for rank in ranks if rank is not None]
    return Figures(
        questions=len(ranks),
        recall_at_5=sum(rank <= 5 for rank in found) / len(ranks),
        recall_at_10=sum(rank <= 10 for rank in found) / len(ranks),
        mean_reciprocal_rank=sum(1 / rank for rank in found) / len(ranks),
    )


class Stopwatch:
    """Times of calls in milliseconds."""

    def __init__(self) -> None:
        self._started = 0.0
        self._times_ms: list[float] = []

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._times_ms.append((time.perf_counter() - self._started) * 1e3)

    @property
    def median_ms(self) -> float:
        """Median of the times."""
        return statistics.median(self._times_ms)
