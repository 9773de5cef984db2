"""Guards of ragged tiles and vector tails."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import (
    called,
    definitions,
    first,
    has_constant_trips,
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

_NEUTRAL = re.compile(
    r"^[\s({]*(?:\w+\s*[({<]+\w*\s*>?\s*\(?\s*)?[-+]?\s*(?:0+(?:\.0*)?[fFuU]*|0x0+|(?:std::)?numeric_limits\w*|\w*INF\w*|\w*inf\w*|nullptr|1\.f?0?f?)"
)


@detector("boundary-predication")
def boundary_predication(view: SyntaxView) -> Iterator[Finding]:
    """Guards of tiles and vector tails with a neutral fill; not one early exit per thread."""
    yield from _guarded_selects(view)
    yield from _guarded_fills(view)
    yield from _preset_loads(view)
    yield from _guarded_copies(view)
    for call in view.calls(r"Load|Store"):
        if patterns.search(
            r"(?i)block(?:load|store)|\)\.(?:Load|Store)$|warp(?:load|store)",
            call.path + view.code[call.span.start - 60 : call.span.start],
        ):
            counted = len(call.arguments) >= (4 if call.name == "Load" else 3)
            if counted:
                yield Finding(call.span, f"{call.name} of {call.arguments[2]} valid items", 0.82)
    for call in view.calls(r"(?:Load|Store)Direct\w*"):
        if len(call.arguments) >= (4 if "Blocked" in call.name or "Striped" in call.name else 5):
            yield Finding(call.span, f"{call.name} of {call.arguments[3]} valid items", 0.8)
    yield from _guarded_stores_in_loops(view)
    yield from first(
        called(
            view,
            r"\w*cp_async\w*zfill\w*|\w*pred_load\w*|load_with_zfill\w*|cp_async_zfill\w*",
            "{0} fills with zeros",
            0.85,
        ),
        mentions(view, r"\bSM80_CP_ASYNC_\w+_ZFILL\b", "copy atom {0} fills with zeros"),
        mentions(view, r"\bcopy\s*<[^;()]*(?i:is_?even|clear_?oob|oob)[^;()]*>\s*\(", "{0} guards a tile copy", 0.9),
        mentions(
            view, r"\bif\s+(?:constexpr\s*)?\(\s*(?i:clear_?oob)\w*\s*\)", "{0}: out-of-bounds parts are cleared", 0.88
        ),
        mentions(view, r"\b(?:cute::)?make_tensor\s*<\s*bool\s*>", "{0}: a tensor of predicates", 0.85),
    )
    for statement in view.assembly:
        guard = patterns.search(r"@!?%?\w+\s+(?:cp\.async|ld\.|st\.)", statement.text)
        if guard or patterns.search(
            r"cp\.async\.c[ag]\S*\s+\[%\d\],\s*\[%\d\],\s*(?:%\w+|\d+),\s*%\w+", statement.text
        ):
            yield Finding(statement.span, "predicated PTX access with zero fill", 0.9)


def _bound_guard(condition: str) -> bool:
    """Whether a condition compares a computed index with a bound (not a flag, a null or a lane)."""
    return any(_bounds_index(part) for part in patterns.split(r"&&|\|\|", condition))


_LIMIT = re.compile(
    r"(?i)len|size|rows?|cols?|count|num|max_|total|bound|limit|seq|dim|width|height|left|end|valid|avail|remain"
    r"|^(?:[nmkld]|n[_e]\w*|ne\d+|(?-i:[A-Z]))$|elem|tokens|items"
)


def _bounds_index(comparison: str) -> bool:
    """Whether one comparison sets a computed index against a bound that is a plain name, member or size."""
    bare = patterns.sub(
        r"\b(?:u?int\d*(?:_t)?|unsigned|size_t|static_cast\s*<[^<>]*>)\s*\(([^()]*)\)", r"\1", comparison
    )
    match = patterns.fullmatch(r"\s*[!(]*([^<>=]+?)(<=|<|>=|>)([^<>=]+?)\)*\s*", bare)
    if not match:
        return False
    plain = r"[\s(]*[A-Za-z_][\w.:]*(?:->\w+)?(?:\[\w+\])?(?:\s*-\s*[\w.* ]+)*[\s)]*"
    sides = match.group(1), match.group(3)
    if patterns.search(r"(?i)warp|wave|consumer|producer|nullptr", comparison):
        return False
    bounds = [
        side for side in sides if patterns.fullmatch(plain, side) and any(_LIMIT.search(n) for n in names_in(side))
    ]
    return bool(bounds) and all(names_in(side) for side in sides)


def _offset_guard(condition: str) -> bool:
    """Whether a condition compares two computed positions, as halo loads do."""
    match = patterns.fullmatch(r"[\s(]*([^<>=&|!]+?)(?:<=|<|>=|>)([^<>=&|]+?)[\s)]*", condition)
    sides = (match.group(1), match.group(2)) if match else ("", "")
    computed = all(names_in(side) and patterns.search(r"[-+*]", side) for side in sides)
    return computed and not patterns.search(r"(?i)warp|lane|max|expf?\b", condition)


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
        if patterns.search(r"\w\s*\[|__ld|load|\*\s*[a-zA-Z(]", kept) and _NEUTRAL.match(fill):
            yield Finding(branch.span, f"loads where {branch.condition}, else a neutral value", 0.85)
        elif patterns.fullmatch(r"\s*(?:16|8|4|\w*(?:[bB]ytes|BYTES|size)\w*)\s*", kept) and fill.strip() == "0":
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
        stores_zero = patterns.search(
            r"=\s*(?:\w+\s*\(?\s*)?(?:\{?\s*0|make_\w+\s*\(\s*[01](?:\.f?0?f?)?\s*,|\w*INF)", fill
        )
        if fill and stores_zero and patterns.search(r"=[^=;]*(?:\[|\*)", kept):
            yield Finding(branch.span, f"loads if {branch.condition}, else fills with a neutral value", 0.88)
        neutral = patterns.search(r"=\s*make_\w+\s*\(\s*1(?:\.f?0?f?)?\s*,\s*0", kept)
        if not fill and neutral and view.loops_around(branch.span.start):
            yield Finding(branch.span, f"replaces items with the identity where {branch.condition}", 0.85)


_ZEROED = re.compile(
    r"^\s*(?:\{[\s{]*[-+]?(?:0|\s*\})|[-+]?0(?:x0+|\.0*)?[fFuU]*\s*$|make_\w+\s*\(\s*0|\w+\s*[({]\s*0(?:\.0?)?f?\s*[)}])|INF|::zeros?\s*\("
)


def _preset_loads(view: SyntaxView) -> Iterator[Finding]:
    """A local that starts as zero and is loaded only where an index is in bounds."""
    for branch in view.branches:
        owner = view.function_at(branch.span.start)
        if branch.expression or branch.alternative.end or owner is None or not owner.on_device:
            continue
        if not _bound_guard(branch.condition) or patterns.search(r"\belse\s*$", view.code[: branch.span.start][-8:]):
            continue
        inside = view.text(branch.consequence)
        for name in sorted(_filled_from_memory(view, branch.consequence)):
            preset = [
                a
                for a in definitions(view, name, owner)
                if a.declares and a.span.end <= branch.span.start and _ZEROED.search(a.value)
            ]
            near = preset and view.line(branch.span.start) - view.line(preset[-1].span.start) < 12
            if near and not patterns.search(rf"\b{name}\s*(?:\+=|\+\+)", inside):
                yield Finding(branch.span, f"{name} stays zero unless {branch.condition}", 0.82)


def _filled_from_memory(view: SyntaxView, span: Span) -> set[str]:
    """Names that code in a span loads into: by assignment, through their address, or as an asm's output."""
    loaded = {
        a.name.split(".")[0]
        for a in view.inside(span, view.assignments)
        if a.operator == "=" and not a.declares and patterns.search(r"\w\s*\[|__ld|[lL]oad|\*\s*[a-zA-Z(]", a.value)
    }
    for call in view.inside(span, view.calls(r"\w*(?:memcpy|load|Load|copy)\w*")):
        lead = patterns.match(
            r"[\s&*(]*(?:reinterpret_cast\s*<[^>]*>\s*\(\s*&?)?\s*([A-Za-z_]\w*)",
            call.arguments[0] if call.arguments else "",
        )
        if lead and len(call.arguments) > 1:
            loaded.add(lead.group(1))
    for statement in view.inside(span, view.assembly):
        if patterns.search(r"\bld\.(?:global|volatile|relaxed|weak)", statement.text):
            loaded |= set(patterns.findall(r'"=[a-z]"\s*\(\s*([A-Za-z_]\w*)', view.text(statement.span)))
    return loaded


def _is_bound_flag(view: SyntaxView, function: Function, condition: str) -> bool:
    name = condition.strip().lstrip("!").strip()
    if not patterns.fullmatch(r"[A-Za-z_]\w*", name):
        return False
    return any(_bound_guard(a.value) for a in definitions(view, name, function))


def _stores_out(view: SyntaxView, function: Function, span: Span) -> bool:
    """Whether code in a span writes memory that other threads see; a local array is no such memory."""
    local = {v.name for v in view.within_variables(function) if v.dimensions} | shared_names(view, function)
    for a in view.inside(span, view.assignments):
        if not a.declares and patterns.search(r"\[|\*", a.target):
            base = a.name.split(".")[0]
            if (
                base not in local
                and not patterns.search(r"-\s*\w*(?:INF|inf)", a.value)
                and not patterns.search(rf"&\s*\)?\s*{base}\b", view.text(function.head))
                and f"(&{base})" not in patterns.sub(r"\s", "", view.text(function.head))
            ):
                return True
    return False


def _guarded_copies(view: SyntaxView) -> Iterator[Finding]:
    """A bound test handed to a copy or load, which fills with zeros where it fails."""
    for call in view.calls(r"\w*(?:cp_async|pred_load|load_tile|memcpy_async|copy_if)\w*"):
        for argument in call.arguments:
            if patterns.search(r"<|>", argument) and _bound_guard(argument):
                yield Finding(call.span, f"{call.path} copies only where {argument}", 0.87)


def _guarded_stores_in_loops(view: SyntaxView) -> Iterator[Finding]:
    """A bound test around a load or store inside a per-thread loop over a tile's elements."""
    for branch in view.branches:
        owner = view.function_at(branch.span.start)
        around = [loop for loop in view.loops_around(branch.span.start) if owner and owner.body.holds(loop.span.start)]
        loops = [loop for loop in around if has_constant_trips(view, loop)]
        if branch.expression or not loops or owner is None or not owner.on_device or not _bound_guard(branch.condition):
            continue
        body = view.text(branch.consequence)
        variables = {loop.variable for loop in loops} - {""}
        depends = origins(view, branch.condition, owner, depth=2) & variables
        if not depends or patterns.search(r"\bthreadIdx|blockDim", loops[-1].header):
            continue
        if patterns.search(r"(?i)>=?\s*[\w.>()-]*$", branch.condition) and not patterns.match(
            r"[\s{]*(?:break|continue)\s*;", body
        ):
            continue
        if _stores_out(view, owner, branch.consequence) or patterns.search(
            r"\b\w*store\w*\s*\(|\bcopy\s*\(|\b__st\w+\s*\(", body
        ):
            yield Finding(branch.span, f"stores only where {branch.condition}", 0.75)
        elif patterns.match(r"[\s{]*(?:break|continue)\s*;", body):
            yield Finding(branch.span, f"leaves the tile where {branch.condition}", 0.45)
