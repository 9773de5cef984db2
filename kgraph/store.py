"""Where triples live: named graphs behind one protocol, in the store that the settings name.

The curated graph comes with the package and is read from there, whatever the store. Each ingested source
is one named graph, each search run's observations another; a graph is replaced as a whole, so that a
reader sees the old one or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from kgraph.names import CURATED
from kgraph.sparql import Table
from kgraph.triples import Triple, Value
from kx.paths import Home
from kx.settings import Settings

if TYPE_CHECKING:
    from rdflib import Dataset

LAYOUT = "1"
"""Of what a store holds besides the graphs themselves; a store of another layout is refused."""

Change = Callable[[list[Triple]], list[Triple]]


class GraphStore(Protocol):
    """Named graphs of triples, safe to use from several processes at once.

    Any method that reads raises DataMalformed when what is stored cannot be read or has another layout,
    and StoreUnreachable when a remote store does not answer or another process holds this one too long.
    """

    @property
    def place(self) -> str:
        """What kind of store this is and where, in words."""
        ...

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Names (IRIs) of the stored graphs that begin with ``prefix``, sorted."""
        ...

    def read(self, name: str) -> list[Triple]:
        """Triples of a graph; empty when there is none of that name."""
        ...

    def find(self, prefix: str, predicate: str, value: Value | None = None, *, lenient: bool = False) -> list[Triple]:
        """Triples with a property, in the graphs whose names begin with ``prefix``; sorted by subject.

        Args:
            prefix: not of the curated graph.
            predicate: the property's IRI.
            value: only triples with this value, when given.
            lenient: pass over graphs whose stored form is damaged.
        """
        ...

    def count(self, prefix: str = "") -> int:
        """Triples of the graphs whose names begin with ``prefix``."""
        ...

    def replace(self, name: str, triples: Iterable[Triple]) -> None:
        """Make ``triples`` the whole content of a graph, atomically, also of one that is damaged."""
        ...

    def replace_all(self, graphs: Iterable[tuple[str, Iterable[Triple]]]) -> None:
        """Replace several graphs, each atomically; faster than one by one where that costs."""
        ...

    def update(self, name: str, change: Change) -> None:
        """Replace a graph by what ``change`` makes of it; nobody else writes it meanwhile.

        ``change`` may be called again when somebody did.
        """
        ...

    def remove(self, name: str) -> bool:
        """Drop a graph; whether it existed."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Many readings in a row, in which a store that costs to open is opened once; nothing is written."""
        ...

    def publish(self) -> None:
        """Make the store's copy of the curated graph, where it keeps one, that of this package."""
        ...

    def dataset(self) -> Dataset:
        """Every graph as an rdflib dataset, for validation and export."""
        ...

    def query(self, text: str) -> Table | str:
        """Answer of a SPARQL query over all graphs; the prefixes of ``kgraph.names`` need no declaration.

        Returns:
            A table for SELECT and ASK, Turtle for CONSTRUCT and DESCRIBE.

        Raises:
            InputError: the query does not parse.
        """
        ...

    def close(self) -> None:
        """Release files and connections; the store may be used again."""
        ...


def open_store(home: Home, settings: Settings | None = None) -> GraphStore:
    """The graph store of a data folder; reads and creates nothing yet.

    Args:
        home: data folder.
        settings: those of ``home`` when None.

    Raises:
        DataMalformed: the settings cannot be read.
    """
    chosen = settings or Settings.load(home)
    if chosen.graph_store == "files":
        from kgraph.stores.files import FileGraphStore

        return FileGraphStore(home)
    from kgraph.stores.sparql import SparqlGraphStore

    if chosen.graph_store == "oxigraph":
        from kgraph.stores.embedded import OxigraphEngine

        return SparqlGraphStore(OxigraphEngine(home.graph / "oxigraph"), home.cache)
    from kgraph.stores.endpoint import Endpoint

    return SparqlGraphStore(Endpoint.of(chosen), home.cache)


def refuse_curated(name: str) -> None:
    """The curated graph is not written through a store.

    Raises:
        ValueError: ``name`` is the curated graph's.
    """
    if name == CURATED:
        raise ValueError("the curated graph is part of the package and is edited there")
