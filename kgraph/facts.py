"""Facts: what holds within a scope and is no number that code compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kgraph.decode import slug_of
from kgraph.graph import KnowledgeGraph
from kgraph.model import Source
from kgraph.names import schema, skos


@dataclass(frozen=True)
class Fact:
    """One sentence about a platform, GPU family, feature or aspect.

    Attributes:
        iri: the node.
        statement: what holds.
        advice: what follows for whoever writes or times a kernel; may be empty.
        scope: slug of what it holds for (``metal``, ``apple9``, ``mlx-timing`` ...).
        sources: where it comes from.
        basis: what the trust in it rests on, in words.
        confidence: 0 to 1.
    """

    iri: str
    statement: str
    advice: str
    scope: str
    sources: tuple[Source, ...]
    basis: str
    confidence: float


def facts(graph: KnowledgeGraph, scopes: Iterable[str] = ()) -> tuple[Fact, ...]:
    """Facts of the named scopes, or all of them, by IRI.

    Raises:
        DataMalformed: a fact lacks what every fact must have.
    """
    wanted = set(scopes)
    reader, index = graph.reader, graph.reader.index
    found = (
        Fact(
            iri=iri,
            statement=index.text(iri, skos("prefLabel")),
            advice=index.text(iri, schema("advice"), ""),
            scope=slug_of(index.node(iri, schema("scope"))),
            sources=reader.sources(iri),
            basis=index.text(iri, schema("basis")),
            confidence=index.number(iri, schema("confidence")),
        )
        for iri in index.instances(schema("Fact"))
    )
    return tuple(fact for fact in found if not wanted or fact.scope in wanted)
