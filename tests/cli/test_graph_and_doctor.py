from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rdflib import Dataset, Graph, Literal, URIRef

from kgraph.export import serialize
from kgraph.graph import KnowledgeGraph
from kgraph.load import to_graph
from kgraph.names import CURATED, schema
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


@pytest.fixture(scope="module")
def part(parsed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The mappings, limits and concepts of the curated graph, and a graph of observations beside them."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "cache").symlink_to(parsed_cache, target_is_directory=True)
    store = KnowledgeGraph.open(Home(folder)).store
    kinds = tuple(f"urn:kx:{kind}:" for kind in ("mapping", "constraint", "concept"))
    dataset = Dataset(default_union=True)
    for triple in to_graph([triple for triple in store.read(CURATED) if triple[0].startswith(kinds)]):
        dataset.graph(URIRef(CURATED)).add(triple)
    seen = (URIRef("urn:kx:observation:o"), URIRef(schema("outcome")), Literal('"a" <b>\n& c'))
    dataset.graph(URIRef("urn:kx:graph:observations:r")).add(seen)
    return dataset


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib's own parsers
@pytest.mark.parametrize("form", ["trig", "turtle", "nquads", "json-ld"])
def test_rdflib_reads_every_triple_of_an_export(part: Dataset, form: str) -> None:
    read: Graph = Graph() if form == "turtle" else Dataset(default_union=True)
    read.parse(data=serialize(part, form), format=form)
    assert set(read.triples((None, None, None))) == set(part.triples((None, None, None)))


def test_graphml_has_every_node_and_link(part: Dataset) -> None:
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ElementTree.fromstring(serialize(part, "graphml"))
    nodes = [node.attrib["id"] for node in root.iter(f"{space}node")]
    edges = [(edge.attrib["source"], edge.attrib["target"]) for edge in root.iter(f"{space}edge")]
    links = [(str(s), str(o)) for s, _, o, _ in part.quads() if not isinstance(o, Literal)]
    assert sorted(edges) == sorted(links)
    assert len(nodes) == len(set(nodes))
    assert set(nodes) == {str(s) for s, _, _, _ in part.quads()} | {end for edge in edges for end in edge}
    declared = {key.attrib["id"] for key in root.iter(f"{space}key")}
    assert {data.attrib["key"] for data in root.iter(f"{space}data")} <= declared


def test_export_writes_every_quad_to_a_file(kx: Kx, tmp_path: Path) -> None:
    result = kx("graph", "export", "-o", str(tmp_path / "exported.nq"), "--format", "nquads")
    assert (result.exit_code, result.stdout) == (0, "")
    written = (tmp_path / "exported.nq").read_text(encoding="utf-8").split("\n")
    assert len([line for line in written if line]) == parse_one_object(kx("graph", "stats", "--json"))["triples"]


def test_sparql_builds_triples(kx: Kx) -> None:
    built = kx("graph", "sparql", "CONSTRUCT { ?c a kx:Concept } WHERE { ?c skos:notation 'online-softmax' }")
    assert "concept:online-softmax a kx:Concept ." in built.stdout
    assert "Online softmax" in kx("graph", "sparql", "DESCRIBE concept:online-softmax").stdout


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT ?x WHERE {\n  ?x a ) }", "line 2, column 3"),
        ("SELECT ?x WHERE { ?x a foo:Chip }", "the prefix foo: is not declared"),
        ("DELETE WHERE { ?x a kx:Chip }", "line 1, column 1"),
    ],
)
def test_a_query_that_does_not_parse_names_the_place(kx: Kx, query: str, told: str) -> None:
    result = kx("graph", "sparql", query)
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    ("node", "near"),
    [("concept:exp2trick", "concept:exp2-trick"), ("threadgroup-memory", "limit:threadgroup-memory")],
)
def test_an_unknown_node_is_answered_by_near_ones(kx: Kx, node: str, near: str) -> None:
    result = kx("graph", "show", node)
    assert result.exit_code == 2
    assert near in result.stderr


def test_stats_count_every_class(kx: Kx) -> None:
    nodes = parse_one_object(kx("graph", "stats", "--json"))["nodes"]
    assert {"Fact", "Feature", "Aspect", "Task", "Platform", "GpuFamily", "QuantityKind"} <= nodes.keys()
    assert min(nodes.values()) > 0


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


def test_doctor_self_test_exits_with_3_where_mlx_has_no_gpu(kx: Kx) -> None:
    mx: Any = pytest.importorskip("mlx.core")
    if mx.metal.is_available() or mx.cuda.is_available():
        pytest.skip("this machine has one")
    result = kx("doctor", "--self-test")
    assert result.exit_code == 3
    assert "pip install" in result.stderr


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
