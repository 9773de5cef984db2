"""CUDA text as the compiler would see it: comments, dead branches and prose blanked, offsets kept.

Every function returns a text of the same length with the same line breaks, so that an offset in
any of them is an offset in all of them. Non-ASCII characters become ``?``: byte and character
offsets agree, which lets the parser (bytes) and the patterns (characters) share positions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_LEXEME = re.compile(
    r"//(?:\\\n|[^\n])*"
    r"|/\*.*?(?:\*/|\Z)"
    r'|R"(?P<mark>[^\s()\\"]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\[^\n]{1,9}?|[^'\\\n])'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|include|error|warning)\b(.*)$", re.MULTILINE)
_ASM_HEAD = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:(?:volatile|__volatile__|inline|goto)\b\s*)*\(")
_PRAGMA_OPERATOR = re.compile(r"\b_Pragma\s*\(\s*\"$")
_NEVER = re.compile(r"\(?\s*(?:0|false|!\s*1)\s*\)?\s*(?:&&.*)?$")
_ALWAYS = re.compile(r"\(?\s*(?:1|true|!\s*0)\s*\)?\s*(?:\|\|.*)?$")
_NOT_BREAK = re.compile(r"[^\n]")


@dataclass(frozen=True)
class CleanText:
    """A file's text in the two forms that the analysis needs.

    Attributes:
        code: comments, dead preprocessor branches, includes and string contents blanked, except the
            strings of ``asm`` statements.
        assembly: (start, end) of every ``asm ( ... )`` in ``code``, in order.
    """

    code: str
    assembly: tuple[tuple[int, int], ...]


def decode(data: bytes) -> str:
    """Text of a source file: UTF-8 (with or without byte-order mark), else Latin-1; breaks become ``\\n``."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def blank(text: str, start: int, end: int) -> str:
    """``text`` with spaces for everything but line breaks in [start, end)."""
    return text[:start] + _NOT_BREAK.sub(" ", text[start:end]) + text[end:]


def _blank_all(text: str, spans: list[tuple[int, int]]) -> str:
    """Like ``blank`` for sorted, disjoint spans, in one pass."""
    pieces: list[str] = []
    cursor = 0
    for start, end in spans:
        pieces += [text[cursor:start], _NOT_BREAK.sub(" ", text[start:end])]
        cursor = end
    pieces.append(text[cursor:])
    return "".join(pieces)


def closing(text: str, opening: int) -> int:
    """Offset after the bracket that closes the one at ``opening``; the text's end when none does."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    close, open_ = pairs[text[opening]], text[opening]
    depth = 0
    for match in re.compile(f"[{re.escape(open_ + close)}]").finditer(text, opening):
        depth += 1 if match.group() == open_ else -1
        if depth == 0:
            return match.end()
    return len(text)


@lru_cache(maxsize=2)
def clean(text: str) -> CleanText:
    """Blank what is not code.

    Args:
        text: a file's text with ``\\n`` breaks.
    """
    text = text.encode("ascii", "replace").decode("ascii") if not text.isascii() else text
    comments: list[tuple[int, int]] = []
    strings: list[tuple[int, int]] = []
    for match in _LEXEME.finditer(text):
        if match.group().startswith("/"):
            comments.append(match.span())
        elif not match.group().startswith("'"):
            strings.append((match.start() + match.group().index('"') + 1, match.end() - 1))
    text = _blank_all(text, comments)
    text = _blank_all(text, _dead_spans(text))
    silent = _blank_all(text, [span for span in strings if span[0] < span[1]])
    assembly = tuple((m.start(), closing(silent, m.end() - 1)) for m in _ASM_HEAD.finditer(silent))
    prose, current = [], 0
    for start, end in strings:
        while current < len(assembly) and assembly[current][1] <= start:
            current += 1
        spoken = current < len(assembly) and assembly[current][0] <= start < assembly[current][1]
        if not spoken and not _PRAGMA_OPERATOR.search(text, max(0, start - 20), start):
            prose.append((start, end))
    return CleanText(_blank_all(text, prose), assembly)


def _dead_spans(text: str) -> list[tuple[int, int]]:
    """Spans of branches that no configuration compiles, and of lines that only include or complain.

    A branch is dead after ``#if 0`` and after the ``#else`` of ``#if 1``; what depends on a macro may live.
    """
    spans: list[tuple[int, int]] = []
    # One entry per open conditional: [dead now, an earlier branch was certainly taken].
    stack: list[list[bool]] = []
    dead_from = -1
    for match in _DIRECTIVE.finditer(text):
        word, rest = match.group(1), match.group(2).strip()
        if word in ("include", "error", "warning"):
            if not any(level[0] for level in stack):
                spans.append(match.span())
            continue
        was_dead = any(level[0] for level in stack)
        _enter_branch(stack, word, rest)
        is_dead = any(level[0] for level in stack)
        if is_dead and not was_dead:
            dead_from = match.end()
        elif was_dead and not is_dead:
            spans.append((dead_from, match.start()))
    if any(level[0] for level in stack):
        spans.append((dead_from, len(text)))
    return spans


def _enter_branch(stack: list[list[bool]], word: str, condition: str) -> None:
    if word in ("if", "ifdef", "ifndef"):
        literal = word == "if"
        stack.append([literal and bool(_NEVER.match(condition)), literal and bool(_ALWAYS.match(condition))])
    elif stack and word in ("else", "elif"):
        taken = stack[-1][1]
        stack[-1][0] = taken or (word == "elif" and bool(_NEVER.match(condition)))
        stack[-1][1] = taken or (word == "elif" and bool(_ALWAYS.match(condition)))
    elif stack and word == "endif":
        stack.pop()
