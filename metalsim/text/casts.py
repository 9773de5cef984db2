"""Casts between half and bfloat, which clang refuses: ``half(x)`` and ``(half)x`` become calls of the shim headers."""

from __future__ import annotations

from collections.abc import Sequence

from metalsim.text.declarations import counted, matching
from metalsim.text.tokens import Token

_CALLS = {
    "half": "msim::construct<half>",
    "bfloat": "msim::construct<bfloat>",
    "float16_t": "msim::construct<float16_t>",
    "bfloat16_t": "msim::construct<bfloat16_t>",
}
CONVERTED = frozenset(_CALLS)
"""Types whose casts become calls."""
_BEFORE_A_CAST = frozenset(("return", "case", "else", "do", "co_return"))
_NO_VALUE = frozenset(("&", "*", ")", "...", "device", "thread", "threadgroup", "constant", "const"))


def cast_call(tokens: Sequence[Token], index: int) -> str:
    """What to write for the type name at ``index`` when it stands before the bracket of ``half(x)``; else empty.

    Args:
        tokens: of the text.
        index: of a name.
    """
    call = _CALLS.get(tokens[index].text)
    following = list(_next(tokens, index, 2))
    if not call or not following or tokens[following[0]].text != "(":
        return ""
    if len(following) > 1 and tokens[following[1]].text in _NO_VALUE - {")", "*"}:
        return ""  # a reference to an array, or a function type
    earlier = _previous(tokens, index)
    if earlier >= 0 and tokens[earlier].text in ("operator", "::", "~"):
        return ""
    return call


def convert_casts(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with each ``(half)operand`` written as ``half(operand)``."""
    result = list(tokens)
    for index in range(len(result) - 1, -1, -1):
        if not result[index].counts or result[index].text != "(":
            continue
        inside = list(_next(result, index, 3))
        if len(inside) < 3 or result[inside[0]].text not in _CALLS or result[inside[1]].text != ")":
            continue
        earlier = _previous(result, index)
        if earlier >= 0 and not _may_precede(result[earlier]):
            continue
        last = _operand_end(result, inside[2])
        if last < 0:
            continue
        # Not marks: the parentheses belong together but lie in tokens of their own.
        result.insert(last + 1, Token("string", ")", result[last].line))
        result[inside[1]] = Token("string", "(", result[inside[1]].line)
        name = result[inside[0]]
        result[inside[0]] = Token("string", _CALLS[name.text], name.line)
        result[index] = Token("space", " ", result[index].line)
    return result


def _next(tokens: Sequence[Token], index: int, count: int) -> Sequence[int]:
    found: list[int] = []
    for i in range(index + 1, len(tokens)):
        if tokens[i].counts:
            found.append(i)
            if len(found) == count:
                break
    return found


def _previous(tokens: Sequence[Token], index: int) -> int:
    index -= 1
    while index >= 0 and not tokens[index].counts:
        index -= 1
    return index


def _may_precede(token: Token) -> bool:
    """Whether a cast, rather than a list of parameters or the operand of ``sizeof``, can follow."""
    if token.kind == "name":
        return token.text in _BEFORE_A_CAST
    return token.kind not in ("number", "string") and token.text not in ("]", ">")


def _operand_end(tokens: Sequence[Token], index: int) -> int:
    """Last token of the operand of a cast that starts at ``index``; -1 when it is none that can be read."""
    i = index
    while tokens[i].text in ("-", "+", "!", "~", "*"):
        following = _next(tokens, i, 1)
        if not following:
            return -1
        i = following[0]
    if tokens[i].text == "(":
        i = matching(tokens, i)
    elif tokens[i].kind not in ("name", "number"):
        return -1
    while True:
        following = _next(tokens, i, 2)
        if not following:
            return i
        text = tokens[following[0]].text
        if text in ("(", "["):
            i = matching(tokens, following[0])
        elif text in (".", "->", "::") and len(following) > 1:
            i = following[1]
        elif text == "<" and tokens[i].kind == "name" and _is_template(tokens, following[0]):
            i = _template_end(tokens, following[0])
        else:
            return i


def _is_template(tokens: Sequence[Token], index: int) -> bool:
    end = _template_end(tokens, index)
    following = _next(tokens, end, 1) if end > index else []
    return bool(following) and tokens[following[0]].text == "("


def _template_end(tokens: Sequence[Token], index: int) -> int:
    """Index of the ``>`` of a list of template arguments that holds names and numbers only; else ``index``."""
    for i in counted(tokens, index + 1, len(tokens)):
        if tokens[i].text == ">":
            return i
        if tokens[i].kind not in ("name", "number") and tokens[i].text not in (",", "::"):
            return index
    return index
