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


PLAIN_WIDTH = 140
"""Columns of a table in a file or a log."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table, aligned and wrapped: drawn on a terminal, plain and of fixed width otherwise."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    on_terminal = sys.stdout.isatty()
    style = box.HEAVY_HEAD if on_terminal else box.SIMPLE_HEAD
    table = Table(title=title or None, title_justify="left", box=style)
    for index, column in enumerate(columns):
        longest = max((len(str(row[index])) for row in rows), default=0)
        # A name cut short is of no use; the first column, which names the row, stays on one line if it fits.
        table.add_column(column, overflow="fold", no_wrap=index == 0 and longest <= PLAIN_WIDTH * 3 // 5)
    for row in rows:
        # Text, since cells quote code: rich would read [[threadgroup(0)]] as markup.
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(width=None if on_terminal else PLAIN_WIDTH).print(table)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print the rows of a query: a table on a terminal, tab-separated lines for a pipe."""
    if sys.stdout.isatty():
        print_table(columns, rows)
        return
    for cells in [columns, *rows]:
        click.echo("\t".join(" ".join(str(cell).split()) for cell in cells))


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
