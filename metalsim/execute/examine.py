"""Compiles a kernel and runs it with every check, a trace of where its NaNs were born included.

The trace costs nothing while outputs are clean: only a launch whose outputs hold a NaN is run again, with a
kernel compiled for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metalsim.build.file import FileOptions, compile_file
from metalsim.build.kernel import compile_kernel
from metalsim.build.toolchain import Mode
from metalsim.execute.dispatch import run_file
from metalsim.execute.launch import Array, LaunchOptions, RunResult, has_nan, run
from metalsim.model import CompileFailure, MlxKernel

Attempt = Callable[[Mode], RunResult | CompileFailure]
"""Compiles a kernel in a mode and launches it."""


def trace_nan(result: RunResult, attempt: Attempt) -> RunResult:
    """Add where the NaNs of a launch's outputs were born, if they have any.

    Args:
        result: of the launch in mode ``checked``.
        attempt: does the same launch in another mode; called with ``traced`` at most once.

    Returns:
        ``result``, with findings of kind ``nan`` in the order in which they were born. A NaN that came from an
        input, from memory that was never written or from out of range is none; one that came from a variable that
        was never written is ``uninitialized``.
    """
    if not any(has_nan(array) for array in result.outputs.values()):
        return result
    traced = attempt("traced")
    if isinstance(traced, CompileFailure):
        return result
    known = {(finding.kind, finding.place, finding.line) for finding in result.findings}
    born = tuple(
        finding
        for finding in traced.findings
        if finding.kind in ("nan", "uninitialized") and (finding.kind, finding.place, finding.line) not in known
    )
    return replace(result, findings=(*result.findings, *born))


def examine(attempt: Attempt) -> RunResult | CompileFailure:
    """Launch a kernel with every check.

    Args:
        attempt: compiles and launches it in mode ``checked`` and, when outputs hold a NaN, ``traced``.
    """
    result = attempt("checked")
    return result if isinstance(result, CompileFailure) else trace_nan(result, attempt)


def examine_file(
    source: str | Path,
    entry: str,
    buffers: Mapping[int | str, Any],
    *,
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    cache: Path,
    options: FileOptions | None = None,
    launch: LaunchOptions | None = None,
) -> RunResult | CompileFailure:
    """Compile one kernel of a ``.metal`` file and launch it with every check.

    Args:
        source: the text itself, or the path of a file.
        entry: the kernel, as for ``compile_file``.
        buffers: arrays by index or name, as for ``run_file``.
        grid: threads per axis, x first.
        threadgroup: threads per axis.
        cache: folder for compiled kernels.
        options: function constants, include folders, macros, compiler.
        launch: limits, threadgroup lengths and the like.

    Returns:
        outputs and findings, or why the kernel does not compile.

    Raises:
        InputError: buffers that do not fit the kernel, an empty grid.
        CompilerMissing: there is no compiler.
        EnvironmentLacking: not enough memory.
    """
    limits = launch.limits if launch else None

    def attempt(mode: Mode) -> RunResult | CompileFailure:
        compiled = compile_file(source, entry, mode=mode, cache=cache, options=options, limits=limits)
        if isinstance(compiled, CompileFailure):
            return compiled
        return run_file(compiled, buffers, grid=grid, threadgroup=threadgroup, options=launch)

    return examine(attempt)


def examine_kernel(
    kernel: MlxKernel,
    inputs: Mapping[str, Array],
    *,
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    cache: Path,
    init_value: float | None = None,
    launch: LaunchOptions | None = None,
) -> RunResult | CompileFailure:
    """Compile a kernel body and launch it with every check.

    Args:
        kernel: body, header, arguments and template values; its outputs have the shapes given there.
        inputs: arrays by name.
        grid: threads per axis, x first.
        threadgroup: threads per axis.
        cache: folder for compiled kernels.
        init_value: fills all outputs before the launch.
        launch: limits and the like.

    Returns:
        outputs and findings, or why the kernel does not compile.

    Raises:
        InputError: arrays that do not fit the kernel, an empty grid.
        CompilerMissing: there is no compiler.
        EnvironmentLacking: not enough memory.
    """
    chosen = launch or LaunchOptions()

    def attempt(mode: Mode) -> RunResult | CompileFailure:
        compiled = compile_kernel(kernel, mode=mode, cache=cache, limits=chosen.limits)
        if isinstance(compiled, CompileFailure):
            return compiled
        return run(
            compiled, inputs, {}, grid=grid, threadgroup=threadgroup, threadgroups=chosen.threadgroups,
            seed=chosen.seed, max_findings=chosen.max_findings, init_value=init_value,
        )  # fmt: skip

    return examine(attempt)
