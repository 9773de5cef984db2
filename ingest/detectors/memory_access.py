"""How global memory is read and written: width, cache path, predication, indirection."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest.queries import assembled, called, definitions, first, mentions, origins
from ingest.registry import Finding, detector
from ingest.syntax import Function, Span, SyntaxView, names_in

_WIDE_BUILTIN = (
    r"(?:(?:float|u?int|u?long)[24]|double2|u?longlong2|float3x4|uint128_t|__int128|ulonglong4|longlong4|short4|"
    r"ushort4|char8|uchar8|half8|bf168|int32x4_t|Float4|Half8)"
)
_POINTER_CAST = re.compile(
    r"reinterpret_cast\s*<\s*(?P<a>[^;()]*?)\s*[*&]\s*>\s*\(|\(\s*(?P<b>(?:const\s+)?[A-Za-z_]\w*(?:\s+const)?)\s*\*\s*\)\s*[&(\w]"
)


@detector("vectorized-access")
def vectorized_access(view: SyntaxView) -> Iterator[Finding]:
    """Accesses of 64 bits or more by vector pointers, copy atoms, block loads or PTX."""
    wide = _wide_types(view)
    for match in view.search(_POINTER_CAST):
        kind = (match.group("a") or match.group("b")).replace("const", "").strip()
        base = re.sub(r"<.*", "", kind).split("::")[-1].strip()
        owner = view.function_at(match.start())
        on_host = owner is not None and not owner.on_device
        if re.fullmatch(_WIDE_BUILTIN, base) or (base in wide and not on_host):
            confidence = 0.6 if on_host else 0.95
            yield Finding(_statement(view, match.start()), f"accesses memory through a pointer to {kind}", confidence)
    yield from first(
        mentions(
            view,
            r"\bAutoVectorizingCopy(?:WithAssumedAlignment)?\b|\bUniversalCopy\s*<\s*(?:cute::)?uint128_t",
            "copy atom {0} moves whole vectors",
        ),
        mentions(view, r"\bSM80_CP_ASYNC_CACHE\w+\s*<\s*(?:cute::)?uint128_t", "copy atom {0} moves 16 bytes"),
        mentions(view, r"\b(?:cub::)?BLOCK_(?:LOAD|STORE)_VECTORIZE\b", "block load or store mode {0}"),
        mentions(view, r"\bBlock(?:Load|Store)\w*\s*<\s*vec_t\b", "{0}: block load of vectors"),
        assembled(
            view,
            r"(?:ld|st)\.(?!shared).*\.v4\.|(?:ld|st)\.(?!shared).*\.v2\.[a-z]?(?:32|64)|(?:ld|st)\.\S*\.b128",
            "PTX {0} moves 64 bits or more",
        ),
        _wide_async_copies(view),
        called(view, r"(?:cast_)?(?:load|store)(?:128|64)(?:cs|cg)?", "{0} moves one vector at a time"),
        called(view, r"cast_load|cast_store|load_vec\w*|store_vec\w*|vec_(?:load|store)\w*", "{0} moves a vector", 0.6),
        _wide_parameters(view),
    )


def _wide_types(view: SyntaxView) -> set[str]:
    """Names of the file's own types of 8 bytes or more: aligned structs and aliases of wide types."""
    names = set(re.findall(r"\b(?:struct|class|union)\s+(?:alignas|__align__)\s*\(\s*[^)]*\)\s*(\w+)", view.code))
    names |= set(re.findall(r"\bstruct\s+(\w+)\s*\{[^{}]*\}\s*__attribute__\s*\(\(aligned", view.code))
    names = {n for n in names if not _is_narrow(view, n)}
    vector_template = (
        r"\b(?:\w*::)*(?:_?\w*Vec(?:tor|_t)?_?|Aligned\w*Array|aligned_vector|vec_t"
        r"|Packed?128|x128|BytesToType|Vec_\w+)"
    )
    for _ in range(2):
        for match in re.finditer(r"\busing\s+(\w+)\s*=\s*([^;]+);|\btypedef\s+([^;]+?)\s+(\w+)\s*;", view.code):
            name, kind = match.group(1) or match.group(4), match.group(2) or match.group(3)
            head = re.sub(r"<.*", "", kind.replace("typename", ""), flags=re.DOTALL).strip().split("::")[-1].strip()
            if (
                re.fullmatch(_WIDE_BUILTIN, head)
                or head in names
                or re.match(vector_template + r"\s*<", kind.replace("typename", "").strip())
            ):
                names.add(name)
    for match in re.finditer(vector_template + r"(?=\s*<)", view.code):
        names.add(match.group().split("::")[-1])
    return names


def _is_narrow(view: SyntaxView, name: str) -> bool:
    match = re.search(rf"(?:alignas|__align__)\s*\(\s*([124])\s*\)\s*{name}\b", view.code)
    return bool(match)


def _wide_async_copies(view: SyntaxView) -> Iterator[Finding]:
    for statement in view.assembly:
        for mnemonic in statement.mnemonics:
            if re.match(r"cp\.async\.c[ag]\.", mnemonic) and re.search(r",\s*(?:16|8|%\w+)\s*[,;]", statement.text):
                yield Finding(statement.span, f"PTX {mnemonic} copies up to 16 bytes at once", 0.85)
    yield from called(view, r"cp_async_?16\w*|\w*copy_?16B?\w*|load_128b\w*", "{0} copies 16 bytes at once", 0.85)


def _wide_parameters(view: SyntaxView) -> Iterator[Finding]:
    """A pointer to a vector type that is subscripted."""
    for variable in view.variables:
        base = re.match(rf"(?:const\s+)?({_WIDE_BUILTIN})\b[^(]*\*", variable.type)
        if not base or variable.shared:
            continue
        owner = view.function_at(variable.start)
        if owner is None or not owner.on_device:
            continue
        use = next(view.search(rf"\b{re.escape(variable.name)}\s*\[", owner.body), None)
        if use:
            yield Finding(_statement(view, use.start()), f"indexes {variable.name}, a pointer to {base.group(1)}", 0.8)


def _statement(view: SyntaxView, offset: int) -> Span:
    end = view.code.find(";", offset)
    return Span(offset, end + 1 if 0 <= end < offset + 300 else offset + 1)


@detector("read-only-cache")
def read_only_cache(view: SyntaxView) -> Iterator[Finding]:
    """``__ldg`` or ``ld.global.nc``; ``const __restrict__`` alone is a weak sign."""
    yield from first(
        called(view, r"__ldg\w*|ldg(?:128|64|_\w+)?|[A-Z]\w*_LDG", "{0} reads through the read-only path", 0.9),
        assembled(view, r"ld\.global\.(?:\S+\.)?nc\b", "PTX {0}"),
    )
    for kernel in view.kernels:
        for variable in view.parameters_of(kernel):
            if "__restrict__" not in variable.type:
                continue
            if re.match(r"const\b", variable.type) or re.search(r"\bconst\s*\*", variable.type):
                span = Span(variable.start, variable.end)
                yield Finding(span, f"parameter {variable.name} is const __restrict__, which allows it", 0.4)


@detector("cache-hints")
def cache_hints(view: SyntaxView) -> Iterator[Finding]:
    """Eviction and streaming hints, and prefetches into a cache; not the ``.ca``/``.cg`` operators."""
    yield from first(
        called(
            view,
            r"__(?:ld|st)(?:cs|lu|cv|wt)|(?:load|store)128cs|__builtin_nontemporal_\w+",
            "{0} marks data as streaming",
        ),
        assembled(view, r"prefetch(?:u)?\.(?!tensormap)|createpolicy|applypriority|discard\.", "PTX {0}"),
        assembled(
            view,
            r".*\.(?:evict_\w+|no_allocate|L\dcache_hint)|.*L[12]::(?:evict|no_allocate|cache_hint|\d+B)|(?:ld|st)\.\S*\.cs\b",
            "PTX {0} carries a cache hint",
        ),
        mentions(
            view,
            r"\b(?:TMA::)?CacheHint\w*::\w+|\bEVICT_(?:FIRST|LAST|NORMAL)\b|\bcudaAccessPolicy\w+|\bcudaStreamAttributeAccessPolicyWindow\b",
            "{0} sets an eviction policy",
        ),
    )
    for statement in view.assembly:
        if re.search(r"L2::(?:\d+B|evict|cache_hint)|\.no_allocate", statement.text):
            yield Finding(statement.span, "PTX with an L2 hint", 0.9)


@detector("constant-memory")
def constant_memory(view: SyntaxView) -> Iterator[Finding]:
    """A ``__constant__`` variable."""
    for match in view.search(r"\b__constant__\b[^;{=]*"):
        yield Finding(_statement(view, match.start()), f"declares {' '.join(match.group().split())[:80]}", 0.97)


@detector("paged-kv-cache")
def paged_kv_cache(view: SyntaxView) -> Iterator[Finding]:
    """Keys and values reached through a table of pages."""
    table = r"(?:block_?tables?|page_?tables?|kv_page_indices|kv_indices|page_indices|kv_block_array)"
    for match in view.search(rf"\b\w*{table}\w*\s*(?:\[|\.(?:data|at|block|page)\b|\+)"):
        statement = _statement(view, match.start())
        owner = view.function_at(match.start())
        if owner is not None and re.search(
            r"page_size|block_size|PAGE|BLOCK_SIZE|\bpage|kBlockSize", view.text(owner.body)
        ):
            yield Finding(statement, f"looks a page up in {match.group().rstrip('[.+ ')}", 0.9)
    yield from mentions(
        view, r"\bpaged_kv\w*\s*(?:\.|->)\s*\w+\s*\(|\bpaged_kv_t\b", "{0}: pages of keys and values", 0.85
    )
    yield from called(view, r"get_(?:k|v)(?:v)?_(?:ptr|offset)|protective_get_kv_offset", "{0} resolves a page", 0.5)


_NEUTRAL = re.compile(
    r"^[\s({]*(?:\w+\s*[({<]+\w*\s*>?\s*\(?\s*)?[-+]?\s*(?:0+(?:\.0*)?[fFuU]*|0x0+|(?:std::)?numeric_limits\w*|\w*INF\w*|\w*inf\w*|nullptr|1\.f?0?f?)"
)


@detector("boundary-predication")
def boundary_predication(view: SyntaxView) -> Iterator[Finding]:
    """Guards of tiles and vector tails with a neutral fill; not one early exit per thread."""
    yield from _guarded_selects(view)
    yield from _guarded_fills(view)
    yield from _guarded_copies(view)
    for call in view.calls(r"Load|Store"):
        if re.search(
            r"(?i)block(?:load|store)|\)\.(?:Load|Store)$|warp(?:load|store)",
            call.path + view.code[call.span.start - 60 : call.span.start],
        ):
            counted = len(call.arguments) >= (4 if call.name == "Load" else 3)
            if counted:
                yield Finding(call.span, f"{call.name} of {call.arguments[2]} valid items", 0.82)
    yield from _guarded_stores_in_loops(view)
    yield from first(
        called(
            view,
            r"\w*cp_async\w*zfill\w*|\w*pred_load\w*|load_with_zfill\w*|cp_async_zfill\w*",
            "{0} fills with zeros",
            0.85,
        ),
        mentions(view, r"\bSM80_CP_ASYNC_\w+_ZFILL\b", "copy atom {0} fills with zeros"),
        mentions(view, r"\bcopy\s*<[^;()]*(?:Is_even_\w+|Clear_OOB\w*)[^;()]*>\s*\(", "{0} guards a tile copy", 0.9),
        mentions(view, r"\bif\s+(?:constexpr\s*)?\(\s*Clear_OOB\w*\s*\)", "{0}: out-of-bounds parts are cleared", 0.88),
        mentions(view, r"\b(?:cute::)?make_tensor\s*<\s*bool\s*>", "{0}: a tensor of predicates", 0.85),
    )
    for statement in view.assembly:
        guard = re.search(r"@!?%?\w+\s+(?:cp\.async|ld\.|st\.)", statement.text)
        if guard or re.search(r"cp\.async\.c[ag]\S*\s+\[%\d\],\s*\[%\d\],\s*(?:%\w+|\d+),\s*%\w+", statement.text):
            yield Finding(statement.span, "predicated PTX access with zero fill", 0.9)


def _bound_guard(condition: str) -> bool:
    """Whether a condition compares a computed index with a bound (not a flag, a null or a lane)."""
    return any(_bounds_index(part) for part in re.split(r"&&|\|\|", condition))


_LIMIT = re.compile(
    r"(?i)len|size|rows?|cols?|count|num|max_|total|bound|limit|seq|dim|width|height|left|end|valid|avail|remain"
    r"|^(?:[nmkld]|n[_e]\w*|ne\d+|(?-i:[A-Z]))$|elem|tokens|items"
)


def _bounds_index(comparison: str) -> bool:
    """Whether one comparison sets a computed index against a bound that is a plain name, member or size."""
    match = re.fullmatch(r"\s*[!(]*([^<>=]+?)(<=|<|>=|>)([^<>=]+?)\)*\s*", comparison)
    if not match:
        return False
    plain = r"[\s(]*[A-Za-z_][\w.:]*(?:->\w+)?(?:\[\w+\])?(?:\s*-\s*[\w.* ]+)*[\s)]*"
    sides = match.group(1), match.group(3)
    if re.search(r"(?i)warp|wave|consumer|producer|nullptr", comparison):
        return False
    bounds = [side for side in sides if re.fullmatch(plain, side) and any(_LIMIT.search(n) for n in names_in(side))]
    return bool(bounds) and all(names_in(side) for side in sides)


def _offset_guard(condition: str) -> bool:
    """Whether a condition compares two computed positions, as halo loads do."""
    match = re.fullmatch(r"[\s(]*([^<>=&|!]+?)(?:<=|<|>=|>)([^<>=&|]+?)[\s)]*", condition)
    sides = (match.group(1), match.group(2)) if match else ("", "")
    computed = all(names_in(side) and re.search(r"[-+*]", side) for side in sides)
    return computed and not re.search(r"(?i)warp|lane|max|expf?\b", condition)


def _guarded_selects(view: SyntaxView) -> Iterator[Finding]:
    for branch in view.branches:
        owner = view.function_at(branch.span.start)
        if not branch.expression or owner is None or not owner.on_device:
            continue
        if not _bound_guard(branch.condition) and not _offset_guard(branch.condition):
            continue
        kept, fill = view.text(branch.consequence), view.text(branch.alternative)
        if _NEUTRAL.match(kept) and not _NEUTRAL.match(fill):
            kept, fill = fill, kept
        if re.search(r"\w\s*\[|__ld|load|\*\s*[a-zA-Z(]", kept) and _NEUTRAL.match(fill):
            yield Finding(branch.span, f"loads where {branch.condition}, else a neutral value", 0.85)
        elif re.fullmatch(r"\s*(?:16|8|4|\w*(?:[bB]ytes|BYTES|size)\w*)\s*", kept) and fill.strip() == "0":
            yield Finding(branch.span, f"copies 0 bytes unless {branch.condition}", 0.85)


def _guarded_fills(view: SyntaxView) -> Iterator[Finding]:
    """``if (index in bounds) x = load; else x = 0``, and out-of-range items set to a neutral element."""
    for branch in view.branches:
        owner = view.function_at(branch.span.start)
        if branch.expression or owner is None or not owner.on_device:
            continue
        flagged = _bound_guard(branch.condition) or _is_bound_flag(view, owner, branch.condition)
        if not flagged:
            continue
        kept, fill = view.text(branch.consequence), view.text(branch.alternative)
        stores_zero = re.search(r"=\s*(?:\w+\s*\(?\s*)?(?:\{?\s*0|make_\w+\s*\(\s*[01](?:\.f?0?f?)?\s*,|\w*INF)", fill)
        if fill and stores_zero and re.search(r"=[^=;]*(?:\[|\*)", kept):
            yield Finding(branch.span, f"loads if {branch.condition}, else fills with a neutral value", 0.88)
        neutral = re.search(r"=\s*make_\w+\s*\(\s*1(?:\.f?0?f?)?\s*,\s*0", kept)
        if not fill and neutral and view.loops_around(branch.span.start):
            yield Finding(branch.span, f"replaces items with the identity where {branch.condition}", 0.85)


def _is_bound_flag(view: SyntaxView, function: Function, condition: str) -> bool:
    name = condition.strip().lstrip("!").strip()
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return False
    return any(_bound_guard(a.value) for a in definitions(view, name, function))


def _stores_out(view: SyntaxView, function: Function, span: Span) -> bool:
    """Whether code in a span writes memory that other threads see; a local array is no such memory."""
    local = {v.name for v in view.within_variables(function) if v.dimensions and not v.shared}
    for a in view.inside(span, view.assignments):
        if not a.declares and re.search(r"\[|\*", a.target):
            base = a.name.split(".")[0]
            if (
                base not in local
                and not re.search(r"-\s*\w*(?:INF|inf)", a.value)
                and not re.search(rf"&\s*\)?\s*{base}\b", view.text(function.head))
                and f"(&{base})" not in re.sub(r"\s", "", view.text(function.head))
            ):
                return True
    return False


def _guarded_copies(view: SyntaxView) -> Iterator[Finding]:
    """A bound test handed to a copy or load, which fills with zeros where it fails."""
    for call in view.calls(r"\w*(?:cp_async|pred_load|load_tile|memcpy_async|copy_if)\w*"):
        for argument in call.arguments:
            if re.search(r"<|>", argument) and _bound_guard(argument):
                yield Finding(call.span, f"{call.path} copies only where {argument}", 0.87)


def _guarded_stores_in_loops(view: SyntaxView) -> Iterator[Finding]:
    """A bound test around a load or store inside a per-thread loop over a tile's elements."""
    for branch in view.branches:
        owner = view.function_at(branch.span.start)
        loops = [loop for loop in view.loops_around(branch.span.start) if owner and owner.body.holds(loop.span.start)]
        if branch.expression or not loops or owner is None or not owner.on_device or not _bound_guard(branch.condition):
            continue
        body = view.text(branch.consequence)
        variables = {loop.variable for loop in loops} - {""}
        depends = origins(view, branch.condition, owner, depth=2) & variables
        if not depends or re.search(r"\bthreadIdx|blockDim", loops[-1].header):
            continue
        if re.search(r"(?i)>=?\s*[\w.>()-]*$", branch.condition) and not re.match(
            r"[\s{]*(?:break|continue)\s*;", body
        ):
            continue
        if _stores_out(view, owner, branch.consequence) or re.search(
            r"\b\w*store\w*\s*\(|\bcopy\s*\(|\b__st\w+\s*\(", body
        ):
            yield Finding(branch.span, f"stores only where {branch.condition}", 0.75)
        elif re.match(r"[\s{]*(?:break|continue)\s*;", body):
            yield Finding(branch.span, f"leaves the tile where {branch.condition}", 0.45)
