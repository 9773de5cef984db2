"""SPARQL over the whole graph: rows as text, and errors that name the place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kgraph.names import PREFIXES
from kx.errors import InputError


@dataclass(frozen=True)
class Table:
    """Rows of a SPARQL answer as text, under the names of its variables."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def check_query(query: str) -> None:
    """Say where a query is wrong, better than most engines do.

    Raises:
        InputError: the query does not parse (the message names line and column), or uses a prefix that is nowhere
            declared.
    """
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
