from __future__ import annotations

import pytest

from retrieval.spelling import SpellingIndex

KNOWN = [
    "__shfl_xor_sync", "__shfl_up_sync", "__shfl_down_sync", "__syncthreads", "__launch_bounds__", "ldmatrix",
    "simd_shuffle_xor", "simd_shuffle_up", "threadgroup_barrier", "simdgroup_barrier", "cub::blockscan", "barrier",
]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("__shfl_xr_sync", "__shfl_xor_sync"),
        ("shfl_xor_sync", "__shfl_xor_sync"),
        ("__synchthreads", "__syncthreads"),
        ("__lunch_bounds__", "__launch_bounds__"),
        ("ldmatirx", "ldmatrix"),
        ("simd_shufle_xor", "simd_shuffle_xor"),
        ("threadgroup_barier", "threadgroup_barrier"),
        ("cub::blokscan", "cub::blockscan"),
    ],
)
def test_misspelt_identifiers_are_read_as_the_nearest(written: str, meant: str) -> None:
    (nearest, likeness), *_ = SpellingIndex(KNOWN).near(written)
    assert nearest == meant
    assert 0.75 <= likeness <= 1


@pytest.mark.parametrize("written", ["undeclared", "kernel", "matrix multiply", "zzzzzz", ""])
def test_other_words_are_near_to_nothing(written: str) -> None:
    assert SpellingIndex(KNOWN).near(written) == []


def test_order_does_not_depend_on_the_order_of_the_vocabulary() -> None:
    assert SpellingIndex(KNOWN).near("__shfl_sync") == SpellingIndex(reversed(KNOWN)).near("__shfl_sync")
