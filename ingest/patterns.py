"""``re``'s functions over a cache that a file's worth of patterns fits in.

Detectors ask with hundreds of fixed patterns and with as many made of a file's names. The cache of ``re``
holds 512: the names would push the fixed ones out, and each file would compile all of them again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from ingest.prefilter import may_match

_LONG = 2000
"""Characters from which asking for a literal first is worth it."""


@lru_cache(maxsize=8192)
def compiled(pattern: str | re.Pattern[str], flags: int = 0) -> re.Pattern[str]:
    """The compiled pattern; one that is compiled already is returned as it is."""
    return re.compile(pattern, flags)


def search(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> re.Match[str] | None:
    """As ``re.search``."""
    wanted = compiled(pattern, flags)
    if len(text) > _LONG and not may_match(wanted, text):
        return None
    return wanted.search(text)


def match(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> re.Match[str] | None:
    """As ``re.match``."""
    return compiled(pattern, flags).match(text)


def fullmatch(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> re.Match[str] | None:
    """As ``re.fullmatch``."""
    return compiled(pattern, flags).fullmatch(text)


def finditer(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> Iterator[re.Match[str]]:
    """As ``re.finditer``."""
    wanted = compiled(pattern, flags)
    if len(text) > _LONG and not may_match(wanted, text):
        return iter(())
    return wanted.finditer(text)


def findall(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> list[Any]:
    """As ``re.findall``: strings, or tuples of them for several groups."""
    wanted = compiled(pattern, flags)
    if len(text) > _LONG and not may_match(wanted, text):
        return []
    return wanted.findall(text)


def split(pattern: str | re.Pattern[str], text: str, maxsplit: int = 0, flags: int = 0) -> list[str]:
    """As ``re.split``."""
    return compiled(pattern, flags).split(text, maxsplit)


def sub(
    pattern: str | re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], text: str, flags: int = 0
) -> str:
    """As ``re.sub``."""
    return compiled(pattern, flags).sub(replacement, text)
