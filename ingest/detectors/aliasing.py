"""One region of shared memory used for several purposes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    SHARED_NAME,
    device_functions,
    mentions,
    statement_at,
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
        if aggregate.keyword == "union" and patterns.search(r"(?i)smem|shared|TempStorage|cosize|Storage", text):
            yield Finding(aggregate.span, "a union of shared-memory storages", 0.85)
        elif aggregate.keyword == "union" and patterns.search(
            rf"__shared__[^;]*\b{aggregate.name or '$^'}\b", view.code
        ):
            yield Finding(aggregate.span, f"union {aggregate.name} is declared __shared__", 0.9)
    yield from mentions(view, r"\b__shared__\s+union\b", "{0}", 0.9)
    yield from _chosen_overlay(view)
    for function in device_functions(view):
        yield from _base_reuse(view, function)
    yield from _staging_reuse(view)


def _chosen_overlay(view: SyntaxView) -> Iterator[Finding]:
    """A size that is the larger of two tiles' sizes: they take turns in the same bytes."""
    size = r"[\w:]*(?:[sS]mem|SMEM|[sS]hared)\w*"
    for match in view.search(
        rf"\b(?:std::|cute::|cutlass::)?(?:const_|constexpr_|cute_)?max\s*\(\s*({size})\s*,\s*({size})\s*\)"
    ):
        if match.group(1) != match.group(2) and not patterns.search(r"(?i)align|stage", match.group(0)):
            yield Finding(Span(*match.span()), f"{' '.join(match.group().split())}: one region holds either", 0.82)


def _base_reuse(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """A buffer carved into parts whose first bytes are later written through its own name."""
    for array in view.within_variables(function):
        if not array.shared or array.dimensions not in ((), ("",)):
            continue
        base = re.escape(array.name)
        views = [
            a
            for a in view.within(function, view.assignments)
            if a.declares and patterns.search(rf"\b{base}\b", a.value)
        ]
        whole = [
            a
            for a in views
            if patterns.fullmatch(rf"\s*(?:\([\w\s:]+\*\)|reinterpret_cast<[^>]*>)?\s*\(?\s*{base}\s*\)?\s*", a.value)
        ]
        carved = [
            a
            for a in view.within(function, view.assignments)
            if a.declares
            and whole
            and a not in whole
            and "+" in a.value
            and names_in(a.value) & {array.name, *(w.name for w in whole)}
        ]
        direct = [
            a
            for a in view.within(function, view.assignments)
            if a.name == array.name and "[" in a.target and not a.declares
        ]
        if whole and carved and direct and direct[0].span.start > whole[0].span.end:
            yield Finding(
                direct[0].span, f"writes over {array.name}, which holds {whole[0].name} and {carved[0].name}", 0.8
            )


def _same_offset_views(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """Two names for the same base and offset of one raw buffer."""
    around = [*view.within_variables(function), *view.file_variables]
    given = [v for v in view.parameters_of(function) if SHARED_NAME.search(v.name)]
    raw = {v.name for v in around if v.shared} | {v.name for v in given}
    raw = {v.name for v in [*around, *given] if v.name in raw and patterns.search(r"\bchar\b|uint8_t|byte", v.type)}
    if not raw:
        return
    seen: dict[str, list[tuple[str, Span]]] = defaultdict(list)
    for a in view.within(function, view.assignments):
        match = patterns.search(
            r"reinterpret_cast\s*<[^;]*?>\s*\(\s*(.*)\)\s*$", a.value.strip(), re.DOTALL
        ) or patterns.search(r"\(\s*[\w:]+\s*\*\s*\)\s*(.*)$", a.value.strip(), re.DOTALL)
        if a.declares and match and names_in(match.group(1)) & raw:
            seen[patterns.sub(r"\s", "", match.group(1))].append((a.name, a.span))
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
        shifted = patterns.match(r"\s*\+", behind) and ":" not in behind
        if not shifted and not name.startswith(base) and not before.strip().endswith("+"):
            yield Finding(Span(*match.span()), f"s{name} lies on the memory of s{base}", 0.85)


def _retyped_base(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """An array used with its own type and, through a cast of its address, with another."""
    for array in view.within_variables(function):
        unsized = array.dimensions in ((), ("",))
        if not array.shared or unsized or patterns.search(r"\bchar\b|uint8_t", array.type):
            continue
        base = rf"(?:{array.name}|&\s*{array.name}(?:\s*\[[^\]]*\])+)"
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
            and not patterns.search(rf"\b{kind}\b", array.type)
            and patterns.fullmatch(r"half|float|\w*bfloat\w*|u?int(?:8|16|32)?(?:_t)?|unsigned|double", kind)
            and ("int" not in kind + array.type or _written_through(view, function, cast.start()))
        ):
            yield Finding(Span(*cast.span()), f"{array.name} is also used as {kind}", 0.8)


def _written_through(view: SyntaxView, function: Function, offset: int) -> bool:
    """Whether the pointer made by a cast is written, or is itself the target of a store or a callee's output."""
    statement = view.text(statement_at(view, offset))
    if patterns.search(r"\*\s*\)[^=;]*\[[^\]]*\]\s*=[^=]", statement):
        return True
    name = patterns.match(r"\s*(?:[\w:]+\s+)*[*&]*\s*([A-Za-z_]\w*)\s*=", statement)
    if not name:
        return bool(patterns.search(r"\w\s*\(", statement))
    written = any(a.name == name.group(1) and not a.declares for a in view.within(function, view.assignments))
    return written or bool(patterns.search(rf"[(,]\s*{name.group(1)}\b", view.text(function.body)))


def _staging_reuse(view: SyntaxView) -> Iterator[Finding]:
    """A tile's memory passed on for another purpose: the buffer itself given to an output stage."""
    for function in view.kernels:
        raw = [v for v in view.within_variables(function) if v.shared and not any(v.dimensions)]
        for array in raw:
            views = [
                a
                for a in view.within(function, view.assignments)
                if patterns.search(rf"\b{array.name}\b", a.value) and a.declares and "+" not in a.value
            ]
            later = [
                c
                for c in view.within(function, view.calls(r"\w*(?:write|store|epilogue)\w*"))
                if any(patterns.match(rf"\s*&?\s*{array.name}\b", x) for x in c.arguments)
            ]
            if views and later:
                yield Finding(later[-1].span, f"{later[-1].path} reuses {array.name}, which held {views[0].name}", 0.75)
