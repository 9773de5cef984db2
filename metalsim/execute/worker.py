"""The worker process of ``metalsim.execute.isolation``: compiles, and forks a process for each launch.

Run by its path with two arguments: the caller's import path as JSON, and the worker's own folder. Questions come in on
standard input, answers go out on standard output, both as a length and a pickle. No kernel runs in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import select
import shutil
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from metalsim.execute.isolation import Allowance, Compiled, FileProgram, Launch, Program
    from metalsim.execute.launch import RunResult
    from metalsim.model import CompileFailure

_LENGTH = struct.Struct("<Q")
_ORPHAN_CHECK_S = 1.0
_PIECE_BYTES = 1 << 20


class _TooLong(BaseException):
    """Compiling took longer than allowed; no handler of errors may take it for one."""


def main() -> None:
    """Answer questions until standard input ends."""
    sys.path[:] = json.loads(sys.argv[1])
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one thread: this process forks
    from metalsim.errors import MetalsimError, WorkerFailed

    # Everything that a launch may import: its process can open no file.
    importlib.import_module("metalsim.execute.outcome")
    importlib.import_module("metalsim.execute.confinement")
    importlib.import_module("numpy.random").default_rng(0).integers(0, 2, 2)
    questions, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = _Server()
    with os.fdopen(questions, "rb") as incoming, os.fdopen(answers, "wb") as outgoing:
        while head := incoming.read(_LENGTH.size):
            deed, allowance, arguments = pickle.loads(incoming.read(_LENGTH.unpack(head)[0]))
            try:
                answer = server.answer(deed, allowance, arguments)
            except MetalsimError as exc:
                answer = exc
            except Exception as exc:  # noqa: BLE001 - the boundary of the process
                answer = WorkerFailed(_words(exc), traceback.format_exc())
            content = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
            outgoing.write(_LENGTH.pack(len(content)) + content)
            outgoing.flush()


def _words(exc: BaseException) -> str:
    place = traceback.extract_tb(exc.__traceback__)[-1:]
    where = f" in {os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""  # noqa: PTH119
    return f"metalsim itself failed: {type(exc).__name__}: {str(exc)[:300]}{where}"


class _Server:
    """Answers questions."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._deadline: float | None = None
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, _ORPHAN_CHECK_S, _ORPHAN_CHECK_S)

    def answer(self, deed: str, allowance: Allowance, arguments: tuple[Any, ...]) -> object:
        """Do what is asked."""
        if deed == "run":
            compiled, launch = arguments
            return _run(compiled, launch, allowance)
        return self._compile(deed, arguments, allowance)

    def _on_alarm(self, *_: object) -> None:
        if os.getppid() != self._parent:
            sys.exit(1)
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._deadline = None
            raise _TooLong

    def _compile(self, deed: str, arguments: tuple[Any, ...], allowance: Allowance) -> object:
        from metalsim.model import CompileFailure

        with contextlib.suppress(_TooLong):
            try:
                self._deadline = time.monotonic() + allowance.compile_limit_s
                return _compiled(deed, arguments)
            except MemoryError:
                return CompileFailure(("compiling needs more memory than it may have",))
            finally:
                self._deadline = None
        return CompileFailure((f"compiling took longer than {allowance.compile_limit_s:g} s",))


def _compiled(deed: str, arguments: tuple[Any, ...]) -> Compiled | CompileFailure | tuple[str, ...]:
    if deed == "list":
        file: FileProgram = arguments[0]
        return file.list_kernels(arguments[1])
    program: Program = arguments[0]
    return program.compile(arguments[1], arguments[2])


def _run(compiled: Compiled, launch: Launch, allowance: Allowance) -> RunResult:
    """Run a launch in a child process, and say how it ended."""
    from metalsim.execute.outcome import decode, ended

    started = time.monotonic()
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(compiled, launch, allowance, sending)
    os.close(sending)
    content, reason = bytearray(), ""
    try:
        for piece in _pieces(receiving, started + allowance.launch_wall_s):
            content += piece
            if len(content) > 2 * allowance.memory_bytes:
                reason = "memory"
                break
    except TimeoutError:
        reason = "time"
    finally:
        os.close(receiving)
        if reason:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    if reason or status:
        return ended(launch, reason, status, allowance)
    return decode(bytes(content), compiled, launch, allowance)


def _pieces(descriptor: int, deadline: float) -> Iterator[bytes]:
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        piece = os.read(descriptor, _PIECE_BYTES)
        if not piece:
            return
        yield piece


def _be_child(compiled: Compiled, launch: Launch, allowance: Allowance, sending: int) -> NoReturn:
    """Load the kernel, give up every right, run it, send the outcome, and end."""
    from metalsim.execute.confinement import close_files, limit_resources, seal
    from metalsim.execute.launch import load_library
    from metalsim.execute.outcome import encode, encode_error

    status = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.clear()
        close_files([sending])
        try:
            limit_resources(processor_s=allowance.limit_s, memory_bytes=allowance.memory_bytes)
            load_library(compiled.library)
            seal()
            content = encode(launch.run(compiled))
        except Exception as exc:  # noqa: BLE001 - the boundary of the process
            content = encode_error(exc, _words(exc))
        view = memoryview(content)
        while view:
            view = view[os.write(sending, view) :]
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    try:
        main()
    finally:
        # The caller does it too, unless it was killed.
        shutil.rmtree(sys.argv[2], ignore_errors=True)
