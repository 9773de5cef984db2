"""Stores by the settings: copied, examined, and told when they cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from kx.settings import Settings
from tests.cli.conftest import Kx, parse_one_object
from tests.contract.appending import little_knowledge
from tests.servers import free_port


def test_a_graph_moves_to_another_store_and_is_asked_there(
    kx: Kx, home: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kx("ingest", str(sources)).exit_code == 0
    here = parse_one_object(kx("graph", "stats", "--json"))
    with little_knowledge():
        result = kx("graph", "copy", "--to", "oxigraph", "--json")
    assert (result.exit_code, parse_one_object(result)["graphs"]) == (0, 1)
    monkeypatch.setenv("KX_GRAPH_STORE", "oxigraph")
    there = parse_one_object(kx("graph", "stats", "--json"))
    assert (there["sources"], there["evidence"]) == (here["sources"], here["evidence"]) != (0, 0)
    again = kx("ingest", str(sources), "--json")
    assert parse_one_object(again)["unchanged"] == ["sources/scan.cu"]


def test_a_copy_onto_itself_is_refused(kx: Kx) -> None:
    result = kx("graph", "copy", "--to", "files")
    assert (result.exit_code, "the two stores are the same" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("graph_store", "oxygraph", "files or oxigraph or an http"),
        ("graph_store", "ftp://x/sparql", "files or oxigraph or an http"),
        ("graph_store", "https://me:secret@x/sparql", "not in the URL"),
        ("graph_timeout_s", "soon", "number of seconds"),
        ("vector_store", "http://", "chroma or an http"),
    ],
)
@pytest.mark.parametrize("origin", ["file", "variable"])
def test_a_setting_that_names_no_store_is_told(
    kx: Kx, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, what: str, origin: str
) -> None:
    if origin == "file":
        (home / "settings.toml").write_text(f'{name} = "{value}"\n')
    else:
        monkeypatch.setenv(f"KX_{name.upper()}", value)
    result = kx("map", "__ldg")
    assert result.exit_code == 2
    assert what in result.stderr
    assert ("settings.toml" if origin == "file" else f"KX_{name.upper()}") in result.stderr
    assert "secret" not in result.stderr


def test_the_update_url_follows_from_the_query_url() -> None:
    assert Settings(graph_store="http://h/ds/sparql").graph_update_url == "http://h/ds/update"
    assert Settings(graph_store="http://h/query").graph_update_url == "http://h/update"
    assert Settings(graph_store="http://h/repositories/x").graph_update_url == "http://h/repositories/x"
    assert Settings(graph_store="http://h/query", graph_update="http://h/u").graph_update_url == "http://h/u"


def test_map_asks_no_store_and_doctor_says_that_none_answers(kx: Kx, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("KX_GRAPH_STORE", f"{nobody}/query")
    monkeypatch.setenv("KX_VECTOR_STORE", nobody)
    assert kx("map", "__ldg").exit_code == 0
    findings = {found["name"]: found for found in parse_one_object(kx("doctor", "--json"))["findings"]}
    for name in ("graph store", "vector store"):
        assert findings[name]["state"] == "lacking"
        assert nobody in findings[name]["detail"]
        assert findings[name]["hint"]
    result = kx("graph", "stats")
    assert (result.exit_code, "cannot be reached" in result.stderr) == (3, True)


@pytest.mark.parametrize("kind", ["a file in its place", "a lock that is a folder"])
def test_an_index_folder_that_cannot_be_used_has_one_exit_code(kx: Kx, home: Path, sources: Path, kind: str) -> None:
    """It was 3 where the folder is locked and 2 where its file is opened."""
    if kind == "a file in its place":
        (home / "index").write_text("")
    else:
        (home / "index" / "lock").mkdir(parents=True)
    commands = (["query", "scan"], ["ingest", str(sources)], ["search", "--kernel", "mamba_scan", "--budget", "1"])
    codes = {command[0]: kx(*command) for command in commands}
    assert {name: result.exit_code for name, result in codes.items()} == dict.fromkeys(codes, 2)
    for result in codes.values():
        assert str(home / "index") in result.stderr


def test_an_index_of_another_model_is_told_with_the_folder_to_delete(
    kx: Kx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.retrieval.doubles import HashingEmbedder

    assert kx("query", "scan").exit_code == 0
    monkeypatch.setattr("retrieval.embedding.SentenceEmbedder", lambda folder: HashingEmbedder("other"))
    monkeypatch.setattr("retrieval.index.EXACT_LIMIT", 0)
    (home / "index" / "entries.sqlite").unlink()
    result = kx("query", "scan")
    assert result.exit_code == 2
    assert "was built with the embedding model hashing, not other" in result.stderr
    assert f"delete {home / 'index' / 'vectors'}" in result.stderr


def test_a_graph_of_another_layout_is_told_by_ingest(kx: Kx, home: Path, sources: Path) -> None:
    (home / "graph").mkdir()
    (home / "graph" / "layout").write_text("9\n")
    result = kx("ingest", str(sources))
    assert result.exit_code == 2
    assert "has layout 9, this kx knows 1" in result.stderr
    assert [path.name for path in (home / "graph").iterdir()] == ["layout"]
