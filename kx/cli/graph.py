"""``kx graph``: sizes, single nodes, validation, SPARQL and export."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kgraph.graph import KnowledgeGraph
from kgraph.names import PREFIXES
from kx.cli.output import json_option, note, print_json, print_rows, print_table, print_text
from kx.paths import Home, write_atomically

_ANSWER_IS_NO = 1


@click.group()
def graph() -> None:
    """Look into the knowledge graph."""


@graph.command()
@json_option
def stats(as_json: bool) -> None:
    """Count what the graph holds."""
    counted = _open().stats()
    if as_json:
        print_json(asdict(counted))
        return
    rows: list[tuple[str, int]] = [
        ("triples", counted.triples),
        ("triples of the curated knowledge", counted.curated),
        *((f"{name} nodes", count) for name, count in counted.nodes.items()),
        ("ingested sources", counted.sources),
        ("evidence", counted.evidence),
        ("observations", counted.observations),
    ]
    print_table(["what", "count"], rows)


@graph.command()
@click.argument("node")
@json_option
def show(node: str, as_json: bool) -> None:
    """Show everything the graph says about a node.

    NODE is an IRI, a prefixed name (concept:online-softmax, chip:m1-max) or a concept's slug.
    """
    opened = _open()
    name = node if ":" in node else f"concept:{node}"
    properties = opened.describe(name)
    if as_json:
        print_json({"node": name, "properties": properties})
        return
    print_table(["property", "value"], [(_short(key), _short(v)) for key, values in properties.items() for v in values])


@graph.command()
@json_option
def validate(as_json: bool) -> None:
    """Check the graph against its shapes and queries; exits with 1 when it breaks one.

    Warnings are told and leave the graph valid.
    """
    from kgraph.validate import validate as find_violations

    violations = find_violations(_open())
    valid = all(violation.severity == "warning" for violation in violations)
    if as_json:
        print_json({"valid": valid, "violations": [asdict(violation) for violation in violations]})
    elif violations:
        columns = list(asdict(violations[0]))
        print_table(columns, [[_short(value) for value in asdict(v).values()] for v in violations])
    if valid and not as_json:
        print_text("the graph is valid")
    if not valid:
        click.get_current_context().exit(_ANSWER_IS_NO)


@graph.command()
@click.argument("select")
@json_option
def sparql(select: str, as_json: bool) -> None:
    """Answer a SPARQL SELECT or ASK over all named graphs.

    The prefixes of the curated files (kx:, concept:, cuda:, metal:, map: ...) need no declaration.
    """
    table = _open().select(select)
    if as_json:
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        print_json({"columns": list(table.columns), "rows": rows})
    else:
        print_rows(table.columns, [[_short(cell) for cell in row] for row in table.rows])


@graph.command()
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write; stdout when absent."
)
@click.option(
    "--format", "form", type=click.Choice(["trig", "nquads", "json-ld"]), default="trig", show_default=True,
    help="Serialization.",
)  # fmt: skip
def export(output: Path | None, form: str) -> None:
    """Write all named graphs in a standard form."""
    dataset = _open().dataset()
    with warnings.catch_warnings():
        # rdflib 7's own serializers call a method of its datasets that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        text = dataset.serialize(format=form)
    if output is None:
        print_text(text)
    else:
        write_atomically(output, text)
        note(f"wrote {output}")


def _open() -> KnowledgeGraph:
    return KnowledgeGraph.open(Home.from_environment())


def _short(value: Any) -> str:
    text = str(value)
    for prefix, namespace in PREFIXES.items():
        if text.startswith(namespace) and len(text) > len(namespace):
            return f"{prefix}:{text[len(namespace) :]}"
    return text
