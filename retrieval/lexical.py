"""BM25 over texts in which code identifiers matter as a whole and by their parts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# A word may hold dots, double colons and hyphens between its parts: cp.async, cute::copy, block-scan.
_WORD = re.compile(r"[A-Za-z0-9_]+(?:(?:\.|::|-)[A-Za-z0-9_]+)*")
_SEPARATORS = re.compile(r"[._:\-]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_TELLING_SHARE = 0.3
_PLAIN_ENGLISH = re.compile(r"[a-z]+")


def code_terms(text: str) -> list[str]:
    """Split ``text`` into search terms as one splits code.

    An identifier yields itself in lower case and its parts: ``simd_shuffle_xor`` yields
    ``simd_shuffle_xor``, ``simd``, ``shuffle``, ``xor``; ``cp.async`` yields ``cp.async``, ``cp``,
    ``async``; ``threadsPerGrid`` yields ``threadspergrid``, ``thread``, ``per``, ``grid``. Parts and
    plain words lose a plural s, so that "shuffles" meets "shuffle".
    """
    terms: list[str] = []
    for word in _WORD.findall(text):
        whole = word.lower()
        parts = [piece for part in _SEPARATORS.split(word) if part for piece in _split_camel(part)]
        if parts != [whole]:
            terms.append(whole)
        terms.extend(_singular(part) for part in parts)
    return terms


def is_identifier(term: str) -> bool:
    """Whether a term of `code_terms` is a compound name rather than a plain word."""
    return _PLAIN_ENGLISH.fullmatch(term) is None and not term.isdigit()


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


@dataclass(frozen=True)
class LexicalMatch:
    """A document found by words.

    Attributes:
        position: index of the document as given to `LexicalIndex`.
        score: BM25 score, above 0.
        terms: the query's terms that made the score, the most telling first; words that say next to
            nothing ("of", "a") are left out.
    """

    position: int
    score: float
    terms: tuple[str, ...]


def _telling(gains: list[tuple[float, str]]) -> tuple[str, ...]:
    ordered = sorted(gains)
    least = ordered[0][0] * _TELLING_SHARE
    return tuple(term for gain, term in ordered if gain <= least)


class LexicalIndex:
    """Okapi BM25 with the usual constants.

    ``score = sum over terms of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean))``,
    ``idf(t) = ln(1 + (n - df + 0.5) / (df + 0.5))``. Source: Robertson and Zaragoza, The
    Probabilistic Relevance Framework: BM25 and Beyond, 2009; k1 = 1.2 and b = 0.75 as there.

    Args:
        texts: the documents.
    """

    K1 = 1.2
    B = 0.75

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._lengths: list[int] = []
        for position, text in enumerate(texts):
            counts = Counter(code_terms(text))
            self._lengths.append(sum(counts.values()))
            for term, count in counts.items():
                self._postings.setdefault(term, []).append((position, count))
        self._mean_length = sum(self._lengths) / len(self._lengths) if self._lengths else 0.0

    def search(self, query: str, count: int) -> list[LexicalMatch]:
        """Up to ``count`` documents that share a term with ``query``, best first; ties by position."""
        scores: dict[int, float] = {}
        matched: dict[int, list[tuple[float, str]]] = {}
        for term in dict.fromkeys(code_terms(query)):
            for position, gain in self._gains(term):
                scores[position] = scores.get(position, 0.0) + gain
                matched.setdefault(position, []).append((-gain, term))
        ranked = sorted(scores, key=lambda position: (-scores[position], position))[:count]
        return [LexicalMatch(position, scores[position], _telling(matched[position])) for position in ranked]

    def _gains(self, term: str) -> list[tuple[int, float]]:
        postings = self._postings.get(term, [])
        frequency = len(postings)
        idf = math.log(1 + (len(self._lengths) - frequency + 0.5) / (frequency + 0.5))
        return [
            (
                position,
                idf
                * count
                * (self.K1 + 1)
                / (count + self.K1 * (1 - self.B + self.B * self._lengths[position] / self._mean_length)),
            )
            for position, count in postings
        ]
