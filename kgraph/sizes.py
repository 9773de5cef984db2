"""How much the graph holds: triples, and nodes of every class of the schema."""

from __future__ import annotations

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


def measure(curated: TripleIndex, added: TripleIndex, triples: int) -> GraphStats:
    """Sizes of a graph.

    Args:
        curated: the curated graph.
        added: the classes of what was ingested and observed.
        triples: in all named graphs together.
    """
    own = [iri for iri in curated.instances(_CLASS) if iri.startswith(PREFIXES["kx"])]
    counted = {iri: len(curated.instances(iri)) + len(added.instances(iri)) for iri in sorted(own)}
    return GraphStats(
        triples=triples,
        curated=len(curated),
        nodes={iri.removeprefix(PREFIXES["kx"]): count for iri, count in counted.items() if count},
        sources=len(added.instances(schema("SourceFile"))),
        evidence=len(added.instances(schema("Evidence"))),
        observations=len(added.instances(schema("Observation"))),
    )
