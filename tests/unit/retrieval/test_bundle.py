"""The vectors that come with the package: right, for most of the knowledge, and used only for their model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from kgraph.graph import KnowledgeGraph
from kx.paths import Home
from retrieval.bundle import bundled_vectors
from retrieval.embedding import SentenceEmbedder
from retrieval.entries import curated_entries
from retrieval.index import Index, embedded_text

NAME = SentenceEmbedder().name


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    graph = KnowledgeGraph.open(Home(tmp_path_factory.mktemp("home")))
    return sorted({embedded_text(entry) for entry in curated_entries(graph)})


def test_most_of_the_knowledge_has_its_vector(texts: list[str]) -> None:
    known = bundled_vectors(NAME)
    covered = sum(digest(text) in known for text in texts)
    assert covered >= 0.8 * len(texts), "make vectors brings them up to date"


def test_vectors_are_those_of_the_model_within_half_precision(texts: list[str]) -> None:
    known = bundled_vectors(NAME)
    sample = [text for text in texts if digest(text) in known][::97]
    made = SentenceEmbedder().embed(sample)
    for text, vector in zip(sample, made, strict=True):
        assert np.linalg.norm(known[digest(text)]) == pytest.approx(1.0, abs=1e-5)
        assert float(known[digest(text)] @ vector) > 1 - 1e-5


def test_another_model_gets_none() -> None:
    assert bundled_vectors("another@00000000") == {}


def test_texts_that_come_with_a_vector_are_not_embedded(tmp_path: Path) -> None:
    class Counting(SentenceEmbedder):
        asked = 0

        def embed(self, texts: list[str]) -> np.ndarray:
            type(self).asked += len(texts)
            return super().embed(texts)

    home = Home(tmp_path)
    known = bundled_vectors(NAME)
    curated = curated_entries(KnowledgeGraph.open(home))
    entries = [entry for entry in curated if digest(embedded_text(entry)) in known]
    with Index.open(home, Counting) as index:
        index.sync_curated(entries[:50])
        assert index.pending_count() == 0
        assert index.embed_pending() == 0
        assert Counting.asked == 0
        assert index.nearest(embedded_text(entries[7]), 1)[0][0] == entries[7].id
