from __future__ import annotations

import math

import pytest

from retrieval.lexical import LexicalIndex, code_terms, is_identifier


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("simd_shuffle_xor", ["simd_shuffle_xor", "simd", "shuffle", "xor"]),
        ("__shfl_xor_sync", ["__shfl_xor_sync", "shfl", "xor", "sync"]),
        ("cp.async", ["cp.async", "cp", "async"]),
        ("cute::copy(a)", ["cute::copy", "cute", "copy", "a"]),
        ("threadsPerGrid", ["threadspergrid", "thread", "per", "grid"]),
        ("MTLDevice", ["mtldevice", "mtl", "device"]),
        ("m16n8k16 float4", ["m16n8k16", "float4"]),
        ("SM80_CP_ASYNC", ["sm80_cp_async", "sm80", "cp", "async"]),
        ("block-scan", ["block-scan", "block", "scan"]),
        ("Two tiles. One.", ["two", "tile", "one"]),
        ("batches caches bus class axis", ["batch", "cache", "bus", "class", "axis"]),
        ("", []),
        ("→ ( ) ;", []),
    ],
)
def test_identifiers_are_split_as_code_is(text: str, terms: list[str]) -> None:
    assert code_terms(text) == terms


def test_identifiers_are_told_from_words() -> None:
    assert is_identifier("cp.async")
    assert is_identifier("m16n8k16")
    assert not is_identifier("scan")
    assert not is_identifier("32")


def test_score_is_bm25() -> None:
    texts = ["scan scan carry", "tile carry", "tile"]
    (match,) = LexicalIndex(texts).search("scan", 5)
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert match.position == 0
    assert match.score == pytest.approx(idf * 2 * 2.2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / 2)))


def test_whole_identifier_outranks_its_parts() -> None:
    texts = ["shfl sync xor shfl sync xor", "warp reduction by __shfl_xor_sync over lanes", "nothing alike"]
    matches = LexicalIndex(texts).search("__shfl_xor_sync", 5)
    assert [match.position for match in matches] == [1, 0]
    assert matches[0].terms[0] == "__shfl_xor_sync"


def test_words_that_say_nothing_are_not_named_as_reason() -> None:
    texts = [f"the {word} of the block" for word in ("carry", "tile", "prefix", "mask", "lane", "bank", "fold")]
    (first, *_) = LexicalIndex(texts).search("the carry of the scan", 3)
    assert first.terms == ("carry",)


def test_no_document_and_no_common_word_find_nothing() -> None:
    assert LexicalIndex([]).search("scan", 5) == []
    assert LexicalIndex(["tile"]).search("scan", 5) == []
    assert LexicalIndex(["tile", ""]).search("", 5) == []


def test_ties_keep_the_order_of_the_documents_and_count_limits() -> None:
    index = LexicalIndex(["tile x", "tile y", "tile z"])
    assert [match.position for match in index.search("tile", 2)] == [0, 1]
