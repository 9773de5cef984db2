"""The command lines of one compiler: of kernels, of the runtime, of the linker.

``zig c++`` is a driver that hashes what it reads, keeps a cache of its own and then starts clang. The runtime needs
the C headers that it brings along; kernels need no headers but metalsim's, so on Linux clang and the linker inside
zig are called by themselves, which saves a third of the time.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

_ZIG_DRIVER = "c++"
_X86 = ("x86_64", "amd64")
# Half conversions and fused multiply-add in hardware.
_WANTED = frozenset({"avx2", "f16c", "fma", "bmi2"})
_DRIVER_LINK = ("-shared", "-nostdlib", "-fno-sanitize=all", "-w")


class Commands:
    """What to start for each step.

    Args:
        compiler: command of a clang, or of zig's driver for C++.

    Attributes:
        triple: this machine's, in Linux' words.
        kernel: for kernels and their intermediate code.
        runtime: for C with the system's headers.
        link: for a shared library of object files.
    """

    def __init__(self, compiler: Sequence[str]) -> None:
        command = tuple(compiler)
        is_zig = "zig" in " ".join(Path(part).name for part in command)
        level = _has_vectors()
        self.triple = f"{'x86_64' if platform.machine().lower() in _X86 else 'aarch64'}-unknown-linux-gnu"
        if is_zig:
            self.runtime = (*command, "-mcpu=x86_64_v3" if level else "-mcpu=baseline")
        else:
            self.runtime = (*command, "-march=x86-64-v3") if level else command
        if is_zig and command[-1] == _ZIG_DRIVER and sys.platform == "linux":
            clang = (*command[:-1], "clang", "--driver-mode=g++", f"--target={self.triple}")
            self.kernel = (*clang, "-march=x86-64-v3") if level else clang
            self.link: tuple[str, ...] = (*command[:-1], "ld.lld", "-shared")
        else:
            self.kernel = self.runtime
            undefined = ("-Wl,-undefined,dynamic_lookup",) if sys.platform == "darwin" else ()
            self.link = (*self.runtime, *_DRIVER_LINK, *undefined)


@functools.cache
def _has_vectors() -> bool:
    """Whether this is a Linux machine with x86-64's third level of instructions."""
    if platform.machine().lower() not in _X86 or sys.platform != "linux":
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("flags", 2)[1]
    except (OSError, IndexError):
        return False
    return set(flags.split("\n", 1)[0].split()) >= _WANTED
