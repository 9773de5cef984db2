"""The graph's edges between entries, in the direction in which a question that found one wants the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kgraph.graph import KnowledgeGraph
from retrieval.model import Entry

OF_CONCEPT = "of concept"
STEPS = {
    "mapping of": 0.25,
    "mapping to": 0.05,
    "corrects": 0.1,
    "limit of": 0.05,
    "limits": 0.05,
    "shows faults of": 0.05,
    OF_CONCEPT: 0.05,
}
"""What the reached node is to the one that it was reached from, and the share of the score that this carries."""


_SUPERSEDED = 0.3
"""Of its share what a mapping gets that another one corrects."""

_CLOSENESS = {"exact": 1.0, "close": 0.9, "narrower": 0.8, "broader": 0.8, "none": 1.0}
"""Of its share what a mapping gets for its relation: of several for one primitive the closest is wanted first."""


@dataclass(frozen=True)
class Edge:
    """A step in the graph.

    Attributes:
        node: the entry reached.
        relation: key of `STEPS`.
        words: the relation as a reason tells it.
        share: of the score of the node it starts from; divided by the root of the number of such edges there,
            since what is linked with everything says little about each.
    """

    node: str
    relation: str
    words: str
    share: float


def collect_edges(graph: KnowledgeGraph, entries: Iterable[Entry]) -> dict[str, list[Edge]]:
    """Edges between entries, by the entry that they start from."""
    listed = list(entries)
    present = {entry.id for entry in listed}
    links: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for start, end, relation, words in _links(graph, listed):
        if start in present and end in present and start != end:
            links[start, relation].append((end, words))
    strengths = {
        mapping.iri: _SUPERSEDED if mapping.corrected_by else _CLOSENESS[mapping.relation]
        for mapping in graph.mappings()
    }
    edges: dict[str, list[Edge]] = defaultdict(list)
    for (start, relation), found in links.items():
        share = STEPS[relation] / len(found) ** 0.5
        edges[start].extend(Edge(end, relation, words, share * strengths.get(end, 1.0)) for end, words in found)
    return edges


def _links(graph: KnowledgeGraph, entries: Iterable[Entry]) -> Iterator[tuple[str, str, str, str]]:
    """(start, end, relation, words) of every edge."""
    iri_of = {concept.slug: concept.iri for concept in graph.concepts()}
    for entry in entries:
        if entry.kind not in ("concept", "primitive"):
            for slug in entry.concepts:
                # A slug that no concept has is for validation to report, not for a query to fail on.
                if slug in iri_of:
                    yield iri_of[slug], entry.id, OF_CONCEPT, f"{entry.kind} of concept"
    for mapping in graph.mappings():
        yield mapping.origin.iri, mapping.iri, "mapping of", "mapping of"
        if mapping.target is not None:
            yield mapping.target.iri, mapping.iri, "mapping to", "mapping to"
        if mapping.corrected_by:
            yield mapping.iri, mapping.corrected_by, "corrects", "corrects"
        for constraint in mapping.constraints:
            yield mapping.iri, constraint.iri, "limit of", "limit of"
            yield constraint.iri, mapping.iri, "limits", "limited by"
    for pattern in graph.patterns():
        for assertion in pattern.shown_by:
            yield pattern.iri, assertion, "shows faults of", "shows faults of"
        for constraint in pattern.constraints:
            yield pattern.iri, constraint.iri, "limit of", "limit of"
