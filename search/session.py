"""Starting and resuming searches: the configuration of a run, and the crew that serves it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kgraph.graph import KnowledgeGraph
from kgraph.model import Constraint, Observation
from kx.errors import RunCorrupt, UnknownName
from kx.paths import Home
from retrieval.context import build_context, render_context
from retrieval.ranking import Retriever
from search.artifacts import render, write_best
from search.authors.block_author import BlockAuthor
from search.backends import BACKENDS, Chip, open_backend
from search.engine import Budget, Crew, Engine, SearchResult
from search.evaluation.pool import EvaluationSetting, WorkerPool
from search.evaluation.preflight import preflight
from search.outcome import Scored
from search.planners.graph_planner import GraphPlanner, Knowledge, evidence_shares, priors_from
from search.program import Program
from search.run_store import Run, create_run, hold, open_run
from search.task import Task, load_task
from search.world_model import Node, WorldModel

HARD_LIMITS = ("threads-per-threadgroup", "threadgroup-memory-bytes", "simd-width", "buffer-arguments")
CONTEXT_BUDGET_TOKENS = 3000


@dataclass(frozen=True)
class SearchOptions:
    """What the user chooses.

    Attributes:
        kernel, chip, backend: names; budget: when to stop; seed: of all random draws.
        limit_s: wall-clock limit per evaluation; workers: evaluations at once.
        compiler: command of the C++ compiler, None for the one from pip.
    """

    kernel: str
    chip: str = "m1-max"
    backend: str = "metalsim"
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    limit_s: float = 120.0
    compiler: tuple[str, ...] | None = None


Watch = Callable[[str, dict[str, Any]], None]


def require(home: Home, graph: KnowledgeGraph, options: SearchOptions) -> tuple[Task, Chip]:
    """The task and the chip that ``options`` name, once it is sure that the back end can run here.

    Raises:
        UnknownName: kernel, chip or back end.
        EnvironmentLacking: the back end can't run here.
    """
    task = load_task(options.kernel)
    chip = chip_for(graph, options.chip)
    open_backend(options.backend, chip, home.cache, options.compiler).require()
    return task, chip


def start_search(
    home: Home, graph: KnowledgeGraph, retriever: Retriever | None, options: SearchOptions, watch: Watch
) -> tuple[Run, SearchResult]:
    """Create a run and search to its end.

    Raises:
        UnknownName: kernel, chip or back end; nothing is written.
        EnvironmentLacking: the back end can't run here.
    """
    task, chip = require(home, graph, options)
    knowledge = knowledge_for(graph, task, options)
    configuration = {
        "task": task.name,
        "chip": options.chip,
        "backend": options.backend,
        "budget": asdict(options.budget),
        "seed": options.seed,
        "limit_s": options.limit_s,
        "compiler": list(options.compiler) if options.compiler else None,
        "chip_quantities": dict(chip.quantities),
        "evidence": dict(knowledge.evidence),
        "priors": {slug: list(value) for slug, value in knowledge.priors.items()},
        "versions": versions(),
    }
    run = create_run(home, configuration)
    watch("started", {"run": run.id})
    return run, _search(home, graph, retriever, run, watch)


def resume_search(
    home: Home, graph: KnowledgeGraph, retriever: Retriever | None, identity: str, watch: Watch
) -> tuple[Run, SearchResult]:
    """Go on with a run; outcomes in its log are not evaluated again.

    Raises:
        UnknownName, RunCorrupt: see ``open_run``.
    """
    run = open_run(home, identity)
    watch("started", {"run": run.id})
    return run, _search(home, graph, retriever, run, watch)


def _search(home: Home, graph: KnowledgeGraph, retriever: Retriever | None, run: Run, watch: Watch) -> SearchResult:
    options = options_of(run)
    task, chip = require(home, graph, options)
    knowledge = Knowledge(
        concepts={concept.slug: concept for concept in graph.concepts()},
        evidence=dict(run.configuration["evidence"]),
        priors={slug: (int(n), float(mean)) for slug, (n, mean) in run.configuration["priors"].items()},
    )
    constraints = graph.constraints(graph.scopes_of(options.chip))
    setting = EvaluationSetting(
        task.name, options.backend, chip, home.cache, options.compiler, options.limit_s, options.budget.batch
    )
    author = BlockAuthor(task)
    with hold(run), WorkerPool(setting) as pool:
        crew = Crew(
            planner=GraphPlanner(author, task.kernel_class, knowledge),
            author=author,
            evaluator=pool,
            preflight=lambda program: preflight(program, task, constraints),
            prompt=PromptWriter(graph, retriever, task, options.chip),
            watch=watch,
        )
        result = Engine(task, run, crew, options.budget, options.seed).search()
        write_best(run, task, {"program": result.best, "outcome": result.outcome, "score": result.score})
        record_observations(graph, run, result)
    return result


@dataclass
class PromptWriter:
    """Renders the prompt of an action from what the graph knows about it."""

    graph: KnowledgeGraph
    retriever: Retriever | None
    task: Task
    chip: str

    def __call__(self, model: WorldModel, node: Node, program: Program, outcome: Scored) -> str:
        """The prompt for ``node``, whose parent's program and outcome are given."""
        context = build_context(
            self.graph,
            self.retriever,
            concepts=node.action.concepts,
            kernel_class=self.task.kernel_class,
            chip=self.chip,
            task=self.task.name,
            text=node.action.title,
        )
        return render(
            "action.md.j2",
            task=self.task,
            chip=self.graph.chip(self.chip).label,
            node=node,
            path=model.path(node.parent or node.id),
            program=program,
            parent_outcome=outcome,
            context=render_context(context, CONTEXT_BUDGET_TOKENS),
        )


def options_of(run: Run) -> SearchOptions:
    """The options that a run was started with.

    Raises:
        RunCorrupt: a key is missing or of the wrong kind.
    """
    data = run.configuration
    try:
        return SearchOptions(
            kernel=data["task"],
            chip=data["chip"],
            backend=data["backend"],
            budget=Budget(**data["budget"]),
            seed=int(data["seed"]),
            limit_s=float(data["limit_s"]),
            compiler=tuple(data["compiler"]) if data["compiler"] else None,
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise RunCorrupt(f"run {run.id}: run.json misses or misstates {exc}", "start a new run") from exc


def chip_for(graph: KnowledgeGraph, slug: str) -> Chip:
    """The chip's figures and its hard limits, as plain numbers.

    Raises:
        UnknownName: the graph has no such chip, or it is none that runs Metal.
    """
    profile = graph.chip(slug)
    limits: dict[str, float] = {}
    for constraint in graph.constraints(graph.scopes_of(slug)):
        if constraint.quantity in HARD_LIMITS:
            limits[constraint.quantity] = tighter(constraint, limits.get(constraint.quantity))
    missing = [name for name in HARD_LIMITS if name not in limits]
    if missing:
        metal = [item.slug for item in graph.chips() if "metal" in graph.scopes_of(item.slug)]
        raise UnknownName(f"chip {slug} has no limit on {missing[0]}: it runs no Metal", f"chips: {', '.join(metal)}")
    return Chip(slug, {name: item.value for name, item in profile.quantities.items()}, limits)


def tighter(constraint: Constraint, known: float | None) -> float:
    """The value to keep when several scopes constrain one quantity: for an upper bound, the smaller one."""
    if known is None:
        return constraint.value
    return min(known, constraint.value) if constraint.comparison in {"<=", "<"} else constraint.value


def knowledge_for(graph: KnowledgeGraph, task: Task, options: SearchOptions) -> Knowledge:
    """What the planner takes from the graph for a run: evidence and earlier observations, fixed from here on."""
    return Knowledge(
        concepts={concept.slug: concept for concept in graph.concepts()},
        evidence=evidence_shares(graph.evidence()),
        priors=priors_from(graph.observations(task=task.name, chip=options.chip, backend=options.backend)),
    )


def record_observations(graph: KnowledgeGraph, run: Run, result: SearchResult) -> None:
    """Keep what each tried action gained over its parent, or how it failed, for later runs."""
    data: Mapping[str, Any] = run.configuration
    for node in result.model.nodes.values():
        if node.parent is None or node.status not in {"closed", "failed"} or not node.action.concepts:
            continue
        parent = result.model.nodes[node.parent].score or 1.0
        ratio = (node.score or 0.0) / parent
        graph.add_observation(
            Observation(
                run=run.id, node=node.id, concept=node.action.concepts[0], task=data["task"], chip=data["chip"],
                backend=data["backend"], timing=result.outcome.timing,
                outcome="Scored" if node.score else node.attempts[0].outcome,
                ratio=ratio, ratio_low=ratio, ratio_high=ratio,
            )
        )  # fmt: skip


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    found = {"python": sys.version.split()[0], "machine": f"{platform.system()} {platform.machine()}"}
    for package in ("kx", "numpy", "ziglang", "rdflib", "chromadb", "sentence-transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def backend_names() -> list[str]:
    """Names of the back ends."""
    return sorted(BACKENDS)
