"""Known terms near a misspelt one."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable

SHORTEST = 5
"""Letters from which a term is long enough for its misspelling to be told from another word."""

_LEAST_LIKENESS = 0.75
_NEXT_BEST = 0.08
_MOST = 3
_CANDIDATES = 40


class SpellingIndex:
    """Terms by the groups of three letters in them.

    Args:
        terms: the vocabulary.
    """

    def __init__(self, terms: Iterable[str]) -> None:
        self._by_group: dict[str, list[str]] = defaultdict(list)
        for term in terms:
            if len(term) >= SHORTEST - 1:
                for group in _groups(term):
                    self._by_group[group].append(term)

    def near(self, term: str) -> list[tuple[str, float]]:
        """Up to three known terms with their likeness (0.75 to 1), likest first; ties by name.

        Likeness is twice the length of what both share in the same order over the length of both, without
        leading and trailing underscores (Ratcliff and Metzener, Pattern Matching: the Gestalt Approach, 1988).
        Terms clearly behind the likest one are left out.
        """
        shared = Counter(candidate for group in _groups(term) for candidate in self._by_group.get(group, ()))
        ranked = sorted(shared, key=lambda candidate: (-shared[candidate], candidate))[:_CANDIDATES]
        bare = term.strip("_")
        likeness = {
            candidate: difflib.SequenceMatcher(None, bare, candidate.strip("_"), autojunk=False).ratio()
            for candidate in ranked
        }
        near = [candidate for candidate in ranked if likeness[candidate] >= _LEAST_LIKENESS]
        near.sort(key=lambda candidate: (-likeness[candidate], candidate))
        return [(name, likeness[name]) for name in near if likeness[name] >= likeness[near[0]] - _NEXT_BEST][:_MOST]


def _groups(term: str) -> set[str]:
    """Groups of three neighbouring letters, the ends marked, underscores left out."""
    marked = f"^{term.replace('_', '')}$"
    return {marked[start : start + 3] for start in range(len(marked) - 2)}
