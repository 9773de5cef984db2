"""Runs kernels in processes of their own, so that whatever a kernel does, the caller lives on.

A worker process compiles; for each launch it forks a process that loads the kernel, gives up every right
(``metalsim.execute.confinement``) and runs it. That process serves one launch only, and what it sends back is read
as JSON and plain numbers. A kernel that hangs, crashes or wants too much memory is a finding of the launch.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from metalsim.build.compiler import COMPILER_VARIABLE
from metalsim.build.file import CompiledFile, FileOptions, compile_file, list_kernels
from metalsim.build.kernel import CompiledKernel, compile_kernel
from metalsim.build.toolchain import Mode
from metalsim.errors import EnvironmentLacking, InputError, MetalsimError, WorkerFailed
from metalsim.execute.dispatch import run_file
from metalsim.execute.examine import examine
from metalsim.execute.launch import Array, LaunchOptions, RunResult, run
from metalsim.model import CompileFailure, Limits, MlxKernel

Compiled = CompiledFile | CompiledKernel

DEFAULT_LIMIT_S = 60.0
DEFAULT_COMPILE_LIMIT_S = 120.0
DEFAULT_MEMORY_BYTES = 4 << 30
# What the worker may be late by, beyond its own limits, before it is killed.
_GRACE_S = 15.0
_TERMINATION_S = 1.0
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class FileProgram:
    """A kernel of a ``.metal`` file.

    Attributes:
        source: the text itself, or the path of a file.
        entry: the kernel, as for ``compile_file``.
        options: function constants, include folders, macros, compiler.
        limits: of the chip.
    """

    source: str | Path
    entry: str
    options: FileOptions = field(default_factory=FileOptions)
    limits: Limits | None = None

    def __post_init__(self) -> None:
        # The worker has a working folder of its own.
        if isinstance(self.source, Path):
            object.__setattr__(self, "source", self.source.resolve())
        include = tuple(folder.resolve() for folder in self.options.include)
        object.__setattr__(self, "options", replace(self.options, include=include))

    def compile(self, mode: Mode, cache: Path) -> CompiledFile | CompileFailure:
        """``compile_file`` of this kernel."""
        source = self.source
        return compile_file(source, self.entry, mode=mode, cache=cache, options=self.options, limits=self.limits)

    def list_kernels(self, cache: Path) -> tuple[str, ...] | CompileFailure:
        """Names of the file's kernels; ``entry`` does not matter."""
        return list_kernels(self.source, cache=cache, options=self.options)


@dataclass(frozen=True)
class BodyProgram:
    """A kernel body in the convention of ``mx.fast.metal_kernel``.

    Attributes:
        kernel: body, header, arguments and template values.
        compiler: command of a clang, by default the one of the ziglang package.
        limits: of the chip.
        strict: whether what the lint finds is a failure.
    """

    kernel: MlxKernel
    compiler: Sequence[str] | None = None
    limits: Limits | None = None
    strict: bool = True

    def compile(self, mode: Mode, cache: Path) -> CompiledKernel | CompileFailure:
        """``compile_kernel`` of this kernel."""
        return compile_kernel(
            self.kernel, mode=mode, cache=cache, compiler=self.compiler, limits=self.limits, strict=self.strict
        )


Program = FileProgram | BodyProgram


@dataclass(frozen=True)
class FileLaunch:
    """What a kernel of a file is run with; the attributes are the arguments of ``run_file``."""

    buffers: Mapping[int | str, Any]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    options: LaunchOptions = field(default_factory=LaunchOptions)

    def run(self, compiled: Compiled) -> RunResult:
        """``run_file`` with these arguments."""
        if not isinstance(compiled, CompiledFile):
            raise InputError("a launch of a file's kernel needs a kernel of a file")
        return run_file(compiled, self.buffers, grid=self.grid, threadgroup=self.threadgroup, options=self.options)


@dataclass(frozen=True)
class BodyLaunch:
    """What a kernel body is run with; the attributes are the arguments of ``run``."""

    inputs: Mapping[str, Array]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    output_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    init_value: float | None = None
    options: LaunchOptions = field(default_factory=LaunchOptions)

    def run(self, compiled: Compiled) -> RunResult:
        """``run`` with these arguments."""
        if not isinstance(compiled, CompiledKernel):
            raise InputError("a launch of a kernel body needs a kernel body")
        chosen = self.options
        return run(
            compiled, self.inputs, self.output_shapes, grid=self.grid, threadgroup=self.threadgroup,
            limits=chosen.limits, threadgroups=chosen.threadgroups, seed=chosen.seed,
            max_findings=chosen.max_findings, init_value=self.init_value,
        )  # fmt: skip


Launch = FileLaunch | BodyLaunch


@dataclass(frozen=True)
class Job:
    """A kernel and its launch.

    Attributes:
        program: what is compiled.
        launch: what it is run with.
        cache: folder for compiled kernels.
        mode: ``checked`` also traces where NaNs were born (``metalsim.execute.examine``).
    """

    program: Program
    launch: Launch
    cache: Path
    mode: Mode = "checked"


@dataclass(frozen=True)
class Allowance:
    """What compiling and running may use.

    Attributes:
        limit_s: seconds of processor time for one launch, which then ends with a finding; a process that does not
            end by itself is killed after more than four times that on the clock.
        memory_bytes: memory of one launch, the arrays included, and of compiling.
        compile_limit_s: seconds on the clock for compiling one kernel.
    """

    limit_s: float = DEFAULT_LIMIT_S
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    compile_limit_s: float = DEFAULT_COMPILE_LIMIT_S

    @property
    def launch_wall_s(self) -> float:
        """Seconds on the clock after which the process of a launch is killed."""
        return 4 * self.limit_s + 5


class IsolatedRunner:
    """A worker process, started when needed and started again when it was lost; a context manager.

    Safe to use from several threads; they take turns.

    Args:
        allowance: limits of time and memory.
    """

    def __init__(self, allowance: Allowance | None = None) -> None:
        self.allowance = allowance or Allowance()
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> IsolatedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._drop()

    def compile(self, program: Program, *, mode: Mode, cache: Path) -> Compiled | CompileFailure:
        """Compile in the worker; taking too long or too much memory is a ``CompileFailure``.

        Raises:
            CompilerMissing: there is no compiler.
            EnvironmentLacking: no worker can be started.
        """
        answer = self._ask("compile", (program, mode, cache.resolve()), self.allowance.compile_limit_s)
        return cast("Compiled | CompileFailure", answer)

    def list_kernels(self, program: FileProgram, *, cache: Path) -> tuple[str, ...] | CompileFailure:
        """Names of the kernels of a file, found in the worker; errors as for ``compile``."""
        answer = self._ask("list", (program, cache.resolve()), self.allowance.compile_limit_s)
        return cast("tuple[str, ...] | CompileFailure", answer)

    def run(self, compiled: Compiled, launch: Launch) -> RunResult:
        """Run a compiled kernel in a process of its own.

        Returns:
            outputs and findings; a kernel that hangs, crashes or needs too much memory has a finding of kind
            ``hang``, ``crash`` or ``limit``, and may have no outputs.

        Raises:
            InputError: arrays that do not fit the kernel, an empty grid.
            EnvironmentLacking: no worker can be started.
        """
        return cast("RunResult", self._ask("run", (compiled, launch), self.allowance.launch_wall_s))

    def examine(self, job: Job) -> RunResult | CompileFailure:
        """Compile and run, in mode ``checked`` with a trace of NaNs; errors as for ``compile`` and ``run``."""

        def attempt(mode: Mode) -> RunResult | CompileFailure:
            compiled = self.compile(job.program, mode=mode, cache=job.cache)
            return compiled if isinstance(compiled, CompileFailure) else self.run(compiled, job.launch)

        return examine(attempt) if job.mode == "checked" else attempt(job.mode)

    def _ask(self, deed: str, arguments: tuple[Any, ...], limit_s: float) -> object:
        with self._lock:
            if self._worker is None:
                self._worker = _Worker()
            try:
                answer = self._worker.ask((deed, self.allowance, arguments), limit_s + _GRACE_S)
            except TimeoutError:
                self._drop()
                if deed != "run":
                    return CompileFailure((f"compiling took longer than {limit_s:g} s",))
                raise WorkerFailed(f"the worker process did not answer within {limit_s + _GRACE_S:g} s") from None
            except (OSError, EOFError) as exc:
                words = self._worker.complaint()
                self._drop()
                raise WorkerFailed(f"the worker process ended: {words or exc}") from exc
            except BaseException:
                self._drop()
                raise
        if isinstance(answer, MetalsimError):
            raise answer
        return answer

    def _drop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


def run_isolated(
    job: Job,
    *,
    limit_s: float = DEFAULT_LIMIT_S,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    compile_limit_s: float = DEFAULT_COMPILE_LIMIT_S,
) -> RunResult | CompileFailure:
    """Compile and run a kernel in fresh processes.

    Args:
        job: the kernel and what it is run with.
        limit_s: seconds of processor time for the launch.
        memory_bytes: memory that the launch may take, its arrays included.
        compile_limit_s: seconds on the clock for compiling.

    Returns:
        outputs and findings (``hang``, ``crash`` and ``limit`` when the process had to be ended), or why the
        kernel does not compile.

    Raises:
        InputError: arrays that do not fit the kernel, an empty grid.
        CompilerMissing: there is no compiler.
        EnvironmentLacking: no process can be started.
    """
    with IsolatedRunner(Allowance(limit_s, memory_bytes, compile_limit_s)) as runner:
        return runner.examine(job)


class _Worker:
    """A running worker process and the pipes to it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="metalsim-")
        self._complaints = Path(self._folder) / "complaints"
        program = str(Path(__file__).with_name("worker.py"))
        folder, paths = self._folder, json.dumps([str(Path(entry).resolve()) for entry in sys.path if entry])
        try:
            with self._complaints.open("wb") as complaints:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", program, paths, folder], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=complaints, start_new_session=True, env=_environment(), cwd=folder,
                )  # fmt: skip
        except OSError as exc:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise EnvironmentLacking(f"no worker process could be started: {exc}") from exc

    def ask(self, question: object, limit_s: float) -> object:
        """Send a question and wait for the answer.

        Raises:
            TimeoutError, EOFError, OSError: no answer in time; the worker has ended.
        """
        deadline = time.monotonic() + limit_s
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        content = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        stdin.write(_LENGTH.pack(len(content)) + content)
        stdin.flush()
        length = _LENGTH.unpack(_read(stdout.fileno(), _LENGTH.size, deadline))[0]
        # The worker only compiles and starts processes: no kernel has ever run in it.
        return cast("object", pickle.loads(_read(stdout.fileno(), length, deadline)))

    def complaint(self) -> str:
        """Last line that the worker printed."""
        try:
            lines = self._complaints.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def end(self) -> None:
        """Kill the worker with everything that it has started, and remove its folder."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        if process.poll() is None:
            # First so that it can kill its compilers, which have groups of their own.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TERMINATION_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _read(descriptor: int, count: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < count:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        piece = os.read(descriptor, min(count - len(received), 1 << 20))
        if not piece:
            raise EOFError("it closed its pipe")
        received += piece
    return bytes(received)


def _environment() -> dict[str, str]:
    """Nothing but the compiler's name, as an absolute path: without PATH a bare name would not be found."""
    chosen = os.environ.get(COMPILER_VARIABLE)
    if not chosen:
        return {}
    program, *rest = shlex.split(chosen) or [chosen]
    return {COMPILER_VARIABLE: shlex.join([shutil.which(program) or program, *rest])}
