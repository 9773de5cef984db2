"""kx ablate: what the graph is worth, against evolution without it and against peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kx.cli.output import json_option, note, print_json, print_table, print_text
from kx.errors import InputError, UnknownName
from kx.paths import Home

CONFIGURATIONS = ("naive", "evolution", "full")


@click.command()
@click.option("--kernel", required=True, help="Task to search, such as mamba_scan.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(1), help="Seeds per configuration.")
@click.option("--budget", default=40, show_default=True, type=click.IntRange(2), help="Programs per seed.")
@click.option(
    "--configurations", default=",".join(CONFIGURATIONS), show_default=True,
    help="Comma-separated: naive, evolution, full, and the peers random and tpe.",
)  # fmt: skip
@click.option("--target", type=click.FloatRange(1, min_open=True),
              help="Score whose evaluations are counted.  [default: within 5 % of the best found]")  # fmt: skip
@click.option("--chip", default="m1-max", show_default=True, help="Chip profile of the graph.")
@click.option("--backend", default="metalsim", show_default=True, help="What runs and times the candidates.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 256), help="Evaluations at once.")
@click.option("--limit", "limit_s", default=120.0, show_default=True, help="Seconds that one evaluation may take.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False),
              help="Folder for the curves.  [default: ablations/<kernel> in the data folder]")  # fmt: skip
@json_option
def ablate(as_json: bool, kernel: str, out: Path | None, target: float | None, **options: Any) -> None:
    """Compare the search with the graph to the same search without it.

    Every configuration gets the same programs to choose from, the same gates and the same number of
    evaluations. Outcomes are kept, so a stopped comparison goes on where it was, and more seeds cost new
    programs only. curves.json holds every curve; curves.png shows medians over seeds with 95 % intervals.
    """
    from kgraph.graph import KnowledgeGraph
    from search.comparison.arena import open_field
    from search.comparison.contest import NAMES, run_strategy, summarize, write_data
    from search.engine import Budget
    from search.session import SearchOptions

    names = [name.strip() for name in options["configurations"].split(",") if name.strip()]
    strangers = [name for name in names if name not in NAMES]
    if strangers or not names:
        raise UnknownName(f"no configuration is called {(strangers or [''])[0]!r}", f"known: {', '.join(NAMES)}")
    home = Home.from_environment()
    workers, evaluations = options["workers"], options["budget"]
    search_options = SearchOptions(
        kernel, options["chip"], options["backend"], Budget(evaluations=evaluations, batch=workers),
        limit_s=options["limit_s"],
    )  # fmt: skip
    curves = []
    with open_field(home, KnowledgeGraph.open(home), search_options) as field:
        for name in names:
            for seed in range(1 if name == "naive" else options["seeds"]):
                curve = run_strategy(name, seed, field)
                curves.append(curve)
                note(f"{name}, seed {seed}: {curve.best[-1]:.2f}x after {len(curve.best)} evaluations")
    best = max(curve.best[-1] for curve in curves)
    goal = target or max(0.95 * best, 1.0)
    summaries = summarize(curves, evaluations, goal)
    folder = out or home.root / "ablations" / kernel
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "name another with --out")
    about = {
        "kernel": kernel, "chip": options["chip"], "backend": options["backend"], "timing": field.timing,
        "evaluations": evaluations, "target": goal, "best": best,
    }  # fmt: skip
    write_data(folder / "curves.json", curves, summaries, about)
    picture = _draw(folder / "curves.png", summaries, about)
    if as_json:
        rows = [{"configuration": item.strategy, "seeds": item.seeds, "median": item.median[-1], "low": item.low[-1],
                 "high": item.high[-1], "evaluations_to_target": item.reached} for item in summaries]  # fmt: skip
        print_json({**about, "summaries": rows, "data": str(folder / "curves.json"), "picture": picture})
        return
    table = [
        (item.strategy, item.seeds, f"{item.median[-1]:.2f}x", f"{item.low[-1]:.2f} to {item.high[-1]:.2f}",
         "not reached" if item.reached is None else f"{item.reached:g}")
        for item in summaries
    ]  # fmt: skip
    title = f"{kernel} on {options['chip']}, {evaluations} evaluations, {field.timing} times"
    print_table(["configuration", "seeds", "median", "95 % interval", f"evaluations to {goal:.2f}x"], table, title)
    print_text(f"data: {folder / 'curves.json'}" + (f"; picture: {picture}" if picture else ""))


def _draw(path: Path, summaries: Any, about: dict[str, Any]) -> str | None:
    """The picture's path, None where matplotlib is not installed: the data is what counts."""
    from kx.errors import EnvironmentLacking
    from search.comparison.picture import draw

    title = f"{about['kernel']} on {about['chip']} ({about['timing']})"
    try:
        draw(path, summaries, title, about["target"])
    except EnvironmentLacking as exc:
        note(f"no picture: {exc}")
        return None
    return str(path)
