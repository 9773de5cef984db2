"""The ``metalsim`` back end: any machine with a CPU. Times are estimates for a chip profile."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import metalsim
from kx.errors import DataMalformed
from kx.simulator import simulator_errors, simulator_limits
from metalsim.build.toolchain import compiler_version, default_compiler
from metalsim.estimate.cost import ChipModel, Estimate, estimate
from metalsim.estimate.counters import Counters, LaunchShape, count
from metalsim.model import Argument, CompileFailure, DType, Limits, MlxKernel
from search.backends import CheckedRun, Chip, TimedRun
from search.expressions import evaluate
from search.outcome import CompileFailed, Timing, WorkloadTime
from search.program import IO_DTYPE, Program, Stage
from search.task import Arrays, Case, Task

Mode = Literal["checked", "counted"]
_DTYPES = {"float32", "float16", "bfloat16", "int32", "uint32", "int8", "uint8", "bool"}


@dataclass
class Machine:
    """Implements ``search.backends.Backend``.

    Attributes:
        sampled_threadgroups: threadgroups of a single-stage launch that are run for an estimate; their counts
            stand for all. One is enough where all do the same, and keeps naive kernels, which put much work into
            each, from taking most of a search's time. A program of several stages runs in full, since a stage
            needs the whole of the last.
    """

    chip: Chip
    cache: Path
    compiler: tuple[str, ...] | None
    sampled_threadgroups: int = 1
    name: str = "metalsim"
    timing: Timing = "estimated"
    _program: Program | None = None
    _task: Task | None = None
    _compiled: dict[tuple[str, str, Any], Any] = field(default_factory=dict)

    @simulator_errors()
    def require(self) -> None:
        """See the protocol: a C++ compiler, and all figures that an estimate needs."""
        compiler_version(self.compiler or default_compiler())
        ChipModel.from_quantities(self.chip.quantities)

    @simulator_errors()
    def prepare(self, program: Program, task: Task, cases: list[Case]) -> CompileFailed | None:
        """See the protocol; twins are compiled with checks, workloads with counters."""
        self._program, self._task = program, task
        for case in cases:
            modes: tuple[Mode, ...] = ("counted",) if case in task.workloads else ("checked",)
            for stage in program.stages:
                for mode in modes:
                    compiled = self._compile(stage, case, mode)
                    if isinstance(compiled, CompileFailure):
                        return CompileFailed(case.dtype, compiled.messages)
        return None

    @simulator_errors()
    def check(self, case: Case, inputs: Arrays, seed: int) -> CheckedRun:
        """See the protocol."""
        tensors = dict(inputs)
        findings: list[str] = []
        for stage in self._stages():
            result = self._launch(stage, case, "checked", tensors, seed, None)
            findings += [_sentence(stage, item) for item in result.findings]
            tensors.update(result.outputs)
            if findings:
                break
        outputs = {spec.name: tensors[spec.name] for spec in self._outputs() if spec.name in tensors}
        return CheckedRun(outputs, tuple(findings))

    @simulator_errors()
    def time(self, case: Case, inputs: Arrays, seed: int) -> TimedRun:
        """See the protocol."""
        stages = self._stages()
        tensors = dict(inputs)
        estimates: list[tuple[Counters, Estimate]] = []
        complete = True
        model = ChipModel.from_quantities(self.chip.quantities)
        for stage in stages:
            sample = self._sample(stage, case, seed) if len(stages) == 1 else None
            complete = complete and sample is None
            result = self._launch(stage, case, "counted", tensors, seed, sample)
            tensors.update(result.outputs)
            counters = self._count(stage, case, tensors, result)
            estimates.append((counters, estimate(counters, model)))
        outputs = {spec.name: tensors[spec.name] for spec in self._outputs()}
        return TimedRun(self._total(case, estimates), outputs, complete)

    def _count(self, stage: Stage, case: Case, tensors: Arrays, result: metalsim.RunResult) -> Counters:
        compiled = self._compile(stage, case, "counted")
        names = {*stage.inputs, *(spec.name for spec in stage.outputs)}
        shape = LaunchShape(
            threads=math.prod(_geometry(stage.grid, case.dims)),
            threadgroups=result.threadgroups_total,
            threads_per_threadgroup=result.threads_per_threadgroup,
            buffer_bytes=sum(tensors[name].nbytes for name in names),
            simd_width=self._limits().simd_width,
        )
        if result.raw is None:
            raise DataMalformed(f"stage {stage.name} was run without counters")
        return count(compiled.sites, compiled.blocks, result.raw, shape)

    def _total(self, case: Case, estimates: list[tuple[Counters, Estimate]]) -> WorkloadTime:
        """Stages follow one another, so their times and parts add up."""
        parts: dict[str, float] = {}
        for _, item in estimates:
            for name, value in asdict(item.parts).items():
                key = name.removesuffix("_us")
                parts[key] = parts.get(key, 0.0) + value
        total = sum(item.time_us for _, item in estimates)
        heaviest = max((item for _, item in estimates), key=lambda item: item.time_us)
        return WorkloadTime(
            case.label, total, total, total, parts, heaviest.bound_by,
            {**self._ceilings(), **_totals(estimates)},
        )  # fmt: skip

    def _ceilings(self) -> dict[str, float]:
        """Nominal bandwidth and peak rate, from which the floor of any time follows."""
        figures = self.chip.quantities
        lanes = figures["gpu-cores"] * figures["schedulers-per-core"] * figures["simd-width"]
        return {
            "nominal_bandwidth_gb_s": figures["memory-bandwidth"],
            "peak_fp32_gflop_s": lanes * 2 * figures["gpu-clock"],
        }

    def _sample(self, stage: Stage, case: Case, seed: int) -> list[int] | None:
        """Linear indices of the threadgroups to run, drawn from ``seed``, away from smaller edge ones.

        A program can't know which threadgroup will be counted and compared, so it can't behave well in that one
        alone. None means all.
        """
        total = 1
        for threads, group in zip(stage.grid, stage.threadgroup, strict=True):
            extent = evaluate(threads, case.dims)
            total *= -(-extent // min(extent, evaluate(group, case.dims)))
        if total <= self.sampled_threadgroups + 2:
            return None
        return sorted(random.Random(seed).sample(range(1, total - 1), self.sampled_threadgroups))

    def _launch(
        self, stage: Stage, case: Case, mode: Mode, tensors: Arrays, seed: int, sample: list[int] | None
    ) -> metalsim.RunResult:
        compiled = self._compile(stage, case, mode)
        if isinstance(compiled, CompileFailure):
            raise DataMalformed(f"stage {stage.name} was not prepared for {case.label}: {compiled.messages[0]}")
        return metalsim.run(
            compiled,
            {name: tensors[name] for name in stage.inputs},
            {spec.name: spec.shape_for(case.dims) for spec in stage.outputs},
            grid=_geometry(stage.grid, case.dims),
            threadgroup=_geometry(stage.threadgroup, case.dims),
            limits=self._limits(),
            threadgroups=sample,
            seed=seed,
        )

    def _compile(self, stage: Stage, case: Case, mode: Mode) -> Any:
        kernel = self._kernel(stage, case)
        key = (stage.name, mode, (_signature(kernel), tuple(sorted(kernel.template.items()))))
        if key not in self._compiled:
            self._compiled[key] = metalsim.compile_kernel(
                kernel, mode=mode, cache=self.cache, compiler=self.compiler, limits=self._limits()
            )
        return self._compiled[key]

    def _kernel(self, stage: Stage, case: Case) -> MlxKernel:
        known = {spec.name: spec for spec in self._tensors()}
        try:
            inputs = tuple(known[name] for name in stage.inputs)
        except KeyError as exc:
            raise DataMalformed(f"stage {stage.name} reads {exc}, which no input or earlier stage provides") from exc

        def argument(spec: Any) -> Argument:
            return Argument(spec.name, cast(DType, spec.dtype_for(case.dtype)), spec.shape_for(case.dims))

        return MlxKernel(
            name=stage.name,
            source=stage.body,
            header=stage.header,
            inputs=tuple(argument(spec) for spec in inputs),
            outputs=tuple(argument(spec) for spec in stage.outputs),
            template={name: _template_value(value, case) for name, value in stage.template.items()},
        )

    def _limits(self) -> Limits:
        return simulator_limits(self.chip.limits)

    def _stages(self) -> tuple[Stage, ...]:
        if self._program is None:
            raise DataMalformed("no program was prepared")
        return self._program.stages

    def _outputs(self) -> tuple[Any, ...]:
        return self._task.outputs if self._task else ()

    def _tensors(self) -> list[Any]:
        made = [spec for stage in self._stages() for spec in stage.outputs]
        return [*(self._task.inputs if self._task else ()), *made]


def _signature(kernel: MlxKernel) -> tuple[Any, ...]:
    """What decides the generated signature: dtype, 0-d or not, and MLX's address-space switch at 8 elements."""

    def kind(argument: Argument) -> tuple[str, str]:
        size = 1
        for extent in argument.shape:
            size *= extent
        return (argument.dtype, "scalar" if not argument.shape else "constant" if size < 8 else "device")

    return (*(kind(item) for item in kernel.inputs), "->", *(item.dtype for item in kernel.outputs))


def _template_value(value: int | bool | str, case: Case) -> int | bool | str:
    if isinstance(value, int):
        return value
    if value == IO_DTYPE:
        return case.dtype
    return value if value in _DTYPES else evaluate(value, case.dims)


def _geometry(extents: tuple[str, str, str], dims: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = (evaluate(extent, dims) for extent in extents)
    return (x, y, z)


def _sentence(stage: Stage, finding: Any) -> str:
    where = f"{stage.name}, line {finding.line}: " if finding.line else f"{stage.name}: "
    return f"{where}{finding.kind}: {finding.message}"


def _totals(estimates: list[tuple[Counters, Estimate]]) -> dict[str, float]:
    """The counters worth keeping with an outcome, summed over stages."""
    totals: dict[str, float] = {}
    for counters, _ in estimates:
        kept = {
            "device_bytes_read": counters.device_bytes_read,
            "device_bytes_written": counters.device_bytes_written,
            "device_line_bytes": counters.device_line_bytes,
            "threadgroup_bytes": counters.threadgroup_bytes,
            "barriers": counters.barriers,
            "shuffles": counters.shuffles,
            "arithmetic_operations": counters.arithmetic_operations,
            "transcendental_operations": counters.transcendental_operations,
        }
        for name, value in kept.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
