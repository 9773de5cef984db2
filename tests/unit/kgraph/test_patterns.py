"""Patterns, assertions and tasks: complete, linked, and true to the code that they name."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from kgraph.decode import slug_of
from metalsim import FindingKind
from search.evaluation import gates
from search.task import load_task, task_names

NOT_YET = "not executable yet"
APPLE = {"apple7", "apple8", "apple9", "apple10"}


def test_every_pattern_is_told_in_full(curated):
    patterns = curated.patterns()
    assert len(patterns) >= 60
    for pattern in patterns:
        assert pattern.problem and pattern.text and pattern.sketch and pattern.basis, pattern.iri
        assert pattern.kernel_classes and pattern.concepts and pattern.sources, pattern.iri
        assert 0 < pattern.confidence <= 1, pattern.iri
        assert set(pattern.families) < APPLE, pattern.iri


def test_every_assertion_is_told_in_full(curated):
    assertions = curated.assertions()
    assert len(assertions) >= 139
    for assertion in assertions:
        assert assertion.text and assertion.failure and assertion.basis and assertion.sources, assertion.iri
        assert assertion.strictness in {"exact", "rounding", "performance"}, assertion.iri
        assert assertion.checked_by and 0 < assertion.confidence <= 1, assertion.iri


def test_links_lead_to_nodes_that_are_there(curated):
    concepts = {concept.slug: concept for concept in curated.concepts()}
    tasks = {task.slug: task for task in curated.tasks()}
    patterns = {pattern.iri: pattern for pattern in curated.patterns()}
    assertions = {assertion.iri: assertion for assertion in curated.assertions()}
    for node in (*patterns.values(), *assertions.values()):
        assert set(node.concepts) <= set(concepts), node.iri
        assert set(node.tasks) <= set(tasks), node.iri
        assert all(tasks[task].kernel_class in node.kernel_classes for task in node.tasks), node.iri
    for pattern in patterns.values():
        assert set(pattern.shown_by) <= set(assertions), pattern.iri
        assert set(pattern.instead_of) <= set(concepts), pattern.iri
        assert all(pattern.iri in patterns[other].conflicts for other in pattern.conflicts), pattern.iri
        served = {slug for name in pattern.concepts for slug in concepts[name].kernel_classes}
        assert set(pattern.kernel_classes) & served, pattern.iri


def test_what_fits_apple_gpus_best_is_shown_too(curated):
    shown = {slug for pattern in curated.patterns() for slug in pattern.concepts}
    for concept in curated.concepts():
        if concept.impacts.compute_hw_fit >= 8:
            assert concept.slug in shown, concept.slug


def test_who_runs_a_check_is_there_and_runs_it(curated):
    findings, names = set(get_args(FindingKind)), set(task_names())
    for assertion in curated.assertions():
        if NOT_YET in assertion.checked_by:
            assert assertion.checked_by == (NOT_YET,), assertion.iri
            continue
        for runner in assertion.checked_by:
            kind, _, name = runner.partition(":")
            if kind == "task":
                assert name in names, assertion.iri
                assert assertion.check in load_task(name).property_ids, assertion.iri
            elif kind == "gate":
                assert callable(getattr(gates, name)), assertion.iri
            else:
                assert (kind, name in findings) == ("metalsim", True), assertion.iri


@pytest.mark.parametrize("name", task_names())
def test_every_property_of_a_search_task_is_an_assertion_that_names_it(curated, name):
    task = load_task(name)
    run_here = {a.check for a in curated.assertions(task.kernel_class, name) if f"task:{name}" in a.checked_by}
    assert run_here == set(task.property_ids)


def test_tasks_of_searches_are_tasks_of_the_graph(curated):
    known = {task.slug: task.kernel_class for task in curated.tasks()}
    for name in task_names():
        assert known[name] == load_task(name).kernel_class


def test_tasks_use_what_serves_their_class(curated):
    """But for matrix products in SSD, the one scan that is made of them."""
    for task in curated.tasks():
        served = {concept.slug for concept in curated.concepts_for_class(task.kernel_class)}
        foreign = {"tensor-core-mma", "matrix-fragment-load"} if task.slug == "ssd_chunk_scan" else set()
        assert set(task.concepts) - served == foreign, task.slug


def test_assertions_of_other_tasks_are_left_out(curated):
    scan = {slug_of(a.iri) for a in curated.assertions("scan")}
    mamba = {slug_of(a.iri) for a in curated.assertions("scan", "mamba_scan")}
    prefix = {slug_of(a.iri) for a in curated.assertions("scan", "prefix_sum")}
    assert {"ssd-duality", "scan-operator", "determinism"} <= scan
    assert {"scan-operator", "determinism"} <= mamba
    assert not [slug for slug in mamba if slug.startswith("ssd-")]
    assert "determinism" in prefix
    assert "scan-zero-delta" not in prefix


def test_texts_are_sentences(curated):
    for node in (*curated.patterns(), *curated.assertions()):
        assert re.search(r"[.)]$", node.text), node.iri
        assert "  " not in node.text, node.iri
