"""Timing on MLX: candidate and sentinel in turns, calls chained, raw samples kept; median with its 95 % interval.

Rules: docs/backends.md. One sample is the wall-clock time of several chained calls, evaluated and waited for at once,
over their number: building the graph is not in it, and calls can't overlap, since each one waits for the last.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from search.backends.mlx_device import Call, MlxDevice
from search.program import Program
from search.task import Case, Task

Clock = Callable[[], float]


@dataclass(frozen=True)
class Schedule:
    """How long and how often is measured.

    Attributes:
        warm_up_ms: least time that each program runs before its first sample.
        sample_ms: what one sample should last at least.
        samples: of each program.
        least_samples: where ``budget_s`` would be exceeded.
        budget_s: time for the samples of a workload, seconds.
        most_calls: in one sample.
    """

    warm_up_ms: float = 50.0
    sample_ms: float = 2.0
    samples: int = 25
    least_samples: int = 9
    budget_s: float = 4.0
    most_calls: int = 100


@dataclass(frozen=True)
class Subject:
    """One of the programs that are timed in turns."""

    program: Program
    task: Task
    case: Case


@dataclass(frozen=True)
class Samples:
    """Raw samples of one program in us per call, in the order in which they were taken.

    Attributes:
        calls: chained calls of each sample.
        first, last: outputs of the last call of the first and of the last sample, all for the same inputs.
        peak_bytes: MLX's memory at its highest during one call, beyond what was there before.
    """

    us: tuple[float, ...]
    calls: int
    first: Call
    last: Call
    peak_bytes: int


def measure(
    device: MlxDevice,
    subjects: Sequence[Subject],
    sets: Sequence[dict[str, Any]],
    schedule: Schedule,
    clock: Clock = time.perf_counter,
) -> list[Samples]:
    """Time the subjects in turns: A B, B A, A B ...

    Args:
        device: which runs them.
        subjects: all on the same inputs.
        sets: at least two sets of inputs; calls take them in rotation, and the last call of every sample takes
            the first set, which no call of the warm-up takes.
        schedule: how often.
        clock: seconds.

    Raises:
        Refused: a program can't be compiled or launched.
    """
    turns = [_Turn(device, subject, list(sets), clock) for subject in subjects]
    for turn in turns:
        turn.warm_up(schedule)
    expected_s = sum(turn.seconds_per_call * turn.calls for turn in turns)
    affordable = int(schedule.budget_s / max(expected_s, 1e-9))
    count = min(schedule.samples, max(schedule.least_samples, affordable))
    for number in range(count):
        for turn in turns if number % 2 == 0 else reversed(turns):
            turn.take()
    return [turn.samples() for turn in turns]


class _Turn:
    """One program's part of a measurement."""

    def __init__(self, device: MlxDevice, subject: Subject, sets: list[dict[str, Any]], clock: Clock) -> None:
        self._device, self._subject, self._sets, self._clock = device, subject, sets, clock
        self._taken: list[float] = []
        self._ends: list[Call] = []
        self._peak_bytes = 0
        self.seconds_per_call = 0.0
        self.calls = 1

    def warm_up(self, schedule: Schedule) -> None:
        """Compile, then run until the clocks are up; decides how many calls a sample has."""
        self._seconds_of(1, self._sets[1:])
        self._peak_bytes = self._peak()
        calls, spent_s = 1, 0.0
        while spent_s < schedule.warm_up_ms / 1e3:
            seconds, _ = self._seconds_of(calls, self._sets[1:])
            spent_s += seconds
            self.seconds_per_call = seconds / calls
            calls = min(schedule.most_calls, 2 * calls)
        wanted = math.ceil(schedule.sample_ms / 1e3 / max(self.seconds_per_call, 1e-9))
        self.calls = max(1, min(schedule.most_calls, wanted))

    def take(self) -> None:
        """One sample."""
        subject = self._subject
        self._device.poison_cache(subject.program, subject.task, subject.case, copies=2)
        seconds, end = self._seconds_of(self.calls, self._sets)
        self._taken.append(seconds / self.calls * 1e6)
        self._ends = [*self._ends[:1], end]

    def samples(self) -> Samples:
        return Samples(tuple(self._taken), self.calls, self._ends[0], self._ends[-1], self._peak_bytes)

    def _seconds_of(self, calls: int, sets: list[dict[str, Any]]) -> tuple[float, Call]:
        """Wall-clock time of chained calls, the last one on the first of ``sets``."""
        subject, call = self._subject, None
        for left in reversed(range(calls)):
            inputs = sets[left % len(sets)]
            after = call.last if call else None
            call = self._device.call(subject.program, subject.task, subject.case, inputs, after=after)
        assert call is not None
        wanted = [call.tensors[spec.name] for spec in subject.task.outputs]
        self._device.mx.synchronize()
        started = self._clock()
        self._device.finish(wanted)
        return self._clock() - started, call

    def _peak(self) -> int:
        mx = self._device.mx
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        self._seconds_of(1, self._sets[1:])
        return max(0, int(mx.get_peak_memory()) - int(before))


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median and an interval that holds the true median in at least 95 of 100 measurements, free of any model.

    The interval lies between two order statistics: the true median is below the k-th smallest of n samples with the
    probability that fewer than k of n fair coins show heads. Fewer than six samples give their whole range.
    """
    ordered = sorted(samples)
    n = len(ordered)
    below, rank = 0.0, 0
    while rank < n // 2:
        below += math.comb(n, rank) / 2**n
        if below > 0.025:
            break
        rank += 1
    rank = max(rank, 1)
    return statistics.median(ordered), ordered[rank - 1], ordered[n - rank]


def drift(samples: Sequence[float]) -> float:
    """How much slower the last third of the samples is than the first: 1.0 where the clocks held."""
    third = max(1, len(samples) // 3)
    return statistics.median(samples[-third:]) / statistics.median(samples[:third])
