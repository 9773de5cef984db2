"""kx search and kx resume: from a naive kernel to a fast one."""

from __future__ import annotations

from typing import Any

import click

from kx.cli.model_options import model_options, read_model_options
from kx.cli.output import json_option, note, print_json, print_table, print_text
from kx.paths import Home


@click.command()
@click.option("--kernel", required=True, help="Task to search, such as mamba_scan.")
@click.option("--chip", default="m1-max", show_default=True, help="Chip profile of the graph to optimize for.")
@click.option("--backend", default="metalsim", show_default=True, help="What runs and times the candidates.")
@click.option("--budget", default=40, show_default=True, type=click.IntRange(1), help="Most programs to evaluate.")
@click.option("--attempts", default=4, show_default=True, type=click.IntRange(1), help="Most programs per action.")
@click.option("--patience", default=10, show_default=True, type=click.IntRange(1), help="Rounds without a gain.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 256), help="Evaluations at once.")
@click.option("--ray", default="", help="Ray cluster that evaluates: an address, auto, or local to start one here.")
@click.option("--limit", "limit_s", default=120.0, show_default=True, help="Seconds that one evaluation may take.")
@click.option("--seed", default=0, show_default=True, help="Seed of inputs and of random choices.")
@model_options
@json_option
def search(as_json: bool, kernel: str, chip: str, backend: str, seed: int, limit_s: float, **others: Any) -> None:
    """Search for a fast kernel, starting from a naive one.

    Each action of the world model is rated from the knowledge graph and from the measured bottleneck, written
    by composing building blocks, checked for races, bounds and against a float64 oracle, then timed. Needs no
    key, no GPU and no Mac: the metalsim back end estimates times for the chip's profile.

    With --model, language models plan and write instead (OPENAI_API_KEY holds the key); with --by-hand, you do.
    """
    from kgraph.graph import KnowledgeGraph
    from kx.cli.knowledge import open_index
    from retrieval.ranking import Retriever
    from search.engine import Budget
    from search.session import SearchOptions, new_run, require

    home = Home.from_environment()
    models = read_model_options(others)
    # An author that reads what went wrong writes one program after another; blocks come in pairs.
    batch = 1 if models else min(2, others["workers"])
    budget = Budget(
        evaluations=others["budget"],
        attempts_per_node=others["attempts"],
        batch=batch,
        nodes=max(1, others["workers"] // batch),
        patience=others["patience"],
    )
    options = SearchOptions(kernel, chip, backend, budget, seed, limit_s, models=models, ray=others["ray"])
    graph = KnowledgeGraph.open(home)
    require(home, graph, options)
    run = new_run(home, graph, options)
    with open_index(home, graph) as index:
        _work(home, graph, Retriever(graph, index), run, as_json)


@click.command()
@click.argument("run", default="latest")
@json_option
def resume(run: str, as_json: bool) -> None:
    """Go on with a search that was stopped or killed.

    RUN is a run's name, the latest by default. No evaluation in its log is repeated. A finished run is only
    shown again.
    """
    continue_run(Home.from_environment(), run, as_json)


def continue_run(home: Home, identity: str, as_json: bool) -> None:
    """Go on with a run and report how it ended, or what it waits for."""
    from kgraph.graph import KnowledgeGraph
    from kx.cli.knowledge import open_index
    from retrieval.ranking import Retriever
    from search.run_store import open_run
    from search.session import options_of, require

    run = open_run(home, identity)
    graph = KnowledgeGraph.open(home)
    require(home, graph, options_of(run))
    with open_index(home, graph) as index:
        _work(home, graph, Retriever(graph, index), run, as_json)


def _work(home: Home, graph: Any, retriever: Any, run: Any, as_json: bool) -> None:
    from kx.cli.by_hand import awaited
    from search.models import ReplyAwaited
    from search.session import work_on

    try:
        result = work_on(home, graph, retriever, run, Watcher())
    except ReplyAwaited as exc:
        awaited(run, exc.question, as_json)
    else:
        _report(run, result, as_json)


class Watcher:
    """Tells on stderr what the search does, one line per evaluation."""

    def __init__(self) -> None:
        self._seed: Any = None
        self._titles: dict[str, str] = {"n0": "naive seed"}

    def __call__(self, kind: str, fields: dict[str, Any]) -> None:
        """Receive an event of the engine."""
        if kind == "started":
            note(f"run {fields['run']}")
        elif kind == "selected":
            self._titles[fields["node"]] = fields["title"]
            note(f"{fields['node']}: {fields['title']} (priority {fields['priority']})")
        elif kind in {"evaluated", "replayed"}:
            again = " (from the log)" if kind == "replayed" else ""
            note(f"  [{fields['evaluations']}] {fields['program'].digest} {self._verdict(fields['outcome'])}{again}")
        elif kind == "notice":
            note(f"  {fields['text']}")
        elif kind == "closed":
            score = f"{fields['score']:.2f}x" if fields["score"] else fields["status"]
            note(f"  {fields['node']} closed: {score}; best is {fields['best']}")

    def _verdict(self, outcome: Any) -> str:
        from search.outcome import Scored, describe, score_against

        if not isinstance(outcome, Scored):
            return describe(outcome)
        if self._seed is None:
            self._seed = outcome
        return f"{score_against(outcome, self._seed):.2f}x the seed, {outcome.timing}"


def _report(run: Any, result: Any, as_json: bool) -> None:
    payload = result_payload(run, result)
    if as_json:
        print_json(payload)
        return
    best = payload["best"]
    print_text(f"{best['score']:.2f}x the naive seed ({best['timing']}, {payload['chip']}), program {best['program']}")
    rows = [
        (item["label"], f"{item['seed_time_us']:.1f}", f"{item['time_us']:.1f}", f"{item['speedup_over_seed']:.2f}x",
         item["bound_by"])
        for item in best["workloads"]
    ]  # fmt: skip
    print_table(["workload", "seed us", "best us", "speedup", "bound by"], rows, title=f"{best['timing']} times")
    print_text("how it was found: " + " > ".join(best["path"]))
    print_text("concepts: " + (", ".join(best["concepts"]) or "none"))
    print_text(
        f"checked on {best['checked_cases']} small cases; largest error {best['largest_error']:.2g} of tolerance"
    )
    print_text(f"{payload['evaluations']} evaluations; stopped because {payload['stopped_because']}")
    print_text(f"run folder: {run.folder} (best.metal, best.py); tree: kx show {run.id}")


def result_payload(run: Any, result: Any) -> dict[str, Any]:
    """The object that ``kx search --json`` prints."""
    outcome, seed = result.outcome, result.seed
    workloads = [
        {
            "label": item.label,
            "time_us": item.time_us,
            "seed_time_us": reference.time_us,
            "speedup_over_seed": reference.time_us / item.time_us,
            "bound_by": item.bound_by,
            "parts_us": dict(item.parts_us),
        }
        for item, reference in zip(outcome.workloads, seed.workloads, strict=True)
    ]
    node = result.model.best()
    return {
        "run": run.id,
        "kernel": run.configuration["task"],
        "backend": run.configuration["backend"],
        "chip": run.configuration["chip"],
        "evaluations": result.evaluations,
        "repeated_from_log": result.repeated,
        "best": {
            "program": result.best.digest,
            "score": result.score,
            "timing": outcome.timing,
            "concepts": list(result.best.concepts),
            "choices": dict(result.best.choices),
            "path": [step.action.title for step in result.model.path(node.id)],
            "workloads": workloads,
            "checked_cases": len(outcome.checked_cases),
            "properties": list(outcome.properties),
            "largest_error": outcome.largest_error,
        },
        "stopped_because": result.stopped_because,
    }
