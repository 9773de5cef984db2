"""``python -m kx.cli.reference``: write docs/commands.md from the commands' own help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kx.cli import main
from kx.paths import write_atomically

REFERENCE = Path(__file__).resolve().parent.parent.parent / "docs" / "commands.md"
_WIDTH = 90
_HEADING = """# Commands

Written by `make docs` from the commands' own `--help`.

Every listing takes `--json`, which prints one JSON object on stdout; notes, progress and errors go to
stderr. Exit codes: 0 fine, 1 the answer is no (a check failed, nothing matched, some files could not be
read), 2 wrong usage or input, 3 the machine lacks something (`kx doctor` says what), 130 interrupted.

Data lives in the folder that `KX_HOME` names, `.kx` of the current folder by default. `settings.toml` in
it can set `embedding_model` (a folder) and `chip`; `KX_EMBEDDING_MODEL` and `KX_CHIP` override it.
"""


def walk_commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all below it, in the order of their listing, each with its path from ``kx``."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from walk_commands(child, (*path, name))


def render_reference() -> str:
    """The text of docs/commands.md."""
    sections = [_HEADING]
    for path, command in walk_commands(main, ("kx",)):
        sections.append(f"## {' '.join(path)}\n\n```text\n{_help_of(path, command)}\n```\n")
    return "\n".join(sections)


def _help_of(path: tuple[str, ...], command: click.Command) -> str:
    context: click.Context | None = None
    for name in path[:-1]:
        context = click.Context(main, parent=context, info_name=name)
    leaf = click.Context(
        command, parent=context, info_name=path[-1], max_content_width=_WIDTH, terminal_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    return command.get_help(leaf)


if __name__ == "__main__":
    write_atomically(REFERENCE, render_reference())
