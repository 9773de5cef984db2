"""kx doctor --self-test: whether MLX's back end for this machine can be trusted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kx.cli.output import print_json, print_table
from kx.errors import KxError
from kx.paths import Home

if TYPE_CHECKING:
    from search.backends.mlx_harness import MeasuringMachine
    from search.backends.self_test import Trial


def run_self_test(home: Home, as_json: bool) -> None:
    """Print one row per trial; exits with 1 when one did not hold.

    Raises:
        BackendUnavailable: this machine has no GPU that MLX can use.
    """
    machine = _machine(home)
    trials = list(_trials(machine))
    held = all(trial.held for trial in trials)
    if as_json:
        print_json({"backend": machine.name, "held": held, "trials": [asdict(trial) for trial in trials]})
    else:
        rows = [[trial.name, "held" if trial.held else "failed", trial.detail] for trial in trials]
        print_table([machine.name, "result", "detail"], rows)
    if not held:
        click.get_current_context().exit(KxError.exit_code)


def _machine(home: Home) -> MeasuringMachine:
    """The back end of this machine's GPU, ready to run."""
    from kgraph.graph import KnowledgeGraph
    from search.backends.mlx_cuda import Machine as CudaMachine
    from search.backends.mlx_harness import import_mlx
    from search.backends.mlx_metal import Machine as MetalMachine
    from search.backends.mlx_metal import profiles_of
    from search.session import chip_for

    graph = KnowledgeGraph.open(home)
    slug, kind = "m1-max", CudaMachine
    if sys.platform == "darwin":
        device = str(import_mlx("pip install mlx").device_info().get("device_name", ""))
        known = profiles_of(device, [chip.slug for chip in graph.chips()])
        slug, kind = (known or ["m1-max"])[0], MetalMachine
    machine = kind(chip_for(graph, slug), home.cache, None)
    machine.require()
    return machine


def _trials(machine: MeasuringMachine) -> Iterator[Trial]:
    """The back end's own trials, then each task's seed against the oracle."""
    from search.backends.self_test import Trial, try_out
    from search.evaluation.gates import check_case
    from search.outcome import describe
    from search.task import load_task, task_names

    for name in task_names():
        task = load_task(name)
        yield from try_out(machine, task)
        for case in task.twins:
            result = check_case(task, case, machine, 7)
            held = isinstance(result, float)
            detail = f"error {result:.3f} of its tolerance" if isinstance(result, float) else describe(result)
            yield Trial(f"{name}: {case.label}, oracle", held, detail)
