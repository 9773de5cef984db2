"""Takes from a process what a kernel never needs: files, other programs, the network, endless time and memory.

Where the system has no such call (seccomp is Linux's) the resource limits remain: no new file descriptor can be
opened and nothing can be written to a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

_MIB = 1 << 20
# Address space that is only reserved costs nothing: the runtime keeps buffers far apart.
_RESERVED_BYTES = 16 << 30
_REPEAT_S = 0.1

# System calls by number (Linux's interface, which never changes): (x86-64, aarch64).
_NEEDED = (
    (0, 63), (1, 64), (3, 57), (8, 62), (9, 222), (10, 226), (11, 215), (12, 214), (13, 134), (14, 135), (15, 139),
    (20, 66), (24, 124), (25, 216), (28, 233), (38, 103), (39, 172), (60, 93), (96, 169), (131, 132), (186, 178),
    (202, 98), (219, 128), (228, 113), (231, 94), (318, 278),
)  # fmt: skip
"""read, write, close, lseek, mmap, mprotect, munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, writev,
sched_yield, mremap, madvise, setitimer, getpid, exit, gettimeofday, sigaltstack, gettid, futex, restart_syscall,
clock_gettime, exit_group, getrandom."""
_DEADLY = ((59, 221), (322, 281), (56, 220), (57, -1), (58, -1), (435, 435), (41, 198), (101, 117))
"""execve, execveat, clone, fork, vfork, clone3, socket, ptrace."""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050001  # the last is errno EPERM
_OTHER_INTERFACE = 0x40000000  # x32's numbers start here
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def limit_resources(*, processor_s: float, memory_bytes: int) -> None:
    """Bound what this process may use from now on; a limit that the system does not have is left out.

    At ``processor_s`` the process gets SIGVTALRM and then one every tenth of a second (metalsim's runtime ends the
    launch); well after that it is killed.

    Args:
        processor_s: seconds of processor time, counted from now.
        memory_bytes: memory beyond what the process has already.
    """
    used_s = sum(os.times()[:2])
    whole_s = math.ceil(used_s + processor_s * 1.5) + 2
    _limit("RLIMIT_CPU", whole_s)
    _limit("RLIMIT_CORE", 0)
    _limit("RLIMIT_FSIZE", 0)
    data, space = _memory_in_use()
    _limit("RLIMIT_DATA", data + memory_bytes)
    _limit("RLIMIT_AS", space + memory_bytes + _RESERVED_BYTES)
    # Ignored outside a launch; the runtime takes it over for the time of a launch.
    signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_VIRTUAL, processor_s, _REPEAT_S)


def _limit(name: str, value: int) -> None:
    number = getattr(resource, name, None)
    if number is None:
        return
    hard = resource.getrlimit(number)[1]
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(number, (bounded, bounded))


def _memory_in_use() -> tuple[int, int]:
    """Bytes of data and of address space of this process; a guess where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return 1024 * _MIB, 4096 * _MIB
    page = resource.getpagesize()
    return int(pages[5]) * page, int(pages[0]) * page


def close_files(kept: Iterable[int]) -> None:
    """Close every file descriptor above the standard ones but those kept; the standard ones lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    low = 3
    for number in sorted(kept):
        os.closerange(low, number)
        low = number + 1
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(low, min(limit, 1 << 16) if limit != resource.RLIM_INFINITY else 1 << 16)


def seal() -> bool:
    """From now on this process can open no file, start no program and no thread, and reach no network.

    Returns:
        whether the system calls are filtered, too (Linux on x86-64 and aarch64).
    """
    _limit("RLIMIT_NOFILE", 0)
    column, architecture = _ARCHITECTURES.get(platform.machine(), (-1, 0))
    if sys.platform != "linux" or column < 0:
        return False
    deadly = [pair[column] for pair in _DEADLY if pair[column] >= 0]
    needed = [pair[column] for pair in _NEEDED]
    program = [
        (_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0), (_JUMP_ABOVE, 0, 1, _OTHER_INTERFACE), (_RETURN, 0, 0, _KILL),
    ]  # fmt: skip
    for number in deadly:
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KILL)]
    for number in needed:
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _REFUSE))
    instructions = (_Instruction * len(program))(*(_Instruction(*line) for line in program))
    chosen = _Filter(len(program), instructions)
    libc = ctypes.CDLL(None)
    prctl = libc.prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    return bool(prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(chosen), 0, 0) == 0)
