from __future__ import annotations

from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from kx.paths import Home


@pytest.fixture(scope="session")
def curated(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    """The curated graph with nothing ingested; read only."""
    return KnowledgeGraph.open(Home(tmp_path_factory.mktemp("home")))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "kx")


@pytest.fixture
def graph(home: Home) -> KnowledgeGraph:
    return KnowledgeGraph.open(home)
