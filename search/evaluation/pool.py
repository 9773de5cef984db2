"""Evaluations side by side, each in a fresh worker process that is killed with its whole group at the limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kx.errors import EnvironmentLacking, KxError
from search.backends import Chip
from search.outcome import Outcome, RuntimeFailed, TimedOut, outcome_from_json
from search.program import Program

_PASSED_ON = ("METALSIM_CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
_IMPORT_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class EvaluationSetting:
    """What all evaluations of a run share.

    Attributes:
        task, backend: names.
        chip: limits and figures of the chip.
        cache: folder for compiled kernels.
        compiler: command of the C++ compiler, or None for the default.
        limit_s: wall-clock limit of one evaluation, seconds.
        workers: evaluations at once.
    """

    task: str
    backend: str
    chip: Chip
    cache: Path
    compiler: tuple[str, ...] | None = None
    limit_s: float = 120.0
    workers: int = 2


@dataclass(frozen=True)
class Evaluated:
    """An outcome, the seed that drew its inputs, and the seconds it took."""

    outcome: Outcome
    seed: int
    seconds: float


class WorkerPool:
    """Runs evaluations; a context manager that leaves no process behind."""

    def __init__(self, setting: EvaluationSetting) -> None:
        self._setting = setting
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for process in self._running:
                _kill_group(process)

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Iterator[tuple[int, Evaluated]]:
        """Evaluate (program, seed) pairs side by side; yields (index, result) in the order of ``jobs``.

        Raises:
            EnvironmentLacking: a worker could not be started or lacks something (a compiler).
        """
        with ThreadPoolExecutor(max_workers=self._setting.workers) as executor:
            futures = [executor.submit(self._evaluate_one, program, seed) for program, seed in jobs]
            try:
                for index, future in enumerate(futures):
                    yield index, future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                self.__exit__()
                raise

    def _evaluate_one(self, program: Program, seed: int) -> Evaluated:
        setting = self._setting
        request = {
            "task": setting.task, "backend": setting.backend, "chip": asdict(setting.chip), "cache": str(setting.cache),
            "compiler": setting.compiler, "program": program.to_json(), "seed": seed,
        }  # fmt: skip
        read_end, write_end = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "search.evaluation.worker", str(write_end)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                pass_fds=(write_end,), start_new_session=True, env=_worker_environment(), cwd=_IMPORT_ROOT,
            )  # fmt: skip
        except OSError as exc:
            os.close(read_end)
            raise EnvironmentLacking(f"no worker process could be started: {exc}") from exc
        finally:
            os.close(write_end)
        with self._lock:
            self._running.add(process)
        try:
            return _collect(process, read_end, json.dumps(request).encode(), seed, setting.limit_s)
        finally:
            _kill_group(process)
            with self._lock:
                self._running.discard(process)


def _collect(process: subprocess.Popen[bytes], read_end: int, request: bytes, seed: int, limit_s: float) -> Evaluated:
    received: list[bytes] = []

    def drain() -> None:
        with os.fdopen(read_end, "rb") as stream:
            received.append(stream.read())

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        _, complaint = process.communicate(request, timeout=limit_s)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        process.communicate()
        return Evaluated(TimedOut(limit_s), seed, limit_s)
    finally:
        reader.join()
    return _interpret(process.returncode, received[0], complaint, seed)


def _interpret(code: int, answer: bytes, complaint: bytes, seed: int) -> Evaluated:
    try:
        result: dict[str, Any] = json.loads(answer)
    except ValueError:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        return Evaluated(RuntimeFailed("worker", (f"the worker ended by {how}", *last)), seed, 0.0)
    if "error" in result:
        kind = EnvironmentLacking if result["exit_code"] == EnvironmentLacking.exit_code else KxError
        raise kind(result["error"], result["hint"])
    return Evaluated(outcome_from_json(result["outcome"]), seed, float(result["seconds"]))


def _worker_environment() -> dict[str, str]:
    """Nothing but where the compilers and the GPU are: a candidate must not find keys in its environment."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
