"""The index: entries in SQLite, their vectors in a vector store that can always be built again.

The entries are the truth. Vectors are derived from them: a source whose entries changed is marked
pending in the same transaction, and `Index.embed_pending` brings the vector store in line. Vectors are
kept by the text that they stand for, so that a changed source costs the changed texts only, and the
store can be built again without the model. A process that dies in between loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kx.errors import DataMalformed
from kx.paths import Home, exclusive
from retrieval.bundle import bundled_vectors
from retrieval.exact import ExactSearch
from retrieval.model import Embedder, Entry, EntryKind, VectorStore

CURATED = "curated"
_SCHEMA_VERSION = 2
_EMBED_BATCH = 128
EXACT_LIMIT = 20_000
"""Entries up to which vectors are compared one by one, in memory: docs/retrieval.md has the measurements."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sources (
    source TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    version TEXT NOT NULL,
    pending INTEGER NOT NULL,
    removed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS entries (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL REFERENCES sources (source),
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    concepts TEXT NOT NULL,
    names TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE IF NOT EXISTS vectors (
    model TEXT NOT NULL,
    text_digest TEXT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (model, text_digest)
);
CREATE INDEX IF NOT EXISTS entries_by_source ON entries (source, position);
"""


class ClosableStore(VectorStore, Protocol):
    """A vector store that holds files open."""

    def close(self) -> None:
        """Release the files."""
        ...


StoreFactory = Callable[[Path, str], ClosableStore]
Progress = Callable[[int, int], None]
Vector = npt.NDArray[np.float32]


def embedded_text(entry: Entry) -> str:
    """What is embedded: the title, then the names, then the text."""
    return ". ".join(part for part in (entry.title, ", ".join(entry.names), entry.text) if part)


class Index:
    """Entries of the curated knowledge and of ingested sources, with their vectors.

    Use `Index.open`. Not for use by several threads at once; several processes may share the folder.

    Args:
        folder: where the index lives; created at the first use.
        embedder_factory: makes the embedder when vectors are needed.
        store_factory: makes the vector store from its folder and the embedder's name.
        exact_limit: most entries for which `nearest` compares every vector instead of asking the store.
    """

    def __init__(
        self,
        folder: Path,
        embedder_factory: Callable[[], Embedder],
        store_factory: StoreFactory,
        exact_limit: int = EXACT_LIMIT,
    ) -> None:
        self._folder = folder
        self._exact_limit = exact_limit
        self._exact: tuple[tuple[int, int], ExactSearch] | None = None
        self._embedder_factory = embedder_factory
        self._store_factory = store_factory
        self._embedder: Embedder | None = None
        self._store: ClosableStore | None = None
        self._database: sqlite3.Connection | None = None

    @classmethod
    def open(
        cls,
        home: Home,
        embedder_factory: Callable[[], Embedder],
        store_factory: StoreFactory | None = None,
        exact_limit: int = EXACT_LIMIT,
    ) -> Index:
        """The index in ``home.index``. Loads neither the model nor the vector store.

        Args:
            home: data folder.
            embedder_factory: called once, when vectors are first needed.
            store_factory: the vector store; Chroma when None.
            exact_limit: most entries for which `nearest` does without the store; 0 asks it always.
        """
        return cls(home.index, embedder_factory, store_factory or _open_chroma, exact_limit)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files; the index may be used again afterwards."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._database is not None:
            self._database.close()
            self._database = None
        self._exact = None

    def replace_source(self, source: str, entries: Sequence[Entry], version: str = "") -> bool:
        """Make ``entries`` the only ones of ``source``; their vectors are made by `embed_pending`.

        Args:
            source: IRI of the ingested source, or ``curated``.
            entries: each with ``entry.source == source`` and an id that no other source uses.
            version: of what the entries were made from; `sources` tells it.

        Returns:
            Whether anything changed; equal entries are not embedded again.

        Raises:
            ValueError: an entry of another source, or an id used twice.
            DataMalformed: the index file cannot be used.
        """
        strangers = [entry.id for entry in entries if entry.source != source]
        if strangers:
            raise ValueError(f"entry {strangers[0]} does not belong to the source {source}")
        digest = _digest(entries)
        with self._transaction() as database:
            known = database.execute(
                "SELECT digest FROM sources WHERE source = ? AND NOT removed", (source,)
            ).fetchone()
            if known == (digest,):
                database.execute("UPDATE sources SET version = ? WHERE source = ?", (version, source))
                return False
            _write_source(database, source, (digest, version), entries)
        return True

    def remove_source(self, source: str) -> None:
        """Forget ``source`` and its entries; an unknown source is none to forget."""
        with self._transaction() as database:
            database.execute("DELETE FROM entries WHERE source = ?", (source,))
            database.execute("UPDATE sources SET removed = 1, pending = 1 WHERE source = ?", (source,))

    def sync_curated(self, entries: Sequence[Entry]) -> bool:
        """Make ``entries`` the curated ones; True when they differ from those indexed before."""
        return self.replace_source(CURATED, entries)

    def sources(self) -> dict[str, str]:
        """Ingested sources, sorted, each with its version; the curated knowledge is none."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT source, version FROM sources WHERE NOT removed AND source != ? ORDER BY source", (CURATED,)
            ).fetchall()
        return dict(rows)

    def entries(self) -> list[Entry]:
        """All entries, in the order of their sources' names and as given within a source."""
        return self._select("ORDER BY source, position", ())

    def has_pending(self) -> bool:
        """Whether the vector store is behind the entries."""
        return bool(self._pending_sources())

    def pending_count(self) -> int:
        """Number of texts that no vector was made for yet, whatever the model, and that come without one."""
        with self._reading() as database:
            known = {digest for (digest,) in database.execute("SELECT text_digest FROM vectors")}
        pending = [source for source, removed in self._pending_sources() if not removed]
        texts = {_text_digest(embedded_text(entry)) for source in pending for entry in self._of_source(source)}
        return len(texts - known - bundled_vectors(self._open_embedder().name).keys()) if texts - known else 0

    def embed_pending(self, progress: Progress | None = None) -> int:
        """Bring the vector store in line with the entries, also when it was deleted.

        Args:
            progress: called with (texts embedded, texts to embed).

        Returns:
            How many texts were embedded; those with a known vector are not embedded again.

        Raises:
            ModelMissing: the embedding model is absent or not the expected one.
            DataMalformed: the index cannot be used, or was built with another model.
        """
        with self._locked():
            store = self._open_store()
            self._mark_lost_vectors(store)
            pending = [(source, removed, self._of_source(source)) for source, removed in self._pending_sources()]
            if not pending:
                return 0
            vectors = self._known_vectors()
            texts = {
                _text_digest(embedded_text(entry)): embedded_text(entry)
                for _, _, entries in pending
                for entry in entries
            }
            missing = {digest: text for digest, text in texts.items() if digest not in vectors}
            vectors |= self._embed(missing, progress)
            for source, removed, entries in pending:
                rows = [vectors[_text_digest(embedded_text(entry))] for entry in entries]
                store.replace(source, entries, np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32))
                self._settle(source, _digest(entries), removed)
            self._forget_vectors()
        return len(missing)

    def nearest(self, text: str, count: int) -> list[tuple[str, float]]:
        """Up to ``count`` (entry id, cosine similarity) pairs, best first; embeds what is pending before.

        Few entries are compared one by one, without opening the vector store; the answer is the same.

        Raises:
            ModelMissing, DataMalformed: as `embed_pending`.
        """
        small = self._size() <= self._exact_limit
        if not small or self.has_pending():
            self.embed_pending()
        search = self._exact_search() if small else self._open_store()
        return search.nearest(self._open_embedder().embed([text])[0], count)

    def _size(self) -> int:
        with self._reading() as database:
            (size,) = database.execute("SELECT count(*) FROM entries").fetchone()
        return int(size)

    def _exact_search(self) -> ExactSearch:
        """Every vector in memory; read again when this or another process changed the file."""
        with self._reading() as database:
            (others,) = database.execute("PRAGMA data_version").fetchone()
            state = (int(others), database.total_changes)
        if self._exact is None or self._exact[0] != state:
            entries, known = self.entries(), self._known_vectors()
            digests = [_text_digest(embedded_text(entry)) for entry in entries]
            if not known.keys() >= set(digests):
                # None of this model: opening the store says so. Else the file lost some.
                self._open_store()
                self._mark_all_pending()
                self.embed_pending()
                return self._exact_search()
            rows = [known[digest] for digest in digests]
            vectors = np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32)
            self._exact = (state, ExactSearch([entry.id for entry in entries], vectors))
        return self._exact[1]

    def _mark_all_pending(self) -> None:
        with self._transaction() as database:
            database.execute("UPDATE sources SET pending = 1")

    def _of_source(self, source: str) -> list[Entry]:
        return self._select("WHERE source = ? ORDER BY position", (source,))

    def _select(self, tail: str, parameters: tuple[str, ...]) -> list[Entry]:
        with self._reading() as database:
            rows = database.execute(
                f"SELECT id, kind, title, text, source, concepts, names FROM entries {tail}", parameters
            ).fetchall()
        return [_entry_from_row(row) for row in rows]

    def _known_vectors(self) -> dict[str, Vector]:
        with self._reading() as database:
            rows = database.execute(
                "SELECT text_digest, vector FROM vectors WHERE model = ?", (self._open_embedder().name,)
            ).fetchall()
        own = {digest: np.frombuffer(vector, dtype="<f4") for digest, vector in rows}
        return bundled_vectors(self._open_embedder().name) | own

    def _embed(self, texts: dict[str, str], progress: Progress | None) -> dict[str, Vector]:
        embedder = self._open_embedder()
        # By length, so that a batch is not padded to one long text.
        digests = sorted(texts, key=lambda digest: (len(texts[digest]), digest))
        made: dict[str, Vector] = {}
        for start in range(0, len(digests), _EMBED_BATCH):
            batch = digests[start : start + _EMBED_BATCH]
            rows = dict(zip(batch, embedder.embed([texts[digest] for digest in batch]), strict=True))
            with self._transaction() as database:
                database.executemany(
                    "INSERT OR REPLACE INTO vectors (model, text_digest, vector) VALUES (?, ?, ?)",
                    [(embedder.name, digest, row.astype("<f4").tobytes()) for digest, row in rows.items()],
                )
            made |= rows
            if progress is not None:
                progress(len(made), len(digests))
        return made

    def _forget_vectors(self) -> None:
        """Drop the vectors of texts that no entry has any more."""
        current = {_text_digest(embedded_text(entry)) for entry in self.entries()}
        with self._transaction() as database:
            stored = database.execute("SELECT DISTINCT text_digest FROM vectors").fetchall()
            stale = [(digest,) for (digest,) in stored if digest not in current]
            database.executemany("DELETE FROM vectors WHERE text_digest = ?", stale)

    def _pending_sources(self) -> list[tuple[str, bool]]:
        with self._reading() as database:
            rows = database.execute("SELECT source, removed FROM sources WHERE pending ORDER BY source").fetchall()
        return [(source, bool(removed)) for source, removed in rows]

    def _settle(self, source: str, digest: str, removed: bool) -> None:
        with self._transaction() as database:
            if removed:
                database.execute("DELETE FROM sources WHERE source = ? AND removed", (source,))
            else:
                # Only if the entries are still those embedded: another process may have replaced them.
                database.execute("UPDATE sources SET pending = 0 WHERE source = ? AND digest = ?", (source, digest))

    def _mark_lost_vectors(self, store: VectorStore) -> None:
        with self._transaction() as database:
            (expected,) = database.execute(
                "SELECT count(*) FROM entries JOIN sources USING (source) WHERE NOT pending"
            ).fetchone()
            (pending,) = database.execute("SELECT count(*) FROM sources WHERE pending").fetchone()
            size = store.size()
            if size < expected or (size != expected and not pending):
                database.execute("UPDATE sources SET pending = 1")

    def _open_embedder(self) -> Embedder:
        if self._embedder is None:
            self._embedder = self._embedder_factory()
        return self._embedder

    def _open_store(self) -> ClosableStore:
        if self._store is None:
            self._store = self._store_factory(self._folder / "vectors", self._open_embedder().name)
        return self._store

    def _connect(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        self._folder.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self._folder / "entries.sqlite", isolation_level=None, timeout=30)
        try:
            _prepare(database, self._folder)
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connect()
        except sqlite3.Error as exc:
            raise DataMalformed(
                f"the index file {self._folder / 'entries.sqlite'} cannot be used: {exc}",
                _rebuild_hint(self._folder),
            ) from exc
        except OSError as exc:
            raise self._unusable(exc) from exc

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                held.enter_context(exclusive(self._folder / "lock"))
            except OSError as exc:
                raise self._unusable(exc) from exc
            yield

    def _unusable(self, error: OSError) -> DataMalformed:
        return DataMalformed(
            f"the index folder {self._folder} cannot be used: {error.strerror}",
            "make it writable, or set KX_HOME to a folder that is",
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")


def _open_chroma(folder: Path, model: str) -> ClosableStore:
    from retrieval.chroma import ChromaStore

    return ChromaStore(folder, model)


def _prepare(database: sqlite3.Connection, folder: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 1:
        _add_names(database)
    elif version not in (0, _SCHEMA_VERSION):
        raise DataMalformed(
            f"the index in {folder} has layout {version}, this kx knows {_SCHEMA_VERSION}", _rebuild_hint(folder)
        )
    database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")


def _add_names(database: sqlite3.Connection) -> None:
    """From layout 1, whose entries had no names; every source is read again from the graph."""
    database.execute("BEGIN IMMEDIATE")
    try:
        if database.execute("PRAGMA user_version").fetchone() == (1,):
            database.execute("ALTER TABLE entries ADD COLUMN names TEXT NOT NULL DEFAULT '[]'")
            database.execute("UPDATE sources SET digest = '', version = ''")
            database.execute("PRAGMA user_version = 2")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _rebuild_hint(folder: Path) -> str:
    return f"delete {folder}: the next kx query builds it again from the graph"


def _write_source(
    database: sqlite3.Connection, source: str, identity: tuple[str, str], entries: Sequence[Entry]
) -> None:
    database.execute("DELETE FROM entries WHERE source = ?", (source,))
    database.execute(
        "INSERT INTO sources (source, digest, version, pending) VALUES (?, ?, ?, 1) ON CONFLICT (source) "
        "DO UPDATE SET digest = excluded.digest, version = excluded.version, pending = 1, removed = 0",
        (source, *identity),
    )
    try:
        database.executemany(
            "INSERT INTO entries (id, source, position, kind, title, text, concepts, names) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (entry.id, source, position, entry.kind, entry.title, entry.text, *_listed(entry))
                for position, entry in enumerate(entries)
            ],
        )
    except sqlite3.IntegrityError as exc:
        raise ValueError(f"an entry id of {source} is used twice") from exc


def _listed(entry: Entry) -> tuple[str, str]:
    return json.dumps(entry.concepts), json.dumps(entry.names, ensure_ascii=False)


def _entry_from_row(row: tuple[str, EntryKind, str, str, str, str, str]) -> Entry:
    iri, kind, title, text, source, concepts, names = row
    return Entry(iri, kind, title, text, source, tuple(json.loads(concepts)), tuple(json.loads(names)))


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(entries: Sequence[Entry]) -> str:
    rows = [[entry.id, entry.kind, entry.title, entry.text, entry.concepts, entry.names] for entry in entries]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
