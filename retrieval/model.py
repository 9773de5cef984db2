"""Index entries, hits, and the Context that an action of the search gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from kgraph.model import Assertion, Constraint, Evidence, Mapping, Observation, Pattern

EntryKind = Literal[
    "concept", "primitive", "mapping", "constraint", "fact", "pattern", "assertion", "chip", "kernel", "evidence"
]


@dataclass(frozen=True)
class Entry:
    """One searchable text.

    Attributes:
        id: IRI of the graph node it stands for.
        kind: the node's class.
        title: one line.
        text: what is embedded with title and names, and shown.
        source: owner of the entry: ``curated`` or the ingested source's IRI; replaced as one.
        concepts: slugs it is linked to.
        names: spellings by which people ask for it.
    """

    id: str
    kind: EntryKind
    title: str
    text: str
    source: str
    concepts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hit:
    """An entry found, its fused score (higher is better) and why it came."""

    entry: Entry
    score: float
    why: str


@dataclass(frozen=True)
class Context:
    """What is known for one action: everything that its prompt may cite.

    ``constraints`` are never dropped when a budget is kept; the rest is cut from the end.
    """

    concepts: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    mappings: tuple[Mapping, ...]
    patterns: tuple[Pattern, ...]
    assertions: tuple[Assertion, ...]
    evidence: tuple[Evidence, ...]
    observations: tuple[Observation, ...]


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    name: str

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Vectors of shape [len(texts), d], float32, of Euclidean norm 1."""
        ...


class VectorStore(Protocol):
    """Persistent nearest-neighbour search over entries."""

    def replace(self, source: str, entries: list[Entry], vectors: npt.NDArray[np.float32]) -> None:
        """Make ``entries`` (vectors [n, d]) the only ones owned by ``source``."""
        ...

    def nearest(self, vector: npt.NDArray[np.float32], count: int) -> list[tuple[str, float]]:
        """Up to ``count`` (entry id, cosine similarity) pairs, best first."""
        ...

    def size(self) -> int:
        """Number of entries."""
        ...
