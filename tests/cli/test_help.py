from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from kx.cli import COMMANDS, main
from kx.cli.reference import REFERENCE, render_reference, walk_commands
from kx.version import find_version
from tests.cli.conftest import Kx

ALL = list(walk_commands(main, ("kx",)))
HEAVY = ("chromadb", "torch", "sentence_transformers", "transformers", "mlx", "openai", "pyshacl")


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_and_option_has_help(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help
    assert command.help.strip().splitlines()[0].endswith(".")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.opts[0]}"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_summary_in_the_table_is_the_commands_own_first_line(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help
    assert COMMANDS[name].summary == command.help.strip().splitlines()[0]


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_help_prints_and_succeeds(kx: Kx, path: tuple[str, ...]) -> None:
    result = kx(*path[1:], "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(path)}")
    assert result.stderr == ""


def test_command_reference_has_not_drifted() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == render_reference(), "run: python -m kx.cli.reference"


def test_no_command_shows_the_help(kx: Kx) -> None:
    result = kx()
    assert result.exit_code == 0
    assert "Commands:" in result.stdout


def test_version(kx: Kx) -> None:
    result = kx("--version")
    assert (result.exit_code, result.stdout) == (0, f"kx {find_version()}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["map", "__shfl_xor_sync", "--json"], ["map", "no such thing"]])
def test_help_and_map_load_no_heavy_library(home: Path, arguments: list[str]) -> None:
    program = (
        "import sys\nfrom kx.cli import main\n"
        "try:\n    main(sys.argv[1:], prog_name='kx')\n"
        f"finally:\n    print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)\n"
    )
    repository = Path(__file__).resolve().parents[2]
    environment = {"PYTHONPATH": str(repository), "KX_HOME": str(home)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home, env=environment)
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
