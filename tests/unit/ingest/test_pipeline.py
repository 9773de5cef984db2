"""Files into the graph and the index: incremental, atomic per source, robust."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ingest import pipeline
from ingest.pipeline import IngestReport, ingest_paths
from kgraph.graph import KnowledgeGraph
from kgraph.names import file_iri
from kx.errors import PathMissing
from kx.paths import Home
from retrieval.index import Index

BARRIER = "__global__ void wait(float* x) { __syncthreads(); x[0] = __expf(x[1]); }\n"
SHUFFLE = "__global__ void swap(float* x) { x[0] += __shfl_xor_sync(~0u, x[0], 1); }\n"


class LengthEmbedder:
    """Puts every text on the unit circle by its length: enough for an index that nobody queries."""

    name = "length"

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        angles = np.array([len(text) for text in texts], dtype=np.float32)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.fixture
def graph(tmp_path: Path) -> KnowledgeGraph:
    return KnowledgeGraph.open(Home(tmp_path / "home"))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.open(Home(tmp_path / "home"), LengthEmbedder) as opened:
        yield opened


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work" / "src"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "a.cu").write_text(BARRIER)
    (folder / "deep" / "b.cuh").write_text(SHUFFLE)
    (folder / ".hidden" / "c.cu").write_text(BARRIER)
    (folder / "host.h").write_text("int f();\n")
    (folder / "notes.md").write_text("__syncthreads\n")
    monkeypatch.chdir(tmp_path / "work")
    return Path("src")


def names(report: IngestReport) -> list[str]:
    return [reading.file for reading in report.sources]


def test_a_folder(graph: KnowledgeGraph, index: Index, sources: Path) -> None:
    report = ingest_paths([sources], graph=graph, index=index)
    assert names(report) == ["src/a.cu", "src/deep/b.cuh"]
    assert report.skipped == (("src/host.h", "contains no CUDA"), ("src/notes.md", "not a CUDA suffix: .md"))
    assert report.errors == report.unchanged == report.removed == ()
    assert set(graph.sources()) == set(names(report))
    (evidence,) = graph.evidence("block-barrier")
    assert (evidence.file, evidence.kernel, evidence.first_line) == ("src/a.cu", "wait", 1)
    kinds = {(entry.kind, entry.title.split(" ")[0]) for entry in index.entries()}
    assert ("kernel", "wait") in kinds and ("kernel", "swap") in kinds
    assert any(kind == "evidence" for kind, _ in kinds)


def test_json(graph: KnowledgeGraph, sources: Path) -> None:
    report = ingest_paths([sources], graph=graph, index=None).to_json()
    assert set(report) >= {"sources", "triples", "skipped", "errors"}
    assert report["triples"] > 0
    first = report["sources"][0]
    assert first["kernels"] == [{"name": "wait", "line": 1}]
    barrier = next(concept for concept in first["concepts"] if concept["slug"] == "block-barrier")
    assert barrier["lines"] == [1, 1]
    assert barrier["confidence"] > 0.5 and "__syncthreads" in barrier["why"]


def test_a_second_run_reads_nothing_and_reports_the_same(
    graph: KnowledgeGraph, index: Index, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ingest_paths([sources], graph=graph, index=index)
    monkeypatch.setattr(pipeline, "read_text", lambda *_, **__: pytest.fail("read again"))
    monkeypatch.setattr(KnowledgeGraph, "replace_source", lambda *_: pytest.fail("written again"))
    second = ingest_paths([sources], graph=graph, index=index)
    assert list(second.unchanged) == names(second) == names(first)
    assert second.triples == first.triples
    assert second.to_json()["sources"] == first.to_json()["sources"]
    assert [r.primitives for r in second.sources] == [r.primitives for r in first.sources]


def test_only_what_changed_is_read(graph: KnowledgeGraph, sources: Path) -> None:
    ingest_paths([sources], graph=graph, index=None)
    (sources / "a.cu").write_text(SHUFFLE)
    report = ingest_paths([sources], graph=graph, index=None)
    assert report.unchanged == ("src/deep/b.cuh",)
    assert graph.evidence("block-barrier") == ()
    assert len(graph.evidence("warp-shuffle-reduction")) == 2


def test_new_detectors_read_again(graph: KnowledgeGraph, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest_paths([sources], graph=graph, index=None)
    monkeypatch.setattr(pipeline, "reading_version", lambda _: "newer")
    assert ingest_paths([sources], graph=graph, index=None).unchanged == ()


def test_a_missing_path_writes_nothing(graph: KnowledgeGraph, sources: Path) -> None:
    with pytest.raises(PathMissing, match="nowhere"):
        ingest_paths([sources, Path("nowhere")], graph=graph, index=None)
    assert graph.sources() == {}


def test_one_bad_file_stops_nothing(graph: KnowledgeGraph, sources: Path) -> None:
    (sources / "binary.cu").write_bytes(b"\x00\x01\x02")
    (sources / "empty.cu").write_bytes(b"")
    (sources / "broken.cu").write_text("__global__ void k( { { \n" + BARRIER)
    report = ingest_paths([sources], graph=graph, index=None)
    assert [file for file, _ in report.errors] == ["src/binary.cu", "src/empty.cu"]
    assert "binary" in report.errors[0][1] and "empty" in report.errors[1][1]
    assert {"src/a.cu", "src/broken.cu"} <= set(names(report))


def test_a_named_file_that_is_not_cuda_is_an_error(graph: KnowledgeGraph, sources: Path) -> None:
    report = ingest_paths([sources / "notes.md", sources / "host.h"], graph=graph, index=None)
    assert [file for file, _ in report.errors] == ["src/host.h", "src/notes.md"]
    assert report.skipped == () and report.sources == ()


def test_a_file_named_and_in_a_folder_is_read_once(graph: KnowledgeGraph, sources: Path) -> None:
    report = ingest_paths([sources, sources / "a.cu", sources / "deep" / ".." / "a.cu"], graph=graph, index=None)
    assert names(report) == ["src/a.cu", "src/deep/b.cuh"]


def test_absolute_paths_below_the_current_folder_become_relative(graph: KnowledgeGraph, sources: Path) -> None:
    assert names(ingest_paths([sources.absolute() / "a.cu"], graph=graph, index=None)) == ["src/a.cu"]


def test_a_file_elsewhere_keeps_its_path_and_is_read_back(graph: KnowledgeGraph, sources: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.cu"
    other.write_text(BARRIER)
    for given in (other, other, Path("..") / "other.cu"):
        assert names(ingest_paths([given], graph=graph, index=None)) == [other.as_posix()]
    assert list(graph.sources()) == [other.as_posix()]


def test_files_gone_from_a_folder_are_forgotten(graph: KnowledgeGraph, index: Index, sources: Path) -> None:
    ingest_paths([sources], graph=graph, index=index)
    (sources / "a.cu").unlink()
    report = ingest_paths([sources / "deep"], graph=graph, index=index)
    assert report.removed == ()
    report = ingest_paths([sources], graph=graph, index=index)
    assert report.removed == ("src/a.cu",)
    assert set(graph.sources()) == {"src/deep/b.cuh"}
    assert file_iri("src/a.cu") not in index.sources()


def test_ingesting_from_another_folder_forgets_and_overwrites_nothing(
    graph: KnowledgeGraph, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_paths([sources], graph=graph, index=None)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "src").mkdir(parents=True)
    (elsewhere / "src" / "a.cu").write_text(SHUFFLE)
    monkeypatch.chdir(elsewhere)
    report = ingest_paths([Path()], graph=graph, index=None)
    assert report.removed == ()
    assert names(report) == [(elsewhere / "src" / "a.cu").as_posix()]
    assert sorted(graph.sources()) == sorted([*names(report), "src/a.cu", "src/deep/b.cuh"])


def test_one_file_has_one_name_from_wherever_it_is_given(
    graph: KnowledgeGraph, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_paths([sources / "a.cu"], graph=graph, index=None)
    for folder, path in [("work/src", "a.cu"), ("work/src/deep", "../a.cu"), (".", "work/src/a.cu")]:
        monkeypatch.chdir(tmp_path / folder)
        assert ingest_paths([Path(path)], graph=graph, index=None).unchanged == ("src/a.cu",)
    (tmp_path / "work" / "src" / "a.cu").unlink()
    assert ingest_paths([Path("work")], graph=graph, index=None).removed == ("src/a.cu",)


def test_entries_lost_between_graph_and_index_come_back(graph: KnowledgeGraph, index: Index, sources: Path) -> None:
    ingest_paths([sources], graph=graph, index=None)
    assert index.entries() == []
    report = ingest_paths([sources], graph=graph, index=index)
    assert len(report.unchanged) == 2
    assert {entry.source for entry in index.entries()} == {file_iri(file) for file in names(report)}


def test_progress_counts_to_the_total(graph: KnowledgeGraph, sources: Path) -> None:
    seen: list[tuple[int, int]] = []
    ingest_paths([sources], graph=graph, index=None, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_a_failure_inside_the_reader_is_an_error_entry(
    graph: KnowledgeGraph, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pipeline.read_text

    def fail_on_a(file: str, data: bytes, **options: dict[str, str]) -> object:
        if file == "src/a.cu":
            raise RecursionError("too deep")
        return real(file, data, **options)

    monkeypatch.setattr(pipeline, "read_text", fail_on_a)
    report = ingest_paths([sources], graph=graph, index=None)
    assert report.errors == (("src/a.cu", "the reader failed: RecursionError: too deep"),)
    assert names(report) == ["src/deep/b.cuh"]


def test_many_files_are_read_by_processes_as_by_one(graph: KnowledgeGraph, sources: Path, tmp_path: Path) -> None:
    for number in range(12):
        (sources / f"k{number:02}.cu").write_text(BARRIER.replace("wait", f"wait_{number}"))
    parallel = ingest_paths([sources], graph=graph, index=None, jobs=2)
    alone = ingest_paths([sources], graph=KnowledgeGraph.open(Home(tmp_path / "second")), index=None, jobs=1)
    assert parallel.to_json() == alone.to_json()
    assert len(parallel.sources) == 14


def test_a_dying_worker_costs_one_file(graph: KnowledgeGraph, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (sources / f"k{number}.cu").write_text(BARRIER)
    monkeypatch.setattr(pipeline, "_read", die_on_k4)
    report = ingest_paths([sources], graph=graph, index=None, jobs=2)
    assert report.errors == (("src/k4.cu", "the reader's process died on this file"),)
    assert len(report.sources) == 10


read_for_real = pipeline._read


def die_on_k4(job: pipeline._Job) -> object:
    """Stands in for a parser that crashes; at module level, so that a worker can import it."""
    if job.file.endswith("k4.cu"):
        os._exit(11)
    return read_for_real(job)


@pytest.mark.parametrize("damage", [b"# {name}\n<urn:x", b"", b"\xff\xfe"])
def test_a_torn_graph_of_a_source_does_not_stop_it_from_being_read_again(
    sources: Path, tmp_path: Path, damage: bytes
) -> None:
    """`kx ingest` read the old graph before it replaced it, and named a file to delete instead."""
    home = Home(tmp_path / "home")
    graph = KnowledgeGraph.open(home)
    ingest_paths([sources], graph=graph, index=None)
    whole = graph.sources()
    for path in (home.graph / "sources").glob("*.ttl"):
        name = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        path.write_bytes(damage.replace(b"{name}", name.encode()))
    report = ingest_paths([sources], graph=KnowledgeGraph.open(home), index=None)
    assert (report.errors, report.unchanged) == ((), ())
    assert KnowledgeGraph.open(home).sources() == whole
    assert KnowledgeGraph.open(home).evidence()
