"""Matrix units: fragments, products, accumulation, integer dot products, dequantization."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import LOW_PRECISION, assembled, called, first, line_at, mentions
from ingest.registry import Finding, detector
from ingest.syntax import Assignment, Function, Span, SyntaxView, names_in, paths_in, split_top

_ATOM = r"\bSM(?:70|75|80|89|120)_\d+x\d+x\d+_\w+"


@detector("tensor-core-mma")
def tensor_core_mma(view: SyntaxView) -> Iterator[Finding]:
    """Warp-wide matrix products: wmma, mma.sync, CuTe atoms; warpgroup products are another concept."""
    yield from (
        first(
            assembled(view, r"w?mma\.(?:sp\.)?(?:sync|mma)", "PTX {0}"),
            mentions(view, r"\bwmma::(?:mma_sync|fragment)\b", "{0}"),
            mentions(view, _ATOM, "MMA atom {0}"),
            called(
                view,
                r"mma_sync\w*|mma_m\d+n\d+k\d+\w*|ldmatrix_mma\w*|mma_sync_m\w+|(?:warp_)?mma_(?:AB|ABt|AtB|AtBt)|hmma\w*|\w*mma_16x8x\w+",
                "calls {0}",
                0.85,
            ),
            _plain_products(view),
            mentions(view, r"\b(?:flash|cute)::gemm\w*\s*(?:<[^;]*?>)?\s*\(", "calls {0} on tensor cores", 0.8),
            _tiled_products(view),
        )
        if not _only_warpgroup(view)
        else iter(())
    )


def _tiled_products(view: SyntaxView) -> Iterator[Finding]:
    """Tiled products that the file builds or runs; a type passed on for its layout is none."""
    if patterns.search(r"\bgemm\w*\s*(?:<[^;()]*>)?\s*\(|make_tiled_mma|\bTiledMMA\s*<|MMA_Atom", view.code):
        yield from mentions(view, r"\bTiledM[mM][aA]\b[^;]*;", "tiled product {0}", 0.7)


def _plain_products(view: SyntaxView) -> Iterator[Finding]:
    """Calls of a function named mma; a method of that name belongs to an object of another file."""
    for call in view.calls(r"mma"):
        if not patterns.search(r"[.>]\w*$", call.path):
            yield Finding(call.span, f"calls {call.path}", 0.75)


def _only_warpgroup(view: SyntaxView) -> bool:
    """Whether products in the file are warpgroup products: the same call names then mean those."""
    warpgroup = patterns.search(r"\bwarpgroup::mma|\bwgmma\b|GMMA|warpgroup_(?:wait|arrive|fence)", view.code)
    warp = patterns.search(_ATOM + r"|\bwmma::|(?<!g)mma\.sync", view.code)
    return bool(warpgroup) and not warp


@detector("warpgroup-mma")
def warpgroup_mma(view: SyntaxView) -> Iterator[Finding]:
    """Products by four warps on operands in shared memory: wgmma, GMMA."""
    yield from first(
        assembled(view, r"wgmma\.", "PTX {0}"),
        mentions(view, r"\bSM90_\d+x\d+x\d+_\w+", "atom {0}"),
        mentions(view, r"\b(?:cute::)?(?:GMMA|SM90::GMMA)::\w+", "{0}"),
        mentions(view, r"\bwarpgroup::(?:mma|mm)\w*", "calls {0}"),
        called(view, r"warpgroup_(?:arrive|commit_batch|wait|fence_operand)|wgmma_\w+", "calls {0}"),
    )


@detector("matrix-fragment-load")
def matrix_fragment_load(view: SyntaxView) -> Iterator[Finding]:
    """Fragments loaded by a whole warp: ldmatrix and its atoms."""
    yield from first(
        assembled(view, r"ldmatrix\.", "PTX {0}"),
        mentions(view, r"\bSM75_U\w*LDSM\w*", "copy atom {0}"),
        called(view, r"\w*ldmatrix\w*|ldsm\w*|\w*_ldsm_\w*", "calls {0}", 0.9),
    )


_MIXED_PTX = re.compile(r"w?g?mma\S*\.f32\.(?:f16|bf16|e4m3|e5m2|tf32)|w?g?mma\S*\.f32\.f16|w?gmma\S*\.f32\.bf16")


@detector("mixed-precision-accumulation")
def mixed_precision_accumulation(view: SyntaxView) -> Iterator[Finding]:
    """Half, bfloat or 8-bit inputs summed in float."""
    for statement in view.assembly:
        for mnemonic in statement.mnemonics:
            if _MIXED_PTX.match(mnemonic):
                yield Finding(statement.span, f"PTX {mnemonic} accumulates in float", 0.95)
    yield from first(
        mentions(view, r"\bSM\d+_\d+x\d+x\d+_F32(?:F16|BF16|E4M3|E5M2)\w+", "atom {0} accumulates in float"),
        mentions(view, r"\bfragment\s*<\s*(?:wmma::)?accumulator\s*,[^;>]*\bfloat\b", "{0}: float accumulator", 0.85),
        mentions(view, r"\b(?:ss|rs)_op_selector\s*<[^;]*?,\s*float\s*,", "{0} accumulates in float", 0.85),
        mentions(view, r"\busing\s+ElementAccum\w*\s*=\s*float\b", "{0}", 0.8),
        _products_into_float(view),
        _converted_accumulators(view),
        _float_tiles(view),
        _narrowed_accumulators(view),
    )


def _products_into_float(view: SyntaxView) -> Iterator[Finding]:
    """A named tensor-core product into a float fragment, in a file whose operands are narrower."""
    if not LOW_PRECISION.search(view.code):
        return
    for call in view.calls(r"\w*mma_(?:sync_)?m\d+n\d+k\d+\w*"):
        names = patterns.findall(r"[A-Za-z_]\w*", call.arguments[0]) if call.arguments else []
        if any("float" in view.type_of(name, view.function_at(call.span.start)) for name in names):
            yield Finding(call.span, f"{call.path} adds products of narrower values to float {names[-1]}", 0.85)


def _float_tiles(view: SyntaxView) -> Iterator[Finding]:
    low = patterns.search(r"\b(?:st|rt)_(?:bf|hf|fp8\w*)\s*<", view.code)
    low = low if view.calls(r"(?:mma|mm)(?:_\w+)?|(?:row_|col_)?sum") else None
    for match in view.search(r"\b(?:rt_fl\s*<|(?:rt|tt)\s*<\s*float\b)[^;]*?>\s*\w*"):
        if low:
            yield Finding(Span(*match.span()), f"float accumulator {match.group()} over {low.group()} tiles", 0.9)


def _narrowed_accumulators(view: SyntaxView) -> Iterator[Finding]:
    """Results of a product converted down before they feed the next one: the sum itself was wider."""
    for call in view.calls(r"convert\w*"):
        if (
            "Element" in call.template_arguments
            and call.arguments
            and patterns.search(r"acc|r[PS]|scores", call.arguments[0])
        ):
            yield Finding(call.span, f"{call.path} narrows the float accumulator {call.arguments[0]}", 0.75)


_WIDE_CALL = r"__(?:half|bfloat16)2float|__(?:low|high)2float|__half22float2|__bfloat1622float2|__uint_as_float"


_WIDENING = re.compile(
    rf"(?:{_WIDE_CALL}|to_float|toFloat|to_fp32|(?<![\w.])float|static_cast\s*<\s*float\s*>|\(\s*float\s*\)|type2float|"
    r"cast_to_float|cuda_cast\s*<\s*float\s*>|from_float)\s*\(?\s*([^;]*)"
)


def _low_names(view: SyntaxView, function: Function, halves: bool) -> set[str]:
    """Names in a function that hold low-precision values, by declared type.

    Template scalars count where the file names a low-precision type at all (``halves``).
    """
    scalars = {t.split()[-1] for t in function.template_parameters if patterns.match(r"(?:typename|class)\s+\w+$", t)}
    framework = {"scalar_t", "input_t", "weight_t"} & view.names
    scalars = scalars | framework if halves else framework
    names = set()
    for variable in [*view.parameters_of(function), *view.within_variables(function)]:
        kind = patterns.sub(r"\b(?:const|volatile|__restrict__|static|constexpr)\b|[*&]", " ", variable.type).split()
        if (LOW_PRECISION.search(variable.type) and not patterns.search(r"\bu?int8_t\b|<", variable.type)) or (
            len(kind) == 1 and kind[0] in scalars
        ):
            names.add(variable.name)
    return names


def _converters(view: SyntaxView) -> set[str]:
    """Functions of the file that return a float made from a low-precision value."""
    found: set[str] = set()
    for _ in range(2):
        words = "|".join([_WIDE_CALL, *(re.escape(name) for name in sorted(found))])
        calls = re.compile(rf"\b(?:{words})\s*\(")
        found |= {f.name for f in view.functions if "float" in f.qualifiers and calls.search(view.text(f.body))}
    return found


def _converted_accumulators(view: SyntaxView) -> Iterator[Finding]:
    converters = _converters(view)
    halves = any(patterns.search(r"(?i)half|bf(?:loat)?16|fp8|fp16|e4m3", name) for name in view.names)
    for function in view.functions:
        if function.on_device:
            yield from _sums_of_widened(view, function, _low_names(view, function, halves), converters, halves)


def _opaque_element(view: SyntaxView, function: Function, a: Assignment, halves: bool) -> str:
    """Variable of another type whose element a sum casts to float: such a cast would be idle on floats.

    Elements of template types count only in a file that names a low-precision type (``halves``).
    """
    cast = patterns.search(
        r"(?:\(\s*float\s*\)\s*|\bfloat\s*\(\s*|static_cast\s*<\s*float\s*>\s*\(\s*)([A-Za-z_]\w*)\s*\[", a.value
    )
    kind = view.type_of(cast.group(1), function) if cast else ""
    if not cast or not kind:
        return ""
    plain = patterns.search(
        r"\b(?:float\d?|double\d?|u?int\w*|unsigned|bool|u?char\w*|long|short|size_t|auto|void)\b", kind
    )
    base = patterns.sub(r"\b(?:const|volatile|__restrict__|typename)\b|[*&\s]", "", kind)
    generic = patterns.search(rf"\b(?:typename|class)\s+{re.escape(base)}\b", view.code)
    return cast.group(1) if cast and base and not plain and (halves or not generic) else ""


def _sums_of_widened(
    view: SyntaxView, function: Function, low: set[str], converters: set[str], halves: bool
) -> Iterator[Finding]:
    local = view.within(function, view.assignments)
    widened: set[str] = set()
    for _ in range(3):
        for a in local:
            if a.name not in low and _holds_widened(view, function, a, low, widened, converters):
                widened.add(a.name)
    for call in view.within(function, view.calls(r"cast_load")):
        widened |= names_in(call.path.split(".")[0]) - {"cast_load"}
    if converters:
        yield from _added_by_calls(view, function, converters)
    for a in local:
        sums = a.operator == "+=" or (a.feeds_itself and _adds(a)) or _fma_into(a.name, a.value)
        if not sums or a.name in low or not _FLOATING.search(view.type_of(a.name, function)):
            continue
        inline = _WIDENING.search(a.value)
        opaque = _opaque_element(view, function, a, halves)
        feeds = sorted(names_in(a.value) & (widened | converters)) or (
            sorted(names_in(inline.group(1)) & low) if inline else []
        )
        if opaque and view.loops_around(a.span.start):
            yield Finding(a.span, f"float {a.name} sums elements of {opaque}, converted to float", 0.7)
        if feeds and view.loops_around(a.span.start):
            yield Finding(a.span, f"float {a.name} sums {', '.join(feeds)}, widened from lower precision", 0.8)


def _added_by_calls(view: SyntaxView, function: Function, converters: set[str]) -> Iterator[Finding]:
    """The same by a helper that adds: its operand is widened by a function of the file."""
    for call in view.within(function, view.calls(r"\w*(?:add|accumulate|fma)\w*")):
        widened = [
            n for argument in call.arguments[1:] for n in patterns.findall(r"(\w+)\s*\(", argument) if n in converters
        ]
        if widened and view.loops_around(call.span.start):
            yield Finding(call.span, f"{call.name} adds what {widened[0]} widened to float", 0.8)


_FLOATING = re.compile(r"\bfloat\d?\b|\b(?:acc_t|accscalar_t|AccT|AccType|compute_t|opmath_t|ElementAccum\w*)\b")


def _adds(a: Assignment) -> bool:
    """Whether the value is a sum at its top level, indices and arguments left out."""
    outside = patterns.sub(r"\[[^\[\]]*\]", "", a.value)
    return a.operator == "=" and bool(patterns.search(r"\+", patterns.sub(r"\([^()]*\)", "", outside)))


def _holds_widened(
    view: SyntaxView, function: Function, a: Assignment, low: set[str], widened: set[str], converters: set[str]
) -> bool:
    match = _WIDENING.search(a.value)
    source = names_in(match.group(1)) if match else names_in(a.value)
    if "?" in a.value and match and not source & low - names_in(a.value.split("?")[0]):
        return False
    floating = "float" in view.type_of(a.name, function)
    others = {
        n
        for n in patterns.findall(r"(\w+)\s*\[", a.value)
        if n not in low | widened and "float" in view.type_of(n, function)
    }
    if others and "?" in a.value:
        return False  # an optional low-precision term beside a float operand, such as a mask
    if names_in(a.value) & converters:
        return floating
    return bool(source & widened or (source & low and floating))


def _fma_into(name: str, value: str) -> bool:
    match = patterns.match(r"\s*(?:__)?fma\w*\s*\((.*)\)\s*$", value, re.DOTALL)
    return bool(match) and name in paths_in(split_top(match.group(1))[-1] if match else "")


@detector("int8-dot")
def int8_dot(view: SyntaxView) -> Iterator[Finding]:
    """Dot products of packed 8-bit integers: dp4a, integer MMA."""
    yield from first(
        called(view, r"__dp[24]a\w*|\w*_dp4a", "calls {0}"),
        assembled(view, r"dp[24]a\.|mma\.\S*\.s32\.[us][84]|mma\.\S*\.[us][84]\.[us][84]\.s32", "PTX {0}"),
        mentions(view, r"\bSM\d+_\d+x\d+x\d+_S32[SU][84]\w*", "atom {0}"),
        mentions(
            view,
            r"\bfragment\s*<\s*(?:wmma::)?matrix_[ab]\s*,[^;>]*\b(?:signed char|unsigned char|u?int8_t)\b",
            "{0}",
            0.9,
        ),
    )


@detector("dequantize-in-register")
def dequantize_in_register(view: SyntaxView) -> Iterator[Finding]:
    """Quantized weights unpacked by bit tricks and scaled in registers."""
    yield from first(
        mentions(
            view,
            r"\b0x(?:64006400|6400|43004300|4300|4b000000|64086408|54005400)[uU]?\b",
            "magic number {0} makes halves of integers",
            0.92,
        ),
        called(view, r"\w*dequant(?:ize)?_\w*(?:s4|u4|int4|4bit|8bit|fp4|fp16|fp8|f16|q\d)\w*", "calls {0}", 0.8),
        called(view, r"\w*dequant(?:ize)?", "calls {0}", 0.6),
        assembled(view, r"prmt\.b32", "PTX {0} picks bytes to widen", 0.45),
        _nibbles(view),
    )


def _nibbles(view: SyntaxView) -> Iterator[Finding]:
    """Masks and shifts by whole nibbles or bytes whose results are converted and scaled."""
    for function in view.functions:
        if not function.on_device:
            continue
        yield from _halved_bytes(view, function)
        unpacked = {}
        for a in view.within(function, view.assignments):
            mask = r"&\s*(?:0x0*[fF]{1,2}\b|0x(?:0[fF]){4}\b|0x(?:00[fF]){2,3}\b|0x0{0,3}3{4,8}\b|15\b)"
            if patterns.search(mask, a.value) and patterns.search(r">>", a.value):
                unpacked[a.name] = a
        if not unpacked:
            continue
        body = view.text(function.body)
        scaled = patterns.search(r"(?i)\bscales?\w*|\bzeros?\w*|\bzp\b|_LUT\b|\blut\b|\bd\d?\s*\*|\bdm\d?\b", body)
        for name, a in unpacked.items():
            reader = r"(?:\bfloat|half|bf16|cast\w*<[^>]*>|LUT|lut|table|dp4a|byte_perm|sub\w*4)\w*"
            used = patterns.search(rf"{reader}\s*[\[(][^;]*\b{re.escape(name)}\b", body)
            if scaled and used:
                yield Finding(a.span, f"{name} is unpacked by mask and shift, then scaled ({scaled.group()})", 0.85)


def _halved_bytes(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """Both nibbles of one value taken and their meanings multiplied by a scale."""
    body = view.text(function.body)
    if "&" not in body or ">>" not in body:
        return
    for low in patterns.finditer(r"\b(\w+)\s*&\s*(?:0x0*[fF]\b|15\b)", body):
        name = re.escape(low.group(1))
        high = patterns.search(rf"\b{name}\s*>>\s*4\b", body)
        if high and patterns.search(
            r"(?i)\*\s*\w*(?:scale|absmax|delta|zero|\bd\b)\w*|\w*(?:scale|absmax)\w*\s*\*", body
        ):
            start = function.body.start + min(low.start(), high.start())
            yield Finding(line_at(view, start), f"the two nibbles of {low.group(1)} are decoded and scaled", 0.82)
            return
