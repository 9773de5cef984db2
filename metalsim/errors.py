"""Every error that metalsim raises on purpose.

    MetalsimError
    ├── InputError             exit code 2: arrays, names or files that don't fit
    └── EnvironmentLacking     exit code 3: not enough memory, no worker process
        ├── CompilerMissing    no C++ compiler
        └── WorkerFailed       a worker process ended, through no fault of a kernel

A kernel that does not compile or misbehaves is a value (``metalsim.model``), never one of these.
"""

from __future__ import annotations


class MetalsimError(Exception):
    """Root of all errors raised on purpose.

    Args:
        message: what is wrong, one line, naming what is at fault.
        hint: what to do about it, one line; may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(MetalsimError):
    """What was given is wrong; nothing was changed."""

    exit_code = 2


class EnvironmentLacking(MetalsimError):
    """This machine lacks something."""

    exit_code = 3


class CompilerMissing(EnvironmentLacking):
    """No C++ compiler that metalsim can use."""


class WorkerFailed(EnvironmentLacking):
    """A worker process ended or failed in a way that no kernel should be able to cause."""
