"""kx ablate through the command, on a landscape that is known."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from search.comparison import arena
from tests.cli.conftest import Kx, parse_one_object
from tests.unit.search.test_comparison import LandscapeEvaluator


@pytest.fixture
def landscape(monkeypatch: pytest.MonkeyPatch) -> LandscapeEvaluator:
    class Pool(LandscapeEvaluator):
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    pool = Pool()
    monkeypatch.setattr(arena, "WorkerPool", lambda setting: pool)
    return pool


def test_three_configurations_end_in_a_table_data_and_a_picture(
    kx: Kx, home: Path, tmp_path: Path, landscape: LandscapeEvaluator
) -> None:
    arguments = ("ablate", "--kernel", "mamba_scan", "--seeds", "2", "--budget", "12", "--out", str(tmp_path / "out"))
    told = parse_one_object(kx(*arguments, "--json"))
    assert [row["configuration"] for row in told["summaries"]] == ["naive", "evolution", "full"]
    assert told["summaries"][0]["median"] == 1.0
    assert told["timing"] == "estimated"
    data = json.loads((tmp_path / "out" / "curves.json").read_text())
    assert len(data["curves"]) == 5
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    asked = len(landscape.evaluated)
    again = kx(*arguments)
    assert len(landscape.evaluated) == asked, "a second comparison evaluates nothing"
    assert "evaluations to" in again.stdout
    assert "full, seed 1" in again.stderr


def test_unknown_configuration_is_told_before_anything_runs(kx: Kx, landscape: LandscapeEvaluator) -> None:
    for text in ("full,annealing", ","):
        result = kx("ablate", "--kernel", "mamba_scan", "--configurations", text)
        assert result.exit_code == 2
        assert "naive, evolution, full, random, tpe" in result.stderr
    assert landscape.evaluated == []


def test_missing_packages_are_named_and_the_data_is_kept(
    kx: Kx, tmp_path: Path, landscape: LandscapeEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".", maxsplit=1)[0] in {"optuna", "matplotlib"}:
            raise ImportError(name)
        return honest(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    common = ("ablate", "--kernel", "mamba_scan", "--seeds", "1", "--budget", "3", "--out", str(tmp_path / "out"))
    peers = kx(*common, "--configurations", "tpe")
    assert peers.exit_code == 3
    assert "kx[peers]" in peers.stderr
    plain = kx(*common, "--configurations", "random")
    assert plain.exit_code == 0
    assert "kx[plots]" in plain.stderr
    assert (tmp_path / "out" / "curves.json").exists()
