"""What every task owes: a seed that passes, an oracle that notices, workloads with twins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from search.artifacts import dimension_of, on_dims, render
from search.authors.block_author import BlockAuthor
from search.backends import Backend
from search.evaluation.gates import check_case, evaluate_program
from search.evaluation.oracle import compare
from search.outcome import Mismatch, Scored
from search.task import Task


def test_every_workload_has_a_twin_and_ragged_lengths_are_covered(task: Task) -> None:
    assert {case.twin_of for case in task.twins} >= {case.label for case in task.workloads}
    labels = [case.label for case in (*task.workloads, *task.twins)]
    assert len(labels) == len(set(labels))
    assert {case.dtype for case in task.twins} <= set(task.tolerances)


def test_inputs_repeat_by_seed_and_differ_between_seeds(task: Task) -> None:
    case = task.twins[-1]
    first, again, other = (task.make_inputs(case, seed) for seed in (4, 4, 5))
    for spec in task.inputs:
        assert first[spec.name].shape == spec.shape_for(case.dims)
        np.testing.assert_array_equal(first[spec.name], again[spec.name])
    assert any(not np.array_equal(first[spec.name], other[spec.name]) for spec in task.inputs)


def test_zeros_ones_copies_and_shifted_outputs_are_mismatches(task: Task) -> None:
    for case in task.twins:
        inputs = task.make_inputs(case, 3)
        reference = task.reference(inputs, case)
        right = {name: array.astype(np.float32) for name, array in reference.items()}
        main = task.outputs[0].name
        cheats = {
            "zeros": np.zeros_like(right[main]),
            "ones": np.ones_like(right[main]),
            "copy of an input": next(
                (a.astype(np.float32) for a in inputs.values() if a.shape == right[main].shape), np.ones(())
            ),
            "unwritten": np.full_like(right[main], np.nan),
            "negated": -right[main],
        }
        for name, cheat in cheats.items():
            result = compare(task, case, {**right, main: cheat}, reference)
            assert isinstance(result, Mismatch), f"{name} passed on {case.label}"
        missing = compare(task, case, {main: right[main]}, reference)
        assert isinstance(missing, Mismatch) == (len(task.outputs) > 1)


@pytest.mark.slow
def test_seed_passes_all_gates(task: Task, new_backend: Callable[[], Backend]) -> None:
    outcome = evaluate_program(task.seed, task, new_backend(), seed=1)
    assert isinstance(outcome, Scored), outcome
    assert outcome.timing == "estimated"
    assert [item.label for item in outcome.workloads] == [case.label for case in task.workloads]
    assert all(item.time_us > 0 and item.bound_by for item in outcome.workloads)
    assert outcome.properties == task.property_ids
    assert 0 < outcome.largest_error < 1


def test_every_single_edit_of_the_seed_is_right(task: Task, new_backend: Callable[[], Backend]) -> None:
    author = BlockAuthor(task)
    edits = author.edits(task.seed)
    assert edits
    cases = [case for case in task.twins if case.dtype == "float32"][:4]
    for edit in edits:
        program = author.write(task.seed, edit)
        assert program.digest != task.seed.digest
        backend = new_backend()
        assert backend.prepare(program, task, cases) is None
        for case in cases:
            error = check_case(task, case, backend, seed=2)
            assert isinstance(error, float), f"{edit.label} on {case.label}: {error}"


def test_generated_mlx_module_states_shapes_and_compiles_as_python(task: Task) -> None:
    author = BlockAuthor(task)
    program = author.write(task.seed, author.edits(task.seed)[0])
    outcome = Scored("estimated", (), (), (), 0.0)
    text = render(
        "best.py.j2", task=task, run_id="r", chip="m1-max", backend="metalsim", dimension_of=dimension_of(task),
        program=program, outcome=outcome, score=2.0,
    )  # fmt: skip
    compile(text, "best.py", "exec")
    assert "Not verified on Apple hardware" in text
    assert program.stages[0].body in text
    assert on_dims("ceildiv(D, 32) * 32") == "ceildiv(D_, 32) * 32"
