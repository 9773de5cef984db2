"""Triples as plain Python values, and an index over them that needs no RDF library.

Reading a fact must not cost the import of an RDF library, so a graph is also kept as plain values:
IRIs are ``Node``, numbers are int or float, other literals are str.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator

from kgraph.names import RDF_TYPE
from kx.errors import DataMalformed


class Node(str):
    """An IRI; a str of its own type, so that it is never taken for a literal."""

    __slots__ = ()


Value = Node | str | int | float
Triple = tuple[str, str, Value]


def encode(triples: Iterable[Triple]) -> str:
    """JSON text of triples: an IRI object is a one-element list, a literal stands for itself."""
    rows = [[s, p, [o] if isinstance(o, Node) else o] for s, p, o in triples]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> list[Triple]:
    """Inverse of ``encode``.

    Raises:
        ValueError: the text is not what ``encode`` writes.
    """
    triples: list[Triple] = []
    for row in json.loads(text):
        subject, predicate, value = row
        triples.append((subject, predicate, Node(value[0]) if isinstance(value, list) else value))
    return triples


class TripleIndex:
    """Triples by subject and property, and subjects by class and by (property, IRI object)."""

    def __init__(self, triples: Iterable[Triple] = ()) -> None:
        self._by_subject: dict[str, dict[str, list[Value]]] = {}
        self._by_object: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._count = 0
        for subject, predicate, value in triples:
            values = self._by_subject.setdefault(subject, {}).setdefault(predicate, [])
            if value in values:
                continue
            values.append(value)
            self._count += 1
            if isinstance(value, Node):
                self._by_object[(predicate, value)].append(subject)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, subject: object) -> bool:
        return subject in self._by_subject

    def subjects(self) -> Iterator[str]:
        """Every subject."""
        return iter(self._by_subject)

    def instances(self, class_iri: str) -> list[str]:
        """Subjects of a class, sorted."""
        return sorted(self._by_object.get((RDF_TYPE, class_iri), ()))

    def pointing(self, predicate: str, target: str) -> list[str]:
        """Subjects that point to ``target`` by ``predicate``, sorted."""
        return sorted(self._by_object.get((predicate, target), ()))

    def properties(self, subject: str) -> dict[str, list[Value]]:
        """Everything said about a subject; empty when nothing is."""
        return {predicate: list(values) for predicate, values in self._by_subject.get(subject, {}).items()}

    def values(self, subject: str, predicate: str) -> list[Value]:
        """Values of a property, sorted (RDF keeps no order)."""
        found = self._by_subject.get(subject, {}).get(predicate, [])
        return sorted(found, key=lambda value: (str(type(value)), str(value)))

    def nodes(self, subject: str, predicate: str) -> list[Node]:
        """IRI values of a property, sorted."""
        return [value for value in self.values(subject, predicate) if isinstance(value, Node)]

    def texts(self, subject: str, predicate: str) -> tuple[str, ...]:
        """Literal values of a property as text, sorted."""
        return tuple(str(value) for value in self.values(subject, predicate) if not isinstance(value, Node))

    def text(self, subject: str, predicate: str, default: str | None = None) -> str:
        """The one literal of a property as text.

        Raises:
            DataMalformed: it is missing and there is no default.
        """
        found = self.texts(subject, predicate)
        if found:
            return found[0]
        if default is not None:
            return default
        raise _missing(subject, predicate)

    def number(self, subject: str, predicate: str) -> float:
        """The one number of a property.

        Raises:
            DataMalformed: it is missing or no number.
        """
        for value in self.values(subject, predicate):
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        raise _missing(subject, predicate, "number")

    def node(self, subject: str, predicate: str) -> Node:
        """The one IRI of a property.

        Raises:
            DataMalformed: it is missing.
        """
        found = self.nodes(subject, predicate)
        if not found:
            raise _missing(subject, predicate, "link")
        return found[0]


def _missing(subject: str, predicate: str, what: str = "value") -> DataMalformed:
    return DataMalformed(f"{subject} has no {what} for {predicate}", "kx graph validate lists everything that is wrong")
