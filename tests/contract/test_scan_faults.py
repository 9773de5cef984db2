"""Faults planted into right scans, one at a time: the gates must score none of them.

Each is a fault that kernel authors really make, or a way in which a kernel gets an answer without the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from search.authors.block_author import BlockAuthor
from search.backends import Backend
from search.evaluation.gates import _first_broken_property, check_case
from search.outcome import CompileFailed, Outcome
from search.program import Program
from search.task import load_task

TASK = load_task("mamba_scan")
CASES = [case for case in TASK.twins if case.label in {"chunk-257", "middle-ragged", "batched-ragged"}]
WIDE = BlockAuthor(TASK).compose({"mapping": "sequence-lanes", "items": 4, "simdgroups": 4, "threads": 128})
STAGED = BlockAuthor(TASK).compose(
    {"mapping": "sequence-lanes", "items": 4, "simdgroups": 4, "threads": 128, "staging": "threadgroup"}
)
assert isinstance(WIDE, Program)
assert isinstance(STAGED, Program)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"

SEED_FAULTS = {
    "copy of the input": ("T(sum * gate / (1.0f + exp(-gate)))", "u[row + t]"),
    "all zeros": ("T(sum * gate / (1.0f + exp(-gate)))", "T(0.0f)"),
    "constant answer": ("T(sum * gate / (1.0f + exp(-gate)))", "T(0.01f)"),
    "answer for the usual scale only": ("sum += state[n]", "sum += 0.0f * state[n]"),
    "no gate": ("sum * gate / (1.0f + exp(-gate))", "sum"),
    "sigmoid for silu": ("sum * gate / (1.0f + exp(-gate))", "sum / (1.0f + exp(-gate))"),
    "no skip": ("float sum = D[channel] * x;", "float sum = 0.0f;"),
    "no bias": ("+ delta_bias[channel]", ""),
    "no softplus": ("raw > 20.0f ? raw : log(1.0f + exp(raw))", "abs(raw)"),
    "softplus overflows": ("raw > 20.0f ? raw : log(1.0f + exp(raw))", "log(1.0f + exp(raw * 4.0f)) / 4.0f"),
    "B and C swapped": ("float(B[at]);\n        sum += state[n] * float(C[at])",
                        "float(C[at]);\n        sum += state[n] * float(B[at])"),
    "A of the neighbour channel": ("A[channel * N + n]", "A[(channel + 1) % channels * N + n]"),
    "A transposed": ("A[channel * N + n]", "A[n * channels + channel]"),
    "B of the first batch": ("(batch * N + n) * length + t", "n * length + t"),
    "decay after the input": ("exp(dt * A[channel * N + n]) * state[n] + dt * x * float(B[at])",
                              "exp(dt * A[channel * N + n]) * (state[n] + dt * x * float(B[at]))"),
    "state kept in half": ("float state[N];", "half state[N];"),
    "sum kept in half": ("float sum = D[channel] * x;", "half sum = half(D[channel] * x);"),
    "one step late": ("h_last[(batch * channels + channel) * N + n] = state[n];",
                      "h_last[(batch * channels + channel) * N + n] = exp(A[channel * N + n] * 0.01f) * state[n];"),
    "final state left out": ("h_last[(batch * channels + channel) * N + n] = state[n];", ""),
    "final state of another channel": ("h_last[(batch * channels + channel) * N + n]",
                                       "h_last[(batch * channels + (channel ^ 1) % channels) * N + n]"),
    "every second step": ("t < length; t++", "t < length; t += 2"),
    "in place": ("y[row + t] = T(", "const_cast<device T*>(u)[row + t] = T(0.0f); y[row + t] = T("),
    "double precision": ("float sum = D[channel] * x;", "double sum = D[channel] * x;"),
}  # fmt: skip
WIDE_FAULTS = {
    "pairs combined in the wrong order": ("product * value_below + value : value;",
                                          "product_below * value + value_below : value;"),
    "plus for the scan's operator": ("lane >= 4 ? product * value_below + value : value;",
                                     "lane >= 4 ? value_below + value : value;"),
    "a distance left out": ("value = lane >= 8 ? product * value_below + value : value;", ""),
    "product not scanned": ("product = lane >= 2 ? product * product_below : product;", ""),
    "no carry between chunks": ("carry[n] = leaving;", "carry[n] = 0.0f;"),
    "carry without decay": ("leaving = total.x * leaving + total.y;", "leaving = leaving + total.y;"),
    "padding that decays": (": 0.0f;\n        sum[k] = skip", ": 1.0f;\n        sum[k] = skip"),
    "tail not masked": ("const bool whole = at + ITEMS <= length;", "const bool whole = true;"),
    "first lane takes the wrong state": ("lane == 0 ? group_before :", "lane == 0 ? entering :"),
    "one slot for all sets": ("phase ^= 1;", ""),
    "no barrier": (BARRIER, ""),
    "barrier that orders nothing": (BARRIER, "threadgroup_barrier(mem_flags::mem_none);"),
    "barrier of a SIMD-group": (BARRIER, "simdgroup_barrier(mem_flags::mem_threadgroup);"),
    "barrier in a branch": (BARRIER, "if (group < 3) " + BARRIER),
    "early return": ("int phase = 0;", "if (member >= length) { return; }\nint phase = 0;"),
    "64 lanes assumed": ("constexpr int WIDTH = 32;", "constexpr int WIDTH = 64;"),
    "totals too short": ("totals[2 * TEAMS * GROUPS]", "totals[TEAMS * GROUPS]"),
    "surplus teams store": ("if (live && member == n % TEAM)", "if (member >= n % TEAM)"),
}  # fmt: skip
STAGED_FAULTS = {
    "no barrier before the tile is read": (BARRIER + "\n        for (int n = first", "for (int n = first"),
    "half of the tile is filled": ("i < STAGED * CHUNK; i += THREADS", "i < STAGED * CHUNK / 2; i += THREADS"),
    "tile of C from B": ("tile_c[i / CHUNK * TILE_ROW + i % CHUNK] = t < length ? C[source]",
                         "tile_c[i / CHUNK * TILE_ROW + i % CHUNK] = t < length ? B[source]"),
    "rows of the tile overlap": ("constexpr int TILE_ROW = CHUNK;", "constexpr int TILE_ROW = CHUNK - 1;"),
}  # fmt: skip
FAULTS = [
    pytest.param(program, old, new, id=name)
    for program, faults in ((TASK.seed, SEED_FAULTS), (WIDE, WIDE_FAULTS), (STAGED, STAGED_FAULTS))
    for name, (old, new) in faults.items()
]


def first_failure(program: Program, backend: Backend) -> Outcome | None:
    """The first gate that a program does not pass, on three twins and the properties; None if it passes all."""
    failed = backend.prepare(program, TASK, [*CASES, TASK.property_case])
    if failed is not None:
        return failed
    for number, case in enumerate(CASES):
        result = check_case(TASK, case, backend, seed=number)
        if not isinstance(result, float):
            return result
    return _first_broken_property(TASK, backend, 5)


@pytest.mark.parametrize("program", [TASK.seed, WIDE, STAGED], ids=["seed", "wide", "staged"])
def test_the_scans_are_right_before_a_fault_is_planted(program: Program, new_backend: Callable[[], Backend]) -> None:
    assert first_failure(program, new_backend()) is None


@pytest.mark.parametrize(("program", "old", "new"), FAULTS)
def test_planted_fault_is_never_scored(
    program: Program, old: str, new: str, new_backend: Callable[[], Backend]
) -> None:
    stage = program.stages[0]
    assert old in stage.body
    faulty = replace(program, stages=(replace(stage, body=stage.body.replace(old, new)),))
    outcome = first_failure(faulty, new_backend())
    assert outcome is not None
    if isinstance(outcome, CompileFailed):
        assert any(word in new for word in ("double", "const_cast")), outcome.messages
