"""Starting and resuming searches: the configuration of a run, and the crew that serves it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from kgraph.graph import KnowledgeGraph
from kgraph.model import Constraint, Observation
from kx.errors import RunCorrupt, UnknownName
from kx.paths import Home
from retrieval.ranking import Retriever
from search.artifacts import write_best
from search.backends import BACKENDS, Chip, open_backend
from search.crews import ModelOptions, PromptWriter, choose_pair, model_options_from
from search.engine import Budget, Crew, Engine, SearchResult
from search.evaluation.pool import EvaluationSetting, WorkerPool
from search.evaluation.preflight import preflight
from search.outcome import Scored
from search.planners.concept_edits import ConceptEdits
from search.planners.graph_planner import GraphPlanner, Knowledge, evidence_shares, priors_from
from search.refining import NO_PROGRAM
from search.run_store import Run, create_run, hold
from search.task import Task, load_task
from search.world_model import ROOT_ID, WorldModel

if TYPE_CHECKING:
    from search.evaluation.ray_pool import RayPool

HARD_LIMITS = ("threads-per-threadgroup", "threadgroup-memory-bytes", "simd-width", "buffer-arguments")


@dataclass(frozen=True)
class SearchOptions:
    """What the user chooses.

    Attributes:
        kernel, chip, backend: names; budget: when to stop; seed: of all random draws.
        limit_s: wall-clock limit per evaluation; workers: evaluations at once.
        compiler: command of the C++ compiler, None for the one from pip.
        models: who plans and writes; None for the graph and the building blocks.
        ray: address of the Ray cluster that evaluates; empty for this machine's processes.
    """

    kernel: str
    chip: str = "m1-max"
    backend: str = "metalsim"
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    limit_s: float = 120.0
    compiler: tuple[str, ...] | None = None
    models: ModelOptions | None = None
    ray: str = ""

    @property
    def workers(self) -> int:
        """Evaluations at once."""
        return self.budget.batch * self.budget.nodes


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
    if options.models is not None:
        options.models.require()
    return task, chip


def new_run(home: Home, graph: KnowledgeGraph, options: SearchOptions) -> Run:
    """Create a run's folder, with all that its decisions depend on written down.

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
        "ray": options.ray,
        "models": options.models.to_json() if options.models else None,
        "chip_quantities": dict(chip.quantities),
        "evidence": dict(knowledge.evidence),
        "priors": {slug: list(value) for slug, value in knowledge.priors.items()},
        "versions": versions(),
    }
    return create_run(home, configuration)


def work_on(home: Home, graph: KnowledgeGraph, retriever: Retriever | None, run: Run, watch: Watch) -> SearchResult:
    """Search to the end, from wherever the run stands; outcomes and replies in its log are not asked for again.

    Raises:
        RunCorrupt: its files can't be trusted.
        ReplyAwaited: it is driven by hand, and a question waits.
        EndpointFailed: no model answers; the run can be resumed.
    """
    watch("started", {"run": run.id})
    options = options_of(run)
    task, chip = require(home, graph, options)
    knowledge = knowledge_of(graph, run)
    constraints = graph.constraints(graph.scopes_of(options.chip))
    setting = EvaluationSetting(
        task.name, options.backend, chip, home.cache, options.compiler, options.limit_s, options.workers
    )
    prompts = PromptWriter(graph, retriever, task, options.chip)
    pair = choose_pair(run, task, knowledge, prompts, options.models, lambda text: watch("notice", {"text": text}))
    with hold(run), open_pool(setting, options.ray) as pool:
        crew = Crew(
            planner=pair.planner,
            author=pair.author,
            evaluator=pool,
            preflight=lambda program: preflight(program, task, constraints),
            prompt=prompts.action,
            watch=watch,
        )
        result = Engine(task, run, crew, options.budget, options.seed).search()
        write_best(run, task, {"program": result.best, "outcome": result.outcome, "score": result.score})
        record_observations(graph, run, result)
    return result


def knowledge_of(graph: KnowledgeGraph, run: Run) -> Knowledge:
    """What the planner takes from the graph, as it stood when the run began.

    Raises:
        RunCorrupt: run.json does not hold it.
    """
    try:
        return Knowledge(
            concepts={concept.slug: concept for concept in graph.concepts()},
            evidence=dict(run.configuration["evidence"]),
            priors={slug: (int(n), float(mean)) for slug, (n, mean) in run.configuration["priors"].items()},
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise RunCorrupt(f"run {run.id}: run.json misses or misstates {exc}", "start a new run") from exc


def prompt_for(
    graph: KnowledgeGraph, retriever: Retriever | None, run: Run, model: WorldModel, node: str | None
) -> str:
    """The prompt that an open node would get now; for None, the planner's question below the best node.

    Raises:
        RunCorrupt: the run's programs or outcomes can't be read.
    """
    options = options_of(run)
    task = load_task(options.kernel)
    prompts = PromptWriter(graph, retriever, task, options.chip)
    above = model.best() if node is None else model.nodes[model.nodes[node].parent or ROOT_ID]
    program, outcome = run.program(above.program), run.outcome(above.program)
    if not isinstance(outcome, Scored):
        raise RunCorrupt(f"run {run.id}: node {above.id} has no score", "start a new run")
    if node is not None:
        return prompts.action(model, model.nodes[node], program, outcome)
    ratings = GraphPlanner(
        ConceptEdits(tuple(graph.concepts()), task.kernel_class), task.kernel_class, knowledge_of(graph, run)
    )
    return prompts.plan(model, above, program, outcome, ratings)


def open_pool(setting: EvaluationSetting, ray: str) -> WorkerPool | RayPool:
    """Who evaluates: processes of this machine, or those of a Ray cluster.

    Raises:
        EnvironmentLacking: ray is not installed, or there is no such cluster.
    """
    if not ray:
        return WorkerPool(setting)
    from search.evaluation.ray_pool import RayPool

    return RayPool(setting, ray)


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
            models=model_options_from(data["models"]) if data.get("models") else None,
            ray=str(data.get("ray", "")),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise RunCorrupt(f"run {run.id}: run.json misses or misstates {exc}", "start a new run") from exc


def chip_for(graph: KnowledgeGraph, slug: str) -> Chip:
    """The chip's figures and its hard limits, as plain numbers.

    Raises:
        UnknownName: the graph has no such chip, or it is none that runs Metal.
    """
    profile = graph.target_chip(slug)
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
        if all(attempt.outcome == NO_PROGRAM for attempt in node.attempts):
            continue  # says nothing about the concept
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
