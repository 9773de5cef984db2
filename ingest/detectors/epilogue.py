"""What a kernel does to its results before it stores them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    device_functions,
    global_names,
    line_at,
    origins,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Function,
    SyntaxView,
    names_in,
)

_ACTIVATION = re.compile(
    r"/\s*\(\s*1(?:\.0?)?f?\s*\+\s*(?:__)?exp2?f?\s*\(\s*-|/\s*\(\s*(?:__expf|expf)\s*\(\s*-[^;]*\)\s*\+\s*1|\b\w*(?:silu|gelu|relu|swish|sigmoid|softplus|tanh_approx)\w*\s*\(|\blog1pf?\s*\(\s*(?:__)?expf?"
)


@detector("fused-epilogue")
def fused_epilogue(view: SyntaxView) -> Iterator[Finding]:
    """Bias, activation, gate, skip or scale applied to a kernel's result before it is stored."""
    for function in device_functions(view):
        body = view.text(function.body)
        if not _has_main_work(view, function, body):
            continue
        for match in _ACTIVATION.finditer(body):
            yield Finding(
                line_at(view, function.body.start + match.start()),
                f"activation {' '.join(match.group().split())[:40]} on the result",
                0.85,
            )
        yield from _added_operands(view, function, body)
        yield from _chosen_operands(view, function)
        yield from _added_tiles(view, function)
        yield from _started_sums(view, function)


_MAIN = re.compile(
    r"shfl|[rR]educe|mma|gemm|[sS]can\b|Scan\w*\(|__syncthreads|rsqrtf|warp_\w+\(|\bsum\s*\+=|acc\w*\s*\[?[^;=]*\+=",
    re.IGNORECASE,
)


def _has_main_work(view: SyntaxView, function: Function, body: str) -> bool:
    """Whether the function computes more than an element-wise map: only then can it have an epilogue."""
    outputs = global_names(view, function)
    accumulates = any(
        a.operator == "+="
        and a.name not in outputs
        and view.loops_around(a.span.start)
        and not patterns.fullmatch(r"\s*[\w:.*+()\s]*(?:[sS]tride|Dim|SIZE|Size)\w*[\w.\s*+()]*", a.value)
        and patterns.search(r"\*|\[", a.value)
        for a in view.within(function, view.assignments)
    )
    return bool(accumulates or _MAIN.search(body))


def _added_operands(view: SyntaxView, function: Function, body: str) -> Iterator[Finding]:
    """Stores whose value brings in a bias, residual, gate, skip or scale operand."""
    operand = r"(?i)\b(?:bias\w*|b_bias|residual\w*|gate\w*|skip\w*|d_(?:vals?|skip)|mul|add|beta|alpha|res)\b"
    for a in view.within(function, view.assignments):
        found = patterns.search(operand, a.value)
        indexed = not a.declares and ("[" in a.target or "." in a.target or "*" in a.target)
        if not found:
            continue
        if a.operator in ("+=", "*=") and patterns.fullmatch(r"(?i)bias\w*|residual\w*|gate\w*|skip\w*", found.group()):
            yield Finding(a.span, f"{a.target.strip()[:30]} {a.operator} {found.group()}: fused into the kernel", 0.72)
        elif indexed and patterns.search(
            rf"[*+]\s*{re.escape(found.group())}\b|\b{re.escape(found.group())}\b(?:\[[^\]]*\])?\s*[*+]", a.value
        ):
            yield Finding(a.span, f"stores {' '.join(a.value.split())[:60]}: {found.group()} is fused", 0.7)


def _added_tiles(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """The same in a language of tile operations: add or multiply in place with a bias, residual or gate tile."""
    for call in view.within(function, view.calls(r"add|mul|add_row|mul_row|add_col|mul_col")):
        named = call.arguments and patterns.match(r"(?i)\w*(?:bias|residual|resid|skip|gate)\w*", call.arguments[-1])
        if named and len(call.arguments) == 3 and call.arguments[0].strip() == call.arguments[1].strip():
            yield Finding(call.span, f"{call.path} brings in {call.arguments[-1].strip()}", 0.75)


def _started_sums(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """A sum that starts from a bias instead of zero."""
    local = view.within(function, view.assignments)
    sums = {a.name for a in local if a.feeds_itself and "+" in a.operator + a.value and view.loops_around(a.span.start)}
    for a in local:
        if a.name in sums and a.operator == "=" and not a.feeds_itself:
            bias = [
                n for n in origins(view, a.value, function, depth=2) if patterns.search(r"(?i)bias", n.split(".")[-1])
            ]
            if bias:
                yield Finding(a.span, f"{a.name} starts from {bias[0]}", 0.78)


def _chosen_operands(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """A flag or pointer named for a bias, residual or gate decides whether a store takes one more operand in."""
    for branch in view.within(function, view.branches):
        named = patterns.search(r"(?i)\b\w*(?:residual|bias|gate|skip)\w*\b", branch.condition)
        if branch.expression or not named:
            continue
        for a in view.inside(branch.consequence, view.assignments):
            stored = "[" in a.target and not a.declares
            if (
                stored
                and patterns.search(r"(?i)\+|\*|add|mul|fma", a.operator + a.value)
                and a.name in names_in(a.value)
            ):
                yield Finding(a.span, f"{a.target.strip()[:30]} takes one more operand in where {named.group()}", 0.72)
