"""Back ends: one module each, found by name; each runs programs and tells their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kx.errors import UnknownName
from search.outcome import CompileFailed, Timing, WorkloadTime
from search.program import Program
from search.task import Arrays, Case, Task

BACKENDS = {
    "metalsim": "search.backends.metalsim",
    "mlx_metal": "search.backends.mlx_metal",
    "mlx_cuda": "search.backends.mlx_cuda",
}
"""Name -> module with a class ``Machine`` that implements ``Backend``."""


@dataclass(frozen=True)
class Chip:
    """The chip that a program is prepared for, as plain numbers that travel to worker processes.

    Attributes:
        slug: of the graph's profile.
        quantities: the profile's figures by name.
        limits: hard limits by quantity slug (``threads-per-threadgroup`` -> 1024 ...).
    """

    slug: str
    quantities: Mapping[str, float]
    limits: Mapping[str, float]


@dataclass(frozen=True)
class CheckedRun:
    """Outputs of a run with all checks on, and what the checks found (one line each)."""

    outputs: Arrays
    findings: tuple[str, ...]


@dataclass(frozen=True)
class TimedRun:
    """Time of one workload, and the outputs of the timed launch.

    ``outputs`` may be partial (``complete`` is False): only some threadgroups ran, all other elements are NaN.
    """

    time: WorkloadTime
    outputs: Arrays
    complete: bool
    findings: tuple[str, ...] = ()


class Backend(Protocol):
    """Runs one program; made anew in each worker process."""

    name: str
    timing: Timing

    def require(self) -> None:
        """Make sure that this machine can run programs.

        Raises:
            EnvironmentLacking: it can't; says what is missing.
        """
        ...

    def prepare(self, program: Program, task: Task, cases: list[Case]) -> CompileFailed | None:
        """Compile for every element type and signature that ``cases`` need."""
        ...

    def check(self, case: Case, inputs: Arrays, seed: int) -> CheckedRun:
        """Run ``case`` with every check on; outputs are poisoned by ``seed`` first."""
        ...

    def time(self, case: Case, inputs: Arrays, seed: int) -> TimedRun:
        """Time ``case``."""
        ...


def open_backend(name: str, chip: Chip, cache: Path, compiler: tuple[str, ...] | None) -> Backend:
    """The back end called ``name`` for ``chip``.

    Raises:
        UnknownName: there is none.
        EnvironmentLacking: this machine can't run it.
    """
    if name not in BACKENDS:
        raise UnknownName(f"no back end is called {name!r}", f"back ends: {', '.join(sorted(BACKENDS))}")
    module: Any = import_module(BACKENDS[name])
    backend: Backend = module.Machine(chip, cache, compiler)
    return backend
