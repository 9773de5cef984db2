"""One ranking out of three: similar texts, shared words, and steps along the graph's edges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kgraph.graph import KnowledgeGraph
from retrieval.edges import Edge, collect_edges
from retrieval.index import Index
from retrieval.lexical import Document, LexicalIndex, LexicalWeights
from retrieval.model import Entry, Hit
from retrieval.words import is_identifier

Scores = npt.NDArray[np.float64]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


_PRIORS = {"primitive": -0.05, "fact": 0.03, "kernel": -0.1, "evidence": -0.1}


@dataclass(frozen=True)
class FusionWeights:
    """How much each ranking counts; how the values were found: docs/retrieval.md.

    The score of an entry is ``dense * cosine + lexical * share + prior of its kind``; then what the edges bring is
    added, and entries that are alike are spread.

    Attributes:
        dense: weight of the cosine similarity of the embeddings.
        lexical: weight of the share of the question's words that the entry holds (`LexicalIndex`).
        graph: factor on the shares of `retrieval.edges.STEPS`.
        depth: entries taken from the vector store; the others count as similar as the last of them.
        seeds: best entries from which the graph is walked; what one passes on grows with how far it is above
            the last of them, from 0 to 1.
        repeat: taken off for each entry that is listed before and alike (`_groups`).
        priors: added to the entries of a kind.
        words: weights inside the lexical ranking.
    """

    dense: float = 1.0
    lexical: float = 1.5
    graph: float = 1.0
    depth: int = 200
    seeds: int = 40
    repeat: float = 0.15
    priors: Mapping[str, float] = field(default_factory=lambda: dict(_PRIORS))
    words: LexicalWeights = field(default_factory=LexicalWeights)


_SPREAD_DEPTH = 5
"""How many times more entries than asked for are considered when alike ones are spread."""


@dataclass(frozen=True)
class _Arrival:
    """What the edges bring an entry: in all, and by which edge most."""

    energy: float
    strongest: float
    origin: int
    edge: Edge


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
        self._position = {entry.id: position for position, entry in enumerate(self._entries)}
        documents = [Document(entry.title, entry.names, entry.text) for entry in self._entries]
        self._lexical = LexicalIndex(documents, self._weights.words)
        self._edges = collect_edges(graph, self._entries)
        self._groups = _groups(graph, self._entries)
        self._priors = np.array([self._weights.priors.get(entry.kind, 0.0) for entry in self._entries])

    def query(self, text: str, limit: int = 10) -> list[Hit]:
        """The entries that answer ``text`` best, best first; ties by id.

        Args:
            text: a question, keywords or identifiers.
            limit: how many hits at most.

        Raises:
            ModelMissing: the embedding model is absent or not the expected one.
            DataMalformed: the index cannot be used.
        """
        if not self._entries:
            return []
        weights = self._weights
        dense = self._similarities(text)
        wanted = self._lexical.read(text)
        lexical = self._lexical.scores(wanted)
        scores = weights.dense * dense + weights.lexical * lexical + self._priors
        arrivals = self._walk(scores)
        for position, arrival in arrivals.items():
            scores[position] += weights.graph * arrival.energy
        return [
            Hit(self._entries[position], round(score, 6), self._reasons(position, dense, wanted, arrivals))
            for position, score in self._spread(scores, limit)
        ]

    def _similarities(self, text: str) -> Scores:
        """Cosine similarity of every entry, shape [n]; that of the last one found where the store was not asked."""
        found = {
            self._position[iri]: similarity
            for iri, similarity in self._index.nearest(text, self._weights.depth)
            if iri in self._position
        }
        similarities = np.full(len(self._entries), min(found.values(), default=0.0))
        similarities[list(found)] = list(found.values())
        return similarities

    def _walk(self, scores: Scores) -> dict[int, _Arrival]:
        """What one step along the edges from the best entries brings."""
        seeds = self._ordered(scores)[: self._weights.seeds]
        least, best = scores[seeds[-1]], scores[seeds[0]]
        arrivals: dict[int, _Arrival] = {}
        if best <= least:
            return arrivals
        for origin in seeds:
            energy = float((scores[origin] - least) / (best - least))
            for edge in self._edges.get(self._entries[origin].id, ()):
                position, share = self._position[edge.node], energy * edge.share
                known = arrivals.get(position)
                if share <= 0:
                    continue
                if known is None:
                    arrivals[position] = _Arrival(share, share, origin, edge)
                elif share > known.strongest:
                    arrivals[position] = _Arrival(known.energy + share, share, origin, edge)
                else:
                    arrivals[position] = _Arrival(known.energy + share, known.strongest, known.origin, known.edge)
        return arrivals

    def _ordered(self, scores: Scores) -> list[int]:
        """Positions, best first; ties by id."""
        order: list[int] = np.argsort(-scores, kind="stable").tolist()
        return sorted(order, key=lambda position: (-scores[position], self._entries[position].id))

    def _spread(self, scores: Scores, limit: int) -> list[tuple[int, float]]:
        """The best entries with their scores, each further one of a group a step lower."""
        remaining = self._ordered(scores)[: limit * _SPREAD_DEPTH]
        listed: Counter[str] = Counter()

        def lowered(position: int) -> float:
            return float(scores[position]) - self._weights.repeat * listed[self._groups[position][1]]

        chosen: list[tuple[int, float]] = []
        while remaining and len(chosen) < limit:
            best = max(remaining, key=lowered)
            chosen.append((best, lowered(best)))
            listed[self._groups[best][0]] += 1
            remaining.remove(best)
        return chosen

    def _reasons(
        self, position: int, dense: Scores, wanted: Mapping[str, float], arrivals: Mapping[int, _Arrival]
    ) -> str:
        reasons = [f"dense {dense[position]:.2f}"]
        if terms := self._lexical.telling_terms(wanted, position):
            identifiers = [term for term in terms if is_identifier(term)]
            named = f"identifier {', '.join(identifiers[:3])}" if identifiers else f"words {', '.join(terms[:3])}"
            reasons.append(named)
        if arrival := arrivals.get(position):
            reasons.append(f"{arrival.edge.words} {self._entries[arrival.origin].title}")
        return "; ".join(reasons)


def _groups(graph: KnowledgeGraph, entries: list[Entry]) -> list[tuple[str, str]]:
    """For each entry the group it belongs to, and the group that lowers it when one of it is listed before.

    Chips stand for their generation, limits for their quantity, sightings for the concept; facts and properties whose
    titles differ by numbers only are alike. A CUDA primitive says little beside one of its mappings, and the other
    way round; two mappings of one primitive say two things.
    """
    origins = {mapping.iri: mapping.origin.iri for mapping in graph.mappings()}
    quantities = {constraint.iri: constraint.quantity for constraint in graph.constraints()}

    def groups(entry: Entry) -> tuple[str, str]:
        if entry.kind == "mapping":
            return f"mapping of {origins.get(entry.id, '')}", origins.get(entry.id, "")
        if entry.kind == "primitive":
            return entry.id, f"mapping of {entry.id}"
        alike = entry.id
        if entry.kind == "chip":
            alike = f"chip {re.split(r'[ ,]', entry.title)[0]}"
        elif entry.kind == "constraint":
            alike = f"limit of {quantities.get(entry.id, entry.id)}"
        elif entry.kind in ("fact", "assertion"):
            alike = _NUMBER.sub("#", entry.title)
        elif entry.kind in ("kernel", "evidence"):
            alike = f"{entry.kind} {entry.concepts[0] if entry.concepts else ''}"
        return alike, alike

    return [groups(entry) for entry in entries]
