"""How fast CUDA sources are read: over a bare parse, per file, in a whole ingest and when nothing changed.

    python -m benchmarks.ingest_speed DIR... [--jobs 2] [--repeats 3] [--skip-ingest]

For every folder: CUDA files and megabytes; seconds of a bare tree-sitter parse of them and of a whole
reading, both in one process (CPU time, the least of ``--repeats``, so that other load counts little), their
ratio, and the slowest file; then the wall-clock seconds of a first ingest into a fresh home and the least of
three over the unchanged folder.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import tree_sitter_cuda
from tree_sitter import Language, Parser

from ingest.pipeline import IngestReport, ingest_paths
from ingest.reader import CUDA_SUFFIXES, MIXED_SUFFIXES, is_cuda, read_bytes, read_text
from ingest.text import decode
from kgraph.graph import KnowledgeGraph
from kx.errors import FileUnreadable
from kx.paths import Home

Result = TypeVar("Result")


@dataclass(frozen=True)
class Source:
    """A file's text and size."""

    path: Path
    text: str
    size_bytes: int


def cuda_files(folder: Path) -> list[Source]:
    """Every file below a folder that ``kx ingest`` would read, by path."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix.lower() not in CUDA_SUFFIXES | MIXED_SUFFIXES:
            continue
        try:
            data = read_bytes(path)
        except FileUnreadable:
            continue
        text = decode(data)
        if is_cuda(path, text):
            found.append(Source(path, text, len(data)))
    return found


def least_s(work: Callable[[], Result], repeats: int) -> float:
    """Least CPU time in seconds of ``repeats`` runs."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def measure_reading(sources: list[Source], tokens: dict[str, str], repeats: int) -> None:
    """Print the parse's and the reading's time, their ratio and the slowest file."""
    parser = Parser(Language(tree_sitter_cuda.language()))
    parse_s, read_s, slowest = 0.0, 0.0, (0.0, Path())
    for source in sources:
        data = source.text.encode("utf-8")
        parse_s += least_s(partial(parser.parse, data), repeats)
        one_s = least_s(partial(read_text, source.path.as_posix(), data, tokens=tokens), repeats)
        read_s += one_s
        slowest = max(slowest, (one_s, source.path))
    print(f"  bare parse    {parse_s:8.2f} s")
    print(f"  reading       {read_s:8.2f} s, {read_s / max(parse_s, 1e-9):.1f} times the parse")
    print(f"  slowest file  {slowest[0]:8.2f} s  {slowest[1]}")


def _ingest_once(folder: Path, home: Path, jobs: int) -> tuple[float, IngestReport]:
    graph = KnowledgeGraph.open(Home(home))
    started = time.perf_counter()
    report = ingest_paths([folder], graph=graph, index=None, jobs=jobs)
    return time.perf_counter() - started, report


def measure_ingest(folder: Path, jobs: int) -> None:
    """Print the seconds of a first and of an unchanged second ingest of a folder into a fresh home."""
    with tempfile.TemporaryDirectory() as home:
        first_s, report = _ingest_once(folder, Path(home), jobs)
        again_s = min(_ingest_once(folder, Path(home), jobs)[0] for _ in range(3))
        print(
            f"  first ingest  {first_s:8.2f} s with {jobs} processes ({len(report.sources)} sources, "
            f"{len(report.errors)} not readable)"
        )
        print(f"  unchanged     {again_s:8.2f} s, {first_s / max(again_s, 1e-9):.0f} times faster")


def main() -> None:
    """Measure every folder and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the ingest")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the least counts")
    parser.add_argument("--skip-ingest", action="store_true", help="measure parse and reading only")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as home:
        tokens = dict(KnowledgeGraph.open(Home(Path(home))).primitive_tokens())
    for folder in options.folders:
        sources = cuda_files(folder)
        size_mb = sum(source.size_bytes for source in sources) / 1e6
        print(f"{folder}: {len(sources)} files, {size_mb:.2f} MB")
        measure_reading(sources, tokens, options.repeats)
        if not options.skip_ingest:
            measure_ingest(folder, options.jobs)


if __name__ == "__main__":
    main()
