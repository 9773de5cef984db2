"""Oxigraph in this process: on disk, or in memory for a query over files; the only module that imports it.

Oxigraph lets one process write and keeps it locked while open; reading while another writes is undefined.
So a store on disk is opened for the length of an operation (some 15 ms to read, 50 ms to write), under a
lock file of ours that readers share and a writer has alone.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kgraph.names import PREFIXES
from kgraph.stores.sparql import Answer, plain, refused
from kgraph.triples import Node, Value
from kx.errors import DataMalformed
from kx.paths import waiting_lock

if TYPE_CHECKING:
    from pyoxigraph import BlankNode, Literal, NamedNode, Store
    from pyoxigraph import Triple as QuotedTriple

LOCK_TIMEOUT_S = 60.0
_CURRENT = "CURRENT"


class MemoryEngine:
    """Graphs in memory, for one query."""

    def __init__(self) -> None:
        from pyoxigraph import Store

        self._store = Store()

    def load(self, path: Path, name: str) -> None:
        """Add a Turtle file to the graph ``name``.

        Raises:
            DataMalformed: the file does not parse; names file and line.
        """
        from pyoxigraph import NamedNode, RdfFormat

        try:
            self._store.bulk_load(path=path, format=RdfFormat.TURTLE, to_graph=NamedNode(name))
        except SyntaxError as exc:
            raise DataMalformed(f"{path}:{exc.lineno or 1}: {exc.msg}", "mend the Turtle at that line") from exc
        except OSError as exc:
            raise DataMalformed(f"{path}: {exc}", "make it readable") from exc

    def query(self, text: str) -> Answer:
        """As ``Engine.query``."""
        return _answer(self._store, text)


class OxigraphEngine:
    """A store on disk that several processes share.

    Args:
        folder: the store's own; created at the first write.
        timeout_s: how long to wait for other processes.
    """

    def __init__(self, folder: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._held: Store | None = None
        self._may_write = False
        self.is_shared = False
        self.place = f"Oxigraph in {folder}"

    def query(self, text: str) -> Answer:
        """As ``Engine.query``."""
        with self.reading():
            assert self._held is not None
            with self._told_as_ours():
                return _answer(self._held, text)

    def update(self, text: str) -> None:
        """As ``Engine.update``: a transaction."""
        with self.writing():
            assert self._held is not None
            with self._told_as_ours():
                self._held.update(text)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """As ``Engine.reading``: writers wait meanwhile."""
        if self._held is not None:
            yield
            return
        if self._folder.exists():
            with self._locked(shared=True), self._opened(writing=False):
                yield
        else:
            with self._opened(writing=False, absent=True):  # reading creates nothing
                yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """As ``Engine.writing``: all others wait meanwhile."""
        if self._held is not None:
            if not self._may_write:
                raise RuntimeError("a batch of readings does not write")
            yield
            return
        with self._locked(shared=False), self._opened(writing=True):
            yield

    def close(self) -> None:
        """Nothing is held between operations."""

    @contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        lock_file = self._folder.parent / "locks" / "oxigraph.lock"
        with waiting_lock(lock_file, shared=shared, timeout_s=self._timeout_s, what=self.place):
            yield

    @contextmanager
    def _opened(self, *, writing: bool, absent: bool = False) -> Iterator[None]:
        from pyoxigraph import Store

        with self._told_as_ours():
            if writing:
                self._refuse_foreign_folder()
                self._folder.mkdir(parents=True, exist_ok=True)
                self._held = Store(self._folder)
            else:
                self._held = Store() if absent else Store.read_only(str(self._folder))
        self._may_write = writing
        try:
            yield
            if writing:
                # What is in the log alone, each reader would replay: half a second after 20,000 triples.
                with self._told_as_ours():
                    self._held.flush()
        finally:
            self._held = None  # closes it: the object has no other owner
            if writing:
                self._forget_logs()

    def _refuse_foreign_folder(self) -> None:
        """Oxigraph would make a new store in a folder that lost its index, beside the data that is there."""
        if self._folder.is_dir() and any(self._folder.glob("*.sst")) and not (self._folder / _CURRENT).exists():
            raise OSError(f"{self._folder / _CURRENT} is missing")

    def _forget_logs(self) -> None:
        for log in self._folder.glob("LOG.old.*"):
            with contextlib.suppress(OSError):
                log.unlink()

    @contextmanager
    def _told_as_ours(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as exc:  # what it raises on a corrupt table is a RuntimeError
            if isinstance(exc, OSError) and exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC):
                raise  # the machine's doing, not the store's
            raise DataMalformed(
                f"the graph store in {self._folder} cannot be used: {exc}",
                f"put back a copy of {self._folder}, or delete it: kx ingest reads the sources again, "
                "and the observations of searches are lost",
            ) from exc


def _answer(store: Store, text: str) -> Answer:
    from pyoxigraph import QueryBoolean, QuerySolutions

    try:
        found = store.query(text, prefixes=PREFIXES, use_default_graph_as_union=True)
        if isinstance(found, QueryBoolean):
            return Answer(truth=bool(found))
        if not isinstance(found, QuerySolutions):
            triples = tuple((_plain(row.subject), _plain(row.predicate), _plain(row.object)) for row in found)
            return Answer(rows=triples, is_graph=True)
        columns = tuple(variable.value for variable in found.variables)
        rows = tuple(tuple(None if cell is None else _plain(cell) for cell in solution) for solution in found)
    except SyntaxError as exc:
        raise refused(str(exc.msg)) from exc
    return Answer(columns, rows)


def triples_of(text: bytes) -> Answer:
    """Triples in N-Triples as an answer.

    Raises:
        SyntaxError: the text is none.
    """
    from pyoxigraph import RdfFormat, parse

    rows = (
        (_plain(row.subject), _plain(row.predicate), _plain(row.object)) for row in parse(text, RdfFormat.N_TRIPLES)
    )
    return Answer(rows=tuple(rows), is_graph=True)


def _plain(term: NamedNode | BlankNode | Literal | QuotedTriple) -> Value:
    from pyoxigraph import Literal, NamedNode

    if isinstance(term, Literal):
        return plain(term.value, term.datatype.value)
    return Node(term.value if isinstance(term, NamedNode) else str(term))
