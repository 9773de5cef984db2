"""Reductions and votes in warps, blocks and grids."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    assembled,
    called,
    device_functions,
    first,
    mentions,
    named_types,
    origins,
    shared_names,
    statement_at,
)
from ingest.registry import Finding, detector
from ingest.syntax import Function, Loop, Span, SyntaxView, names_in

SHUFFLE_DOWN = (
    r"(?:__shfl_(?:xor|down)(?:_sync)?|\w*SHFL_(?:XOR|DOWN)\w*|shfl_(?:xor|down)\w*"
    r"|\w+\.shfl_(?:xor|down)|__reduce_\w+_sync|\w+_shfl_(?:xor|down)\w*)"
)


_WARP_CALL = (
    r"(?:[wW]arp_?[rR]educe\w*|[wW]arpAllReduce\w*|warp_(?:sum|max|min)\w*|[wW]arp(?:Sum|Max"
    r"|Min)\w*|warp_all_reduce\w*|quad_\w*reduce\w*|subwarp_reduce\w*|groupReduce\w*)"
)


@detector("warp-shuffle-reduction")
def warp_shuffle_reduction(view: SyntaxView) -> Iterator[Finding]:
    """Values of a warp combined by xor or down shuffles, or by the reduce instructions."""
    for call in view.calls(SHUFFLE_DOWN):
        statement = statement_at(view, call.span.start)
        text = view.text(statement)
        if call.name.startswith("__reduce") or _combines(text, call.span.start - statement.start):
            yield Finding(statement, f"{call.name} combined in {' '.join(text.split())[:70]}", 0.93)
        elif view.loops_around(call.span.start) and _combined_later(view, statement, text):
            yield Finding(statement, f"result of {call.name} is folded into the running value", 0.85)
    yield from first(
        assembled(view, r"shfl\.sync\.(?:down|bfly)|redux\.sync", "PTX {0}", 0.85),
        called(view, _WARP_CALL, "calls {0}", 0.8),
        mentions(view, r"\bcub::WarpReduce\b", "{0}", 0.85),
        mentions(view, r"\b\w*[aA]ll_?[rR]educe\s*<[^;]*?>\s*::\s*run", "{0} exchanges by shuffles", 0.48),
        mentions(view, r"\bcg::reduce\s*\(", "{0} over a tile of a warp", 0.6),
    )


def _combines(text: str, offset: int) -> bool:
    """Whether a statement folds a shuffled value into another with an operator or a min/max."""
    before = patterns.sub(r"(?:\w+(?:::|\.|->))+$", "", text[:offset])
    return bool(
        patterns.search(r"(?:[-+*|&]=|\+)\s*(?:[\w:]+\s*\(\s*)?$", before)
        or patterns.search(r"(?i)(?:max|min|sum|add|op|combine|reduce)\w*\s*\([^;]*$", before)
        or patterns.search(r"\)\s*\+", text[offset:])
    )


def _combined_later(view: SyntaxView, statement: Span, text: str) -> bool:
    target = patterns.match(r"\s*(?:const\s+)?(?:[\w:]+\s+)*?(\w+)\s*=", text)
    if not target:
        return False
    after = view.code[statement.end : statement.end + 500]
    name = re.escape(target.group(1))
    return bool(
        patterns.search(rf"(?:[-+*|&]=|(?i:max|min|op)\w*\s*\(|[<>])[^;]*\b{name}\b", after)
        or patterns.search(rf"\b{name}\b\s*[<>]", after)
    )


@detector("block-reduction")
def block_reduction(view: SyntaxView) -> Iterator[Finding]:
    """Values of a block combined: through cub, a helper, warp results in shared memory, or a tree."""
    yield from first(
        mentions(view, r"\bcub::BlockReduce\b|\bBlockReduce\s*<", "{0}", 0.9),
        called(
            view, r"block_?[rR]educe\w*|blockReduce\w*|block_(?:sum|max|min)\w*|blockAllReduce\w*", "calls {0}", 0.85
        ),
    )
    yield from named_types(view, r"Block\w*Reduce\w*", r"(?i)reduc", "reduction across a block")
    for function in device_functions(view):
        shared = shared_names(view, function)
        for loop in view.within(function, view.loops):
            if not patterns.search(r">>=\s*1|/=\s*2|>>\s*1|/\s*2", loop.update or view.text(loop.body)):
                continue
            text = view.text(loop.body)
            fold = [
                n
                for n in shared
                if patterns.search(
                    rf"\b{re.escape(n)}\s*\[[^\]]*\]\s*(?:\+=|=[^;]*\b{re.escape(n)}\s*\[[^\]]*\+\s*)", text
                )
            ]
            if not fold and _folds_through_pointers(view, loop, function, shared):
                fold = ["shared memory"]
            if fold and patterns.search(r"__syncthreads|sync\(", text):
                yield Finding(loop.span, f"tree over {fold[0]} with the stride halved at each step", 0.9)
        yield from _unrolled_tree(view, function, shared)
        yield from _two_level(view, function.body, shared)
        yield from _summed_parts(view, function, shared)
        yield from _gathered_warps(view, function, shared)


def _folds_through_pointers(view: SyntaxView, loop: Loop, function: Function, shared: frozenset[str]) -> bool:
    """Whether a loop writes shared memory and adds what it reads there, also through pointers into it."""
    inside = view.inside(loop.body, view.assignments)
    writes = any(a.name in shared and "[" in a.target and not a.declares for a in inside)
    return writes and any(a.operator == "+=" and names_in(a.value) & shared for a in inside)


def _unrolled_tree(view: SyntaxView, function: Function, shared: frozenset[str]) -> Iterator[Finding]:
    """The tree written out: folds of one half of a shared array onto the other, with barriers between."""
    folds = [
        a
        for a in view.within(function, view.assignments)
        if a.name in shared
        and not a.declares
        and patterns.search(rf"\b{re.escape(a.name)}\s*\[[^\]]*\+\s*\d+\s*\]", a.value)
        and (a.operator == "+=" or len(patterns.findall(rf"\b{re.escape(a.name)}\s*\[", a.value)) > 1)
    ]
    if len(folds) > 1:
        span = Span(folds[0].span.start, folds[-1].span.end)
        if patterns.search(r"__syncthreads|sync\s*\(", view.text(span)):
            yield Finding(span, f"{folds[0].name} is folded in halves with barriers between", 0.85)


def _summed_parts(view: SyntaxView, function: Function, shared: frozenset[str]) -> Iterator[Finding]:
    """Each warp puts its running sums into shared memory; after a barrier one adds those of the others."""
    local = view.within(function, view.assignments)
    sums = [a for a in local if a.operator == "+=" and names_in(a.value) & shared]
    running = {a.name for a in local if a.feeds_itself and view.loops_around(a.span.start)}
    reduced = re.compile(rf"\b(?:(?:cg::)?reduce|{_WARP_CALL})\s*\(")
    for stored in local:
        if (
            stored.name not in shared
            or stored.operator != "="
            or stored.declares
            or not (names_in(stored.value) & running or reduced.search(stored.value))
        ):
            continue
        if not patterns.fullmatch(r"\s*[\w.]+(?:\s*\[[^\]]*\])*\s*", stored.value) and not reduced.search(stored.value):
            continue
        for added in sums:
            read = patterns.fullmatch(
                rf"\s*{re.escape(stored.name)}\s*(?:\[(?:[^\[\]]|\[[^\]]*\])*\]\s*)+", added.value
            )
            later = added.span.start > stored.span.end and read
            if later and patterns.search(r"__syncthreads|sync\(", view.text(Span(stored.span.end, added.span.start))):
                yield Finding(
                    Span(stored.span.start, added.span.end),
                    f"partial {stored.value.strip()} meet in {stored.name} and are added after the barrier",
                    0.78,
                )


_PARTS = re.compile(r"(?i)(?:num|n)_?warps|warps?_?(?:in|per|count)|WARPS|blockDim\.[yz]|\bbd[yz]\b")


def _gathered_warps(view: SyntaxView, function: Function, shared: frozenset[str]) -> Iterator[Finding]:
    """After a barrier, a loop over the block's warps or rows adds what they left in shared memory."""
    for loop in view.within(function, view.loops):
        before = view.text(Span(function.body.start, loop.span.start))
        if not _PARTS.search(loop.condition) or not patterns.search(r"__syncthreads|sync\s*\(", before):
            continue
        if "shfl" in view.text(loop.body):
            continue
        read = {
            call.path.split(".")[0]
            for call in view.inside(loop.body, view.calls(r"\w*load\w*"))
            if names_in(" ".join(call.arguments)) & shared
        }
        for a in view.inside(loop.body, view.assignments):
            adds = a.operator == "+=" or (a.feeds_itself and patterns.search(r"\w*add\w*\s*\(", a.value))
            source = origins(view, a.value, function, depth=2) & (shared | read)
            if adds and source and a.name not in shared and "*" not in a.value:
                yield Finding(loop.span, f"{a.name} takes in what each warp left in {sorted(source)[0]}", 0.82)
                break


def _two_level(view: SyntaxView, body: Span, shared: frozenset[str]) -> Iterator[Finding]:
    """One value per warp put into shared memory, a barrier, then combined again."""
    for branch in view.inside(body, view.branches):
        if not patterns.search(
            r"lane\w*\s*==\s*(?:0|WARP)|%\s*(?:32|WARP_SIZE|warpSize)\s*==\s*0|==\s*0", branch.condition
        ):
            continue
        inner = view.text(branch.consequence)
        stored = patterns.search(
            r"\b(\w+)\s*(?:\[[^\]]*\]\s*)*\[\s*[^\]]*(?:[wW]arp|wid|/\s*32|>>\s*5|w_id|threadIdx\.[yz]|meta_group_rank)[^\]]*\]"
            r"\s*(?:\.\w+\s*)?=\s*(\w+)",
            inner,
        )
        if not stored or stored.group(1) not in shared:
            continue
        after = Span(branch.span.end, body.end)
        text = view.text(after)
        barrier = patterns.search(r"__syncthreads|sync\(|\bwait\s*\(", text)
        reread = patterns.search(rf"\b{re.escape(stored.group(1))}\s*\[", text[barrier.end() :]) if barrier else None
        scanned = patterns.search(r"shfl_up|prefix|[sS]can", view.text(body))
        combined = barrier and patterns.search(
            rf"{_WARP_CALL}|shfl|[rR]educe|\+=|\+|[mM](?:ax|in)\w*\s*\(", text[barrier.end() :]
        )
        if reread and barrier and combined and not scanned:
            end = after.start + barrier.end() + reread.end()
            yield Finding(
                Span(branch.span.start, end),
                f"warp results meet in {stored.group(1)} and are combined after the barrier",
                0.85,
            )


@detector("warp-vote")
def warp_vote(view: SyntaxView) -> Iterator[Finding]:
    """A predicate of all lanes: ballot, any, all, match."""
    yield from first(
        called(view, r"__(?:ballot|any|all|match_any|match_all|uni)(?:_sync)?", "calls {0}", 0.95),
        assembled(view, r"vote\.|match\.(?:any|all)", "PTX {0}"),
        mentions(
            view,
            r"\b\w*(?:tile|warp|group|active)\w*\s*\.\s*(?:ballot|any|all|match_any|match_all)\s*\(",
            "calls {0}",
            0.7,
        ),
    )
