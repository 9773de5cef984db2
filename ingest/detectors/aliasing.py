"""One region of shared memory used for several purposes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ingest.queries import (
    SHARED_NAME,
    device_functions,
    mentions,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Function,
    Span,
    SyntaxView,
    names_in,
)


@detector("shared-memory-aliasing")
def shared_memory_aliasing(view: SyntaxView) -> Iterator[Finding]:
    """One region of shared memory for several purposes; disjoint carving is not."""
    for function in device_functions(view):
        yield from _same_offset_views(view, function)
        yield from _retyped_base(view, function)
    yield from _overlaid_tensors(view)
    for aggregate in view.aggregates:
        text = view.text(aggregate.span)
        if aggregate.keyword == "union" and re.search(r"(?i)smem|shared|TempStorage|cosize|Storage", text):
            yield Finding(aggregate.span, "a union of shared-memory storages", 0.85)
        elif aggregate.keyword == "union" and re.search(rf"__shared__[^;]*\b{aggregate.name or '$^'}\b", view.code):
            yield Finding(aggregate.span, f"union {aggregate.name} is declared __shared__", 0.9)
    yield from mentions(view, r"\b__shared__\s+union\b", "{0}", 0.9)
    yield from mentions(view, r"\bShare_Q_K_smem\b|\bshare_\w*smem\w*\b", "{0} overlays two tiles", 0.8)
    yield from _staging_reuse(view)


def _same_offset_views(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """Two names for the same base and offset of one raw buffer."""
    around = [*view.within_variables(function), *view.file_variables]
    given = [v for v in view.parameters_of(function) if SHARED_NAME.search(v.name)]
    raw = {v.name for v in around if v.shared} | {v.name for v in given}
    raw = {v.name for v in [*around, *given] if v.name in raw and re.search(r"\bchar\b|uint8_t|byte", v.type)}
    if not raw:
        return
    seen: dict[str, list[tuple[str, Span]]] = defaultdict(list)
    for a in view.within(function, view.assignments):
        match = re.search(r"reinterpret_cast\s*<[^;]*?>\s*\(\s*(.*)\)\s*$", a.value.strip(), re.DOTALL) or re.search(
            r"\(\s*[\w:]+\s*\*\s*\)\s*(.*)$", a.value.strip(), re.DOTALL
        )
        if a.declares and match and names_in(match.group(1)) & raw:
            seen[re.sub(r"\s", "", match.group(1))].append((a.name, a.span))
    for offset, views in seen.items():
        if len({name for name, _ in views}) > 1:
            span = Span(views[0][1].start, views[-1][1].end)
            yield Finding(span, f"{', '.join(name for name, _ in views)} all start at {offset}", 0.9)


def _overlaid_tensors(view: SyntaxView) -> Iterator[Finding]:
    """A CuTe tensor on another tensor's shared memory that is not a view of that tensor."""
    for match in view.search(
        r"\bTensor\s+s(\w+)\s*=\s*(?:cute::)?make_tensor\s*\(([^;]*?)(?<![.\w])s([A-Z]\w*)\.data\(\)([^;]*);"
    ):
        name, before, base, behind = match.groups()
        shifted = re.match(r"\s*\+", behind) and ":" not in behind
        if not shifted and not name.startswith(base) and not before.strip().endswith("+"):
            yield Finding(Span(*match.span()), f"s{name} lies on the memory of s{base}", 0.85)


def _retyped_base(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """An array used with its own type and, through a cast of its base, with another."""
    for array in view.within_variables(function):
        if not array.shared or re.search(r"\bchar\b|uint8_t", array.type):
            continue
        base = rf"(?:{array.name}|&\s*{array.name}(?:\s*\[\s*0\s*\])+)"
        cast = next(
            view.search(
                rf"\(\s*(?P<t>\w+)\s*\*\s*\)\s*{base}(?!\s*\[)|reinterpret_cast\s*<\s*(?P<u>\w+)\s*\*\s*>\s*\(\s*{base}",
                function.body,
            ),
            None,
        )
        direct = next(view.search(rf"(?<!&)\b{array.name}\s*\[\s*(?!0\s*\])", function.body), None)
        kind = (cast.group("t") or cast.group("u")) if cast else ""
        if (
            cast
            and direct
            and not re.search(rf"\b{kind}\b", array.type)
            and re.search(r"\bhalf\b|\bfloat\b|bfloat|int8", kind)
        ):
            yield Finding(Span(*cast.span()), f"{array.name} is also used as {kind}", 0.8)


def _staging_reuse(view: SyntaxView) -> Iterator[Finding]:
    """A tile's memory passed on for another purpose: the buffer itself given to an output stage."""
    for function in view.kernels:
        raw = [v for v in view.within_variables(function) if v.shared and not any(v.dimensions)]
        for array in raw:
            views = [
                a
                for a in view.within(function, view.assignments)
                if re.search(rf"\b{array.name}\b", a.value) and a.declares and "+" not in a.value
            ]
            later = [
                c
                for c in view.within(function, view.calls(r"\w*(?:write|store|epilogue)\w*"))
                if any(re.match(rf"\s*&?\s*{array.name}\b", x) for x in c.arguments)
            ]
            if views and later:
                yield Finding(later[-1].span, f"{later[-1].path} reuses {array.name}, which held {views[0].name}", 0.75)
