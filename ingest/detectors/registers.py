"""Tiles that each thread keeps in registers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    device_functions,
    first,
    mentions,
)
from ingest.registry import Finding, detector
from ingest.syntax import (
    Function,
    Span,
    SyntaxView,
)


@detector("register-tiling")
def register_tiling(view: SyntaxView) -> Iterator[Finding]:
    """Each thread keeps several results or operands in registers, walked by constant loops."""
    for function in device_functions(view):
        yield from _local_arrays(view, function)
    yield from first(
        mentions(view, r"\bpartition_fragment_[ABC]\s*\([^;]*;", "fragment {0}", 0.85),
        mentions(view, r"\b(?:wmma::)?fragment\s*<[^;]*>\s*\w+\s*\[[^;]*;", "array of fragments {0}", 0.9),
        _register_tiles(view),
        mentions(
            view,
            r"\bmake_fragment_like\s*\([^;]*;|\bmake_tensor\s*<\s*(?!bool)[\w:]+\s*>\s*\([^;]*;|\bdecltype\s*\(\s*make_tensor\s*<\s*\w+\s*>[^;]*;",
            "register tensor {0}",
            0.8,
        ),
        _member_tiles(view),
        _accumulating_vectors(view),
    )


def _register_tiles(view: SyntaxView) -> Iterator[Finding]:
    """Variables and members of a tile language's register types; an alias counts where something has its type."""
    for match in view.search(r"\b(?:using\s+(\w+)\s*=[^;]*?)?\brt_(?:fl|bf|hf)\s*<[^;]*;"):
        alias = match.group(1)
        if alias is None or len(patterns.findall(rf"\b{alias}\b(?!\s*=)", view.code)) > 0:
            yield Finding(Span(*match.span()), f"register tile {match.group().strip()}", 0.88)


def _accumulating_vectors(view: SyntaxView) -> Iterator[Finding]:
    """A local vector of floats whose elements a loop keeps adding to."""
    for variable in view.variables:
        owner = view.function_at(variable.start)
        if owner is None or not patterns.match(r"(?:\w+::)?vec_t\s*<\s*float", variable.type):
            continue
        for a in view.within(owner, view.assignments):
            if (
                a.name == variable.name
                and "[" in a.target
                and a.feeds_itself
                and len(view.loops_around(a.span.start)) > 1
            ):
                yield Finding(
                    Span(variable.start, variable.end), f"{variable.name} accumulates in a vector of registers", 0.72
                )
                break


def _member_tiles(view: SyntaxView) -> Iterator[Finding]:
    """A state kept in a struct of arrays or vectors that device code updates element by element."""
    for variable in view.file_variables:
        if variable.shared:
            continue
        inside = [a for a in view.aggregates if a.span.holds(variable.start)]
        arrayed = variable.dimensions and _numeric(variable.type) and "1" not in variable.dimensions
        vector = patterns.match(r"(?:\w+::)?vec_t\s*<\s*float", variable.type)
        if not inside or not (arrayed or vector):
            continue
        update = next(view.search(rf"\b{re.escape(variable.name)}\s*(?:\[[^\]]*\]\s*)+(?:[-+*]?=)[^=]"), None)
        if update and view.loops_around(update.start()) and "atomic" not in variable.type:
            yield Finding(Span(variable.start, variable.end), f"member {variable.name} is a tile of registers", 0.75)


def _numeric(kind: str) -> bool:
    return bool(
        patterns.search(
            r"\b(?:float\d?|double|half2?|__half2?|__nv_bfloat16\d?|nv_bfloat16\d?|u?int(?:8|16|32)?(?:_t)?\d?|unsigned|T|\w*acc\w*_t|\w+_t|\w+_type|Element\w*|O|A)\b",
            kind,
        )
    )


_PLAIN = re.compile(r"\b(?:const|volatile|constexpr|typename|struct|alignas\s*\([^)]*\)|__align__\s*\([^)]*\))\s*")


def _generic(view: SyntaxView, kind: str) -> bool:
    """Whether a type is a template parameter, or an alias or fragment type of values."""
    name = _PLAIN.sub("", kind).split("<")[0].split("::")[-1].strip()
    if patterns.fullmatch(r"\w*(?:[vV]ec|[fF]rag|Array|[pP]ack)\w*|[A-Z]\w*T", name):
        return True
    return bool(name) and bool(patterns.search(rf"\b(?:typename|class)\s+{re.escape(name)}\s*[,>=]", view.code))


_SUBSCRIPTS = re.compile(r"\s*(?:\[[^\]]*\]\s*)*[,)]")


def _is_argument(view: SyntaxView, place: int, name: str) -> bool:
    """Whether an array, or a part of it, stands alone between the commas or brackets of a call."""
    before = view.code[max(0, place - 8) : place].rstrip()[-1:]
    return before in ("(", ",") and bool(_SUBSCRIPTS.match(view.code, place + len(name)))


def _local_arrays(view: SyntaxView, function: Function) -> Iterator[Finding]:
    for array in view.within_variables(function):
        if (
            array.shared
            or not array.dimensions
            or array.is_pointer
            or not (_numeric(array.type) or _generic(view, array.type))
            or "static" in array.type
        ):
            continue
        if all(patterns.fullmatch(r"\s*1?\s*", d) for d in array.dimensions):
            continue
        places = view.occurrences(array.name, function.body)
        uses = [
            place
            for place in places
            if view.code[place + len(array.name) : place + len(array.name) + 8].lstrip()[:1] == "["
        ]
        loops = {
            loop.span.start
            for u in uses
            for loop in view.loops_around(u)[-1:]
            if function.body.holds(loop.span.start) and loop.variable
        }
        passed = [place for place in places if _is_argument(view, place, array.name)]
        whole = [p for p in passed if p not in uses]
        handed_on = len(whole) >= 2
        if len(loops) >= 2 or (loops and passed) or (passed and len(array.dimensions) >= 2) or handed_on:
            what = "][".join(" ".join(d.split()) for d in array.dimensions)
            confidence = (
                0.85
                + 0.05 * (len(array.dimensions) > 1)
                + 0.03 * bool(patterns.search(r"(?i)acc|frag|out|sum", array.name))
            )
            yield Finding(
                Span(array.start, array.end),
                f"each thread keeps {array.name}[{what}] ({array.type}) across loops",
                confidence,
            )
