"""``kx spec``: what a kernel on a chip must respect and may use, from the graph alone; imports no model."""

from __future__ import annotations

from typing import Any

import click

from kgraph.graph import KnowledgeGraph
from kx.cli.output import json_option, print_json, print_text
from kx.errors import InputError
from kx.paths import Home
from kx.settings import Settings
from retrieval.rendering import estimate_tokens
from retrieval.spec import Spec, fit_spec, render_spec, select_spec


@click.command("spec")
@click.option("--kernel", metavar="NAME", required=True, help="A task or a kernel class, e.g. mamba_scan or attention.")
@click.option("--chip", metavar="SLUG", default="", help="The Apple chip, e.g. m3-max; the setting chip by default.")
@click.option(
    "--budget", metavar="TOKENS", type=click.IntRange(min=1), help="Most tokens (characters / 4); limits always stay."
)
@json_option
def spec(kernel: str, chip: str, budget: int | None, as_json: bool) -> None:
    """Write the specification of a kernel on a chip, for a person or a prompt.

    Limits that bind, with unit and scope; figures of the chip; what CUDA's means become; how experts do it,
    with sketches in Metal; what must hold. A budget cuts whole items from the end of each section, never a limit.
    """
    home = Home.from_environment()
    graph = KnowledgeGraph.open(home)
    chip = chip or Settings.load(home).chip
    if not chip:
        raise InputError("no chip is named", "kx spec --kernel NAME --chip m3-max")
    told = select_spec(graph, kernel, chip)
    if budget is not None:
        told = fit_spec(told, budget)
    if as_json:
        print_json(_payload(told, budget))
    else:
        print_text(render_spec(told).rstrip("\n"))


def _payload(told: Spec, budget: int | None) -> dict[str, Any]:
    return {
        "kernel": told.kernel.slug,
        "kernel_class": told.kernel.kernel_class,
        "chip": told.chip.slug,
        "budget": budget,
        "tokens": estimate_tokens(render_spec(told)),
        "limits": [
            {
                "id": limit.iri,
                "label": limit.label,
                "quantity": limit.quantity,
                "comparison": limit.comparison,
                "value": limit.value,
                "unit": limit.unit,
                "scope": limit.scope,
                "basis": limit.basis,
                "source": "; ".join(source.title for source in limit.sources),
            }
            for limit in told.limits
        ],
        "figures": [
            {"quantity": figure.name, "value": figure.value, "unit": figure.unit, "basis": figure.confidence}
            for figure in told.figures
        ],
        "mappings": [
            {
                "id": mapping.iri,
                "from": mapping.origin.label,
                "to": mapping.target.label if mapping.target else "",
                "relation": mapping.relation,
                "advice": mapping.advice,
                "pitfall": mapping.pitfall,
                "status": mapping.status,
                "confidence": mapping.confidence,
                "source": "; ".join(source.title for source in mapping.sources),
            }
            for mapping in told.mappings
        ],
        "patterns": [
            {
                "id": pattern.iri,
                "label": pattern.label,
                "problem": pattern.problem,
                "solution": pattern.text,
                "requirement": pattern.requirement,
                "sketch": pattern.sketch,
                "concepts": list(pattern.concepts),
                "conflicts": list(pattern.conflicts),
                "confidence": pattern.confidence,
                "basis": pattern.basis,
                "source": "; ".join(source.title for source in pattern.sources),
            }
            for pattern in told.patterns
        ],
        "assertions": [
            {
                "id": assertion.iri,
                "label": assertion.label,
                "text": assertion.text,
                "failure": assertion.failure,
                "strictness": assertion.strictness,
                "tasks": list(assertion.tasks),
                "check": assertion.check,
                "checked_by": list(assertion.checked_by),
                "source": "; ".join(source.title for source in assertion.sources),
            }
            for assertion in told.assertions
        ],
        "left_out": dict(told.left_out),
        "unfit_tokens": told.unfit_tokens,
    }
