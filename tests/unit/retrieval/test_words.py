from __future__ import annotations

import pytest

from retrieval.words import code_terms, is_identifier, stem


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


@pytest.mark.parametrize(
    "forms",
    [
        ("coalesced", "coalescing"),
        ("padding", "padded"),
        ("barrier", "barriers"),
        ("reduction", "reductions"),
        ("quantize", "quantization", "quantized"),
        ("dropped", "dropping"),
    ],
)
def test_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


@pytest.mark.parametrize("term", ["tile", "lane", "__shfl_xor_sync", "m16n8k16", "float4", "bus", "größer", ""])
def test_short_words_and_identifiers_stay_as_they_are(term: str) -> None:
    assert stem(term) == term
