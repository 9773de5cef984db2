"""Arithmetic tricks and compile-time choices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import assembled, called, first, mentions, value_parameters
from ingest.registry import Finding, detector
from ingest.syntax import Span, SyntaxView, names_in


@detector("loop-unrolling")
def loop_unrolling(view: SyntaxView) -> Iterator[Finding]:
    """An unroll pragma or its macro; ``unroll 1`` forbids unrolling and does not count."""
    yield from first(
        mentions(
            view,
            r"#[ \t]*pragma[ \t]+(?:GCC[ \t]+|clang[ \t]+loop[ \t]+)?unroll(?![ \t]*\(?[ \t]*1\b)[^\n]*",
            "{0}",
            0.97,
        ),
        mentions(view, r"_Pragma\s*\(\s*\"[^\"]*unroll(?!\s*1\b)[^\"]*\"", "{0}", 0.9),
        mentions(
            view, r"(?m)^[ \t]*\w*(?:PRAGMA_UNROLL\w*|CUTE_UNROLL|UNROLL_LOOP)\b(?:\(\w*\))?(?=[ \t]*\n)", "{0}", 0.95
        ),
    )


@detector("launch-bounds")
def launch_bounds(view: SyntaxView) -> Iterator[Finding]:
    """``__launch_bounds__`` on a kernel, or a register limit."""
    for match in view.search(r"\b__launch_bounds__\s*\(|\b__maxnreg__\s*\("):
        end = view.code.find("\n", match.end())
        yield Finding(
            Span(match.start(), max(match.end(), end)), f"{' '.join(view.code[match.start() : end].split())[:80]}", 0.97
        )
    yield from mentions(view, r"-?-maxrregcount\S*", "{0}", 0.8)


@detector("fast-math-intrinsics")
def fast_math_intrinsics(view: SyntaxView) -> Iterator[Finding]:
    """Approximate intrinsics, approximate PTX, rsqrtf; the exact library calls do not count."""
    yield from first(
        called(
            view,
            r"__(?:exp|exp10|log|log2|log10|pow|sin|cos|sincos|tan|tanh)f|__f?divide?f|__fdividef|__frcp_\w+|__frsqrt_\w+|__saturatef",
            "calls {0}",
            0.93,
        ),
        called(view, r"rsqrtf|hrsqrt|h2?rcp|h2?exp2?|h2?log2?", "calls {0}", 0.85),
        called(view, r"rsqrt", "calls {0}", 0.7),
        assembled(view, r"(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|div)\.(?:approx|full)", "PTX {0}", 0.95),
        called(
            view,
            r"(?:ptx|ex2|approx|fast)_\w*(?:exp2?|log2?|rcp|rsqrt|tanh)\w*|\w*(?:exp2?|log2?|rcp|tanh|rsqrt)\w*_approx\w*|approx_\w+|fast_(?:exp|tanh|rcp|log)\w*",
            "calls {0}",
            0.85,
        ),
    )


_LOG2E = (
    r"1\.44269\d*f?|\b(?:M_)?k?_?LOG2_?E\w*\b|\b\w*[lL]og2_?e\b|\bscale_(?:softmax_)?log2\b"
    r"|\b\w*scale\w*log2\w*\b"
)
_EXP2 = r"\b\w*exp2\w*\s*(?:<[^;(){}]*>)?\s*\(|ex2\.approx"


@detector("exp2-trick")
def exp2_trick(view: SyntaxView) -> Iterator[Finding]:
    """exp2 in place of exp, with log2(e) folded into a factor; or a softmax state kept in base 2."""
    defined = {function.name_start for function in view.functions}
    exponentials = [match for match in view.search(_EXP2) if match.start() not in defined]
    folded = list(view.search(_LOG2E)) if exponentials else []
    for match in exponentials:
        if folded:
            near = min(folded, key=lambda f: abs(f.start() - match.start()))
            beside = view.line(near.start()) == view.line(match.start())
            why = f"{match.group().rstrip('( ')} with {near.group()} folded in"
            yield Finding(_line_span(view, match.start()), why, 0.92 + 0.02 * beside)
        elif patterns.search(r"\b\w*log2f?\s*\(", view.code) and patterns.search(r"(?i)lse|max", view.code):
            yield Finding(
                _line_span(view, match.start()), f"{match.group().rstrip('( ')} on a softmax state in base 2", 0.48
            )
    factor = r"(?:1\.442695\d*f?|\b(?:\w+::)*\w*log2_?e\b)"
    for match in view.search(rf"(?i)\b\w*scale\w*\s*\*?=[^;=]*{factor}[^;]*;"):
        yield Finding(Span(*match.span()), f"log2(e) folded into {match.group().split('=')[0].strip()}", 0.82)
    for match in view.search(r"\b[sS]oftmax\b[^;]*\b\w*scale\w*_log2\b[^;]*;"):
        yield Finding(Span(*match.span()), "the softmax gets a scale with log2(e) folded in", 0.7)


def _line_span(view: SyntaxView, offset: int) -> Span:
    end = view.code.find("\n", offset)
    return Span(offset, end if end > 0 else offset + 1)


_HALF2 = re.compile(r"\b(?:__)?(?:nv_)?(?:half2|bfloat162)\b|\bbf162\b|\bhalf2_t\b")


@detector("packed-half2-math")
def packed_half2_math(view: SyntaxView) -> Iterator[Finding]:
    """Arithmetic on two packed halves; conversions and stores of pairs do not count."""
    yield from first(
        called(
            view,
            r"__h(?:add|sub|mul|fma|max|min|neg|abs|div)2(?:_\w+)?|h2(?:exp2?|log2?|rcp|sqrt|rsqrt|sin|cos)|__hcmadd",
            "calls {0}",
            0.95,
        ),
        assembled(view, r"(?:add|sub|mul|fma|max|min|neg|abs|ex2|tanh)\.\S*(?:f16x2|bf16x2)", "PTX {0}", 0.95),
    )
    packed = {v.name for v in view.variables if _HALF2.search(v.type) and not v.is_pointer}
    for a in view.assignments:
        owner = view.function_at(a.span.start)
        if owner is None or not owner.on_device or not _HALF2.search(view.type_of(a.name, owner)):
            continue
        product = patterns.search(r"\b(\w+)(?:\[[^\]]*\])?\s*([*+]|-(?!>))\s*(\w+)", a.value)
        if (product and {product.group(1), product.group(3)} <= packed) or (
            a.operator in ("+=", "*=", "-=") and names_in(a.value) & packed and a.name in packed
        ):
            yield Finding(a.span, f"{a.name}: arithmetic on pairs {' '.join(a.value.split())[:50]}", 0.7)


@detector("compile-time-specialization")
def compile_time_specialization(view: SyntaxView) -> Iterator[Finding]:
    """Code chosen by a value known at compile time: flags, widths and sizes as template arguments."""
    yield from mentions(
        view,
        r"\b\w+_SWITCH\w*\s*\(",
        "{0}...) makes a runtime value a template argument",
        0.95,
    )
    yield from mentions(
        view, r"\bDISPATCH_(?!\w*(?:TYPE|FLOAT|DTYPE))\w+\s*\(", "{0}...) dispatches to template instances", 0.6
    )
    yield from _valued_branches(view)
    yield from _valued_traits(view)
    yield from _instances(view)


def _value_parameters(view: SyntaxView) -> dict[str, Span]:
    """Non-type template parameters and constants derived from traits, by name."""
    found = value_parameters(view)
    for match in view.search(r"\bconstexpr\s+(?:bool|int)\s+(\w+)\s*=\s*(\w+)\s*;"):
        if match.group(2) in found:
            found[match.group(1)] = Span(*match.span())
    for match in view.search(r"\b(?:static\s+)?constexpr\s+bool\s+(\w+)\s*=\s*[^;]*\w+::\w+"):
        found[match.group(1)] = Span(*match.span())
    return found


def _valued_branches(view: SyntaxView) -> Iterator[Finding]:
    values = _value_parameters(view)
    for branch in view.branches:
        used = names_in(branch.condition) & set(values)
        members = patterns.search(r"\b(?:\w*[Tt]raits|T)::(k?\w+)", branch.condition)
        if not used and not (members and branch.constexpr):
            continue
        name = sorted(used)[0] if used else members.group(1) if members else ""
        if branch.constexpr:
            yield Finding(
                branch.span
                if view.line(branch.span.end) - view.line(branch.span.start) < 20
                else Span(branch.span.start, branch.consequence.start + 1),
                f"if constexpr on {name}",
                0.92,
            )
        elif patterns.fullmatch(rf"\s*!?\s*{re.escape(name)}\s*(?:[=!<>]=?\s*[\w:]+)?\s*", branch.condition) or (
            used
            and not branch.expression
            and patterns.search(rf"(?:^|&&|\|\|)\s*!?{re.escape(name)}\s*(?:$|&&|\|\|)", branch.condition)
        ):
            head = Span(values[name].start, values[name].end) if name in values else branch.span
            yield Finding(
                head if _is_template(view, head) else branch.span, f"template value {name} selects code", 0.85
            )


def _is_template(view: SyntaxView, span: Span) -> bool:
    return view.code.startswith("template", span.start)


def _valued_traits(view: SyntaxView) -> Iterator[Finding]:
    values = set(_value_parameters(view))
    for match in view.search(r"\b(?:std::|cute::|cuda::std::)?(?:conditional|enable_if)_t\s*<\s*(?:\(?\s*)?!?\s*(\w+)"):
        if match.group(1) in values:
            yield Finding(Span(*match.span()), f"{match.group()} chooses a type by value", 0.9)
    for match in view.search(r"\b(?:std::|cute::)?(?:conditional|enable_if)(?:_t)?\s*<\s*([^;]*?),"):
        if names_in(match.group(1)) & values and not patterns.search(
            r"is_same|is_floating|is_integral", match.group(1)
        ):
            yield Finding(Span(*match.span()), f"{' '.join(match.group().split())[:60]} chooses by value", 0.88)
    for match in view.search(r"\btemplate\s*<\s*>\s*(?:struct|class|__\w+__[^;{]*?)\s*\w+\s*<\s*(?:true|false|\d+)"):
        yield Finding(Span(*match.span()), f"specialized for a value: {' '.join(match.group().split())[:60]}", 0.8)


def _instances(view: SyntaxView) -> Iterator[Finding]:
    """One template instantiated in this file with different constants, by a switch or branches."""
    templates = {
        f.name
        for f in view.functions
        if any(not patterns.match(r"(?:typename|class)\b", p) for p in f.template_parameters)
    }
    found: dict[str, dict[str, Span]] = {}
    for macro in view.defines:
        for parameter in macro.parameters or ():
            if any(
                patterns.search(rf"\b{re.escape(t)}\s*<[^;>]*\b{re.escape(parameter)}\b", macro.body) for t in templates
            ):
                for call in view.calls(re.escape(macro.name)):
                    literal = [x for x in call.arguments if patterns.fullmatch(r"\d+|true|false", x)]
                    if literal:
                        found.setdefault(macro.name, {}).setdefault(",".join(literal), call.span)
    for match in view.search(
        r"\b([A-Za-z_]\w*)\s*<\s*([^;<>{}()]*\b(?:\d+|true|false)\b[^;<>{}()]*)>\s*(?=\(|<<<|[,;)])"
    ):
        if match.group(1) in templates:
            key = patterns.sub(r"\s", "", match.group(2))
            found.setdefault(match.group(1), {}).setdefault(key, Span(*match.span()))
    for name, instances in found.items():
        literals = {patterns.sub(r"[^\d,truefals]", "", k) for k in instances}
        if len(instances) >= 2 and len(literals) >= 2:
            spans = list(instances.values())
            yield Finding(
                Span(spans[0].start, spans[-1].end),
                f"{name} is instantiated for {', '.join(sorted(instances))[:60]}",
                0.85,
            )
