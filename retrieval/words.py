"""Words of code and prose as search terms: identifiers split as code is, endings dropped, function words known."""

from __future__ import annotations

import re

# A word may hold dots, double colons and hyphens between its parts: cp.async, cute::copy, block-scan.
_WORD = re.compile(r"[A-Za-z0-9_]+(?:(?:\.|::|-)[A-Za-z0-9_]+)*")
_SEPARATORS = re.compile(r"[._:\-]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_PLAIN_ENGLISH = re.compile(r"[a-z]+")
_ENDINGS = (
    "izations", "ization", "izing", "izers", "izer", "ized", "izes", "ize",
    "ations", "ation", "ings", "ing", "ions", "ion", "edly", "ed", "ers", "er", "es", "ly", "e", "s",
)  # fmt: skip
_SHORTEST_STEM = 4

_FUNCTION_WORDS = """
    a about after again all also am an and any are as at be because been before being between both but by can could
    d did do does doing don done each else ever few for from get gets got had has have having here how i if in into
    is isn it its just like ll me more most my no not now of off on only or other our out over own re s same should
    so some such t than that the their them then there these they this those to too up ve very was we were what when
    where which while who why will with won would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that say how a question is put and not what it is about."""


def code_terms(text: str) -> list[str]:
    """Split ``text`` into search terms as one splits code.

    An identifier yields itself in lower case and its parts: ``simd_shuffle_xor`` yields
    ``simd_shuffle_xor``, ``simd``, ``shuffle``, ``xor``; ``cp.async`` yields ``cp.async``, ``cp``,
    ``async``; ``threadsPerGrid`` yields ``threadspergrid``, ``thread``, ``per``, ``grid``. Parts and
    plain words lose a plural s, so that "shuffles" meets "shuffle".
    """
    return [term for terms in code_words(text) for term in terms]


def code_words(text: str) -> list[tuple[str, ...]]:
    """The terms of `code_terms` by word: a plain word alone, an identifier followed by its parts."""
    words = []
    for word in _WORD.findall(text):
        whole = word.lower()
        parts = [piece for part in _SEPARATORS.split(word) if part for piece in _split_camel(part)]
        terms = [] if parts == [whole] else [whole]
        words.append((*terms, *map(_singular, parts)))
    return words


def is_identifier(term: str) -> bool:
    """Whether a term of `code_terms` is a compound name rather than a plain word."""
    return _PLAIN_ENGLISH.fullmatch(term) is None and not term.isdigit()


def stem(term: str) -> str:
    """A plain word without its ending: ``padding``, ``padded`` and ``pads`` differ less than their meanings do.

    Identifiers and words with digits stay as they are. At least four letters remain, and a consonant that an
    ending had doubled is single again.
    """
    if _PLAIN_ENGLISH.fullmatch(term) is None:
        return term
    for ending in _ENDINGS:
        if term.endswith(ending) and len(term) - len(ending) >= _SHORTEST_STEM:
            term = term[: -len(ending)]
            break
    if len(term) > _SHORTEST_STEM and term[-1] == term[-2] and term[-1] not in "sl":
        return term[:-1]
    return term


def _split_camel(part: str) -> list[str]:
    pieces = _CAMEL.findall(part)
    # float4, m16n8k16: letters mixed with digits are names of their own, not words to be cut up.
    if any(piece.isdigit() for piece in pieces):
        return [part.lower()]
    return [piece.lower() for piece in pieces]


def _singular(term: str) -> str:
    # batches, matches, branches; but caches, whose singular ends in e.
    if term.endswith("ches") and not term.endswith("aches"):
        return term[:-2]
    if len(term) > 3 and term.endswith("s") and not term.endswith(("ss", "us", "is")):
        return term[:-1]
    return term
