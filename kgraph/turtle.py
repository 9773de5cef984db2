"""Turtle out: plain triples as text, equal triples as equal text.

Written here because rdflib prints an ``xsd:double`` with seven digits, so that a number does not come
back as it was, and because ingest writes many small files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from kgraph.names import PREFIXES, RDF_TYPE, XSD
from kgraph.triples import Node, Triple, Value

_ILLEGAL_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\\x85\u2028\u2029]')
_BLANK = re.compile(r"_:[A-Za-z0-9]+")
_LOCAL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def to_turtle(triples: Iterable[Triple]) -> str:
    """Turtle text of plain triples, sorted by subject and property.

    Raises:
        ValueError: a subject, property or ``Node`` is not fit to be an IRI.
    """
    rows = sorted(set(triples), key=lambda row: (row[0], row[1] != RDF_TYPE, row[1], str(row[2])))
    blocks = []
    for subject, of_subject in groupby(rows, key=lambda row: row[0]):
        statements = []
        for predicate, of_predicate in groupby(of_subject, key=lambda row: row[1]):
            values = ", ".join(_term(row[2]) for row in of_predicate)
            statements.append(f"{'a' if predicate == RDF_TYPE else _iri(predicate)} {values}")
        blocks.append(f"{_iri(subject)} " + " ;\n    ".join(statements) + " .\n")
    body = "\n".join(blocks)
    used = [f"@prefix {prefix}: <{iri}> .\n" for prefix, iri in PREFIXES.items() if f"{prefix}:" in body]
    return "".join(used) + "\n" + body


def to_ntriples(triples: Iterable[Triple]) -> str:
    """A line per triple without prefixes, as N-Triples and SPARQL both read them.

    Raises:
        ValueError: a subject, property or ``Node`` is not fit to be an IRI.
    """
    return "".join(
        f"{_full(s)} {_full(p)} {_full(o) if isinstance(o, Node) else _literal(o)} .\n" for s, p, o in triples
    )


def _full(text: str) -> str:
    if _BLANK.fullmatch(text):
        return text
    if _ILLEGAL_IN_IRI.search(text) or ":" not in text:
        raise ValueError(f"not an IRI: {text!r}")
    return f"<{text}>"


def _iri(text: str) -> str:
    for prefix, namespace in PREFIXES.items():
        local = text.removeprefix(namespace)
        if local != text and _LOCAL.fullmatch(local):
            return f"{prefix}:{local}"
    return _full(text)


def _term(value: Value) -> str:
    if isinstance(value, Node):
        return _iri(value)
    if isinstance(value, float):
        return _literal(value).replace(f"<{XSD}double>", "xsd:double")
    return str(value) if isinstance(value, int) else _literal(value)


def _literal(value: str | int | float) -> str:
    if isinstance(value, float):
        lexical = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(repr(value), repr(value))
        return f'"{lexical}"^^<{XSD}double>'
    if isinstance(value, int):
        return f'"{value}"^^<{XSD}integer>'
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04X}"), value) + '"'
