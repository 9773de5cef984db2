"""Results that several blocks contribute to: atomics, and splits of the reduction axis."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest.queries import (
    assembled,
    statement_at,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Span,
    SyntaxView,
)

_NOT_RESULT = re.compile(
    r"(?i)lock|ticket|semaphore|mutex|counter|\bdone|barrier|flag|sync|arriv|retire|tile_idx|work_idx|queue|head|next_tile|blocks?_(?:done|count)"
)


@detector("atomic-accumulation")
def atomic_accumulation(view: SyntaxView) -> Iterator[Finding]:
    """Atomic read-modify-write into results; locks, tickets and semaphores are something else."""
    for call in view.calls(
        r"(?:atomic|gpuAtomic|fastAtomic|unsafeAtomic|red)(?:Add|Max|Min|And|Or|Xor|AddNoReturn)\w*(?:_block|_system)?|atomicAddNoRet|red_add\w*|atomic_add\w*"
    ):
        owner = view.function_at(call.span.start)
        if owner is None or not call.arguments or _NOT_RESULT.search(call.arguments[0]):
            continue
        before = view.text(Span(statement_at(view, call.span.start).start, call.span.start))
        ticket = (
            re.search(r"=\s*$", before)
            and len(call.arguments) > 1
            and re.fullmatch(r"\(?\s*\w*\)?\s*1u?", call.arguments[1])
        )
        if not ticket:
            yield Finding(call.span, f"{call.path} into {call.arguments[0][:50]}", 0.9)
    yield from assembled(
        view, r"red\.(?!async)\S*(?:add|max|min)|atom\.\S*(?:add|max|min)\S*\.(?:f|b?f|noftz)", "PTX {0}", 0.85
    )


@detector("split-k-reduction")
def split_k_reduction(view: SyntaxView) -> Iterator[Finding]:
    """Work split along the reduction axis into partial results that are combined later."""
    split = (
        r"\b\w*(?:split_?k|splitk|SplitK|split_kv|kv_split|splitkv|num_splits?|n_splits?"
        r"|num_partitions|kNumSplits|split_idx|partition_kv)\w*\b"
    )
    names = [m for m in view.search(split) if not re.search(r"(?i)split_?kernel|is_split$", m.group())]
    partial = re.search(
        r"(?i)\bpartial|O_?partial|o_?accum|\btmp_out\b|exp_sums|lse_?(?:partial|accum)|\btmp_[vs]\b|\.sum\s*\(\s*0|workspace|parts?_",
        view.code,
    )
    for match in names:
        statement = statement_at(view, match.start())
        text = view.text(statement)
        if partial and re.search(r"[-+*/%<\[]", text) and view.function_at(match.start()) is not None:
            where = f"{match.group()} divides the reduction axis, partial results ({partial.group()}) are combined"
            yield Finding(statement, where, 0.85)
    for function in view.kernels:
        if re.search(r"(?i)merge_?states", function.name):
            yield Finding(Span(function.head.start, function.body.start), f"{function.name} merges partial states", 0.7)
    for function in view.functions:
        if re.search(r"(?i)combine|reduce", function.name) and re.search(
            r"(?i)split|partition", function.name + view.text(function.head)
        ):
            yield Finding(Span(function.head.start, function.body.start), f"{function.name} combines the parts", 0.8)
