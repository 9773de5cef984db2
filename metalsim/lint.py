"""Finds what Metal's compiler refuses and clang, which metalsim compiles with, accepts.

Works on tokens and declarations, after the preprocessor for whole files. What is named by single words
(``double``, ``goto``, ``new`` ...) is refused by ``metalsim.rewrite``; here is what needs a look around:
pointers without an address space, static locals, recursion, arrays of variable length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, takewhile

from metalsim.declarations import CLASS_WORDS, CLOSING, Declaration, counted, declarations, is_attribute, matching
from metalsim.signature import ATTRIBUTES
from metalsim.tokens import Token

_SPACES = frozenset({"device", "constant", "threadgroup", "thread", "threadgroup_imageblock", "ray_data"})
_SCALARS = frozenset((
    "bool", "char", "short", "int", "long", "float", "half", "bfloat", "uchar", "ushort", "uint", "ulong", "size_t",
    "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t",
    "float16_t", "bfloat16_t",
))  # fmt: skip
_VECTOR = re.compile(rf"(?:packed_)?(?:{'|'.join(sorted(_SCALARS))})[2-4]")
_STATEMENT_STARTS = frozenset({";", "{", "}", "(", ",", ":"})

Fault = tuple[int, str]
"""Line of a token, and what is wrong there."""


def lint(tokens: Sequence[Token], *, in_body: bool = False) -> tuple[Fault, ...]:
    """Faults of a text, in the order of its lines.

    Args:
        tokens: of the text.
        in_body: whether the text is a function's body rather than a file.
    """
    faults: list[Fault] = []
    if in_body:
        faults += _body_faults(tokens, 0, len(tokens))
    else:
        functions = [d for d in _functions(tokens, 0, len(tokens)) if d.body >= 0]
        for found in functions:
            faults += _pointers(tokens, found.parameters + 1, matching(tokens, found.parameters))
            faults += _body_faults(tokens, found.body + 1, matching(tokens, found.body))
        faults += _recursion(tokens, functions)
    return tuple(sorted(dict.fromkeys(faults)))


def _functions(tokens: Sequence[Token], start: int, end: int) -> Iterator[Declaration]:
    """All functions, methods included."""
    for found in declarations(tokens, start, end):
        if found.body >= 0 and found.parameters >= 0:
            yield found
        elif found.body >= 0 and found.is_class:
            yield from _functions(tokens, found.body + 1, matching(tokens, found.body))


def _body_faults(tokens: Sequence[Token], start: int, end: int) -> Iterator[Fault]:
    yield from _pointers(tokens, start, end)
    yield from _variable_arrays(tokens, start, end)
    yield from _statics(tokens, start, end)


def _is_type(token: Token) -> bool:
    return token.kind == "name" and (token.text in _SCALARS or bool(_VECTOR.fullmatch(token.text)))


def _pointers(tokens: Sequence[Token], start: int, end: int) -> Iterator[Fault]:
    """``float* p``: a type that is surely one, then a star or an ampersand, and no address space before it."""
    indices = list(counted(tokens, start, end))
    for position, (i, j) in enumerate(pairwise(indices)):
        if not _is_type(tokens[i]) or tokens[j].text not in ("*", "&"):
            continue
        first = position
        while first > 0 and tokens[indices[first - 1]].text in ("const", "volatile", "metal", "::", "unsigned"):
            first -= 1
        before = tokens[indices[first - 1]].text if first else ";"
        after = indices[position + 2] if position + 2 < len(indices) else -1
        trailing = after >= 0 and tokens[after].text in _SPACES
        if before in _STATEMENT_STARTS and after >= 0 and tokens[after].kind == "name" and not trailing:
            kind = "pointer" if tokens[j].text == "*" else "reference"
            name = tokens[after].text
            yield tokens[i].line, f"{kind} {name!r} needs an address space (device, constant, threadgroup or thread)"


def _statics(tokens: Sequence[Token], start: int, end: int) -> Iterator[Fault]:
    """Static locals; ``static constexpr`` and ``static constant`` are compile-time tables."""
    for i in counted(tokens, start, end):
        if tokens[i].text != "static":
            continue
        rest = (tokens[k].text for k in counted(tokens, i + 1, end))
        words = list(takewhile(lambda text: text not in ("=", ";", "(", "{"), rest))
        if not {"constexpr", "constant"} & {*words, *_word_before(tokens, i)}:
            yield tokens[i].line, "Metal has no static local variables"


def _word_before(tokens: Sequence[Token], index: int) -> list[str]:
    return [tokens[k].text for k in islice(_backwards(tokens, index), 2)]


def _variable_arrays(tokens: Sequence[Token], start: int, end: int) -> Iterator[Fault]:
    """``float a[n]`` where ``n`` is a launch attribute or a local variable that is no constant."""
    variables = set(ATTRIBUTES)
    indices = list(counted(tokens, start, end))
    for position, i in enumerate(indices[:-2]):
        name, mark = indices[position + 1], indices[position + 2]
        if not _is_type(tokens[i]) or tokens[name].kind != "name":
            continue
        before = [tokens[k].text for k in indices[max(0, position - 4) : position]]
        constant = "const" in before or "constexpr" in before
        if tokens[mark].text in ("=", ";") and not constant:
            variables.add(tokens[name].text)
        elif tokens[mark].text == "[" and not is_attribute(tokens, mark):
            close = matching(tokens, mark)
            used = [tokens[k].text for k in counted(tokens, mark + 1, close) if tokens[k].text in variables]
            if used and (not before or before[-1] in (*_STATEMENT_STARTS, *_SPACES, "const")):
                yield tokens[i].line, f"array {tokens[name].text!r}: its length {used[0]!r} is not constant"


def _recursion(tokens: Sequence[Token], functions: Sequence[Declaration]) -> Iterator[Fault]:
    """Functions that call themselves, directly or through others; told apart by name and number of parameters."""
    calls: dict[tuple[str, int], set[tuple[str, int]]] = {}
    lines: dict[tuple[str, int], int] = {}
    for found in functions:
        name = next((tokens[k] for k in _backwards(tokens, found.parameters)), None)
        head = [tokens[k].text for k in counted(tokens, found.start, found.parameters)]
        if name is None or name.kind != "name" or "operator" in head or "template" in head:
            continue
        key = (name.text, _arguments(tokens, found.parameters))
        if key in lines:  # overloads: which one is called cannot be told here
            calls[key] = set()
            continue
        lines[key] = name.line
        calls[key] = set(_calls(tokens, found.body + 1, matching(tokens, found.body)))
    for key, line in lines.items():
        if key in _reachable(key, calls):
            yield line, f"function {key[0]!r} calls itself: Metal has no recursion"


def _backwards(tokens: Sequence[Token], index: int) -> Iterator[int]:
    return (i for i in range(index - 1, -1, -1) if tokens[i].counts)


def _arguments(tokens: Sequence[Token], opening: int) -> int:
    """Arguments in a pair of brackets, by their commas."""
    close, count, i = matching(tokens, opening), 0, opening + 1
    while i < close:
        if tokens[i].counts:
            count = max(count, 1)
            if tokens[i].text in CLOSING:
                i = matching(tokens, i)
            elif tokens[i].text == ",":
                count += 1
        i += 1
    return count


def _calls(tokens: Sequence[Token], start: int, end: int) -> Iterator[tuple[str, int]]:
    indices = list(counted(tokens, start, end))
    for position, (i, j) in enumerate(pairwise(indices)):
        earlier = tokens[indices[position - 1]].text if position else ""
        if tokens[i].kind == "name" and tokens[j].text == "(" and earlier not in (".", "->", "::", *CLASS_WORDS):
            yield tokens[i].text, _arguments(tokens, j)


def _reachable(start: tuple[str, int], calls: dict[tuple[str, int], set[tuple[str, int]]]) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    pending = list(calls.get(start, ()))
    while pending:
        current = pending.pop()
        if current not in seen:
            seen.add(current)
            pending.extend(calls.get(current, ()))
    return seen
