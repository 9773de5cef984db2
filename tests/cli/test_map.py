from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Kx, parse_one_object

KEYS = {"from", "to", "relation", "constraints", "rationale", "pitfall", "source", "status"}


def test_mapping_as_json_keeps_the_contract(kx: Kx) -> None:
    result = kx("map", "__shfl_xor_sync", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    answer = parse_one_object(result)
    assert answer["query"] == "__shfl_xor_sync"
    assert answer["did_you_mean"] == []
    first = answer["mappings"][0]
    assert first.keys() >= KEYS
    assert (first["from"], first["to"], first["relation"]) == ("__shfl_xor_sync", "simd_shuffle_xor", "exact")
    assert first["source"]
    assert all(constraint["scope"] for constraint in first["constraints"])


@pytest.mark.parametrize("term", ["__shfl_xor_sync(m, v, 1)", "__SHFL_XOR_SYNC", "`__shfl_xor_sync`"])
def test_term_is_taken_as_people_paste_it(kx: Kx, term: str) -> None:
    answer = parse_one_object(kx("map", term, "--json"))
    assert answer["mappings"][0]["to"] == "simd_shuffle_xor"


def test_term_without_equivalent_says_what_to_do(kx: Kx) -> None:
    answer = parse_one_object(kx("map", "cp.async", "--json"))
    none = [mapping for mapping in answer["mappings"] if mapping["relation"] == "none"]
    assert none
    assert all(mapping["advice"] or mapping["rationale"] for mapping in none)


def test_text_tells_target_reason_pitfall_limit_and_source(kx: Kx) -> None:
    result = kx("map", "__shfl_xor_sync")
    assert result.exit_code == 0
    assert result.stdout.startswith("__shfl_xor_sync → simd_shuffle_xor (metal)\n")
    for label in ("relation", "why", "pitfall", "limit", "source"):
        assert f"\n  {label}" in result.stdout


def test_unknown_term_is_a_no_with_near_misses(kx: Kx) -> None:
    result = kx("map", "__shfl_xro_sync", "--json")
    assert result.exit_code == 1
    answer = parse_one_object(result)
    assert answer["mappings"] == []
    assert "__shfl_xor_sync" in answer["did_you_mean"]
    plain = kx("map", "__shfl_xro_sync")
    assert (plain.exit_code, plain.stdout) == (1, "")
    assert "did you mean" in plain.stderr


def test_chip_keeps_the_limits_that_hold_for_it(kx: Kx) -> None:
    def scopes(*options: str) -> set[str]:
        answer = parse_one_object(kx("map", "__shfl_*", "--json", *options))
        return {c["scope"] for mapping in answer["mappings"] for c in mapping["constraints"]}

    assert "apple7" in scopes()
    assert "apple7" in scopes("--chip", "m1-max")
    assert "apple7" not in scopes("--chip", "m4-max")
    assert "metal" in scopes("--chip", "m4-max")


def test_what_a_feature_needs_is_told_for_any_chip(kx: Kx) -> None:
    """An M1 lacks the fill forms of shuffles; its answer says which family has them."""
    answer = parse_one_object(kx("map", "tiled_partition<8>", "--chip", "m1", "--json"))
    limits = answer["mappings"][0]["constraints"]
    assert [(item["quantity"], item["value"]) for item in limits] == [("apple-gpu-family", 8)]


def test_chip_may_come_from_settings_and_environment(kx: Kx, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "settings.toml").write_text('chip = "no-such"\n')
    assert "no chip named 'no-such'" in kx("map", "__ldg").stderr
    monkeypatch.setenv("KX_CHIP", "m1-max")
    assert kx("map", "__ldg").exit_code == 0


def test_map_writes_nothing_but_its_cache(kx: Kx, home: Path) -> None:
    kx("map", "__ldg")
    assert [path.name for path in home.iterdir()] == ["cache"]
