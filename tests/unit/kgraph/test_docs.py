"""The examples of docs/knowledge-graph.md run and give what the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "knowledge-graph.md"


def test_the_python_example_gives_what_it_says(home, monkeypatch):
    monkeypatch.setenv("KX_HOME", str(home.root))
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code
    namespace: dict[str, object] = {}
    checked = 0
    for line in code[1].splitlines():
        statement, _, said = line.partition("  # ")
        expected = said.strip()
        if expected.startswith("'"):
            assert eval(statement, namespace) == ast.literal_eval(expected), line
            checked += 1
        else:
            exec(statement, namespace)
    assert checked == 2


def test_the_turtle_example_is_in_the_graph(curated):
    iri = re.search(r"```turtle\n(map:\S+)", PAGE.read_text(encoding="utf-8"))
    assert iri
    assert curated.describe(iri[1])
