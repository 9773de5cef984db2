"""What became of a candidate: a typed value, never an exception and never a made-up score.

    Outcome
    ├── Rejected         pre-flight: a constraint of the graph does not hold; nothing was compiled
    ├── CompileFailed    the text does not compile for a dtype of the task
    ├── RuntimeFailed    a check found a race, an out-of-range access ...; or the worker died
    ├── TimedOut         the worker was killed at the limit
    ├── Mismatch         an output differs from the float64 oracle, or an element was never written
    ├── PropertyBroken   an assertion of the task does not hold
    └── Scored           all gates passed; a time per workload

Only ``Scored`` has a score: a failure can't be ranked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kx.errors import DataMalformed

Timing = Literal["estimated", "measured"]


@dataclass(frozen=True)
class WorkloadTime:
    """Time of one workload.

    Attributes:
        label: the workload.
        time_us: median (measured) or estimate, in microseconds.
        low_us, high_us: 95 % interval of a measurement; both equal ``time_us`` for an estimate.
        parts_us: the estimate's parts by name (bandwidth, compute, latency, synchronization, launch).
        bound_by: the part that dominates, or empty.
        counters: work that was counted, by name with its unit in the name.
        samples_us: raw samples of a measurement, in the order in which they were taken; empty for an estimate.
        sentinel_us: samples of the task's seed, each taken right before or after the one of the same position.
    """

    label: str
    time_us: float
    low_us: float
    high_us: float
    parts_us: Mapping[str, float] = field(default_factory=dict)
    bound_by: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)
    samples_us: tuple[float, ...] = ()
    sentinel_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """A hard limit of the graph does not hold.

    Attributes:
        constraint: IRI of the constraint; ``reason``: observed value, limit and unit in words.
    """

    constraint: str
    reason: str


@dataclass(frozen=True)
class CompileFailed:
    """The compiler's messages for ``dtype``, the user's own line numbers in them."""

    dtype: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class RuntimeFailed:
    """A check found a fault while running ``case``, or the worker ended by itself."""

    case: str
    findings: tuple[str, ...]


@dataclass(frozen=True)
class TimedOut:
    """Killed after ``limit_s`` seconds."""

    limit_s: float


@dataclass(frozen=True)
class Mismatch:
    """An output of ``case`` is wrong.

    Attributes:
        output: its name.
        error: largest error relative to the reference's scale; inf where elements are NaN or unwritten.
        allowed: the tolerance.
        signed_mean: mean signed error over the scale: a bias shows a systematic fault.
        where: index of the worst element.
    """

    case: str
    output: str
    error: float
    allowed: float
    signed_mean: float
    where: tuple[int, ...]


@dataclass(frozen=True)
class PropertyBroken:
    """A property does not hold; ``detail`` says where."""

    property: str
    detail: str


@dataclass(frozen=True)
class Scored:
    """All gates passed.

    Attributes:
        timing: whether times are estimates or measurements.
        workloads: one entry per workload of the task, in its order.
        checked_cases: labels of the cases that passed checks and oracle.
        largest_error: over all cases, relative to the tolerance (1 is the limit).
    """

    timing: Timing
    workloads: tuple[WorkloadTime, ...]
    checked_cases: tuple[str, ...]
    properties: tuple[str, ...]
    largest_error: float


Outcome = Rejected | CompileFailed | RuntimeFailed | TimedOut | Mismatch | PropertyBroken | Scored

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Rejected, CompileFailed, RuntimeFailed, TimedOut, Mismatch, PropertyBroken, Scored)
}


def kind_of(outcome: Outcome) -> str:
    """The outcome's name, as in the module's tree."""
    return type(outcome).__name__


def describe(outcome: Outcome) -> str:
    """One line for people and prompts."""
    match outcome:
        case Rejected():
            return f"rejected before compiling: {outcome.reason}"
        case CompileFailed():
            return f"does not compile for {outcome.dtype}: {outcome.messages[0] if outcome.messages else ''}"
        case RuntimeFailed():
            return f"{outcome.case}: {outcome.findings[0] if outcome.findings else 'ended without a result'}"
        case TimedOut():
            return f"killed after {outcome.limit_s:g} s"
        case Mismatch():
            return (
                f"{outcome.case}: {outcome.output} is off by {outcome.error:.3g} of its scale"
                f" (allowed {outcome.allowed:.3g}), worst at {list(outcome.where)}"
            )
        case PropertyBroken():
            return f"property {outcome.property} does not hold: {outcome.detail}"
        case Scored():
            times = ", ".join(f"{item.label} {item.time_us:.1f} us" for item in outcome.workloads)
            return f"{outcome.timing}: {times}"


def score_against(outcome: Scored, seed: Scored) -> float:
    """Geometric mean over workloads of seed time over this time; 1 for the seed itself.

    Raises:
        ValueError: the two do not cover the same workloads or differ in timing kind.
    """
    if outcome.timing != seed.timing or [w.label for w in outcome.workloads] != [w.label for w in seed.workloads]:
        raise ValueError("outcomes of different workloads or timing kinds can't be compared")
    logs = [
        math.log(reference.time_us / item.time_us)
        for item, reference in zip(outcome.workloads, seed.workloads, strict=True)
    ]
    return math.exp(sum(logs) / len(logs))


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """A JSON-ready form with the kind's name."""
    return {"kind": kind_of(outcome), **asdict(outcome)}


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """The outcome that ``outcome_to_json`` described.

    Raises:
        DataMalformed: unknown kind or fields.
    """
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key != "kind"}
    kind = _KINDS.get(str(data.get("kind")))
    if kind is None:
        raise DataMalformed(f"unknown outcome {data.get('kind')!r}")
    try:
        if kind is Scored:
            fields["workloads"] = tuple(_workload_time(item) for item in data["workloads"])
        outcome: Outcome = kind(**fields)
    except TypeError as exc:
        raise DataMalformed(f"outcome {data.get('kind')}: {exc}") from exc
    return outcome


def _workload_time(item: Mapping[str, Any]) -> WorkloadTime:
    samples = {name: tuple(item.get(name, ())) for name in ("samples_us", "sentinel_us")}
    return WorkloadTime(**{**item, **samples})
