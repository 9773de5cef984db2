"""The selective scan's oracle, regimes and properties, against recurrences written out another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from search.evaluation.oracle import compare, scale_error
from search.outcome import Mismatch
from search.task import Case, load_task
from search.tasks.mamba_scan.reference import REGIMES, make_inputs, reference, restrict, softplus

TASK = load_task("mamba_scan")
DIMS = {"B": 2, "D": 3, "N": 16, "L": 70}
Arrays = dict[str, np.ndarray[Any, Any]]


def scalar_scan(inputs: Arrays, dims: dict[str, int]) -> Arrays:
    """The definition, one number at a time."""
    f = {name: array.astype(np.float64) for name, array in inputs.items()}
    y = np.zeros((dims["B"], dims["D"], dims["L"]))
    last = np.zeros((dims["B"], dims["D"], dims["N"]))
    for b in range(dims["B"]):
        for d in range(dims["D"]):
            state = np.zeros(dims["N"])
            for t in range(dims["L"]):
                raw = f["delta"][b, d, t] + f["delta_bias"][d]
                dt = raw if raw > 20 else np.log1p(np.exp(raw))
                state = np.exp(dt * f["A"][d]) * state + dt * f["B"][b, :, t] * f["u"][b, d, t]
                total = float(state @ f["C"][b, :, t]) + f["D"][d] * f["u"][b, d, t]
                gate = f["z"][b, d, t]
                y[b, d, t] = total * gate / (1 + np.exp(-gate))
            last[b, d] = state
    return {"y": y, "h_last": last}


def float32_scan(inputs: Arrays, dims: dict[str, int], fault: str = "") -> Arrays:
    """What a sound kernel computes: float32 throughout, y rounded once. ``fault`` plants an error."""
    f = {name: array.astype(np.float32) for name, array in inputs.items()}
    if fault == "looks ahead":
        f["B"] = np.roll(f["B"], -1, axis=2)
    raw = f["delta"] + f["delta_bias"][None, :, None]
    dt = np.where(raw > 20, raw, np.log1p(np.exp(np.minimum(raw, 20)))).astype(np.float32)
    if fault == "steps are never 0":
        dt = np.maximum(dt, np.float32(1e-4))
    A = np.roll(f["A"], 1, axis=0) if fault == "channel 0 has its own A" else f["A"]
    state = np.zeros((dims["B"], dims["D"], dims["N"]), np.float32)
    y = f["D"][None, :, None] * f["u"]
    for t in range(dims["L"]):
        if fault == "carry is lost" and t % 32 == 0:
            state[:] = 0
        state = np.exp(dt[..., t, None] * A) * state + (dt * f["u"])[..., t, None] * f["B"][:, None, :, t]
        if fault == "state in half":
            state = state.astype(np.float16).astype(np.float32)
        y[..., t] += np.einsum("bdn,bn->bd", state, f["C"][..., t])
    y = y * f["z"] / (1 + np.exp(-f["z"]))
    if fault == "adds a constant":
        y = y + np.float32(1e-3)
    if fault == "channel 0 differs":
        y[:, 0] *= np.float32(1 + 1e-6)
    return {"y": y.astype(inputs["u"].dtype), "h_last": state.astype(np.float32)}


def planted(fault: str) -> Callable[[Arrays, dict[str, int]], Arrays]:
    return lambda inputs, dims: float32_scan(inputs, dims, fault)


@pytest.mark.parametrize("seed", range(len(REGIMES)))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reference_is_the_definition(seed: int, dtype: str) -> None:
    inputs = make_inputs(DIMS, dtype, seed)
    expected = scalar_scan(inputs, DIMS)
    for name, array in reference(inputs, DIMS).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-11, atol=1e-13)


def test_reference_is_the_same_in_one_block_and_in_many() -> None:
    dims = {"B": 4, "D": 400, "N": 16, "L": 90}  # 82 steps fit a block
    inputs = make_inputs(dims, "float32", 1)
    whole = reference(inputs, dims)
    some = {n: a[:, 7:9] if n in ("u", "delta", "z") else a[7:9] if a.ndim < 3 else a for n, a in inputs.items()}
    part = reference(some, {**dims, "D": 2})
    np.testing.assert_allclose(whole["y"][:, 7:9], part["y"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(whole["h_last"][:, 7:9], part["h_last"], rtol=1e-12, atol=1e-14)


def test_softplus_is_continuous_at_its_branch_and_does_not_overflow() -> None:
    at = softplus(np.array([20.0, np.nextafter(20.0, 21.0), 1000.0, -1000.0]))
    assert abs(at[1] - at[0]) < 1e-8
    assert at[2] == 1000.0
    assert at[3] == 0.0


def test_regimes_reach_what_they_promise() -> None:
    dims = {"B": 1, "D": 16, "N": 16, "L": 400}
    steps = {}
    for seed, regime in enumerate(REGIMES):
        inputs = make_inputs(dims, "float32", seed)
        raw = inputs["delta"].astype(np.float64) + inputs["delta_bias"][None, :, None]
        steps[regime] = (softplus(raw), inputs["A"], raw)
    typical, _, _ = steps["typical"]
    assert np.mean((typical > 5e-4) & (typical < 0.5)) > 0.95
    slow, A, _ = steps["long-memory"]
    remembered = -1 / np.expm1(slow.mean(axis=(0, 2)) * A[:, 0].astype(np.float64))
    assert remembered.max() > 800, "steps that the slowest state remembers"
    fast, A, raw = steps["underflow"]
    assert (raw > 20).any(), "the linear branch is taken"
    with np.errstate(under="ignore"):
        assert (np.exp((fast[0, :, :, None] * A[:, None]).astype(np.float32)) == 0).any(), "exp(dt A) underflows"


def test_inputs_depend_on_seed_and_have_the_declared_types() -> None:
    case = TASK.twins[-1]
    inputs = TASK.make_inputs(case, 5)
    for spec in TASK.inputs:
        assert inputs[spec.name].shape == spec.shape_for(case.dims)
        assert inputs[spec.name].dtype.name == spec.dtype_for(case.dtype)
    again, other = TASK.make_inputs(case, 5), TASK.make_inputs(case, 9)
    assert all(np.array_equal(inputs[name], again[name]) for name in inputs)
    assert not np.array_equal(inputs["u"], other["u"])


@pytest.mark.parametrize("case", TASK.twins, ids=lambda case: case.label)
def test_sound_float32_recurrence_is_within_tolerance_on_every_twin(case: Case) -> None:
    for seed in range(len(REGIMES)):
        inputs = TASK.make_inputs(case, seed)
        error = compare(TASK, case, float32_scan(inputs, dict(case.dims)), TASK.reference(inputs, case))
        assert isinstance(error, float), error


@pytest.mark.parametrize("fault", ["carry is lost", "looks ahead", "steps are never 0", "channel 0 has its own A"])
def test_faulty_recurrences_are_out_of_tolerance(fault: str) -> None:
    case = next(case for case in TASK.twins if case.label == "batched-ragged")
    inputs = TASK.make_inputs(case, 0 if fault != "steps are never 0" else 1)
    if fault == "steps are never 0":
        inputs["delta"][..., ::2] = -200
    outcome = compare(TASK, case, float32_scan(inputs, dict(case.dims), fault), TASK.reference(inputs, case))
    assert isinstance(outcome, Mismatch)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_state_kept_in_half_precision_is_caught_through_the_final_state(dtype: str) -> None:
    dims = {"B": 1, "D": 8, "N": 16, "L": 1000}
    inputs = make_inputs(dims, dtype, 1)
    exact = reference(inputs, dims)["h_last"]
    sound = scale_error(float32_scan(inputs, dims)["h_last"], exact)[0]
    faulty = scale_error(float32_scan(inputs, dims, "state in half")["h_last"], exact)[0]
    assert sound < 1e-3 < faulty


def test_cheating_outputs_fail_every_twin() -> None:
    for case in TASK.twins:
        inputs = TASK.make_inputs(case, 0)
        exact = TASK.reference(inputs, case)
        zeros = {name: np.zeros_like(array) for name, array in exact.items()}
        copied = {"y": inputs["u"], "h_last": exact["h_last"]}
        unfinished = {"y": exact["y"], "h_last": np.zeros_like(exact["h_last"])}
        for cheat in (zeros, copied, unfinished):
            assert isinstance(compare(TASK, case, cheat, exact), Mismatch), case.label


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", TASK.property_ids)
def test_sound_recurrence_keeps_every_property(name: str, dtype: str) -> None:
    for seed in (0, 7):
        result = TASK.properties()[name](planted(""), DIMS, dtype, seed)
        assert result.held, result.detail
        assert result.id == name


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("causality", "looks ahead"),
        ("linearity-power-of-two", "adds a constant"),
        ("split-carry", "carry is lost"),
        ("zero-delta", "steps are never 0"),
        ("channel-permutation", "channel 0 differs"),
    ],
)
def test_each_property_fails_on_the_fault_it_is_for(name: str, fault: str) -> None:
    result = TASK.properties()[name](planted(fault), DIMS, "float32", 3)
    assert not result.held
    assert result.detail


def test_restrict_takes_the_channels_that_a_partial_launch_wrote() -> None:
    inputs = make_inputs(DIMS, "float32", 0)
    exact = reference(inputs, DIMS)
    written = {name: np.zeros(array.shape, bool) for name, array in exact.items()}
    for array in written.values():
        array[:, 1:] = True
        array[0, 0] = True
    written["y"][0, 0, 5] = False
    some, dims, outputs = restrict(inputs, DIMS, dict(exact), written)
    assert dims == {**DIMS, "D": 2}
    for name, array in reference(some, dims).items():
        np.testing.assert_array_equal(array, outputs[name])


def test_restrict_of_nothing_written_leaves_all_so_that_the_comparison_fails() -> None:
    inputs = make_inputs(DIMS, "float32", 0)
    outputs = {name: np.full(array.shape, np.nan) for name, array in reference(inputs, DIMS).items()}
    some, dims, left = restrict(inputs, DIMS, outputs, {name: ~np.isnan(array) for name, array in outputs.items()})
    case = Case("all", dims, "float32")
    assert dims == DIMS
    assert isinstance(compare(TASK, case, left, reference(some, dims)), Mismatch)


def test_floors_count_every_compulsory_byte() -> None:
    case = TASK.workloads[0]
    inputs = TASK.make_inputs(case, 0)
    outputs = [np.prod(spec.shape_for(case.dims)) * 4 for spec in TASK.outputs]
    assert TASK.floor_bytes(case) == sum(array.nbytes for array in inputs.values()) + sum(outputs)
