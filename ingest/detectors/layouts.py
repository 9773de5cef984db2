"""Layouts of shared memory against bank conflicts, and transposed operands."""

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
    origins,
    shared_names,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Function,
    Span,
    SyntaxView,
    names_in,
)


@detector("shared-memory-swizzle")
def shared_memory_swizzle(view: SyntaxView) -> Iterator[Finding]:
    """Addresses permuted by XOR, or Swizzle<> layouts, against bank conflicts."""
    yield from mentions(view, r"(?<!\w)Swizzle\s*<\s*[^>]+>", "layout {0}", 0.92)
    yield from called(
        view,
        r"\w*(?:swizzled?_?(?:offset|address|addr|index|idx|col)|permuted?_?(?:offset|address|addr))\w*",
        "calls {0}",
        0.8,
    )
    xor = r"[\w)\]]\s*\^(?!=)\s*[\w(]"
    for function in device_functions(view):
        shared = shared_names(view, function)
        for match in view.search(xor, function.body):
            start = max(view.code.rfind(c, 0, match.start()) for c in ";{}") + 1
            end = view.code.find(";", match.end())
            statement = view.code[start:end]
            if not _permutes(view, function, statement, match.start() - start, shared, start):
                continue
            yield Finding(
                Span(start + len(statement) - len(statement.lstrip()), end),
                f"XOR in the address {' '.join(statement.split())[:70]}",
                0.85,
            )


def _places_shared(view: SyntaxView, function: Function, offset: int, shared: frozenset[str]) -> bool:
    """Whether what the lambda at an offset returns ends up in an index of shared memory."""
    maker = next((name for name, span in view.lambdas(function).items() if span.holds(offset)), "")
    if not maker:
        return False
    made = {maker}
    for _ in range(2):
        made |= {a.name for a in view.within(function, view.assignments) if names_in(a.value) & made}
    body = view.text(function.body)
    indexed = [
        m.group(1)
        for s in shared
        for m in patterns.finditer(rf"\b{re.escape(s)}\s*\[((?:[^\[\]]|\[[^\]]*\])*)\]", body)
    ]
    return any(names_in(index) & made for index in indexed)


def _permutes(
    view: SyntaxView, function: Function, statement: str, offset: int, shared: frozenset[str], start: int
) -> bool:
    """Whether an XOR permutes an index: a row's low bits mixed into a column, ending in an address."""
    around = statement[max(0, offset - 60) : offset + 60]
    if patterns.search(
        r"__shfl|\^\s*1\s*[;)\]]|seed|hash|rng|philox|(?<!\w)lane\w*\s*\^|\^\s*(?:mask|0x[0-9a-fA-F]{5,})", around
    ):
        return False
    if patterns.search(r"\^[^;]*(?:!=|==)|(?:!=|==)[^;]*\^", around):
        return False
    masked = patterns.search(r"\^\s*\(?[^;^]*(?:&|%|>>|/)|(?:&|%|>>|/)[^;^]*\)?\s*\^", around)
    if not masked:
        return False
    named = patterns.search(r"(?i)swizzl|permut", function.name)
    target = patterns.match(r"\s*(?:const\s+)?(?:[\w:]+\s+)*?(\w+)\s*(?:\[[^=]*)?=(?!=)", statement)
    if not target and statement.lstrip().startswith("return"):
        return bool(named) or _places_shared(view, function, start, shared)
    subscripted = any(
        patterns.search(rf"\b{re.escape(s)}\b[^;]*\[[^;]*\^", statement) for s in shared & names_in(statement)
    )
    feeds = False
    for place in view.occurrences(target.group(1), function.body) if target else ():
        begin = max(view.code.rfind(c, function.body.start, place) for c in ";={") + 1
        feeds = feeds or bool(names_in(view.code[begin:place]) & shared)
    return bool(named or subscripted or feeds)


@detector("bank-conflict-padding")
def bank_conflict_padding(view: SyntaxView) -> Iterator[Finding]:
    """Shared arrays with rows a little longer than the tile."""
    for array in view.variables:
        if not array.shared or not array.dimensions:
            continue
        last = array.dimensions[-1]
        if len(array.dimensions) >= 2:
            padded = patterns.search(
                r"\+\s*(\(?\s*(?:[1248]|16)\b(?!\s*\*)|\w*(?:PAD|SKEW|[Pp]ad|[Ss]kew|NElts|VEC|Vec)\w*)", last
            )
            halo = any(patterns.search(r"\+\s*\(?\s*[1-9]\b", d) and len(d) < 40 for d in array.dimensions[:-1])
        else:
            padded = patterns.search(
                r"\*\s*\(\s*[\w:]+\s*\+\s*(?:[1248]|16|\w*(?:PAD|SKEW|[Pp]ad)\w*)\s*\)|\(\s*[\w:]+\s*\+\s*(?:[1248]|16|\w*(?:PAD|[Pp]ad)\w*)\s*\)\s*\*",
                last,
            )
            halo = False
        if padded and not halo:
            yield Finding(
                Span(array.start, array.end), f"rows of {array.name} are padded: [{']['.join(array.dimensions)}]", 0.92
            )
    yield from _padded_strides(view)
    for match in view.search(
        r"\b(?:cute::)?(?:make_)?[sS]tride\s*[<(][^;]*?\bInt\s*<\s*[\w:]+\s*\+\s*(?:[1248]|16)\s*>[^;]*?[>)]"
    ):
        yield Finding(Span(*match.span()), f"layout with a padded {' '.join(match.group().split())[:60]}", 0.85)


def _padded_strides(view: SyntaxView) -> Iterator[Finding]:
    """A constant row length a little over the row, named for shared memory or used in its indices."""
    for match in view.search(
        r"\b(?:constexpr|const|static)\b[^;=]*\b(\w*(?:stride|STRIDE|Stride|pitch|PITCH|ld[abc]?|LD)\w*)\s*=\s*[^;]*\+\s*(?:[1248]|16|\w*(?:PAD|SKEW|[Pp]ad|[Ss]kew)\w*)\s*;"
    ):
        named = patterns.search(r"(?i)s(?:h|m)em|shared|PAD|SKEW", match.group())
        if named or _strides_shared(view, match.group(1), match.start()):
            why = f"padded row length {' '.join(match.group().split())[:70]}"
            yield Finding(Span(*match.span()), why, 0.75)


def _strides_shared(view: SyntaxView, name: str, offset: int) -> bool:
    """Whether a constant scales an index of shared memory."""
    function = view.function_at(offset)
    if function is None:
        return False
    indices = patterns.finditer(r"\b(\w+)\s*\[((?:[^\[\]]|\[[^\]]*\])*)\]", view.text(function.body))
    shared = shared_names(view, function)
    return any(m.group(1) in shared and name in origins(view, m.group(2), function) for m in indices)


@detector("transposed-operand-layout")
def transposed_operand_layout(view: SyntaxView) -> Iterator[Finding]:
    """An operand seen or stored transposed on purpose, so that its accesses are contiguous."""
    yield from first(
        assembled(view, r"(?:ldmatrix|stmatrix)\.\S*\.trans", "PTX {0} transposes the fragment", 0.85),
        mentions(view, r"\bSM75_U\w*LDSM_T\b", "copy atom {0} transposes", 0.85),
        called(view, r"\w*ldmatrix\w*trans\w*", "calls {0}", 0.85),
        mentions(view, r"\b\w*Layout\w*(?:[Tt]ransposed?|[VKQ]t)\w*", "{0}: a transposed view of shared memory", 0.9),
        mentions(
            view,
            r"\b\w*layout_\w*trans\w*\s*[=)]|\bmake_tensor\s*\([^;]*[tT]rans\w*[^;]*;",
            "{0}: a transposed view",
            0.85,
        ),
    )
    yield from _transposing_stores(view)


def _transposing_stores(view: SyntaxView) -> Iterator[Finding]:
    """A shared 2-D array written column by column from rows of global memory, read along rows."""
    arrays = {v.name for v in view.variables if v.shared and len(v.dimensions) >= 2}
    for assignment in view.assignments:
        if assignment.name not in arrays or assignment.operator != "=":
            continue
        indices = patterns.findall(r"\[([^\[\]]*)\]", assignment.target)[-2:]
        loaded = patterns.search(r"\w\s*\[([^\[\]]*)\]", assignment.value)
        if len(indices) != 2 or not loaded:
            continue
        fast = patterns.search(r"\+\s*([A-Za-z_]\w*)\s*$", loaded.group(1))
        if fast and fast.group(1) in names_in(indices[0]) and fast.group(1) not in names_in(indices[1]):
            yield Finding(assignment.span, f"stores {assignment.name} transposed: {assignment.target.strip()}", 0.6)
