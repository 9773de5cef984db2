"""Mixture of experts: the choice of experts and the order of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    called,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    SyntaxView,
)


@detector("topk-in-registers")
def topk_in_registers(view: SyntaxView) -> Iterator[Finding]:
    """The largest k chosen by a warp or thread: repeated arg-max with the winner struck out, or insertion."""
    for loop in view.loops:
        owner = view.function_at(loop.span.start)
        if (
            owner is None
            or not owner.on_device
            or not patterns.search(r"(?i)\btop_?k\b|\bk\b|topk|n\w*_?experts?_?\w*", loop.condition)
        ):
            continue
        text = view.text(loop.body)
        argmax = patterns.search(
            r"(?i)if\s*\([^;{]*(\w*(?:val|max|logit|score|prob)\w*)(?:\[[^\]]*\])?\s*>\s*\w*(?:max|best|val)\w*", text
        )
        struck = patterns.search(
            r"=\s*(?:-\s*(?:\w*INF\w*|\w*inf\w*|1e?\d*|10000\.f?|FLT_MAX)|static_cast<\w+>\(-)", text
        )
        shuffled = patterns.search(r"(?i)shfl", text)
        if argmax and struck and shuffled:
            yield Finding(
                loop.span,
                f"{' '.join(loop.header.split())[:50]}: arg-max of registers by shuffles, then the "
                f"winner is struck out",
                0.88,
            )
    yield from called(view, r"warp_?topk\w*|warpTopK\w*|reduceTopK\w*|topk_in_warp\w*", "calls {0}", 0.8)


@detector("expert-token-sorting")
def expert_token_sorting(view: SyntaxView) -> Iterator[Finding]:
    """Tokens of a mixture of experts put in order of their expert, padded to tiles."""
    for a in view.assignments:
        owner = view.function_at(a.span.start)
        if owner is None or not owner.on_device:
            continue
        if (
            patterns.search(
                r"(?i)sorted_token|sorted_ids|sorted_row|permuted_(?:row|token)|expert_first_token|token_map", a.target
            )
            and "[" in a.target
        ):
            yield Finding(a.span, f"writes {a.name} in expert order", 0.88)
        elif (
            patterns.search(r"(?i)tokens?_cnts?|expert_counts?|cumsum|expert_offsets?|expert_ids", a.target)
            and "[" in a.target
            and patterns.search(r"(?i)expert", view.text(owner.head) + view.text(owner.body))
            and patterns.search(r"(?i)cumsum|offset|prefix", view.text(owner.body))
        ):
            yield Finding(a.span, f"counts and offsets of tokens per expert: {a.name}", 0.75)
    yield from called(view, r"(?:moe_align|sort_?(?:by)?_?expert|expert_sort)\w*(?<!kernel)", "calls {0}", 0.5)
