"""Uses of shared memory: tiles, aliases, swizzles, padding, dynamic allocation; and register tiles."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ingest.queries import (
    SHARED_NAME,
    called,
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
        mentions(view, r"\bextern\s+__shared__[^;]*;", "{0}", 0.97),
        mentions(view, r"\bextern\s+(?:__align__|alignas)\s*\([^)]*\)\s*__shared__[^;]*;", "{0}", 0.97),
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


_COPY_CALL = r"\w*(?:cp_async|memcpy_async|pred_load|load_tile|load_async|load_shared|copy_global_to_shared)\w*"


def _staged_tiles(view: SyntaxView, function: Function) -> Iterator[Finding]:
    shared = shared_names(view, function)
    yield from _tile_loader(view, function)
    body = view.text(function.body)
    if not re.search(r"__syncthreads|\bsync\s*\(|barrier|__syncwarp|wait", body):
        return
    globals_ = global_names(view, function)
    for a in view.within(function, view.assignments):
        if a.name not in shared or a.operator != "=" or a.declares or not re.search(r"\[|\*", a.target):
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
    for call in view.within(function, view.calls(r"st_vec|store\w*|st_shared\w*|memcpy")):
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
        if (v.is_pointer or "uint32" in v.type) and (SHARED_NAME.search(v.name) or re.search(r"(?i)tile", v.name))
    }
    for call in view.within(function, view.calls(_COPY_CALL)):
        if given and call.arguments and view.loops_around(call.span.start):
            target = origins(view, call.arguments[0], function, depth=2) & given
            if target:
                yield Finding(call.span, f"{call.path} fills the rows of {', '.join(sorted(target))}", 0.7)


_COMPUTES = re.compile(r"(?:max|min|sum|reduce|exp)\w*\s*\(")


def _shared_arrays(view: SyntaxView, function: Function, shared: frozenset[str]) -> set[str]:
    """Names of shared memory declared in the function, without addresses and parameters."""
    return {v.name for v in view.within_variables(function) if v.name in shared}


def _is_global_load(view: SyntaxView, function: Function, value: str, globals_: frozenset[str]) -> bool:
    """Whether a stored value is a copy of global data, directly or through one local."""

    def reads_global(text: str) -> bool:
        return any(
            re.search(
                rf"\b{re.escape(g)}\s*\[|\bload\w*\s*\(\s*{re.escape(g)}\b|\*\s*(?:\([^()]*\)|reinterpret_cast\s*<[^>]*>)?\s*\(?&?\s*\(?\s*{re.escape(g)}\b|__ld\w+\s*\([^;]*\b{re.escape(g)}\b",
                text,
            )
            for g in names_in(text) & globals_
        ) or bool(re.search(r"\bparams?\s*\.\s*\w+\s*\[", text))

    if _COMPUTES.search(value):
        return False
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
    written_index = re.sub(r"\s", "", "".join(re.findall(r"\[[^\[\]]*\]", view.text(written).split("=")[0])))
    for alias in stem:
        for match in view.search(rf"\b{re.escape(alias)}\b", Span(function.body.start, function.body.end)):
            if written.holds(match.start()):
                continue
            rest = view.code[match.end() : match.end() + 200]
            index = re.match(r"(?:\s*\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])+", rest)
            if index:
                behind = rest[index.end() :].lstrip()
                if re.match(r"=[^=]", behind):
                    continue
                if re.sub(r"\s", "", index.group()) != written_index or not written_index:
                    return True
            elif not re.match(r"\s*=[^=]", rest) and match.start() > written.end:
                return True
    return False


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


@detector("shared-memory-swizzle")
def shared_memory_swizzle(view: SyntaxView) -> Iterator[Finding]:
    """Addresses permuted by XOR, or Swizzle<> layouts, against bank conflicts."""
    yield from mentions(view, r"(?<!\w)Swizzle\s*<\s*[^>]+>", "layout {0}", 0.92)
    yield from called(
        view,
        r"\w*swizzled?_(?:offset|address|addr|index|idx)\w*|get_permuted_offset\w*|advance_offset_by_\w+",
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
            if not _permutes(view, function, statement, match.start() - start, shared):
                continue
            yield Finding(
                Span(start + len(statement) - len(statement.lstrip()), end),
                f"XOR in the address {' '.join(statement.split())[:70]}",
                0.85,
            )


def _permutes(view: SyntaxView, function: Function, statement: str, offset: int, shared: frozenset[str]) -> bool:
    """Whether an XOR permutes an index: a row's low bits mixed into a column, ending in an address."""
    around = statement[max(0, offset - 60) : offset + 60]
    if re.search(
        r"__shfl|\^\s*1\s*[;)\]]|seed|hash|rng|philox|(?<!\w)lane\w*\s*\^|\^\s*(?:mask|0x[0-9a-fA-F]{5,})", around
    ):
        return False
    if re.search(r"\^[^;]*(?:!=|==)|(?:!=|==)[^;]*\^", around):
        return False
    masked = re.search(r"\^\s*\(?[^;^]*(?:&|%|>>|/)|(?:&|%|>>|/)[^;^]*\)?\s*\^", around)
    if not masked:
        return False
    named = re.search(r"(?i)swizzl|permut", function.name)
    target = re.match(r"\s*(?:const\s+)?(?:[\w:]+\s+)*?(\w+)\s*=", statement)
    subscripted = any(re.search(rf"\b{re.escape(s)}\b[^;]*\[[^;]*\^", statement) for s in shared & names_in(statement))
    feeds = target and any(
        re.search(rf"\b{re.escape(s)}\b[^;=]*\b{re.escape(target.group(1))}\b", view.text(function.body))
        for s in shared
    )
    return bool(named or subscripted or feeds)


@detector("bank-conflict-padding")
def bank_conflict_padding(view: SyntaxView) -> Iterator[Finding]:
    """Shared arrays with rows a little longer than the tile."""
    for array in view.variables:
        if not array.shared or not array.dimensions:
            continue
        last = array.dimensions[-1]
        if len(array.dimensions) >= 2:
            padded = re.search(
                r"\+\s*(\(?\s*(?:[1248]|16)\b(?!\s*\*)|\w*(?:PAD|SKEW|[Pp]ad|[Ss]kew|NElts|VEC|Vec)\w*)", last
            )
            halo = any(re.search(r"\+\s*\(?\s*[1-9]\b", d) and len(d) < 40 for d in array.dimensions[:-1])
        else:
            padded = re.search(
                r"\*\s*\(\s*[\w:]+\s*\+\s*(?:[1248]|16|\w*(?:PAD|SKEW|[Pp]ad)\w*)\s*\)|\(\s*[\w:]+\s*\+\s*(?:[1248]|16|\w*(?:PAD|[Pp]ad)\w*)\s*\)\s*\*",
                last,
            )
            halo = False
        if padded and not halo:
            yield Finding(
                Span(array.start, array.end), f"rows of {array.name} are padded: [{']['.join(array.dimensions)}]", 0.92
            )
    for match in view.search(
        r"\b(?:constexpr|const|static)\b[^;=]*\b\w*(?:stride|STRIDE|Stride|pitch|ld[abc]?|LD)\w*\s*=\s*[^;]*\+\s*(?:[1248]|\w*(?:PAD|SKEW|[Pp]ad|[Ss]kew)\w*)\s*;"
    ):
        if re.search(r"(?i)s(?:h|m)em|shared", match.group()) or re.search(r"(?i)PAD|SKEW", match.group()):
            yield Finding(Span(*match.span()), f"padded row length {' '.join(match.group().split())[:70]}", 0.75)


@detector("register-tiling")
def register_tiling(view: SyntaxView) -> Iterator[Finding]:
    """Each thread keeps several results or operands in registers, walked by constant loops."""
    for function in device_functions(view):
        yield from _local_arrays(view, function)
    yield from first(
        mentions(view, r"\bpartition_fragment_[ABC]\s*\([^;]*;", "fragment {0}", 0.85),
        mentions(view, r"\b(?:wmma::)?fragment\s*<[^;]*>\s*\w+\s*\[[^;]*;", "array of fragments {0}", 0.9),
        mentions(view, r"\brt_(?:fl|bf|hf)\s*<[^;]*;", "register tile {0}", 0.88),
        mentions(
            view,
            r"\bmake_fragment_like\s*\([^;]*;|\bmake_tensor\s*<\s*(?!bool)[\w:]+\s*>\s*\([^;]*;|\bdecltype\s*\(\s*make_tensor\s*<\s*\w+\s*>[^;]*;",
            "register tensor {0}",
            0.8,
        ),
        _member_tiles(view),
        _accumulating_vectors(view),
    )


def _accumulating_vectors(view: SyntaxView) -> Iterator[Finding]:
    """A local vector of floats whose elements a loop keeps adding to."""
    for variable in view.variables:
        owner = view.function_at(variable.start)
        if owner is None or not re.match(r"(?:\w+::)?vec_t\s*<\s*float", variable.type):
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
        vector = re.match(r"(?:\w+::)?vec_t\s*<\s*float", variable.type)
        if not inside or not (arrayed or vector):
            continue
        update = next(view.search(rf"\b{re.escape(variable.name)}\s*(?:\[[^\]]*\]\s*)+(?:[-+*]?=)[^=]"), None)
        if update and view.loops_around(update.start()) and "atomic" not in variable.type:
            yield Finding(Span(variable.start, variable.end), f"member {variable.name} is a tile of registers", 0.75)


def _numeric(kind: str) -> bool:
    return bool(
        re.search(
            r"\b(?:float\d?|double|half2?|__half2?|__nv_bfloat16\d?|nv_bfloat16\d?|u?int(?:8|16|32)?(?:_t)?\d?|unsigned|T|scalar_t|input_t|weight_t|scan_t|\w*acc\w*_t|\w+_t|Element\w*|floatX|O|A)\b",
            kind,
        )
    )


def _local_arrays(view: SyntaxView, function: Function) -> Iterator[Finding]:
    body = view.text(function.body)
    for array in view.within_variables(function):
        if (
            array.shared
            or not array.dimensions
            or array.is_pointer
            or not _numeric(array.type)
            or "static" in array.type
        ):
            continue
        if all(re.fullmatch(r"\s*1?\s*", d) for d in array.dimensions):
            continue
        name = re.escape(array.name)
        uses = [m.start() + function.body.start for m in re.finditer(rf"\b{name}\s*\[", body)]
        loops = {
            loop.span.start
            for u in uses
            for loop in view.loops_around(u)[-1:]
            if function.body.holds(loop.span.start) and loop.variable
        }
        passed = re.search(rf"[(,]\s*{name}\s*(?:\[[^\]]*\]\s*)*[,)]", body)
        if len(loops) >= 2 or (loops and passed) or (passed and len(array.dimensions) >= 2):
            what = "][".join(" ".join(d.split()) for d in array.dimensions)
            confidence = (
                0.85 + 0.05 * (len(array.dimensions) > 1) + 0.03 * bool(re.search(r"(?i)acc|frag|out|sum", array.name))
            )
            yield Finding(
                Span(array.start, array.end),
                f"each thread keeps {array.name}[{what}] ({array.type}) across loops",
                confidence,
            )
