"""Algorithms of attention, mixture of experts and fused kernels, found by their data flow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import EXPONENTIAL, device_functions, line_at, origins
from ingest.registry import Finding, detector
from ingest.syntax import Assignment, Branch, Function, Span, SyntaxView

_CAUSAL = re.compile(r"(?i)causal|is_local|window|autoregressive")


@detector("causal-block-skipping")
def causal_block_skipping(view: SyntaxView) -> Iterator[Finding]:
    """A bound of the loop over key or query blocks that leaves out the fully masked ones."""
    for function in device_functions(view):
        headers = [loop.header for loop in view.within(function, view.loops)]
        returned = r"\breturn\b([^;]*(?i:block|tile|max|min|end)\w*[^;]*);"
        headers += [m.group(1) for m in view.search(returned, function.body)]
        bounds = {path for header in headers for path in origins(view, header, function, depth=1)}
        for a in view.within(function, view.assignments):
            if a.name not in bounds or not patterns.search(r"\bmin\b|\bmax\b|ceil_div|cdiv|/|\?", a.value):
                continue
            guard = _guarding(view, a)
            reason = guard or (_CAUSAL.search(a.value) and a.value)
            limited = patterns.search(r"(?i)block|tile|row|\bm_|q_|query|kBlockM|end|start", a.value)
            if reason and limited and not patterns.search(r"(?i)mask|-\s*INF", a.name):
                yield Finding(
                    _guard_span(view, a),
                    f"{a.name} ends the loop early where {' '.join(str(reason).split())[:60]}",
                    0.88,
                )
        yield from _skipping_branches(view, function)


def _guarding(view: SyntaxView, a: Assignment) -> str:
    for branch in _causal_branches(view, a):
        inside = branch.consequence.holds(a.span.start) or a.span.holds(branch.span.start)
        if inside and not view.text(branch.span).startswith("!"):
            return branch.condition
    return ""


def _causal_branches(view: SyntaxView, a: Assignment) -> list[Branch]:
    around = view.within(view.function_at(a.span.start), view.branches)
    return [branch for branch in around if _CAUSAL.search(branch.condition)]


def _guard_span(view: SyntaxView, a: Assignment) -> Span:
    holding = [b.span for b in _causal_branches(view, a) if b.consequence.holds(a.span.start)]
    return Span(holding[-1].start, a.span.end) if holding else a.span


def _skipping_branches(view: SyntaxView, function: Function) -> Iterator[Finding]:
    for branch in view.within(function, view.branches):
        if branch.expression or not view.loops_around(branch.span.start):
            continue
        leaves = patterns.match(r"[\s{]*(?:break|continue)\s*;", view.text(branch.consequence))
        blocks = patterns.search(
            r"(?i)(?:block|tile|start|begin|first)\w*[^&|]*(?:>|<)[^&|]*(?:block|tile|end|last|row|q)\w*",
            branch.condition,
        )
        if leaves and _CAUSAL.search(branch.condition) and blocks:
            yield Finding(branch.span, f"skips the block where {branch.condition}", 0.88)


@detector("grouped-query-sharing")
def grouped_query_sharing(view: SyntaxView) -> Iterator[Finding]:
    """A query head mapped to the key/value head that its group shares."""
    counted = r"gqa|GQA|group_?(?:size|num)|per_(?:kv|k_?head)|[rR]atio|kv_(?:mul|group)|n_rep"
    ratio = rf"(?:\w+(?:\.|->|::))?\b\w*(?:{counted})\w*\b"
    shares = patterns.search(counted, view.code)
    head = r"\b\w*(?:head|bidh|[hH]_?idx|qo_head|q_head)\w*\b"
    for match in view.search(rf"{head}[^;,/]{{0,20}}\s*/\s*\(?\s*{ratio}") if shares else ():
        yield Finding(line_at(view, match.start()), f"{' '.join(match.group().split())} is the shared head", 0.93)
    for match in view.search(
        rf"{head}[^;,/]{{0,12}}\s*/\s*\(\s*\w*(?:num_?heads?|n_?heads?|nheads|q_?heads)\w*\s*/\s*\w*(?:kv|_k\b)\w*\s*\)"
    ):
        yield Finding(line_at(view, match.start()), f"{' '.join(match.group().split())} is the shared head", 0.92)
    for a in view.assignments:
        owner = view.function_at(a.span.start)
        if (
            owner is None
            or not owner.on_device
            or not patterns.search(r"(?i)kv_?head|head_?kv|k_head|bidh_?kv?|hk\b", a.name)
        ):
            continue
        divided = patterns.search(r"/\s*([\w.]+)", a.value)
        if (
            divided
            and patterns.search(r"(?i)head|bidh|\bh\b", a.value)
            and not patterns.search(r"(?i)ngroups|dim", divided.group())
        ):
            yield Finding(a.span, f"{a.name} = {' '.join(a.value.split())[:60]}", 0.88)
    for match in view.search(r"\b(?:qo?_head\w*|head_idx)\s*=\s*kv_head\w*\s*\*\s*\w+\s*\+\s*\w+"):
        yield Finding(
            line_at(view, match.start()), f"{' '.join(match.group().split())}: the group's queries read one head", 0.88
        )
    for match in view.search(r"\bpacked_qo\w*\b[^;]*\b(?:group_size|gqa)\w*|\b[pP]ack_?(?:GQA|gqa)\w*"):
        yield Finding(line_at(view, match.start()), f"queries of a group packed together: {match.group()[:50]}", 0.8)
    for match in view.search(r"\b\w*(?:group_size|heads?_per_k\w*)(?:_?div\w*)?\s*\.\s*div\w*\s*\("):
        yield Finding(line_at(view, match.start()), f"{match.group()} splits a packed index into query and head", 0.85)


@detector("recomputation")
def recomputation(view: SyntaxView) -> Iterator[Finding]:
    """A backward pass that rebuilds forward values from inputs and a stored statistic."""
    for function in device_functions(view):
        around = f"{function.name} {view.text(function.head)}"
        backward = patterns.search(r"(?i)bwd|backward|_back\b|_back_|dq_?dk|dqdk|grad", around)
        if not backward:
            continue
        for call in view.within(function, view.calls(rf"{EXPONENTIAL}|\w*exp2\w*")):
            if patterns.search(r"(?i)lse|logsumexp|softmax_lse|row_stat", " ".join(call.arguments)):
                yield Finding(call.span, f"{call.path} rebuilds probabilities from the stored log-sum-exp", 0.9)
        forward = next(iter(view.calls(r"\w*(?:scan_fwd|forward|silu|softplus)\w*|InclusiveScan\w*")), None)
        if (
            forward
            and function.body.holds(forward.span.start)
            and patterns.search(r"(?i)dout|dy\b|grad", view.text(function.body))
            and patterns.search(r"(?i)recomput|InclusiveScan", view.text(function.body))
        ):
            yield Finding(forward.span, f"{forward.path} runs the forward step again inside {function.name}", 0.6)
