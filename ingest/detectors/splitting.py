"""Results that several blocks contribute to: atomics, and splits of the reduction axis."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    assembled,
    device_functions,
    origins,
    statement_at,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Function,
    Loop,
    Span,
    SyntaxView,
)

_NOT_RESULT = re.compile(
    r"(?i)(?<!b)lock|ticket|semaphore|mutex|counter|\bdone|barrier|flag|sync|arriv|retire|tile_idx|work_idx|queue|\bhead\b|next_tile|blocks?_(?:done|count)"
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
            patterns.search(r"=\s*$", before)
            and len(call.arguments) > 1
            and patterns.fullmatch(r"\(?\s*\w*\)?\s*1u?", call.arguments[1])
        )
        if not ticket:
            yield Finding(call.span, f"{call.path} into {call.arguments[0][:50]}", 0.9)
    for finding in assembled(
        view, r"red\.(?!async)\S*(?:add|max|min)|atom\.\S*(?:add|max|min)\S*\.(?:f|b?f|noftz)", "PTX {0}", 0.85
    ):
        operands = patterns.findall(r'"[+=]?[lr]"\s*\(([^"]*)', view.text(finding.span))
        if not _NOT_RESULT.search(" ".join(operands)):
            yield finding


@detector("split-k-reduction")
def split_k_reduction(view: SyntaxView) -> Iterator[Finding]:
    """Work split along the reduction axis into partial results that are combined later."""
    split = (
        r"\b\w*(?:split_?k|splitk|SplitK|split_kv|kv_split|splitkv|num_splits?|n_splits?"
        r"|num_partitions|kNumSplits|split_idx|partition_k\w*)\w*\b"
    )
    names = [m for m in view.search(split) if not patterns.search(r"(?i)split_?kernel|is_split$", m.group())]
    partial = patterns.search(
        r"(?i)\bpartial|O_?partial|o_?accum|\btmp_\w+|exp_sums|lse_?(?:partial|accum)|\.sum\s*\(\s*0|workspace|parts?_"
        r"|splits?\w*\s*\+\s*\w*split\w*",
        view.code,
    )
    for match in names:
        statement = statement_at(view, match.start())
        text = view.text(statement)
        if partial and patterns.search(r"[-+*/%<\[]", text) and view.function_at(match.start()) is not None:
            where = f"{match.group()} divides the reduction axis, partial results ({partial.group()}) are combined"
            yield Finding(statement, where, 0.85)
    for function in device_functions(view):
        yield from _partial_slots(view, function)
        yield from _atomic_parts(view, function)
        yield from _serial_parts(view, function)
    for function in view.kernels:
        if patterns.search(r"(?i)merge_?states", function.name):
            yield Finding(Span(function.head.start, function.body.start), f"{function.name} merges partial states", 0.7)
    for function in view.functions:
        if patterns.search(r"(?i)combine|reduce", function.name) and patterns.search(
            r"(?i)split|partition", function.name + view.text(function.head)
        ):
            yield Finding(Span(function.head.start, function.body.start), f"{function.name} combines the parts", 0.8)


def _accumulating(view: SyntaxView, loop: Loop) -> bool:
    """Whether a loop adds products or values up."""
    return any(
        (a.feeds_itself and patterns.search(r"\+|fma", a.operator + a.value)) and a.name not in loop.variables
        for a in view.inside(loop.body, view.assignments)
    ) or bool(patterns.search(r"(?i)\bmma\w*\s*\(|gemm\w*\s*\(|dot\w*\s*\(", view.text(loop.body)))


def _partial_slots(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """Blocks of one grid dimension share a sequence and store partial results in slots of their own."""
    for loop in view.within(function, view.loops):
        stride = patterns.search(r"\bgridDim\.([yz])\b", loop.update)
        if not stride or f"blockIdx.{stride.group(1)}" not in loop.initializer or not _accumulating(view, loop):
            continue
        slot = rf"\w\s*\[[^;=]*\bgridDim\.{stride.group(1)}\s*\+\s*blockIdx\.{stride.group(1)}[^;=]*\]\s*="
        stored = next(view.search(slot, Span(loop.span.end, function.body.end)), None)
        if stored:
            yield Finding(
                Span(loop.span.start, loop.body.start),
                f"blocks along {stride.group(1)} share the loop and store partial results each in its slot",
                0.85,
            )


def _atomic_parts(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """Blocks take ranges of the reduction axis; their sums meet in one output by atomic adds."""
    atomics = [
        call
        for call in view.within(function, view.calls(r"\w*[aA]tomic_?[aA]dd\w*|red_add\w*"))
        if call.arguments and not _NOT_RESULT.search(call.arguments[0])
    ]
    for loop in view.within(function, view.loops) if atomics else ():
        start = origins(view, f"{loop.initializer.split('=')[-1]} {loop.condition}", function)
        dimensions = {d for d in "xyz" if f"blockIdx.{d}" in start}
        if not dimensions or "gridDim" in loop.update or not _accumulating(view, loop):
            continue
        for call in atomics:
            target = origins(view, call.arguments[0], function)
            others = {d for d in "xyz" if f"blockIdx.{d}" in target}
            if others and dimensions - others and call.span.start > loop.span.start:
                along = sorted(dimensions - others)[0]
                yield Finding(
                    Span(loop.span.start, loop.body.start),
                    f"blocks along {along} take parts of the loop, {call.name} joins their sums",
                    0.82,
                )


def _serial_parts(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """Blocks wait for their turn on a lock, then add the output's earlier part to theirs."""
    lock = r"(?i)\b\w*(?:lock|semaphore|turn)s?\b"
    taken = next(view.search(rf"\b\w*(?:acquire|wait|fetch)\w*\s*\([^;]*{lock[4:]}", function.body), None)
    if not taken or not patterns.search(lock, " ".join(function.parameters)):
        return
    outputs = {
        v.name
        for v in view.parameters_of(function)
        if v.is_pointer and not patterns.search(r"\bconst\b|\bint\b", v.type)
    }
    body = view.text(function.body)
    for name in sorted(outputs):
        written = patterns.search(rf"\b{name}\s*\[(?:[^\[\]]|\[[^\]]*\])*\]\s*=[^=]", body)
        read = patterns.search(rf"(?:=|,|\()\s*&?\s*{name}\s*\[", body)
        if written and read:
            yield Finding(Span(*taken.span()), f"blocks add their parts of {name} one after the other", 0.8)
            return
