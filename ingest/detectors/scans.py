"""Prefix scans: in a warp, in a block, over custom operators, and over chunks with a carry."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import assembled, called, device_functions, first, mentions, named_types, shared_names
from ingest.registry import Finding, detector
from ingest.syntax import Assignment, Function, Loop, Span, SyntaxView, names_in

_SHUFFLE_UP = r"(?:__shfl_up(?:_sync)?|shfl_up\w*|\w*SHFL_UP\w*|[sS]huffleUp)"
_WARP_SCAN_CALL = (
    r"(?:warp_?(?:prefix|scan|inclusive|exclusive|cumsum)\w*|[wW]arp(?:Scan|Prefix"
    r"|InclusiveScan|ExclusiveScan)\w*|warp_\w*_scan)"
)
_BLOCK_SCAN_CALL = (
    r"(?:block_?(?:scan|prefix|inclusive|exclusive|cumsum)(?!\w*callback)\w*"
    r"|[bB]lock(?:Prefix|InclusiveScan|ExclusiveScan)\w*)"
)
_SCAN_METHOD = r"(?:Inclusive|Exclusive)(?:Reverse)?(?:Scan|Sum)(?:Reverse)?\w*"


@detector("warp-shuffle-scan")
def warp_shuffle_scan(view: SyntaxView) -> Iterator[Finding]:
    """Prefix results in a warp: shuffles from lower lanes, taken only where such a lane exists."""
    for call in view.calls(_SHUFFLE_UP):
        loops = view.loops_around(call.span.start)
        loop = loops[-1] if loops else None
        region = loop.span if loop else Span(max(0, call.span.start - 200), call.span.end + 400)
        guard = patterns.search(
            r"\b\w*(?:lane|tid|threadIdx\.x|l)\w*\b[^;?{]*(?:>=|>|<)\s*\(?\s*\w+", view.text(region)
        )
        grows = loop is None or patterns.search(r"<<=|\*=\s*2|<<\s*1|\*\s*2|\+\+|\+=", loop.update)
        if guard and grows:
            yield Finding(
                region if loop else call.span,
                f"{call.name} from lower lanes, guarded by {' '.join(guard.group().split())[:50]}",
                0.92,
            )
    yield from _reverse_scans(view)
    yield from named_types(view, r"Warp\w*Scan\w*", r"(?i)shuffle|shfl", "scan in a warp by shuffles")
    yield from first(
        assembled(view, r"shfl\.(?:sync\.)?up", "PTX {0}", 0.9),
        called(view, _WARP_SCAN_CALL, "calls {0}", 0.82),
        mentions(view, r"\bcub::WarpScan\b", "{0}", 0.9),
        mentions(view, r"\bcg::(?:inclusive|exclusive)_scan\s*\(", "calls {0}", 0.8),
    )


def _reverse_scans(view: SyntaxView) -> Iterator[Finding]:
    """The mirror image: shuffles from higher lanes over growing distances, taken only where they exist."""
    for call in view.calls(r"(?:__)?shfl_down(?:_sync)?\w*|[sS]huffleDown"):
        loops = view.loops_around(call.span.start)
        if not loops:
            continue
        text = view.text(loops[-1].span)
        grows = patterns.search(r"<<=\s*1|\*=\s*2|=\s*1\s*<<", text)
        guarded = patterns.search(r"\w*(?:lane|rank|tid)\w*\)?\s*(?:>=|<|>|\+)\s*[^;?{]*(?:-|\+|<)\s*\w+", text)
        if grows and guarded:
            yield Finding(loops[-1].span, f"{call.name} from higher lanes, guarded by {guarded.group()[:50]}", 0.85)


@detector("block-scan")
def block_scan(view: SyntaxView) -> Iterator[Finding]:
    """Prefix results across a block: cub, warp scans joined through shared memory, or in place."""
    yield from first(
        named_types(view, r"Block\w*Scan\w*", r"(?i)scan", "scan across a block"),
        mentions(view, r"\b(?:cub::)?BlockScan\s*<[^;]*;?", "{0}", 0.88),
        mentions(view, r"\bBlockScan\w*\s*\(\s*\w+\s*\)\s*\.\s*" + _SCAN_METHOD, "{0}", 0.9),
        called(view, _BLOCK_SCAN_CALL, "calls {0}", 0.82),
    )
    for function in device_functions(view):
        shared = shared_names(view, function)
        yield from _scan_in_shared(view, function, shared)
        yield from _joined_warp_scans(view, function, shared)


def _scan_in_shared(view: SyntaxView, function: Function, shared: frozenset[str]) -> Iterator[Finding]:
    for loop in view.within(function, view.loops):
        if not patterns.search(r"<<=\s*1|\*=\s*2", loop.update):
            continue
        text = view.text(loop.body)
        stride = re.escape(loop.variable)
        for name in shared:
            read = patterns.search(rf"\b{re.escape(name)}\s*\[[^\]]*-\s*{stride}\b[^\]]*\]", text)
            if read and "sync" in text:
                yield Finding(loop.span, f"{name} takes in the element {loop.variable} to its left, doubling", 0.9)


def _joined_warp_scans(view: SyntaxView, function: Function, shared: frozenset[str]) -> Iterator[Finding]:
    """Warp scans whose last lanes publish totals that other warps add."""
    body = view.text(function.body)
    if not patterns.search(rf"{_SHUFFLE_UP}|{_WARP_SCAN_CALL}|\bWarpScan", body):
        return
    for branch in view.within(function, view.branches):
        if branch.expression:
            continue
        last = patterns.search(r"==\s*(?:31|\(?\s*\w*(?:WARP|warp)\w*\s*-\s*1|kWarp\w*\s*-\s*1)", branch.condition)
        inner = view.text(branch.consequence)
        stored = patterns.search(r"\b(\w+)(?:\.\w+)?\s*\[[^\]]*\]\s*(?:\.\w+\s*)?=\s*[\w{(]", inner) or patterns.search(
            r"\w*(?:store|copy|st_)\w*\s*(?:<[^;()]*>)?\s*\(\s*&?\s*(?:\w+\.)*(\w+)\s*[+\[]", inner
        )
        if last and stored and (stored.group(1) in shared or patterns.search(r"sync", body)):
            yield Finding(branch.span, f"the last lane of each warp publishes its total in {stored.group(1)}", 0.88)


@detector("associative-scan-operator")
def associative_scan_operator(view: SyntaxView) -> Iterator[Finding]:
    """A scan whose combine is not plain addition: pairs of (product, value), or a named operator."""
    scanning = patterns.search(
        r"[sS]can|(?:shfl_|SHFL_|[sS]huffle)(?:up|UP|Up)|[pP]refix|cumsum|[nx]clusive", view.code
    )
    for match in view.search(rf"\b{_SCAN_METHOD}\s*(?:<[^;()]*>)?\s*\("):
        end = view.code.find(";", match.end())
        arguments = view.code[match.end() : end]
        operator = patterns.search(
            r"\b(\w*(?:[sS]can\w*Op|Op|[cC]ombine\w*|Operator))\b\s*(?:<[^;]*?>)?\s*[({]", arguments
        )
        if operator and not patterns.search(r"\b(?:cub::)?Sum\b|\bplus\b", operator.group()):
            yield Finding(Span(match.start(), end), f"{match.group().rstrip('( ')} with {operator.group(1)}", 0.93)
    if not scanning:
        return
    for function in view.functions:
        yield from _pair_combine(view, function)


def _pair_combine(view: SyntaxView, function: Function) -> Iterator[Finding]:
    """A function that joins two affine maps: the product of the factors and factor times value plus value."""
    body = view.text(function.body)
    if len(body) > 1500 or len(function.parameters) < 2:
        return
    value = r"[A-Za-z_]\w*(?:\s*(?:\.|->)\s*\w+|\[[^\]]*\])*"
    product = patterns.search(rf"({value})\s*\*\s*({value})\s*(?=[,;}})])", body)
    affine = patterns.search(
        rf"({value})\s*\*\s*({value})\s*\+\s*({value})|({value})\s*\+\s*({value})\s*\*\s*({value})|\b_*fmaf?(?:_rn)?\s*\(\s*({value})\s*,\s*({value})\s*,\s*({value})",
        body,
    )
    if not product or not affine:
        return
    parameters = {patterns.sub(r"\W", "", p.split()[-1]) for p in function.parameters}
    used = [{patterns.split(r"\W", g)[0] for g in m.groups() if g} for m in (product, affine)]
    local = {a.name: names_in(a.value) for a in view.within(function, view.assignments)}

    def sources(names: set[str]) -> set[str]:
        return names | {s for n in names for s in local.get(n, set())}

    both = all(len(sources(names) & parameters) >= 2 for names in used)
    shares_factor = {g for g in product.groups() if g} & {g for g in affine.groups() if g}
    if both and shares_factor and "sqrt" not in body:
        yield Finding(
            Span(function.head.start, function.body.end),
            f"{function.name} joins ({' '.join(product.group().split())}, {' '.join(affine.group().split())})",
            0.92,
        )


@detector("chunked-scan-carry")
def chunked_scan_carry(view: SyntaxView) -> Iterator[Finding]:
    """A loop over chunks: each is scanned and continues from the prefix that the one before left."""
    for function in device_functions(view):
        shared = shared_names(view, function)
        for loop in view.within(function, view.loops):
            if _SCAN_WORD.search(view.text(loop.body)):
                yield from _carried(view, function, loop, shared)
    yield from _carried_through_calls(view)
    yield from _carried_tiles(view)
    for aggregate in view.aggregates:
        text = view.text(aggregate.span)
        callback = patterns.search(r"operator\s*\(\s*\)\s*\(\s*\w+\s+block_aggregate", text)
        if callback and patterns.search(r"running|carry|prefix|total", text):
            yield Finding(aggregate.span, f"{aggregate.name} hands the running prefix to the next chunk", 0.7)


_SCAN_WORD = re.compile(
    rf"{_SHUFFLE_UP}|{_WARP_SCAN_CALL}|{_BLOCK_SCAN_CALL}|{_SCAN_METHOD}|\w*[sS]can\w*\s*(?:<[^;()]*>)?\s*\("
)
_CARRY_NAME = re.compile(r"(?i)carry|running|prefix|carried|state|offset_so_far|base_sum")


def _carried(view: SyntaxView, function: Function, loop: Loop, shared: frozenset[str]) -> Iterator[Finding]:
    text = view.text(loop.body)
    if not _SCAN_WORD.search(text) or patterns.search(r"<<=|>>=|[*/]=\s*2|[*/]\s*2\b", loop.update):
        return
    inside = view.inside(loop.body, view.assignments)
    for update in inside:
        if update.declares or update.name == loop.variable or not _CARRY_NAME.search(update.name):
            continue
        born = [v for v in view.variables_named.get(update.name.split(".")[0], []) if function.body.holds(v.start)]
        outside = update.name.split(".")[0] in shared or any(not loop.body.holds(v.start) for v in born)
        if outside and _reads_before(view, loop, update):
            near = view.line(update.span.end) - view.line(loop.span.start) < 30
            span = Span(loop.span.start, update.span.end) if near else update.span
            over = loop.variable or "chunks"
            yield Finding(
                span, f"{update.name} carries the prefix from one step of the loop over {over} to the next", 0.9
            )


def _carried_through_calls(view: SyntaxView) -> Iterator[Finding]:
    """The same with the chunk's work in a function: it reads and writes a state that its caller owns."""
    for step in view.functions:
        updates = [a for a in view.within(step, view.assignments) if not a.declares and _CARRY_NAME.search(a.name)]
        updates = [a for a in updates if a.name.split(".")[0] in names_in(" ".join(step.parameters))]
        if not updates or not _scans(view, step) or not _called_in_loop(view, step):
            continue
        text = view.text(step.body)
        for update in updates:
            if len(patterns.findall(rf"\b{re.escape(update.name.split('.')[0])}\b", text)) > 1:
                yield Finding(update.span, f"{update.name} carries the state from one {step.name} to the next", 0.88)


def _carried_tiles(view: SyntaxView) -> Iterator[Finding]:
    """A tile of state that each chunk's product reads and another product of the chunk adds to."""
    product = r"(?:mma|mm)_?\w*|gemm\w*"
    for function in device_functions(view):
        products = [
            c for c in view.within(function, view.calls(product))
            if len(c.arguments) > 2 and (view.loops_around(c.span.start) or _is_pipeline_step(function))
        ]  # fmt: skip
        grown = {_tile(c.arguments[0]): c for c in products if c.name.startswith("mma") or len(c.arguments) > 3}
        held = {tile: {tile} for tile in grown}
        for copy in view.within(function, view.calls(r"store|copy|load")):
            if len(copy.arguments) >= 2 and _tile(copy.arguments[1]) in held:
                held[_tile(copy.arguments[1])].add(_tile(copy.arguments[0]))
        for tile, places in held.items():
            reads = [
                c
                for c in products
                if any(_tile(x) in places for x in c.arguments[1:3]) and _tile(c.arguments[0]) != tile
            ]
            if tile and reads:
                why = f"{tile} is read by {reads[0].name} and grows by {grown[tile].name} in each chunk"
                yield Finding(reads[0].span, why, 0.8)


def _is_pipeline_step(function: Function) -> bool:
    """Whether a pipeline template calls the function once per step: it gets the arguments of a step."""
    return bool(patterns.search(r"compute_args|iter\w*_args", " ".join(function.parameters)))


def _tile(argument: str) -> str:
    """The tile that an argument names: its path without subscripts and a cast."""
    return patterns.sub(r"\[[^\]]*\]|\s|\*|&", "", argument).split("(")[0]


def _called_in_loop(view: SyntaxView, function: Function) -> bool:
    return any(
        not function.body.holds(call.span.start) and view.loops_around(call.span.start)
        for call in view.calls(re.escape(function.name))
    )


def _scans(view: SyntaxView, function: Function) -> bool:
    """Whether a function scans, itself or in a function of the file that it calls."""
    reached = view.reached_from(function)
    bodies = [function, *(f for f in view.functions if f.name in reached)]
    return any(_SCAN_WORD.search(view.text(f.body)) for f in bodies)


def _reads_before(view: SyntaxView, loop: Loop, update: Assignment) -> bool:
    """Whether the iteration uses the carried value besides updating it."""
    name = re.escape(update.name.split(".")[0])
    reads = [m.start() for m in view.search(rf"\b{name}\b", loop.body) if not update.span.holds(m.start())]
    return bool(reads) or update.feeds_itself
