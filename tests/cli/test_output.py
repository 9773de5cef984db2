from __future__ import annotations

import pytest
from click.testing import CliRunner

from kx.cli import output


def test_table_off_a_terminal_is_aligned_and_of_bounded_width(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["name", "what"], [["a", "word " * 60], ["[[thread]]", 3]], title="times")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= output.PLAIN_WIDTH for line in lines)
    assert lines[0].strip() == "times"
    heading = next(line for line in lines if "what" in line)
    last = next(line for line in lines if "[[thread]]" in line)
    assert heading.index("what") == last.index("3")
    assert sum(line.count("word") for line in lines) == 60


def test_table_on_a_terminal_shows_brackets_of_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.print_table(["name"], [["[[threadgroup(0)]]"], ["[bold]x"]], title="titled")
    printed = capsys.readouterr().out
    assert "[[threadgroup(0)]]" in printed
    assert "[bold]x" in printed
    assert "titled" in printed


def test_json_refuses_what_json_does_not_know() -> None:
    with pytest.raises(ValueError, match="JSON"):
        output.print_json({"ratio": float("nan")})


def test_progress_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("reading") as advance:
        advance(1, 2)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_progress_on_a_terminal_goes_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.progress("reading") as advance:
        advance(1, 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "reading" in printed.err


def test_notes_go_to_stderr() -> None:
    import click

    @click.command()
    def speak() -> None:
        output.note("about the work")
        output.print_text("the answer")

    result = CliRunner().invoke(speak)
    assert (result.stdout, result.stderr) == ("the answer\n", "about the work\n")
