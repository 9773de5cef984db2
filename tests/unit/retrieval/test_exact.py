from __future__ import annotations

import numpy as np

from retrieval.exact import ExactSearch


def test_order_is_by_similarity_and_ties_by_id() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8], [0, 1], [0, 1]], dtype=np.float32)
    search = ExactSearch(["e", "d", "c", "b", "a"], vectors)
    asked = np.array([0, 1], dtype=np.float32)
    assert [key for key, _ in search.nearest(asked, 5)] == ["a", "b", "d", "c", "e"]
    assert search.nearest(asked, 2) == [("a", 1.0), ("b", 1.0)]
    assert len(search.nearest(asked, 9)) == 5


def test_nothing_is_found_in_nothing() -> None:
    asked = np.array([0, 1], dtype=np.float32)
    assert ExactSearch([], np.zeros((0, 2), dtype=np.float32)).nearest(asked, 3) == []
    assert ExactSearch(["a"], asked[None]).nearest(asked, 0) == []
