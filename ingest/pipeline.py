"""Files and folders into the graph and the index: incremental, parallel, one source at a time."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.model import Detection, KernelFact, PrimitiveUse, SourceReading
from ingest.reader import CUDA_SUFFIXES, MIXED_SUFFIXES, is_cuda, read_bytes, read_text, reading_version
from ingest.text import decode
from kgraph.graph import KnowledgeGraph
from kgraph.model import Evidence
from kgraph.names import file_iri
from kgraph.records import SourceRecord, source_triples
from kgraph.records import read_source as read_record
from kgraph.triples import TripleIndex
from kx.errors import FileUnreadable, PathMissing
from retrieval.entries import source_entries
from retrieval.index import Index

Progress = Callable[[int, int], None]
_WRITTEN_TOGETHER = 50
_POOL_FROM = 9
"""Files from which a process pool pays for its start."""


@dataclass(frozen=True)
class IngestReport:
    """What an ingest run read.

    Attributes:
        sources: a reading per file, in the order of their names; one that did not change is read back
            from the graph (kernels with name and line only).
        unchanged: files among them whose content and detectors are those of the last time.
        triples: triples that the graphs of these sources hold.
        skipped: (file, why) of files in folders that are not CUDA.
        errors: (file, why) of files that could not be read.
        removed: files of the graph that are gone from a folder that was given.
    """

    sources: tuple[SourceReading, ...]
    unchanged: tuple[str, ...] = ()
    triples: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "sources": [_reading_json(reading) for reading in self.sources],
            "unchanged": list(self.unchanged),
            "triples": self.triples,
            "skipped": [{"file": file, "why": why} for file, why in self.skipped],
            "errors": [{"file": file, "why": why} for file, why in self.errors],
            "removed": list(self.removed),
        }


def _reading_json(reading: SourceReading) -> dict[str, Any]:
    return {
        "file": reading.file,
        "kernels": [{"name": kernel.name, "line": kernel.line} for kernel in reading.kernels],
        "concepts": [
            {
                "slug": concept.slug,
                "lines": [concept.first_line, concept.last_line],
                "confidence": concept.confidence,
                "why": concept.why,
                "kernel": concept.kernel,
            }
            for concept in reading.concepts
        ],
    }


@dataclass
class _Gathered:
    """Files to read, by their name in the graph, with what was left out on the way."""

    namer: _Namer
    files: dict[str, Path] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    skipped: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    file: str
    path: str
    tokens: Mapping[str, str]


@dataclass(frozen=True)
class _Failure:
    file: str
    why: str


def ingest_paths(
    paths: Iterable[Path],
    *,
    graph: KnowledgeGraph,
    index: Index | None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> IngestReport:
    """Read CUDA files and everything below folders into the graph and the index.

    A source is written whole or not at all; one that cannot be read is reported and stops nothing.

    Args:
        paths: files and folders; hidden files and folders inside folders are passed over.
        graph: gets the evidence, a named graph per source.
        index: gets the entries of the kernels and the evidence; None to leave it alone.
        progress: called with (files done, files in all).
        jobs: worker processes; by default one per processor.

    Raises:
        PathMissing: a path does not exist; nothing was written.
    """
    # A source whose graph is damaged counts as unknown: it is read again, which mends it.
    namer = _Namer(graph.source_roots(lenient=True))
    gathered = _gather(paths, namer)
    tokens = graph.primitive_tokens()
    version = reading_version(tokens)
    known = graph.sources(lenient=True)
    writer = _Writer(graph, index, tokens, version, namer)
    errors: list[tuple[str, str]] = []
    unchanged: list[str] = []
    readings: dict[str, SourceReading] = {}
    todo: list[_Job] = []
    with graph.store.batch():
        for file, path in sorted(gathered.files.items()):
            try:
                state = _state(file, path, named=file in gathered.named)
            except FileUnreadable as error:
                errors.append((file, error.message))
                continue
            if not state:
                gathered.skipped.append((file, "contains no CUDA"))
            elif known.get(file) == (state, version):
                readings[file] = writer.read_back(file, path)
                unchanged.append(file)
            else:
                todo.append(_Job(file, str(path), tokens))
    done, total = len(unchanged) + len(errors), len(unchanged) + len(errors) + len(todo)
    _tell(progress, done, total)
    for result in _read_all(todo, jobs or os.cpu_count() or 1):
        if isinstance(result, _Failure):
            errors.append((result.file, result.why))
        else:
            writer.write(result)
            readings[result.file] = result
        done += 1
        _tell(progress, done, total)
    writer.flush()
    return IngestReport(
        sources=tuple(readings[file] for file in sorted(readings)),
        unchanged=tuple(unchanged),
        triples=writer.triples,
        skipped=tuple(sorted(gathered.skipped)),
        errors=tuple(sorted(errors)),
        removed=writer.remove_gone(gathered, known),
    )


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


# --- collecting ---


def _gather(paths: Iterable[Path], namer: _Namer) -> _Gathered:
    gathered = _Gathered(namer)
    given = [Path(path) for path in paths]
    for path in given:
        if not path.exists():
            raise PathMissing(f"{path.as_posix()} does not exist", "give a CUDA file or a folder with CUDA files")
    for path in given:
        if path.is_dir():
            gathered.folders.append(_absolute(path))
            _gather_folder(path, gathered)
        else:
            name = namer.name(path)
            gathered.files[name] = path
            gathered.named.add(name)
    gathered.skipped = [entry for entry in dict.fromkeys(gathered.skipped) if entry[0] not in gathered.files]
    return gathered


def _gather_folder(folder: Path, gathered: _Gathered) -> None:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place) / name
            if name.startswith("."):
                continue
            if path.suffix.lower() in CUDA_SUFFIXES | MIXED_SUFFIXES:
                gathered.files.setdefault(gathered.namer.name(path), path)
            else:
                gathered.skipped.append((gathered.namer.name(path), f"not a CUDA suffix: {path.suffix or 'none'}"))


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow symbolic links


class _Namer:
    """Names of files in the graph: one file has one name, and one name stands for one file.

    A file keeps the name under which the graph knows it. A new one is named relative to the current folder
    if it lies below it and no other file that still exists has that name; otherwise by its absolute path.
    """

    def __init__(self, roots: Mapping[str, str]) -> None:
        """Args: files that the graph knows, each with the folder that its name counts from."""
        self.places = {file: Path(root) / file for file, root in roots.items() if root or Path(file).is_absolute()}
        self._names = {place: file for file, place in self.places.items()}
        self._here = Path.cwd()

    def name(self, path: Path) -> str:
        """The name of a file."""
        absolute = _absolute(path)
        if absolute not in self._names:
            self._names[absolute] = self._new_name(absolute)
            self.places[self._names[absolute]] = absolute
        return self._names[absolute]

    def root(self, file: str) -> str:
        """The absolute folder that a name counts from; empty for an absolute name."""
        return "" if Path(file).is_absolute() else self.places[file].as_posix().removesuffix(f"/{file}") or "/"

    def _new_name(self, absolute: Path) -> str:
        if not absolute.is_relative_to(self._here):
            return absolute.as_posix()
        relative = absolute.relative_to(self._here).as_posix()
        taken = self.places.get(relative)
        return absolute.as_posix() if taken is not None and taken.exists() else relative


def _state(file: str, path: Path, *, named: bool) -> str:
    """SHA-256 of a file to read, or empty for a file of a folder that is not CUDA.

    Raises:
        FileUnreadable: as ``read_bytes``, or a named file that is not CUDA.
    """
    data = read_bytes(path)
    if path.suffix.lower() not in CUDA_SUFFIXES and not is_cuda(path, decode(data)):
        if named:
            raise FileUnreadable(f"{file} is not CUDA")
        return ""
    return hashlib.sha256(data).hexdigest()


# --- reading ---


def _read_all(todo: Sequence[_Job], jobs: int) -> Iterator[SourceReading | _Failure]:
    """Readings in the order of ``todo``, from worker processes when there are many files."""
    if len(todo) < _POOL_FROM or jobs < 2:
        yield from map(_read, todo)
        return
    finished = 0
    try:
        with _pool(min(jobs, len(todo))) as pool:
            for result in pool.map(_read, todo, chunksize=1):
                finished += 1
                yield result
    except BrokenProcessPool:
        # A worker died. Each remaining file gets a process of its own, so that only the culprit fails.
        for job in todo[finished:]:
            yield _read_alone(job)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not fork: the caller may hold threads and open databases.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _read_alone(job: _Job) -> SourceReading | _Failure:
    try:
        with _pool(1) as pool:
            return pool.submit(_read, job).result()
    except BrokenProcessPool:
        return _Failure(job.file, "the reader's process died on this file")


def _read(job: _Job) -> SourceReading | _Failure:
    """Read one file; the boundary of a worker process, so nothing passes it but a value."""
    try:
        return read_text(job.file, read_bytes(Path(job.path)), tokens=job.tokens)
    except FileUnreadable as error:
        return _Failure(job.file, error.message)
    except Exception as error:  # noqa: BLE001 - one bad file never stops the rest
        return _Failure(job.file, f"the reader failed: {type(error).__name__}: {error}")


# --- writing ---


class _Writer:
    """Puts readings into the graph and the index, and takes them out again."""

    def __init__(
        self, graph: KnowledgeGraph, index: Index | None, tokens: Mapping[str, str], version: str, namer: _Namer
    ) -> None:
        self._graph = graph
        self._namer = namer
        self._index = index
        self._tokens = tokens
        # The spellings of each primitive, the longest first.
        self._spellings: dict[str, list[str]] = {}
        for token in sorted(tokens, key=lambda token: (-len(token), token)):
            self._spellings.setdefault(tokens[token], []).append(token)
        self._version = version
        self._indexed = index.sources() if index is not None else {}
        self._waiting: list[SourceRecord] = []
        self.triples = 0

    def write(self, reading: SourceReading) -> None:
        """Replace all that is known of one source, at the latest when `flush` is called."""
        self._waiting.append(self._record(reading))
        if len(self._waiting) >= _WRITTEN_TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write what waits for others, since some stores cost as much to open as many sources to write."""
        self._graph.replace_sources(self._waiting)
        for record in self._waiting:
            self._write_entries(record)
            self.triples += len(source_triples(record))
        self._waiting.clear()

    def read_back(self, file: str, path: Path) -> SourceReading:
        """The reading of an unchanged source, as far as the graph keeps it."""
        iri = file_iri(file)
        record = read_record(TripleIndex(self._graph.store.read(iri)), iri)
        if self._index is not None and self._indexed.get(iri) != self._index_version(record):
            self._write_entries(record)
        self.triples += len(source_triples(record))
        text = decode(path.read_bytes())
        lines = text.removesuffix("\n").split("\n")
        return SourceReading(
            file=file,
            sha256=record.sha256,
            line_count=len(lines),
            kernels=tuple(KernelFact(name, line, line) for name, line in record.kernels),
            primitives=self._spelled(record, lines),
            concepts=tuple(
                Detection(e.concept, e.first_line, e.last_line, e.confidence, e.why, e.kernel, e.detector)
                for e in record.evidence
            ),
        )

    def _spelled(self, record: SourceRecord, lines: Sequence[str]) -> tuple[PrimitiveUse, ...]:
        """The uses of primitives by the spelling that stands in the file; the graph keeps only which primitive."""
        uses: dict[str, list[int]] = {}
        for primitive, numbers in record.primitives:
            known = self._spellings.get(primitive, [primitive])
            for number in numbers:
                text = lines[number - 1] if number <= len(lines) else ""
                token = next((token for token in known if token in text), known[0])
                uses.setdefault(token, []).append(number)
        return tuple(PrimitiveUse(token, tuple(numbers)) for token, numbers in sorted(uses.items()))

    def remove_gone(self, gathered: _Gathered, known: Mapping[str, object]) -> tuple[str, ...]:
        """Forget sources of a given folder whose file no longer exists; returns them.

        Where a file lay is what its reading recorded, not what its name means in the current folder.
        """
        gone = []
        for file in sorted(known):
            place = self._namer.places.get(file)
            if place is None or place.exists():
                continue
            if any(place.is_relative_to(folder) for folder in gathered.folders):
                self._graph.remove_source(file_iri(file))
                if self._index is not None:
                    self._index.remove_source(file_iri(file))
                gone.append(file)
        return tuple(gone)

    def _index_version(self, record: SourceRecord) -> str:
        return f"{record.sha256}:{record.detector_version}"

    def _write_entries(self, record: SourceRecord) -> None:
        if self._index is not None:
            self._index.replace_source(record.iri, source_entries(self._graph, record), self._index_version(record))

    def _record(self, reading: SourceReading) -> SourceRecord:
        uses: dict[str, set[int]] = {}
        for use in reading.primitives:
            uses.setdefault(self._tokens[use.token], set()).update(use.lines)
        return SourceRecord(
            iri=file_iri(reading.file),
            file=reading.file,
            sha256=reading.sha256,
            detector_version=self._version,
            kernels=tuple((kernel.name, kernel.line) for kernel in reading.kernels),
            evidence=tuple(
                Evidence(c.slug, c.kernel, reading.file, c.first_line, c.last_line, c.detector, c.confidence, c.why)
                for c in reading.concepts
            ),
            primitives=tuple((iri, tuple(sorted(lines))) for iri, lines in sorted(uses.items())),
            root=self._namer.root(reading.file),
        )
