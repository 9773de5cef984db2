"""kx runs and kx show: what searches were done, and what one of them found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from kx.cli.output import json_option, print_json, print_table, print_text
from kx.paths import Home


@click.command()
@json_option
def runs(as_json: bool) -> None:
    """List the searches in the data folder, oldest first."""
    from search.run_store import run_ids

    home = Home.from_environment()
    rows = [_summary(home, identity) for identity in run_ids(home)]
    if as_json:
        print_json({"runs": rows})
    elif not rows:
        print_text(f"no runs in {home.runs} yet: start one with kx search --kernel mamba_scan")
    else:
        table = [(r["run"], r["kernel"], r["chip"], r["state"], r["evaluations"], _times(r["score"])) for r in rows]
        print_table(["run", "kernel", "chip", "state", "evaluations", "score"], table)


@click.command()
@click.argument("run", default="latest")
@json_option
def show(run: str, as_json: bool) -> None:
    """Show a run's world model, outcomes and best path.

    RUN is a run's name, the latest by default.
    """
    from search.run_store import open_run
    from search.world_model import world_model_from_json

    home = Home.from_environment()
    opened = open_run(home, run)
    model = world_model_from_json(opened.world_model())
    summary = _summary(home, opened.id)
    outcomes = Counter(event["outcome"]["kind"] for event in opened.events() if event["kind"] == "evaluated")
    if as_json:
        print_json({**summary, "outcomes": dict(outcomes), "world_model": model.to_json()})
        return
    print_text(f"{opened.id}: {summary['kernel']} on {summary['chip']}, {summary['state']}")
    if summary["replies"]:
        print_text(f"asked: {summary['replies']} replies, {summary['tokens']} tokens")
    print_text("outcomes: " + ", ".join(f"{kind} {count}" for kind, count in sorted(outcomes.items())))
    for node, depth in model.walk():
        belief = node.belief
        state = _times(node.score) if node.score else node.status
        beliefs = f" [rating {belief.rating:.1f}, confidence {belief.confidence:.2f}]" if node.parent else ""
        marker = " *" if node.id == model.best().id else ""
        print_text(f"{'  ' * depth}{node.id} {node.action.title}: {state}{beliefs}{marker}")
    print_text("* best")


def _summary(home: Home, identity: str) -> dict[str, Any]:
    from kx.errors import RunCorrupt
    from search.models.reply_log import ReplyLog
    from search.run_store import open_run

    try:
        run = open_run(home, identity)
        events = list(run.events())
    except RunCorrupt as exc:
        return {
            "run": identity,
            "kernel": "",
            "chip": "",
            "state": f"corrupt: {exc.message}",
            "evaluations": 0,
            "score": None,
            "replies": 0,
            "tokens": 0,
        }
    stopped = [event for event in events if event["kind"] == "stopped"]
    replied = [event for event in events if event["kind"] == "replied"]
    waiting = next(iter(ReplyLog(run).waiting()), None)
    if stopped:
        state = f"finished: {stopped[-1]['because']}"
    elif waiting is not None:
        state = f"waits for a reply about {waiting.node}: kx prompt {identity}"
    else:
        state = "unfinished: kx resume goes on"
    return {
        "run": identity,
        "kernel": run.configuration["task"],
        "chip": run.configuration.get("chip", ""),
        "state": state,
        "evaluations": sum(event["kind"] == "evaluated" for event in events),
        "score": stopped[-1]["score"] if stopped else None,
        "replies": len(replied),
        "tokens": sum(event["prompt_tokens"] + event["completion_tokens"] for event in replied),
    }


def _times(score: float | None) -> str:
    return f"{score:.2f}x" if score else ""
