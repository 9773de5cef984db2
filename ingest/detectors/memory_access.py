"""How global memory is read and written: width, cache path, predication, indirection."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import assembled, called, first, mentions, to_semicolon
from ingest.registry import Finding, detector
from ingest.syntax import Span, SyntaxView

_WIDE_BUILTIN = (
    r"(?:(?:float|u?int|u?long)[24]|double2|u?longlong2|float3x4|uint128_t|__int128|ulonglong4|longlong4|short4|"
    r"ushort4|char8|uchar8|half8|bf168|int32x4_t|Float4|Half8)"
)


_POINTER_CAST = re.compile(
    r"\(\s*(?P<c>(?:const\s+)?[A-Za-z_]\w*)\s*&\s*\)\s*\(?\s*\w|"
    r"reinterpret_cast\s*<\s*(?P<a>[^;()]*?)\s*[*&]\s*>\s*\(|\(\s*(?P<b>(?:const\s+)?[A-Za-z_]\w*(?:\s+const)?)\s*\*\s*\)\s*[&(\w]"
)


@detector("vectorized-access")
def vectorized_access(view: SyntaxView) -> Iterator[Finding]:
    """Accesses of 64 bits or more by vector pointers, copy atoms, block loads or PTX."""
    wide = _wide_types(view)
    for match in view.search(_POINTER_CAST):
        kind = (match.group("a") or match.group("b") or match.group("c")).replace("const", "").strip()
        base = patterns.sub(r"<.*", "", kind).split("::")[-1].strip()
        owner = view.function_at(match.start())
        on_host = owner is not None and not owner.on_device
        if patterns.fullmatch(_WIDE_BUILTIN, base) or (base in wide and not on_host):
            confidence = 0.6 if on_host else 0.95
            yield Finding(to_semicolon(view, match.start()), f"accesses memory through a pointer to {kind}", confidence)
    yield from first(
        mentions(
            view,
            r"\bAutoVectorizingCopy(?:WithAssumedAlignment)?\b"
            r"|\bUniversalCopy\s*<\s*(?:cute::)?(?:uint(?:64|128)_t|uint[24]|float[24]|double)",
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
        mentions(
            view, r"\brecast\s*<\s*(?:cute::)?(?:uint(?:64|128)_t|uint[24]|float[24])", "{0}: a tensor of vectors", 0.9
        ),
        mentions(view, r"\b\w*(?:load|store|copy)\w*\s*<\s*(?:64|128)\s*[,>]", "{0} bits at once", 0.85),
        _counted_bytes(view),
        _wide_async_copies(view),
        called(view, r"(?:cast_)?(?:load|store)(?:128|64)(?:cs|cg)?", "{0} moves one vector at a time"),
        called(view, r"cast_load|cast_store|load_vec\w*|store_vec\w*|vec_(?:load|store)\w*", "{0} moves a vector", 0.6),
        _wide_parameters(view),
    )


def _wide_types(view: SyntaxView) -> set[str]:
    """Names of the file's own types of 8 bytes or more: aligned structs and aliases of wide types."""
    aligned = r"\b(?:struct|class|union)\s+(?:alignas|__align__)\s*\((?:[^()]|\([^()]*\))*\)\s*(\w+)"
    names = set(patterns.findall(aligned, view.code))
    names |= set(patterns.findall(r"\bstruct\s+(\w+)\s*\{[^{}]*\}\s*__attribute__\s*\(\(aligned", view.code))
    names = {n for n in names if not _is_narrow(view, n)}
    vector_template = (
        r"\b(?:\w*::)*(?:_?\w*Vec(?:tor|_t)?_?|Aligned\w*Array|aligned_vector|vec_t"
        r"|Packed?128|x128|BytesToType|Vec_\w+)"
    )
    for _ in range(2):
        for match in patterns.finditer(r"\busing\s+(\w+)\s*=\s*([^;]+);|\btypedef\s+([^;]+?)\s+(\w+)\s*;", view.code):
            name, kind = match.group(1) or match.group(4), match.group(2) or match.group(3)
            member = patterns.search(r">\s*::\s*(\w+)\s*$", kind)
            head = (
                patterns.sub(r"<.*", "", kind.replace("typename", ""), flags=re.DOTALL).strip().split("::")[-1].strip()
            )
            head = member.group(1) if member else head
            if (
                patterns.fullmatch(_WIDE_BUILTIN, head)
                or head in names
                or patterns.match(vector_template + r"\s*<", kind.replace("typename", "").strip())
            ):
                names.add(name)
    for match in patterns.finditer(vector_template + r"(?=\s*<)", view.code):
        names.add(match.group().split("::")[-1])
    return names


def _is_narrow(view: SyntaxView, name: str) -> bool:
    match = patterns.search(rf"(?:alignas|__align__)\s*\(\s*([124])\s*\)\s*{name}\b", view.code)
    return bool(match)


def _counted_bytes(view: SyntaxView) -> Iterator[Finding]:
    """Loads and stores of global memory by a number of bytes given as a template value."""
    for call in view.calls(r"\w*(?:load|store|copy)_?\w*[gG]lobal\w*"):
        size = call.template_arguments.split(",")[0].strip().split("::")[-1]
        if size and not size.isdigit():
            value = next(view.search(rf"\b(?:constexpr|const)\b[^;=]*\b{re.escape(size)}\s*=\s*(\d+)\s*;"), None)
            size = value.group(1) if value else ""
        if size in ("8", "16"):
            yield Finding(call.span, f"{call.path} moves {size} bytes at once", 0.85)


def _wide_async_copies(view: SyntaxView) -> Iterator[Finding]:
    for statement in view.assembly:
        for mnemonic in statement.mnemonics:
            if patterns.match(r"cp\.async\.c[ag]\.", mnemonic) and patterns.search(
                r",\s*(?:16|8|%\w+)\s*[,;]", statement.text
            ):
                yield Finding(statement.span, f"PTX {mnemonic} copies up to 16 bytes at once", 0.85)
    yield from called(view, r"cp_async_?16\w*|\w*copy_?16B?\w*|\w*load_?128\w*", "{0} copies 16 bytes at once", 0.85)


def _wide_parameters(view: SyntaxView) -> Iterator[Finding]:
    """A pointer to a vector type that is subscripted."""
    for variable in view.variables:
        base = patterns.match(rf"(?:const\s+)?({_WIDE_BUILTIN})\b[^(]*\*", variable.type)
        if not base or variable.shared:
            continue
        owner = view.function_at(variable.start)
        if owner is None or not owner.on_device:
            continue
        use = next(view.search(rf"\b{re.escape(variable.name)}\s*\[", owner.body), None)
        if use:
            yield Finding(
                to_semicolon(view, use.start()), f"indexes {variable.name}, a pointer to {base.group(1)}", 0.8
            )


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
            if patterns.match(r"const\b", variable.type) or patterns.search(r"\bconst\s*\*", variable.type):
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
        called(view, r"\w*prefetch_?(?:l1|l2|L1|L2|global)\w*|\w*evict_(?:first|last)\w*", "calls {0}", 0.85),
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
        if patterns.search(r"L2::(?:\d+B|evict|cache_hint)|\.no_allocate", statement.text):
            yield Finding(statement.span, "PTX with an L2 hint", 0.9)


@detector("constant-memory")
def constant_memory(view: SyntaxView) -> Iterator[Finding]:
    """A ``__constant__`` variable."""
    for match in view.search(r"\b__constant__\b[^;{=]*"):
        yield Finding(to_semicolon(view, match.start()), f"declares {' '.join(match.group().split())[:80]}", 0.97)


@detector("paged-kv-cache")
def paged_kv_cache(view: SyntaxView) -> Iterator[Finding]:
    """Keys and values reached through a table of pages."""
    table = r"(?:block_?tables?|page_?tables?|kv_?page_?indices|kv_?indices|page_?indices|kv_block_array)"
    for match in view.search(rf"(?i){table}\w*\s*(?:\[|\(|\.(?:data|at|block|page)\b|\+)"):
        statement = to_semicolon(view, match.start())
        owner = view.function_at(match.start())
        if owner is not None and patterns.search(
            r"page_size|block_size|PAGE|BLOCK_SIZE|\bpage|kBlockSize", view.text(owner.body)
        ):
            yield Finding(statement, f"looks a page up in {match.group().rstrip('[.+ ')}", 0.9)
    yield from mentions(
        view, r"\bpaged_kv\w*\s*(?:\.|->)\s*\w+\s*\(|\bpaged_kv_t\b", "{0}: pages of keys and values", 0.85
    )
    yield from called(view, r"\w*get_(?:k|v|kv)_(?:ptr|offset)", "{0} resolves a page", 0.5)
