"""A catalogue of a folder of Turtle files: who holds which source, without reading what did not change."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kgraph.names import RDF_TYPE, schema
from kgraph.triples import Node, Triple, Value
from kx.errors import DataMalformed, FileUnreadable

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    folder TEXT NOT NULL,
    stamp TEXT NOT NULL,
    graph TEXT NOT NULL,
    triples INTEGER NOT NULL,
    damaged INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS facts (
    file INTEGER NOT NULL REFERENCES files (id),
    predicate TEXT NOT NULL,
    value,
    is_node INTEGER NOT NULL,
    subject TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS facts_by_value ON facts (predicate, value);
CREATE INDEX IF NOT EXISTS facts_by_file ON facts (file);
"""
KEPT = frozenset((RDF_TYPE, *map(schema, ("path", "root", "sha256", "detectorVersion", "concept"))))
"""Properties that the catalogue answers for; any other is looked for in the files."""

Read = Callable[[Path], list[Triple]]
Sought = tuple[str, str, Value | None]


class Catalogue:
    """What the files of a graph folder say of `KEPT`, kept in SQLite by each file's inode, size and time.

    It is a cache: one that is lost is made again, and where none can be written it lives in memory.

    Args:
        cache: folder of the caches.
    """

    def __init__(self, cache: Path) -> None:
        self._path = cache / "graph-catalogue.sqlite"
        self._database: sqlite3.Connection | None = None

    def find(self, files: Sequence[Path], read: Read, sought: Sought, *, lenient: bool = False) -> list[Triple]:
        """Triples with a property, and a value if one is given, in graphs whose names begin with a prefix.

        Args:
            files: the folder's files as they are now.
            read: gives a file's triples.
            sought: prefix, property, value or None.
            lenient: pass over files that do not parse.

        Raises:
            DataMalformed: a file does not parse.
        """
        prefix, predicate, value = sought
        with self._current(files, read) as database:
            if not lenient:
                self._complain(database, prefix, read)
            if predicate not in KEPT:
                return self._search_files(database, read, sought)
            rows = database.execute(
                "SELECT subject, value, is_node FROM facts JOIN files ON files.id = file "
                "WHERE predicate = ? AND (? IS NULL OR (value = ? AND is_node = ?)) "
                "AND substr(graph, 1, length(?)) = ? AND folder IN (SELECT folder FROM current) "
                "ORDER BY subject, value",
                (predicate, value, value, isinstance(value, Node), prefix, prefix),
            ).fetchall()
        return [(subject, predicate, Node(found) if is_node else found) for subject, found, is_node in rows]

    def count(self, files: Sequence[Path], read: Read, prefix: str) -> int:
        """Triples of the graphs whose names begin with ``prefix``.

        Raises:
            DataMalformed: a file does not parse.
        """
        with self._current(files, read) as database:
            self._complain(database, prefix, read)
            (counted,) = database.execute(
                "SELECT coalesce(sum(triples), 0) FROM files "
                "WHERE substr(graph, 1, length(?)) = ? AND folder IN (SELECT folder FROM current)",
                (prefix, prefix),
            ).fetchone()
        return int(counted)

    def close(self) -> None:
        """Release the file; the catalogue may be used again."""
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _current(self, files: Sequence[Path], read: Read) -> Iterator[sqlite3.Connection]:
        """The database, in line with ``files``; in memory when the file cannot be used."""
        try:
            database = self._open()
            _refresh(database, files, read)
        except (sqlite3.Error, OSError):
            self.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
            database = self._database = _prepare(sqlite3.connect(":memory:", isolation_level=None))
            _refresh(database, files, read)
        yield database

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _prepare(sqlite3.connect(self._path, isolation_level=None, timeout=30))
        return self._database

    def _complain(self, database: sqlite3.Connection, prefix: str, read: Read) -> None:
        for (path,) in database.execute(
            "SELECT path FROM files WHERE damaged AND folder IN (SELECT folder FROM current) "
            "AND substr(graph, 1, length(?)) = ? ORDER BY path",
            (prefix, prefix),
        ).fetchall():
            read(Path(path))  # raises, unless somebody has mended the file since

    def _search_files(self, database: sqlite3.Connection, read: Read, sought: Sought) -> list[Triple]:
        prefix, predicate, value = sought
        paths = database.execute(
            "SELECT path FROM files WHERE NOT damaged AND folder IN (SELECT folder FROM current) "
            "AND substr(graph, 1, length(?)) = ?",
            (prefix, prefix),
        ).fetchall()
        found = [triple for (path,) in paths for triple in read(Path(path)) if triple[1] == predicate]
        return sorted(
            (triple for triple in found if value is None or (type(triple[2]), triple[2]) == (type(value), value)),
            key=lambda triple: (triple[0], str(triple[2])),
        )


def graph_name(path: Path) -> str:
    """Name of a file's graph, which its first line tells; empty for a file that has none."""
    try:
        # Bytes that are no text are told when the graph is read, with the file's name.
        with path.open(encoding="utf-8", errors="replace") as stream:
            first = stream.readline()
    except FileNotFoundError:  # removed by another process since the folder was listed
        return ""
    return first.removeprefix("#").strip()


def _prepare(database: sqlite3.Connection) -> sqlite3.Connection:
    # A cache need not survive a power failure, only be whole.
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in (0, _FORMAT):
        raise sqlite3.DatabaseError("a catalogue of another format")
    database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")
    # Several data folders may share one cache: each sees its own folders only.
    database.execute("CREATE TEMP TABLE IF NOT EXISTS current (folder TEXT PRIMARY KEY)")
    return database


def _refresh(database: sqlite3.Connection, files: Sequence[Path], read: Read) -> None:
    folders = sorted({str(path.parent) for path in files})
    known: dict[str, str] = {}
    database.execute("DELETE FROM current")
    for folder in folders:
        database.execute("INSERT INTO current VALUES (?)", (folder,))
        known |= dict(database.execute("SELECT path, stamp FROM files WHERE folder = ?", (folder,)).fetchall())
    stamps = {str(path): _stamp(path) for path in files}
    gone = [path for path in known if path not in stamps]
    stale = [path for path, stamp in stamps.items() if stamp and known.get(path) != stamp]
    if not gone and not stale:
        return
    read_anew = [(path, stamps[path], *_reading(Path(path), read)) for path in stale]
    database.execute("BEGIN IMMEDIATE")
    try:
        for path in [*gone, *stale]:
            database.execute("DELETE FROM facts WHERE file = (SELECT id FROM files WHERE path = ?)", (path,))
            database.execute("DELETE FROM files WHERE path = ?", (path,))
        for path, stamp, name, triples in read_anew:
            cursor = database.execute(
                "INSERT INTO files (path, folder, stamp, graph, triples, damaged) VALUES (?, ?, ?, ?, ?, ?)",
                (path, str(Path(path).parent), stamp, name, len(triples or ()), triples is None),
            )
            database.executemany(
                "INSERT INTO facts VALUES (?, ?, ?, ?, ?)",
                [(cursor.lastrowid, p, str(o) if isinstance(o, Node) else o, isinstance(o, Node), s)
                 for s, p, o in triples or () if p in KEPT],
            )  # fmt: skip
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _stamp(path: Path) -> str:
    try:
        state = path.stat()
    except FileNotFoundError:  # removed by another process since the folder was listed
        return ""
    return f"{state.st_ino}:{state.st_size}:{state.st_mtime_ns}"


def _reading(path: Path, read: Read) -> tuple[str, list[Triple] | None]:
    """The graph's name and triples, None for a file that does not parse."""
    try:
        return graph_name(path), read(path)
    except (DataMalformed, FileUnreadable):
        return graph_name(path), None
