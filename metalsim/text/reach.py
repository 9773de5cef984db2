"""Leaves out of a file what one kernel does not use: the other kernels, and templates that nothing names.

A file may hold hundreds of kernels, of which one at a time is compiled. What else is left out cannot change the
kernel: a template that nobody instantiates makes no code. All other declarations stay, so that a fault in them
is reported whichever kernel is asked for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from metalsim.text.declarations import CLASS_WORDS, Declaration, before, counted
from metalsim.text.tokens import Token, tokenize

_MARKER = re.compile(r"\s*#\s*(?:line\s+)?\d")


@dataclass(frozen=True)
class Piece:
    """A declaration that can be left out.

    Attributes:
        start, end: token indices.
        name: that others use it by.
    """

    start: int
    end: int
    name: str


def removable(tokens: Sequence[Token], found: Declaration, *, is_kernel: bool) -> Piece | None:
    """The declaration as a piece; None when it always stays."""
    first = next(counted(tokens, found.start, found.end), -1)
    if found.body < 0 or first < 0 or not (is_kernel or tokens[first].text == "template"):
        return None
    if found.parameters >= 0:
        name = next(before(tokens, found.parameters), -1)
        earlier = next(before(tokens, name), -1) if name >= 0 else -1
        qualified = earlier >= 0 and tokens[earlier].text in ("::", "operator")
        if name < 0 or tokens[name].kind != "name" or qualified or tokens[name].text == "operator":
            return None
        return Piece(found.start, found.end, tokens[name].text)
    for i in counted(tokens, found.start, found.body):
        if tokens[i].text in CLASS_WORDS:
            return _class_piece(tokens, found, i)
    return None


def _class_piece(tokens: Sequence[Token], found: Declaration, keyword: int) -> Piece | None:
    """A class template; ``class`` among the template's parameters is none.

    Specializations stay: they may be of the shim headers' templates, which use them without naming them here.
    """
    candidates = [i for i in counted(tokens, keyword, found.body) if tokens[i].text in CLASS_WORDS]
    words = [tokens[i] for i in counted(tokens, candidates[-1] + 1, found.body)]
    name = next((word for word in words if word.kind == "name" and not word.text.startswith("__")), None)
    special = len(words) > 1 and words[1].text == "<"
    plain = name is not None and words[0] is name and not special
    return Piece(found.start, found.end, name.text) if plain and name is not None else None


@dataclass
class Reachable:
    """A file's tokens with what can be left out of them.

    Attributes:
        tokens: of the file.
        pieces: in order, none inside another.
    """

    tokens: Sequence[Token]
    pieces: Sequence[Piece]
    _mentions: list[frozenset[str]] = field(init=False, repr=False)
    _roots: frozenset[str] = field(init=False, repr=False)
    _markers: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._mentions = [self._names(piece.start, piece.end) for piece in self.pieces]
        ends = [0, *(piece.end for piece in self.pieces)]
        starts = [*(piece.start for piece in self.pieces), len(self.tokens)]
        between = (self._names(start, end) for start, end in zip(ends, starts, strict=True))
        self._roots = frozenset().union(*between)
        # Line markers only: a pragma about a loop is an error outside a function.
        directives = (i for i, token in enumerate(self.tokens) if token.kind == "directive")
        self._markers = [i for i in directives if _MARKER.match(self.tokens[i].text)]

    def from_entry(self, instance: str) -> list[Token]:
        """The tokens that the instance needs; in place of others their line breaks and line markers stay.

        Args:
            instance: C++ text of the kernel, such as ``f<float, 4>``.
        """
        names = {token.text for token in tokenize(instance) if token.kind == "name"}
        kept = self._kept(names)
        result: list[Token] = []
        position = 0
        for number, piece in enumerate(self.pieces):
            result += self.tokens[position : piece.start]
            result += self.tokens[piece.start : piece.end] if number in kept else self._breaks(piece)
            position = piece.end
        result += self.tokens[position:]
        return result

    def _kept(self, names: Collection[str]) -> set[int]:
        by_name: dict[str, list[int]] = {}
        for number, piece in enumerate(self.pieces):
            by_name.setdefault(piece.name, []).append(number)
        kept: set[int] = set()
        pending: list[Iterable[str]] = [names, self._roots]
        seen: set[str] = set()
        while pending:
            for name in pending.pop():
                if name in by_name and name not in seen:
                    seen.add(name)
                    kept.update(by_name[name])
                    pending += [self._mentions[number] for number in by_name[name]]
        return kept

    def _names(self, start: int, end: int) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens[start:end] if token.kind == "name")

    def _breaks(self, piece: Piece) -> list[Token]:
        """Line breaks in place of a piece, with its line markers at their lines."""
        result: list[Token] = []
        line = self.tokens[piece.start].line
        first = bisect_left(self._markers, piece.start)
        for i in self._markers[first : bisect_left(self._markers, piece.end)]:
            directive = self.tokens[i]
            result += [Token("space", "\n" * (directive.line - line), line), directive]
            line = directive.line
        last = self.tokens[piece.end - 1]
        result.append(Token("space", "\n" * (last.line + last.text.count("\n") - line) or " ", line))
        return result
