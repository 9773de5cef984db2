from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from kx.paths import Home


@pytest.fixture(scope="session")
def curated(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    """The curated graph with nothing ingested; read only."""
    return KnowledgeGraph.open(Home(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def parsed(curated: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that holds the curated files parsed."""
    curated.concepts()
    return Home(next(tmp_path_factory.getbasetemp().glob("home*"))).cache


@pytest.fixture
def home(tmp_path: Path, parsed: Path) -> Home:
    """A fresh data folder; only the curated files are parsed already."""
    made = Home(tmp_path / "kx")
    shutil.copytree(parsed, made.cache)
    return made


@pytest.fixture
def graph(home: Home) -> KnowledgeGraph:
    return KnowledgeGraph.open(home)
