"""Kills a real search at random moments until it is done, again and again, and compares it with an undisturbed one.

    python -m benchmarks.kill_resume --kills 50 --out benchmarks/results/<date>-kill-resume.json

Each run is started once and resumed after every kill (SIGKILL to its whole process group). A run is sound when
its log holds every evaluation once, in the order of the undisturbed run, and its best program and tree are the
same. Runs are added until the kills are used up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KX = [sys.executable, "-c", "from kx.cli import main; main()"]


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """kx in a process group of its own."""
    environment = os.environ | {"KX_HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [*KX, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end; a failure ends the benchmark with what the process said."""
    _, said = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"kx ended with {process.returncode}:\n{said.decode(errors='replace')}")


def record(home: Path) -> dict[str, Any]:
    """What the one run in ``home`` came to."""
    (folder,) = (home / "runs").iterdir()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    tree = json.loads((folder / "world_model.json").read_text())
    return {
        "evaluated": [event["program"] for event in events if event["kind"] == "evaluated"],
        "best": next(event["best"] for event in events if event["kind"] == "stopped"),
        "tree": tree,
    }


def is_finished(home: Path) -> bool:
    """Whether the run came to its end."""
    logs = list((home / "runs").glob("*/events.jsonl")) if (home / "runs").exists() else []
    return bool(logs) and '"kind": "stopped"' in logs[0].read_text()


def disturb(home: Path, search: list[str], rng: random.Random, kills_left: int, longest_s: float) -> list[float]:
    """Start, kill, resume until the run is done or the kills are used up; the delays of the kills."""
    delays: list[float] = []
    process = start(home, *search)
    while len(delays) < kills_left:
        delay = rng.uniform(0.2, longest_s)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            delays.append(delay)
            # A kill before the run's folder was there leaves nothing to resume.
            begun = any((home / "runs").glob("*/run.json")) if (home / "runs").exists() else False
            process = start(home, "resume") if begun else start(home, *search)
            continue
        break
    finish(process)
    return delays


def main() -> None:
    """Run, print one line per run, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--longest", type=float, default=15.0, help="seconds before a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    search = ["search", "--kernel", "mamba_scan", "--budget", str(options.budget), "--attempts", "2"]
    rng = random.Random(options.seed)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        finish(start(whole, *search))
        expected = record(whole)
        done = 0
        while done < options.kills:
            home = Path(folder) / f"run{len(runs)}"
            home.mkdir()
            (home / "cache").symlink_to(whole / "cache", target_is_directory=True)
            started = time.monotonic()
            delays = disturb(home, search, rng, options.kills - done, options.longest)
            got = record(home)
            differing = sorted(name for name in expected if got[name] != expected[name])
            sound = not differing
            runs.append(
                {
                    "kills": len(delays),
                    "delays_s": [round(delay, 2) for delay in delays],
                    "sound": sound,
                    "differing": differing,
                    "evaluations": len(got["evaluated"]),
                    "seconds": round(time.monotonic() - started, 1),
                }
            )
            done += len(delays)
            verdict = "sound" if sound else f"differs in {', '.join(differing)}"
            print(f"run {len(runs)}: {len(delays)} kills, {len(got['evaluated'])} evaluations, {verdict}", flush=True)
            if not delays:
                raise SystemExit("no kill came before the end: make --longest smaller or --budget larger")
    summary = {"kills": done, "runs": len(runs), "sound": sum(run["sound"] for run in runs), "details": runs}
    print(f"{done} kills over {len(runs)} runs; {summary['sound']} of {len(runs)} sound")
    if options.out:
        options.out.write_text(json.dumps(summary, indent=1) + "\n")
    if summary["sound"] != len(runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
