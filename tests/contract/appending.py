"""A process that writes to a graph beside others; imports little, since each process imports it anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kgraph.stores.files
import kgraph.stores.sparql
from kgraph.load import curated_files
from kgraph.store import open_store
from kx.paths import Home
from kx.settings import Settings


@contextmanager
def little_knowledge() -> Iterator[None]:
    """`know_little` for the length of the block."""
    know_little()
    yield
    for module in (kgraph.stores.files, kgraph.stores.sparql):
        module.curated_files = curated_files  # type: ignore[attr-defined]


def know_little() -> None:
    """Have stores know a few curated files only: that they copy all of them is no matter of these suites."""
    few = [path for path in curated_files() if path.stem in ("kx", "concepts-compute", "kernel-classes")]
    for module in (kgraph.stores.files, kgraph.stores.sparql):
        module.curated_files = lambda: few  # type: ignore[attr-defined]


def append(root: str, chosen: Settings, name: str, number: int) -> None:
    """Add three triples to the graph ``name``, one by one."""
    know_little()
    store = open_store(Home(Path(root)), chosen)
    for step in range(3):
        added = ("urn:kx:test:s", "urn:kx:test:p", 100 * number + step)
        store.update(name, lambda old, added=added: [*old, added])
        assert len(store.read(name)) > 0
