"""The gates in order: compile, checked runs, oracle, properties, time, timed outputs.

Pre-flight comes before (``search.evaluation.preflight``), in the parent process, since it needs the graph.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from search.backends import Backend, TimedRun
from search.evaluation.oracle import compare
from search.outcome import Mismatch, Outcome, PropertyBroken, RuntimeFailed, Scored, WorkloadTime
from search.program import Program
from search.task import Arrays, Case, Task


class _Broken(Exception):
    """Carries a failing outcome out of a property's runs."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(repr(outcome))
        self.outcome = outcome


def evaluate_program(program: Program, task: Task, backend: Backend, seed: int) -> Outcome:
    """Take ``program`` through all gates.

    Args:
        seed: draws inputs and poison; recorded with the outcome, so that a failure can be repeated.
    """
    cases = [*task.twins, *task.workloads, task.property_case]
    failed = backend.prepare(program, task, cases)
    if failed is not None:
        return failed
    draw = random.Random(seed)
    largest = 0.0
    for case in task.twins:
        checked = check_case(task, case, backend, draw.randrange(2**31))
        if not isinstance(checked, float):
            return checked
        largest = max(largest, checked)
    broken = _first_broken_property(task, backend, draw.randrange(2**31))
    if broken is not None:
        return broken
    times: list[WorkloadTime] = []
    for case in task.workloads:
        timed = time_case(task, case, backend, draw.randrange(2**31))
        if not isinstance(timed, WorkloadTime):
            return timed
        times.append(timed)
    checked_cases = tuple(case.label for case in task.twins)
    return Scored(backend.timing, tuple(times), checked_cases, task.property_ids, largest)


def check_case(task: Task, case: Case, backend: Backend, seed: int) -> Outcome | float:
    """Checks and oracle on one case: the failure, or the largest error over its tolerance."""
    inputs = task.make_inputs(case, seed)
    outputs = _checked_outputs(case, backend, inputs, seed)
    if not isinstance(outputs, dict):
        return outputs
    return compare(task, case, outputs, task.reference(inputs, case))


def _checked_outputs(case: Case, backend: Backend, inputs: Arrays, seed: int) -> RuntimeFailed | Arrays:
    before = {name: array.tobytes() for name, array in inputs.items()}
    run = backend.check(case, inputs, seed)
    if run.findings:
        return RuntimeFailed(case.label, run.findings)
    changed = [name for name, array in inputs.items() if array.tobytes() != before[name]]
    if changed:
        return RuntimeFailed(case.label, (f"input {changed[0]} was changed by the kernel",))
    return run.outputs


def _first_broken_property(task: Task, backend: Backend, seed: int) -> Outcome | None:
    case = task.property_case

    def run(inputs: Arrays, dims: Mapping[str, int]) -> Arrays:
        part = Case(case.label, dict(dims), case.dtype)
        outputs = _checked_outputs(part, backend, inputs, seed)
        if not isinstance(outputs, dict):
            raise _Broken(outputs)
        return outputs

    for check in task.properties().values():
        try:
            result = check(run, case.dims, case.dtype, seed)
        except _Broken as exc:
            return exc.outcome
        if not result.held:
            return PropertyBroken(result.id, result.detail)
    return None


def time_case(task: Task, case: Case, backend: Backend, seed: int) -> WorkloadTime | Outcome:
    """Time of one workload, after its outputs were checked again and its floor was respected."""
    inputs = task.make_inputs(case, seed)
    timed = backend.time(case, inputs, seed)
    if timed.findings:
        return RuntimeFailed(case.label, timed.findings)
    wrong = _check_timed_outputs(task, case, inputs, timed)
    if wrong is not None:
        return wrong
    floor_us = floor_time_us(task, case, timed.time.counters)
    if timed.time.time_us < floor_us:
        reason = f"{timed.time.time_us:.2f} us is below the floor of {floor_us:.2f} us: impossible"
        return RuntimeFailed(case.label, (reason,))
    return timed.time


def floor_time_us(task: Task, case: Case, counters: Mapping[str, float]) -> float:
    """No program can be faster: fewest bytes over nominal bandwidth, fewest operations over peak rate.

    Args:
        counters: must hold ``nominal_bandwidth_gb_s`` and ``peak_fp32_gflop_s`` of the chip.
    """
    bytes_us = task.floor_bytes(case) / (counters["nominal_bandwidth_gb_s"] * 1e3)
    flops_us = task.floor_flops(case) / (counters["peak_fp32_gflop_s"] * 1e3)
    return max(bytes_us, flops_us)


def _check_timed_outputs(task: Task, case: Case, inputs: Arrays, timed: TimedRun) -> Mismatch | None:
    """Compare the timed launch's outputs; of a sampled launch, the slice that its threadgroups wrote."""
    outputs = timed.outputs
    dims: Mapping[str, int] = case.dims
    if not timed.complete:
        restrict: Any = import_module(f"search.tasks.{task.name}.reference").restrict
        written = {name: ~np.isnan(array.astype(np.float32)) for name, array in outputs.items()}
        inputs, dims, outputs = restrict(inputs, dims, outputs, written)
    part = Case(case.label, dict(dims), case.dtype)
    result = compare(task, part, outputs, task.reference(inputs, part))
    return result if isinstance(result, Mismatch) else None
