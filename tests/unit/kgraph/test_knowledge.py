"""The curated knowledge: valid, complete and consistent with what others build on it."""

from __future__ import annotations

import re

import pytest

from kgraph.load import curated_files, package_files
from kgraph.validate import query_header, validate
from kx.errors import UnknownName

SCAN = {
    "associative-scan-operator", "warp-shuffle-scan", "block-scan", "chunked-scan-carry", "exp2-trick",
    "vectorized-access", "register-tiling", "fused-epilogue", "shared-memory-tiling", "loop-unrolling",
    "boundary-predication", "mixed-precision-accumulation", "compile-time-specialization",
}  # fmt: skip
NOT_SCAN = {"tensor-core-mma", "online-softmax", "warpgroup-mma", "paged-kv-cache", "async-copy"}


def test_the_curated_knowledge_is_valid(curated):
    assert validate(curated) == []


def test_every_concept_of_the_vocabulary_is_there(curated):
    by_family: dict[str, int] = {}
    for concept in curated.concepts():
        by_family[concept.family] = by_family.get(concept.family, 0) + 1
    assert by_family == {"memory": 17, "compute": 12, "reduction": 9, "algorithm": 5, "schedule": 12}


def test_scan_is_served_by_what_helps_a_scan(curated):
    slugs = {concept.slug for concept in curated.concepts_for_class("scan")}
    assert slugs >= SCAN
    assert not slugs & NOT_SCAN


def test_what_a_concept_requires_serves_the_same_kernel_classes(curated):
    """Otherwise a planner for that class could never put it in place."""
    for concept in curated.concepts():
        for slug in concept.requires:
            missing = set(concept.kernel_classes) - set(curated.concept(slug).kernel_classes)
            assert not missing, (concept.slug, slug, missing)


def test_an_unknown_concept_names_its_neighbours(curated):
    with pytest.raises(UnknownName, match="exp2-trick"):
        curated.concept("exp2-trik")


def test_an_unknown_kernel_class_lists_the_known_ones(curated):
    with pytest.raises(UnknownName, match="attention"):
        curated.concepts_for_class("zzz")


def test_every_concept_has_a_mapping_or_says_that_there_is_none(curated):
    for concept in curated.concepts():
        assert curated.mappings([concept.slug]), concept.slug


def test_concepts_without_an_apple_form_fit_nothing(curated):
    """A concept whose every mapping is 'none' must not tempt a planner."""
    for concept in curated.concepts():
        mappings = curated.mappings([concept.slug])
        if all(mapping.relation == "none" and mapping.target is None for mapping in mappings):
            assert concept.impacts.compute_hw_fit <= 3, concept.slug


def test_the_hard_limits_bind_every_apple_chip(curated):
    for chip in curated.chips():
        if chip.slug == "h100-sxm":
            continue
        limits = {c.quantity: c.value for c in curated.constraints(curated.scopes_of(chip.slug))}
        assert limits["threadgroup-memory-bytes"] == 32768
        assert limits["threads-per-threadgroup"] == 1024
        assert limits["simd-width"] == 32
        assert limits["buffer-arguments"] == 31
        assert limits["matrix-tile"] == 8
        assert limits["grid-over-threads"] == 1


def test_constraints_are_those_of_the_named_scopes(curated):
    assert {c.scope for c in curated.constraints(["apple7", "mlx"])} == {"apple7", "mlx"}
    assert not [c for c in curated.constraints(["metal"]) if c.scope != "metal"]


def test_chips_state_the_same_quantities(curated):
    apple = [chip for chip in curated.chips() if chip.slug != "h100-sxm"]
    assert {chip.slug for chip in apple} == {"m1", "m1-max", "m3-max", "m4-max", "m5-max"}
    shared = set.intersection(*(set(chip.quantities) for chip in apple))
    for chip in apple:
        assert set(chip.quantities) - shared <= {"matrix-float16-rate", "float16-rate"}
        assert all(quantity.unit and quantity.source.title for quantity in chip.quantities.values())
    assert len(shared) > 80


def test_known_figures_of_chips(curated):
    m1_max = curated.chip("m1-max").quantities
    assert (m1_max["gpu-cores"].value, m1_max["gpu-cores"].unit) == (32, "cores")
    assert m1_max["memory-bandwidth"].value == pytest.approx(409.6)
    assert curated.chip("m3-max").quantities["memory-bandwidth"].value == pytest.approx(409.6)
    assert curated.chip("h100-sxm").quantities["memory-bandwidth"].value == 3350


def test_an_unknown_chip_names_its_neighbours(curated):
    with pytest.raises(UnknownName, match="m1-max"):
        curated.chip("m1max")


def test_patterns_that_share_most_concepts_come_first(curated):
    wanted = {"associative-scan-operator", "chunked-scan-carry", "warp-shuffle-scan"}
    patterns = curated.patterns(wanted)
    shared = [len(wanted & set(pattern.concepts)) for pattern in patterns]
    assert shared == sorted(shared, reverse=True)
    assert shared[0] == 3
    assert min(shared) >= 1


def test_scan_assertions_name_the_checks_of_the_scan_task(curated):
    checks = {assertion.check for assertion in curated.assertions("scan")}
    assert checks >= {"causality", "linearity-power-of-two", "split-carry", "zero-delta", "channel-permutation"}
    assert checks >= {"determinism", "poison"}


def test_describe_takes_prefixed_names(curated):
    said = curated.describe("concept:exp2-trick")
    assert said == curated.describe("urn:kx:concept:exp2-trick")
    assert "exp2-trick" in said["http://www.w3.org/2004/02/skos/core#notation"]
    with pytest.raises(UnknownName):
        curated.describe("concept:no-such")


def test_select_answers_in_text(curated):
    table = curated.select("SELECT ?slug WHERE { ?c a kx:Concept ; skos:notation ?slug } ORDER BY ?slug LIMIT 1")
    assert table.columns == ("slug",)
    assert table.rows == ((curated.concepts()[0].slug,),)


@pytest.mark.parametrize("path", package_files("queries", ".rq"), ids=lambda path: path.stem)
def test_each_query_is_headed_by_problem_principle_solution(path):
    assert set(query_header(path)) >= {"Problem", "Principle", "Solution"}


def test_files_are_small_enough_to_review():
    for path in curated_files():
        assert path.stat().st_size < 80_000, path.name
        assert path.read_text(encoding="utf-8").startswith("#"), path.name


def test_no_workplace_file_is_cited():
    foreign = re.compile(r"\b(limits|chips|mappings)\.csv\b|/work/|shared/facts")
    for path in curated_files():
        assert not foreign.search(path.read_text(encoding="utf-8")), path.name
