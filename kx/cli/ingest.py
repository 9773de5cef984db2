"""``kx ingest``: CUDA sources into the graph and the index."""

from __future__ import annotations

from pathlib import Path

import click

from ingest.pipeline import IngestReport, ingest_paths
from kgraph.graph import KnowledgeGraph
from kx.cli.knowledge import open_index
from kx.cli.output import json_option, note, print_json, print_table, print_text, progress
from kx.errors import FileUnreadable, PathMissing
from kx.paths import Home

_ANSWER_IS_NO = 1


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that read files; one per processor when absent.")
@json_option
def ingest(paths: tuple[str, ...], jobs: int | None, as_json: bool) -> None:
    """Read CUDA sources into the graph and the index.

    PATH is a file, or a folder that is read with all that is below it. What did not change since the last
    time is not read again, and what is gone from a folder is forgotten. One bad file does not stop the
    rest: it is reported, and the exit code is 1; it is 2 when no file could be read.
    """
    if any(not argument.strip() for argument in paths):
        raise PathMissing("a path is empty", "a variable of the shell may be unset; give . for the current folder")
    home = Home.from_environment()
    graph = KnowledgeGraph.open(home)
    with progress("reading") as advance:
        report = ingest_paths([Path(path) for path in paths], graph=graph, index=None, progress=advance, jobs=jobs)
    if report.errors and not report.sources:
        file, why = report.errors[0]
        more = f" and {len(report.errors) - 1} more" if len(report.errors) > 1 else ""
        raise FileUnreadable(_located(file, why) + more, "give CUDA source files in UTF-8")
    if report.sources or report.removed:
        with open_index(home, graph):
            pass
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    for file, why in report.errors:
        note(f"not read: {_located(file, why)}")
    if not report.sources and not report.removed:
        note(f"no CUDA file in {', '.join(paths)}")
    if report.errors or not (report.sources or report.removed):
        click.get_current_context().exit(_ANSWER_IS_NO)


def _located(file: str, why: str) -> str:
    return why if file in why else f"{file}: {why}"


def _print_report(report: IngestReport) -> None:
    if not report.sources and not report.removed:
        return
    unchanged = set(report.unchanged)
    changed = [reading for reading in report.sources if reading.file not in unchanged]
    if changed:
        rows = [
            (reading.file, len(reading.kernels), len(reading.primitives), ", ".join(c.slug for c in reading.concepts))
            for reading in changed
        ]
        print_table(["file", "kernels", "primitives", "concepts"], rows, title="read")
    elif not report.removed:
        print_text("nothing changed")
    forgotten = f", {len(report.removed)} forgotten" if report.removed else ""
    print_text(
        f"{len(changed)} sources read, {len(unchanged)} unchanged{forgotten}, "
        f"{len(report.skipped)} files skipped, {len(report.errors)} not readable; {report.triples} triples"
    )
