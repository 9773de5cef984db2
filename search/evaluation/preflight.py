"""Pre-flight: a program against the graph's hard constraints, before anything is compiled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from kgraph.model import Constraint
from kx.errors import DataMalformed
from search.expressions import evaluate
from search.outcome import Rejected
from search.program import IO_DTYPE, Program, Stage
from search.task import Case, Task

_THREADGROUP_ARRAY = re.compile(r"\bthreadgroup\s+([A-Za-z_][\w:]*)\s+[A-Za-z_]\w*\s*((?:\[[^\]]+\]\s*)+);")
_EXTENT = re.compile(r"\[([^\]]+)\]")
_BYTES = {
    "float": 4, "half": 2, "bfloat": 2, "int": 4, "uint": 4, "short": 2, "ushort": 2, "char": 1, "uchar": 1,
    "bool": 1, "float2": 8, "float4": 16, "half2": 4, "half4": 8, "int2": 8, "int4": 16, "uint2": 8, "uint4": 16,
    "float32": 4, "float16": 2, "bfloat16": 2, "float16_t": 2, "bfloat16_t": 2,
}  # fmt: skip


def preflight(program: Program, task: Task, constraints: Iterable[Constraint]) -> Rejected | None:
    """The first hard constraint that ``program`` breaks on any workload or twin, or None.

    A quantity that the text does not tell (a size by a computed constant, say) is left to the compiled
    kernel's own check.
    """
    limits = list(constraints)
    for case in (*task.workloads, *task.twins):
        for stage in program.stages:
            for quantity, observed in _observed(stage, case):
                for constraint in limits:
                    if constraint.quantity == quantity and not constraint.holds(observed):
                        reason = (
                            f"{stage.name} on {case.label}: {quantity} is {observed:g} {constraint.unit}, "
                            f"must be {constraint.comparison} {constraint.value:g} ({constraint.label})"
                        )
                        return Rejected(constraint.iri, reason)
    return None


def _observed(stage: Stage, case: Case) -> Iterator[tuple[str, float]]:
    group = [evaluate(extent, case.dims) for extent in stage.threadgroup]
    grid = [evaluate(extent, case.dims) for extent in stage.grid]
    if min(*group, *grid) < 1:
        raise DataMalformed(f"stage {stage.name} has an empty grid or threadgroup on {case.label}")
    yield "threads-per-threadgroup", math.prod(group)
    helpers = sum(f"{name}_{part}" in stage.body for name in stage.inputs for part in ("shape", "strides", "ndim"))
    yield "buffer-arguments", len(stage.inputs) + len(stage.outputs) + helpers
    size = threadgroup_bytes(stage, case)
    if size is not None:
        yield "threadgroup-memory-bytes", size


def threadgroup_bytes(stage: Stage, case: Case) -> int | None:
    """Bytes of threadgroup memory that the stage's body declares, None where the text doesn't tell."""
    values = _constants(stage, case)
    total = 0
    for element, extents in _THREADGROUP_ARRAY.findall(stage.body):
        name = case.dtype if element == IO_DTYPE else element
        if name not in _BYTES:
            return None
        try:
            count = math.prod(evaluate(extent.strip(), values) for extent in _EXTENT.findall(extents))
        except DataMalformed:
            return None
        total += _BYTES[name] * count
    return total


def _constants(stage: Stage, case: Case) -> Mapping[str, int]:
    """Integer template arguments and the body's simple ``constexpr`` integers, by name."""
    values: dict[str, int] = {}
    for name, value in stage.template.items():
        if isinstance(value, int):
            values[name] = int(value)
        elif value != IO_DTYPE and value not in _BYTES:
            values[name] = evaluate(value, case.dims)
    for name, text in re.findall(r"\bconstexpr\s+(?:const\s+)?u?int\s+(\w+)\s*=\s*([^;]+);", stage.body):
        try:
            values[name] = evaluate(text.strip().replace("/", "//"), values)
        except DataMalformed:
            continue
    return values
