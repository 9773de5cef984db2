"""The command line: one group of commands that are imported when they run.

``kx --help`` imports click only; a command imports what it needs when it needs it. This module is the
one place that turns errors into exit codes: 0 fine, 1 the answer is no, 2 wrong usage or input, 3 the
environment lacks something.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import click

from kx.errors import KxError
from kx.version import find_version

INTERRUPTED = 130


@dataclass(frozen=True)
class LazyCommand:
    """Where a command lives.

    Attributes:
        target: ``module:attribute`` of a click command.
        summary: the first line of its help, so that the listing need not import it.
    """

    target: str
    summary: str


COMMANDS: Mapping[str, LazyCommand] = MappingProxyType(
    {
        "ingest": LazyCommand("kx.cli.ingest:ingest", "Read CUDA sources into the graph and the index."),
        "map": LazyCommand("kx.cli.map:map_term", "Show what a CUDA name becomes on Metal or MLX, or the way back."),
        "query": LazyCommand("kx.cli.query:query", "Find what the graph knows about a question in words."),
        "spec": LazyCommand(
            "kx.cli.spec:spec", "Write the specification of a kernel on a chip, for a person or a prompt."
        ),
        "graph": LazyCommand("kx.cli.graph:graph", "Look into the knowledge graph."),
        "search": LazyCommand("kx.cli.search:search", "Search for a fast kernel, starting from a naive one."),
        "resume": LazyCommand("kx.cli.search:resume", "Go on with a search that was stopped or killed."),
        "ablate": LazyCommand(
            "kx.cli.ablate:ablate", "Compare the search with the graph to the same search without it."
        ),
        "prompt": LazyCommand("kx.cli.by_hand:prompt", "Print the prompt for a node, exactly as a model would get it."),
        "submit": LazyCommand(
            "kx.cli.by_hand:submit", "Take a reply to the question that a run waits for, and go on with the run."
        ),
        "runs": LazyCommand("kx.cli.runs:runs", "List the searches in the data folder, oldest first."),
        "show": LazyCommand("kx.cli.runs:show", "Show a run's world model, outcomes and best path."),
        "metal": LazyCommand("kx.cli.metal:metal", "Compile, check and run Metal kernels on this machine's CPU."),
        "doctor": LazyCommand("kx.cli.doctor:doctor", "Check what this machine has and what it lacks."),
    }
)


class LazyGroup(click.Group):
    """A group that imports a command when it is run, and maps errors to exit codes.

    Args:
        commands_by_name: where each command lives, in the order of the listing.
    """

    def __init__(self, *args: Any, commands_by_name: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the table's order."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when there is none."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self._lazy[cmd_name].target} is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with near misses for an unknown name."""
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._lazy, n=3, cutoff=0.5)
            known = f"did you mean {' or '.join(near)}?" if near else f"commands: {', '.join(self._lazy)}"
            raise _UsageError(f"no command {args[0]}", known)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run and exit; every error leaves as one or two lines on stderr and an exit code."""
        kwargs["standalone_mode"] = False
        try:
            result = super().main(*args, **kwargs)
        except _UsageError as exc:
            _fail(exc.message, exc.hint, exc.exit_code)
        except click.exceptions.NoArgsIsHelpError as exc:
            click.echo(exc.message, err=True)
            sys.exit(exc.exit_code)
        except click.UsageError as exc:
            path = exc.ctx.command_path if exc.ctx else "kx"
            _fail(exc.format_message(), f"{path} --help", exc.exit_code)
        except click.ClickException as exc:
            _fail(exc.format_message(), "", exc.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except KxError as exc:
            _fail(exc.message, exc.hint, exc.exit_code)
        except OSError as exc:
            # No permission, no space, a parent that does not exist: the machine's doing, wherever it shows.
            place = f"{exc.filename}: " if exc.filename else ""
            _fail(f"{place}{exc.strerror or exc}", "make it accessible, or set KX_HOME to another folder", 3)
        # click hands back the code of ctx.exit(code); our commands themselves return None.
        sys.exit(result if isinstance(result, int) else 0)


class _UsageError(click.UsageError):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _fail(message: str, hint: str, exit_code: int) -> NoReturn:
    one_line = " ".join(message.split()).rstrip(".")
    click.echo(f"error: {one_line}" + (f" / hint: {hint}" if hint else ""), err=True)
    sys.exit(exit_code)


def _show_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"kx {find_version()}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    commands_by_name=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Carry CUDA kernel expertise to Apple Silicon.

    kx map says what a CUDA name becomes on Metal, kx query what experts do and where it was seen, kx
    ingest reads your own CUDA sources. Data lives in the folder that KX_HOME names, .kx by default.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
