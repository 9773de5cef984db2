"""Every error that kx raises on purpose.

    KxError                        exit code 1
    ├── InputError                 exit code 2: the user's words or files are wrong
    │   ├── PathMissing            a path that does not exist
    │   ├── FileUnreadable         binary, wrong encoding, no permission
    │   ├── UnknownName            a kernel, chip, back end, concept or node nobody knows
    │   ├── DataMalformed          a file of ours or the user's that does not parse or fit
    │   └── RunCorrupt             a run folder that cannot be resumed or shown
    └── EnvironmentLacking         exit code 3: something is not installed or not reachable
        ├── ModelMissing           the embedding model is absent or is not the expected one
        ├── StoreUnreachable       a graph or vector store that does not answer, refuses, or is held by another
        └── BackendUnavailable     a back end that this machine cannot run

Two more stand where they are raised, since nothing else knows of them: ``search.models.EndpointFailed``
(EnvironmentLacking) and ``search.models.AllowanceSpent`` (KxError).

metalsim, which stands alone, has a tree of its own with the same exit codes (``metalsim.errors``).

A message says what is wrong; ``hint`` says what to do about it. A candidate kernel that
does not compile or gives wrong numbers is a value (``search.outcome``), never one of these.
"""

from __future__ import annotations


class KxError(Exception):
    """Root of all errors raised on purpose.

    Args:
        message: what is wrong, one line, naming the file, key or word at fault.
        hint: what the user can do about it, one line; may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(KxError):
    """What the user gave is wrong; nothing was changed."""

    exit_code = 2


class PathMissing(InputError):
    """A path that does not exist."""


class FileUnreadable(InputError):
    """A file that cannot be read as what it should be."""


class UnknownName(InputError):
    """A name that stands for nothing; the hint lists what exists or comes close."""


class DataMalformed(InputError):
    """A data file (Turtle, TOML, JSON, template) that does not parse or misses a key."""


class RunCorrupt(InputError):
    """A run folder whose configuration or log cannot be trusted."""


class EnvironmentLacking(KxError):
    """This machine lacks something that the command needs."""

    exit_code = 3


class ModelMissing(EnvironmentLacking):
    """The embedding model is not installed, or its weights are not the expected ones."""


class StoreUnreachable(EnvironmentLacking):
    """A store elsewhere that does not answer or refuses, or one here that another process holds too long."""


class BackendUnavailable(EnvironmentLacking):
    """A measuring back end that cannot run on this machine."""
