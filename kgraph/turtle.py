"""Turtle out: plain triples as text, equal triples as equal text.

Written here because rdflib prints an ``xsd:double`` with seven digits, so that a number does not come
back as it was, and because ingest writes many small files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from kgraph.names import PREFIXES, RDF_TYPE
from kgraph.triples import Node, Triple, Value

_ILLEGAL_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\\x85\u2028\u2029]')
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


def _iri(text: str) -> str:
    for prefix, namespace in PREFIXES.items():
        local = text.removeprefix(namespace)
        if local != text and _LOCAL.fullmatch(local):
            return f"{prefix}:{local}"
    if _ILLEGAL_IN_IRI.search(text) or ":" not in text:
        raise ValueError(f"not an IRI: {text!r}")
    return f"<{text}>"


def _term(value: Value) -> str:
    if isinstance(value, Node):
        return _iri(value)
    if isinstance(value, float):
        lexical = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(repr(value), repr(value))
        return f'"{lexical}"^^xsd:double'
    if isinstance(value, int):
        return str(value)
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04X}"), value) + '"'
