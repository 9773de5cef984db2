"""The store on disk among several processes, and what is left of it after an accident."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kgraph.store import open_store
from kgraph.stores.embedded import OxigraphEngine
from kx.errors import DataMalformed, StoreUnreachable
from kx.paths import Home
from kx.settings import Settings
from tests.contract.appending import little_knowledge

HOLD = """
import sys
from pathlib import Path
from kgraph.stores.embedded import OxigraphEngine
engine = OxigraphEngine(Path(sys.argv[1]))
with engine.{mode}():
    {action}
    print("held", flush=True)
    sys.stdin.read()
"""
INSERT = "INSERT DATA {{ GRAPH <urn:g> {{ <urn:s> <urn:p> {} }} }}"
COUNT = "SELECT (COUNT(*) AS ?n) { GRAPH <urn:g> { ?s ?p ?o } }"


@contextmanager
def process(folder: Path, mode: str, action: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """A process that holds the store open for reading or writing until it is told to go, or killed."""
    program = HOLD.format(mode=mode, action=action)
    held = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert held.stdin is not None
    assert held.stdout is not None
    try:
        assert held.stdout.readline() == "held\n"
        yield held
    finally:
        held.kill()
        held.wait()
        held.stdin.close()
        held.stdout.close()


@pytest.fixture(autouse=True, scope="module")
def few_curated_files() -> Iterator[None]:
    with little_knowledge():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    OxigraphEngine(tmp_path / "oxigraph").update(INSERT.format(1))
    return tmp_path / "oxigraph"


def count(folder: Path) -> int:
    return int(str(OxigraphEngine(folder, timeout_s=5).query(COUNT).rows[0][0]))


def test_readers_share_the_store_and_a_writer_waits_for_them(folder: Path) -> None:
    impatient = OxigraphEngine(folder, timeout_s=0.1)
    with process(folder, "reading"):
        assert count(folder) == 1
        with pytest.raises(StoreUnreachable, match="is in use by another kx for more") as caught:
            impatient.update(INSERT.format(2))
    assert "wait for that process" in caught.value.hint
    impatient.update(INSERT.format(2))
    assert count(folder) == 2


def test_nobody_reads_beside_a_writer(folder: Path) -> None:
    with process(folder, "writing"), pytest.raises(StoreUnreachable, match="in use by another kx"):
        OxigraphEngine(folder, timeout_s=0.1).query(COUNT)


def test_a_killed_writer_leaves_what_it_finished_and_no_lock(folder: Path) -> None:
    with process(folder, "writing", f"engine.update({INSERT.format(2)!r})") as writer:
        writer.kill()
        writer.wait()
    assert count(folder) == 2
    OxigraphEngine(folder, timeout_s=5).update(INSERT.format(3))
    assert count(folder) == 3


@pytest.mark.parametrize("damage", ["no CURRENT", "torn MANIFEST", "no tables", "a file in its place"])
def test_a_half_written_store_is_told_and_left_as_it_is(folder: Path, damage: str) -> None:
    if damage == "no CURRENT":
        (folder / "CURRENT").unlink()
    elif damage == "torn MANIFEST":
        manifest = next(folder.glob("MANIFEST-*"))
        manifest.write_bytes(manifest.read_bytes()[:20])
    elif damage == "no tables":
        for table in folder.glob("*.sst"):
            table.unlink()
    else:
        shutil.rmtree(folder)
        folder.write_text("")
    before = sorted(folder.parent.rglob("*.sst"))
    for ask in (lambda: count(folder), lambda: OxigraphEngine(folder).update(INSERT.format(2))):
        with pytest.raises(DataMalformed, match="cannot be used") as caught:
            ask()
        assert "kx ingest reads the sources again" in caught.value.hint
    assert sorted(folder.parent.rglob("*.sst")) == before


def test_a_batch_of_readings_does_not_write(tmp_path: Path) -> None:
    store = open_store(Home(tmp_path), Settings(graph_store="oxigraph"))
    store.replace("urn:kx:file:a", [])
    with store.batch(), pytest.raises(RuntimeError, match="does not write"):
        store.replace("urn:kx:file:a", [])
