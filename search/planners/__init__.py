"""Planners propose actions and revise the world model after each one was tried."""

from __future__ import annotations

from typing import Protocol

from search.outcome import Scored
from search.program import Program
from search.world_model import Node, WorldModel


class Planner(Protocol):
    """Grows and prunes the tree.

    Attributes:
        name: goes into the run's record.
        trouble: why it can't propose any more; empty when all is well.
    """

    @property
    def name(self) -> str:
        """See above."""
        ...

    @property
    def trouble(self) -> str:
        """See above."""
        ...

    def propose(self, model: WorldModel, node: Node, program: Program, outcome: Scored) -> list[Node]:
        """Insert the most promising actions below a scored node; returns the new nodes."""
        ...

    def evolve(self, model: WorldModel, tried: Node, program: Program | None, outcome: Scored | None) -> None:
        """Update, prune and insert in the light of what was just tried.

        Args:
            program, outcome: the node's best program and its outcome; None where the node failed.
        """
        ...
