"""What a kernel does to its results before it stores them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest.queries import (
    device_functions,
    line_at,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Function,
    SyntaxView,
)

_ACTIVATION = re.compile(
    r"/\s*\(\s*1(?:\.0?)?f?\s*\+\s*(?:__)?exp2?f?\s*\(\s*-|/\s*\(\s*(?:__expf|expf)\s*\(\s*-[^;]*\)\s*\+\s*1|\b(?:silu|gelu|relu|swish|sigmoid|softplus|tanh_approx)\w*\s*\(|\blog1pf?\s*\(\s*(?:__)?expf?"
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


_MAIN = re.compile(
    r"shfl|[rR]educe|mma|gemm|[sS]can\b|Scan\w*\(|__syncthreads|rsqrtf|warp_\w+\(|\bsum\s*\+=|acc\w*\s*\[?[^;=]*\+=",
    re.IGNORECASE,
)


def _has_main_work(view: SyntaxView, function: Function, body: str) -> bool:
    """Whether the function computes more than an element-wise map: only then can it have an epilogue."""
    accumulates = any(
        a.operator == "+="
        and view.loops_around(a.span.start)
        and not re.fullmatch(r"\s*[\w:.*+()\s]*(?:[sS]tride|Dim|SIZE|Size)\w*[\w.\s*+()]*", a.value)
        and re.search(r"\*|\[", a.value)
        for a in view.within(function, view.assignments)
    )
    return bool(accumulates or _MAIN.search(body))


def _added_operands(view: SyntaxView, function: Function, body: str) -> Iterator[Finding]:
    """Stores whose value brings in a bias, residual, gate, skip or scale operand."""
    operand = r"(?i)\b(?:bias\w*|b_bias|residual\w*|gate\w*|skip\w*|D_val|D_vals|d_skip|mul|add|beta|alpha|res)\b"
    for a in view.within(function, view.assignments):
        found = re.search(operand, a.value)
        indexed = "[" in a.target or "." in a.target or "*" in a.target
        if not found:
            continue
        if (
            a.operator in ("+=", "*=")
            and re.fullmatch(r"(?i)bias\w*|residual\w*|gate\w*|skip\w*", found.group())
            and "delta_bias" not in found.group()
        ):
            yield Finding(a.span, f"{a.target.strip()[:30]} {a.operator} {found.group()}: fused into the kernel", 0.72)
        elif (
            indexed
            and re.search(
                rf"[*+]\s*{re.escape(found.group())}\b|\b{re.escape(found.group())}\b(?:\[[^\]]*\])?\s*[*+]", a.value
            )
            and not re.search(r"(?i)delta_bias", a.value)
        ):
            yield Finding(a.span, f"stores {' '.join(a.value.split())[:60]}: {found.group()} is fused", 0.7)
