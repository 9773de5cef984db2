from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kx.errors import DataMalformed, UnknownName
from search.evaluation.oracle import scale_error
from search.expressions import evaluate
from search.outcome import (
    CompileFailed,
    Mismatch,
    PropertyBroken,
    Rejected,
    RuntimeFailed,
    TimedOut,
    describe,
    outcome_from_json,
    outcome_to_json,
    score_against,
)
from search.program import program_from_json
from search.task import load_task, task_names
from tests.unit.search.doubles import SwitchAuthor, scored


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_expressions_compute_launch_sizes(length: int, width: int) -> None:
    dims = {"L": length, "W": width}
    assert evaluate("ceildiv(L, W) * W", dims) == -(-length // width) * width
    assert evaluate("min(L, W) + max(L, W) - L % W", dims) == length + width - length % width


@pytest.mark.parametrize(
    "text", ["__import__('os')", "L ** 2", "L if W else 1", "L.real", "Q", "L //", "L // 0", "1.5", "True"]
)
def test_expressions_are_data_not_python(text: str) -> None:
    with pytest.raises(DataMalformed):
        evaluate(text, {"L": 4, "W": 2})


def test_digest_is_what_runs_not_who_wrote_it() -> None:
    seed = load_task("mamba_scan").seed
    author = SwitchAuthor({"a": "exp2-trick"})
    changed = author.write(seed, author.edits(seed)[0])
    assert changed.digest != seed.digest
    renamed = program_from_json({**seed.to_json(), "author": "person", "concepts": ["x"]})
    assert renamed.digest == seed.digest
    assert program_from_json(json.loads(json.dumps(changed.to_json()))) == program_from_json(changed.to_json())


def test_edited_program_file_is_refused() -> None:
    data = json.loads(json.dumps(load_task("mamba_scan").seed.to_json()))
    data["stages"][0]["body"] += "// changed"
    with pytest.raises(DataMalformed, match="has the content of"):
        program_from_json(data)


@pytest.mark.parametrize(
    "outcome",
    [
        Rejected("urn:kx:constraint:x", "too big"),
        CompileFailed("bfloat16", ("line 3: no",)),
        RuntimeFailed("twin", ("race",)),
        TimedOut(2.0),
        Mismatch("twin", "y", 0.5, 1e-3, 0.1, (1, 2)),
        PropertyBroken("causality", "differs at 3"),
        scored(3.0),
    ],
)
def test_outcomes_survive_the_log(outcome: object) -> None:
    logged = json.loads(json.dumps(outcome_to_json(outcome)))  # type: ignore[arg-type]
    assert outcome_from_json(logged) == outcome
    assert describe(outcome_from_json(logged))


def test_score_is_the_geometric_mean_of_speedups() -> None:
    assert score_against(scored(5.0), scored(20.0)) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="compared"):
        score_against(scored(5.0), type(scored(5.0))("measured", scored(5.0).workloads, (), (), 0.0))


def test_zeros_copies_and_nan_are_far_from_the_reference() -> None:
    reference = np.random.default_rng(0).normal(size=(3, 50)) * 1e-6
    assert scale_error(reference.astype(np.float32), reference)[0] < 1e-6
    assert scale_error(np.zeros((3, 50), np.float32), reference)[0] > 0.5
    unwritten = reference.astype(np.float32)
    unwritten[1, 7] = np.nan
    error, _, where = scale_error(unwritten, reference)
    assert error == float("inf")
    assert where == (1, 7)
    assert scale_error(np.zeros((2, 2)), reference)[0] == float("inf")


def test_unknown_kernel_names_what_exists() -> None:
    assert "mamba_scan" in task_names()
    with pytest.raises(UnknownName, match="did you mean mamba_scan"):
        load_task("mamba_scna")
