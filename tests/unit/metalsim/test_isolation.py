"""Kernels run in processes of their own: what a kernel does to its process is a finding, and the caller lives on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from metalsim import Argument, CompileFailure, Fresh, LaunchOptions, MlxKernel, RunResult
from metalsim.errors import InputError
from metalsim.execute.isolation import (
    Allowance,
    BodyLaunch,
    BodyProgram,
    FileLaunch,
    FileProgram,
    IsolatedRunner,
    Job,
    run_isolated,
)
from metalsim.model import DType

TEXT = """#include <metal_stdlib>
using namespace metal;
kernel void twice(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
    BODY
    out[i] = x[i] + x[i];
}
"""
X = np.arange(64, dtype=np.float32)
ALLOWANCE = Allowance(limit_s=0.3, memory_bytes=1 << 30, compile_limit_s=30)


@pytest.fixture(scope="module")
def runner() -> Iterator[IsolatedRunner]:
    with IsolatedRunner(ALLOWANCE) as runner:
        yield runner


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def job(cache: Path, body: str = "", x: np.ndarray[Any, Any] = X, dtype: DType = "float32", kind: str = "float") -> Job:
    program = FileProgram(TEXT.replace("BODY", body).replace("T*", kind + "*"), "twice")
    return Job(program, FileLaunch({"x": x, "out": Fresh(dtype, x.shape)}, (64, 1, 1), (32, 1, 1)), cache)


def result_of(runner: IsolatedRunner, job: Job) -> RunResult:
    result = runner.examine(job)
    assert isinstance(result, RunResult), result
    return result


def test_a_fresh_process_gives_what_the_kernel_computes(cache: Path) -> None:
    before = dict(os.environ)
    result = run_isolated(job(cache), limit_s=10)
    assert isinstance(result, RunResult)
    np.testing.assert_array_equal(result.outputs["out"], 2 * X)
    assert (result.findings, result.threadgroups_run, result.threads_per_threadgroup) == ((), 2, 32)
    result.outputs["out"][0] = 1  # an array of the caller's own
    assert os.environ == before


@pytest.mark.parametrize(("dtype", "kind"), [("bfloat16", "bfloat"), ("float16", "half"), ("int64", "long")])
def test_outputs_keep_their_type(runner: IsolatedRunner, cache: Path, dtype: DType, kind: str) -> None:
    x = X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    out = result_of(runner, job(cache, "", x, dtype, kind)).outputs["out"]
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out, x + x)


def test_counts_travel(runner: IsolatedRunner, cache: Path) -> None:
    result = result_of(runner, replace(job(cache), mode="counted"))
    assert result.raw is not None
    assert result.raw.groups["device_bytes_read"].sum() == X.nbytes
    assert result.raw.block_counts.shape[0] == 2


def test_a_body_runs_like_a_file(runner: IsolatedRunner, cache: Path) -> None:
    arguments = ((Argument("x", "float32", (64,)),), (Argument("out", "float32", (64,)),))
    kernel = MlxKernel("k", "uint i = thread_position_in_grid.x;\nif (i < 60) out[i] = -x[i];", *arguments)
    result = result_of(runner, Job(BodyProgram(kernel), BodyLaunch({"x": X}, (64, 1, 1), (32, 1, 1)), cache))
    assert [(f.kind, f.place) for f in result.findings] == [("not-written", "body")]
    np.testing.assert_array_equal(result.outputs["out"][:60], -X[:60])


def test_a_kernel_that_does_not_compile_is_a_value(runner: IsolatedRunner, cache: Path) -> None:
    failure = runner.examine(job(cache, "undeclared = 1;"))
    assert isinstance(failure, CompileFailure)
    assert "kernel.metal:5: use of undeclared identifier 'undeclared'" in failure.messages


def test_arrays_that_do_not_fit_are_the_callers_error(runner: IsolatedRunner, cache: Path) -> None:
    wrong = FileLaunch({"y": X}, (64, 1, 1), (32, 1, 1))
    with pytest.raises(InputError, match="no buffer 'y'") as caught:
        runner.examine(replace(job(cache), launch=wrong))
    assert "0 x" in caught.value.hint


def test_too_large_a_launch_is_a_finding(runner: IsolatedRunner, cache: Path) -> None:
    buffers = {"x": X, "out": Fresh("float32", (1 << 30,))}
    result = result_of(runner, replace(job(cache), launch=FileLaunch(buffers, (64, 1, 1), (32, 1, 1))))
    assert [(f.kind, f.message) for f in result.findings] == [
        ("limit", "the launch needs more than the 1024 MiB of memory that it may have")
    ]
    assert result_of(runner, job(cache)).findings == ()


def test_a_launch_of_too_many_threadgroups_is_a_finding(runner: IsolatedRunner, cache: Path) -> None:
    launch = replace(job(cache).launch, grid=(1 << 31, 1 << 31, 1))
    assert [f.kind for f in result_of(runner, replace(job(cache), launch=launch)).findings] == ["limit"]


def test_an_answer_that_is_no_result_is_a_crash(runner: IsolatedRunner, cache: Path) -> None:
    from metalsim.execute.isolation import CompiledFile
    from metalsim.execute.outcome import decode, encode

    wanted = job(cache)
    compiled = runner.compile(wanted.program, mode="checked", cache=cache)
    assert isinstance(compiled, CompiledFile)
    good = encode(runner.run(compiled, wanted.launch))
    assert decode(good, compiled, wanted.launch, ALLOWANCE).findings == ()
    random = np.random.default_rng(0)
    damaged = [
        b"",
        good[:-1],
        good + b"x",
        good[:40],
        good.replace(b'"out"', b'"uot"'),
        b"\xff" * 64,
        b"\x02" + b"\0" * 7 + b"[]",
    ]
    damaged += [bytes(random.integers(0, 256, 200, dtype=np.uint8)) for _ in range(50)]
    for content in damaged:
        assert [f.kind for f in decode(content, compiled, wanted.launch, ALLOWANCE).findings] == ["crash"]


def test_nothing_is_left_behind(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with IsolatedRunner(ALLOWANCE) as runner:
        result_of(runner, job(cache))
        assert runner._worker is not None
        group = runner._worker._process.pid
        assert list(tmp_path.iterdir()) != []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_a_killed_caller_leaves_nothing_behind(cache: Path, tmp_path: Path) -> None:
    script = f"""
import sys, tempfile
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
tempfile.tempdir = {str(tmp_path)!r}
from metalsim.execute.isolation import FileProgram, IsolatedRunner
with IsolatedRunner() as runner:
    runner.list_kernels(FileProgram("", ""), cache=Path({str(cache)!r}))
    print(runner._worker._process.pid, flush=True)
    input()
"""
    command = [sys.executable, "-c", script]
    caller = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert caller.stdin is not None and caller.stdout is not None
    worker = int(caller.stdout.readline())
    caller.kill()
    caller.communicate()
    deadline = time.monotonic() + 10
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(worker, 0)
            time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_worker_is_replaced(runner: IsolatedRunner, cache: Path) -> None:
    import signal

    from metalsim.errors import WorkerFailed

    result_of(runner, job(cache))
    assert runner._worker is not None
    os.kill(runner._worker._process.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed):
        runner.examine(job(cache))
    assert result_of(runner, job(cache)).findings == ()


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("while (x[0] == 0) { out[i] = x[1]; }", 5),
        ("threadgroup float t[32];\n    for (uint k = 0; true; k++) t[k % 32] = x[k % 64] + t[i % 32];", 6),
        ("while (true) { threadgroup_barrier(mem_flags::mem_none); }", 5),
        ("volatile int k = 0; while (k == 0) { }", 0),
    ],
)
def test_an_endless_loop_is_a_hang_with_its_line(runner: IsolatedRunner, cache: Path, body: str, line: int) -> None:
    hangs = [f for f in result_of(runner, job(cache, body)).findings if f.kind == "hang"]
    assert [f.line for f in hangs] == [line]
    assert "did not end in time" in hangs[0].message
    assert "of threadgroup 0, number 1 of 2 to run" in hangs[0].message
    assert result_of(runner, job(cache)).findings == ()


def test_what_was_found_before_the_hang_is_kept(runner: IsolatedRunner, cache: Path) -> None:
    body = "out[i + 100] = 1; while (x[i] == x[i]) { out[i] = 3; }"
    result = result_of(runner, job(cache, body))
    assert [f.kind for f in result.findings] == ["out-of-range", "hang"]
    assert result.outputs["out"][0] == 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("*(device volatile int*)8 = 1;", "no buffer"),
        ("__builtin_unreachable();", "no code"),
        ("volatile int z = 0; out[i] = 5 / z;", "divides an integer by zero"),
        ("volatile float big[100000]; big[i] = 1; out[i] = big[5];", "thread memory"),
    ],
)
def test_a_crash_is_a_finding(runner: IsolatedRunner, cache: Path, body: str, said: str) -> None:
    result = result_of(runner, job(cache, body))
    assert any(said in f.message for f in result.findings), result.findings
    assert result_of(runner, job(cache)).findings == ()


def test_max_findings_and_sampled_threadgroups_are_passed_on(runner: IsolatedRunner, cache: Path) -> None:
    launch = replace(job(cache).launch, options=LaunchOptions(threadgroups=[1]))
    result = result_of(runner, replace(job(cache), launch=launch))
    assert (result.threadgroups_total, result.threadgroups_run) == (2, 1)
    np.testing.assert_array_equal(result.outputs["out"][32:], 2 * X[32:])


def test_compiling_has_a_time_limit(cache: Path) -> None:
    endless = "constexpr int f() { int n = 0; for (int i = 0; i >= 0; i = (i + 1) & 0xffff) n ^= i; return n; }"
    text = f"{endless}\nkernel void k(device int* out [[buffer(0)]]) {{ constexpr int n = f(); out[0] = n; }}"
    started = time.monotonic()
    with IsolatedRunner(replace(ALLOWANCE, compile_limit_s=0.01)) as runner:
        failure = runner.compile(FileProgram(text, "k"), mode="checked", cache=cache)
    assert isinstance(failure, CompileFailure)
    assert failure.messages == ("compiling took longer than 0.01 s",)
    assert time.monotonic() - started < 10


def test_the_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "metalsim.md").read_text(encoding="utf-8")
    code = page.partition("## Safety")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "kernel.metal").write_text(TEXT.replace("T*", "float*").replace("BODY", ""), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "metalsim.md", "exec"), names)
    np.testing.assert_array_equal(names["result"].outputs["out"], np.full(64, 2, np.float32))
