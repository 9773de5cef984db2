"""What the back ends that measure on MLX share: gates' runs, timed runs, and who may use the GPU when.

A GPU shows no race, no access out of range and no read of what was never written. So a checked run is metalsim's,
with every check on, and then the device's: its outputs are those that the oracle sees, they may not change from run
to run, and they have to agree with metalsim's.
"""

from __future__ import annotations

import contextlib
import fcntl
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kx.errors import BackendUnavailable, DataMalformed
from search.backends import CheckedRun, Chip, TimedRun
from search.backends.metalsim import Machine as Simulator
from search.backends.mlx_arrays import to_numpy
from search.backends.mlx_device import Ceilings, MlxDevice, Platform, Refused
from search.backends.mlx_timing import Samples, Schedule, Subject, drift, measure, median_interval
from search.outcome import CompileFailed, Timing, WorkloadTime
from search.program import Program
from search.task import Arrays, Case, Task

POISONS = (float("nan"), 77.0)
"""What outputs hold before the two checked runs: an element that no thread writes differs between them."""

CACHE_MULTIPLE = 2.0
"""Input sets of a timed run together exceed the last-level cache so many times, so that no call finds its own there."""

_MOST_SETS = 24
_DISTINCT_SETS = 3


def import_mlx(hint: str) -> Any:
    """The module ``mlx.core``.

    Raises:
        BackendUnavailable: it can't be imported.
    """
    try:
        import mlx.core
    except (ImportError, OSError) as exc:
        raise BackendUnavailable(f"mlx.core cannot be imported: {exc}", hint) from exc
    return mlx.core


@dataclass
class MeasuringMachine:
    """Implements ``search.backends.Backend`` but for ``require_device`` and the platform.

    Attributes:
        chip: the chip whose limits programs keep.
        cache: folder; holds metalsim's compiled kernels and the lock of the GPU.
        compiler: C++ compiler of metalsim, or None for the default.
        schedule: of timed runs.
    """

    chip: Chip
    cache: Path
    compiler: tuple[str, ...] | None
    name: str = "mlx"
    platform: Platform = field(init=False)
    timing: Timing = "measured"
    schedule: Schedule = field(default_factory=Schedule)
    _program: Program | None = None
    _task: Task | None = None

    @abstractmethod
    def require_device(self) -> None:
        """Make sure that MLX and its GPU are there.

        Raises:
            BackendUnavailable: they aren't; says what to install.
        """

    def require(self) -> None:
        """See the protocol: the GPU, and what metalsim needs, which checks every program first."""
        self.require_device()
        self._simulator.require()

    @cached_property
    def device(self) -> MlxDevice:
        """MLX's default GPU."""
        return MlxDevice(import_mlx("see kx doctor"), self.platform)

    @cached_property
    def _simulator(self) -> Simulator:
        return Simulator(self.chip, self.cache, self.compiler)

    def prepare(self, program: Program, task: Task, cases: list[Case]) -> CompileFailed | None:
        """See the protocol: checked cases by metalsim's compiler, all by that of the device."""
        self._program, self._task = program, task
        checked = [case for case in cases if case not in task.workloads]
        failed = self._simulator.prepare(program, task, checked)
        if failed is not None:
            return failed
        for case in cases:
            try:
                with self._gpu(alone=False):
                    self._compile(program, task, case)
            except Refused as exc:
                return CompileFailed(case.dtype, exc.lines)
        return None

    def check(self, case: Case, inputs: Arrays, seed: int) -> CheckedRun:
        """See the protocol: metalsim's findings, or the device's outputs and what speaks against them."""
        simulated = self._simulator.check(case, inputs, seed)
        if simulated.findings:
            return simulated
        program, task = self._prepared()
        try:
            with self._gpu(alone=False):
                arrays = self.device.place(inputs)
                runs = [self.device.run(program, task, case, arrays, poison) for poison in POISONS]
        except Refused as exc:
            return CheckedRun({}, tuple(f"the device refuses: {line}" for line in exc.lines))
        changed = self._changed_inputs(inputs, arrays)
        findings = [*changed, *differences(*runs), *self._disagreements(case, simulated.outputs, runs[0])]
        return CheckedRun(runs[0], tuple(findings))

    def time(self, case: Case, inputs: Arrays, seed: int) -> TimedRun:
        """See the protocol; the task's seed runs in turns with the program, as a sentinel of the clocks."""
        program, task = self._prepared()
        subjects = [Subject(program, task, case), Subject(task.seed, task, case)]
        try:
            with self._gpu(alone=True):
                ceilings = self.platform.ceilings(self.device.mx)
                sets = self._input_sets(case, inputs, seed, ceilings)
                timed, sentinel = measure(self.device, subjects, sets, self.schedule)
                first, last = self._outputs(timed.first.tensors), self._outputs(timed.last.tensors)
                changed = self._changed_inputs(inputs, sets[0])
        except Refused as exc:
            refused = WorkloadTime(case.label, float("inf"), float("inf"), float("inf"))
            return TimedRun(refused, {}, True, tuple(f"the device refuses: {line}" for line in exc.lines))
        findings = (*changed, *differences(first, last))
        return TimedRun(self._workload_time(case, timed, sentinel, ceilings, len(sets)), last, True, findings)

    def _workload_time(
        self, case: Case, timed: Samples, sentinel: Samples, ceilings: Ceilings, sets: int
    ) -> WorkloadTime:
        _, task = self._prepared()
        median, low, high = median_interval(timed.us)
        reference, reference_low, reference_high = median_interval(sentinel.us)
        bandwidth_us = task.floor_bytes(case) / (ceilings.bandwidth_gb_s * 1e3)
        compute_us = task.floor_flops(case) / (ceilings.float32_gflop_s * 1e3)
        parts = {
            "bandwidth": bandwidth_us,
            "compute": compute_us,
            "latency": max(0.0, median - max(bandwidth_us, compute_us)),
        }
        counters = {
            "nominal_bandwidth_gb_s": ceilings.bandwidth_gb_s,
            "peak_fp32_gflop_s": ceilings.float32_gflop_s,
            "calls_per_sample": float(timed.calls),
            "input_sets": float(sets),
            "peak_bytes": float(timed.peak_bytes),
            "sentinel_us": reference,
            "sentinel_low_us": reference_low,
            "sentinel_high_us": reference_high,
            "sentinel_drift": drift(sentinel.us),
        }
        return WorkloadTime(
            case.label, median, low, high, parts, max(parts, key=lambda name: parts[name]), counters,
            timed.us, sentinel.us,
        )  # fmt: skip

    def _input_sets(self, case: Case, inputs: Arrays, seed: int, ceilings: Ceilings) -> list[dict[str, Any]]:
        """``inputs`` first, others of the same kind, and copies elsewhere in memory until the cache is exceeded."""
        _, task = self._prepared()
        size = sum(array.nbytes for array in inputs.values())
        wanted = int(-(-CACHE_MULTIPLE * ceilings.cache_bytes // size))
        distinct = [inputs, *(task.make_inputs(case, seed + number) for number in range(1, _DISTINCT_SETS))]
        count = min(_MOST_SETS, max(_DISTINCT_SETS, wanted))
        return [self.device.place(distinct[number % _DISTINCT_SETS]) for number in range(count)]

    def _compile(self, program: Program, task: Task, case: Case) -> None:
        """Run once on zeros: MLX compiles nothing before."""
        mx = self.device.mx
        zeros = {
            spec.name: mx.zeros(spec.shape_for(case.dims), dtype=getattr(mx, spec.dtype_for(case.dtype)))
            for spec in task.inputs
        }
        call = self.device.call(program, task, case, zeros)
        self.device.finish([call.last])

    def _outputs(self, tensors: dict[str, Any]) -> Arrays:
        _, task = self._prepared()
        return {spec.name: to_numpy(self.device.mx, tensors[spec.name]) for spec in task.outputs}

    def _changed_inputs(self, inputs: Arrays, arrays: dict[str, Any]) -> list[str]:
        mx = self.device.mx
        changed = [name for name, array in inputs.items() if to_numpy(mx, arrays[name]).tobytes() != array.tobytes()]
        return [f"input {name} was changed by the kernel" for name in changed]

    def _disagreements(self, case: Case, simulated: Arrays, measured: Arrays) -> list[str]:
        """Outputs that differ by more than two results may that are both within the task's tolerance."""
        _, task = self._prepared()
        lines = []
        for spec in task.outputs:
            one, other = simulated[spec.name].astype(np.float64), measured[spec.name].astype(np.float64)
            scale = float(np.max(np.abs(one), initial=0.0)) or 1.0
            error = float(np.max(np.abs(one - other), initial=0.0)) / scale
            allowed = 2 * task.tolerances[spec.dtype_for(case.dtype)].relative
            if not error <= allowed:
                lines.append(
                    f"{spec.name} is off by {error:.3g} of its scale between metalsim and this device "
                    f"(allowed {allowed:.3g})"
                )
        return lines

    def _prepared(self) -> tuple[Program, Task]:
        if self._program is None or self._task is None:
            raise DataMalformed("no program was prepared")
        return self._program, self._task

    @contextlib.contextmanager
    def _gpu(self, *, alone: bool) -> Iterator[None]:
        """The GPU, shared with other evaluations' checks or, for timing, alone; waits for it."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


def differences(one: Arrays, other: Arrays) -> list[str]:
    """Outputs of two runs on the same inputs that are not the same bits, a line each."""
    lines = []
    for name, array in one.items():
        bits = f"u{array.dtype.itemsize}"
        unequal = np.argwhere(array.view(bits) != other[name].view(bits))
        if len(unequal):
            lines.append(
                f"{name} differs between two runs on the same inputs in {len(unequal)} elements, first at "
                f"{unequal[0].tolist()}: a race, or elements that no thread writes"
            )
    return lines
