"""The world model: a prefix tree of actions that persists and grows by insert, update and prune.

Each path from the root is a composed plan; siblings compete. A node holds one action, the beliefs about it
(difficulty, impacts, rating, confidence) and, once tried, the program and its outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from kgraph.model import Impacts
from kx.errors import DataMalformed

NodeStatus = Literal["open", "closed", "failed", "pruned"]
ROOT_ID = "n0"


@dataclass(frozen=True)
class Action:
    """A single change: what a node of the tree proposes.

    Attributes:
        title: in an engineer's words; concepts: slugs; changes: what the author applies.
        rationale: why it was proposed, with the figures that led to it.
    """

    title: str
    concepts: tuple[str, ...]
    changes: Mapping[str, str | int]
    rationale: str


@dataclass(frozen=True)
class Belief:
    """What is believed of an action.

    Attributes:
        difficulty: 1 to 5; impacts: 0 to 10 each; rating: overall, 0 to 10; confidence: 0 to 1.
    """

    difficulty: int
    impacts: Impacts
    rating: float
    confidence: float


@dataclass(frozen=True)
class Attempt:
    """One evaluated program of a node; ``score`` is None unless the outcome was scored."""

    program: str
    outcome: str
    score: float | None
    summary: str


@dataclass(frozen=True)
class Node:
    """A node of the tree.

    Attributes:
        program, score: digest and score of the best attempt, once closed.
        prompt: digest of the prompt that the action's context rendered to, once selected.
    """

    id: str
    parent: str | None
    action: Action
    belief: Belief
    status: NodeStatus
    created_round: int
    updated_round: int
    attempts: tuple[Attempt, ...] = ()
    program: str = ""
    score: float | None = None
    prompt: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectionRule:
    """How open nodes are ranked; every weight is used by ``WorldModel.priority``.

    priority = rating x (1 - confidence_weight x (1 - confidence))
             + parent_weight x log2(parent's score / best score)
             - difficulty_weight x (difficulty - 1)

    The second term is 0 for children of the best program and negative for the others, so that a plan is
    deepened where it already pays, and left when its branch has fallen behind by more than its rating is worth.

    Attributes:
        confidence_weight: 0 ignores confidence, 1 scales the rating by it.
        parent_weight: rating points per factor of two that the parent lags behind the best.
        difficulty_weight: rating points per step of difficulty.
        difficulty_cap: harder actions are not selected while others are open.
    """

    confidence_weight: float = 0.5
    parent_weight: float = 2.0
    difficulty_weight: float = 0.25
    difficulty_cap: int = 4


@dataclass
class WorldModel:
    """The tree; methods keep its invariants: known parents, open nodes under scored parents, one root."""

    rule: SelectionRule = field(default_factory=SelectionRule)
    nodes: dict[str, Node] = field(default_factory=dict)
    round: int = 0

    def plant(self, program: str, score: float, summary: str) -> Node:
        """Make the seed's node the root.

        Raises:
            ValueError: there is a root already.
        """
        if self.nodes:
            raise ValueError("the tree has a root already")
        action = Action("naive seed", (), {}, "the starting point of the task")
        belief = Belief(1, Impacts(0, 0, 0), 0.0, 1.0)
        attempt = Attempt(program, "Scored", score, summary)
        root = Node(ROOT_ID, None, action, belief, "closed", 0, 0, (attempt,), program, score)
        self.nodes[ROOT_ID] = root
        return root

    def insert(self, parent: str, action: Action, belief: Belief) -> Node:
        """Add an open node under a scored one.

        Raises:
            ValueError: the parent is unknown or has no program, or has a child of the same changes or title.
        """
        above = self.nodes.get(parent)
        if above is None or above.status != "closed":
            raise ValueError(f"{parent} can't have children: it is not a scored node")
        for child in self.children(parent):
            if action.changes and dict(child.action.changes) == dict(action.changes):
                raise ValueError(f"{parent} already has a child with the changes {dict(action.changes)}")
            if not action.changes and child.action.title.casefold() == action.title.casefold():
                raise ValueError(f"{parent} already has a child titled {action.title!r}")
        node = Node(f"n{len(self.nodes)}", parent, action, belief, "open", self.round, self.round)
        self.nodes[node.id] = node
        return node

    def update(self, node_id: str, *, rating: float, confidence: float, note: str) -> Node:
        """Change the beliefs about an open node; ratings stay in 0..10, confidences in 0..1."""
        node = self.nodes[node_id]
        belief = replace(node.belief, rating=min(10.0, max(0.0, rating)), confidence=min(1.0, max(0.0, confidence)))
        return self._put(replace(node, belief=belief, updated_round=self.round, notes=(*node.notes, note)))

    def prune(self, node_id: str, reason: str) -> Node:
        """Give an open node up.

        Raises:
            ValueError: the node is not open (what was tried stays in the tree).
        """
        node = self.nodes[node_id]
        if node.status != "open":
            raise ValueError(f"{node_id} is {node.status}: only open nodes can be pruned")
        return self._put(replace(node, status="pruned", updated_round=self.round, notes=(*node.notes, reason)))

    def split(self, node_id: str, parts: Iterable[tuple[Action, Belief]]) -> list[Node]:
        """Replace an open node by several smaller actions under the same parent.

        Raises:
            ValueError: the node is not open, or a part repeats a sibling.
        """
        node = self.nodes[node_id]
        if node.status != "open" or node.parent is None:
            raise ValueError(f"{node_id} is {node.status}: only open nodes can be split")
        added = [self.insert(node.parent, action, belief) for action, belief in parts]
        self.prune(node_id, f"split into {', '.join(part.id for part in added)}")
        return added

    def close(self, node_id: str, attempts: Iterable[Attempt], prompt: str) -> Node:
        """Record what came of an open node: ``closed`` with its best attempt, or ``failed``."""
        node = self.nodes[node_id]
        tried = tuple(attempts)
        scored = [attempt for attempt in tried if attempt.score is not None]
        best = max(scored, key=lambda attempt: attempt.score or 0.0, default=None)
        return self._put(
            replace(
                node,
                status="closed" if best else "failed",
                attempts=tried,
                program=best.program if best else "",
                score=best.score if best else None,
                prompt=prompt,
                updated_round=self.round,
            )
        )

    def children(self, node_id: str) -> list[Node]:
        """Nodes whose parent is ``node_id``, oldest first."""
        return [node for node in self.nodes.values() if node.parent == node_id]

    def walk(self, node_id: str = ROOT_ID, depth: int = 0) -> list[tuple[Node, int]]:
        """The node and all below it with their depths, each before its children, older before younger."""
        found = [(self.nodes[node_id], depth)]
        for child in self.children(node_id):
            found += self.walk(child.id, depth + 1)
        return found

    def path(self, node_id: str) -> list[Node]:
        """From the root to the node."""
        node = self.nodes[node_id]
        return [*(self.path(node.parent) if node.parent else []), node]

    def open_nodes(self) -> list[Node]:
        """The frontier."""
        return [node for node in self.nodes.values() if node.status == "open"]

    def best(self) -> Node:
        """The scored node with the highest score; the older one of equals."""
        scored = [node for node in self.nodes.values() if node.score is not None]
        return max(scored, key=lambda node: (node.score or 0.0, -int(node.id[1:])))

    def priority(self, node: Node) -> float:
        """See ``SelectionRule``."""
        rule, belief = self.rule, node.belief
        parent_score = self.nodes[node.parent or ROOT_ID].score or 1.0
        lag = math.log2(parent_score / (self.best().score or 1.0))
        trust = 1 - rule.confidence_weight * (1 - belief.confidence)
        return belief.rating * trust + rule.parent_weight * lag - rule.difficulty_weight * (belief.difficulty - 1)

    def select(self, count: int = 1) -> list[Node]:
        """Up to ``count`` open nodes of the highest priority, best first (older first among equals)."""
        frontier = self.open_nodes()
        within_reach = [node for node in frontier if node.belief.difficulty <= self.rule.difficulty_cap]
        return sorted(within_reach or frontier, key=lambda n: (-self.priority(n), int(n.id[1:])))[:count]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form that ``world_model_from_json`` reads back."""
        best = self.best().id if self.nodes else None
        return {
            "round": self.round,
            "best": best,
            "rule": asdict(self.rule),
            "nodes": [asdict(node) for node in self.nodes.values()],
        }

    def _put(self, node: Node) -> Node:
        self.nodes[node.id] = node
        return node


def world_model_from_json(data: Mapping[str, Any]) -> WorldModel:
    """The world model that ``WorldModel.to_json`` described.

    Raises:
        DataMalformed: a key is missing or unknown.
    """
    try:
        nodes = [_node_from(item) for item in data["nodes"]]
        return WorldModel(SelectionRule(**data["rule"]), {node.id: node for node in nodes}, int(data["round"]))
    except (KeyError, TypeError) as exc:
        raise DataMalformed(f"not a world model: {exc!r}") from exc


def _node_from(item: Mapping[str, Any]) -> Node:
    action, belief = item["action"], item["belief"]
    rest = {key: value for key, value in item.items() if key not in {"action", "belief", "attempts", "notes"}}
    return Node(
        action=Action(action["title"], tuple(action["concepts"]), dict(action["changes"]), action["rationale"]),
        belief=Belief(belief["difficulty"], Impacts(**belief["impacts"]), belief["rating"], belief["confidence"]),
        attempts=tuple(Attempt(**attempt) for attempt in item["attempts"]),
        notes=tuple(item["notes"]),
        **rest,
    )
