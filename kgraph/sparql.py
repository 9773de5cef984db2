"""SPARQL over the whole graph: rows as text, or triples as Turtle; errors that name the place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kgraph.names import PREFIXES
from kx.errors import InputError

if TYPE_CHECKING:
    from rdflib import Dataset


@dataclass(frozen=True)
class Table:
    """Rows of a SPARQL answer as text, under the names of its variables."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def run_query(dataset: Dataset, query: str) -> Table | str:
    """Answer of a query; the prefixes of ``kgraph.names`` need no declaration.

    Returns:
        A table for SELECT and ASK, Turtle for CONSTRUCT and DESCRIBE.

    Raises:
        InputError: the query does not parse (the message names line and column), or uses a prefix that is nowhere
            declared.
    """
    _check(query)
    with warnings.catch_warnings():
        # rdflib's own SPARQL engine calls methods that it deprecates
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"rdflib\.")
        result = dataset.query(query)
        if result.type == "ASK":
            return Table(("answer",), ((str(bool(result.askAnswer)).lower(),),))
        if result.type == "SELECT":
            columns = tuple(str(variable) for variable in result.vars or ())
            rows = [tuple("" if cell is None else str(cell) for cell in row) for row in result]  # type: ignore[union-attr]
            return Table(columns, tuple(rows))
        graph = result.graph
        if graph is None:
            return ""
        for prefix, namespace in PREFIXES.items():
            graph.bind(prefix, namespace)
        return graph.serialize(format="turtle").strip()


def _check(query: str) -> None:
    from pyparsing.exceptions import ParseException
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        prologue, body = parseQuery(query)
    except ParseException as error:
        lines = query.splitlines() or [""]
        rest = lines[min(error.lineno, len(lines)) - 1][error.column - 1 :].strip()[:30]
        near = f"near {rest!r}" if rest else "at the end of the line"
        raise InputError(
            f"the query does not parse at line {error.lineno}, column {error.column}, {near}",
            "it must be one SPARQL 1.1 SELECT, ASK, CONSTRUCT or DESCRIBE",
        ) from error
    declared = {str(item.prefix or "") for item in prologue if item.name == "PrefixDecl"}
    for prefix in _prefixes(body):
        if prefix not in declared and prefix not in PREFIXES:
            hint = f"declare it, or use one of {', '.join(f'{name}:' for name in sorted(PREFIXES))}"
            raise InputError(f"the prefix {prefix}: is not declared", hint)


def _prefixes(node: Any) -> Iterator[str]:
    """Prefixes of the names in a parsed query, in any depth."""
    from pyparsing.results import ParseResults
    from rdflib.plugins.sparql.parserutils import CompValue

    if isinstance(node, CompValue):
        if node.name == "pname":
            yield str(node.prefix or "")
        for value in node.values():
            yield from _prefixes(value)
    elif isinstance(node, (list, tuple, ParseResults)):
        for value in node:
            yield from _prefixes(value)
