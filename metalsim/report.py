"""Checks files and runs launches as a whole: compile, lint, run with all checks, count, estimate."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count as count_from
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from metalsim.build.file import CompiledFile, FileOptions, FileParameter
from metalsim.build.toolchain import Mode
from metalsim.errors import InputError
from metalsim.estimate.chip import ChipModel
from metalsim.estimate.cost import Estimate, estimate_run
from metalsim.estimate.counters import Counters
from metalsim.estimate.sampling import choose_threadgroups, threadgroups_per_grid
from metalsim.execute.dispatch import Bound, Fresh, ReadOnly
from metalsim.execute.examine import examine
from metalsim.execute.isolation import (
    Allowance,
    BodyLaunch,
    BodyProgram,
    Compiled,
    FileLaunch,
    FileProgram,
    IsolatedRunner,
    Launch,
    Program,
)
from metalsim.execute.launch import Array, LaunchOptions, RunResult, numpy_dtype
from metalsim.launchfile import BodyFile, BufferPlan, LaunchPlan, make_array
from metalsim.model import Argument, CompileFailure, Finding, Limits, MlxKernel
from metalsim.text.signature import element_count

Advance = Callable[[int, int], None]
COUNTED_THREADGROUPS = 512
"""A launch of more threadgroups is counted from a sample of that many."""


@dataclass(frozen=True)
class EntryCheck:
    """What compiling one kernel said.

    Attributes:
        name: of the function, or host name of the instance.
        compiled: whether the compiler took it.
        errors: its messages with file and line, first one first; empty when it compiled.
        lint: what Metal's compiler refuses although this one takes it.
    """

    name: str
    compiled: bool
    errors: tuple[str, ...] = ()
    lint: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """What a kernel is compiled and run with, apart from its launch.

    Attributes:
        cache: folder for compiled kernels.
        limits: of the chip.
        include: folders for ``#include``.
        quantities: of the chip, for the estimate; empty for no estimate.
        allowance: time and memory of compiling and of each run.
    """

    cache: Path
    limits: Limits
    include: tuple[Path, ...] = ()
    quantities: Mapping[str, float] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)

    def runner(self) -> IsolatedRunner:
        """A new worker with this allowance."""
        return IsolatedRunner(self.allowance)


@dataclass(frozen=True)
class LaunchReport:
    """What a launch did.

    Attributes:
        errors: why it does not compile; everything else is then empty.
        findings: of the lint and of all checks.
        outputs: arrays that the kernel wrote, by name.
        counters: None when the launch was not counted.
        estimate: of its time; None without a chip's quantities.
    """

    errors: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    outputs: Mapping[str, Array] = field(default_factory=dict)
    counters: Counters | None = None
    estimate: Estimate | None = None


def check_file(
    path: Path, entry: str, surroundings: Surroundings, plan: LaunchPlan | None = None, advance: Advance | None = None
) -> tuple[EntryCheck, ...] | CompileFailure:
    """Compile the kernels of a file, several at a time.

    Args:
        path: of the ``.metal`` file.
        entry: one kernel, or empty for all.
        surroundings: limits, include folders, cache.
        plan: whose function constants and template arguments hold.
        advance: called with the number of finished kernels and of all.

    Returns:
        one check per kernel, in the file's order; a failure when the file cannot be read at all.

    Raises:
        EnvironmentLacking: there is no compiler, or no process can be started.
    """
    options = _file_options(surroundings, plan)
    with surroundings.runner() as first:
        names: Sequence[str] | CompileFailure = (entry,)
        if not entry:
            names = first.list_kernels(FileProgram(path, "", options), cache=surroundings.cache)
        if isinstance(names, CompileFailure):
            return names
        workers = max(1, min(os.cpu_count() or 1, len(names)))
        waiting: SimpleQueue[IsolatedRunner] = SimpleQueue()
        done = count_from(1)

        def check(name: str) -> EntryCheck:
            runner = waiting.get()
            try:
                program = FileProgram(path, name, options, surroundings.limits)
                compiled = runner.compile(program, mode="checked", cache=surroundings.cache)
            finally:
                waiting.put(runner)
            if advance:
                advance(next(done), len(names))
            return _entry_check(name, compiled)

        with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
            for runner in (first, *(stack.enter_context(surroundings.runner()) for _ in range(workers - 1))):
                waiting.put(runner)
            return tuple(pool.map(check, names))


def check_body(body: BodyFile, surroundings: Surroundings, plan: LaunchPlan) -> EntryCheck:
    """Compile a kernel body for the arrays of a launch.

    Raises:
        InputError: the launch does not name the body's inputs and outputs.
        EnvironmentLacking: there is no compiler, or no process can be started.
    """
    with surroundings.runner() as runner:
        program = _Body(body, plan, surroundings).program
        return _entry_check(body.name, runner.compile(program, mode="checked", cache=surroundings.cache))


def _entry_check(name: str, compiled: Compiled | CompileFailure) -> EntryCheck:
    if isinstance(compiled, CompileFailure):
        return EntryCheck(name, False, compiled.messages, compiled.lint)
    return EntryCheck(name, True, (), compiled.lint)


def _file_options(surroundings: Surroundings, plan: LaunchPlan | None) -> FileOptions:
    constants = plan.constants if plan else {}
    template = plan.template if plan else {}
    return FileOptions(constants=constants, include=surroundings.include, strict=False, template=template)


class _BoundKernel(Protocol):
    """A kernel with what it is run with."""

    @property
    def program(self) -> Program: ...

    @property
    def grid(self) -> tuple[int, int, int]: ...

    def launch(self, compiled: Compiled) -> Launch: ...


def run_launch(source: Path | BodyFile, plan: LaunchPlan, surroundings: Surroundings) -> LaunchReport:
    """Run a launch with all checks, then count it and estimate its time; each in a process of its own.

    Args:
        source: a ``.metal`` file, or a kernel body.
        plan: what it is run with.
        surroundings: limits, include folders, cache, the chip's quantities.

    Raises:
        InputError: the launch does not fit the kernel; a figure of the chip is missing.
        EnvironmentLacking: no compiler, or no process can be started.
    """
    if surroundings.quantities:
        ChipModel.from_quantities(surroundings.quantities)  # before any work is done
    with surroundings.runner() as runner:
        bound: _BoundKernel
        if isinstance(source, Path):
            bound = _File(source, plan, surroundings, runner)
        else:
            bound = _Body(source, plan, surroundings)
        lint: tuple[Finding, ...] = ()

        def attempt(mode: Mode) -> RunResult | CompileFailure:
            nonlocal lint
            compiled = runner.compile(bound.program, mode=mode, cache=surroundings.cache)
            lint = compiled.lint
            return compiled if isinstance(compiled, CompileFailure) else runner.run(compiled, bound.launch(compiled))

        result = examine(attempt)
        if isinstance(result, CompileFailure):
            return LaunchReport(result.messages, lint)
        report = LaunchReport((), (*lint, *result.findings), result.outputs)
        cut_short = any(item.kind in ("hang", "crash") for item in result.findings)
        if not surroundings.quantities or result.threadgroups_run == 0 or cut_short:
            return report
        counters, estimated = _counted(runner, bound, plan, surroundings)
        return replace(report, counters=counters, estimate=estimated)


def _counted(
    runner: IsolatedRunner, bound: _BoundKernel, plan: LaunchPlan, surroundings: Surroundings
) -> tuple[Counters, Estimate] | tuple[None, None]:
    """Counters of the launch and its estimate; None when counting failed, of which the checked run has told.

    A large launch is counted from a sample of its threadgroups.
    """
    compiled = runner.compile(bound.program, mode="counted", cache=surroundings.cache)
    if isinstance(compiled, CompileFailure):
        return None, None
    launch = bound.launch(compiled)
    sample = choose_threadgroups(threadgroups_per_grid(launch.grid, launch.threadgroup), 0, COUNTED_THREADGROUPS)
    if not sample.is_whole:
        launch = replace(launch, options=replace(launch.options, threadgroups=sample.indices))
    result = runner.run(compiled, launch)
    if result.raw is None:
        return None, None
    size = sum(element_count(b.shape) * numpy_dtype(b.dtype).itemsize for b in plan.buffers)
    return estimate_run(
        compiled, result, grid=launch.grid, buffer_bytes=size, quantities=surroundings.quantities, sample=sample
    )


class _File:
    """A launch of a kernel of a file."""

    def __init__(self, path: Path, plan: LaunchPlan, surroundings: Surroundings, runner: IsolatedRunner) -> None:
        if plan.grid is None or plan.threadgroup is None:
            raise InputError("the launch names no grid", "grid_threads and threadgroup: threads in x, y, z")
        self._plan, self._surroundings = plan, surroundings
        self.grid, self._threadgroup = plan.grid, plan.threadgroup
        self.program = FileProgram(path, plan.entry, _file_options(surroundings, plan), surroundings.limits)
        if not plan.entry:
            self.program = replace(self.program, entry=self._only_kernel(runner))

    def _only_kernel(self, runner: IsolatedRunner) -> str:
        names = runner.list_kernels(self.program, cache=self._surroundings.cache)
        if isinstance(names, CompileFailure):
            return ""
        if len(names) != 1:
            listed = ", ".join(names[:8]) or "none; name an instance of a template, such as f<float>"
            raise InputError("the launch names no entry", f"kernels of the file: {listed}")
        return names[0]

    def launch(self, compiled: Compiled) -> Launch:
        assert isinstance(compiled, CompiledFile)
        wanted = sorted(p.index for p in compiled.parameters if p.role == "threadgroup")
        given = self._plan.threadgroup_memory
        if len(given) != len(wanted):
            raise InputError(
                f"the kernel takes {len(wanted)} threadgroup arguments, the launch gives {len(given)}",
                "threadgroup_memory: bytes of each, in the order of their indices",
            )
        lengths = dict(zip(wanted, given, strict=True))
        options = LaunchOptions(self._surroundings.limits, threadgroup_lengths=lengths)
        return FileLaunch(self._buffers(compiled), self.grid, self._threadgroup, options)

    def _buffers(self, compiled: CompiledFile) -> dict[int | str, Bound]:
        parameters = sorted((p for p in compiled.parameters if p.role == "buffer"), key=lambda p: p.index)
        plans = self._plan.buffers
        if len(plans) > len(parameters):
            listed = ", ".join(f"{p.index} {p.name}" for p in parameters)
            raise InputError(f"the launch has {len(plans)} buffers, the kernel {len(parameters)}", f"buffers: {listed}")
        by_name = {p.name: p for p in parameters}
        named = all(plan.name in by_name for plan in plans)
        pairs = [(by_name[plan.name], plan) for plan in plans] if named else zip(parameters, plans, strict=False)
        return {parameter.index: self._bound(parameter, plan) for parameter, plan in pairs}

    def _bound(self, parameter: FileParameter, plan: BufferPlan) -> Bound:
        if plan.role in ("out", "inout") and not parameter.writable:
            raise InputError(f"buffer {plan.name} is {plan.role}, but the kernel's {parameter.name} is read-only")
        if plan.role == "out":
            init = self._plan.init_value
            return Fresh(plan.dtype, plan.shape) if init is None else make_array(_filled(plan, init))
        return make_array(plan) if plan.role == "inout" else ReadOnly(make_array(plan))


class _Body:
    """A launch of a kernel body."""

    def __init__(self, body: BodyFile, plan: LaunchPlan, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        grid, threadgroup = plan.grid or body.grid, plan.threadgroup or body.threadgroup
        if grid is None or threadgroup is None:
            raise InputError("neither the launch nor the body names a grid", "grid_threads and threadgroup")
        self.grid, self._threadgroup = grid, threadgroup
        self._init_value = body.init_value if plan.init_value is None else plan.init_value
        buffers = {buffer.name: buffer for buffer in plan.buffers}
        missing = [name for name in (*body.input_names, *body.output_names) if name not in buffers]
        unknown = [name for name in buffers if name not in (*body.input_names, *body.output_names)]
        if missing or unknown:
            words = f"the launch lacks buffer {missing[0]}" if missing else f"the body has no buffer {unknown[0]}"
            raise InputError(words, f"it has {', '.join((*body.input_names, *body.output_names))}")
        self._inputs = [buffers[name] for name in body.input_names]
        self._outputs = [buffers[name] for name in body.output_names]
        wrong = [b.name for b in self._inputs if b.role not in ("in", "scalar")]
        wrong += [b.name for b in self._outputs if b.role != "out"]
        if wrong:
            raise InputError(f"buffer {wrong[0]} has the wrong role", "inputs are in or scalar, outputs are out")
        inputs, outputs = tuple(map(_argument, self._inputs)), tuple(map(_argument, self._outputs))
        kernel = MlxKernel(
            body.name, body.source, inputs, outputs, body.header, {**body.template, **plan.template},
            body.atomic_outputs,
        )  # fmt: skip
        self.program = BodyProgram(kernel, limits=surroundings.limits, strict=False)

    def launch(self, compiled: Compiled) -> Launch:
        return BodyLaunch(
            {b.name: make_array(b) for b in self._inputs}, self.grid, self._threadgroup,
            init_value=self._init_value, options=LaunchOptions(self._surroundings.limits),
        )  # fmt: skip


def _argument(buffer: BufferPlan) -> Argument:
    return Argument(buffer.name, buffer.dtype, buffer.shape)


def _filled(plan: BufferPlan, value: float) -> BufferPlan:
    return replace(plan, fill=replace(plan.fill, kind="const", lo=value), file=None)
