"""The specification of a kernel on a chip: what binds, what replaces what, how experts do it, what must hold.

Along the graph's edges only; no embedding model and no index. `select_spec` gathers and orders, `render_spec`
keeps a budget.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import jinja2

from kgraph.graph import KnowledgeGraph
from kgraph.model import Assertion, ChipProfile, Concept, Constraint, KernelTask, Mapping, Pattern, Quantity
from kx.errors import DataMalformed
from retrieval.rendering import TEMPLATES, estimate_tokens, template_environment

DOCUMENT, ITEMS = "spec.md.j2", "spec-items.md.j2"
SHARES = {"mappings": 0.3, "patterns": 0.45, "assertions": 0.25}
"""Of what a budget leaves beside the limits; what one section does not need goes to the others."""

NOT_EXECUTABLE = "not executable yet"
_RELATION_RANK = {"exact": 0, "close": 1, "narrower": 2, "broader": 3, "none": 4}
_STRICTNESS_RANK = {"exact": 0, "rounding": 1, "performance": 2}
_GENERAL_CLASSES = 4
"""A property of more kernel classes than these is one that any kernel keeps."""
_CLOSE = 10
"""How much of a concept's effect (0 to 20) it counts that a pattern is made for the class, chip or task."""


@dataclass(frozen=True)
class Spec:
    """What a specification tells, the most important first in each section.

    Attributes:
        kernel: task, or kernel class taken as one.
        limits: what binds on the chip and concerns the kernel; never dropped.
        figures: of the chip.
        left_out: how many items of each section a budget cut.
        platforms: slugs of the chip's platforms to which mappings lead.
        unfit_tokens: what limits and figures take where they alone exceed the budget; 0 otherwise.
    """

    kernel: KernelTask
    chip: ChipProfile
    figures: tuple[Quantity, ...]
    limits: tuple[Constraint, ...]
    mappings: tuple[Mapping, ...]
    patterns: tuple[Pattern, ...]
    assertions: tuple[Assertion, ...]
    left_out: tuple[tuple[str, int], ...] = ()
    platforms: tuple[str, ...] = ()
    unfit_tokens: int = 0


def select_spec(graph: KnowledgeGraph, kernel: str, chip: str) -> Spec:
    """Gather what concerns a kernel on a chip.

    A mapping concerns it when the kernel uses every concept of its origin, and what stands in for it there;
    a pattern when it applies to the kernel class and the chip, and is about nothing that the class knows and
    the task does not use; a limit when it concerns every kernel or a concept that this one uses.

    Args:
        graph: the knowledge.
        kernel: name of a task or a kernel class.
        chip: slug.

    Raises:
        UnknownName: no such kernel or chip.
        InputError: no mappings lead to a platform of the chip.
    """
    target, profile = graph.target(kernel), graph.target_chip(chip)
    scopes = graph.scopes_of(chip)
    platforms = graph.target_platforms(chip)
    used = set(target.concepts)
    weights = _concept_weights(graph, target)
    mappings = [m for m in graph.mappings() if m.platform in platforms and _concerns_mapping(m, target, profile)]
    foreign = {concept.slug for concept in graph.concepts_for_class(target.kernel_class)} - used
    patterns = [
        pattern
        for pattern in (graph.patterns() if "metal" in platforms else ())
        if target.kernel_class in pattern.kernel_classes and _has(pattern.families, profile.family)
        if used & set(pattern.concepts) and not foreign & set(pattern.concepts)
        if not pattern.tasks or target.slug in (*pattern.tasks, target.kernel_class)
    ]
    patterns.sort(key=lambda pattern: _pattern_key(pattern, target, weights))
    task = target.slug if target.slug != target.kernel_class else ""
    return Spec(
        kernel=target,
        chip=profile,
        figures=tuple(profile.quantities[name] for name in graph.told_figures() if name in profile.quantities),
        limits=tuple(c for c in graph.constraints(scopes) if not c.concepts or used & set(c.concepts)),
        mappings=_interleave(mappings, weights),
        patterns=tuple(patterns),
        assertions=_ordered_assertions(graph.assertions(target.kernel_class, task), patterns, target),
        platforms=platforms,
    )


def _concerns_mapping(mapping: Mapping, target: KernelTask, chip: ChipProfile) -> bool:
    used, goal = set(target.concepts), mapping.target
    return bool(
        mapping.origin.concepts
        and not mapping.corrected_by
        and {*mapping.origin.concepts, *mapping.beside} <= used
        and (not mapping.kernel_classes or target.kernel_class in mapping.kernel_classes)
        and (goal is None or _has(goal.families, chip.family))
        and (goal is None or not goal.concepts or used & set(goal.concepts))
    )


def _has(families: Sequence[str], family: str) -> bool:
    return not families or family in families


def _concept_weights(graph: KnowledgeGraph, target: KernelTask) -> dict[str, tuple[int, int]]:
    """How much each concept matters: by how many tasks of the class use it, then by its expected effect.

    A concept without an Apple form weighs its fit alone.
    """
    tasks = [task for task in graph.tasks() if task.kernel_class == target.kernel_class]
    if target in tasks:
        tasks = [target]

    def effect(concept: Concept) -> int:
        fit = concept.impacts.compute_hw_fit
        return fit + concept.impacts.memory_bandwidth if fit > 1 else fit

    def commonness(slug: str) -> int:
        users = sum(slug in task.concepts for task in tasks)
        return 2 if 2 * users >= len(tasks) else min(users, 1)

    return {concept.slug: (commonness(concept.slug), effect(concept)) for concept in graph.concepts()}


def _leading(mapping: Mapping, weights: dict[str, tuple[int, int]]) -> str:
    return max(sorted(mapping.origin.concepts), key=lambda slug: weights[slug])


def _mapping_key(mapping: Mapping, leading: str) -> tuple[bool, bool, int, bool, float, str]:
    # A correction first; then what lands on the same concept, the closest counterparts first, and of those
    # the ones with a pitfall before those that merely rename.
    rank = _RELATION_RANK[mapping.relation]
    lands = mapping.target is not None and leading in mapping.target.concepts and rank <= _RELATION_RANK["close"]
    return mapping.status != "corrected", not lands, rank, not mapping.pitfall, -mapping.confidence, mapping.iri


def _interleave(mappings: Iterable[Mapping], weights: dict[str, tuple[int, int]]) -> tuple[Mapping, ...]:
    """The best mapping of every concept before the second of any, heavy concepts first."""
    groups: dict[str, list[Mapping]] = defaultdict(list)
    for mapping in mappings:
        groups[_leading(mapping, weights)].append(mapping)
    rows = [
        sorted(groups[slug], key=lambda mapping: _mapping_key(mapping, _leading(mapping, weights)))
        for slug in sorted(groups, key=lambda slug: ([-weight for weight in weights[slug]], slug))
    ]
    return tuple(mapping for column in zip_longest(*rows) for mapping in column if mapping is not None)


def _pattern_key(
    pattern: Pattern, target: KernelTask, weights: dict[str, tuple[int, int]]
) -> tuple[bool, int, float, str]:
    """What only variants need last; then by the effect of its concepts, and how closely it fits class and chip."""
    variant = bool(pattern.tasks) and target.slug not in pattern.tasks
    effect = sum(weights[slug][1] for slug in pattern.concepts if weights[slug][0] == 2)
    fit = _CLOSE * ((len(pattern.kernel_classes) <= 2) + bool(pattern.families) + bool(pattern.tasks))
    return variant, -effect - fit, -pattern.confidence, pattern.iri


def _ordered_assertions(
    assertions: Sequence[Assertion], patterns: Sequence[Pattern], target: KernelTask
) -> tuple[Assertion, ...]:
    """By turns what this kernel keeps and what every kernel keeps; variants last.

    First what kx can run, then what more of the patterns are shown right by, then the exact ones.
    """
    shown = Counter(iri for pattern in patterns for iri in pattern.shown_by)

    def key(assertion: Assertion) -> tuple[bool, bool, bool, int, int, str]:
        variant = bool(assertion.tasks) and target.slug not in assertion.tasks
        waiting = NOT_EXECUTABLE in assertion.checked_by
        return (
            variant,
            waiting,
            not assertion.concepts,
            -shown[assertion.iri],
            _STRICTNESS_RANK[assertion.strictness],
            assertion.iri,
        )

    general = [a for a in assertions if len(a.kernel_classes) > _GENERAL_CLASSES]
    own = [a for a in assertions if len(a.kernel_classes) <= _GENERAL_CLASSES]
    pairs = zip_longest(sorted(own, key=key), sorted(general, key=key))
    return tuple(assertion for pair in pairs for assertion in pair if assertion is not None)


def fit_spec(spec: Spec, budget_tokens: int) -> Spec:
    """The spec with as many whole items as the budget holds; limits and figures always stay.

    Each section takes its share in its own order, and what one leaves over serves the others. A larger
    budget never tells less.

    Raises:
        DataMalformed: a template does not render.
    """
    texts = _item_texts(spec)
    if estimate_tokens(_render_document(spec, texts)) <= budget_tokens:
        return spec
    reached: list[tuple[float, str]] = []
    for section, share in SHARES.items():
        length = 0
        for text in texts[section]:
            length += len(text)
            reached.append((length / share, section))
    order = [section for _, section in sorted(reached)]
    fitting, excess = 0, len(order) + 1
    while excess - fitting > 1:
        middle = (fitting + excess) // 2
        if estimate_tokens(_render_document(_first(spec, order[:middle]), texts)) <= budget_tokens:
            fitting = middle
        else:
            excess = middle
    fitted = _first(spec, order[:fitting])
    least = estimate_tokens(_render_document(fitted, texts))
    return replace(fitted, unfit_tokens=least) if least > budget_tokens else fitted


def _first(spec: Spec, order: Sequence[str]) -> Spec:
    kept: dict[str, Any] = {}
    left_out: list[tuple[str, int]] = []
    for section in SHARES:
        items, count = getattr(spec, section), order.count(section)
        kept[section] = items[:count]
        if len(items) > count:
            left_out.append((section, len(items) - count))
    return replace(spec, **kept, left_out=tuple(left_out))


def render_spec(spec: Spec) -> str:
    """Text of a spec in Markdown; equal specs give equal text.

    Raises:
        DataMalformed: a template does not render.
    """
    return _render_document(spec, _item_texts(spec))


def _item_texts(spec: Spec) -> dict[str, list[str]]:
    """Text of each item of each section."""
    section = ""
    try:
        macros: Any = template_environment().get_template(ITEMS).module
        texts: dict[str, list[str]] = {}
        for section in ("figures", "limits", *SHARES):
            macro = getattr(macros, section)
            texts[section] = [str(macro(item, spec)).strip() for item in getattr(spec, section)]
    except (jinja2.TemplateError, AttributeError) as exc:
        raise DataMalformed(f"{TEMPLATES / ITEMS}, {section}: {exc}", "mend the template") from exc
    return texts


def _render_document(spec: Spec, texts: dict[str, list[str]]) -> str:
    """The document of the items that ``spec`` holds: in each section the first ones of ``texts``."""
    sections = {section: lines[: len(getattr(spec, section))] for section, lines in texts.items()}
    try:
        text = template_environment().get_template(DOCUMENT).render(spec=spec, **sections)
    except jinja2.TemplateError as exc:
        raise DataMalformed(f"{TEMPLATES / DOCUMENT}: {exc}", "mend the template") from exc
    return text.rstrip() + "\n"
