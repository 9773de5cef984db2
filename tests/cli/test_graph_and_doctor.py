from __future__ import annotations

import re
from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from kx.cli import doctor as module
from kx.paths import Home
from tests.cli.conftest import Kx, parse_one_object


def test_stats_count_the_graph(kx: Kx) -> None:
    counted = parse_one_object(kx("graph", "stats", "--json"))
    assert counted["nodes"]["Concept"] == 55
    assert counted["sources"] == 0
    assert re.search(r"Concept nodes +55", kx("graph", "stats").stdout)


@pytest.mark.parametrize("node", ["online-softmax", "concept:online-softmax", "urn:kx:concept:online-softmax"])
def test_show_takes_slug_prefixed_name_and_iri(kx: Kx, node: str) -> None:
    result = kx("graph", "show", node)
    assert result.exit_code == 0
    assert re.search(r"skos:prefLabel +Online softmax", result.stdout)
    shown = parse_one_object(kx("graph", "show", node, "--json"))
    assert shown["properties"]["http://www.w3.org/2004/02/skos/core#notation"] == ["online-softmax"]


def test_sparql_answers_as_table_and_as_json(kx: Kx) -> None:
    question = 'SELECT ?c WHERE { ?c skos:notation "online-softmax" }'
    assert kx("graph", "sparql", question).stdout == "c\nconcept:online-softmax\n"
    assert parse_one_object(kx("graph", "sparql", question, "--json"))["rows"] == [
        {"c": "urn:kx:concept:online-softmax"}
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib's own parsers
@pytest.mark.parametrize("form", ["trig", "nquads", "json-ld"])
def test_export_writes_a_file_that_rdflib_reads(kx: Kx, tmp_path: Path, form: str) -> None:
    from rdflib import Dataset, Literal

    result = kx("graph", "export", "-o", str(tmp_path / "exported"), "--format", form)
    assert (result.exit_code, result.stdout) == (0, "")
    read = Dataset(default_union=True)
    read.parse(data=(tmp_path / "exported").read_text(encoding="utf-8"), format=form)
    assert Literal("online-softmax") in set(read.objects())


@pytest.mark.parametrize(("violations", "exit_code"), [([], 0), (["broken"], 1)])
def test_validate_answers_by_exit_code(
    kx: Kx, monkeypatch: pytest.MonkeyPatch, violations: list[str], exit_code: int
) -> None:
    from kgraph import validate
    from kgraph.validate import Violation

    names = list(Violation.__dataclass_fields__)
    found = [Violation(**{**dict.fromkeys(names, text), "severity": "error"}) for text in violations]
    monkeypatch.setattr(validate, "validate", lambda graph: found)
    result = kx("graph", "validate", "--json")
    assert result.exit_code == exit_code
    answer = parse_one_object(result)
    assert answer["valid"] is (not violations)
    assert len(answer["violations"]) == len(violations)
    assert ("the graph is valid" in kx("graph", "validate").stdout) is (not violations)


def test_doctor_tells_what_is_fine(kx: Kx) -> None:
    answer = parse_one_object(kx("doctor", "--json"))
    states = {finding["name"]: finding["state"] for finding in answer["findings"]}
    for name in ("python", "embedding model", "packages", "knowledge graph", "KX_HOME"):
        assert states[name] == "fine", name
    assert answer["healthy"] is ("lacking" not in states.values())


def test_doctor_exits_with_3_and_a_hint_when_something_is_lacking(
    kx: Kx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KX_EMBEDDING_MODEL", str(tmp_path / "nowhere"))
    result = kx("doctor", "--json")
    assert result.exit_code == 3
    findings = {finding["name"]: finding for finding in parse_one_object(result)["findings"]}
    assert findings["embedding model"]["state"] == "lacking"
    assert "KX_EMBEDDING_MODEL" in findings["embedding model"]["hint"]
    assert findings["python"]["state"] == "fine"


def test_doctor_notices_a_data_folder_that_is_no_folder(
    kx: Kx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KX_HOME", str(tmp_path / "file"))
    result = kx("doctor", "--json")
    assert result.exit_code == 3
    findings = {finding["name"]: finding for finding in parse_one_object(result)["findings"]}
    assert findings["KX_HOME"]["state"] == "lacking"


def test_doctor_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = module.examine_compiler()
    assert found.state == "lacking"
    assert "ziglang" in found.hint


@pytest.mark.parametrize(
    ("brand", "profiles"),
    [
        ("Apple M4", "m4, m4-8-core"),
        ("Apple M4 Max", "m4-max, m4-max-32-core"),
        ("Apple M1 Ultra", "m1-ultra, m1-ultra-48-core"),
    ],
)
def test_an_m4_is_not_taken_for_an_m4_max(
    monkeypatch: pytest.MonkeyPatch, home: Path, brand: str, profiles: str
) -> None:
    monkeypatch.setattr(module, "_ask", lambda command: brand)
    found = module.examine_chip(KnowledgeGraph.open(Home(home)))
    assert (found.state, found.detail) == ("fine", f"{brand}: profile {profiles}")


def test_a_chip_without_a_profile_is_told_to_name_another(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(module, "_ask", lambda command: "Apple M9")
    assert "--chip" in module.examine_chip(KnowledgeGraph.open(Home(home))).hint
