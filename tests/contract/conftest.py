"""What contract suites share: every task that exists, on the metalsim back end, for one chip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from kx.paths import Home
from search.backends import Backend, Chip, open_backend
from search.session import chip_for
from search.task import Task, load_task, task_names


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    return KnowledgeGraph.open(Home(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def chip(graph: KnowledgeGraph) -> Chip:
    return chip_for(graph, "m1-max")


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(params=task_names())
def task(request: pytest.FixtureRequest) -> Task:
    return load_task(request.param)


@pytest.fixture
def new_backend(chip: Chip, kernel_cache: Path) -> Callable[[], Backend]:
    return lambda: open_backend("metalsim", chip, kernel_cache, None)
