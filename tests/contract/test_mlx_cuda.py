"""mlx_cuda on an NVIDIA GPU: the seed and some of its edits pass all gates. Skipped where MLX finds none."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from search.authors.block_author import BlockAuthor
from search.backends import Chip
from search.backends.mlx_cuda import Machine
from search.backends.self_test import probe
from search.evaluation.gates import evaluate_program
from search.outcome import Scored
from search.task import Task

mx: Any = pytest.importorskip("mlx.core")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not mx.cuda.is_available(), reason="MLX finds no NVIDIA GPU")]


def test_simdgroups_are_what_kernels_take_them_for(chip: Chip, kernel_cache: Path) -> None:
    trial = probe(Machine(chip, kernel_cache, None).device)
    assert trial.held, trial.detail


@pytest.mark.parametrize("number", range(4))
def test_programs_pass_all_gates(task: Task, chip: Chip, kernel_cache: Path, number: int) -> None:
    if not (task.folder / "blocks").exists():
        pytest.skip("the task has no blocks")
    author = BlockAuthor(task)
    edits = author.edits(task.seed)
    program = author.write(task.seed, edits[number * len(edits) // 4]) if number else task.seed
    brief = dataclasses.replace(task, workloads=task.workloads[:1])
    outcome = evaluate_program(program, brief, Machine(chip, kernel_cache, None), number)
    assert isinstance(outcome, Scored), outcome
    assert outcome.timing == "measured"
