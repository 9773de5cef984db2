"""kx prompt and kx submit: a person or a coding agent drives a search."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kx.cli.output import json_option, print_json, print_text
from kx.errors import FileUnreadable, InputError, PathMissing, UnknownName
from kx.paths import Home

if TYPE_CHECKING:
    from search.models import Question
    from search.run_store import Run

NEXT = "next"


@click.command()
@click.argument("run", default="latest")
@click.argument("node", default="")
@json_option
def prompt(run: str, node: str, as_json: bool) -> None:
    """Print the prompt for a node, exactly as a model would get it.

    RUN is a run's name or latest. NODE is a node's id; "next" is the next step of the world model. Without
    it, the question that the run waits for is printed.
    """
    from search.models.reply_log import ReplyLog
    from search.run_store import open_run

    home = Home.from_environment()
    opened = open_run(home, run)
    waiting = list(ReplyLog(opened).waiting())
    question = _pick(waiting, node)
    if question is not None:
        payload = {"run": opened.id, "node": question.node, "purpose": question.purpose, "waiting": True,
                   "prompt": question.text}  # fmt: skip
    elif not node:
        raise InputError(f"run {opened.id} waits for no reply", f"name a node (kx show {opened.id}), or {NEXT}")
    else:
        text = _prompt_of(home, opened, node)
        payload = {"run": opened.id, "node": node, "purpose": "plan" if node == NEXT else "write", "waiting": False,
                   "prompt": text}  # fmt: skip
    if as_json:
        print_json(payload)
    else:
        print_text(str(payload["prompt"]))


@click.command()
@click.argument("run")
@click.argument("node")
@click.argument("file")
@json_option
def submit(run: str, node: str, file: str, as_json: bool) -> None:
    """Take a reply to the question that a run waits for, and go on with the run.

    RUN is a run's name or latest, NODE the node that the question is about ("next": whichever waits), FILE
    the reply ("-" is standard input). A reply goes through the same parsing, gates and log as a model's.
    """
    from kx.cli.search import continue_run
    from search.models import Reply
    from search.models.reply_log import PERSON, ReplyLog
    from search.run_store import hold, open_run

    home = Home.from_environment()
    opened = open_run(home, run)
    text = _read_reply(file)
    log = ReplyLog(opened)
    with hold(opened):
        waiting = list(log.waiting())
        question = _pick(waiting, node) or (waiting[0] if node == NEXT and waiting else None)
        if question is None:
            known = ", ".join(f"{item.node} ({item.purpose})" for item in waiting)
            hint = f"it waits for: {known}" if known else "start one with kx search --by-hand"
            raise InputError(f"run {opened.id} waits for no reply about {node}", hint)
        log.keep(question, log.count(question), Reply(text, PERSON))
    continue_run(home, opened.id, as_json)


def _pick(waiting: list[Question], node: str) -> Question | None:
    """The waiting question that ``node`` means: of that node, the plan for ``next``, any for an empty name."""
    for question in waiting:
        if node in ("", question.node) or (node == NEXT and question.purpose == "plan"):
            return question
    return None


def _prompt_of(home: Home, run: Run, node: str) -> str:
    """The prompt that a node got, or that it would get now."""
    from kgraph.graph import KnowledgeGraph
    from kx.cli.knowledge import open_index
    from retrieval.ranking import Retriever
    from search.session import prompt_for
    from search.world_model import world_model_from_json

    model = world_model_from_json(run.world_model())
    if node != NEXT:
        if node not in model.nodes:
            raise UnknownName(f"run {run.id} has no node {node!r}", f"nodes: {', '.join(model.nodes)}")
        known = model.nodes[node]
        if known.parent is None:
            raise InputError(f"{node} is the seed: nobody is asked for it", f"name another node, or {NEXT}")
        if known.prompt:
            return run.prompt(known.prompt)
    graph = KnowledgeGraph.open(home)
    with open_index(home, graph) as index:
        return prompt_for(graph, Retriever(graph, index), run, model, None if node == NEXT else node)


def _read_reply(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8")
    except FileNotFoundError as exc:
        raise PathMissing(f"{file} does not exist", "name the file with the reply, or - for standard input") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise FileUnreadable(f"{file} cannot be read as UTF-8 text ({exc})", "save the reply as UTF-8 text") from exc
    if not text.strip():
        raise InputError(f"{file} is empty", "kx prompt says what to reply")
    return text


def awaited(run: Run, question: Any, as_json: bool) -> None:
    """Tell what a run waits for."""
    if as_json:
        print_json({"run": run.id, "waiting": {"node": question.node, "purpose": question.purpose}})
        return
    print_text(f"run {run.id} waits for your reply about {question.node} ({question.purpose})")
    print_text(f"  kx prompt {run.id} {question.node}          prints the question")
    print_text(f"  kx submit {run.id} {question.node} FILE     takes the reply and goes on")
