from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from kx.paths import Home
from retrieval.index import Index
from tests.unit.retrieval.doubles import HashingEmbedder, MemoryStore


@pytest.fixture(scope="session")
def curated_graph(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    """The packaged knowledge, with nothing ingested."""
    return KnowledgeGraph.open(Home(tmp_path_factory.mktemp("curated")))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def index(home: Home, embedder: HashingEmbedder, store: MemoryStore) -> Iterator[Index]:
    with Index.open(home, lambda: embedder, lambda folder, model: store) as opened:
        yield opened
