"""Whether a back end that measures can be trusted on this machine; for ``kx doctor --self-test``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metalsim.model import Argument, MlxKernel
from search.backends.mlx_arrays import to_mlx, to_numpy
from search.backends.mlx_device import MlxDevice, Refused
from search.backends.mlx_harness import MeasuringMachine, differences
from search.task import Task

_PROBE = Path(__file__).parent / "probe.metal"
_LANES = 32


@dataclass(frozen=True)
class Trial:
    """One thing that was tried: what, whether it held, and the figures."""

    name: str
    held: bool
    detail: str


def try_out(machine: MeasuringMachine, task: Task) -> Iterator[Trial]:
    """Lane layout, the task's seed compiled for all its cases, and a timed run.

    Right or wrong is the gates' matter (``search.evaluation``), which back ends don't know.
    """
    yield probe(machine.device)
    failed = machine.prepare(task.seed, task, [*task.twins, task.workloads[0]])
    if failed is not None:
        yield Trial(f"{task.name}: compile", False, f"{failed.dtype}: {failed.messages[0]}")
        return
    yield Trial(f"{task.name}: compile", True, f"the seed for {len(task.twins) + 1} cases")
    timed = machine.time(task.workloads[0], task.make_inputs(task.workloads[0], 1), 1)
    if timed.findings:
        yield Trial(f"{task.name}: time", False, timed.findings[0])
        return
    time, counters = timed.time, timed.time.counters
    yield Trial(
        f"{task.name}: time",
        True,
        f"{time.label}: {time.time_us:.1f} us [{time.low_us:.1f}, {time.high_us:.1f}] measured, "
        f"{len(time.samples_us)} samples of {counters['calls_per_sample']:.0f} calls, "
        f"drift {counters['sentinel_drift']:.3f}",
    )


def probe(device: MlxDevice) -> Trial:
    """The layout of an 8x8 matrix over the lanes, and SIMD-group functions."""
    kernel = MlxKernel(
        name="kx_probe",
        source=_PROBE.read_text(encoding="utf-8"),
        header="#include <metal_simdgroup_matrix>\n",
        inputs=(Argument("x", "float32", (8, 8)),),
        outputs=(Argument("y", "float32", (_LANES, 8)),),
    )
    numbers = np.arange(64, dtype=np.float32).reshape(8, 8)
    grid = (_LANES, 1, 1)
    try:
        (result,) = device.platform.define(device.mx, kernel, grid, grid)(
            inputs=[to_mlx(device.mx, numbers)], output_shapes=[(_LANES, 8)], output_dtypes=[device.mx.float32],
            grid=grid, threadgroup=grid, init_value=float("nan"), chained=None,
        )  # fmt: skip
        device.finish([result])
    except Refused as exc:
        return Trial("SIMD-group", False, exc.lines[0])
    found = {"y": to_numpy(device.mx, result)}
    unlike = differences(found, {"y": _expected(numbers)})
    return Trial(
        "SIMD-group", not unlike, unlike[0] if unlike else "lane layout, sums, prefixes, shuffles, 8x8 product"
    )


def _expected(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What probe.metal writes: the layout of facts on simdgroup_matrix in the graph (row 4 b4 + 2 b2 + b1)."""
    rows: list[list[Any]] = []
    square = numbers @ numbers
    for lane in range(_LANES):
        row = (lane >> 4 & 1) * 4 + (lane >> 1 & 3)
        column = (lane >> 3 & 1) * 4 + (lane & 1) * 2
        pair = numbers[row, column : column + 2]
        rows.append([*pair, 496.0, lane, lane ^ 9, lane - 1, square[row, column], 17.0])
    return np.array(rows, dtype=np.float32)
