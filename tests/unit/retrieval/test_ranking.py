from __future__ import annotations

from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from kgraph.model import Evidence
from kgraph.names import concept_iri, file_iri
from kgraph.records import SourceRecord
from kx.paths import Home
from retrieval.embedding import SentenceEmbedder
from retrieval.entries import curated_entries, synchronize
from retrieval.index import Index
from retrieval.model import Entry
from retrieval.ranking import FusionWeights, Retriever
from tests.unit.retrieval.doubles import make_entry

SCAN = "corpus/selective_scan_fwd.cu"


def selective_scan() -> SourceRecord:
    kernel = "selective_scan_forward"
    seen = [
        ("associative-scan-operator", 60, 71, "combines (a, b) pairs of the recurrence in ScanOperator"),
        ("block-scan", 90, 120, "scans across the block with BlockScan"),
        ("exp2-trick", 40, 41, "exp2f with log2(e) folded in"),
        ("vectorized-access", 30, 33, "loads float4"),
    ]
    evidence = tuple(
        Evidence(slug, kernel, SCAN, first, last, f"{slug}@1", 0.9, why) for slug, first, last, why in seen
    )
    return SourceRecord(file_iri(SCAN), SCAN, "0" * 64, "1", ((kernel, 25),), evidence)


@pytest.fixture
def curated(curated_graph: KnowledgeGraph, index: Index) -> Retriever:
    index.sync_curated(curated_entries(curated_graph))
    return Retriever(curated_graph, index)


def test_expert_order_for_a_scan_of_a_linear_recurrence(tmp_path: Path, home: Home) -> None:
    graph = KnowledgeGraph.open(Home(tmp_path / "graph"))
    graph.replace_source(selective_scan())
    with Index.open(home, SentenceEmbedder) as index:
        synchronize(graph, index)
        # Concepts, patterns and sightings only: embedding all of it takes half a minute on two cores.
        kept = [entry for entry in curated_entries(graph) if entry.kind in {"concept", "pattern"}]
        index.sync_curated(kept)
        hits = Retriever(graph, index).query("parallel prefix scan of a linear recurrence", 8)
    ids = [hit.entry.id for hit in hits]
    expected = ("associative-scan-operator", "warp-shuffle-scan", "block-scan")
    assert {concept_iri(slug) for slug in expected} <= set(ids[:6])
    assert any(hit.entry.kind == "pattern" and "recurrence" in hit.entry.title for hit in hits[:3])
    seen = [hit for hit in hits if hit.entry.kind == "evidence"]
    assert seen
    assert seen[0].entry.concepts in {("associative-scan-operator",), ("block-scan",)}
    assert SCAN in seen[0].entry.title


def test_identifier_brings_its_mapping_first(curated: Retriever) -> None:
    hits = curated.query("__shfl_xor_sync", 5)
    assert hits[0].entry.title.startswith("__shfl_xor_sync → simd_shuffle_xor")
    assert "identifier __shfl_xor_sync" in hits[0].why
    assert "mapping of __shfl_xor_sync (cuda)" in hits[0].why
    assert all("dense" in hit.why for hit in hits)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("__shfl_xr_sync", "__shfl_xor_sync → simd_shuffle_xor"),
        ("what is __synchthreads() on metal", "__syncthreads → threadgroup_barrier"),
        ("ldmatirx.x4", "ldmatrix → simdgroup_load"),
    ],
)
def test_misspelt_token_brings_the_mapping_that_was_meant(curated: Retriever, written: str, meant: str) -> None:
    assert any(hit.entry.title.startswith(meant) for hit in curated.query(written, 3))


def test_chip_is_found_with_its_figures(curated: Retriever) -> None:
    hits = curated.query("M2 Ultra memory bandwidth", 3)
    assert hits[0].entry.kind == "chip"
    assert hits[0].entry.title.startswith("M2 Ultra")
    assert "memory bandwidth 819.2 GB/s" in hits[0].entry.text


def test_reasons_tell_words_and_links(curated: Retriever, curated_graph: KnowledgeGraph) -> None:
    hits = curated.query("padding against bank conflicts", 10)
    assert "words" in hits[0].why
    assert any("mapping of" in hit.why or "of concept" in hit.why for hit in hits)


def test_an_edge_brings_what_shares_no_word(curated_graph: KnowledgeGraph, index: Index) -> None:
    concept = curated_graph.concept("online-softmax")
    index.sync_curated(
        [
            Entry(concept.iri, "concept", "quick brown fox", "jumps", "curated", (concept.slug,)),
            make_entry("urn:linked", "lazy dog", concepts=(concept.slug,)),
            *(make_entry(f"urn:other-{i}", f"unlike {i}") for i in range(80)),
        ]
    )
    hits = Retriever(curated_graph, index).query("quick brown fox", 3)
    linked = next(hit for hit in hits if hit.entry.id == "urn:linked")
    assert "pattern of concept quick brown fox" in linked.why
    assert "words" not in linked.why


def test_sightings_of_one_concept_do_not_crowd_out_the_rest(curated_graph: KnowledgeGraph, index: Index) -> None:
    alike = [
        make_entry(f"urn:e{i}", "tile of shared memory", kind="evidence", concepts=("block-scan",)) for i in range(10)
    ]
    index.sync_curated([*alike, make_entry("urn:pattern", "tile of global memory", concepts=("block-reduction",))])
    unweighted = FusionWeights(repeat=0.0)
    plain = [hit.entry.id for hit in Retriever(curated_graph, index, unweighted).query("tile of shared memory", 11)]
    spread = [hit.entry.id for hit in Retriever(curated_graph, index).query("tile of shared memory", 11)]
    assert plain.index("urn:pattern") == 10
    assert spread.index("urn:pattern") < 10


def test_limits_of_one_quantity_do_not_crowd_out_the_rest(curated_graph: KnowledgeGraph, index: Index) -> None:
    features = [item for item in curated_graph.constraints() if item.quantity == "apple-gpu-family"]
    assert len(features) > 10
    limits = [make_entry(item.iri, "needs an Apple GPU", kind="constraint", title=item.label) for item in features]
    index.sync_curated([*limits, make_entry("urn:z", "no Apple GPU has it", kind="fact", title="double on a GPU")])
    unweighted = Retriever(curated_graph, index, FusionWeights(repeat=0.0))
    plain = [hit.entry.id for hit in unweighted.query("needs an Apple GPU", len(features) + 1)]
    spread = [hit.entry.id for hit in Retriever(curated_graph, index).query("needs an Apple GPU", len(features) + 1)]
    assert plain.index("urn:z") == len(features)
    assert spread.index("urn:z") < 7


def test_facts_that_differ_by_their_numbers_are_spread(curated_graph: KnowledgeGraph, index: Index) -> None:
    alike = [
        make_entry(f"urn:{n}", "", kind="fact", title=f"{n} threads leave at most {n // 8} registers")
        for n in range(384, 1025, 64)
    ]
    other = make_entry("urn:z", "", kind="fact", title="A lane has at most 128 registers for threads")
    index.sync_curated([*alike, other])
    assert "urn:z" in [hit.entry.id for hit in Retriever(curated_graph, index).query("registers of threads", 3)]


def test_scores_fall_limit_holds_and_the_order_is_the_same_twice(curated: Retriever) -> None:
    hits = curated.query("row softmax without a barrier", 12)
    assert len(hits) == 12
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len({hit.entry.id for hit in hits}) == 12
    assert curated.query("row softmax without a barrier", 12) == hits
    assert curated.query("row softmax without a barrier", 3) == hits[:3]


def test_empty_index_has_no_answer(curated_graph: KnowledgeGraph, index: Index) -> None:
    assert Retriever(curated_graph, index).query("anything", 5) == []
