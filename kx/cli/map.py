"""``kx map``: one name, answered from the graph alone; imports no model and no vector store."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from kgraph.graph import KnowledgeGraph
from kgraph.lookup import TermAnswer
from kgraph.model import Constraint, Mapping
from kgraph.names import shortened
from kx.cli.output import json_option, note, print_json, print_table, print_text
from kx.errors import InputError, UnknownName
from kx.paths import Home
from kx.settings import Settings

_MOST_BLOCKS = 6
_LABEL_WIDTH = 10
_ANSWER_IS_NO = 1


@click.command("map")
@click.argument("term")
@click.option("--chip", metavar="SLUG", default="", help="Keep only the limits that hold for this chip, e.g. m1-max.")
@click.option(
    "--target", metavar="PLATFORM", default="", help="Keep only mappings to this platform, e.g. metal or mlx."
)
@click.option("--reverse", is_flag=True, help="Take TERM as a word of Metal or MLX, also where CUDA has the same one.")
@json_option
def map_term(term: str, chip: str, target: str, reverse: bool, as_json: bool) -> None:
    """Show what a CUDA name becomes on Metal or MLX, or the way back.

    TERM is a name as code shows it (__shfl_xor_sync, cp.async), with or without arguments, a wildcard in
    quotes ('__shfl_*'), words (warp reduce), a concept's slug, or a word of Metal (simd_sum). Exits with 1
    when the graph knows nothing of it.
    """
    if not term.strip():
        raise InputError("the term is empty", "kx map __shfl_xor_sync")
    home = Home.from_environment()
    graph = KnowledgeGraph.open(home)
    scopes = _scopes(graph, chip or Settings.load(home).chip)
    answer = graph.lookup(term, reverse=reverse)
    if target:
        known = graph.target_platform_slugs
        if target not in known:
            raise UnknownName(f"no target platform named {target!r}", f"known: {', '.join(sorted(known))}")
        answer = replace(answer, mappings=tuple(m for m in answer.mappings if m.platform == target))
    if as_json:
        print_json(_payload(answer, scopes))
    else:
        _print_answer(answer, scopes)
    if not answer.mappings and answer.role != "target":
        click.get_current_context().exit(_ANSWER_IS_NO)


def _scopes(graph: KnowledgeGraph, chip: str) -> tuple[str, ...]:
    """Scopes whose limits bind on a chip that mappings lead to.

    Raises:
        UnknownName: no chip of a target platform has this name; the hint names only such chips.
    """
    if not chip:
        return ()
    graph.target_chip(chip)
    return (*graph.scopes_of(chip), *graph.features())


def _payload(answer: TermAnswer, scopes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "query": answer.query,
        "role": answer.role,
        "by_family": answer.family,
        "subjects": [
            {"id": p.iri, "label": p.label, "platform": p.platform, "definition": p.definition} for p in answer.subjects
        ],
        "mappings": [_mapping_object(mapping, scopes) for mapping in answer.mappings],
        "did_you_mean": list(answer.did_you_mean),
    }


def _mapping_object(mapping: Mapping, scopes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id": mapping.iri,
        "from": mapping.origin.label,
        "to": mapping.target.label if mapping.target else "",
        "platform": mapping.target.platform if mapping.target else "",
        "relation": mapping.relation,
        "advice": mapping.advice,
        "constraints": [_constraint_object(constraint) for constraint in _binding(mapping, scopes)],
        "rationale": mapping.rationale,
        "pitfall": mapping.pitfall,
        "source": "; ".join(source.title for source in mapping.sources),
        "status": mapping.status,
        "corrected_by": mapping.corrected_by,
        "confidence": mapping.confidence,
        "concepts": list(mapping.origin.concepts),
    }


def _constraint_object(constraint: Constraint) -> dict[str, Any]:
    return {
        "id": constraint.iri,
        "label": constraint.label,
        "quantity": constraint.quantity,
        "comparison": constraint.comparison,
        "value": constraint.value,
        "unit": constraint.unit,
        "scope": constraint.scope,
    }


def _binding(mapping: Mapping, scopes: tuple[str, ...]) -> list[Constraint]:
    return [constraint for constraint in mapping.constraints if not scopes or constraint.scope in scopes]


def _print_answer(answer: TermAnswer, scopes: tuple[str, ...]) -> None:
    if answer.role == "target":
        _print_reverse(answer)
    elif not answer.mappings:
        near = (
            f"did you mean {', '.join(answer.did_you_mean)}?" if answer.did_you_mean else "kx query searches by meaning"
        )
        note(f"nothing is known of {answer.query} / hint: {near}")
    else:
        if answer.family:
            note(f"{answer.query} has no entry of its own; this holds for {answer.family}")
        _print_mappings(answer.mappings, scopes)


def _print_mappings(mappings: Sequence[Mapping], scopes: tuple[str, ...]) -> None:
    if len(mappings) > _MOST_BLOCKS and sys.stdout.isatty():
        rows = [[m.origin.label, _target(m), m.relation, m.advice or m.rationale] for m in mappings]
        print_table(["from", "to", "relation", "what to do"], rows)
    else:
        print_text("\n\n".join(_block(mapping, scopes) for mapping in mappings))


def _print_reverse(answer: TermAnswer) -> None:
    """What a word of a target platform is, and which origins lead to it."""
    for primitive in answer.subjects:
        print_text(
            _field(primitive.platform, primitive.label + (f": {primitive.definition}" if primitive.definition else ""))
        )
    if not answer.mappings:
        print_text("nothing in CUDA leads here")
        return
    rows = [
        [
            m.origin.label,
            f"{m.relation}{', refuted' if m.corrected_by else ''}",
            m.target.label if m.target else "",
            m.advice,
        ]
        for m in answer.mappings
    ]
    print_table(["from CUDA", "relation", "to", "what to do"], rows)
    print_text("kx map NAME tells each with its reason, pitfall, limits and sources")


def _target(mapping: Mapping) -> str:
    return f"{mapping.target.label} ({mapping.target.platform})" if mapping.target else "no equivalent"


def _block(mapping: Mapping, scopes: tuple[str, ...]) -> str:
    lines = [
        f"{mapping.origin.label} → {_target(mapping)}",
        _field("relation", f"{mapping.relation}, {mapping.status}, confidence {mapping.confidence:g}"),
        _field("do", mapping.advice),
        _field("why", mapping.rationale),
        _field("pitfall", mapping.pitfall),
        *(_field("limit", f"{c.label} [{c.scope}]") for c in _binding(mapping, scopes)),
        _field("corrected", f"by {shortened(mapping.corrected_by)} (kx graph show)" if mapping.corrected_by else ""),
        _field("source", "; ".join(source.title for source in mapping.sources)),
    ]
    return "\n".join(line for line in lines if line)


def _field(label: str, text: str) -> str:
    if not text:
        return ""
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    indent = " " * (_LABEL_WIDTH + 2)
    first = f"  {label:<{_LABEL_WIDTH}}"
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
