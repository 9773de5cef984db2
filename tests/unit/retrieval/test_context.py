from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jinja2
import pytest

from kgraph.graph import KnowledgeGraph
from kgraph.model import Evidence, Observation
from kgraph.names import file_iri
from kgraph.records import SourceRecord
from kx.errors import DataMalformed, UnknownName
from kx.paths import Home
from retrieval import context as module
from retrieval.context import build_context, estimate_tokens, render_context
from retrieval.entries import curated_entries
from retrieval.index import Index
from retrieval.model import Context
from retrieval.ranking import Retriever

CONCEPTS = ("associative-scan-operator", "chunked-scan-carry")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    opened = KnowledgeGraph.open(Home(tmp_path_factory.mktemp("context")))
    file = "scan.cu"
    evidence = tuple(
        Evidence(slug, "scan_kernel", file, line, line + 4, f"{slug}@1", confidence, f"sighting {line}")
        for slug, line, confidence in [
            (CONCEPTS[0], 10, 0.9), (CONCEPTS[0], 30, 0.8), (CONCEPTS[0], 50, 0.7), (CONCEPTS[0], 70, 0.6),
            (CONCEPTS[1], 90, 0.5),
        ]
    )  # fmt: skip
    opened.replace_source(SourceRecord(file_iri(file), file, "0" * 64, "1", (("scan_kernel", 1),), evidence))
    tried = Observation(
        "r1", "n1", CONCEPTS[0], "mamba_scan", "m4-max", "metalsim", "estimated", "Scored", 1.5, 1.5, 1.5
    )
    opened.add_observation(tried)
    opened.add_observation(replace(tried, run="r2", chip="m1-max", outcome="CompileFailed", ratio=0.0))
    return opened


@pytest.fixture(scope="module")
def full(graph: KnowledgeGraph) -> Context:
    return build_context(graph, None, concepts=CONCEPTS, kernel_class="scan", chip="m1-max")


def test_context_gathers_along_the_edges(graph: KnowledgeGraph, full: Context) -> None:
    assert full.concepts == CONCEPTS
    assert full.constraints == graph.constraints(graph.scopes_of("m1-max"))
    assert {constraint.scope for constraint in full.constraints} <= {"metal", "mlx", "apple7", "m1-max"}
    assert any(c.quantity == "threadgroup-memory-bytes" and c.value == 32768 for c in full.constraints)
    assert full.mappings
    assert all(set(CONCEPTS) & set(mapping.origin.concepts) for mapping in full.mappings)
    assert full.patterns
    assert all("scan" in assertion.kernel_classes for assertion in full.assertions)


def test_surest_evidence_of_each_concept_comes_before_the_second_of_any(full: Context) -> None:
    assert [evidence.first_line for evidence in full.evidence] == [10, 90, 30, 50]


def test_observations_on_the_target_chip_come_first(full: Context) -> None:
    assert [observation.chip for observation in full.observations] == ["m1-max", "m4-max"]


def test_corrected_claims_are_left_to_their_correction(graph: KnowledgeGraph) -> None:
    corrected = [mapping for mapping in graph.mappings() if mapping.corrected_by]
    assert corrected
    slugs = [slug for mapping in corrected for slug in mapping.origin.concepts]
    context = build_context(graph, None, concepts=slugs, kernel_class="scan", chip="m1-max")
    assert not [mapping for mapping in context.mappings if mapping.corrected_by]


def test_what_the_family_has_no_hardware_for_is_left_out(graph: KnowledgeGraph) -> None:
    def families(chip: str) -> list[tuple[str, ...]]:
        context = build_context(graph, None, concepts=["tensor-core-mma"], kernel_class="attention", chip=chip)
        targets = [mapping.target.families for mapping in context.mappings if mapping.target is not None]
        return [names for names in (*targets, *(pattern.families for pattern in context.patterns)) if names]

    assert all("apple7" in names for names in families("m1-max"))
    assert any("apple7" not in names for names in families("m5-max"))


def test_text_adds_what_the_concepts_do_not_reach(graph: KnowledgeGraph, index: Index, full: Context) -> None:
    index.sync_curated(curated_entries(graph))
    context = build_context(
        graph, Retriever(graph, index), concepts=CONCEPTS, kernel_class="scan", chip="m1-max", text="__ldg"
    )
    assert context.mappings[: len(full.mappings)] == full.mappings
    added = context.mappings[len(full.mappings) :]
    assert any("__ldg" in mapping.origin.tokens for mapping in added)
    assert len({mapping.iri for mapping in context.mappings}) == len(context.mappings)


@pytest.mark.parametrize(
    "wrong", [{"concepts": ["no-such"]}, {"kernel_class": "no-such"}, {"chip": "no-such"}], ids=lambda d: next(iter(d))
)
def test_unknown_names_are_errors(graph: KnowledgeGraph, wrong: dict[str, object]) -> None:
    given = {"concepts": CONCEPTS, "kernel_class": "scan", "chip": "m1-max", **wrong}
    with pytest.raises(UnknownName, match="no-such"):
        build_context(graph, None, **given)  # type: ignore[arg-type]


def test_text_tells_everything_within_a_large_budget(full: Context) -> None:
    text = render_context(full, 100_000)
    for item in (*full.constraints, *full.mappings, *full.patterns, *full.assertions):
        assert (item.origin.label if hasattr(item, "origin") else item.label) in text
    assert "scan.cu:10-14, kernel scan_kernel (confidence 0.9): sighting 10." in text
    assert "estimated time ratio 1.5 (interval 1.5 to 1.5; above 1 is a gain)" in text
    assert "m1-max, metalsim: CompileFailed" in text
    assert "Left out" not in text
    assert "None" not in text
    assert text.endswith("\n")
    assert "\n\n\n" not in text


@pytest.mark.parametrize("budget", [0, 1, 500, 900, 1100, 1500, 2000, 2700, 3000, 4000])
def test_budget_is_kept_but_limits_are_never_dropped(full: Context, budget: int) -> None:
    text = render_context(full, budget)
    for constraint in full.constraints:
        assert constraint.label in text
    least = estimate_tokens(render_context(full, 0)) + 1  # the last line quotes the budget: up to 3 digits more
    assert estimate_tokens(text) <= max(budget, least)
    assert render_context(full, budget) == text


def test_what_is_cut_goes_from_the_end(full: Context) -> None:
    whole = estimate_tokens(render_context(full, 100_000))
    text = render_context(full, whole - 20)
    assert "sighting 10" in text
    assert "estimated time ratio" not in text
    assert "Left out to keep to" in text
    assert "observations" in text.splitlines()[-1]
    assert "evidence" not in text.splitlines()[-1]
    bare = render_context(full, 0)
    for heading in ("From CUDA to Metal", "How experts do it", "Where it was seen"):
        assert heading not in bare
    assert bare.splitlines()[-1].endswith("observations.")


def test_nothing_known_still_reads(full: Context) -> None:
    empty = Context((), (), (), (), (), (), ())
    assert render_context(empty, 10).startswith("## Concepts of this action\nnone\n")


def test_broken_template_names_its_file(full: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = jinja2.Environment(
        loader=jinja2.DictLoader({module.TEMPLATE: "{{ context.no_such_field }}"}), undefined=jinja2.StrictUndefined
    )
    monkeypatch.setattr(module, "_environment", lambda: broken)
    with pytest.raises(DataMalformed, match=r"context\.md\.j2.*no_such_field"):
        render_context(full, 100)


def test_tokens_are_a_quarter_of_the_characters_rounded_up() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]
