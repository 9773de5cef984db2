"""Splits Metal text into tokens, keeping every character, so that rewriting touches nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["space", "comment", "directive", "string", "number", "name", "mark"]

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>(?:(?<=\n)|\A)[ \t]*\#(?:\\\r?\n|[^\n])*)
  | (?P<space>\s+|\\\r?\n)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.'])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark>::|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A piece of text.

    Attributes:
        kind: what it is; a directive is a whole preprocessor line with its continuations.
        text: exactly as written.
        line: 1-based line on which it starts.
    """

    kind: TokenKind
    text: str
    line: int

    @property
    def counts(self) -> bool:
        """Whether the compiler's grammar sees it."""
        return self.kind not in ("space", "comment", "directive")


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text``; joined together they give ``text`` back."""
    tokens: list[Token] = []
    line = 1
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None and match.lastgroup is not None  # the last alternative takes any character
        kind: TokenKind = match.lastgroup  # type: ignore[assignment]
        piece = match.group()
        if kind == "space" and "\n" in piece:
            # Stop after the last line break: indentation before '#' belongs to the directive.
            piece = piece[: piece.rindex("\n") + 1]
        tokens.append(Token(kind, piece, line))
        line += piece.count("\n")
        position += len(piece)
    return tokens
