from __future__ import annotations

import math

import pytest

from retrieval.lexical import Document, LexicalIndex, LexicalWeights


def texts(*given: str) -> LexicalIndex:
    return LexicalIndex([Document("", (), text) for text in given])


def test_score_is_the_share_of_bm25_with_weighted_fields() -> None:
    weights = LexicalWeights(title=2.0, names=1.5, text=1.0, saturation=1.2, length=0.5, title_length=0.3, exact=0.0)
    documents = [
        Document("scan carry", ("scan", "prefix"), "scan scan carry"),
        Document("tile", (), "carry tile"),
        Document("tile", ("x",), "tile"),
    ]
    (match,) = LexicalIndex(documents, weights).search("scan", 5)
    frequency = (
        2.0 / (1 - 0.3 + 0.3 * 2 / (4 / 3))
        + 1.5 / (1 - 0.5 + 0.5 * 2 / (3 / 2))
        + 1.0 * 2 / (1 - 0.5 + 0.5 * 3 / (6 / 3))
    )
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert match.position == 0
    assert match.score == pytest.approx(idf * frequency * 2.2 / (frequency + 1.2) / (idf * 2.2))


def test_title_counts_more_than_text_and_names_lie_between() -> None:
    index = LexicalIndex(
        [Document("", (), "carry x"), Document("carry x"), Document("", ("carry x",)), Document("tile")]
    )
    assert [match.position for match in index.search("carry", 5)] == [1, 2, 0]


def test_a_name_outranks_names_that_hold_it() -> None:
    index = LexicalIndex([Document("", ("ldmatrix.trans", "ldmatrix.x4")), Document("", ("ldmatrix", "LDSM"))])
    assert [match.position for match in index.search("ldmatrix", 5)] == [1, 0]
    assert [match.position for match in index.search("ldmatrix.trans", 5)] == [0, 1]


def test_whole_identifier_outranks_its_parts() -> None:
    index = texts("shfl sync xor shfl sync xor", "warp reduction by __shfl_xor_sync over lanes", "nothing alike")
    matches = index.search("__shfl_xor_sync", 5)
    assert [match.position for match in matches] == [1, 0]
    assert matches[0].terms[0] == "__shfl_xor_sync"


def test_misspelt_identifier_is_read_as_the_one_it_means() -> None:
    index = texts("ordered by __shfl_xor_sync over lanes", "ordered by __shfl_up_sync", "row of a tile")
    matches = index.search("what is __shfl_xr_sync", 5)
    assert matches[0].position == 0
    assert matches[0].terms[0] == "__shfl_xor_sync"
    assert index.read("__shfl_xr_sync")["__shfl_xor_sync"] < 1


def test_parts_of_a_known_identifier_count_little_and_of_an_unknown_one_fully() -> None:
    index = texts("mx.fast.metal_kernel", "a scalar argument", "fast metal")
    known, unknown = index.read("mx.fast.metal_kernel"), index.read("fast.metal.scalar")
    assert known["mx.fast.metal_kernel"] == 1
    assert known["fast"] == known["metal"] < unknown["fast"] == unknown["metal"] == unknown["scalar"] == 1


def test_a_right_spelling_is_not_read_as_another() -> None:
    index = texts("simd_shuffle_up", "simd_shuffle_down")
    assert set(index.read("simd_shuffle_up")) == {"simd_shuffle_up", "simd", "shuffl"}


def test_other_forms_of_a_word_are_found() -> None:
    matches = texts("coalesced access", "strided access").search("does coalescing matter", 5)
    assert [match.position for match in matches] == [0]
    assert matches[0].terms == ("coalesced",)


def test_question_words_do_not_count_unless_they_are_all_there_is() -> None:
    index = texts("how and why it is so", "the carry of a scan")
    assert [match.position for match in index.search("how does the carry get there", 5)] == [1]
    assert [match.position for match in index.search("why is it so", 5)] == [0]


def test_words_that_say_little_are_not_named_as_reason() -> None:
    index = texts(*(f"kernel {word}" for word in ("carry", "tile", "prefix", "mask", "lane", "bank", "fold")))
    (first, *_) = index.search("kernel carry", 3)
    assert first.terms == ("carry",)


def test_no_document_and_no_common_word_find_nothing() -> None:
    assert LexicalIndex([]).search("scan", 5) == []
    assert texts("tile").search("scan", 5) == []
    assert texts("tile", "").search("", 5) == []


def test_ties_keep_the_order_of_the_documents_and_count_limits() -> None:
    index = texts("tile x", "tile y", "tile z")
    assert [match.position for match in index.search("tile", 2)] == [0, 1]
