"""Algorithms of attention, mixture of experts and fused kernels, found by their data flow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest.queries import called, definitions, device_functions, origins
from ingest.registry import Finding, detector
from ingest.syntax import Assignment, Branch, Call, Function, Span, SyntaxView, names_in, paths_in

_EXPONENTIAL = r"(?:__expf|expf?|exp2f?|hexp2?|ptx_exp2|\w*exp2?_\w*|fast_exp\w*|__exp2f|ex2|\w+_exp2?f?)"
_MAXIMUM = re.compile(
    r"\b(?:f?max[fs]?|fmaxf|__hmax2?|std::max|cuda::std::max|\w*[mM]ax\w*|reduce_max\w*)\s*(?:<[^;()]*>)?\s*\("
)


@detector("online-softmax")
def online_softmax(view: SyntaxView) -> Iterator[Finding]:
    """A running maximum whose change rescales what was summed so far.

    Found as data flow: exp(previous - current), where ``current`` is a maximum that grew from
    ``previous``, and that factor multiplying a sum or an accumulator (Milakov and Gimelshein, 2018).
    """
    for function in view.functions:
        states = _maximum_states(view, function)
        for call in view.within(function, view.calls(_EXPONENTIAL)):
            if not call.arguments or not states:
                continue
            pair = _previous_and_current(view, function, call, states)
            if pair and (scaled := _rescaled(view, function, call)):
                span = _around(view, function, call.span, scaled[1])
                yield Finding(
                    span, f"exp({pair[0]} - {pair[1]}) rescales {scaled[0]} when the running maximum grows", 0.93
                )
        yield from _rescaled_tiles(view, function)
    yield from called(view, r"softmax_rescale_o|rescale_o|online_softmax\w*", "calls {0}", 0.8)


def _rescaled_tiles(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """The same in a language of tile operations: difference of maxima, exponential, product into the state."""
    if not view.within(function, view.calls(r"row_max|max_row|col_max")):
        return
    for call in view.within(function, view.calls(r"exp2?")):
        factor = call.arguments[0].strip() if call.arguments else ""
        if len(call.arguments) != 2 or not view.loops_around(call.span.start):
            continue
        shifted = [
            c for c in view.within(function, view.calls(r"sub")) if c.arguments and c.arguments[0].strip() == factor
        ]
        scaled = [
            c
            for c in view.within(function, view.calls(r"mul|mul_row|mul_col"))
            if len(c.arguments) == 3 and c.arguments[2].strip() == factor and c.arguments[0] == c.arguments[1]
        ]
        if shifted and scaled:
            why = f"{call.name}({factor}) of a difference of maxima rescales {scaled[0].arguments[0]}"
            yield Finding(_around(view, function, shifted[0].span, scaled[-1].span), why, 0.88)


def _maximum_states(view: SyntaxView, function: Function) -> set[str]:
    """Paths that hold a maximum which is updated from itself or replaces a smaller one."""
    states = set()
    local = view.within(function, view.assignments)
    for a in local:
        if _MAXIMUM.search(a.value):
            states.add(a.name)
    for branch in view.within(function, view.branches):
        if not branch.expression and re.search(r"[<>]", branch.condition):
            compared = paths_in(branch.condition)
            replaced = view.inside(branch.consequence, view.assignments)
            states |= {a.name for a in replaced if a.name in compared and not a.declares and a.operator == "="}
    for call in view.within(function, view.calls(r"reduce_max\w*|rowmax\w*")):
        if len(call.arguments) > 1:
            states |= paths_in(call.arguments[1])
    # A state stored back from the new maximum is a maximum too.
    for _ in range(2 if states else 0):
        states |= {a.name for a in local if a.sources and a.sources <= states and "." in a.name}
    return states


def _copies(view: SyntaxView, function: Function) -> dict[str, set[str]]:
    """For each name, the paths it is a plain copy of (through assignment or a tensor copy)."""
    found: dict[str, set[str]] = {}
    for a in view.within(function, view.assignments):
        if re.fullmatch(r"[\w.\s\[\]()>*+-]*", a.value) and not re.search(r"[*+/]", a.value):
            found.setdefault(a.name, set()).update(paths_in(re.sub(r"\[[^\]]*\]|\([^)]*\)", "", a.value)))
    for call in view.within(function, view.calls(r"copy")):
        if len(call.arguments) == 2:
            for target in paths_in(call.arguments[1]):
                found.setdefault(target, set()).update(paths_in(call.arguments[0]))
    return found


def _previous_and_current(view: SyntaxView, function: Function, call: Call, states: set[str]) -> tuple[str, str] | None:
    text = " ".join(call.arguments)
    parts = re.split(r"(?<![-eE(,*])\s*-\s*(?![->])", text)
    if len(parts) < 2:
        single = definitions(view, text.strip(), function) if re.fullmatch(r"\w+", text.strip()) else []
        parts = re.split(r"(?<![-eE(,*])\s*-\s*(?![->])", single[0].value) if single else parts
    if len(parts) < 2:
        return None
    left, right = _direct(parts[0]), _direct("-".join(parts[1:]))
    copies = _copies(view, function)
    for previous in left:
        grown = {s for s in copies.get(previous, set()) if s in states} | ({previous} & states)
        for current in right - {previous}:
            reached = origins(view, current, function, depth=2) | copies.get(current, set())
            maxima = reached & states
            follows = any(
                previous in a.sources or grown & a.sources or a.name in grown
                for a in view.within(function, view.assignments)
                if a.name in maxima
            )
            if (
                grown
                and maxima
                and (follows or grown & maxima)
                and _succeeds(view, function, previous, current, copies)
            ):
                return previous, current
    return None


def _direct(text: str) -> set[str]:
    return {
        p
        for p in paths_in(re.sub(r"\[[^\]]*\]", "", text))
        if not re.fullmatch(r"\w*(?:max|min|fm|mul|fma|inf|scale|INFINITY)\w*", p) or "_" in p or p in ("m", "max")
    } | {p for p in paths_in(re.sub(r"\[[^\]]*\]", "", text)) if re.search(r"(?i)max", p)}


def _succeeds(view: SyntaxView, function: Function, previous: str, current: str, copies: dict[str, set[str]]) -> bool:
    """Whether ``current`` is the later state of what ``previous`` held: same storage, or stored back to it."""
    held = copies.get(previous, set()) | {previous}
    reached = origins(view, current, function, depth=2) | {current}
    stored_back = any(a.name in held and paths_in(a.value) & reached for a in view.within(function, view.assignments))
    return (bool(held & reached) and (stored_back or bool(held & reached - {previous}))) or stored_back


def _rescaled(view: SyntaxView, function: Function, call: Call) -> tuple[str, Span] | None:
    """What the factor from this call multiplies, with the place."""
    local = view.within(function, view.assignments)
    factors = {a.name for a in local if a.span.holds(call.span.start) and not a.feeds_itself}
    for a in local:
        inline = a.span.holds(call.span.start)
        uses = names_in(a.value) & factors
        multiplied = re.search(r"\*\s*(?:\w+\s*\(|\w)|\bfma", a.value) and (inline or uses)
        if (a.operator == "*=" and (inline or uses)) or (multiplied and (a.feeds_itself or _sum_like(a))):
            return a.name, a.span
    return None


def _sum_like(a: Assignment) -> bool:
    return bool(re.search(r"(?i)sum|acc|^l\w*|^d\w*|out|^o\w*|denom|norm", a.name)) and a.value.count("*") >= 1


def _around(view: SyntaxView, function: Function, *spans: Span) -> Span:
    start, end = min(s.start for s in spans), max(s.end for s in spans)
    return Span(start, end) if view.line(end) - view.line(start) <= 40 else spans[0]


_CAUSAL = re.compile(r"(?i)causal|\blocal\b|is_local|window|autoregressive")


@detector("causal-block-skipping")
def causal_block_skipping(view: SyntaxView) -> Iterator[Finding]:
    """A bound of the loop over key or query blocks that leaves out the fully masked ones."""
    for function in device_functions(view):
        bounds = {
            path for loop in view.within(function, view.loops) for path in origins(view, loop.header, function, depth=1)
        }
        for a in view.within(function, view.assignments):
            if a.name not in bounds or not re.search(r"\bmin\b|\bmax\b|ceil_div|cdiv|/|\?", a.value):
                continue
            guard = _guarding(view, a)
            reason = guard or (_CAUSAL.search(a.value) and a.value)
            limited = re.search(r"(?i)block|tile|row|\bm_|q_|query|kBlockM|end|start", a.value)
            if reason and limited and not re.search(r"(?i)mask|-\s*INF", a.name):
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
        leaves = re.match(r"[\s{]*(?:break|continue)\s*;", view.text(branch.consequence))
        blocks = re.search(
            r"(?i)(?:block|tile|start|begin|first)\w*[^&|]*(?:>|<)[^&|]*(?:block|tile|end|last|row|q)\w*",
            branch.condition,
        )
        if leaves and _CAUSAL.search(branch.condition) and blocks:
            yield Finding(branch.span, f"skips the block where {branch.condition}", 0.88)


@detector("grouped-query-sharing")
def grouped_query_sharing(view: SyntaxView) -> Iterator[Finding]:
    """A query head mapped to the key/value head that its group shares."""
    ratio = (
        r"(?:\w+(?:\.|->|::))?\b(?:h_h_k_ratio|\w*(?:gqa|GQA|group_?size|queries_per_kv\w*"
        r"|q_per_kv|heads?_per_kv\w*|num_queries_per_kv\w*|heads_ratio|head_ratio|kv_mul|qhead_per_khead\w*|n_rep|q_heads_per_kv\w*|group_num|kv_group\w*)\w*)\b"
    )
    head = r"\b\w*(?:head|bidh|[hH]_?idx|qo_head|q_head)\w*\b"
    for match in view.search(rf"{head}[^;,/]{{0,20}}\s*/\s*\(?\s*{ratio}"):
        yield Finding(_line(view, match.start()), f"{' '.join(match.group().split())} is the shared head", 0.93)
    for match in view.search(
        rf"{head}[^;,/]{{0,12}}\s*/\s*\(\s*\w*(?:num_?heads?|n_?heads?|nheads|q_?heads)\w*\s*/\s*\w*(?:kv|_k\b)\w*\s*\)"
    ):
        yield Finding(_line(view, match.start()), f"{' '.join(match.group().split())} is the shared head", 0.92)
    for a in view.assignments:
        owner = view.function_at(a.span.start)
        if (
            owner is None
            or not owner.on_device
            or not re.search(r"(?i)kv_?head|head_?kv|k_head|bidh_?kv?|hk\b", a.name)
        ):
            continue
        divided = re.search(r"/\s*([\w.]+)", a.value)
        if (
            divided
            and re.search(r"(?i)head|bidh|\bh\b", a.value)
            and not re.search(r"(?i)ngroups|dim", divided.group())
        ):
            yield Finding(a.span, f"{a.name} = {' '.join(a.value.split())[:60]}", 0.88)
    for match in view.search(r"\b(?:qo?_head\w*|head_idx)\s*=\s*kv_head\w*\s*\*\s*\w+\s*\+\s*\w+"):
        yield Finding(
            _line(view, match.start()), f"{' '.join(match.group().split())}: the group's queries read one head", 0.88
        )
    for match in view.search(r"\bpacked_qo\w*\b[^;]*\b(?:group_size|gqa)\w*|\bPackGQA\w*\s*(?:<|\b)"):
        yield Finding(_line(view, match.start()), f"queries of a group packed together: {match.group()[:50]}", 0.8)
    for match in view.search(r"\bgroup_size\.divmod\s*\(|\bqhead_per_khead_divmod\b"):
        yield Finding(_line(view, match.start()), f"{match.group()} splits a packed index into query and head", 0.85)


def _line(view: SyntaxView, offset: int) -> Span:
    start = view.code.rfind("\n", 0, offset) + 1
    end = view.code.find("\n", offset)
    text = view.code[start : end if end > 0 else len(view.code)]
    return Span(start + len(text) - len(text.lstrip()), start + len(text.rstrip()))


@detector("recomputation")
def recomputation(view: SyntaxView) -> Iterator[Finding]:
    """A backward pass that rebuilds forward values from inputs and a stored statistic."""
    for function in device_functions(view):
        around = f"{function.name} {view.text(function.head)}"
        backward = re.search(r"(?i)bwd|backward|_back\b|_back_|dq_?dk|dqdk|grad", around)
        if not backward:
            continue
        for call in view.within(function, view.calls(rf"{_EXPONENTIAL}|scale_apply_exp2\w*")):
            if re.search(r"(?i)lse|logsumexp|softmax_lse|row_stat", " ".join(call.arguments)):
                yield Finding(call.span, f"{call.path} rebuilds probabilities from the stored log-sum-exp", 0.9)
        forward = next(iter(view.calls(r"\w*(?:scan_fwd|forward|silu|softplus)\w*|InclusiveScan\w*")), None)
        if (
            forward
            and function.body.holds(forward.span.start)
            and re.search(r"(?i)dout|dy\b|grad", view.text(function.body))
            and re.search(r"(?i)recomput|delta_a_exp|InclusiveScan", view.text(function.body))
        ):
            yield Finding(forward.span, f"{forward.path} runs the forward step again inside {function.name}", 0.6)


@detector("topk-in-registers")
def topk_in_registers(view: SyntaxView) -> Iterator[Finding]:
    """The largest k chosen by a warp or thread: repeated arg-max with the winner struck out, or insertion."""
    for loop in view.loops:
        owner = view.function_at(loop.span.start)
        if (
            owner is None
            or not owner.on_device
            or not re.search(r"(?i)\btop_?k\b|\bk\b|topk|num_experts_per|nexpert_used|n_expert_used", loop.condition)
        ):
            continue
        text = view.text(loop.body)
        argmax = re.search(
            r"(?i)if\s*\([^;{]*(\w*(?:val|max|logit|score|prob)\w*)(?:\[[^\]]*\])?\s*>\s*\w*(?:max|best|val)\w*", text
        )
        struck = re.search(r"=\s*(?:-\s*(?:\w*INF\w*|\w*inf\w*|1e?\d*|10000\.f?|FLT_MAX)|static_cast<\w+>\(-)", text)
        shuffled = re.search(r"(?i)shfl", text)
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
            re.search(
                r"(?i)sorted_token|sorted_ids|sorted_row|permuted_(?:row|token)|expert_first_token|token_map", a.target
            )
            and "[" in a.target
        ):
            yield Finding(a.span, f"writes {a.name} in expert order", 0.88)
        elif (
            re.search(r"(?i)tokens?_cnts?|expert_counts?|cumsum|expert_offsets?|expert_ids", a.target)
            and "[" in a.target
            and re.search(r"(?i)expert", view.text(owner.head) + view.text(owner.body))
            and re.search(r"(?i)cumsum|offset|prefix", view.text(owner.body))
        ):
            yield Finding(a.span, f"counts and offsets of tokens per expert: {a.name}", 0.75)
    yield from called(
        view, r"moe_align_block_size\w*(?<!kernel)|sort_?(?:by)?_?experts?\w*|build_expert_maps\w*", "calls {0}", 0.5
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
                _line(view, function.body.start + match.start()),
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
