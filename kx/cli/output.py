"""What commands print: tables, one JSON object, notes and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Progress = Callable[[int, int], None]


def json_option(command: Command) -> Command:
    """Add ``--json`` to a command; it receives ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)


def print_json(payload: Mapping[str, Any]) -> None:
    """Print ``payload`` as the one JSON object on stdout.

    Raises:
        ValueError: a value is NaN or infinite, which JSON does not know.
    """
    click.echo(json.dumps(payload, ensure_ascii=False, indent=2, allow_nan=False))


def print_text(text: str = "") -> None:
    """Print a line on stdout."""
    click.echo(text)


def note(text: str) -> None:
    """Say something about the work on stderr."""
    click.echo(text, err=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table: drawn and wrapped on a terminal, tab-separated lines with a heading otherwise."""
    if not sys.stdout.isatty():
        for cells in [columns, *rows]:
            click.echo("\t".join(" ".join(str(cell).split()) for cell in cells))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title or None, title_justify="left")
    for row in rows:
        # Text, since cells quote code: rich would read [[threadgroup(0)]] as markup.
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """A progress bar on stderr for the length of the block; nothing when stderr is no terminal.

    Yields:
        ``advance(done, total)``.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
