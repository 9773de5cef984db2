from __future__ import annotations

import re
from pathlib import Path

from tests.cli.conftest import Kx, parse_one_object


def test_ingest_as_json_keeps_the_contract(kx: Kx, sources: Path) -> None:
    result = kx("ingest", "sources", "--json")
    assert result.exit_code == 0, result.stderr
    report = parse_one_object(result)
    (source,) = report["sources"]
    assert source["file"] == "sources/scan.cu"
    assert source["kernels"] == [{"name": "scan_kernel", "line": 3}]
    found = {concept["slug"]: concept for concept in source["concepts"]}
    assert {"warp-shuffle-scan", "block-barrier", "launch-bounds"} <= found.keys()
    first, last = found["warp-shuffle-scan"]["lines"]
    assert 5 <= first <= last <= 13
    assert 0 < found["block-barrier"]["confidence"] <= 1
    assert found["block-barrier"]["why"]
    assert report["triples"] > 10
    assert [skipped["file"] for skipped in report["skipped"]] == ["sources/notes.txt"]
    assert report["errors"] == []


def test_second_ingest_says_that_nothing_changed(kx: Kx, sources: Path) -> None:
    first = kx("ingest", "sources")
    assert first.exit_code == 0
    assert re.search(r"sources/scan\.cu +1", first.stdout)
    assert "1 sources read, 0 unchanged" in first.stdout
    second = kx("ingest", "sources")
    assert second.exit_code == 0
    assert second.stdout.startswith("nothing changed\n")
    assert second.stderr == ""


def test_file_gone_from_a_folder_is_forgotten(kx: Kx, sources: Path) -> None:
    kx("ingest", "sources")
    (sources / "scan.cu").unlink()
    result = kx("ingest", "sources")
    assert result.exit_code == 0
    assert "1 forgotten" in result.stdout
    hits = parse_one_object(kx("query", "scan_kernel", "--json", "-n", "50"))
    assert hits["sources"] == 0
    assert not [hit for hit in hits["hits"] if hit["kind"] in {"kernel", "evidence"}]


def test_one_bad_file_does_not_stop_the_rest(kx: Kx, sources: Path) -> None:
    (sources / "broken.cu").write_bytes(b"\x00\x01\x02" * 100)
    result = kx("ingest", "sources", "--json")
    assert result.exit_code == 1
    report = parse_one_object(result)
    assert [source["file"] for source in report["sources"]] == ["sources/scan.cu"]
    assert [error["file"] for error in report["errors"]] == ["sources/broken.cu"]
    assert "broken.cu" in result.stderr


def test_binary_file_alone_is_wrong_input(kx: Kx, home: Path, sources: Path) -> None:
    (sources / "broken.cu").write_bytes(b"\x00\x01\x02" * 100)
    result = kx("ingest", "sources/broken.cu", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert "broken.cu" in line
    assert not (home / "graph" / "sources").exists()
    assert not (home / "index").exists()


def test_missing_path_among_good_ones_changes_nothing(kx: Kx, home: Path, sources: Path) -> None:
    result = kx("ingest", "sources", "nowhere.cu")
    assert result.exit_code == 2
    assert "nowhere.cu does not exist" in result.stderr
    assert not (home / "index").exists()
    assert not (home / "graph" / "sources").exists()


def test_folder_without_cuda_is_a_no(kx: Kx, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = kx("ingest", "empty", "--json")
    assert result.exit_code == 1
    assert parse_one_object(result)["sources"] == []
    assert "no CUDA file in empty" in result.stderr


def test_query_before_anything_was_ingested_answers_from_curated_knowledge(kx: Kx) -> None:
    result = kx("query", "padding", "against bank conflicts", "--json", "-n", "5")
    assert result.exit_code == 0, result.stderr
    answer = parse_one_object(result)
    assert answer["query"] == "padding against bank conflicts"
    assert len(answer["hits"]) == 5
    for hit in answer["hits"]:
        assert hit.keys() >= {"id", "kind", "title", "text", "score", "why"}
        assert hit["why"]
    assert answer["hits"][0]["id"] == "urn:kx:concept:bank-conflict-padding"
    assert "embedding" in result.stderr
    assert "no sources were ingested" in result.stderr
    again = kx("query", "padding against bank conflicts", "--json", "-n", "5")
    assert again.stdout == result.stdout
    assert "embedding" not in again.stderr


def test_query_finds_what_was_ingested_and_says_where(kx: Kx, sources: Path) -> None:
    assert kx("ingest", "sources").exit_code == 0
    result = kx("query", "prefix scan by __shfl_up_sync", "-n", "20", "--json")
    assert "no sources were ingested" not in result.stderr
    answer = parse_one_object(result)
    assert answer["sources"] == 1
    seen = [hit for hit in answer["hits"] if hit["kind"] == "evidence"]
    assert any("sources/scan.cu" in hit["title"] and "warp-shuffle-scan" in hit["concepts"] for hit in seen)


def test_query_as_text_numbers_its_hits(kx: Kx) -> None:
    result = kx("query", "online softmax", "-n", "2")
    assert result.exit_code == 0
    assert result.stdout.startswith("1. [")
    assert "\n2. [" in result.stdout
    assert "\n3. [" not in result.stdout
    assert re.search(r"words [\w, ]*softmax", result.stdout)


def test_an_empty_path_is_not_the_current_folder(kx: Kx, sources: Path) -> None:
    result = kx("ingest", "")
    assert result.exit_code == 2
    assert "a path is empty" in result.stderr


def test_question_with_bytes_that_are_no_text_is_answered(kx: Kx) -> None:
    result = kx("query", "--json", b"warp \xff shuffle".decode("utf-8", "surrogateescape"))
    assert result.exit_code == 0, result.stderr
    assert parse_one_object(result)["query"] == "warp ? shuffle"
