"""Copies that overlap with arithmetic, and the barriers that order them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    assembled,
    called,
    constants,
    device_functions,
    first,
    mentions,
    shared_names,
    statement_at,
    value_parameters,
)
from ingest.registry import Finding, detector
from ingest.syntax import Loop, Span, SyntaxView, names_in

_ASYNC_CALL = r"(?:\w*cp_async(?!_bulk)(?!_reduce)\w*|__pipeline_memcpy_async|memcpy_async|load_tile_async)"


@detector("async-copy")
def async_copy(view: SyntaxView) -> Iterator[Finding]:
    """Global to shared copies that bypass registers: cp.async or memcpy_async; bulk copies are TMA."""
    yield from first(
        assembled(
            view,
            r"cp\.async\.c[ag]\b",
            "PTX {0}",
        ),
        assembled(view, r"cp\.async\.(?:commit_group|wait_group|wait_all|mbarrier)", "PTX {0}", 0.9),
        mentions(view, r"\bSM80_CP_ASYNC_\w+", "copy atom {0}"),
        called(view, r"__pipeline_memcpy_async|memcpy_async", "{0} copies asynchronously"),
        called(view, r"\w*cp_async(?!_bulk|_reduce|_available|_supported|_enabled)(?!\s*::)\w*", "calls {0}", 0.88),
        mentions(view, r"\bcp_async::(?:pred_)?load\w*|\bcp_async::(?:commit_group|wait_group)\b", "calls {0}", 0.9),
        _untransacted_loads(view),
    )


def _untransacted_loads(view: SyntaxView) -> Iterator[Finding]:
    """Asynchronous tile loads that no transaction barrier counts: copies by the threads themselves."""
    for call in view.calls(r"load_async(?:_wait)?"):
        target = patterns.match(r"\w+", call.arguments[0]) if call.arguments else None
        kind = view.type_of(target.group(), view.function_at(call.span.start)) if target else ""
        if "tma" not in call.path and "cluster" not in call.path and not patterns.match(r"r[tv]_", kind):
            yield Finding(call.span, f"calls {call.path}", 0.85)


@detector("tma-bulk-copy")
def tma_bulk_copy(view: SyntaxView) -> Iterator[Finding]:
    """The tensor memory accelerator: bulk copies, tensor maps, TMA atoms."""
    yield from first(
        assembled(view, r"cp\.(?:reduce\.)?async\.bulk", "PTX {0}"),
        mentions(view, r"\bSM90_(?:TMA|BULK)_\w+", "copy atom {0}"),
        mentions(view, r"\btma::(?:\w+::)*(?:load|store|reduce|expect)\w*", "calls {0}"),
        called(
            view,
            r"make_tma_copy\w*|make_tma_atom\w*|tma_(?:load|store|copy)\w*|cp_async_bulk\w*|cuTensorMapEncode\w+",
            "calls {0}",
        ),
        mentions(view, r"\bCUtensorMap\b", "{0}: a tensor map", 0.8),
    )


@detector("async-barrier")
def async_barrier(view: SyntaxView) -> Iterator[Finding]:
    """Barriers in shared memory that count arrivals: mbarrier, cuda::barrier, pipelines."""
    yield from first(
        assembled(view, r"mbarrier\.", "PTX {0}"),
        mentions(view, r"\bcuda::(?:barrier|pipeline|pipeline_shared_state)\b|\bcuda::make_pipeline\b", "{0}"),
        mentions(
            view,
            r"\b(?:Cluster(?:Transaction)?Barrier|Pipeline(?:Tma|TmaUmma|Umma|Async|Transaction)\w*|mbarrier_\w+)\b",
            "{0}",
        ),
        called(
            view,
            r"init_semaphore|mbar(?:rier)?_(?:init|wait|arrive|try_wait)\w*|arrive_and_expect_tx|try_wait_parity\w*"
            r"|\w*_?expect_tx\w*|expect_bytes",
            "calls {0}",
        ),
        called(
            view,
            r"pipeline_\w*\.?(?:producer|consumer)_(?:acquire|commit|wait|release)|(?:producer|consumer)_(?:acquire|commit|wait|release)",
            "calls {0}",
            0.8,
        ),
        mentions(view, r"\bsemaphore\s+\w+\s*[,;\[]", "declares {0}", 0.7),
        mentions(view, r"\btma::expect\w*\s*\(\s*[\w.]+", "{0} sets the bytes that a barrier waits for", 0.85),
    )


@detector("software-pipelining")
def software_pipelining(view: SyntaxView) -> Iterator[Finding]:
    """Buffers in two or more stages: the loop starts the next load before it computes on this one."""
    yield from _alternating_stages(view)
    yield from _prefetch_in_loop(view)
    yield from _next_loads(view)
    yield from _partial_waits(view)
    yield from mentions(
        view, r"\b(?:No_)?[Dd]ouble_?[Bb]uffer(?:ed|ing)?\b", "{0} chooses between one buffer and two", 0.8
    )
    yield from _counted_stages(view)


def _counted_stages(view: SyntaxView) -> Iterator[Finding]:
    """A constant number of stages, two or more, in a file that copies asynchronously."""
    copies = patterns.search(_ASYNC_CALL + r"|SM80_CP_ASYNC|SM90_TMA|tma::|cp\.async|Pipeline\w+|load_async", view.code)
    if not copies:
        return
    name = r"\b(\w*(?:[sS]tages?|STAGES?|PIPE(?:LINE)?_DEPTH|PipeDepth|NUM_BUFFERS?))\b"
    for match in view.search(rf"{name}\s*=\s*([^,;)}}>]*)"):
        declared = match.group(1) in constants(view) or "constexpr" in view.text(statement_at(view, match.start()))
        if declared and not patterns.fullmatch(r"[01]|.*\b(?:idx|index|id)\b.*", match.group(2).strip()):
            yield Finding(Span(*match.span()), f"{match.group(1)} of asynchronous copies", 0.7)
    for match in view.search(rf"\bint\s+{name}\s*[,>]"):
        if match.group(1) in value_parameters(view):
            yield Finding(Span(*match.span()), f"{match.group(1)} of asynchronous copies are a template value", 0.7)


_ROTATION = re.compile(
    r"\b(?P<v>\w+)\s*(?:\^=\s*1\b|=\s*(?P=v)\s*\^\s*1\b|=\s*1\s*-\s*(?P=v)\b|=\s*!\s*(?P=v)\b"
    r"|=\s*\(\s*(?P=v)\s*\+\s*\w+\s*\)\s*(?:%\s*\w+|&\s*1\b)"
    r"|=\s*(?P=v)\s*==\s*[\w:]+\s*-\s*1\s*\?)"
)


def _stage_names(view: SyntaxView, loop: Loop) -> dict[str, Span]:
    """Variables of a loop that name a stage: toggled, rotated, or the loop variable modulo the stages."""
    stages = {m.group("v"): Span(*m.span()) for m in view.search(_ROTATION, loop.span)}
    owner = view.function_at(loop.span.start)
    for assignment in view.inside(loop.span, view.assignments):
        if not patterns.search(
            r"\b(?:u?int\w*|unsigned|size_t|bool|auto|char|short|long)\b", view.type_of(assignment.name, owner)
        ):
            continue
        taken = patterns.search(
            r"(?:%\s*(?:2\b|[\w:]*(?:[Ss]tage|STAGE|[Bb]uf|BUF|PIPE)\w*)|&\s*1\b|\^\s*1\b)", assignment.value
        )
        if taken and set(loop.variables) & names_in(assignment.value) and "lane" not in assignment.value:
            stages.setdefault(assignment.name, assignment.span)
    return stages


def _alternating_stages(view: SyntaxView) -> Iterator[Finding]:
    for function in device_functions(view):
        shared = shared_names(view, function)
        for loop in view.within(function, view.loops):
            for name, span in _stage_names(view, loop).items():
                text = view.text(loop.body)
                uses = len(patterns.findall(rf"\b{re.escape(name)}\b", text))
                indexed = patterns.search(rf"(?:\[|\+|\(|\*)[^;\[\]]*\b{re.escape(name)}\b", text)
                moves = patterns.search(rf"{_ASYNC_CALL}|load_async|\bcopy\s*\(|tma", text) or names_in(text) & shared
                if uses >= 2 and indexed and moves and _loads_ahead(view, loop, text):
                    yield Finding(
                        loop.span if view.line(loop.span.end) - view.line(loop.span.start) < 40 else span,
                        f"stage {name} alternates while the loop over {loop.variable or 'tiles'} loads ahead",
                        0.9,
                    )


def _loads_ahead(view: SyntaxView, loop: Loop, text: str) -> bool:
    """Whether the loop body fetches for a later iteration."""
    variable = loop.variable
    ahead = (
        rf"\b{re.escape(variable)}\s*\+\s*\w+|\b(?:next|prefetch|has_next)\w*"
        if variable
        else r"\b(?:next|prefetch)\w*"
    )
    return bool(patterns.search(ahead, text)) or bool(patterns.search(r"wait(?:_group|_prior)?\s*<\s*[1-9\w]", text))


def _prefetch_in_loop(view: SyntaxView) -> Iterator[Finding]:
    """Registers filled for the next iteration while this one computes, then handed over."""
    for loop in view.loops:
        owner = view.function_at(loop.span.start)
        if owner is None or not owner.on_device:
            continue
        inside = view.inside(loop.body, view.assignments)
        for handover in inside:
            source = handover.value.strip()
            if not patterns.fullmatch(r"(?i)\w*(?:next|prefetch)\w*(?:\[[^\]]*\])*", source):
                continue
            name = patterns.match(r"\w+", source)
            loads = [
                a
                for a in inside
                if name
                and a.name == name.group()
                and a.span.start < handover.span.start
                and patterns.search(r"\[|\*|ld|load", a.value)
            ]
            if loads:
                yield Finding(
                    Span(loads[0].span.start, handover.span.end),
                    f"{source} is loaded for the next iteration and handed over to {handover.name}",
                    0.85,
                )


def _next_loads(view: SyntaxView) -> Iterator[Finding]:
    """A load before the loop, and in it the same load for the next iteration where there is one."""
    for loop in view.loops:
        owner = view.function_at(loop.span.start)
        if owner is None or not owner.on_device or not loop.variable:
            continue
        following = re.compile(rf"\b{re.escape(loop.variable)}\s*\+\s*1\s*<")
        for branch in view.inside(loop.body, view.branches):
            issued = view.inside(branch.consequence, view.calls(r"\w*(?:load|copy|fetch|prefetch)\w*"))
            if branch.expression or not issued or not following.search(branch.condition):
                continue
            before = Span(owner.body.start, loop.span.start)
            if any(call.name == issued[0].name for call in view.inside(before, view.calls(issued[0].name))):
                rest = view.text(Span(branch.span.end, loop.body.end))
                if patterns.search(r"\w\s*\(|=", rest):
                    yield Finding(branch.span, f"{issued[0].name} starts on the next {loop.variable} early", 0.8)


def _partial_waits(view: SyntaxView) -> Iterator[Finding]:
    """Waiting until some copies are done while newer ones stay in flight, inside a loop."""
    pattern = (
        r"\b(?:\w*cp_async_wait\w*|wait_group|__pipeline_wait_prior"
        r"|cp_async_wait_group)\s*(?:<\s*([^>]+?)\s*>\s*\(|\(\s*(\w+)\s*\))"
    )
    for match in view.search(pattern):
        pending = match.group(1) or match.group(2)
        loops = view.loops_around(match.start())
        if pending != "0" and loops and not patterns.fullmatch(r"k[A-Z]\w*|[Nn]", pending):
            yield Finding(
                Span(*match.span()),
                f"{' '.join(match.group().split())} leaves {pending} groups in flight inside the loop",
                0.8,
            )
    for loop in view.loops:
        text = view.text(loop.body)
        issue = [
            m.start()
            for m in patterns.finditer(r"\b\w*(?:cp_async_fence|cp_async_commit|commit_group|pipeline_commit)\w*", text)
        ]
        wait = [m.start() for m in patterns.finditer(r"\b\w*(?:cp_async_wait|wait_group|pipeline_wait)\w*", text)]
        math = [m.start() for m in patterns.finditer(r"\b(?:\w*gemm\w*|\w*mma\w*)\s*(?:<[^;()]*>)?\s*\(", text)]
        if issue and wait and math and any(w < i < m for w in wait for i in issue for m in math):
            yield Finding(
                Span(loop.body.start + issue[0], loop.body.start + math[-1]),
                "inside the loop a copy is issued after a wait and before the arithmetic",
                0.75,
            )
