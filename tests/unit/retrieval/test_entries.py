from __future__ import annotations

from pathlib import Path

import pytest

from kgraph.facts import facts
from kgraph.graph import KnowledgeGraph
from kgraph.model import Evidence
from kgraph.names import file_iri
from kgraph.records import SourceRecord
from kx.errors import UnknownName
from kx.paths import Home
from retrieval.entries import curated_entries, source_entries, synchronize
from retrieval.index import Index

FILE = "kernels/scan.cu"


def make_record(sha256: str = "0" * 64, concept: str = "block-scan", file: str = FILE) -> SourceRecord:
    seen = Evidence(concept, "scan_kernel", file, 12, 30, "block-scan@1", 0.9, "calls BlockScan::InclusiveScan")
    alone = Evidence("constant-memory", "", file, 3, 3, "constant-memory@1", 0.8, "__constant__ float")
    return SourceRecord(file_iri(file), file, sha256, "1", (("scan_kernel", 10),), (seen, alone), ())


def test_curated_entries_cover_every_node_once(curated_graph: KnowledgeGraph) -> None:
    entries = curated_entries(curated_graph)
    assert len({entry.id for entry in entries}) == len(entries)
    assert {entry.source for entry in entries} == {"curated"}
    by_kind = {kind: [entry for entry in entries if entry.kind == kind] for kind in {entry.kind for entry in entries}}
    assert len(by_kind["concept"]) == len(curated_graph.concepts())
    assert len(by_kind["mapping"]) == len(curated_graph.mappings())
    assert len(by_kind["constraint"]) == len(curated_graph.constraints())
    assert len(by_kind["fact"]) == len(facts(curated_graph))
    assert len(by_kind["pattern"]) == len(curated_graph.patterns())
    assert len(by_kind["assertion"]) == len(curated_graph.assertions())
    assert len(by_kind["primitive"]) == len(curated_graph.primitives())


def test_every_curated_entry_stands_for_a_node_and_reads_as_text(curated_graph: KnowledgeGraph) -> None:
    for entry in curated_entries(curated_graph):
        assert curated_graph.describe(entry.id)
        assert entry.title.strip()
        assert entry.text.strip(), entry.id
        assert "  " not in entry.title


def test_source_entries_stand_for_the_graphs_nodes(tmp_path: Path) -> None:
    graph = KnowledgeGraph.open(Home(tmp_path))
    record = make_record()
    graph.replace_source(record)
    entries = source_entries(graph, record)
    assert [entry.kind for entry in entries] == ["kernel", "evidence", "evidence"]
    for entry in entries:
        assert graph.describe(entry.id)
        assert entry.source == record.iri
    kernel, seen, alone = entries
    assert kernel.title == "scan_kernel (kernels/scan.cu:10)"
    assert kernel.concepts == ("block-scan",)
    assert "kernels/scan.cu:12-30" in seen.title
    assert "calls BlockScan::InclusiveScan" in seen.text
    assert "file scope" in alone.text


def test_evidence_of_an_unknown_concept_is_refused(curated_graph: KnowledgeGraph) -> None:
    with pytest.raises(UnknownName, match="no-such-concept"):
        source_entries(curated_graph, make_record(concept="no-such-concept"))


def test_synchronize_follows_the_graph(tmp_path: Path, index: Index) -> None:
    graph = KnowledgeGraph.open(Home(tmp_path / "graph"))
    assert synchronize(graph, index)
    assert index.sources() == {}
    assert not synchronize(graph, index)

    graph.replace_source(make_record("1" * 64))
    graph.replace_source(make_record(file="kernels/other.cu"))
    assert synchronize(graph, index)
    assert set(index.sources()) == {file_iri(FILE), file_iri("kernels/other.cu")}
    assert not synchronize(graph, index)

    graph.replace_source(make_record("2" * 64, concept="block-reduction"))
    assert synchronize(graph, index)
    assert any(entry.concepts == ("block-reduction",) for entry in index.entries() if entry.kind == "evidence")

    graph.remove_source(file_iri(FILE))
    assert synchronize(graph, index)
    assert set(index.sources()) == {file_iri("kernels/other.cu")}
    assert all(FILE not in entry.title for entry in index.entries())
