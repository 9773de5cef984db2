"""The C++ compiler as a process: found, named, started with limits of time, memory and file size."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metalsim.errors import CompilerMissing

COMPILER_VARIABLE = "METALSIM_CXX"
"""Environment variable that names another clang, as a command line."""

HINT = f"install the Python package ziglang, or name a clang 17 or newer in {COMPILER_VARIABLE}"
_SAID_BYTES = 1 << 20
_KIB = 1 << 10
_MIB = 1 << 20
# One limit a line: a shell whose system lacks one of them goes on.
_LIMITED = """
ulimit -c 0 2>/dev/null
ulimit -t {processor_s} 2>/dev/null
ulimit -v {memory_kib} 2>/dev/null
ulimit -f {file_blocks} 2>/dev/null
exec "$@"
"""
_BLOCK_BYTES = 512
# What finds the system's own parts of a compiler; nothing else of the caller's environment reaches it.
_KEPT_VARIABLES = ("PATH", "SDKROOT", "DEVELOPER_DIR", "SYSTEMROOT")
_MEMORY_WORDS = re.compile(r"out of memory|bad_alloc|OutOfMemory|Cannot allocate memory", re.IGNORECASE)
_CRASH_WORDS = re.compile(r"PLEASE submit a bug report|Stack dump|clang frontend command failed|SIGSEGV|SIGABRT")
_RECURSION_WORDS = re.compile(r"stack nearly exhausted|stack overflow", re.IGNORECASE)


@dataclass(frozen=True)
class CompilerLimits:
    """What one run of the compiler may use.

    Attributes:
        processor_s, wall_s: seconds.
        memory_bytes: address space of each of its processes.
        file_bytes: of each file that it writes.
    """

    processor_s: int = 100
    wall_s: float = 200.0
    memory_bytes: int = 4 << 30
    file_bytes: int = 256 << 20


DEFAULT_LIMITS = CompilerLimits()


@dataclass(frozen=True)
class Compilation:
    """How a run of the compiler ended.

    Attributes:
        returncode: 0 when it succeeded.
        stdout, stderr: what it said, cut after a megabyte.
        fault: why it had to be stopped (time, memory, a crash), in words; else empty.
    """

    returncode: int
    stdout: str
    stderr: str
    fault: str = ""


def default_compiler() -> tuple[str, ...]:
    """The command of the C++ compiler.

    Raises:
        CompilerMissing: neither the environment variable nor the ziglang package is there.
    """
    chosen = os.environ.get(COMPILER_VARIABLE)
    if chosen:
        return tuple(shlex.split(chosen))
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CompilerMissing("metalsim found no C++ compiler: the package ziglang is not installed", HINT)
    # The program itself when it lies where the package keeps it: that saves starting another Python.
    program = Path(spec.origin).parent / ("zig.exe" if os.name == "nt" else "zig")
    return (str(program), "c++") if program.exists() else (sys.executable, "-m", "ziglang", "c++")


def run_compiler(
    command: Sequence[str], folder: Path, caches: Path, limits: CompilerLimits = DEFAULT_LIMITS
) -> Compilation:
    """Run a compiler command in a folder, with limits, and capture what it says.

    Args:
        command: program and arguments.
        folder: working directory; what the compiler says goes into files there.
        caches: folder for the compiler's own cache.
        limits: of time, memory and file size.

    Raises:
        CompilerMissing: the program cannot be started.
        OSError: the folder cannot be written.
    """
    if shutil.which(command[0]) is None:
        raise CompilerMissing(f"cannot start the compiler {command[0]!r}: not found", HINT)
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    # Without a home folder zig asks to be told where its cache is.
    environment |= {"ZIG_GLOBAL_CACHE_DIR": str(caches), "ZIG_LOCAL_CACHE_DIR": str(caches), "LC_ALL": "C"}
    with tempfile.TemporaryFile(dir=folder) as said, tempfile.TemporaryFile(dir=folder) as complained:
        try:
            process = subprocess.Popen(
                _limited(command, limits), cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=said, stderr=complained, start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            raise CompilerMissing(f"cannot start the compiler {command[0]!r}: {exc.strerror}", HINT) from exc
        # Python's wait with a limit looks every few milliseconds only.
        late, before_s = threading.Event(), _children_s()
        timer = threading.Timer(limits.wall_s, _kill_late, (process.pid, late))
        timer.daemon = True
        timer.start()
        try:
            process.wait()
        finally:
            timer.cancel()
            _kill_group(process.pid)  # it starts processes of its own
            process.wait()
        texts = []
        for stream in (said, complained):
            stream.seek(0)
            texts.append(stream.read(_SAID_BYTES).decode("utf-8", errors="replace"))
    # A driver whose compiler was killed does not say by what.
    too_long = late.is_set() or _children_s() - before_s >= limits.processor_s
    fault = _fault(process.returncode, texts[1], too_long, limits)
    return Compilation(process.returncode, texts[0], texts[1], fault)


def _children_s() -> float:
    """Seconds of processor time of all processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _kill_late(leader: int, late: threading.Event) -> None:
    late.set()
    _kill_group(leader)


def _limited(command: Sequence[str], limits: CompilerLimits) -> list[str]:
    if os.name == "nt":
        return list(command)
    script = _LIMITED.format(
        processor_s=limits.processor_s,
        memory_kib=limits.memory_bytes // _KIB,
        file_blocks=limits.file_bytes // _BLOCK_BYTES,
    )
    return ["/bin/sh", "-c", script, "sh", *command]


def _fault(code: int, said: str, late: bool, limits: CompilerLimits) -> str:
    """Why a run did not come to its own end, or gave up; empty for errors in the kernel's text."""
    if code == 0:
        return ""
    # A shell, or a driver that runs the compiler proper, reports a signal as 128 and more.
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if late or number == signal.SIGXCPU or "SIGXCPU" in said:
        return f"compiling took longer than {limits.processor_s} s"
    if number == signal.SIGXFSZ or "SIGXFSZ" in said or "File too large" in said:
        return f"compiling wrote more than {limits.file_bytes // _MIB} MiB"
    if _RECURSION_WORDS.search(said):
        return "the compiler ran out of stack: nested too deeply"
    if _MEMORY_WORDS.search(said):
        return f"compiling needs more than {limits.memory_bytes // _MIB} MiB of memory"
    if number == signal.SIGKILL:
        return f"compiling took longer than {limits.processor_s} s or more memory than there is"
    if number == signal.SIGABRT:
        mib = limits.memory_bytes // _MIB, limits.file_bytes // _MIB
        return f"the compiler gave up: it may take {mib[0]} MiB of memory and write {mib[1]} MiB"
    if number or _CRASH_WORDS.search(said):
        return "the compiler crashed on this text"
    return ""


@functools.cache
def compiler_version(compiler: tuple[str, ...]) -> str:
    """First line of the compiler's ``--version``.

    Raises:
        CompilerMissing: it cannot be started, or is not clang.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = run_compiler((*compiler, "--version"), Path(folder), Path(folder))
    if done.returncode != 0 or "clang" not in done.stdout:
        raise CompilerMissing(f"{' '.join(compiler)!r} is not clang", HINT)
    return done.stdout.splitlines()[0]
