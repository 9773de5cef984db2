"""The running softmax of fused attention, found by its data flow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    EXPONENTIAL,
    called,
    definitions,
    origins,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Assignment,
    Call,
    Function,
    Span,
    SyntaxView,
    paths_in,
)

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
        for call in view.within(function, view.calls(EXPONENTIAL)):
            if not call.arguments or not states:
                continue
            pair = _previous_and_current(view, function, call, states)
            if pair and (scaled := _rescaled(view, function, call)):
                span = _around(view, function, call.span, scaled[1])
                yield Finding(
                    span, f"exp({pair[0]} - {pair[1]}) rescales {scaled[0]} when the running maximum grows", 0.93
                )
        yield from _rescaled_tiles(view, function)
    yield from called(view, r"\w*softmax_rescale\w*|rescale_(?:o|acc|out)\w*|online_softmax\w*", "calls {0}", 0.8)


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
        if not branch.expression and patterns.search(r"[<>]", branch.condition):
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
        plain = patterns.sub(r"\*\s*[\w.]*(?i:scale|log2|temp)\w*\s*$", "", a.value)
        if patterns.fullmatch(r"[\w.\s\[\]()>*+-]*", plain) and not patterns.search(r"[*+/]", plain):
            found.setdefault(a.name, set()).update(paths_in(patterns.sub(r"\[[^\]]*\]|\([^)]*\)", "", plain)))
    for call in view.within(function, view.calls(r"copy")):
        if len(call.arguments) == 2:
            for target in paths_in(call.arguments[1]):
                found.setdefault(target, set()).update(paths_in(call.arguments[0]))
    return found


def _previous_and_current(view: SyntaxView, function: Function, call: Call, states: set[str]) -> tuple[str, str] | None:
    text = " ".join(call.arguments)
    parts = patterns.split(r"(?<![-eE(,*])\s*-\s*(?![->])", text)
    if len(parts) < 2:
        single = definitions(view, text.strip(), function) if patterns.fullmatch(r"\w+", text.strip()) else []
        parts = patterns.split(r"(?<![-eE(,*])\s*-\s*(?![->])", single[0].value) if single else parts
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
        for p in paths_in(patterns.sub(r"\[[^\]]*\]", "", text))
        if not patterns.fullmatch(r"\w*(?:max|min|fm|mul|fma|inf|scale|INFINITY)\w*", p)
        or "_" in p
        or p in ("m", "max")
    } | {p for p in paths_in(patterns.sub(r"\[[^\]]*\]", "", text)) if patterns.search(r"(?i)max", p)}


def _succeeds(view: SyntaxView, function: Function, previous: str, current: str, copies: dict[str, set[str]]) -> bool:
    """Whether ``current`` is the later state of what ``previous`` held: same storage, or stored back to it."""
    held = copies.get(previous, set()) | {previous}
    reached = origins(view, current, function, depth=2) | {current}
    stored_back = any(a.name in held and paths_in(a.value) & reached for a in view.within(function, view.assignments))
    return (bool(held & reached) and (stored_back or bool(held & reached - {previous}))) or stored_back


def _rescaled(view: SyntaxView, function: Function, call: Call) -> tuple[str, Span] | None:
    """What the factor from this call multiplies, with the place."""
    local = view.within(function, view.assignments)
    factors = {a.name for a in local if a.span.holds(call.span.start) and a.operator == "="}
    for a in local:
        inline = a.span.holds(call.span.start)
        uses = a.sources & factors
        multiplied = patterns.search(r"\*\s*(?:\w+\s*\(|\w)|\bfma", a.value) and (inline or uses)
        if (a.operator == "*=" and (inline or uses)) or (multiplied and (a.feeds_itself or _sum_like(a))):
            return a.name, a.span
    return None


def _sum_like(a: Assignment) -> bool:
    return bool(patterns.search(r"(?i)sum|acc|^l\w*|^d\w*|out|^o\w*|denom|norm", a.name)) and a.value.count("*") >= 1


def _around(view: SyntaxView, function: Function, *spans: Span) -> Span:
    start, end = min(s.start for s in spans), max(s.end for s in spans)
    return Span(start, end) if view.line(end) - view.line(start) <= 40 else spans[0]
