"""A language model, or a person, as the planner: one reply edits the world model by insert, update, prune, split."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
from pydantic import Field

from kgraph.model import Impacts
from search.authors.program_reply import ReplyFlawed, flaws_of, json_from_reply
from search.models import Model, Question, Reply
from search.outcome import Scored
from search.program import Program
from search.questions import mending_question
from search.world_model import ROOT_ID, Action, Belief, Node, WorldModel

PlanPrompt = Callable[[WorldModel, Node, "Program | None", "Scored | None"], str]
"""(tree, node just tried, its best program, its outcome) -> the whole question."""

Text = Annotated[str, Field(min_length=1, max_length=2000)]


class _Impacts(pydantic.BaseModel, extra="forbid"):
    memory_bandwidth: int = Field(ge=0, le=10)
    register_pressure: int = Field(ge=0, le=10)
    compute_hw_fit: int = Field(ge=0, le=10)


class _Proposal(pydantic.BaseModel, extra="forbid"):
    title: Text
    concepts: list[str]
    rationale: Text
    difficulty: int = Field(ge=1, le=5)
    impacts: _Impacts
    rating: float = Field(ge=0, le=10)
    confidence: float = Field(ge=0, le=1)

    def action(self) -> Action:
        return Action(self.title, tuple(self.concepts), {}, self.rationale)

    def belief(self) -> Belief:
        return Belief(self.difficulty, Impacts(**self.impacts.model_dump()), self.rating, self.confidence)


class _Insertion(_Proposal):
    parent: str


class _Update(pydantic.BaseModel, extra="forbid"):
    node: str
    rating: float = Field(ge=0, le=10)
    confidence: float = Field(ge=0, le=1)
    note: Text


class _Pruning(pydantic.BaseModel, extra="forbid"):
    node: str
    reason: Text


class _Split(pydantic.BaseModel, extra="forbid"):
    node: str
    into: list[_Proposal] = Field(min_length=2, max_length=4)


class _Plan(pydantic.BaseModel, extra="forbid"):
    insert: list[_Insertion] = []
    update: list[_Update] = []
    prune: list[_Pruning] = []
    split: list[_Split] = []


@dataclass
class ModelPlanner:
    """Implements ``search.planners.Planner`` over a model.

    Attributes:
        model: asked for plans; prompt: writes the question.
        concepts: slugs that an action may name.
        width: most new actions of one reply.
        mending_rounds: how often a plan that does not fit is sent back.
        failures_to_stop: plans in a row that never fitted after which no more are asked for.
        empty_to_stop: plans in a row that left no open node after which no more are asked for.
        trouble: why there is no plan; empty when all is well.
    """

    model: Model
    prompt: PlanPrompt
    concepts: Collection[str]
    width: int = 3
    mending_rounds: int = 2
    failures_to_stop: int = 3
    empty_to_stop: int = 2
    trouble: str = ""
    _failed_in_a_row: int = field(default=0)
    _empty_in_a_row: int = field(default=0)

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    def propose(self, model: WorldModel, node: Node, program: Program, outcome: Scored) -> list[Node]:
        """Ask for a plan that goes on from a scored node; returns the new nodes."""
        return self._plan(model, node, program, outcome)

    def evolve(self, model: WorldModel, tried: Node, program: Program | None, outcome: Scored | None) -> None:
        """Ask for an edit of the tree after ``tried``, whether it was scored or failed."""
        self._plan(model, tried, program, outcome)

    def _plan(self, model: WorldModel, node: Node, program: Program | None, outcome: Scored | None) -> list[Node]:
        if self._failed_in_a_row >= self.failures_to_stop or self._empty_in_a_row >= self.empty_to_stop:
            return []
        question = Question("plan", node.id, self.prompt(model, node, program, outcome))
        flaws: list[str] = []
        for _ in range(self.mending_rounds + 1):
            reply = self.model.ask(question)
            try:
                plan = self._read(reply, model)
            except ReplyFlawed as exc:
                flaws = exc.flaws
                self.model.learn(reply, 0.0)
                question = mending_question(question, reply, flaws)
                continue
            self.model.learn(reply, 0.5)
            self._failed_in_a_row = 0
            added = self._apply(plan, model)
            self._empty_in_a_row = 0 if model.open_nodes() else self._empty_in_a_row + 1
            is_done = self._empty_in_a_row >= self.empty_to_stop
            self.trouble = f"{self.model.name} has nothing more to propose" if is_done else ""
            return added
        self._failed_in_a_row += 1
        self.trouble = f"{self.model.name} gave no plan that fits: {'; '.join(flaws)}"
        return []

    def _read(self, reply: Reply, model: WorldModel) -> _Plan:
        if reply.flaw:
            raise ReplyFlawed([reply.flaw])
        data: Any = json_from_reply(reply.text)
        try:
            plan = _Plan.model_validate(data)
        except pydantic.ValidationError as exc:
            raise ReplyFlawed(flaws_of(exc)) from exc
        flaws = self._flaws_of_nodes(plan, model) + self._flaws_of_concepts(plan) + self._flaws_of_titles(plan, model)
        if len(plan.insert) > self.width:
            flaws.append(f"insert has {len(plan.insert)} actions, at most {self.width} are allowed")
        if flaws:
            raise ReplyFlawed(flaws)
        return plan

    def _flaws_of_nodes(self, plan: _Plan, model: WorldModel) -> list[str]:
        flaws = []
        gone = [*(item.node for item in plan.prune), *(item.node for item in plan.split)]
        for name in [*(item.node for item in plan.update), *gone]:
            node = model.nodes.get(name)
            if node is None:
                flaws.append(f"there is no node {name!r}")
            elif node.status != "open":
                flaws.append(f"{name} is {node.status}: only open nodes can be updated, pruned or split")
        flaws += [f"{name} is pruned or split twice" for name in sorted({n for n in gone if gone.count(n) > 1})]
        for item in plan.insert:
            parent = model.nodes.get(item.parent)
            if parent is None:
                flaws.append(f"insert: there is no node {item.parent!r}")
            elif parent.status != "closed":
                flaws.append(f"insert: {item.parent} is {parent.status}; new actions go below closed nodes")
        return flaws

    def _flaws_of_concepts(self, plan: _Plan) -> list[str]:
        proposals: list[_Proposal] = [*plan.insert, *(action for split in plan.split for action in split.into)]
        flaws = []
        for slug in dict.fromkeys(slug for proposal in proposals for slug in proposal.concepts):
            if slug not in self.concepts:
                near = difflib.get_close_matches(slug, sorted(self.concepts), n=2)
                flaws.append(f"no concept {slug!r}" + (f"; did you mean {' or '.join(near)}" if near else ""))
        return flaws

    def _flaws_of_titles(self, plan: _Plan, model: WorldModel) -> list[str]:
        wanted = [(item.parent, item.title) for item in plan.insert]
        wanted += [
            (model.nodes[split.node].parent or ROOT_ID, action.title)
            for split in plan.split
            if split.node in model.nodes
            for action in split.into
        ]
        flaws = []
        seen: set[tuple[str, str]] = set()
        for parent, title in wanted:
            key = (parent, title.casefold())
            if key in seen or any(child.action.title.casefold() == key[1] for child in model.children(parent)):
                flaws.append(f"{parent} already has a child titled {title!r}")
            seen.add(key)
        return flaws

    def _apply(self, plan: _Plan, model: WorldModel) -> list[Node]:
        added: list[Node] = []
        gone = {*(item.node for item in plan.prune), *(item.node for item in plan.split)}
        for item in plan.update:
            if item.node not in gone:
                model.update(item.node, rating=item.rating, confidence=item.confidence, note=item.note)
        for pruning in plan.prune:
            model.prune(pruning.node, pruning.reason)
        for split in plan.split:
            added += model.split(split.node, [(action.action(), action.belief()) for action in split.into])
        added += [model.insert(item.parent, item.action(), item.belief()) for item in plan.insert]
        return added
