"""Exact nearest neighbours over vectors held in memory: for an index of this size faster than opening a store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class ExactSearch:
    """Cosine similarity with every vector.

    Args:
        ids: n entry ids.
        vectors: shape [n, d], float32, of norm 1.
    """

    def __init__(self, ids: Sequence[str], vectors: npt.NDArray[np.float32]) -> None:
        self._ids = list(ids)
        self._vectors = vectors

    def nearest(self, vector: npt.NDArray[np.float32], count: int) -> list[tuple[str, float]]:
        """Up to ``count`` (entry id, cosine similarity) pairs, best first; ties by id.

        Args:
            vector: shape [d], float32, of norm 1.
            count: how many at most.
        """
        if not self._ids or count < 1:
            return []
        # Not by BLAS, whose threads cost more on a product this small than they give.
        similarities = np.einsum("nd,d->n", self._vectors, vector)
        best = list(range(len(self._ids)))
        if count < len(self._ids):
            # What ties with the last one stays in, so that the order by id decides and not the partition.
            least = np.partition(similarities, -count)[-count]
            best = np.flatnonzero(similarities >= least).tolist()
        found = [(self._ids[position], float(similarities[position])) for position in best]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]
