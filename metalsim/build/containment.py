"""Keeps a kernel inside the simulator: what its compiled module may call, name and run by itself.

Metal text is compiled as C++ for this machine, so a candidate could declare ``system`` and call it, or hide its
faults by writing to the runtime's variables. The compiled module is the place to look, since there no macro or
spelling hides anything: it may call the runtime's entry points, compiler intrinsics and the mathematical functions
behind Metal's own, and nothing else; it has no inline assembly, no calls through pointers and no code that runs at
load. Memory is guarded by the hooks: an access outside every buffer ends the launch.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

from metalsim.build.ir import MEMORY_CALL, read_callee

_INCLUDE = Path(__file__).parent.parent / "include"
_DEFINED = re.compile(r'^define\b.*?@("(?:[^"\\]|\\.)*"|[-a-zA-Z$._0-9]+)\s*\(', re.MULTILINE)
_CALL = re.compile(r"^\s*(?:%\S+ = )?(?:(?:must|no)?tail )?(call|invoke|callbr)\b(.*)$", re.MULTILINE)
_EXTERNAL_VARIABLE = re.compile(r'^@("(?:[^"\\]|\\.)*"|[-a-zA-Z$._0-9]+) = (?:.*\s)?external\b', re.MULTILINE)
_AT_LOAD = re.compile(r"^@llvm\.global_(?:ctors|dtors)\b(.*)$", re.MULTILINE)
_SANITIZER_PREFIX = "asan."  # a dot: no C or C++ function can have this name
_BEFORE_NO_RETURN = "__asan_handle_no_return"
_INDIRECT_FUNCTION = re.compile(r"^@\S+ = (?:.*\s)?(?:ifunc|alias)\b", re.MULTILINE)
_COMPILER_RUNTIME = re.compile(r"^__(?:trunc|extend|fix|float|fixuns|floatun)[a-z]+[a-z0-9]*$")
_SHIM_PREFIXES = ("llvm.", "__ubsan_handle_")
_ENTRY = "msim_entry"
_INTERNAL = ("_Z", "asan.")  # names that C++ and the compiler make, which no other library looks for
# The stack's own words, other instruction pointers, traps for debuggers, and what only one processor has.
_REACHING_INTRINSIC = re.compile(
    r"llvm\.(?:frameaddress|returnaddress|addressofreturnaddress|sponentry|thread\.pointer|read_\w*register|"
    r"write_register|eh\.|coro\.|init\.trampoline|adjust\.trampoline|clear_cache|debugtrap|localescape|"
    r"localrecover|swift|gcroot|x86\.|aarch64\.|arm\.)"
)


def escapes(ll_text: str) -> tuple[str, ...]:
    """What in a module reaches outside the simulator, one line each; empty for a kernel that keeps to Metal.

    Args:
        ll_text: LLVM IR text before hooks are inserted.
    """
    found: list[str] = []
    if re.search(r"^module asm\b", ll_text, re.MULTILINE):
        found.append("inline assembly is not Metal")
    at_load = [name for entry in _AT_LOAD.findall(ll_text) for name in re.findall(r"ptr @([^,\s}]+)", entry)]
    if any(not name.startswith(_SANITIZER_PREFIX) for name in at_load):
        found.append("code that runs when the kernel is loaded (a constructor) is not Metal")
    if _INDIRECT_FUNCTION.search(ll_text):
        found.append("a function by another name (alias or ifunc) is not Metal")
    found += [
        f"the variable {name}, defined elsewhere, is not Metal"
        for name in _EXTERNAL_VARIABLE.findall(ll_text)
        if not name.startswith(_SHIM_PREFIXES)
    ]
    defined = {name.strip('"') for name in _DEFINED.findall(ll_text)}
    found += [f"{name} is the name of a function outside the kernel" for name in sorted(defined) if _is_taken(name)]
    for match in _CALL.finditer(ll_text):
        reason = _refusal(match[2], defined)
        if reason and reason not in found:
            found.append(reason)
    return tuple(found)


def _refusal(call: str, defined: set[str]) -> str:
    if re.search(r"\basm\b", call.split("(", 1)[0]):
        return "inline assembly is not Metal"
    callee, _ = read_callee(f"call{call}")
    if not callee:
        return "a call through a pointer is not supported"
    if _REACHING_INTRINSIC.match(callee):
        return f"the builtin behind {callee} reaches outside Metal"
    known = callee in defined or callee in runtime_functions() or callee.startswith(_SHIM_PREFIXES)
    known = known or bool(MEMORY_CALL.match(callee))
    if known or callee in mathematical_functions() or _COMPILER_RUNTIME.match(callee):
        return ""
    if callee == _BEFORE_NO_RETURN:
        return "a call that never returns (__builtin_trap and the like) is not Metal"
    return f"{callee} is not a function of Metal"


def _is_taken(name: str) -> bool:
    """Whether a function that a kernel defines would stand in for one of the runtime's or the system's."""
    if name == _ENTRY or name.startswith(_INTERNAL):
        return False
    return name.startswith(("msim", "__")) or hasattr(ctypes.CDLL(None), name)


@functools.cache
def runtime_functions() -> frozenset[str]:
    """The runtime's functions that the shim headers call."""
    text = (_INCLUDE / "metalsim" / "abi.h").read_text(encoding="utf-8")
    return frozenset(re.findall(r"\b(msim_\w+)\(", text))


@functools.cache
def mathematical_functions() -> frozenset[str]:
    """The C functions behind the shim headers' builtins, such as ``expf``."""
    names: set[str] = set()
    for header in _INCLUDE.rglob("*"):
        if header.is_file():
            names.update(re.findall(r"__builtin_([a-z0-9_]+)", header.read_text(encoding="utf-8")))
    return frozenset(names)
