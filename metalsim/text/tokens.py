"""Splits Metal text into tokens, keeping every character, so that rewriting touches nothing else."""

from __future__ import annotations

import re
from typing import Literal

TokenKind = Literal["space", "comment", "directive", "string", "number", "name", "mark"]

# The frequent ones first. White space ends after its last line break: indentation before '#' is the directive's.
_TOKEN = re.compile(
    r"""
    (?P<name>[A-Za-z_]\w*)
  | (?P<mark>[()\[\]{},;<>=*&+!?|%^~]|::?|->?)
  | (?P<directive>(?:(?<=\n)|\A)[ \t]*\#(?:\\\r?\n|[^\n])*)
  | (?P<space>\s*\n|\s+|\\\r?\n)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.'])*)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<rest>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_UNSEEN = frozenset(("space", "comment", "directive"))


class Token:
    """A piece of text; never changed once made.

    Attributes:
        kind: what it is; a directive is a whole preprocessor line with its continuations.
        text: exactly as written.
        line: 1-based line on which it starts.
        counts: whether the compiler's grammar sees it.
    """

    __slots__ = ("counts", "kind", "line", "text")

    def __init__(self, kind: TokenKind, text: str, line: int) -> None:
        self.kind = kind
        self.text = text
        self.line = line
        self.counts = kind not in _UNSEEN

    def __repr__(self) -> str:
        return f"Token({self.kind!r}, {self.text!r}, {self.line})"


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text``; joined together they give ``text`` back."""
    tokens: list[Token] = []
    line = 1
    for match in _TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        if kind == "name":
            tokens.append(Token("name", piece, line))
        elif kind in {"mark", "rest"}:
            tokens.append(Token("mark", piece, line))
        else:
            tokens.append(Token(kind, piece, line))  # type: ignore[arg-type]
            line += piece.count("\n")
    return tokens
