"""The Context of an action: what the graph knows of its concepts, and its text within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import jinja2

from kgraph.graph import KnowledgeGraph
from kgraph.model import Evidence, Mapping, Observation, Pattern
from kx.errors import DataMalformed
from retrieval.model import Context
from retrieval.ranking import Retriever
from retrieval.rendering import TEMPLATES as _TEMPLATES
from retrieval.rendering import estimate_tokens
from retrieval.rendering import template_environment as _environment

TEMPLATE = "context.md.j2"
_RETRIEVED = 20
_EVIDENCE_PER_CONCEPT = 3
_CUT_FIRST_TO_LAST = ("observations", "evidence", "assertions", "patterns", "mappings")
Node = TypeVar("Node", Mapping, Pattern)


def build_context(
    graph: KnowledgeGraph,
    retriever: Retriever | None,
    *,
    concepts: Sequence[str],
    kernel_class: str,
    chip: str,
    task: str = "",
    text: str = "",
) -> Context:
    """Gather what is known for an action.

    Along the graph's edges come the limits that bind the chip, the mappings and patterns of the
    concepts, the assertions of the kernel class, evidence and observations; a retriever adds mappings
    and patterns that ``text`` brings up. A claim that was corrected is left to its correction; what the chip's GPU
    family has no hardware for is left out.

    Args:
        graph: the knowledge.
        retriever: for ``text``; None for the graph's edges alone.
        concepts: slugs of the action's concepts, the most important first.
        kernel_class: slug, such as ``scan``.
        chip: slug of the target, such as ``m1-max``.
        task: slug of the task, such as ``mamba_scan``: assertions of other tasks only are left out.
        text: the action in words; empty for none.

    Raises:
        UnknownName: no such concept, kernel class or chip.
    """
    slugs = tuple(dict.fromkeys(graph.concept(slug).slug for slug in concepts))
    graph.concepts_for_class(kernel_class)
    platforms, family = graph.target_platforms(chip), graph.chip(chip).family
    mappings, patterns = list(graph.mappings(slugs)), list(graph.patterns(slugs))
    if retriever is not None and text.strip():
        found = [hit.entry.id for hit in retriever.query(text, _RETRIEVED)]
        mappings = _extend(mappings, graph.mappings(), found)
        patterns = _extend(patterns, graph.patterns(), found)
    return Context(
        concepts=slugs,
        constraints=graph.constraints(graph.scopes_of(chip)),
        mappings=tuple(
            mapping
            for mapping in mappings
            if not mapping.corrected_by and mapping.platform in platforms
            if mapping.target is None or _has(mapping.target.families, family)
        ),
        patterns=tuple(pattern for pattern in patterns if _has(pattern.families, family)),
        assertions=graph.assertions(kernel_class, task),
        evidence=_collect_evidence(graph, slugs),
        observations=_collect_observations(graph, slugs, chip),
    )


def _has(families: Sequence[str], family: str) -> bool:
    return not families or family in families


def _extend(own: Sequence[Node], known: Sequence[Node], found: Sequence[str]) -> list[Node]:
    by_iri = {item.iri: item for item in known}
    present = {item.iri for item in own}
    return list(own) + [by_iri[iri] for iri in found if iri in by_iri and iri not in present]


def _collect_evidence(graph: KnowledgeGraph, slugs: Sequence[str]) -> tuple[Evidence, ...]:
    ranked = [graph.evidence(slug)[:_EVIDENCE_PER_CONCEPT] for slug in slugs]
    # The surest of every concept before the second of any: the end is what a budget cuts.
    return tuple(row[rank] for rank in range(_EVIDENCE_PER_CONCEPT) for row in ranked if rank < len(row))


def _collect_observations(graph: KnowledgeGraph, slugs: Sequence[str], chip: str) -> tuple[Observation, ...]:
    found = [observation for slug in slugs for observation in graph.observations(concept=slug)]
    return tuple(sorted(found, key=lambda observation: observation.chip != chip))


def render_context(context: Context, budget_tokens: int) -> str:
    """Text of a context for a prompt or a person, in Markdown.

    What exceeds the budget is cut from the end, whole items at a time: observations, then evidence,
    assertions, patterns, mappings; a last line says what was left out. The action's concepts and the
    limits are never cut, even where they alone exceed the budget. Equal contexts give equal text.

    Args:
        context: what to tell.
        budget_tokens: most tokens, estimated by `estimate_tokens`.

    Raises:
        DataMalformed: the template does not render.
    """
    total = sum(len(getattr(context, name)) for name in _CUT_FIRST_TO_LAST)
    fitting, excess = 0, total + 1
    whole = _render(context, budget_tokens, {})
    if estimate_tokens(whole) <= budget_tokens:
        return whole
    while excess - fitting > 1:
        middle = (fitting + excess) // 2
        if estimate_tokens(_render_first(context, middle, budget_tokens)) <= budget_tokens:
            fitting = middle
        else:
            excess = middle
    return _render_first(context, fitting, budget_tokens)


def _render_first(context: Context, count: int, budget_tokens: int) -> str:
    """Text with the first ``count`` items of all that may be cut."""
    kept: dict[str, tuple[object, ...]] = {}
    left_out: dict[str, int] = {}
    for name in reversed(_CUT_FIRST_TO_LAST):
        items = getattr(context, name)
        kept[name] = items[:count]
        if len(items) > count:
            left_out[name] = len(items) - count
        count = max(count - len(items), 0)
    return _render(replace(context, **kept), budget_tokens, left_out)  # type: ignore[arg-type]


def _render(context: Context, budget_tokens: int, left_out: dict[str, int]) -> str:
    try:
        template = _environment().get_template(TEMPLATE)
        text = template.render(
            context=context,
            budget_tokens=budget_tokens,
            left_out=[f"{count} {name}" for name, count in left_out.items()],
        )
    except jinja2.TemplateError as exc:
        raise DataMalformed(f"{_TEMPLATES / TEMPLATE}: {exc}", "mend the template") from exc
    return text.rstrip() + "\n"
