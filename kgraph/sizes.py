"""How much the graph holds: triples, and nodes of every class of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgraph.names import PREFIXES, schema
from kgraph.triples import TripleIndex

_CLASS = "http://www.w3.org/2002/07/owl#Class"


@dataclass(frozen=True)
class GraphStats:
    """Sizes of the graph.

    Attributes:
        triples: in all named graphs together.
        curated: triples of the curated graph.
        nodes: number of nodes by class of the schema, curated and added ones together; classes without a node are
            left out.
        sources: ingested files; ``evidence``: concepts seen in them; ``observations``: of searches.
    """

    triples: int
    curated: int
    nodes: dict[str, int]
    sources: int
    evidence: int
    observations: int


def measure(curated: TripleIndex, sources: TripleIndex, observations: TripleIndex) -> GraphStats:
    """Sizes of the three parts of a graph."""
    parts: Sequence[TripleIndex] = (curated, sources, observations)
    own = [iri for iri in curated.instances(_CLASS) if iri.startswith(PREFIXES["kx"])]
    counted = {iri: sum(len(part.instances(iri)) for part in parts) for iri in sorted(own)}
    return GraphStats(
        triples=sum(map(len, parts)),
        curated=len(curated),
        nodes={iri.removeprefix(PREFIXES["kx"]): count for iri, count in counted.items() if count},
        sources=len(sources.instances(schema("SourceFile"))),
        evidence=len(sources.instances(schema("Evidence"))),
        observations=len(observations.instances(schema("Observation"))),
    )
