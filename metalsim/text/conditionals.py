"""``c ? p[i] : T(0)`` with ``p`` outside thread memory: clang finds no common type for classes in two spaces."""

from __future__ import annotations

from collections.abc import Sequence

from metalsim.text.declarations import CLOSING, counted, matching
from metalsim.text.swizzles import is_swizzle
from metalsim.text.tokens import Token, tokenize


def settle_conditionals(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with an operand of ``?:`` copied to thread memory where the other one lies there.

    Args:
        tokens: of the text.
    """
    result = list(tokens)
    for question in [i for i, token in enumerate(result) if token.text == "?" and token.counts][::-1]:
        colon = _operand_end(result, question + 1)
        if colon >= len(result) or result[colon].text != ":":
            continue
        operands = ((question + 1, colon), (colon + 1, _operand_end(result, colon + 1)))
        stored = [_is_stored(result, start, end) for start, end in operands]
        if all(stored):
            _wrap_both(result, operands)
            continue
        for (start, end), is_stored in zip(operands, stored, strict=True):
            if is_stored:
                first, last = next(counted(result, start, end)), max(counted(result, start, end))
                _wrap(result, last, "", ")")
                _wrap(result, first, "msim::value_of(", "")
    return result


def _operand_end(tokens: Sequence[Token], index: int) -> int:
    """Where an operand of ``?:`` ends: at its ``:``, or at what no expression goes past."""
    nested, i = 0, index
    while i < len(tokens):
        text = tokens[i].text if tokens[i].counts else ""
        if text in CLOSING:
            i = matching(tokens, i)
        elif text == "?":
            nested += 1
        elif text == ":" and nested:
            nested -= 1
        elif text in (":", ";", ",", *CLOSING.values()):
            return i
        i += 1
    return i


def _is_stored(tokens: Sequence[Token], start: int, end: int) -> bool:
    """Whether an operand looks like an element, a member or a pointee."""
    inner = [tokens[i] for i in counted(tokens, start, end)]
    if not inner or any(token.text == "?" for token in inner):
        return False
    member = len(inner) > 2 and inner[-2].text in (".", "->") and not is_swizzle(inner[-1].text)
    return inner[-1].text == "]" or inner[0].text == "*" or member


def _wrap_both(tokens: list[Token], operands: Sequence[tuple[int, int]]) -> None:
    """Two elements: they stay what they are when both have one type, and are copied when their spaces differ."""
    inner = [list(counted(tokens, start, end)) for start, end in operands]
    types = ["decltype((" + " ".join(tokens[i].text for i in indices) + "))" for indices in inner]
    for own, other in ((1, 0), (0, 1)):
        _wrap(tokens, inner[own][-1], "", ")")
        line = tokens[inner[own][0]].line
        # Tokens of their own, since what they name is rewritten too.
        call = [Token("string", "msim::side<", line), *tokenize(f"{types[own]}, {types[other]}")]
        head = [Token(t.kind, t.text, line) for t in [*call, Token("string", ">(", line)]]
        tokens[inner[own][0] : inner[own][0]] = head


def _wrap(tokens: list[Token], index: int, before: str, after: str) -> None:
    # Not marks: the parentheses belong together but lie in two tokens.
    token = tokens[index]
    tokens[index : index + 1] = [Token("string", t, token.line) for t in (before,) if t] + [token]
    if after:
        tokens.insert(index + 1, Token("string", after, token.line))
