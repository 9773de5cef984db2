"""Worker processes: fresh, isolated, killed with their group, and never trusted by what they print."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kx.errors import EnvironmentLacking
from search.backends import Chip
from search.evaluation.pool import EvaluationSetting, WorkerPool
from search.outcome import RuntimeFailed, TimedOut
from search.program import Program
from search.task import load_task

TASK = load_task("mamba_scan")
LIMITS = {
    "threads-per-threadgroup": 1024.0,
    "threadgroup-memory-bytes": 32768.0,
    "simd-width": 32.0,
    "buffer-arguments": 31.0,
}


def setting(tmp_path: Path, **more: object) -> EvaluationSetting:
    base = EvaluationSetting("mamba_scan", "metalsim", Chip("none", {}, LIMITS), tmp_path / "cache", limit_s=60.0)
    return replace(base, **more)  # type: ignore[arg-type]


def with_body(body: str) -> Program:
    return replace(TASK.seed, stages=(replace(TASK.seed.stages[0], body=body),))


def outcome_of(program: Program, chosen: EvaluationSetting) -> object:
    with WorkerPool(chosen) as pool:
        return next(iter(pool.evaluate([(program, 1)])))[1].outcome


def test_endless_kernel_is_killed_at_the_limit(tmp_path: Path) -> None:
    endless = with_body("volatile int on = 1; while (on) { on = 1; }")
    started = time.monotonic()
    outcome = outcome_of(endless, setting(tmp_path, limit_s=6.0))
    assert outcome == TimedOut(6.0)
    assert time.monotonic() - started < 20


def test_kernel_that_crashes_the_worker_is_a_value(tmp_path: Path) -> None:
    outcome = outcome_of(with_body("volatile thread int* p = (thread int*)8; *p = 1;"), setting(tmp_path))
    assert isinstance(outcome, RuntimeFailed), outcome


def test_missing_compiler_is_told_not_scored(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacking, match="no-such-compiler"):
        outcome_of(TASK.seed, setting(tmp_path, compiler=("/no-such-compiler", "c++")))


def test_leaving_the_pool_leaves_no_process(tmp_path: Path) -> None:
    endless = with_body("volatile int on = 1; while (on) { on = 1; }")
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    others = set(children.read_text().split()) if children.exists() else set()
    pool = WorkerPool(setting(tmp_path, limit_s=5.0))
    with pool:
        list(pool.evaluate([(endless, 1), (endless, 2)]))
    assert not pool._running
    if children.exists():
        assert set(children.read_text().split()) <= others
