"""``kx graph``: sizes, single nodes, validation, SPARQL, export; and copying between stores."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgraph.export import FORMS, serialize
from kgraph.graph import KnowledgeGraph
from kgraph.names import shortened
from kx.cli.output import json_option, note, print_json, print_rows, print_table, print_text
from kx.cli.stores import copy
from kx.paths import Home, write_atomically

if TYPE_CHECKING:
    from kgraph.validate import Violation

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
    print_table(
        ["property", "value"], [(shortened(key), shortened(v)) for key, values in properties.items() for v in values]
    )


@graph.command()
@json_option
def validate(as_json: bool) -> None:
    """Check the graph against its shapes and queries; exits with 1 when it breaks one.

    Warnings are told and leave the graph valid.
    """
    from kgraph.validate import validate as find_violations

    violations = find_violations(_open())
    errors = sum(violation.severity == "error" for violation in violations)
    if as_json:
        print_json({"valid": not errors, "violations": [asdict(violation) for violation in violations]})
    else:
        for violation in violations:
            print_text(_told(violation))
        warned = len(violations) - errors
        count = f"{errors} errors, {warned} warnings" if violations else "no error, no warning"
        print_text(f"the graph is {'broken' if errors else 'valid'}: {count}")
    if errors:
        click.get_current_context().exit(_ANSWER_IS_NO)


def _told(violation: Violation) -> str:
    where = f" ({violation.place})" if violation.place else ""
    value = f"\n  value  {shortened(violation.value)}" if violation.value else ""
    mend = f"\n  mend   {violation.solution}" if violation.solution else ""
    return f"{violation.severity}: {shortened(violation.node)}{where}\n  rule   {violation.message}{value}{mend}"


@graph.command()
@click.argument("query")
@json_option
def sparql(query: str, as_json: bool) -> None:
    """Answer a SPARQL query over all named graphs: rows for SELECT and ASK, Turtle for CONSTRUCT and DESCRIBE.

    The prefixes of the curated files (kx:, concept:, cuda:, metal:, map: ...) need no declaration.
    """
    answer = _open().sparql(query)
    if isinstance(answer, str):
        if as_json:
            print_json({"turtle": answer})
        else:
            print_text(answer)
    elif as_json:
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        print_json({"columns": list(answer.columns), "rows": rows})
    else:
        print_rows(answer.columns, [[shortened(cell) for cell in row] for row in answer.rows])


@graph.command()
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write; stdout when absent."
)
@click.option(
    "--format", "form", type=click.Choice(FORMS), default="trig", show_default=True,
    help="turtle is the union of all named graphs; graphml has IRIs as nodes and triples between them as edges.",
)  # fmt: skip
def export(output: Path | None, form: str) -> None:
    """Write all named graphs in a standard form."""
    text = serialize(_open().dataset(), form)
    if output is None:
        print_text(text)
    else:
        write_atomically(output, text)
        note(f"wrote {output}")


graph.add_command(copy)


def _open() -> KnowledgeGraph:
    return KnowledgeGraph.open(Home.from_environment())
