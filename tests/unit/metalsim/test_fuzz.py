"""Mutated kernels through the compiler and the isolated runner; benchmarks/metalsim_fuzz.py runs thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.metalsim_fuzz import ALLOWANCE, Fuzzer, fuzz, make_mutant, seeds
from metalsim import CompileFailure
from metalsim.execute.isolation import IsolatedRunner


def test_mutants_are_made_from_their_number_alone() -> None:
    first, again = make_mutant(7, 1), make_mutant(7, 1)
    assert first == again
    texts = {make_mutant(number, 1).text for number in range(60)}
    originals = {text for _, text, _ in seeds()}
    assert len(texts) > 50
    assert len(texts & originals) < 6


@pytest.mark.slow
def test_the_kernels_that_mutants_are_made_from_compile(tmp_path: Path) -> None:
    from benchmarks.metalsim_fuzz import Mutant

    with IsolatedRunner(ALLOWANCE) as runner:
        for name, text, entries in seeds():
            for entry in entries or ("",):
                program = Mutant(0, name, text, entry).program
                compiled = runner.compile(program, mode="checked", cache=tmp_path)
                assert not isinstance(compiled, CompileFailure), (name, compiled)


@pytest.mark.slow
def test_a_hundred_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzzer = Fuzzer(tmp_path, seed=1)
    monkeypatch.setattr("tempfile.tempdir", str(fuzzer.temporary))
    monkeypatch.chdir(fuzzer.empty)
    assert fuzz(fuzzer, list(range(100)), jobs=2, batch=100) == []
    records = fuzzer.done()
    kinds = {record["kind"] for record in records.values()}
    assert len(records) == 100
    assert "does not compile" in kinds
    assert any("race" in kind for kind in kinds)


def test_what_gets_out_is_noticed(tmp_path: Path) -> None:
    import subprocess
    import sys

    fuzzer = Fuzzer(tmp_path, seed=1)
    assert fuzzer.trespasses() == []
    (fuzzer.empty / "stray").touch()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], cwd=fuzzer.temporary)
    try:
        found = "\n".join(fuzzer.trespasses())
    finally:
        sleeper.kill()
        sleeper.wait()
    assert "a file outside" in found
    assert "a process was left behind" in found or sys.platform != "linux"
