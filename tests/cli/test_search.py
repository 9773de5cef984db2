"""kx search, resume, runs and show as a user meets them; the real engine, author and metalsim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Kx, parse_one_object

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import sys
import retrieval.embedding
from tests.unit.retrieval.doubles import HashingEmbedder
retrieval.embedding.SentenceEmbedder = lambda folder: HashingEmbedder()
from kx.cli import main
sys.argv[0] = "kx"
main()
"""
SMALL = ("search", "--kernel", "mamba_scan", "--budget", "4", "--attempts", "2", "--json")


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        cwd=ROOT,
        env=os.environ | {"KX_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def events(home: Path) -> list[dict[str, Any]]:
    logs = list(home.glob("runs/*/events.jsonl"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines() if line.endswith("}")]


def evaluated(home: Path) -> list[str]:
    return [event["program"] for event in events(home) if event["kind"] == "evaluated"]


@pytest.mark.slow
def test_kill_9_then_resume_repeats_nothing_and_ends_as_an_unbroken_run(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "unbroken"
    other.mkdir()
    (other / "cache").symlink_to((home / "cache").resolve(), target_is_directory=True)
    killed = start(home, *SMALL)
    deadline = time.monotonic() + 200
    while len(evaluated(home)) < 2 and time.monotonic() < deadline:
        assert killed.poll() is None, killed.communicate()[1].decode()
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    before = evaluated(home)
    assert 2 <= len(before) < 4
    out, err = (resumed := start(home, "resume", "--json")).communicate(timeout=250)
    assert resumed.returncode == 0, err.decode()
    after = evaluated(home)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) <= 4
    assert [event for event in events(home) if event["kind"] == "stopped"]
    whole, err = (unbroken := start(other, *SMALL)).communicate(timeout=250)
    assert unbroken.returncode == 0, err.decode()
    left, right = json.loads(out), json.loads(whole)
    assert left["repeated_from_log"] == len(before)
    assert left["best"] == right["best"]
    best = right["best"]
    assert best["timing"] == "estimated"
    assert best["score"] > 1.2
    assert {"label", "time_us", "speedup_over_seed"} <= set(best["workloads"][0])
    folder = home / "runs" / left["run"]
    assert {"run.json", "events.jsonl", "world_model.json", "best.metal", "best.py"} <= {
        p.name for p in folder.iterdir()
    }
    selected = {e["node"]: e for e in events(home) if e["kind"] == "selected"}
    prompts = [path.read_text() for path in (folder / "prompts").iterdir()]
    assert len(prompts) >= len(selected) > 0
    assert all("threads-per-threadgroup" in text or "1024" in text for text in prompts), "hard limits are never dropped"


def test_unknown_kernel_chip_and_backend_write_nothing(kx: Kx, home: Path) -> None:
    for arguments, said in (
        (("--kernel", "mamba_scna"), "did you mean mamba_scan"),
        (("--kernel", "mamba_scan", "--chip", "m1-mx"), "m1-max"),
        (("--kernel", "mamba_scan", "--chip", "h100-sxm"), "is no target of mappings / hint: name one of a19-5-core"),
        (("--kernel", "mamba_scan", "--backend", "metalsm"), "metalsim"),
    ):
        result = kx("search", *arguments)
        assert result.exit_code == 2, result.output
        assert said in result.stderr
        assert result.stderr.strip().count("\n") == 0
        assert not (home / "runs").exists()


def test_missing_compiler_is_exit_code_3_and_leaves_no_run(kx: Kx, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METALSIM_CXX", "/no-such-compiler")
    result = kx("search", "--kernel", "mamba_scan")
    assert result.exit_code == 3, result.output
    assert "/no-such-compiler" in result.stderr
    assert not (home / "runs").exists()


def test_no_runs_yet_says_how_to_start_one(kx: Kx) -> None:
    assert "kx search" in kx("runs").stdout
    assert parse_one_object(kx("runs", "--json")) == {"runs": []}
    for command in ("resume", "show"):
        result = kx(command)
        assert result.exit_code == 2
        assert "kx search" in result.stderr


@pytest.mark.parametrize("content", ["", "{", "[]", '{"task": "mamba_scan"}', '{"task": 3, "chip": {}}'])
def test_corrupt_run_folder_is_told_in_one_line(kx: Kx, home: Path, content: str) -> None:
    folder = home / "runs" / "20260101-000000-mamba_scan-dead"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(content)
    result = kx("resume", folder.name)
    assert result.exit_code == 2, result.output
    assert folder.name in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    assert kx("runs").exit_code == 0
