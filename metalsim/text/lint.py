"""Finds what Metal's compiler refuses and clang, which metalsim compiles with, accepts.

Works on tokens and declarations, after the preprocessor for whole files. What is named by single words
(``double``, ``goto``, ``new`` ...) is refused by ``metalsim.text.rewrite``; here is what needs a look around:
pointers without an address space, pointers to functions, static locals, recursion, arrays of variable length,
types and literals of more than one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, takewhile

from metalsim.text.declarations import (
    CLASS_WORDS,
    CLOSING,
    Bracketed,
    Declaration,
    counted,
    declarations,
    is_attribute,
    matching,
)
from metalsim.text.signature import ATTRIBUTES
from metalsim.text.tokens import Token

_SPACES = frozenset({"device", "constant", "threadgroup", "thread", "threadgroup_imageblock", "ray_data"})
_SCALARS = frozenset((
    "bool", "char", "short", "int", "long", "float", "half", "bfloat", "uchar", "ushort", "uint", "ulong", "size_t",
    "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t",
    "float16_t", "bfloat16_t",
))  # fmt: skip
_VECTOR = re.compile(rf"(?:packed_)?(?:{'|'.join(sorted(_SCALARS))})[2-4]")
_STATEMENT_STARTS = frozenset({";", "{", "}", "(", ",", ":"})

_CHOICES = "device, constant, threadgroup or thread"
_LONG_LITERAL = re.compile(r"(?:[0-9]*\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)[lL]")

Fault = tuple[int, str]
"""Line of a token, and what is wrong there."""


def lint(tokens: Sequence[Token], *, in_body: bool = False) -> tuple[Fault, ...]:
    """Faults of a text, in the order of its lines.

    Args:
        tokens: of the text.
        in_body: whether the text is a function's body rather than a file.
    """
    tokens = Bracketed(tokens)
    faults: list[Fault] = [*_words(tokens)]
    types = _class_names(tokens)
    if in_body:
        faults += _body_faults(tokens, 0, len(tokens), types)
    else:
        functions = [d for d in _functions(tokens, 0, len(tokens)) if d.body >= 0]
        for found in functions:
            faults += _result(tokens, found, types)
            faults += _pointers(tokens, found.parameters + 1, matching(tokens, found.parameters), types)
            faults += _body_faults(tokens, found.body + 1, matching(tokens, found.body), types)
        for start, end in _members(tokens, 0, len(tokens)):
            faults += _pointers(tokens, start, end, types)
        faults += _recursion(tokens, functions)
    return tuple(sorted(dict.fromkeys(faults)))


def _functions(tokens: Sequence[Token], start: int, end: int) -> Iterator[Declaration]:
    """All functions, methods included."""
    for found in declarations(tokens, start, end):
        if found.body >= 0 and found.parameters >= 0:
            yield found
        elif found.body >= 0 and found.is_class:
            yield from _functions(tokens, found.body + 1, matching(tokens, found.body))


def _members(tokens: Sequence[Token], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of the members of classes that are no functions."""
    for found in declarations(tokens, start, end):
        if found.body < 0 or not found.is_class:
            continue
        for member in declarations(tokens, found.body + 1, matching(tokens, found.body)):
            if member.body < 0 and member.parameters < 0:
                yield member.start, member.end
        yield from _members(tokens, found.body + 1, matching(tokens, found.body))


def _class_names(tokens: Sequence[Token]) -> frozenset[str]:
    """Structures, classes and unions that the text defines; other names may stand for a type with its space."""
    names = set()
    indices = list(counted(tokens, 0, len(tokens)))
    for position, (i, j) in enumerate(pairwise(indices)):
        if tokens[i].text not in ("struct", "class", "union") or tokens[j].kind != "name":
            continue
        before = tokens[indices[position - 1]].text if position else ""
        after = tokens[indices[position + 2]].text if position + 2 < len(indices) else ""
        if before not in ("<", ",") and after in ("{", ":", ";"):
            names.add(tokens[j].text)
    return frozenset(names)


def _words(tokens: Sequence[Token]) -> Iterator[Fault]:
    """What a few tokens in a row tell."""
    indices = list(counted(tokens, 0, len(tokens)))
    for position, i in enumerate(indices):
        token = tokens[i]
        if token.kind == "mark":
            continue
        following = [tokens[k].text for k in indices[position + 1 : position + 6]]
        if token.kind == "number" and _LONG_LITERAL.fullmatch(token.text):
            yield token.line, f"Metal has no 'long double': {token.text}"
        elif token.text == "long" and following[:1] == ["long"]:
            yield token.line, "Metal has no 'long long'; long has 64 bits"
        elif token.text == "std" and following[:1] == ["::"]:
            yield token.line, "Metal has no namespace 'std'"
        elif following[:2] == ["(", "*"] and following[3:5] == [")", "("] and _declares_here(tokens, indices, position):
            yield token.line, f"Metal has no pointers to functions: {following[2]!r}"


def _declares_here(tokens: Sequence[Token], indices: Sequence[int], position: int) -> bool:
    """Whether a variable of a basic type is declared; functions as template arguments are allowed."""
    before = tokens[indices[position - 1]].text if position else ";"
    token = tokens[indices[position]]
    return (_is_type(token) or token.text == "void") and before in (";", "{", "}", "(")


def _result(tokens: Sequence[Token], found: Declaration, types: frozenset[str]) -> Iterator[Fault]:
    """``float *f()``: a function's result without an address space."""
    head = [tokens[k] for k in counted(tokens, found.start, found.parameters)]
    words = [token.text for token in head]
    if "operator" in words or "template" in words or _SPACES & set(words) or len(head) < 3:
        return
    kind, mark, name = head[-3:]
    if _is_type(kind, types) and mark.text in ("*", "&") and name.kind == "name":
        what = "pointer" if mark.text == "*" else "reference"
        yield kind.line, f"the {what} that {name.text!r} returns needs an address space"


def _body_faults(tokens: Sequence[Token], start: int, end: int, types: frozenset[str]) -> Iterator[Fault]:
    yield from _pointers(tokens, start, end, types)
    yield from _variable_arrays(tokens, start, end)
    yield from _statics(tokens, start, end)


def _is_type(token: Token, types: frozenset[str] = frozenset()) -> bool:
    return token.kind == "name" and (
        token.text in _SCALARS or token.text in types or bool(_VECTOR.fullmatch(token.text))
    )


def _pointers(tokens: Sequence[Token], start: int, end: int, types: frozenset[str]) -> Iterator[Fault]:
    """``float* p`` and ``(float*)``: a type that is surely one, a star or an ampersand, no address space before it."""
    indices = list(counted(tokens, start, end))
    for position, (i, j) in enumerate(pairwise(indices)):
        if not _is_type(tokens[i], types) or tokens[j].text not in ("*", "&"):
            continue
        first = position
        while first > 0 and tokens[indices[first - 1]].text in ("const", "volatile", "metal", "::", "unsigned"):
            first -= 1
        before = tokens[indices[first - 1]].text if first else ";"
        after = tokens[indices[position + 2]] if position + 2 < len(indices) else None
        if after is None or after.text in _SPACES:
            continue
        kind = "pointer" if tokens[j].text == "*" else "reference"
        if before in _STATEMENT_STARTS and after.kind == "name":
            yield tokens[i].line, f"{kind} {after.text!r} needs an address space ({_CHOICES})"
        elif before in ("(", "<") and after.text == {"(": ")", "<": ">"}[before]:
            yield tokens[i].line, f"{kind} to {tokens[i].text!r} needs an address space ({_CHOICES})"


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
