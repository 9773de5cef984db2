"""Programs on MLX's GPU, whichever it is: definition, launch, poison, and what both platforms share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from metalsim.model import MlxKernel
from search.backends.mlx_arrays import Extents, extents_of, kernel_of, tensors_of, to_mlx, to_numpy
from search.program import Program, Stage
from search.task import Arrays, Case, Task

AFTER = "kx_after"
"""An input of every first stage that no kernel reads: MLX runs it after the call that made the array."""

Definition = Callable[..., list[Any]]
"""Takes inputs, output_shapes, output_dtypes, grid, threadgroup and init_value; gives one array per output."""


@dataclass(frozen=True)
class Ceilings:
    """What the device can do at most, as it or its profile says.

    Attributes:
        bandwidth_gb_s: nominal, of device memory.
        float32_gflop_s: peak.
        cache_bytes: of the last level before device memory.
    """

    bandwidth_gb_s: float
    float32_gflop_s: float
    cache_bytes: float


class Refused(Exception):
    """The platform can't define or run the kernel; the lines say why."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines[0] if lines else "refused")
        self.lines = tuple(lines)


class Platform(Protocol):
    """What differs between a Mac and a machine with an NVIDIA GPU."""

    name: str

    def define(self, mx: Any, kernel: MlxKernel, grid: Extents, threadgroup: Extents) -> Definition:
        """The kernel as MLX's; it is compiled when it first runs.

        Raises:
            Refused: its text can't be written for this platform.
        """
        ...

    def ceilings(self, mx: Any) -> Ceilings:
        """What the device can do at most."""
        ...


@dataclass
class Call:
    """One evaluation of a program that MLX has not run yet.

    Attributes:
        tensors: every array by name, outputs of stages included.
        last: the array that the next call may be told to wait for.
    """

    tensors: dict[str, Any]
    last: Any


@dataclass
class MlxDevice:
    """Runs programs.

    Attributes:
        mx: the module ``mlx.core``, or what stands in for it.
    """

    mx: Any
    platform: Platform
    _defined: dict[Any, Definition] = field(default_factory=dict)

    def place(self, inputs: Arrays) -> dict[str, Any]:
        """The inputs as MLX arrays, there before anything is timed."""
        arrays = {name: to_mlx(self.mx, array) for name, array in inputs.items()}
        self.mx.eval(*arrays.values())
        return arrays

    def call(
        self,
        program: Program,
        task: Task,
        case: Case,
        inputs: Mapping[str, Any],
        *,
        after: Any = None,
        poison: float | None = None,
    ) -> Call:
        """Ask for one evaluation; MLX runs it when its outputs are evaluated.

        Args:
            program, task, case: what is run; ``case`` gives dimensions and element type.
            inputs: arrays of ``place``.
            after: what another call's ``last`` is, to run behind it.
            poison: what every output holds before the kernels write; None leaves them as they come.

        Raises:
            Refused: a stage can't be written for this platform.
        """
        tensors: dict[str, Any] = dict(inputs)
        specs = tensors_of(program, task)
        chained = self._chained_dtype(program, case)
        waiting = self.mx.zeros((8,), dtype=chained) if after is None else after
        for position, stage in enumerate(program.stages):
            first = position == 0
            kernel = kernel_of(stage, case, specs)
            grid = extents_of(stage.grid, case.dims)
            threadgroup = extents_of(stage.threadgroup, case.dims)
            defined = self._define(stage, kernel, grid, threadgroup)
            arrays = [tensors[name] for name in stage.inputs]
            outputs = _asked(
                defined,
                inputs=[*arrays, waiting] if first else arrays,
                output_shapes=[argument.shape for argument in kernel.outputs],
                output_dtypes=[getattr(self.mx, _mlx_name(argument.dtype)) for argument in kernel.outputs],
                grid=grid,
                threadgroup=threadgroup,
                init_value=poison,
                chained=chained if first else None,
            )
            tensors.update(zip((spec.name for spec in stage.outputs), outputs, strict=True))
        last = max((tensors[spec.name] for spec in program.stages[-1].outputs), key=lambda array: array.size)
        return Call(tensors, last)

    def run(
        self, program: Program, task: Task, case: Case, inputs: Mapping[str, Any], poison: float
    ) -> dict[str, npt.NDArray[Any]]:
        """The task's outputs of one evaluation.

        Raises:
            Refused: it can't be written, compiled or launched.
        """
        call = self.call(program, task, case, inputs, poison=poison)
        wanted = {spec.name: call.tensors[spec.name] for spec in task.outputs if spec.name in call.tensors}
        self.finish(list(wanted.values()))
        return {name: to_numpy(self.mx, array) for name, array in wanted.items()}

    def finish(self, arrays: Sequence[Any]) -> None:
        """Wait until ``arrays`` are there.

        Raises:
            Refused: the compiler or the driver refuses what was asked for.
        """
        try:
            self.mx.eval(*arrays)
            self.mx.synchronize()
        except (RuntimeError, ValueError) as exc:
            raise Refused(complaints(str(exc))) from exc

    def poison_cache(self, program: Program, task: Task, case: Case, copies: int) -> None:
        """Leave NaNs in the memory that MLX will hand out for the program's outputs next."""
        specs = [spec for stage in program.stages for spec in stage.outputs]
        arrays = []
        for spec in specs:
            dtype = getattr(self.mx, _mlx_name(spec.dtype_for(case.dtype)))
            value = float("nan") if _is_float(spec.dtype_for(case.dtype)) else 77
            arrays += [self.mx.full(spec.shape_for(case.dims), value, dtype=dtype) for _ in range(copies)]
        self.finish(arrays)

    def _define(self, stage: Stage, kernel: MlxKernel, grid: Extents, threadgroup: Extents) -> Definition:
        template = tuple(sorted(kernel.template.items()))
        key = (stage.body, stage.header, kernel.inputs, kernel.outputs, template, grid, threadgroup)
        if key not in self._defined:
            self._defined[key] = self.platform.define(self.mx, kernel, grid, threadgroup)
        return self._defined[key]

    def _chained_dtype(self, program: Program, case: Case) -> Any:
        """Element type of the largest output of the last stage, which ``last`` is."""
        largest = max(program.stages[-1].outputs, key=lambda spec: int(np.prod(spec.shape_for(case.dims))))
        return getattr(self.mx, _mlx_name(largest.dtype_for(case.dtype)))


def _asked(defined: Definition, **call: Any) -> list[Any]:
    try:
        return defined(**call)
    except (RuntimeError, ValueError) as exc:
        raise Refused(complaints(str(exc))) from exc


def complaints(message: str) -> tuple[str, ...]:
    """The lines of a compiler's or driver's message that say what is wrong; its first line where none does."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return tuple((errors or lines)[:8]) or ("refused without a message",)


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _mlx_name(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype
