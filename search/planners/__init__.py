"""Planners propose actions and revise the world model after each one was tried."""

from __future__ import annotations

from typing import Protocol

from search.outcome import Scored
from search.program import Program
from search.world_model import Node, WorldModel


class Planner(Protocol):
    """Grows and prunes the tree."""

    name: str

    def propose(self, model: WorldModel, node: Node, program: Program, outcome: Scored) -> list[Node]:
        """Insert the most promising actions below a scored node; returns the new nodes."""
        ...

    def revise(self, model: WorldModel, tried: Node) -> None:
        """Update and prune open nodes in the light of what was just tried."""
        ...
