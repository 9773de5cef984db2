"""One ranking out of three: similar texts, shared words, and steps along the graph's edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kgraph.graph import KnowledgeGraph
from retrieval.index import Index, embedded_text
from retrieval.lexical import LexicalIndex, LexicalMatch, is_identifier
from retrieval.model import Entry, Hit


@dataclass(frozen=True)
class FusionWeights:
    """How much each ranking counts.

    The fused score of an entry is ``sum of weight / (smoothing + rank)`` over the rankings that hold
    it, rank 1 first: reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009).

    Attributes:
        dense, lexical, graph: weight of each ranking.
        smoothing: the larger, the less the first ranks stand out.
        depth: entries taken from the dense and the lexical ranking.
        seeds: best entries of those two from which the graph is walked.
        step_decay: share of an entry's weight that one step along an edge carries on.
        repeat_decay: factor for each hit of the same kind and concept that is already listed, so that
            ten sightings of one concept do not crowd out what else is known.
        kind_decay: the same for each hit of the same kind, whatever its concept: an answer wants the
            concept, the mapping, the pattern and a sighting rather than six primitives.
    """

    dense: float = 1.0
    lexical: float = 0.8
    graph: float = 1.0
    smoothing: float = 30.0
    depth: int = 60
    seeds: int = 8
    step_decay: float = 0.5
    repeat_decay: float = 0.85
    kind_decay: float = 0.92


@dataclass(frozen=True)
class Edge:
    """A step in the graph: the other node and what links it, in words."""

    node: str
    words: str


@dataclass
class _Candidate:
    score: float = 0.0
    reasons: list[str] = field(default_factory=list)


class Retriever:
    """Answers questions in words from a graph and its index.

    Args:
        graph: edges.
        index: entries and vectors; what is pending there is embedded at the first query.
        weights: of the fusion.
    """

    def __init__(self, graph: KnowledgeGraph, index: Index, weights: FusionWeights | None = None) -> None:
        self._index = index
        self._weights = weights or FusionWeights()
        self._entries = index.entries()
        self._by_id = {entry.id: entry for entry in self._entries}
        self._lexical = LexicalIndex([f"{entry.title}\n{embedded_text(entry)}" for entry in self._entries])
        self._edges = _collect_edges(graph, self._entries)

    def query(self, text: str, limit: int = 10) -> list[Hit]:
        """The entries that answer ``text`` best, best first; ties by id.

        Args:
            text: a question, keywords or identifiers.
            limit: how many hits at most.

        Raises:
            ModelMissing: the embedding model is absent or not the expected one.
            DataMalformed: the index cannot be used.
        """
        weights = self._weights
        candidates: dict[str, _Candidate] = defaultdict(_Candidate)
        dense = [pair for pair in self._index.nearest(text, weights.depth) if pair[0] in self._by_id]
        for rank, (iri, similarity) in enumerate(dense, start=1):
            _add(candidates[iri], weights.dense / (weights.smoothing + rank), f"dense {similarity:.2f}")
        for rank, match in enumerate(self._lexical.search(text, weights.depth), start=1):
            candidate = candidates[self._entries[match.position].id]
            _add(candidate, weights.lexical / (weights.smoothing + rank), _words_found(match))
        seeds = sorted(candidates, key=lambda iri: (-candidates[iri].score, iri))[: weights.seeds]
        reached = self._walk({iri: candidates[iri].score for iri in seeds})
        ranked = sorted(reached, key=lambda iri: (-reached[iri][0], iri))
        for rank, iri in enumerate(ranked, start=1):
            _add(candidates[iri], weights.graph / (weights.smoothing + rank), reached[iri][1])
        return self._spread(candidates, limit)

    def _walk(self, seeds: dict[str, float]) -> dict[str, tuple[float, str]]:
        """Activation and the strongest reason of every entry within two steps of the seeds."""
        activation: dict[str, float] = defaultdict(float)
        strongest: dict[str, tuple[float, str]] = {}
        frontier = dict(seeds)
        for _ in range(2):
            arriving: dict[str, float] = defaultdict(float)
            for origin, energy in frontier.items():
                edges = self._edges.get(origin, [])
                for edge in edges:
                    # Divided among the edges: a node linked with everything says little about each.
                    share = energy * self._weights.step_decay / len(edges) ** 0.5
                    arriving[edge.node] += share
                    if share > strongest.get(edge.node, (0.0, ""))[0]:
                        strongest[edge.node] = (share, f"{edge.words} {self._by_id[origin].title}")
            for node, energy in arriving.items():
                activation[node] += energy
            frontier = dict(arriving)
        return {node: (energy, strongest[node][1]) for node, energy in activation.items()}

    def _spread(self, candidates: dict[str, _Candidate], limit: int) -> list[Hit]:
        remaining = dict(candidates)
        alike: Counter[tuple[str, str]] = Counter()
        kinds: Counter[str] = Counter()
        hits: list[Hit] = []

        def discounted(iri: str) -> float:
            entry = self._by_id[iri]
            repeats = self._weights.repeat_decay ** alike[_group(entry)] * self._weights.kind_decay ** kinds[entry.kind]
            return remaining[iri].score * repeats

        while remaining and len(hits) < limit:
            best = min(remaining, key=lambda iri: (-discounted(iri), iri))
            entry = self._by_id[best]
            hits.append(Hit(entry, round(discounted(best), 6), "; ".join(remaining[best].reasons)))
            alike[_group(entry)] += 1
            kinds[entry.kind] += 1
            del remaining[best]
        return hits


def _add(candidate: _Candidate, score: float, reason: str) -> None:
    candidate.score += score
    candidate.reasons.append(reason)


def _group(entry: Entry) -> tuple[str, str]:
    # Concepts and mappings stand for themselves; sightings of one concept are alike.
    return entry.kind, entry.concepts[0] if entry.concepts else ""


def _words_found(match: LexicalMatch) -> str:
    identifiers = [term for term in match.terms if is_identifier(term)]
    if identifiers:
        return f"identifier {', '.join(identifiers[:3])}"
    return f"words {', '.join(match.terms[:3])}"


def _collect_edges(graph: KnowledgeGraph, entries: list[Entry]) -> dict[str, list[Edge]]:
    """Edges in both directions between entries, by node."""
    present = {entry.id for entry in entries}
    edges: dict[str, list[Edge]] = defaultdict(list)
    for one, other, there, back in _links(graph, entries):
        if one in present and other in present and one != other:
            edges[one].append(Edge(other, there))
            edges[other].append(Edge(one, back))
    return edges


def _links(graph: KnowledgeGraph, entries: Iterable[Entry]) -> Iterator[tuple[str, str, str, str]]:
    """Pairs of nodes, with what the second is to the first and the first to the second, in words."""
    iri_of = {concept.slug: concept.iri for concept in graph.concepts()}
    for entry in entries:
        for slug in entry.concepts:
            if slug in iri_of:
                yield entry.id, iri_of[slug], f"concept of {entry.kind}", f"{entry.kind} of concept"
    for concept in graph.concepts():
        # A slug that no concept has is for validation to report, not for a query to fail on.
        for other in concept.requires:
            if other in iri_of:
                yield concept.iri, iri_of[other], "required by", "requires"
        for other in concept.enables:
            if other in iri_of:
                yield concept.iri, iri_of[other], "enabled by", "enables"
    yield from _pattern_links(graph)
    for mapping in graph.mappings():
        yield mapping.iri, mapping.origin.iri, "origin of", "mapping of"
        if mapping.target is not None:
            yield mapping.iri, mapping.target.iri, "target of", "mapping to"
        for constraint in mapping.constraints:
            yield mapping.iri, constraint.iri, "limit of", "limited by"
        if mapping.corrected_by:
            yield mapping.iri, mapping.corrected_by, "corrects", "corrected by"


def _pattern_links(graph: KnowledgeGraph) -> Iterator[tuple[str, str, str, str]]:
    for pattern in graph.patterns():
        for iri in pattern.shown_by:
            yield pattern.iri, iri, "shows faults of", "checked by"
        for constraint in pattern.constraints:
            yield pattern.iri, constraint.iri, "limit of", "limited by"
