"""``kx query``: a question in words, answered from curated knowledge and ingested sources."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

import click

from kgraph.graph import KnowledgeGraph
from kx.cli.knowledge import open_index
from kx.cli.output import json_option, note, print_json, print_text
from kx.errors import InputError
from kx.paths import Home
from retrieval.model import Hit
from retrieval.ranking import Retriever

_SHOWN_CHARACTERS = 400


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="How many hits at most."
)
@json_option
def query(text: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find what the graph knows about a question in words.

    Meaning, identifiers and the graph's edges are ranked together, and each hit says why it came. The
    first query, and the first after the knowledge changed, embeds the entries, which takes a while.
    """
    # Bytes of the command line that are no UTF-8 arrive as lone surrogates, which no tokenizer takes.
    question = " ".join(" ".join(text).split()).encode("utf-8", "replace").decode("utf-8")
    if not question:
        raise InputError("the question is empty", 'kx query "row softmax without a barrier"')
    home = Home.from_environment()
    graph = KnowledgeGraph.open(home)
    with open_index(home, graph) as index:
        source_count = len(index.sources())
        hits = Retriever(graph, index).query(question, limit)
    if not source_count:
        note("no sources were ingested: the answer is from the curated knowledge alone (kx ingest PATH adds yours)")
    if as_json:
        print_json({"query": question, "sources": source_count, "hits": [_hit_object(hit) for hit in hits]})
    elif hits:
        print_text("\n\n".join(_block(rank, hit) for rank, hit in enumerate(hits, start=1)))
    else:
        note("nothing found")


def _hit_object(hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.entry.id,
        "kind": hit.entry.kind,
        "title": hit.entry.title,
        "text": hit.entry.text,
        "score": hit.score,
        "why": hit.why,
        "concepts": list(hit.entry.concepts),
        "source": hit.entry.source,
    }


def _block(rank: int, hit: Hit) -> str:
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    text = textwrap.shorten(hit.entry.text, _SHOWN_CHARACTERS, placeholder=" …")
    lines = [f"{rank}. [{hit.entry.kind}] {hit.entry.title}"]
    if text:
        lines.append(textwrap.fill(text, width, initial_indent="   ", subsequent_indent="   "))
    lines.append(textwrap.fill(f"({hit.why})", width, initial_indent="   ", subsequent_indent="   "))
    return "\n".join(lines)
