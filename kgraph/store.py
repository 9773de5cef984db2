"""Where triples live: named graphs behind one protocol; here, as files.

The curated graph comes with the package. Each ingested source is one Turtle file, each search run's
observations another; a file is replaced as a whole, so that a reader sees the old one or the new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kgraph.load import curated_files, load_triples, parse_turtle
from kgraph.names import CURATED, OBSERVATIONS, PREFIXES, XSD
from kgraph.triples import Node, Triple, Value
from kgraph.turtle import to_turtle
from kx.errors import DataMalformed, FileUnreadable
from kx.paths import Home, exclusive, write_atomically

if TYPE_CHECKING:
    from rdflib import Dataset, Graph, Literal


class GraphStore(Protocol):
    """Named graphs of triples, safe to use from several processes at once."""

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Names (IRIs) of the stored graphs that begin with ``prefix``, sorted."""
        ...

    def read(self, name: str) -> list[Triple]:
        """Triples of a graph; empty when there is none of that name.

        Raises:
            DataMalformed: its stored form does not parse.
        """
        ...

    def replace(self, name: str, triples: Iterable[Triple]) -> None:
        """Make ``triples`` the whole content of a graph, atomically."""
        ...

    def update(self, name: str, change: Callable[[list[Triple]], list[Triple]]) -> None:
        """Replace a graph by what ``change`` makes of it; nobody else writes it meanwhile."""
        ...

    def remove(self, name: str) -> bool:
        """Drop a graph; whether it existed."""
        ...

    def dataset(self) -> Dataset:
        """Every graph as an rdflib dataset, for SPARQL, validation and export."""
        ...


class FileGraphStore:
    """Named graphs as Turtle files in the data folder.

    ``graph/sources/<hash>.ttl`` holds a source's graph, ``graph/observations/<hash>.ttl`` a run's; the
    first line of each is a comment with the graph's name. The curated graph is read-only.
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """As ``GraphStore.names``."""
        found = {CURATED}
        for path in self._files():
            name = _graph_name(path)
            if name:
                found.add(name)
        return tuple(sorted(name for name in found if name.startswith(prefix)))

    def read(self, name: str) -> list[Triple]:
        """As ``GraphStore.read``."""
        if name == CURATED:
            return load_triples(curated_files(), self._home.cache)
        path = self._path(name)
        with _told_as_ours(path):
            return load_triples([path], self._home.cache) if path.exists() else []

    def replace(self, name: str, triples: Iterable[Triple]) -> None:
        """As ``GraphStore.replace``."""
        content = list(triples)
        self.update(name, lambda _: content)

    def update(self, name: str, change: Callable[[list[Triple]], list[Triple]]) -> None:
        """As ``GraphStore.update``."""
        if name == CURATED:
            raise ValueError("the curated graph is part of the package and is edited there")
        path = self._path(name)
        with exclusive(self._home.graph / "locks" / f"{path.stem[:2]}.lock"):
            text = to_turtle(change(self.read(name)))
            write_atomically(path, f"# {name}\n{text}")

    def remove(self, name: str) -> bool:
        """As ``GraphStore.remove``."""
        path = self._path(name)
        with exclusive(self._home.graph / "locks" / f"{path.stem[:2]}.lock"):
            existed = path.exists()
            path.unlink(missing_ok=True)
        return existed

    def dataset(self) -> Dataset:
        """As ``GraphStore.dataset``."""
        from rdflib import Dataset, URIRef

        dataset = Dataset(default_union=True)
        for prefix, namespace in PREFIXES.items():
            dataset.bind(prefix, namespace)
        for name in self.names():
            target = dataset.graph(URIRef(name))
            if name == CURATED:
                parsed = parse_turtle(curated_files())
            else:
                with _told_as_ours(self._path(name)):
                    parsed = parse_turtle([self._path(name)])
            for triple in parsed:
                target.add(triple)
        return dataset

    def _path(self, name: str) -> Path:
        folder = "observations" if name.startswith(OBSERVATIONS) else "sources"
        return self._home.graph / folder / f"{hashlib.sha256(name.encode('utf-8')).hexdigest()[:32]}.ttl"

    def _files(self) -> list[Path]:
        return sorted((self._home.graph / "sources").glob("*.ttl")) + sorted(
            (self._home.graph / "observations").glob("*.ttl")
        )


@contextmanager
def _told_as_ours(path: Path) -> Iterator[None]:
    """A stored file was written by kx: nobody need mend it, since deleting it loses what can be had again."""
    try:
        yield
    except (DataMalformed, FileUnreadable) as error:
        again = (
            "kx ingest reads the source again" if path.parent.name == "sources" else "only its observations are lost"
        )
        raise DataMalformed(error.message, f"delete {path}: {again}") from error


def _graph_name(path: Path) -> str:
    try:
        # Bytes that are no text are told when the graph is read, with the file's name.
        with path.open(encoding="utf-8", errors="replace") as stream:
            first = stream.readline()
    except FileNotFoundError:  # removed by another process since the folder was listed
        return ""
    return first.removeprefix("#").strip()


def to_graph(triples: Iterable[Triple]) -> Graph:
    """An rdflib graph of plain triples."""
    from rdflib import Graph, URIRef

    graph = Graph()
    for prefix, namespace in PREFIXES.items():
        graph.bind(prefix, namespace)
    for subject, predicate, value in triples:
        term = URIRef(value) if isinstance(value, Node) else _literal(value)
        graph.add((URIRef(subject), URIRef(predicate), term))
    return graph


def _literal(value: Value) -> Literal:
    from rdflib import Literal, URIRef

    if isinstance(value, float):
        return Literal(repr(value), datatype=URIRef(XSD + "double"))
    return Literal(value)
