"""Literals that a pattern cannot match without: most techniques are absent from most files.

Searching a megabyte for an alternation costs some 50 ms, asking whether a word stands in it 0.1 ms.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ESCAPED_LITERALS = ".()[]{}*+?|^$/-#\\"
_QUANTIFIER = re.compile(r"[*?+]\??|\{(\d+)(?:,\d*)?\}\??")


def may_match(pattern: re.Pattern[str], text: str) -> bool:
    """Whether ``pattern`` could match in ``text``; False is certain, True is not.

    Args:
        pattern: any compiled pattern; one with constructs not understood may always match.
        text: what is to be searched.
    """
    words = required_words(pattern.pattern)
    if words is None:
        return True
    if pattern.flags & re.IGNORECASE:
        lowered = _lowered(text)
        return any(word.lower() in lowered for word in words)
    return any(word in text for word in words)


@lru_cache(maxsize=4)
def _lowered(text: str) -> str:
    return text.lower()


@lru_cache(maxsize=8192)
def required_words(pattern: str) -> frozenset[str] | None:
    """Words of which every match contains at least one; None when nothing can be said.

    The words of a pattern that ignores case (``(?i)`` at its start) are to be compared so.
    """
    if "(?x" in pattern or "(?-i" in pattern:
        return None
    start = len("(?i)") if pattern.startswith("(?i)") else 0
    words, end = _alternation(pattern, start)
    return words if end == len(pattern) else None


def _alternation(pattern: str, start: int) -> tuple[frozenset[str] | None, int]:
    """Requirement of the alternatives from ``start`` to the closing bracket or the end."""
    total: frozenset[str] | None = frozenset()
    offset = start
    while True:
        words, offset = _sequence(pattern, offset)
        total = None if total is None or words is None else total | words
        if offset >= len(pattern) or pattern[offset] != "|":
            return total, offset
        offset += 1


def _sequence(pattern: str, offset: int) -> tuple[frozenset[str] | None, int]:
    best: frozenset[str] | None = None
    run = ""

    def keep(candidate: frozenset[str] | None) -> None:
        nonlocal best
        if candidate and min(map(len, candidate)) >= 2:
            shortest = min(map(len, best)) if best else 0
            if min(map(len, candidate)) > shortest:
                best = candidate

    while offset < len(pattern) and pattern[offset] not in "|)":
        literal, group, offset = _atom(pattern, offset)
        quantifier = _QUANTIFIER.match(pattern, offset)
        if quantifier:
            offset = quantifier.end()
            once = quantifier.group().startswith("+") or quantifier.group(1) not in (None, "0")
            keep(frozenset({run}) if run else None)
            run = ""
            keep(group if once else None)
        elif literal:
            run += literal
        else:
            keep(frozenset({run}) if run else None)
            run = ""
            keep(group)
    keep(frozenset({run}) if run else None)
    return best, offset


def _atom(pattern: str, offset: int) -> tuple[str, frozenset[str] | None, int]:
    """(literal character or empty, requirement of a group, offset behind) of the atom at ``offset``."""
    char = pattern[offset]
    if char == "\\":
        following = pattern[offset + 1]
        return (following if following in _ESCAPED_LITERALS else ""), None, offset + 2
    if char == "[":
        end = offset + 1 + pattern.startswith("^", offset + 1)
        end = pattern.index("]", end + 1)
        while pattern[end - 1] == "\\" and pattern[end - 2] != "\\":
            end = pattern.index("]", end + 1)
        return "", None, end + 1
    if char == "(":
        looking = re.compile(r"\?<?[=!]").match(pattern, offset + 1)
        named = re.compile(r"\?(?::|P<\w+>|-?[ms]+\)|P=\w+)").match(pattern, offset + 1)
        caseless = re.compile(r"\?i:").match(pattern, offset + 1)
        opened = named or looking or caseless
        words, end = _alternation(pattern, opened.end() if opened else offset + 1)
        # What a look-around sees need not be part of the match's own text in order, and a group that
        # ignores case has no certain spelling; leave them out.
        return "", None if looking or caseless else words, end + 1
    return ("" if char in ".^$" else char), None, offset + 1
