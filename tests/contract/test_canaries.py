"""Kernels that cheat or err in the ways that public evaluations were fooled by; each must be found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kgraph.graph import KnowledgeGraph
from search.authors.block_author import BlockAuthor
from search.backends import Backend, Chip
from search.backends.metalsim import Machine
from search.evaluation.gates import _first_broken_property, check_case, evaluate_program, time_case
from search.evaluation.preflight import preflight
from search.outcome import CompileFailed, Mismatch, Outcome, PropertyBroken, Rejected, RuntimeFailed, WorkloadTime
from search.program import Program
from search.task import load_task

TASK = load_task("mamba_scan")
CASE = next(case for case in TASK.twins if case.label == "middle-ragged")


def changed(program: Program, old: str, new: str) -> Program:
    stage = program.stages[0]
    assert old in stage.body
    return replace(program, stages=(replace(stage, body=stage.body.replace(old, new)),))


def outcome_of(program: Program, backend: Backend) -> Outcome | float:
    failed = backend.prepare(program, TASK, [CASE])
    return failed if failed else check_case(TASK, CASE, backend, seed=2)


def scan(**choices: str | int) -> Program:
    wanted = {"mapping": "sequence-lanes", "items": 4, **choices}
    program = BlockAuthor(TASK).compose(wanted)
    assert isinstance(program, Program)
    return program


STORE = "y[row + t] = T("


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("sum * gate", "0.0f * gate", Mismatch),
        (STORE, "if (t < 999) " + STORE, RuntimeFailed),
        ("int t = 0; t < length", "int t = 0; t < length - 1", RuntimeFailed),
        ("u[row + t]", "u[row + t + 1]", Mismatch),
        ("h_last[(batch", "u[0] = 1.0f; h_last[(batch", CompileFailed),
        ("raw > 20.0f", "raw > -4.0f", Mismatch),
    ],
)  # fmt: skip
def test_wrong_kernels_are_told_apart(
    old: str, new: str, kind: type[Outcome], new_backend: Callable[[], Backend]
) -> None:
    result = outcome_of(changed(TASK.seed, old, new), new_backend())
    if kind is Mismatch:
        assert isinstance(result, (Mismatch, RuntimeFailed)), result
    else:
        assert isinstance(result, kind), result


def test_read_behind_the_end_is_named(new_backend: Callable[[], Backend]) -> None:
    result = outcome_of(changed(TASK.seed, "u[row + t]", "u[row + t + 4]"), new_backend())
    assert isinstance(result, RuntimeFailed)
    assert "out-of-range" in result.findings[0]
    assert " u" in result.findings[0]


def test_grid_in_threadgroups_instead_of_threads_leaves_outputs_unwritten(new_backend: Callable[[], Backend]) -> None:
    stage = TASK.seed.stages[0]
    program = replace(TASK.seed, stages=(replace(stage, grid=("ceildiv(D, 64)", "B", "1")),))
    result = outcome_of(program, new_backend())
    assert isinstance(result, RuntimeFailed)
    assert "not-written" in result.findings[0]


def test_missing_barrier_is_a_race_even_when_the_numbers_are_right(new_backend: Callable[[], Backend]) -> None:
    program = scan(simdgroups=4, threads=128)
    assert isinstance(outcome_of(program, new_backend()), float)
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    result = outcome_of(changed(program, barrier, ""), new_backend())
    assert isinstance(result, RuntimeFailed)
    assert "race" in result.findings[0]


def test_scan_that_reads_the_future_breaks_causality(new_backend: Callable[[], Backend]) -> None:
    program = changed(
        TASK.seed, "float sum = D[channel] * x;", "float sum = D[channel] * x + 0.0f * float(u[row + length - 1]);"
    )
    backend = new_backend()
    assert backend.prepare(program, TASK, [TASK.property_case]) is None
    assert _first_broken_property(TASK, backend, 3) is None, "adding zero changes nothing"
    leaking = changed(
        TASK.seed, "float sum = D[channel] * x;", "float sum = D[channel] * x + 1e-5f * float(u[row + length - 1]);"
    )
    backend = new_backend()
    assert backend.prepare(leaking, TASK, [TASK.property_case]) is None
    broken = _first_broken_property(TASK, backend, 3)
    assert isinstance(broken, PropertyBroken)
    assert broken.property == "causality"


def test_compile_error_names_dtype_and_the_kernels_own_line(new_backend: Callable[[], Backend]) -> None:
    result = new_backend().prepare(changed(TASK.seed, STORE, "y[row + t] = undefined_name + T("), TASK, [CASE])
    assert isinstance(result, CompileFailed)
    assert result.dtype == "float32"
    assert "undefined_name" in result.messages[0]
    line = 1 + TASK.seed.stages[0].body[: TASK.seed.stages[0].body.index(STORE)].count("\n")
    assert f"body:{line}" in result.messages[0]


def test_planted_slow_loop_is_estimated_slower(new_backend: Callable[[], Backend]) -> None:
    case = TASK.workloads[0]
    slow = changed(
        TASK.seed, "const float gate =",
        "for (int r = 0; r < 30; r++) { sum = sum + exp(sum * 0.0f) - 1.0f; }\n    const float gate =",
    )  # fmt: skip
    times = []
    for program in (TASK.seed, slow):
        backend = new_backend()
        assert backend.prepare(program, TASK, [case]) is None
        timed = time_case(TASK, case, backend, 5)
        assert isinstance(timed, WorkloadTime), timed
        times.append(timed.time_us)
    assert times[1] > 1.2 * times[0]


def test_time_below_the_floor_is_impossible(new_backend: Callable[[], Backend]) -> None:
    case = TASK.workloads[0]
    backend = new_backend()
    assert backend.prepare(TASK.seed, TASK, [case]) is None
    honest = backend.time

    def boast(*arguments: object) -> object:
        timed = honest(*arguments)  # type: ignore[arg-type]
        return replace(timed, time=replace(timed.time, time_us=1e-3))

    backend.time = boast  # type: ignore[method-assign, assignment]
    result = time_case(TASK, case, backend, 5)
    assert isinstance(result, RuntimeFailed)
    assert "impossible" in result.findings[0]


def test_hard_limits_reject_before_compiling(graph: KnowledgeGraph) -> None:
    constraints = graph.constraints(graph.scopes_of("m1-max"))
    stage = TASK.seed.stages[0]
    assert preflight(TASK.seed, TASK, constraints) is None
    wide = replace(TASK.seed, stages=(replace(stage, threadgroup=("2048", "1", "1")),))
    rejected = preflight(wide, TASK, constraints)
    assert isinstance(rejected, Rejected)
    assert "1024" in rejected.reason
    body = "constexpr int ROWS = 130;\nthreadgroup float tile[ROWS * 64];\n" + stage.body
    rejected = preflight(replace(TASK.seed, stages=(replace(stage, body=body),)), TASK, constraints)
    assert isinstance(rejected, Rejected)
    assert "33280" in rejected.reason
    many = replace(stage, inputs=stage.inputs * 4)
    assert isinstance(preflight(replace(TASK.seed, stages=(many,)), TASK, constraints), Rejected)


def test_outcome_of_a_wrong_program_has_no_score(new_backend: Callable[[], Backend]) -> None:
    outcome = evaluate_program(changed(TASK.seed, "sum * gate", "0.0f * gate"), TASK, new_backend(), seed=1)
    assert isinstance(outcome, Mismatch)
    assert not hasattr(outcome, "workloads")


def test_which_threadgroup_is_counted_depends_on_the_seed(chip: Chip, kernel_cache: Path) -> None:
    machine = Machine(chip, kernel_cache, None)
    stage, case = TASK.seed.stages[0], TASK.workloads[-1]
    drawn = {tuple(machine._sample(stage, case, seed) or ()) for seed in range(40)}
    assert len(drawn) > 10
    assert machine._sample(stage, case, 3) == machine._sample(stage, case, 3)
    total = 768 // 64 * 4
    assert all(0 < index < total - 1 for indices in drawn for index in indices)


def test_program_that_is_right_in_one_threadgroup_only_is_found_out(new_backend: Callable[[], Backend]) -> None:
    wrong = changed(TASK.seed, "sum * gate", "(threadgroup_position_in_grid.x == 6 ? sum : 0.0f) * gate")
    case = TASK.workloads[0]
    backend = new_backend()
    assert backend.prepare(wrong, TASK, [case]) is None
    results = [time_case(TASK, case, backend, seed) for seed in range(3)]
    assert any(isinstance(result, Mismatch) for result in results)


def test_kernel_that_calls_the_host_is_refused(new_backend: Callable[[], Backend]) -> None:
    stage = replace(TASK.seed.stages[0], header="int system(const thread char*);")
    program = replace(TASK.seed, stages=(stage,))
    program = changed(program, "float state[N];", "char c[2] = {'a', 0}; system(c); float state[N];")
    result = new_backend().prepare(program, TASK, [CASE])
    assert isinstance(result, CompileFailed)
    assert "system" in result.messages[0]
