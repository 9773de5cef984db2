"""What every graph store does alike: files, Oxigraph on disk, a SPARQL endpoint."""

from __future__ import annotations

import multiprocessing
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgraph.stores.files
import kgraph.stores.sparql
from kgraph.graph import KnowledgeGraph
from kgraph.load import curated_files
from kgraph.model import Evidence, Observation
from kgraph.names import CURATED, file_iri, schema
from kgraph.records import SourceRecord
from kgraph.sparql import Table
from kgraph.store import GraphStore, open_store
from kgraph.triples import Node, Triple, TripleIndex
from kx.errors import DataMalformed, InputError
from kx.paths import Home
from kx.settings import Settings
from tests.contract.appending import append, know_little
from tests.servers import oxigraph_server

A, B, RUN = file_iri("a.cu"), file_iri("b.cu"), "urn:kx:graph:observations:r1"
P, Q = "urn:kx:test:p", "urn:kx:test:q"


@pytest.fixture(autouse=True, scope="module")
def little_knowledge() -> Iterator[None]:
    know_little()
    yield
    for module in (kgraph.stores.files, kgraph.stores.sparql):
        module.curated_files = curated_files  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with oxigraph_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, little_knowledge: None) -> Path:
    """A cache in which the curated files are parsed."""
    home = Home(tmp_path_factory.mktemp("parsed"))
    open_store(home, Settings()).read(CURATED)
    return home.cache


@pytest.fixture
def home(tmp_path: Path, cache: Path) -> Home:
    (tmp_path / "cache").symlink_to(cache, target_is_directory=True)
    return Home(tmp_path)


@pytest.fixture(params=["files", "oxigraph", "endpoint"])
def chosen(request: pytest.FixtureRequest) -> Settings:
    if request.param != "endpoint":
        return Settings(graph_store=request.param)
    address = request.getfixturevalue("server")
    empty(address)
    return Settings(graph_store=f"{address}/query")


def empty(address: str) -> None:
    headers = {"Content-Type": "application/sparql-update"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/update", b"DROP ALL", headers)):
        pass


@pytest.fixture
def store(home: Home, chosen: Settings) -> Iterator[GraphStore]:
    opened = open_store(home, chosen)
    yield opened
    opened.close()


def triples(count: int, subject: str = "urn:kx:test:s") -> list[Triple]:
    return [(subject, P, number) for number in range(count)]


def test_a_new_store_holds_the_curated_graph_alone(store: GraphStore, home: Home) -> None:
    assert store.names() == (CURATED,)
    assert store.read(A) == []
    assert store.find("urn:kx:file:", P) == []
    assert not store.remove(A)
    assert not [path for path in home.graph.glob("*") if path.name != "locks"], "reading wrote something"


def test_a_graph_is_replaced_as_a_whole_and_removed(store: GraphStore) -> None:
    store.replace(A, triples(3))
    store.replace(B, [])
    store.replace(A, triples(2))
    assert store.names("urn:kx:file:") == tuple(sorted((A, B)))
    assert store.read(A) == triples(2)
    assert (store.read(B), store.count("urn:kx:file:"), store.count(A)) == ([], 2, 2)
    assert store.remove(A)
    assert not store.remove(A)
    assert store.names() == tuple(sorted((CURATED, B)))


def test_what_one_opening_wrote_another_reads(store: GraphStore, home: Home, chosen: Settings) -> None:
    store.replace_all([(A, triples(3)), (B, triples(4))])
    again = open_store(home, chosen)
    with again.batch():
        assert (again.read(A), again.read(B)) == (triples(3), triples(4))


def test_more_triples_than_one_request_takes(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgraph.stores.sparql._BATCH_TRIPLES", 5)
    store.replace_all((file_iri(f"{number}.cu"), triples(3, f"urn:kx:test:{number}")) for number in range(7))
    assert len(store.names("urn:kx:file:")) == 7
    assert store.count("urn:kx:file:") == 21


words = st.text(max_size=12) | st.sampled_from(['a "quoted" \\ word', "\\u0041", "?x <y> {z}", "line\r\nline\t", "é…𝔘"])
values = st.one_of(words, st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.just(Node("urn:kx:a'b?c=d&é")))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.lists(values, max_size=8))
def test_any_value_comes_back_as_it_was(store: GraphStore, found: list[str | int | float | Node]) -> None:
    # One property per value: equal numbers of two types are one value in Python and two in RDF.
    written = [("urn:kx:test:s", f"{P}{number}", value) for number, value in enumerate(found)]
    store.replace(A, written)
    back = {predicate: value for _, predicate, value in store.read(A)}
    assert back == {predicate: value for _, predicate, value in written}
    assert {p: type(v) for p, v in back.items()} == {p: type(v) for _, p, v in written}


def test_an_update_sees_what_is_there(store: GraphStore) -> None:
    store.update(RUN, lambda old: [*old, ("urn:kx:test:s", P, 1)])
    store.update(RUN, lambda old: [*old, ("urn:kx:test:s", P, 2)])
    assert store.read(RUN) == [("urn:kx:test:s", P, 1), ("urn:kx:test:s", P, 2)]
    store.update(RUN, lambda old: [])
    assert (store.read(RUN), store.names(RUN)) == ([], (RUN,))


@pytest.mark.parametrize("name", ["concept", "anyOther"], ids=["catalogued", "not catalogued"])
def test_triples_are_found_by_property_and_value(store: GraphStore, name: str) -> None:
    p = schema(name)
    store.replace(A, [(f"{A}:1", p, Node("urn:kx:x")), (f"{A}:2", p, "urn:kx:x"), (f"{A}:2", Q, Node("urn:kx:x"))])
    store.replace(B, [(f"{B}:1", p, 7)])
    store.replace(RUN, [("urn:kx:test:o", p, Node("urn:kx:x"))])
    found = store.find("urn:kx:file:", p)
    assert found == sorted(found)
    assert set(found) == {(f"{A}:1", p, "urn:kx:x"), (f"{A}:2", p, "urn:kx:x"), (f"{B}:1", p, 7)}
    assert {type(value) for _, _, value in found} == {Node, str, int}
    assert store.find("urn:kx:", p, Node("urn:kx:x")) == sorted(
        [(f"{A}:1", p, Node("urn:kx:x")), ("urn:kx:test:o", p, Node("urn:kx:x"))]
    )
    assert store.find("urn:kx:file:", p, 7) == [(f"{B}:1", p, 7)]
    store.replace(A, [])
    assert store.find("urn:kx:file:", p) == [(f"{B}:1", p, 7)]


def test_the_curated_graph_is_not_written(store: GraphStore) -> None:
    for write in (lambda: store.replace(CURATED, []), lambda: store.update(CURATED, lambda old: old)):
        with pytest.raises(ValueError, match="curated"):
            write()
    assert len(store.read(CURATED)) == store.count(CURATED) > 100


def test_sparql_is_answered_over_all_graphs(store: GraphStore) -> None:
    store.replace(A, [(A, schema("concept"), Node("urn:kx:concept:exp2-trick")), (A, P, 0.5), (A, Q, "ü")])
    table = store.query(
        "SELECT ?f ?label ?x ?none { ?f kx:concept ?c . ?c skos:prefLabel ?label . ?f <urn:kx:test:p> ?x }"
    )
    assert isinstance(table, Table)
    assert table.columns == ("f", "label", "x", "none")
    ((file, label, half, nothing),) = table.rows
    assert (file, half, nothing) == (A, "0.5", "")
    assert label
    assert store.query("ASK { GRAPH ?g { ?s <urn:kx:test:q> 'ü' } }") == Table(("answer",), (("true",),))
    assert store.query("ASK { ?s rdf:type kx:Nothing }") == Table(("answer",), (("false",),))
    counted = store.query("SELECT (COUNT(?s) AS ?n) { ?s a kx:Concept }")
    concepts = TripleIndex(store.read(CURATED)).instances(schema("Concept"))
    assert counted == Table(("n",), ((str(len(concepts)),),))
    turtle = store.query("CONSTRUCT { ?f kx:concept ?c } { ?f kx:concept ?c }")
    assert isinstance(turtle, str)
    assert f"<{A}> kx:concept concept:exp2-trick ." in turtle


@pytest.mark.parametrize("query", ["SELECT", "SELECT ?x { ?x nope:y 1 }", "DROP ALL"])
def test_what_is_no_query_is_refused(store: GraphStore, query: str) -> None:
    store.replace(A, triples(1))
    with pytest.raises(InputError):
        store.query(query)
    assert store.read(A) == triples(1)


def test_the_dataset_holds_every_named_graph(store: GraphStore) -> None:
    store.replace(A, triples(3))
    store.replace(RUN, triples(2))
    dataset = store.dataset()
    sizes = {str(graph.identifier): len(graph) for graph in dataset.graphs() if len(graph)}
    assert sizes.pop(CURATED) > 100
    assert sizes == {A: 3, RUN: 2}


def test_a_store_of_another_layout_is_refused(
    store: GraphStore, home: Home, chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        for module in ("files", "sparql"):
            later.setattr(f"kgraph.stores.{module}.LAYOUT", "2")
        store.replace(A, triples(1))
    other = open_store(home, chosen)
    for ask in (lambda: other.read(A), lambda: other.replace(A, []), lambda: other.find("urn:", P)):
        with pytest.raises(DataMalformed, match="has layout 2, this kx knows 1"):
            ask()


def test_processes_that_update_one_graph_lose_nothing(store: GraphStore, home: Home, chosen: Settings) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=append, args=(str(home.root), chosen, RUN, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert len(store.read(RUN)) == 9


def test_the_graph_asks_alike(store: GraphStore, home: Home, chosen: Settings) -> None:
    evidence = Evidence("exp2-trick", "k", "a.cu", 3, 9, "exp2@1", 0.9, "exp2f with a log2(e) scale")
    record = SourceRecord(
        iri=A, file="a.cu", sha256="0" * 64, detector_version="7", kernels=(("k", 2),), evidence=(evidence,),
        root="/src",
    )  # fmt: skip
    observation = Observation(
        run="r1", node="n1", concept="exp2-trick", task="mamba_scan", chip="m1-max", backend="metalsim",
        timing="estimated", outcome="Scored", ratio=1.25, ratio_low=1.125, ratio_high=1.5,
    )  # fmt: skip
    graph = KnowledgeGraph(store)
    graph.replace_source(record)
    graph.add_observation(observation)
    other = KnowledgeGraph(open_store(home, chosen))
    assert other.evidence("exp2-trick") == (evidence,)
    assert other.sources() == {"a.cu": ("0" * 64, "7")}
    assert other.source_roots() == {"a.cu": "/src"}
    assert other.observations(concept="exp2-trick") == (observation,)
    assert other.describe(f"{A}:evidence:0")[schema("confidence")] == [0.9]
    stats = other.stats()
    assert (stats.sources, stats.evidence, stats.observations) == (1, 1, 1)
    assert stats.triples - stats.curated == store.count("urn:kx:file:") + store.count("urn:kx:graph:observations:")
    assert other.concept("exp2-trick").label
