"""Who plans and who writes in a run: the graph and building blocks, or models, or a person."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from kgraph.graph import KnowledgeGraph
from kx.errors import EnvironmentLacking, InputError
from retrieval.context import build_context, render_context
from retrieval.ranking import Retriever
from search.artifacts import render
from search.authors import Author
from search.authors.block_author import BlockAuthor
from search.authors.model_author import ModelAuthor
from search.models import Model
from search.models.endpoint import Endpoint
from search.models.mixture import Choice, Mixture
from search.models.reply_log import Correspondent, Logged, ReplyLog
from search.models.spending import Allowance, Metered, Price
from search.outcome import Scored
from search.planners import Planner
from search.planners.concept_edits import ConceptEdits
from search.planners.graph_planner import GraphPlanner, Knowledge, bottleneck_shares
from search.planners.model_planner import ModelPlanner
from search.program import Program
from search.run_store import Run
from search.task import Task
from search.world_model import Node, WorldModel

KEY_VARIABLE = "OPENAI_API_KEY"
CONTEXT_BUDGET_TOKENS = 3000
ENDLESS = 1_000_000
"""Mending rounds of a person, who may try as often as they like."""
PlannerKind = Literal["model", "graph"]


@dataclass(frozen=True)
class ModelOptions:
    """Who writes programs instead of the building blocks.

    Attributes:
        weights: by model; empty where a person answers.
        base_url: of the endpoint; None for OpenAI's own.
        choice: how one of several models is chosen; temperature: None leaves it to the server.
        planner: whether the model plans too, or the graph does.
        allowance, prices: see ``search.models.spending``.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    base_url: str | None = None
    choice: Choice = "weights"
    temperature: float | None = None
    planner: PlannerKind = "model"
    allowance: Allowance = field(default_factory=Allowance)
    prices: Mapping[str, Price] = field(default_factory=dict)

    @property
    def by_hand(self) -> bool:
        """Whether a person answers."""
        return not self.weights

    def require(self) -> None:
        """Make sure that the endpoint can be asked.

        Raises:
            InputError: the URL is none, or holds a password.
            EnvironmentLacking: no key for an endpoint that needs one.
        """
        if self.by_hand:
            return
        if self.base_url is not None:
            parts = urlsplit(self.base_url)
            if parts.scheme not in {"http", "https"} or not parts.netloc:
                raise InputError(f"{self.base_url!r} is no URL of an endpoint", "such as http://localhost:8000/v1")
            if parts.username or parts.password:
                raise InputError("the endpoint's URL holds a user or password", f"put the key into {KEY_VARIABLE}")
        elif not os.environ.get(KEY_VARIABLE):
            raise EnvironmentLacking(
                "there is no key for the models' endpoint",
                f"set {KEY_VARIABLE}, or name a server of your own with --base-url",
            )

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form that ``model_options_from`` reads back; holds no key."""
        return asdict(self)


def model_options_from(data: Mapping[str, Any]) -> ModelOptions:
    """The options that ``ModelOptions.to_json`` described.

    Raises:
        KeyError, TypeError: a key is missing or unknown.
    """
    prices = {name: Price(**value) for name, value in data["prices"].items()}
    return ModelOptions(**{**data, "allowance": Allowance(**data["allowance"]), "prices": prices})


@dataclass
class PromptWriter:
    """Renders prompts from what the graph knows.

    Attributes:
        budget_tokens: of the retrieved context.
    """

    graph: KnowledgeGraph
    retriever: Retriever | None
    task: Task
    chip: str
    budget_tokens: int = CONTEXT_BUDGET_TOKENS

    def action(self, model: WorldModel, node: Node, program: Program, outcome: Scored) -> str:
        """The prompt for ``node``, whose parent's program and outcome are given."""
        return render(
            "action.md.j2",
            task=self.task,
            chip=self.graph.chip(self.chip).label,
            node=node,
            path=model.path(node.parent or node.id),
            program=program,
            parent_outcome=outcome,
            context=self._context(node.action.concepts, node.action.title),
        )

    def plan(
        self,
        model: WorldModel,
        tried: Node,
        program: Program | None,
        outcome: Scored | None,
        ratings: GraphPlanner,
    ) -> str:
        """The question for an edit of the tree after ``tried``.

        Args:
            ratings: says what the graph thinks of each concept, for where the time goes.
        """
        shares = bottleneck_shares(outcome) if outcome is not None else {}
        lines = []
        for concept in self.graph.concepts_for_class(self.task.kernel_class):
            belief, why = ratings.believe((concept.slug,), shares) if shares else (None, "")
            rating = f" rating {belief.rating:.1f} ({why})" if belief else ""
            lines.append((concept.slug, f"{concept.definition}{rating}", belief.rating if belief else 0.0))
        lines.sort(key=lambda line: (-line[2], line[0]))
        bottleneck = max(shares, key=lambda name: shares[name]) if shares else ""
        leading = tuple(slug for slug, _, _ in lines[:4])
        return render(
            "plan.md.j2",
            task=self.task,
            chip=self.graph.chip(self.chip).label,
            tree=model.walk(),
            tried=tried,
            program=program,
            outcome=outcome,
            concepts=[f"{slug}: {text}" for slug, text, _ in lines],
            context=self._context(leading, f"{self.task.title} bound by {bottleneck}" if bottleneck else ""),
            width=ratings.rule.width,
        )

    def _context(self, concepts: tuple[str, ...], text: str) -> str:
        context = build_context(
            self.graph,
            self.retriever,
            concepts=concepts,
            kernel_class=self.task.kernel_class,
            chip=self.chip,
            task=self.task.name,
            text=text,
        )
        return render_context(context, self.budget_tokens)


@dataclass(frozen=True)
class Pair:
    """A planner and an author that work together.

    Attributes:
        model: where one is asked: tells what was spent.
    """

    planner: Planner
    author: Author
    model: Metered | None = None


def choose_pair(
    run: Run,
    task: Task,
    knowledge: Knowledge,
    prompts: PromptWriter,
    options: ModelOptions | None,
    notice: Callable[[str], None],
) -> Pair:
    """The planner and the author of a run.

    Args:
        options: None for the graph and the building blocks.
        notice: told when an endpoint makes the search wait.
    """
    if options is None:
        blocks = BlockAuthor(task)
        return Pair(GraphPlanner(blocks, task.kernel_class, knowledge), blocks)
    model = open_model(run, options, int(run.configuration.get("seed", 0)), notice)
    rounds = ENDLESS if options.by_hand else 2
    author = ModelAuthor(model, task, rounds)
    by_graph = GraphPlanner(
        ConceptEdits(tuple(knowledge.concepts.values()), task.kernel_class), task.kernel_class, knowledge
    )
    if options.planner == "graph":
        return Pair(by_graph, author, model)
    planner = ModelPlanner(
        model,
        lambda tree, node, program, outcome: prompts.plan(tree, node, program, outcome, by_graph),
        frozenset(knowledge.concepts),
        by_graph.rule.width,
        rounds,
    )
    return Pair(planner, author, model)


def open_model(run: Run, options: ModelOptions, seed: int, notice: Callable[[str], None]) -> Metered:
    """The models of a run, its log before them and its allowance above."""
    key = os.environ.get(KEY_VARIABLE, "")
    log = ReplyLog(run, (key,))
    asked: Model
    if options.by_hand:
        asked = Correspondent(log)
    else:
        endpoints = [
            Endpoint(name, options.base_url, key, temperature=options.temperature, notice=notice)
            for name in sorted(options.weights)
        ]
        asked = endpoints[0] if len(endpoints) == 1 else Mixture(endpoints, options.weights, options.choice, seed)
    return Metered(Logged(asked, log), options.allowance, options.prices)
