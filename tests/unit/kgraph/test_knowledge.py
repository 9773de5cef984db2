"""The curated knowledge: valid, complete and consistent with what others build on it."""

from __future__ import annotations

import re

import pytest

from kgraph.facts import facts
from kgraph.load import curated_files, package_files
from kgraph.validate import query_header
from kx.errors import UnknownName

SCAN = {
    "associative-scan-operator", "warp-shuffle-scan", "block-scan", "chunked-scan-carry", "exp2-trick",
    "vectorized-access", "register-tiling", "fused-epilogue", "shared-memory-tiling", "loop-unrolling",
    "boundary-predication", "mixed-precision-accumulation", "compile-time-specialization",
}  # fmt: skip
UNSHARED = {"matrix-float16-rate", "float16-rate", "max-buffer-bytes", "max-threadgroup-bytes-queried"}
NOT_SCAN = {"tensor-core-mma", "online-softmax", "warpgroup-mma", "paged-kv-cache", "async-copy"}


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
        if "metal" not in curated.scopes_of(chip.slug):
            continue
        limits = {c.quantity: c.value for c in curated.constraints(curated.scopes_of(chip.slug))}
        assert limits["threadgroup-memory-bytes"] == 32768
        assert limits["threads-per-threadgroup"] == 1024
        assert limits["simd-width"] == 32
        assert limits["buffer-arguments"] == 31
        assert limits["matrix-tile"] == 8
        if "mlx" in curated.scopes_of(chip.slug):
            assert limits["grid-over-threads"] == 1


def test_constraints_are_those_of_the_named_scopes(curated):
    assert {c.scope for c in curated.constraints(["apple7", "mlx"])} == {"apple7", "mlx"}
    assert not [c for c in curated.constraints(["metal"]) if c.scope != "metal"]


def test_chips_that_can_be_estimated_state_the_same_quantities(curated):
    complete = [chip for chip in curated.chips() if "l1-latency" in chip.quantities]
    assert {chip.slug for chip in complete} == {"m1", "m1-max", "m3-max", "m4-max", "m5-max"}
    shared = set.intersection(*(set(chip.quantities) for chip in complete))
    for chip in complete:
        assert set(chip.quantities) - shared <= UNSHARED
    assert len(shared) > 80


def test_every_chip_from_m1_to_m5_is_there_with_its_figures(curated):
    chips = {chip.slug: chip for chip in curated.chips()}
    assert len(chips) == 43
    core = {"gpu-cores", "memory-bandwidth", "gpu-clock", "float32-rate"}
    for chip in chips.values():
        if chip.slug != "a19-5-core":
            assert core <= set(chip.quantities), chip.slug
        assert all(
            quantity.unit and quantity.source.title and quantity.confidence for quantity in chip.quantities.values()
        )
    families = {"m1": "apple7", "m2": "apple8", "m3": "apple9", "m4": "apple9", "m5": "apple10"}
    for slug, chip in chips.items():
        assert families.get(slug[:2], chip.family) == chip.family, slug


def test_what_nobody_measured_is_unknown(curated):
    assert "slc-bytes" not in curated.chip("m3").quantities
    assert "matrix-float16-rate" not in curated.chip("m4-pro").quantities
    assert curated.chip("m5-ultra").quantities["matrix-float16-rate"].confidence == "estimate"


def test_rates_follow_from_cores_and_clock(curated):
    """256 FLOP per core and cycle: a mistyped figure breaks the product."""
    for chip in curated.chips():
        if chip.family.startswith("apple") and "float32-rate" in chip.quantities:
            figures = {name: quantity.value for name, quantity in chip.quantities.items()}
            product = figures["gpu-cores"] * 256 * figures["gpu-clock"] / 1e3
            assert figures["float32-rate"] == pytest.approx(product, rel=0.005), chip.slug


def test_kernels_see_no_limit_of_the_host_side(curated):
    """A specification for a kernel holds what its text can break, not what only the host can."""
    quantities = {limit.quantity for limit in curated.constraints(curated.scopes_of("m1-max"))}
    assert "grid-extent-threads" in quantities
    assert not quantities & {"residency-sets", "warm-up-time", "fast-exp-ulp-beyond-twice-argument"}
    assert {limit.quantity for limit in curated.constraints(["metal-host-api"])} >= {"residency-sets", "fences"}


def test_facts_of_a_scope_say_what_follows(curated):
    timing = facts(curated, ["mlx-timing"])
    assert len(timing) >= 12
    assert {fact.scope for fact in timing} == {"mlx-timing"}
    assert any("fresh" in fact.advice or "anew" in fact.advice for fact in timing)
    for fact in facts(curated):
        assert fact.statement and fact.sources and 0 < fact.confidence < 1, fact.iri
        inferred = "inferred" in fact.basis
        assert not inferred or fact.confidence <= 0.4, fact.iri


def test_the_three_claims_stay_beside_what_corrects_them(curated):
    claims = {m.iri.rpartition(":")[2]: m for m in curated.mappings() if m.status == "claimed"}
    by_iri = {mapping.iri: mapping for mapping in curated.mappings()}
    for name in (
        "claim-warp-reduce-to-matrix-multiply", "claim-shared-memory-48-versus-32", "claim-bandwidth-3350-versus-400",
    ):  # fmt: skip
        correction = by_iri[claims[name].corrected_by]
        assert correction.status == "corrected"
        assert correction.confidence > 0.7 > 0.3 > claims[name].confidence


def test_features_say_which_family_has_them(curated):
    gates = {limit.scope: limit.value for limit in curated.constraints() if limit.quantity == "apple-gpu-family"}
    assert gates["simd-shift-and-fill"] == 8
    assert gates["simdgroup-matrix"] == 7
    assert gates["ulong-atomics"] == 9


def test_known_figures_of_chips(curated):
    m1_max = curated.chip("m1-max").quantities
    assert (m1_max["gpu-cores"].value, m1_max["gpu-cores"].unit) == (32, "cores")
    assert m1_max["memory-bandwidth"].value == pytest.approx(409.6)
    assert curated.chip("m3-max").quantities["memory-bandwidth"].value == pytest.approx(409.6)
    assert curated.chip("m3-max-30-core").quantities["memory-bandwidth"].value == pytest.approx(307.2)
    assert curated.chip("m5-ultra").quantities["memory-bandwidth"].value == 1228
    assert curated.chip("h100-sxm").quantities["memory-bandwidth"].value == 3350
    assert curated.chip("h200-sxm").quantities["memory-bandwidth"].value == 4800
    assert curated.chip("a100-sxm-40gb").quantities["memory-bandwidth"].value == 1555


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
