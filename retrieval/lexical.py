"""BM25 over entries in which names, titles and texts count differently and misspelt identifiers are understood."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from retrieval.spelling import SHORTEST, SpellingIndex
from retrieval.words import FUNCTION_WORDS, code_terms, code_words, stem

_TELLING_SHARE = 0.3


@dataclass(frozen=True)
class LexicalWeights:
    """How fields count; values and how they were found: docs/retrieval.md.

    Attributes:
        title, names, text: what an occurrence in the field counts.
        saturation: k1 of BM25: the larger, the more a second occurrence adds.
        length: b of BM25 in names and text: 1 divides by the field's length over its mean, 0 not at all.
        title_length: the same in the title.
        misspelling: exponent of the likeness by which a term that is read for a misspelt one counts.
        exact: added where one of the names is an identifier of the question, times the identifier's part in the
            question: ``ldmatrix`` is asked for, ``ldmatrix.trans`` only holds it.
        parts: what a part of an identifier counts beside the whole, where the whole is known.
    """

    title: float = 2.0
    names: float = 1.5
    text: float = 1.0
    saturation: float = 1.2
    length: float = 0.5
    title_length: float = 0.3
    misspelling: float = 2.0
    exact: float = 0.1
    parts: float = 0.3


@dataclass(frozen=True)
class Document:
    """What is searched of one entry: its title, the names by which people ask for it, and its text."""

    title: str
    names: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class LexicalMatch:
    """A document found by words.

    Attributes:
        position: index of the document as given to `LexicalIndex`.
        score: share of the most that a document could get for the question's terms, above 0 and below 1.
        terms: the terms that made the score, the most telling first; of a misspelt one, what it was read as.
    """

    position: int
    score: float
    terms: tuple[str, ...]


@dataclass(frozen=True)
class _Postings:
    positions: npt.NDArray[np.int64]
    frequencies: npt.NDArray[np.float64]


class LexicalIndex:
    """BM25 with weighted fields.

    ``frequency(t) = sum over fields of weight * occurrences / (1 - b + b * length / mean length)``, and a document
    scores ``sum over terms of idf(t) * frequency * (k1 + 1) / (frequency + k1)``,
    ``idf(t) = ln(1 + (n - df + 0.5) / (df + 0.5))``. Source: Robertson and Zaragoza, The Probabilistic Relevance
    Framework: BM25 and Beyond, 2009, section 3.6. The score is divided by what a document of endless occurrences of
    every term would get, so that it compares across questions.

    Args:
        documents: what is searched.
        weights: of the fields.
    """

    def __init__(self, documents: Sequence[Document], weights: LexicalWeights | None = None) -> None:
        self._weights = weights or LexicalWeights()
        self._count = len(documents)
        fields = (
            (self._weights.title, self._weights.title_length, [document.title for document in documents]),
            (self._weights.names, self._weights.length, ["\n".join(document.names) for document in documents]),
            (self._weights.text, self._weights.length, [document.text for document in documents]),
        )
        frequencies: dict[str, dict[int, float]] = defaultdict(dict)
        self._written: dict[str, str] = {}
        self._named: dict[str, list[int]] = defaultdict(list)
        for position, document in enumerate(documents):
            for name in {stem(name.lower()) for name in document.names}:
                self._named[name].append(position)
        for weight, length, texts in fields:
            self._add_field(frequencies, weight, length, texts)
        self._postings = {
            term: _Postings(np.array(sorted(found)), np.array([found[position] for position in sorted(found)]))
            for term, found in frequencies.items()
        }

    def _add_field(
        self, frequencies: dict[str, dict[int, float]], weight: float, length: float, texts: Sequence[str]
    ) -> None:
        counted = []
        for text in texts:
            terms = code_terms(text)
            stems = list(map(stem, terms))
            for stemmed, term in zip(stems, terms, strict=True):
                self._written.setdefault(stemmed, term)
            counted.append(Counter(stems))
        lengths = [counts.total() for counts in counted]
        filled = sum(map(bool, lengths))
        mean = sum(lengths) / filled if filled else 1.0
        for position, counts in enumerate(counted):
            share = weight / (1 - length + length * lengths[position] / mean)
            for term, count in counts.items():
                row = frequencies[term]
                row[position] = row.get(position, 0.0) + count * share

    def search(self, question: str, count: int) -> list[LexicalMatch]:
        """Up to ``count`` documents that share a term with ``question``, best first; ties by position."""
        wanted = self.read(question)
        scores = self.scores(wanted)
        return [
            LexicalMatch(int(position), float(scores[position]), self.telling_terms(wanted, int(position)))
            for position in np.argsort(-scores, kind="stable")[:count]
            if scores[position] > 0
        ]

    def read(self, question: str) -> dict[str, float]:
        """What to look for, with weights; a term that no document holds is read as those that it may mean."""
        weights: dict[str, float] = {}
        for whole, *parts in code_words(question):
            # A name counts once: its parts say in other words what it says as a whole, if it is known.
            share = self._weights.parts if stem(whole) in self._postings else 1.0
            for term, weight in [(whole, 1.0), *((part, share) for part in parts)]:
                weights[term] = max(weights.get(term, 0.0), weight)
        telling = [term for term in weights if term not in FUNCTION_WORDS] or list(weights)
        wanted: dict[str, float] = {}
        for term in telling:
            stemmed = stem(term)
            if stemmed in self._postings:
                wanted[stemmed] = max(wanted.get(stemmed, 0.0), weights[term])
            elif len(stemmed) >= SHORTEST and not stemmed.isdigit():
                for near, likeness in self._spelling.near(stemmed):
                    read = weights[term] * likeness**self._weights.misspelling
                    wanted[near] = max(wanted.get(near, 0.0), read)
        return wanted

    def scores(self, wanted: Mapping[str, float]) -> npt.NDArray[np.float64]:
        """Score of every document for what `read` gave, shape [n], 0 to 1."""
        scores = np.zeros(self._count)
        most = sum(weight * self._idf(term) for term, weight in wanted.items()) * (self._weights.saturation + 1)
        for term, weight in wanted.items():
            postings = self._postings[term]
            scores[postings.positions] += weight * self._gains(term, postings.frequencies)
            if named := self._named.get(term):
                scores[named] += weight * self._weights.exact * self._idf(term) * (self._weights.saturation + 1)
        return scores / most if most else scores

    def telling_terms(self, wanted: Mapping[str, float], position: int) -> tuple[str, ...]:
        """The terms of ``wanted`` that make a document's score; those that say next to nothing are left out."""
        gains = []
        for term, weight in wanted.items():
            postings = self._postings[term]
            place = int(np.searchsorted(postings.positions, position))
            if place < len(postings.positions) and postings.positions[place] == position:
                gain = weight * float(self._gains(term, postings.frequencies[place : place + 1])[0])
                gains.append((-gain, self._written[term]))
        gains.sort()
        return tuple(term for gain, term in gains if gain <= gains[0][0] * _TELLING_SHARE)

    @cached_property
    def _spelling(self) -> SpellingIndex:
        return SpellingIndex(self._postings)

    def _idf(self, term: str) -> float:
        frequency = len(self._postings[term].positions)
        return math.log(1 + (self._count - frequency + 0.5) / (frequency + 0.5))

    def _gains(self, term: str, frequencies: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        saturation = self._weights.saturation
        return self._idf(term) * frequencies * (saturation + 1) / (frequencies + saturation)
