"""The small vocabulary that detectors are written in: data flow and memory spaces over a ``SyntaxView``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ingest import patterns
from ingest.registry import Finding
from ingest.syntax import Assignment, Function, Loop, Span, SyntaxView, names_in, paths_in

EXPONENTIAL = r"(?:__expf|expf?|exp2f?|hexp2?|\w*exp2?_\w*|fast_exp\w*|__exp2f|ex2|\w+_exp2?f?)"
SHARED_NAME = re.compile(r"(?:^|_)s?h?mem(?:_|$)|^s?mem_|shared|^s_?[A-Z]|smem")
LOW_PRECISION = re.compile(
    r"\b(?:__)?(?:nv_)?(?:half2?|bfloat16|bfloat162|bf16|half_t|bfloat16_t|float16_t|fp8\w*|float_e\w+)\b|\bu?int8_t\b"
)


def first(*groups: Iterator[Finding]) -> Iterator[Finding]:
    """All findings of several searches, one after the other."""
    for group in groups:
        yield from group


def mentions(view: SyntaxView, pattern: str, why: str, confidence: float = 0.9) -> Iterator[Finding]:
    """A finding per match of a pattern in code; ``{0}`` in ``why`` is the matched text."""
    for match in view.search(pattern):
        yield Finding(Span(*match.span()), why.format(match.group().strip()), confidence)


def called(view: SyntaxView, pattern: str, why: str, confidence: float = 0.9) -> Iterator[Finding]:
    """A finding per call whose name matches; ``{0}`` in ``why`` is the callee."""
    for call in view.calls(pattern):
        yield Finding(call.span, why.format(call.path), confidence)


def assembled(view: SyntaxView, pattern: str, why: str, confidence: float = 0.95) -> Iterator[Finding]:
    """A finding per PTX instruction whose mnemonic matches from its start; ``{0}`` is the mnemonic."""
    compiled = patterns.compiled(pattern)
    for statement in view.assembly:
        for mnemonic in statement.mnemonics:
            if compiled.match(mnemonic):
                yield Finding(statement.span, why.format(mnemonic), confidence)


def definitions(view: SyntaxView, name: str, function: Function | None) -> list[Assignment]:
    """Assignments to a path inside a function."""
    return view.assigned(function).get(name, [])


def origins(view: SyntaxView, expression: str, function: Function | None, depth: int = 3) -> set[str]:
    """Paths that an expression depends on, through up to ``depth`` rounds of definitions."""
    known = paths_in(expression)
    frontier = set(known)
    assigned = view.assigned(function)
    for _ in range(depth):
        found = {path for name in frontier for a in assigned.get(name, ()) for path in a.sources}
        frontier = found - known
        known |= frontier
    return known


def shared_names(view: SyntaxView, function: Function | None) -> frozenset[str]:
    """Names through which a function reaches shared memory: arrays, pointers into them, addresses."""
    return _remembered(view, "shared", function, _find_shared)


def global_names(view: SyntaxView, function: Function | None) -> frozenset[str]:
    """Names through which a function reaches global memory: pointer parameters and pointers into them."""
    return _remembered(view, "global", function, _find_global)


def _remembered(
    view: SyntaxView, kind: str, function: Function | None,
    find: Callable[[SyntaxView, Function | None], set[str]],
) -> frozenset[str]:  # fmt: skip
    key = (kind, function.name_start if function else -1)
    if key not in view.memory:
        view.memory[key] = frozenset()  # what a cycle of calls sees while the answer is made
        view.memory[key] = frozenset(find(view, function))
    return view.memory[key]


_RETURNS_ADDRESS = re.compile(r"\[[^{]*?->[^{]*\*[^{]*\{|\[[^{]*\{\s*return\s*(?:&|reinterpret_cast|\([\w\s:]+\*)")


def _find_shared(view: SyntaxView, function: Function | None) -> set[str]:
    names = {v.name for v in view.file_variables if v.shared}
    if function is None:
        return names | {v.name for v in view.variables if v.shared}
    names |= {v.name for v in view.within_variables(function) if v.shared}
    names |= {
        v.name
        for v in view.parameters_of(function)
        if SHARED_NAME.search(v.name) and (v.is_pointer or "uint32" in v.type or "&" in v.type)
    }
    names |= _given_shared(view, function)
    parameters = {v.name for v in view.parameters_of(function)}
    for assignment in view.within(function, view.assignments):
        if assignment.declares and assignment.name in parameters:
            continue  # a local of a parameter's name, in an inner block
        if not (assignment.declares or assignment.operator == "=") or assignment.name in names:
            continue
        kind = view.type_of(assignment.name, function)
        address = "*" in assignment.target or "&" in assignment.target or "*" in kind or "&" in kind
        address |= bool(patterns.search(r"uint32_t|unsigned", kind)) or "make_tensor" in assignment.value
        address |= "SharedMemory<" in assignment.value
        value = assignment.value
        address |= bool(_RETURNS_ADDRESS.match(value))
        reads = patterns.match(r"\s*\w+\s*\[", value) and "*" not in assignment.target and "&" not in assignment.target
        if address and not reads and (names_in(value) & names or patterns.search(r"\bSharedMemory\s*<", value)):
            names.add(assignment.name)
    return names


def parameter_names(function: Function) -> list[str]:
    """A function's parameters in order, by name."""
    found = []
    for parameter in function.parameters:
        names = patterns.findall(r"[A-Za-z_]\w*", patterns.sub(r"\[[^\]]*\]|=.*", "", parameter, flags=re.DOTALL))
        found.append(names[-1] if names else "")
    return found


def _given_shared(view: SyntaxView, function: Function) -> set[str]:
    """Pointer and reference parameters that a caller in the file hands shared memory to."""
    names = parameter_names(function)
    addresses = {v.name for v in view.parameters_of(function) if v.is_pointer or "&" in v.type}
    found: set[str] = set()
    for call in view.calls_named(function.name) if addresses else ():
        caller = view.function_at(call.span.start)
        if caller is None or caller is function:
            continue
        shared = shared_names(view, caller)
        for name, argument in zip(names, call.arguments, strict=False):
            lead = patterns.match(r"[\s&*(]*([A-Za-z_]\w*)", argument)
            if name in addresses and lead and lead.group(1) in shared:
                found.add(name)
    return found


def constants(view: SyntaxView) -> frozenset[str]:
    """Names with a value at compile time: template values, constexpr, enumerators, object-like macros."""
    return _remembered(view, "constants", None, lambda v, _: _find_constants(v))


def _find_constants(view: SyntaxView) -> set[str]:
    found = {macro.name for macro in view.defines if macro.parameters is None}
    found |= set(value_parameters(view))
    found |= {m.group(1) for m in view.search(r"\bconstexpr\b[^;=(){}]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)?[={]")}
    found |= {
        m.group(1)
        for m in view.search(r"\b(?:const|static)\s+(?:unsigned\s+)?(?:int|size_t|uint32_t)\s+(\w+)\s*=\s*\d")
    }
    for body in view.search(r"\benum\b[^{};]*\{([^}]*)\}"):
        found |= set(patterns.findall(r"(?:^|,)\s*(\w+)", body.group(1)))
    return found


def value_parameters(view: SyntaxView) -> dict[str, Span]:
    """Non-type template parameters, by name, with the template's head."""
    found = {}
    for match in view.search(r"\btemplate\s*<"):
        depth, offset = 1, match.end()
        while depth and offset < len(view.code):
            depth += {"<": 1, ">": -1, ";": -9, "{": -9}.get(view.code[offset], 0)
            offset += 1
        for kind in patterns.finditer(
            r"\b(?:bool|int|unsigned|size_t|uint32_t|int64_t|auto|[A-Z]\w+)\s+(\w+)\s*(?=[,>=])",
            view.code[match.end() : offset],
        ):
            if not patterns.match(
                r"(?:typename|class)\b", view.code[match.end() + kind.start() - 9 : match.end() + kind.start()].strip()
            ):
                found[kind.group(1)] = Span(match.start(), offset)
    return found


_CONSTANT_NAME = re.compile(
    r"[A-Z][A-Z0-9_]*$|k[A-Z]\w*$|(?:size|rank|ceil_?div|cdiv|cute|Int|sizeof|u?int\w*|unsigned|float|half|char|value"
    r"|std|cuda|min|max|constexpr_min)$|\w*[Tt]raits$|_\d+$"
)


def has_constant_trips(view: SyntaxView, loop: Loop) -> bool:
    """Whether a loop is unrolled or runs a number of times that is known at compile time."""
    before = view.code[max(0, loop.span.start - 120) : loop.span.start].rstrip()
    last = before.rsplit("\n", 1)[-1]
    if patterns.search(r"unroll|UNROLL", last) and not patterns.search(r"(?i)no_?unroll|unroll\s*\(?\s*1\b", last):
        return True
    bound = patterns.split(r"<=?|>=?|!=", patterns.sub(r"<\s*[\w:]+\s*>", "", loop.condition), maxsplit=1)[-1]
    names = names_in(bound) - set(loop.variables)
    known = constants(view)
    return bool(loop.condition) and all(n in known or _CONSTANT_NAME.match(n) for n in names)


def _find_global(view: SyntaxView, function: Function | None) -> set[str]:
    if function is None:
        return set()
    shared = shared_names(view, function)
    names = {v.name for v in view.parameters_of(function) if v.is_pointer and v.name not in shared}
    for assignment in view.within(function, view.assignments):
        if assignment.name in names or assignment.name in shared:
            continue
        kind = view.type_of(assignment.name, function)
        is_pointer = "*" in kind or "*" in assignment.target
        if is_pointer and (names_in(assignment.value) & names or patterns.search(r"\bparams?\b", assignment.value)):
            names.add(assignment.name)
    return names


def device_functions(view: SyntaxView) -> list[Function]:
    """Functions that run on the GPU; all of them when the file marks none (a body for inclusion)."""
    marked = [f for f in view.functions if f.on_device]
    return marked or list(view.functions)


def named_types(view: SyntaxView, name: str, content: str, what: str) -> Iterator[Finding]:
    """Types of the file that implement a technique, by their name and what is in them."""
    for aggregate in view.aggregates:
        text = view.text(aggregate.span)
        if patterns.fullmatch(name, aggregate.name) and patterns.search(content, text[text.find("{") :]):
            yield Finding(
                Span(aggregate.span.start, aggregate.span.start + text.find("{") + 1), f"{aggregate.name}: {what}", 0.84
            )


def line_at(view: SyntaxView, offset: int) -> Span:
    """The line that holds an offset, without the blanks around it."""
    start = view.code.rfind("\n", 0, offset) + 1
    end = view.code.find("\n", offset)
    text = view.code[start : end if end > 0 else len(view.code)]
    return Span(start + len(text) - len(text.lstrip()), start + len(text.rstrip()))


def statement_at(view: SyntaxView, offset: int) -> Span:
    """The statement that holds an offset, directives before it left out."""
    start = max(view.code.rfind(c, 0, offset) for c in ";{}") + 1
    skipped = patterns.match(r"(?:\s*#[^\n]*\n|\s)*", view.code[start:offset])
    start += skipped.end() if skipped else 0
    end = view.code.find(";", offset)
    return Span(start, end + 1 if end >= 0 else len(view.code))


def to_semicolon(view: SyntaxView, offset: int) -> Span:
    """From an offset to the end of its statement, or the offset alone when that is far."""
    end = view.code.find(";", offset)
    return Span(offset, end + 1 if 0 <= end < offset + 300 else offset + 1)
