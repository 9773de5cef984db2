"""Opening what a contest needs: workers, remembered outcomes, the graph's limits and knowledge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kgraph.graph import KnowledgeGraph
from kx.paths import Home
from search.comparison.contest import Field
from search.comparison.remembering import RememberingEvaluator
from search.evaluation.pool import EvaluationSetting, WorkerPool
from search.evaluation.preflight import preflight
from search.outcome import Timing
from search.session import SearchOptions, knowledge_for, require, versions


@dataclass(frozen=True)
class Arena(Field):
    """A ``Field`` whose workers run; ``timing`` says whether times are estimates or measurements."""

    timing: Timing = "estimated"


@contextmanager
def open_field(home: Home, graph: KnowledgeGraph, options: SearchOptions) -> Iterator[Arena]:
    """The field of a contest, with its workers, for the length of the block.

    Raises:
        UnknownName, EnvironmentLacking: as ``search.session.require``.
    """
    from search.backends import open_backend

    task, chip = require(home, graph, options)
    timing = open_backend(options.backend, chip, home.cache, options.compiler).timing
    constraints = graph.constraints(graph.scopes_of(options.chip))
    setting = EvaluationSetting(
        task.name, options.backend, chip, home.cache, options.compiler, options.limit_s, options.workers
    )
    key = json.dumps([task.name, options.backend, chip.slug, dict(chip.quantities), dict(chip.limits), versions()])
    with WorkerPool(setting) as pool:
        yield Arena(
            task=task,
            evaluator=RememberingEvaluator(pool, home.cache / "outcomes", key),
            preflight=lambda program: preflight(program, task, constraints),
            knowledge=replace(knowledge_for(graph, task, options), priors={}),
            evaluations=options.budget.evaluations,
            batch=options.workers,
            timing=timing,
        )
