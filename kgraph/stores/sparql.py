"""Named graphs behind SPARQL 1.1: the same statements for a store on disk and for an endpoint.

The graph ``urn:kx:graph:store`` holds what the store knows of itself: its layout, which curated knowledge
it has a copy of, and per graph a revision, which changes with each write. A graph is ours if it has one, so
an endpoint may hold other data too. ``update`` compares and swaps: its request changes the graph only where
the revision is still the one that was read, so that no lock is needed across machines.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kgraph.load import content_key, curated_files, load_triples, parse_turtle
from kgraph.names import CURATED, PREFIXES, schema
from kgraph.sparql import Table
from kgraph.store import LAYOUT, Change, refuse_curated
from kgraph.triples import Node, Triple, Value
from kgraph.turtle import to_ntriples, to_turtle
from kx.errors import DataMalformed, InputError, StoreUnreachable

if TYPE_CHECKING:
    from rdflib import Dataset

STORE = "urn:kx:graph:store"
_SELF = "urn:kx:store"
_LAYOUT, _REVISION, _CONTENT_KEY = schema("layout"), schema("revision"), schema("contentKey")
_BATCH_TRIPLES = 20_000
_TRIES = 30
_LONGEST_PAUSE_S = 0.2


@dataclass(frozen=True)
class Answer:
    """Rows of a SELECT, the truth of an ASK, or the triples of a CONSTRUCT or DESCRIBE.

    Attributes:
        columns: names of the variables; empty for others than a SELECT.
        rows: a value per column, None where unbound; subject, property and value of each triple.
        truth: of an ASK, None for all others.
        is_graph: whether the rows are triples.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Value | None, ...], ...] = ()
    truth: bool | None = None
    is_graph: bool = False

    def told(self) -> Table | str:
        """The answer as a table of texts, or as Turtle."""
        if self.is_graph:
            return to_turtle(_triples(self)).strip()
        if self.truth is not None:
            return Table(("answer",), ((str(self.truth).lower(),),))
        rows = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in self.rows)
        return Table(self.columns, rows)


class Engine(Protocol):
    """Whatever answers SPARQL; errors are ours.

    Attributes:
        place: what it is and where, in words.
        is_shared: whether others rely on what it holds, so that asking must not change it.
    """

    place: str
    is_shared: bool

    def query(self, text: str) -> Answer:
        """Answer of a query; patterns outside of GRAPH match in every graph.

        Raises:
            InputError: the query is refused.
        """
        ...

    def update(self, text: str) -> None:
        """Carry out an update request, wholly or not at all."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Keep what is costly to open open for several queries."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """The same for queries and updates; where the engine can, nobody else writes meanwhile."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class SparqlGraphStore:
    """`kgraph.store.GraphStore` over an engine.

    Args:
        engine: answers queries and updates.
        cache: folder of the parsed curated knowledge, which is read from the package.
    """

    def __init__(self, engine: Engine, cache: Path) -> None:
        self._engine = engine
        self._cache = cache
        self._layout_checked = False
        self._published = False

    @property
    def place(self) -> str:
        """As ``GraphStore.place``."""
        return self._engine.place

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """As ``GraphStore.names``."""
        rows = self._ask(f"SELECT ?g {{ GRAPH <{STORE}> {{ ?g <{_REVISION}> ?r }} }}").rows
        found = {CURATED, *(str(row[0]) for row in rows)}
        return tuple(sorted(name for name in found if name.startswith(prefix)))

    def read(self, name: str) -> list[Triple]:
        """As ``GraphStore.read``."""
        if name == CURATED:
            return load_triples(curated_files(), self._cache)
        answer = self._ask(f"SELECT ?s ?p ?o {{ GRAPH {_iri(name)} {{ ?s ?p ?o }} }}")
        return sorted(_triples(answer), key=lambda row: (row[0], row[1], str(row[2])))

    def find(self, prefix: str, predicate: str, value: Value | None = None, *, lenient: bool = False) -> list[Triple]:
        """As ``GraphStore.find``; a store whose graphs are all in one place has none that is damaged alone."""
        target = "?o" if value is None else _term(value)
        answer = self._ask(
            f"SELECT ?s {'?o' if value is None else ''} {{ GRAPH ?g {{ ?s {_iri(predicate)} {target} }} "
            f"FILTER(STRSTARTS(STR(?g), {_term(prefix)})) }}"
        )
        found = [(str(row[0]), predicate, row[-1] if value is None else value) for row in answer.rows]
        kept = [(s, p, o) for s, p, o in found if o is not None]
        return sorted(kept, key=lambda row: (row[0], str(row[2])))

    def count(self, prefix: str = "") -> int:
        """As ``GraphStore.count``."""
        answer = self._ask(
            f"SELECT (COUNT(*) AS ?n) {{ GRAPH <{STORE}> {{ ?g <{_REVISION}> ?r }} "
            f"FILTER(STRSTARTS(STR(?g), {_term(prefix)})) GRAPH ?g {{ ?s ?p ?o }} }}"
        )
        own = len(self.read(CURATED)) if CURATED.startswith(prefix) else 0
        return own + int(str(answer.rows[0][0]))

    def replace(self, name: str, triples: Iterable[Triple]) -> None:
        """As ``GraphStore.replace``."""
        self.replace_all([(name, triples)])

    def replace_all(self, graphs: Iterable[tuple[str, Iterable[Triple]]]) -> None:
        """As ``GraphStore.replace_all``: a request per some twenty thousand triples."""
        for batch in _batches(graphs):
            for name, _ in batch:
                refuse_curated(name)
            with self._engine.writing():
                self.publish()
                self._engine.update(" ;\n".join(_replacement(name, triples) for name, triples in batch))

    def update(self, name: str, change: Change) -> None:
        """As ``GraphStore.update``."""
        refuse_curated(name)
        with self._engine.writing():
            self.publish()
            for attempt in range(_TRIES):
                before = self._revision(name)
                after = uuid.uuid4().hex
                self._engine.update(_swap(name, (before, after), change(self.read(name))))
                if self._revision(name) == after:
                    return
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S * attempt / _TRIES))
        raise StoreUnreachable(f"{self.place}: others keep changing {name}", "run the command again")

    def remove(self, name: str) -> bool:
        """As ``GraphStore.remove``."""
        if not self._revision(name):
            return False
        with self._engine.writing():
            existed = self._revision(name) != ""
            self._engine.update(
                f"DROP SILENT GRAPH {_iri(name)} ;\n"
                f"DELETE WHERE {{ GRAPH <{STORE}> {{ {_iri(name)} <{_REVISION}> ?r }} }}"
            )
        return existed

    @contextmanager
    def batch(self) -> Iterator[None]:
        """As ``GraphStore.batch``."""
        with self._engine.reading():
            yield

    def publish(self) -> None:
        """As ``GraphStore.publish``; writes only where the store's copy is another one."""
        if self._published:
            return
        key = content_key(curated_files())
        held = self._ask(f"ASK {{ GRAPH <{STORE}> {{ <{CURATED}> <{_CONTENT_KEY}> {_term(key)} }} }}").truth
        if not held:
            with self._engine.writing():
                about_itself = f"<{_SELF}> <{_LAYOUT}> {_term(LAYOUT)} . <{CURATED}> <{_CONTENT_KEY}> {_term(key)}"
                self._engine.update(
                    f"DROP SILENT GRAPH <{CURATED}> ;\n"
                    f"DELETE WHERE {{ GRAPH <{STORE}> {{ <{CURATED}> <{_CONTENT_KEY}> ?k }} }} ;\n"
                    f"INSERT DATA {{ GRAPH <{CURATED}> {{\n{to_ntriples(self.read(CURATED))}}} "
                    f"GRAPH <{STORE}> {{ {about_itself} }} }}"
                )
        self._published = True

    def dataset(self) -> Dataset:
        """As ``GraphStore.dataset``."""
        from rdflib import Dataset, URIRef

        from kgraph.load import to_graph

        dataset = Dataset(default_union=True)
        for prefix, namespace in PREFIXES.items():
            dataset.bind(prefix, namespace)
        for triple in parse_turtle(curated_files()):
            dataset.graph(URIRef(CURATED)).add(triple)
        answer = self._ask(
            f"SELECT ?g ?s ?p ?o {{ GRAPH <{STORE}> {{ ?g <{_REVISION}> ?r }} GRAPH ?g {{ ?s ?p ?o }} }}"
        )
        rows = sorted(answer.rows, key=lambda row: str(row[0]))
        for name, members in groupby(rows, key=lambda row: str(row[0])):
            target = dataset.graph(URIRef(name))
            for triple in to_graph(_triples(Answer(rows=tuple(row[1:] for row in members)))):
                target.add(triple)
        return dataset

    def query(self, text: str) -> Table | str:
        """As ``GraphStore.query``; the store's engine answers, from its copy of the curated knowledge."""
        if not self._engine.is_shared:
            self.publish()
        return self._ask(text).told()

    def close(self) -> None:
        """As ``GraphStore.close``."""
        self._engine.close()

    def _revision(self, name: str) -> str:
        rows = self._ask(f"SELECT ?r {{ GRAPH <{STORE}> {{ {_iri(name)} <{_REVISION}> ?r }} }}").rows
        return str(rows[0][0]) if rows else ""

    def _ask(self, text: str) -> Answer:
        if not self._layout_checked:
            rows = self._engine.query(f"SELECT ?l {{ GRAPH <{STORE}> {{ <{_SELF}> <{_LAYOUT}> ?l }} }}").rows
            if rows and {str(row[0]) for row in rows} != {LAYOUT}:
                raise DataMalformed(
                    f"{self.place} has layout {', '.join(sorted(str(row[0]) for row in rows))}, this kx knows {LAYOUT}",
                    "use the kx that wrote it, or set graph_store to another place; kx ingest fills a new one",
                )
            self._layout_checked = True
        return self._engine.query(text)


def _batches(graphs: Iterable[tuple[str, Iterable[Triple]]]) -> Iterator[list[tuple[str, list[Triple]]]]:
    batch: list[tuple[str, list[Triple]]] = []
    size = 0
    for name, triples in graphs:
        content = list(triples)
        batch.append((name, content))
        size += len(content)
        if size >= _BATCH_TRIPLES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _replacement(name: str, triples: list[Triple]) -> str:
    graph = _iri(name)
    revision = _term(uuid.uuid4().hex)
    return (
        f"DROP SILENT GRAPH {graph} ;\n"
        f"DELETE WHERE {{ GRAPH <{STORE}> {{ {graph} <{_REVISION}> ?r }} }} ;\n"
        f"INSERT DATA {{ GRAPH {graph} {{\n{to_ntriples(triples)}}} "
        f"GRAPH <{STORE}> {{ {graph} <{_REVISION}> {revision} }} }}"
    )


def _swap(name: str, revisions: tuple[str, str], triples: list[Triple]) -> str:
    """A request that replaces a graph if its revision is still the first of two, and makes it the second."""
    graph, (before, after) = _iri(name), revisions
    if before:
        unchanged = f"GRAPH <{STORE}> {{ {graph} <{_REVISION}> {_term(before)} }}"
    else:
        unchanged = f"FILTER NOT EXISTS {{ GRAPH <{STORE}> {{ {graph} <{_REVISION}> ?any }} }}"
    return (
        f"DELETE {{ GRAPH {graph} {{ ?s ?p ?o }} }} WHERE {{ GRAPH {graph} {{ ?s ?p ?o }} {unchanged} }} ;\n"
        f"INSERT {{ GRAPH {graph} {{\n{to_ntriples(triples)}}} }} WHERE {{ {unchanged} }} ;\n"
        f"DELETE {{ GRAPH <{STORE}> {{ {graph} <{_REVISION}> ?r }} }} "
        f"INSERT {{ GRAPH <{STORE}> {{ {graph} <{_REVISION}> {_term(after)} }} }} "
        f"WHERE {{ {unchanged} OPTIONAL {{ GRAPH <{STORE}> {{ {graph} <{_REVISION}> ?r }} }} }}"
    )


def _triples(answer: Answer) -> list[Triple]:
    return [(str(s), str(p), o) for s, p, o in answer.rows if o is not None]


def _iri(name: str) -> str:
    return _term(Node(name))


def _term(value: Value) -> str:
    return to_ntriples([("urn:s", "urn:p", value)]).removeprefix("<urn:s> <urn:p> ").removesuffix(" .\n")


def plain(lexical: str, datatype: str) -> Value:
    """A literal as a plain value: numbers for XSD's numeric types, text for all others."""
    kind = datatype.removeprefix(PREFIXES["xsd"])
    if kind in _INTEGERS:
        return int(lexical)
    if kind in ("double", "float", "decimal"):
        return float(lexical)
    return lexical


_INTEGERS = frozenset(
    ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "unsignedInt",
     "unsignedLong", "unsignedShort", "unsignedByte", "negativeInteger", "nonPositiveInteger")
)  # fmt: skip


def declared(query: str) -> str:
    """A query with the prefixes of ``kgraph.names`` that it uses, on its first line."""
    used = [f"PREFIX {prefix}: <{iri}>" for prefix, iri in PREFIXES.items() if f"{prefix}:" in query]
    return " ".join([*used, query])


def refused(reason: str) -> InputError:
    """The error of a query that an engine does not take."""
    return InputError(f"the query does not parse: {reason}", "it must be one SPARQL 1.1 query")
