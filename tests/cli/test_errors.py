from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kx import errors
from kx.cli import LazyCommand, LazyGroup
from tests.cli.conftest import Kx


def run_raising(error: BaseException) -> Result:
    @click.command()
    def fail() -> None:
        raise error

    group = LazyGroup("kx", commands_by_name={"fail": LazyCommand("nowhere:fail", "Fail.")})
    group.get_command = lambda ctx, name: fail  # type: ignore[method-assign]
    return CliRunner().invoke(group, ["fail"])


def tree(kind: type[errors.KxError]) -> list[type[errors.KxError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in tree(child))]


@pytest.mark.parametrize("kind", tree(errors.KxError), ids=lambda kind: kind.__name__)
def test_every_error_leaves_as_one_line_and_its_exit_code(kind: type[errors.KxError]) -> None:
    result = run_raising(kind("what is\nwrong.", "what to do"))
    assert result.exit_code == kind.exit_code
    assert result.stderr == "error: what is wrong / hint: what to do\n"
    assert result.stdout == ""


def test_error_without_hint_has_none() -> None:
    assert run_raising(errors.InputError("wrong")).stderr == "error: wrong\n"


def test_interrupt_is_130() -> None:
    result = run_raising(KeyboardInterrupt())
    assert result.exit_code == 130
    assert result.stderr.strip().endswith("interrupted")


def test_missing_permission_says_where() -> None:
    result = run_raising(PermissionError(13, "Permission denied", "some/file"))
    assert result.exit_code == 3
    assert "some/file: Permission denied" in result.stderr
    assert "KX_HOME" in result.stderr


def test_our_own_bugs_are_not_hidden() -> None:
    result = run_raising(ZeroDivisionError("bug"))
    assert isinstance(result.exception, ZeroDivisionError)


def test_exit_code_of_a_command_passes() -> None:
    result = run_raising(click.exceptions.Exit(1))
    assert (result.exit_code, result.stderr) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["mpa"], "no command mpa", "did you mean map"),
        (["xyzzy"], "no command xyzzy", "commands: ingest, map"),
        (["map"], "Missing argument 'TERM'", "kx map --help"),
        (["map", "x", "--chp", "m1"], "No such option", "kx map --help"),
        (["query", "x", "-n", "0"], "0 is not in the range", "kx query --help"),
        (["graph", "xyzzy"], "No such command 'xyzzy'", "kx graph --help"),
        (["map", "__ldg", "--chip", "m1-mux"], "no chip named 'm1-mux'", "did you mean m1-max"),
        (["map", " "], "the term is empty", "kx map"),
        (["query", " "], "the question is empty", "kx query"),
        (["ingest", "no/such/path"], "no/such/path does not exist", "give a CUDA file"),
        (["graph", "show", "concept:no-such"], "no node concept:no-such", "kx graph stats"),
        (["graph", "sparql", "SELECT"], "the query does not parse", "SPARQL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_wrong_input_is_one_line_on_stderr_and_exit_code_2(
    kx: Kx, home: Path, arguments: list[str], what: str, hint: str, form: list[str]
) -> None:
    result = kx(*arguments, *form)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    message, _, advice = line.partition(" / hint: ")
    assert what in message
    assert hint in advice
    assert [path.name for path in home.iterdir()] == ["cache"], "something was written"


def test_settings_with_an_unknown_key_name_file_and_key(kx: Kx, home: Path) -> None:
    (home / "settings.toml").write_text('embeding_model = "x"\n')
    result = kx("query", "scan")
    assert result.exit_code == 2
    assert "settings.toml: unknown key embeding_model" in result.stderr
    assert "embedding_model" in result.stderr


@pytest.mark.parametrize("text", ["chip = 3", "chip = ", "\xff"])
def test_settings_that_do_not_parse_are_named(kx: Kx, home: Path, text: str) -> None:
    (home / "settings.toml").write_bytes(text.encode("latin-1"))
    result = kx("map", "__ldg")
    assert result.exit_code == 2
    assert "settings.toml" in result.stderr


def test_missing_model_is_exit_code_3(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kx.cli import main

    monkeypatch.setenv("KX_EMBEDDING_MODEL", str(tmp_path / "nowhere"))
    result = CliRunner().invoke(main, ["query", "scan", "--json"])
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("error: the embedding model folder")
    assert "KX_EMBEDDING_MODEL" in result.stderr


def test_disk_and_missing_folders_leave_as_one_line() -> None:
    for error in (OSError(28, "No space left on device", "some/file"), FileNotFoundError(2, "No such file", "a/b")):
        result = run_raising(error)
        assert result.exit_code == 3
        assert result.stderr.count("\n") == 1
        assert str(error.filename) in result.stderr


def test_data_folder_that_is_a_file_is_told_by_every_command(
    kx: Kx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("KX_HOME", str(tmp_path / "taken"))
    commands = (["map", "__ldg"], ["query", "x"], ["runs"], ["search", "--kernel", "mamba_scan"], ["graph", "stats"])
    for command in commands:
        result = kx(*command)
        assert result.exit_code == 2, command
        assert "is not a folder" in result.stderr
        assert result.stderr.count("\n") == 1
