"""Uses of shared memory: tiles, aliases, swizzles, padding, dynamic allocation; and register tiles."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    SHARED_NAME,
    definitions,
    device_functions,
    first,
    global_names,
    mentions,
    origins,
    shared_names,
)
from ingest.registry import Finding, detector
from ingest.syntax import Function, Span, SyntaxView, names_in, paths_in


@detector("dynamic-shared-memory")
def dynamic_shared_memory(view: SyntaxView) -> Iterator[Finding]:
    """An ``extern __shared__`` array, or the attribute that allows more than the default."""
    yield from first(
        mentions(view, r"\bextern\s+(?:[\w:]+(?:\s*\([^()]*\))?\s+)*?__shared__[^;]*;", "{0}", 0.97),
        mentions(
            view,
            r"\bcudaFuncAttributeMaxDynamicSharedMemorySize\b|\bhipFuncAttributeMaxDynamicSharedMemorySize\b|\bCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES\b",
            "opts in to large allocations by {0}",
            0.9,
        ),
        mentions(view, r"\bSharedMemory\s*<\s*\w+\s*>\s*\w*", "{0} wraps the dynamic allocation", 0.6),
    )


@detector("shared-memory-tiling")
def shared_memory_tiling(view: SyntaxView) -> Iterator[Finding]:
    """Global data staged in shared memory and read again by other threads; reduction scratch is not."""
    for function in device_functions(view):
        yield from _staged_tiles(view, function)
    yield from first(
        mentions(view, r"\bmake_tensor\s*\(\s*(?:cute::)?make_smem_ptr[^;]*;", "tile in shared memory: {0}", 0.85),
        mentions(
            view, r"\busing\s+SmemLayout\w*\s*=\s*[^;]*tile_to_shape[^;]*;", "shared-memory tile layout {0}", 0.85
        ),
        mentions(view, r"\bst_(?:bf|hf|fl|fp8\w*)\s*<[^;]*;", "shared tile {0}", 0.8),
    )


_COPY_CALL = r"\w*(?:cp_async|memcpy_async|pred_load|load_tile|load_async|copy_global_to_shared)\w*"


def _staged_tiles(view: SyntaxView, function: Function) -> Iterator[Finding]:
    shared = shared_names(view, function)
    yield from _tile_loader(view, function)
    body = view.text(function.body)
    if not patterns.search(r"__syncthreads|\bsync\s*\(|barrier|__syncwarp|wait", body):
        return
    globals_ = global_names(view, function)
    for a in view.within(function, view.assignments):
        if a.name not in shared or a.operator != "=" or a.declares or not patterns.search(r"\[|\*", a.target):
            continue
        if any(other.feeds_itself for other in definitions(view, a.name, function)):
            continue  # combined in place: scratch of a reduction or scan, no tile
        if _is_global_load(view, function, a.value, globals_) and _read_elsewhere(
            view, function, a.name, shared, a.span
        ):
            yield Finding(
                a.span,
                f"{a.name} stages global data ({' '.join(a.value.split())[:60]}) and is read back after a barrier",
                0.9,
            )
    arrays = _shared_arrays(view, function, shared)
    for call in view.within(function, view.calls(r"st_\w+|store\w*|memcpy")):
        filled = names_in(call.arguments[0]) & arrays if call.arguments else set()
        if filled and any(names_in(argument) & globals_ for argument in call.arguments[1:]):
            yield Finding(call.span, f"{call.path} stages global data in {', '.join(sorted(filled))}", 0.85)
    for call in view.within(function, view.calls(_COPY_CALL)):
        destination = names_in(" ".join(call.arguments[:2])) & shared
        if destination:
            yield Finding(call.span, f"{call.path} fills {', '.join(sorted(destination))} from global memory", 0.85)


def _tile_loader(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """A function that copies rows of a tile, in a loop, to the shared address that it was given."""
    given = {
        v.name
        for v in view.parameters_of(function)
        if (v.is_pointer or "uint32" in v.type) and (SHARED_NAME.search(v.name) or patterns.search(r"(?i)tile", v.name))
    }
    for call in view.within(function, view.calls(_COPY_CALL)):
        if given and call.arguments and view.loops_around(call.span.start):
            target = origins(view, call.arguments[0], function, depth=2) & given
            if target:
                yield Finding(call.span, f"{call.path} fills the rows of {', '.join(sorted(target))}", 0.7)


_COMPUTES = re.compile(r"(?:max|min|sum|reduce|exp)\w*\s*\(")


def _reads_through_view(view: SyntaxView, function: Function, text: str, globals_: frozenset[str]) -> bool:
    """Whether an expression asks an object made of a global pointer for an element."""
    asked = patterns.match(r"\s*(\w+)\.\w+\s*\(", text)
    made = asked and patterns.search(rf"\b\w+\s+{asked.group(1)}\s*\(([^;]*)\)\s*;", view.text(function.body))
    return bool(made) and bool(names_in(made.group(1) if made else "") & globals_)


def _shared_arrays(view: SyntaxView, function: Function, shared: frozenset[str]) -> set[str]:
    """Names of shared memory declared in the function, without addresses and parameters."""
    return {v.name for v in view.within_variables(function) if v.name in shared}


def _is_global_load(view: SyntaxView, function: Function, value: str, globals_: frozenset[str]) -> bool:
    """Whether a stored value is a copy of global data, directly or through one local."""

    def reads_global(text: str) -> bool:
        return any(
            patterns.search(
                rf"\b{re.escape(g)}\s*\[|\bload\w*\s*\(\s*{re.escape(g)}\b|\*\s*(?:\([^()]*\)|reinterpret_cast\s*<[^>]*>)?\s*\(?&?\s*\(?\s*{re.escape(g)}\b|__ld\w+\s*\([^;]*\b{re.escape(g)}\b",
                text,
            )
            for g in names_in(text) & globals_
        ) or bool(
            patterns.search(r"\bparams?\s*\.\s*\w+\s*\[", text) or _reads_through_view(view, function, text, globals_)
        )

    if _COMPUTES.search(value):
        return False
    whole = patterns.fullmatch(r"\s*([A-Za-z_]\w*)(?:\.\w)?\s*", value)
    if whole and any(
        patterns.search(r"\bld\.global", statement.text)
        and patterns.search(rf'"=[a-z]"\s*\(\s*{whole.group(1)}\b', view.text(statement.span))
        for statement in view.inside(function.body, view.assembly)
    ):
        return True
    if reads_global(value):
        return True
    for name in paths_in(value):
        sources = definitions(view, name, function)
        computed = any(s.feeds_itself or _COMPUTES.search(s.value) for s in sources)
        if not computed and any(reads_global(s.value) for s in sources):
            return True
    return False


def _read_elsewhere(view: SyntaxView, function: Function, name: str, shared: frozenset[str], written: Span) -> bool:
    """Whether an array is read at another index than the one it was written at."""
    stem = {name}
    for a in definitions(view, name, function):
        if a.declares:
            stem |= names_in(a.value) & shared
    written_index = patterns.sub(
        r"\s", "", "".join(patterns.findall(r"\[[^\[\]]*\]", view.text(written).split("=")[0]))
    )
    for alias in stem:
        for match in view.search(rf"\b{re.escape(alias)}\b", Span(function.body.start, function.body.end)):
            if written.holds(match.start()):
                continue
            rest = view.code[match.end() : match.end() + 200]
            index = patterns.match(r"(?:\s*\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])+", rest)
            if index:
                behind = rest[index.end() :].lstrip()
                if patterns.match(r"=[^=]", behind):
                    continue
                if patterns.sub(r"\s", "", index.group()) != written_index or not written_index:
                    return True
            elif not patterns.match(r"\s*=[^=]", rest) and match.start() > written.end:
                return True
    return False
