"""Compiles, runs and compares launches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, KERNELS, Array, KernelLaunch
from metalsim import CompiledFile, CompileFailure, FileOptions, LaunchOptions, RunResult, compile_file, run_file


@dataclass(frozen=True)
class Outcome:
    """What a launch gave.

    Attributes:
        family: of kernels.
        entry: the kernel.
        constants: function constants that are not 0.
        dtype: of the launch.
        shape: of the problem.
        grid: threads per axis.
        threadgroup: threads per axis.
        error: largest error over all outputs, relative to the largest expected value of that output.
        tolerance: that it may have.
        findings: one line each.
        known: how many of them are real faults of the kernel that reading confirmed.
        stopped: one of those ended the launch, so that there are no numbers to compare.
        failure: the compiler's first error, empty when there is none.
        compile_s: seconds, next to 0 when the compiled kernel was cached.
        run_s: seconds of the launch.
    """

    family: str
    entry: str
    constants: dict[str, float]
    dtype: str
    shape: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    error: float
    tolerance: float
    findings: tuple[str, ...]
    known: int
    stopped: bool
    failure: str
    compile_s: float
    run_s: float

    @property
    def right(self) -> bool:
        """The numbers are right, whatever was found."""
        return not self.failure and self.error <= self.tolerance

    @property
    def clean(self) -> bool:
        """Nothing found but what the kernel deserves, and right unless that ended the launch."""
        return (self.right or self.stopped) and len(self.findings) == self.known

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _error(got: Array, expected: Array) -> float:
    """Largest error relative to the largest expected value; of integers, how many differ."""
    wanted, have = np.asarray(expected), np.asarray(got).reshape(np.shape(expected))
    known = ~np.isnan(wanted) if wanted.dtype.kind == "f" else np.ones(wanted.shape, bool)
    if got.dtype.name not in FLOATS:
        return float(np.count_nonzero((have != wanted) & known))
    have = have.astype(np.float64)[known]
    wanted = wanted[known].astype(np.float64)
    same = have == wanted  # infinities
    difference = np.abs(np.where(same, 0, have) - np.where(same, 0, wanted))
    finite = np.abs(wanted[np.isfinite(wanted)])
    largest = float(finite.max(initial=0.0)) or 1.0
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)) / largest


def compare(launch: KernelLaunch, result: RunResult) -> tuple[float, float]:
    """``(error, tolerance)`` of the worst output; integer outputs must be equal and count differing elements."""
    found = []
    for name, expected in launch.expected.items():
        tolerance = launch.tolerance(result.outputs[name].dtype.name)
        error = _error(result.outputs[name], expected)
        found.append((error / tolerance if tolerance else error * np.inf if error else 0.0, error, tolerance))
    return max(found)[1:]


def compile_launch(
    launch: KernelLaunch, checkout: Path, cache: Path, mode: str = "checked", changed: Path | None = None
) -> CompiledFile | CompileFailure:
    """Compile the kernel of a launch.

    Args:
        launch: what to run.
        checkout: folder of MLX's sources.
        cache: folder of compiled kernels.
        mode: of ``metalsim.compile_file``.
        changed: folder with other versions of some of the checkout's files.
    """
    folders = [checkout] if changed is None else [changed, checkout]
    options = FileOptions(constants=launch.constants, include=folders)
    path = next(folder / KERNELS / launch.file for folder in folders if (folder / KERNELS / launch.file).exists())
    return compile_file(path, launch.entry, mode=mode, cache=cache, options=options)  # type: ignore[arg-type]


def run_launch(launch: KernelLaunch, compiled: CompiledFile) -> RunResult:
    """Run a compiled launch."""
    options = LaunchOptions(threadgroup_lengths=launch.threadgroup_lengths)
    buffers: dict[int | str, Any] = dict(launch.buffers.items())
    return run_file(compiled, buffers, grid=launch.grid, threadgroup=launch.threadgroup, options=options)


def outcome_of(launch: KernelLaunch, checkout: Path, cache: Path) -> Outcome:
    """Compile, run and compare one launch."""
    started = time.perf_counter()
    compiled = compile_launch(launch, checkout, cache)
    compile_s = time.perf_counter() - started
    failure, run_s = "", 0.0
    findings: tuple[str, ...] = ()
    error, tolerance = float("inf"), 0.0
    if isinstance(compiled, CompileFailure):
        failure = compiled.messages[0]
    else:
        started = time.perf_counter()
        result = run_launch(launch, compiled)
        run_s = time.perf_counter() - started
        error, tolerance = compare(launch, result)
        findings = tuple(f"{f.kind} {f.place}:{f.line} {f.message} (x{f.count})" for f in result.findings)
    known = [line for line in findings if launch.known and line.startswith(launch.known)]
    # An index outside a thread's array ends the launch: the simulator's own stack lies there.
    stopped = any("of an array of type" in line for line in known)
    constants = {str(key): float(value) for key, value in launch.constants.items() if value}
    return Outcome(
        launch.family, launch.entry, constants, launch.dtype, launch.shape, launch.grid, launch.threadgroup,
        float("nan") if stopped else error, tolerance, findings, len(known), stopped, failure,
        round(compile_s, 3), round(run_s, 4),
    )  # fmt: skip


def outcomes(launches: Iterable[KernelLaunch], checkout: Path, cache: Path) -> Iterator[Outcome]:
    """Run launches one after another."""
    for launch in launches:
        yield outcome_of(launch, checkout, cache)
