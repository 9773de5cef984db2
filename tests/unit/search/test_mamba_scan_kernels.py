"""The building blocks on metalsim with every check on: right for ragged lengths and all element types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search.authors.block_author import BlockAuthor
from search.backends import Chip
from search.backends.metalsim import Machine
from search.evaluation.oracle import compare
from search.program import Program
from search.task import Case, load_task

TASK = load_task("mamba_scan")
AUTHOR = BlockAuthor(TASK)
CHIP = Chip(
    "any",
    {},
    {"threads-per-threadgroup": 1024, "threadgroup-memory-bytes": 32768, "simd-width": 32, "buffer-arguments": 31},
)
SCAN = {"mapping": "sequence-lanes"}
LANES = {"mapping": "state-lanes", "lanes": 16}
STAGED = {"staging": "threadgroup"}
KERNELS: dict[str, dict[str, Any]] = {
    "seed": {},
    "seed-staged": {**STAGED, "exponential": "exp2", "math": "fast", "unroll": "all"},
    "items": {"items": 4, "access": "vector", "boundary": "specialize"},
    "lanes": {**LANES, "items": 2, "math": "fast"},
    "transpose": {**LANES, **STAGED, "reduction": "transpose", "padding": "pad", "tile": 64, "threads": 128},
    "transpose-vector": {**LANES, "lanes": 8, "reduction": "transpose", "access": "vector", "boundary": "specialize"},
    "scan": SCAN,
    "scan-narrow": {**SCAN, "width": 8, "items": 8, "access": "vector", "prefetch": "next-chunk", "unroll": "all"},
    "scan-staged": {**SCAN, **STAGED, "items": 4, "padding": "pad", "carry": "lanes", "unroll": "items"},
    "block-scan": {**SCAN, "simdgroups": 4, "threads": 256, "items": 2, "exponential": "exp2", "carry": "lanes"},
    "block-scan-staged": {**SCAN, **STAGED, "simdgroups": 2, "items": 4, "access": "vector", "prefetch": "next-chunk"},
}
CASES = [
    Case("f32-1", {"B": 1, "D": 3, "N": 16, "L": 1}, "float32"),
    Case("f16-33", {"B": 2, "D": 3, "N": 16, "L": 33}, "float16"),
    Case("bf16-512", {"B": 1, "D": 2, "N": 16, "L": 512}, "bfloat16"),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def findings_or_error(program: Program, case: Case, cache: Path) -> tuple[str, ...] | object:
    machine = Machine(CHIP, cache, None)
    failed = machine.prepare(program, TASK, [case])
    assert failed is None, failed
    inputs = TASK.make_inputs(case, 1)
    checked = machine.check(case, inputs, 1)
    return checked.findings or compare(TASK, case, checked.outputs, TASK.reference(inputs, case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("name", KERNELS)
def test_composed_kernel_is_right_and_free_of_findings(name: str, case: Case, cache: Path) -> None:
    program = AUTHOR.compose(KERNELS[name])
    assert isinstance(program, Program), program
    assert isinstance(findings_or_error(program, case, cache), float)


@pytest.mark.parametrize(
    ("name", "sound", "faulty"),
    [
        ("scan", "carry[n] = leaving;", "carry[n] = 0.0f;"),
        ("scan", "product * value_below + value", "product * value + value_below"),
        ("scan", "at + k < length ? (raw", "true ? (raw"),
        ("block-scan", "threadgroup_barrier(mem_flags::mem_threadgroup);", ""),
        ("block-scan", "phase ^= 1;", ""),
        ("seed-staged", "threadgroup_barrier(mem_flags::mem_threadgroup);", ""),
        ("transpose", "simdgroup_barrier(mem_flags::mem_threadgroup);", ""),
        ("items", "if (live) {", "if (true) {"),
    ],
    ids=["lost carry", "operator swapped", "padding counts", "no barrier", "one set of totals", "no tile barrier",
         "no SIMD-group barrier", "surplus threads store"],
)  # fmt: skip
def test_planted_faults_do_not_pass(name: str, sound: str, faulty: str, cache: Path) -> None:
    program = AUTHOR.compose(KERNELS[name])
    assert isinstance(program, Program)
    stage = program.stages[0]
    assert sound in stage.body
    broken = replace(program, stages=(replace(stage, body=stage.body.replace(sound, faulty)),))
    case = Case("fault", {"B": 1, "D": 3, "N": 16, "L": 300}, "float32")
    assert not isinstance(findings_or_error(broken, case, cache), float)
