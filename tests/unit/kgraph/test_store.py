"""What ingest and searches write: read back as it was, replaced as a whole, safe side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgraph.graph import KnowledgeGraph
from kgraph.load import parse_turtle, plain_triples
from kgraph.model import Evidence, Observation
from kgraph.names import file_iri
from kgraph.records import (
    SourceRecord,
    observation_iri,
    observation_triples,
    read_observation,
    read_source,
    source_triples,
)
from kgraph.stores.files import FileGraphStore
from kgraph.triples import Node, TripleIndex, decode, encode
from kgraph.turtle import to_turtle
from kgraph.validate import validate
from kx.errors import DataMalformed, UnknownName
from kx.paths import Home

SHA = "0" * 64
words = st.text(max_size=40)
lines = st.integers(1, 10_000)
shares = st.floats(0, 1, allow_nan=False)
slugs = st.sampled_from(["exp2-trick", "online-softmax", "block-scan"])


@st.composite
def evidences(draw, file: str) -> Evidence:
    first = draw(lines)
    return Evidence(
        concept=draw(slugs),
        kernel=draw(words),
        file=file,
        first_line=first,
        last_line=first + draw(st.integers(0, 50)),
        detector="d@1",
        confidence=draw(shares),
        why=draw(words),
    )


@st.composite
def records(draw) -> SourceRecord:
    file = draw(st.text(min_size=1, max_size=40))
    uses = st.tuples(
        st.sampled_from(["urn:kx:primitive:cuda:ldg", "urn:kx:primitive:cuda:fmaf"]),
        st.sets(lines, min_size=1, max_size=4).map(lambda found: tuple(sorted(found))),
    )
    return SourceRecord(
        iri=file_iri(file), file=file, sha256=SHA, detector_version=draw(st.text(min_size=1, max_size=10)),
        kernels=tuple(draw(st.lists(st.tuples(words, lines), max_size=3))),
        evidence=tuple(draw(st.lists(evidences(file), max_size=3))),
        primitives=tuple(draw(st.lists(uses, max_size=3))),
    )  # fmt: skip


@st.composite
def observed(draw) -> Observation:
    ratio = draw(st.floats(0, 1e6, allow_nan=False))
    return Observation(
        run=draw(words),
        node=draw(words),
        concept=draw(slugs),
        task=draw(words),
        chip=draw(words),
        backend=draw(words),
        timing=draw(st.sampled_from(["estimated", "measured"])),
        outcome=draw(words),
        ratio=ratio,
        ratio_low=ratio / 2,
        ratio_high=ratio * 2,
        extra=draw(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), words, max_size=2)),
    )


def through_turtle(folder: Path, triples) -> TripleIndex:
    path = folder / "graph.ttl"
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(to_turtle(triples))
    return TripleIndex(plain_triples(parse_turtle([path])))


@settings(max_examples=60, deadline=None)
@given(record=records())
def test_a_source_record_survives_turtle(tmp_path_factory, record):
    index = through_turtle(tmp_path_factory.mktemp("t"), source_triples(record))
    assert read_source(index, record.iri) == record


@settings(max_examples=60, deadline=None)
@given(observation=observed())
def test_an_observation_survives_turtle(tmp_path_factory, observation):
    index = through_turtle(tmp_path_factory.mktemp("t"), observation_triples(observation))
    assert read_observation(index, observation_iri(observation)) == observation


@given(st.lists(st.tuples(words, words, st.one_of(words.map(Node), words, st.integers(), st.floats(allow_nan=False)))))
def test_plain_triples_survive_the_cache(triples):
    back = decode(encode(triples))
    assert back == triples
    assert [type(row[2]) for row in back] == [type(row[2]) for row in triples]


def record(file: str = "a.cu", concept: str = "exp2-trick", sha: str = SHA) -> SourceRecord:
    evidence = Evidence(concept, "k", file, 3, 9, "exp2@1", 0.9, "exp2f with a log2(e) scale")
    return SourceRecord(
        iri=file_iri(file), file=file, sha256=sha, detector_version="7", kernels=(("k", 2),), evidence=(evidence,),
        primitives=(("urn:kx:primitive:cuda:exp2f", (3, 5)),),
    )  # fmt: skip


def observation(**changes) -> Observation:
    base = Observation(
        run="r1", node="n1", concept="exp2-trick", task="mamba_scan", chip="m1-max", backend="metalsim",
        timing="estimated", outcome="Scored", ratio=1.2, ratio_low=1.2, ratio_high=1.2,
    )  # fmt: skip
    return replace(base, **changes)


def test_ingesting_again_replaces(graph, home):
    graph.replace_source(record(concept="exp2-trick"))
    graph.replace_source(record(concept="online-softmax", sha="1" * 64))
    assert [e.concept for e in graph.evidence()] == ["online-softmax"]
    assert graph.sources() == {"a.cu": ("1" * 64, "7")}
    assert KnowledgeGraph.open(home).evidence() == graph.evidence()


def test_sources_stand_side_by_side(graph):
    graph.replace_source(record("a.cu"))
    graph.replace_source(record("b.cu", "online-softmax"))
    assert {e.file for e in graph.evidence()} == {"a.cu", "b.cu"}
    assert [e.file for e in graph.evidence("online-softmax")] == ["b.cu"]
    assert graph.remove_source(file_iri("a.cu"))
    assert not graph.remove_source(file_iri("a.cu"))
    assert set(graph.sources()) == {"b.cu"}


def test_evidence_of_an_unknown_concept_is_refused(graph):
    with pytest.raises(UnknownName, match="no-such-concept"):
        graph.replace_source(record(concept="no-such-concept"))
    assert graph.sources() == {}


def test_primitives_may_be_named_by_token(graph):
    graph.replace_source(replace(record(), primitives=(("ex2.approx.ftz.f32", (4,)), ("__ldg", (5,)))))
    index = TripleIndex(graph.store.read(file_iri("a.cu")))
    assert [iri for iri, _ in read_source(index, file_iri("a.cu")).primitives] == [
        "urn:kx:primitive:cuda:exp2f", "urn:kx:primitive:cuda:ldg",
    ]  # fmt: skip
    with pytest.raises(UnknownName, match="no_such_token"):
        graph.replace_source(replace(record(), primitives=(("no_such_token", (4,)),)))


def test_text_that_is_no_iri_is_refused():
    with pytest.raises(ValueError, match="not an IRI"):
        to_turtle([("urn:kx:a b", "urn:kx:p", 1)])


def test_a_small_confidence_keeps_all_its_digits(tmp_path):
    """rdflib writes doubles with seven digits: 0.36328125 came back as 0.3632812."""
    index = through_turtle(tmp_path, [("urn:kx:a", "urn:kx:p", 0.36328125)])
    assert index.number("urn:kx:a", "urn:kx:p") == 0.36328125


def test_a_run_of_any_name_keeps_its_observations(graph, home):
    graph.add_observation(observation(run="a run\nof <two> lines"))
    assert [o.run for o in KnowledgeGraph.open(home).observations()] == ["a run\nof <two> lines"]


def test_only_what_is_wrong_is_a_violation(graph):
    """All that is curated or written by replace_source and add_observation is valid; a vanished concept is not."""
    graph.replace_source(record())
    graph.add_observation(observation())
    graph.store.replace(file_iri("b.cu"), source_triples(record("b.cu", concept="gone-concept")))
    violations = validate(graph)
    assert [violation for violation in violations if violation.node != f"{file_iri('b.cu')}:evidence:0"] == []
    assert "Evidence is for one concept of the graph." in [violation.message for violation in violations]


def test_observations_are_found_by_every_slug(graph, home):
    graph.add_observation(observation())
    graph.add_observation(observation(node="n2", outcome="CompileFailed", ratio=0.0, ratio_low=0.0, ratio_high=0.0))
    graph.add_observation(observation(run="r2", chip="m5-max"))
    assert len(graph.observations()) == 3
    assert len(graph.observations(concept="exp2-trick", task="mamba_scan", chip="m1-max", backend="metalsim")) == 2
    assert graph.observations(concept="online-softmax") == ()
    assert len(KnowledgeGraph.open(home).observations(chip="m5-max")) == 1


def test_a_resumed_run_does_not_count_an_observation_twice(graph):
    graph.add_observation(observation())
    graph.add_observation(observation(ratio=1.5, ratio_high=1.5))
    assert [o.ratio for o in graph.observations()] == [1.5]


def test_counts_follow_what_is_written(graph):
    before = graph.triple_count()
    graph.replace_source(record())
    stats = graph.stats()
    assert (stats.sources, stats.evidence, stats.observations) == (1, 1, 0)
    assert graph.triple_count() == stats.triples == before + len(source_triples(record()))


def test_reading_writes_nothing_into_the_graph_folder(graph, home):
    graph.lookup("__shared__")
    graph.evidence()
    graph.observations()
    assert not home.graph.exists()


def test_a_torn_source_file_is_named(graph, home):
    graph.replace_source(record())
    path = next((home.graph / "sources").glob("*.ttl"))
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(DataMalformed, match=path.name):
        KnowledgeGraph.open(home).evidence()


def test_the_curated_graph_is_not_written(graph):
    with pytest.raises(ValueError, match="curated"):
        graph.store.replace("urn:kx:graph:curated", [])


def test_the_dataset_holds_every_named_graph(graph):
    graph.replace_source(record())
    graph.add_observation(observation())
    table = graph.select("SELECT DISTINCT ?g WHERE { GRAPH ?g { ?s ?p ?o } }")
    assert {row[0] for row in table.rows} >= {
        "urn:kx:graph:curated", file_iri("a.cu"), "urn:kx:graph:observations:r1",
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"# torn\n<urn:x", b"# \xff\xfe\n"])
def test_a_damaged_file_of_ours_is_to_be_deleted_not_mended(tmp_path: Path, content: bytes) -> None:
    store = FileGraphStore(Home(tmp_path))
    name = file_iri("a.cu")
    store.replace(name, [])
    (path,) = (tmp_path / "graph" / "sources").iterdir()
    path.write_bytes(f"# {name}\n".encode() + content)
    assert name in store.names()
    for ask in (lambda: store.read(name), store.dataset):
        with pytest.raises(DataMalformed, match=path.name) as caught:
            ask()
        assert caught.value.hint.startswith(f"delete {path}: kx ingest")
