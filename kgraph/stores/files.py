"""Named graphs as Turtle files in the data folder, each replaced as a whole."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kgraph.load import cache_triples, curated_files, load_triples, parse_turtle
from kgraph.names import CURATED, OBSERVATIONS, PREFIXES
from kgraph.sparql import Table
from kgraph.store import LAYOUT, Change, refuse_curated
from kgraph.stores.catalogue import Catalogue, graph_name
from kgraph.triples import Triple, Value
from kgraph.turtle import to_turtle
from kx.errors import DataMalformed, FileUnreadable
from kx.paths import Home, exclusive, write_atomically

if TYPE_CHECKING:
    from rdflib import Dataset


class FileGraphStore:
    """`kgraph.store.GraphStore` in Turtle files.

    ``graph/sources/<hash>.ttl`` holds a source's graph, ``graph/observations/<hash>.ttl`` a run's; the
    first line of each is a comment with the graph's name. A reader sees the old file or the new one.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._catalogue = Catalogue(home.cache)

    @property
    def place(self) -> str:
        """As ``GraphStore.place``."""
        return f"Turtle files in {self._home.graph}"

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """As ``GraphStore.names``."""
        found = {CURATED, *(name for name in map(graph_name, self._files()) if name)}
        return tuple(sorted(name for name in found if name.startswith(prefix)))

    def read(self, name: str) -> list[Triple]:
        """As ``GraphStore.read``."""
        if name == CURATED:
            return load_triples(curated_files(), self._home.cache)
        self._check_layout()
        return self._read_file(self._path(name))

    def find(self, prefix: str, predicate: str, value: Value | None = None, *, lenient: bool = False) -> list[Triple]:
        """As ``GraphStore.find``; answered from a catalogue that reads only the files that changed."""
        self._check_layout()
        sought = (prefix, predicate, value)
        return self._catalogue.find(self._files(), self._read_file, sought, lenient=lenient)

    def count(self, prefix: str = "") -> int:
        """As ``GraphStore.count``."""
        own = len(self.read(CURATED)) if CURATED.startswith(prefix) else 0
        return own + self._catalogue.count(self._files(), self._read_file, prefix)

    def replace(self, name: str, triples: Iterable[Triple]) -> None:
        """As ``GraphStore.replace``."""
        self._write(name, lambda _: list(triples), reads=False)

    def replace_all(self, graphs: Iterable[tuple[str, Iterable[Triple]]]) -> None:
        """As ``GraphStore.replace_all``."""
        for name, triples in graphs:
            self.replace(name, triples)

    def update(self, name: str, change: Change) -> None:
        """As ``GraphStore.update``."""
        self._write(name, change, reads=True)

    def remove(self, name: str) -> bool:
        """As ``GraphStore.remove``."""
        path = self._path(name)
        with self._locked(path):
            existed = path.exists()
            path.unlink(missing_ok=True)
        return existed

    @contextmanager
    def batch(self) -> Iterator[None]:
        """As ``GraphStore.batch``; files need none."""
        yield

    def publish(self) -> None:
        """As ``GraphStore.publish``; the curated files are read where they are."""

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

    def query(self, text: str) -> Table | str:
        """As ``GraphStore.query``: the files are read into an engine in memory."""
        from kgraph.stores.embedded import MemoryEngine

        engine = MemoryEngine()
        for path in curated_files():
            engine.load(path, CURATED)
        for path in self._files():
            if name := graph_name(path):
                with _told_as_ours(path):
                    engine.load(path, name)
        return engine.query(text).told()

    def close(self) -> None:
        """As ``GraphStore.close``."""
        self._catalogue.close()

    def _write(self, name: str, change: Callable[[list[Triple]], list[Triple]], *, reads: bool) -> None:
        refuse_curated(name)
        path = self._path(name)
        with self._locked(path):
            marker = self._home.graph / "layout"
            if not marker.exists():
                write_atomically(marker, f"{LAYOUT}\n")
            # What is replaced is not read: a damaged file is mended by writing it again.
            triples = change(self.read(name) if reads else [])
            write_atomically(path, f"# {name}\n{to_turtle(triples)}")
            cache_triples(path, triples, self._home.cache)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        self._check_layout()
        with exclusive(self._home.graph / "locks" / f"{path.stem[:2]}.lock"):
            yield

    def _check_layout(self) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (self._home.graph / "layout").read_text(encoding="utf-8", errors="replace").strip()
            if found != LAYOUT:
                raise DataMalformed(
                    f"the graph in {self._home.graph} has layout {found or '(empty)'}, this kx knows {LAYOUT}",
                    "use the kx that wrote it, or another KX_HOME; kx ingest fills a new one",
                )

    def _read_file(self, path: Path) -> list[Triple]:
        with _told_as_ours(path):
            return load_triples([path], self._home.cache) if path.exists() else []

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
