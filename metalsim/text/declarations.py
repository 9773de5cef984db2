"""Splits the tokens of C++ text into declarations, by brackets alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metalsim.text.tokens import Token

CLASS_WORDS = ("struct", "class", "union", "enum")
_NOT_PARAMETERS = ("decltype", "alignas", "__attribute__")
CLOSING = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(CLOSING.values())


@dataclass
class Declaration:
    """A run of tokens ``[start, end)`` that declares something.

    Attributes:
        start, end: token indices.
        scope: namespaces around it, joined by ``::``.
        body: index of the ``{`` of a function's or class's body, -1 without one.
        parameters: index of the ``(`` of a function's parameters, -1 without one.
        is_class: whether it defines a struct, class, union or enum.
    """

    start: int
    end: int
    scope: str
    body: int = -1
    parameters: int = -1
    is_class: bool = False


class Bracketed(tuple[Token, ...]):
    """Tokens that stay as they are, so that their brackets are paired once."""

    @functools.cached_property
    def closing(self) -> dict[int, int]:
        """Index of the bracket that closes, by that of the one that opens; what stays open is not in it."""
        opened: list[int] = []
        closing: dict[int, int] = {}
        for index, token in enumerate(self):
            if token.kind != "mark":
                continue
            if token.text in CLOSING:
                opened.append(index)
            elif token.text in _CLOSERS and opened:
                closing[opened.pop()] = index
        return closing


def matching(tokens: Sequence[Token], index: int) -> int:
    """Index of the bracket that closes the one at ``index``, or the last index."""
    if isinstance(tokens, Bracketed) and tokens[index].text in CLOSING and tokens[index].kind == "mark":
        return tokens.closing.get(index, len(tokens) - 1)
    depth = 0
    for i in range(index, len(tokens)):
        if tokens[i].kind == "mark":
            depth += 1 if tokens[i].text in CLOSING else -1 if tokens[i].text in _CLOSERS else 0
            if depth == 0:
                return i
    return len(tokens) - 1


def closing_angle(tokens: Sequence[Token], index: int) -> int:
    """Index of the ``>`` that closes the ``<`` at ``index``.

    A ``<`` after anything but a name compares or shifts, as in ``sizeof(T) < 8``; other comparisons have to be in
    brackets.
    """
    depth, i, before = 0, index, ""
    while i < len(tokens):
        text = tokens[i].text
        if text == "<" and i > index and before != "name":
            i, before = i + 1, "mark"
            continue
        before = tokens[i].kind if tokens[i].counts else before
        if text in CLOSING and tokens[i].kind == "mark":
            i = matching(tokens, i)
        elif text in ("<", ">"):
            depth += 1 if text == "<" else -1
            if depth == 0:
                return i
        elif text == ";":
            break
        i += 1
    return index


def counted(tokens: Sequence[Token], start: int, end: int) -> Iterator[int]:
    """Indices of the tokens that the grammar sees."""
    return (i for i in range(start, end) if tokens[i].counts)


def is_attribute(tokens: Sequence[Token], index: int) -> bool:
    """Whether ``[[`` stands at ``index``."""
    following = next(counted(tokens, index + 1, min(index + 4, len(tokens))), -1)
    return tokens[index].text == "[" and following >= 0 and tokens[following].text == "["


def declarations(tokens: Sequence[Token], start: int, end: int, scope: str = "") -> Iterator[Declaration]:
    """Declarations between two indices, those inside namespaces included."""
    i = start
    while i < end:
        token = tokens[i]
        if not token.counts or token.text in (";", "}"):
            i += 1
            continue
        words = [tokens[k].text for k in counted(tokens, i, min(i + 12, end))]
        if words[0] == "namespace" or words[:2] == ["inline", "namespace"]:
            brace = next((k for k in counted(tokens, i, end) if tokens[k].text in ("{", ";", "=")), end)
            if brace < end and tokens[brace].text == "{":
                name = "".join(tokens[k].text for k in counted(tokens, i, brace)).replace("inline", "", 1)
                inner = "::".join(part for part in (scope, name.removeprefix("namespace")) if part)
                close = matching(tokens, brace)
                yield Declaration(i, close + 1, inner, body=-2)
                yield from declarations(tokens, brace + 1, close, inner)
                i = close + 1
                continue
        found = _DeclarationReader(tokens, i, end, scope).read()
        yield found
        i = found.end


class _DeclarationReader:
    """Finds where one declaration ends, and its parts."""

    def __init__(self, tokens: Sequence[Token], start: int, end: int, scope: str) -> None:
        self._tokens = tokens
        self._end = end
        self.found = Declaration(start, end, scope)
        self._initialized = self._operator = False

    def read(self) -> Declaration:
        i = self.found.start
        while i < self._end:
            token = self._tokens[i]
            text = token.text if token.counts else ""
            if text == ";":
                self.found.end = i + 1
                break
            if token.kind == "name":
                i = self._name(i)
            elif text in CLOSING:
                i = self._bracket(i)
                if self.found.end != self._end:
                    break
            elif text == "=" and self.found.parameters < 0 and not self._operator:
                self._initialized = True
            i += 1
        self.found.is_class = self.found.is_class and self.found.parameters < 0
        return self.found

    def _following(self, index: int) -> int:
        return next(counted(self._tokens, index + 1, self._end), self._end)

    def _name(self, index: int) -> int:
        """Note a keyword; the index of the last token that belongs to it."""
        text, following = self._tokens[index].text, self._following(index)
        next_text = self._tokens[following].text if following < self._end else ""
        if text == "template" and next_text == "<":
            return closing_angle(self._tokens, following)
        if text == "operator":
            self._operator = True
            return matching(self._tokens, following) if next_text == "(" else index
        if text in CLASS_WORDS and self.found.parameters < 0:
            self.found.is_class = True
        return index

    def _bracket(self, index: int) -> int:
        """Note what a bracket opens; the index of the one that closes it."""
        found, text = self.found, self._tokens[index].text
        close = matching(self._tokens, index)
        if text == "(" and found.parameters < 0 and not self._initialized:
            earlier = next(before(self._tokens, index), -1)
            if earlier < 0 or self._tokens[earlier].text not in _NOT_PARAMETERS:
                found.parameters = index
        elif text == "{" and not self._initialized:
            if found.body < 0:
                found.body = index
            following = self._following(close)
            more = following < self._end and self._tokens[following].text in (",", "{")
            if found.parameters >= 0 and not more:
                found.end = close + 1
        return close


def before(tokens: Sequence[Token], index: int) -> Iterator[int]:
    """Index of the token before that counts, if there is one."""
    i = index - 1
    while i >= 0 and not tokens[i].counts:
        i -= 1
    if i >= 0:
        yield i
