"""Measure retrieval: recall at 5 and 10 and mean reciprocal rank of each ranking alone and of all fused.

    python -m benchmarks.retrieval                       # the tuning half
    python -m benchmarks.retrieval --half held-out       # figures over all questions alone
    python -m benchmarks.retrieval --questions MINE.jsonl

The index is that of the data folder (KX_HOME), so what was ingested there takes part. A question counts as answered
at k when one of its answers is among the first k hits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.retrieval.answers import AnswerResolver, read_any_questions
from benchmarks.retrieval.measure import DEPTH, METHODS, Asked, Figures, Stopwatch, figures, rank_of_answer, resolve
from benchmarks.retrieval.questions import FOLDER, Question, read_questions
from kgraph.graph import KnowledgeGraph
from kx.cli.knowledge import open_index
from kx.paths import Home
from retrieval.ranking import Retriever


def main() -> None:
    """Measure and print."""
    options = _parse()
    home = Home.from_environment()
    graph = KnowledgeGraph.open(home)
    with open_index(home, graph) as index:
        asked = resolve(_questions(options), AnswerResolver(graph, index.entries()))
        measured = [item for item in asked if item.answers]
        if not measured:
            sys.exit("no question has an answer that the graph knows")
        ranks: dict[str, list[int | None]] = {}
        watch = Stopwatch()
        for method, weights in METHODS.items():
            retriever = Retriever(graph, index, weights)
            retriever.query("warm up", 1)
            ranks[method] = []
            for item in measured:
                with watch:
                    hits = [hit.entry.id for hit in retriever.query(item.question.text, DEPTH)]
                ranks[method].append(rank_of_answer(hits, item.answers))
        result = {
            "questions": len(measured),
            "entries": len(index.entries()),
            "sources": len(index.sources()),
            "median query ms": round(watch.median_ms, 1),
            "methods": {method: asdict(figures(found)) for method, found in ranks.items()},
            "unresolved": {item.question.id: list(item.unresolved) for item in asked if item.unresolved},
            "left out": [item.question.id for item in asked if not item.answers],
        }
    if options.half != "held-out" or options.questions:
        result["styles"] = _by_style(measured, ranks["fused"])
    if options.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print(result)
    if options.misses:
        _print_misses(measured, ranks["fused"])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["tuning", "held-out"], default="tuning")
    parser.add_argument("--questions", type=Path, help="JSON lines with text and answers, instead of a half")
    parser.add_argument("--misses", action="store_true", help="list the questions that miss at 5")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.misses and options.half == "held-out" and not options.questions:
        parser.error("the questions of the held-out half are not looked at")
    return options


def _questions(options: argparse.Namespace) -> tuple[Question, ...]:
    if options.questions:
        return read_any_questions(options.questions)
    return read_questions(FOLDER / f"{options.half.replace('-', '_')}.jsonl")


def _by_style(asked: list[Asked], ranks: list[int | None]) -> dict[str, dict[str, Any]]:
    styles: dict[str, list[int | None]] = defaultdict(list)
    for item, rank in zip(asked, ranks, strict=True):
        styles[item.question.style or "none given"].append(rank)
    return {style: asdict(figures(styles[style])) for style in sorted(styles)}


def _print(result: dict[str, Any]) -> None:
    print(
        f"{result['entries']} entries, {result['sources']} ingested sources, {result['median query ms']} ms a query\n"
    )
    rows = {**result["methods"], **{f"fused, {style}": row for style, row in result.get("styles", {}).items()}}
    print("| ranking | questions | recall@5 | recall@10 | MRR |\n|---|---|---|---|---|")
    for name, row in rows.items():
        figure = Figures(**row)
        print(
            f"| {name} | {figure.questions} | {figure.recall_at_5:.3f} | {figure.recall_at_10:.3f} "
            f"| {figure.mean_reciprocal_rank:.3f} |"
        )
    for question, answers in result["unresolved"].items():
        print(f"\n{question}: no node is {', '.join(answers)}", end="")
    if result["left out"]:
        print(f"\n\nnot measured, since no answer of theirs is a node: {', '.join(result['left out'])}", end="")
    print()


def _print_misses(asked: list[Asked], ranks: list[int | None]) -> None:
    for item, rank in zip(asked, ranks, strict=True):
        if rank is None or rank > 5:
            print(f"\n{rank or 'not found'}: {item.question.text}\n  {', '.join(sorted(item.answers))}")


if __name__ == "__main__":
    main()
