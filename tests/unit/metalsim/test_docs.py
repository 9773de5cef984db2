"""The example of docs/metalsim.md prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "metalsim.md"


def test_the_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    printed = re.search(r"reports\n\n```\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert printed is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], str(PAGE), "exec"), {})
    assert capsys.readouterr().out == printed[1]
