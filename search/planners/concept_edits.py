"""Changes that only words describe: the concepts of the graph that a program does not use yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kgraph.model import Concept
from search.authors import Edit
from search.program import Program


@dataclass
class ConceptEdits:
    """Implements ``search.authors.EditSource`` for authors that can write anything.

    Attributes:
        concepts: all that the graph knows; kernel_class: those that serve it are offered.
    """

    concepts: Iterable[Concept]
    kernel_class: str
    _serving: list[Concept] = field(init=False)

    def __post_init__(self) -> None:
        self._serving = sorted(
            (concept for concept in self.concepts if self.kernel_class in concept.kernel_classes),
            key=lambda concept: concept.slug,
        )

    def edits(self, program: Program) -> Sequence[Edit]:
        """One edit per concept that is new to ``program``, has what it requires and conflicts with nothing."""
        used = set(program.concepts)
        return [
            Edit((concept.slug,), {}, f"{concept.label}: {concept.definition}")
            for concept in self._serving
            if concept.slug not in used and used.issuperset(concept.requires) and used.isdisjoint(concept.conflicts)
        ]
