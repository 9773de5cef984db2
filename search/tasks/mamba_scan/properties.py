"""Executable properties of a selective scan: what must hold whatever the numbers are.

Each takes (run, dims, io dtype, seed) and says whether it held. ``run(inputs, dims)`` runs the candidate.
Those marked exact compare bit by bit, the others against the float64 oracle.
They follow from the recurrence; the graph states each as an assertion (kgraph/knowledge/assertions*.ttl).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from search.task import Arrays, PropertyResult, Runner
from search.tasks.mamba_scan.reference import make_inputs, reference

TYPICAL = 0
"""Remainder of the seeds whose inputs neither overflow nor underflow under small power-of-two factors."""

PREFIX_TOLERANCE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}
"""Largest error of a prefix over the root mean square of the oracle's: looser than the task's own
tolerance, since what these properties look for (a lost carry, padding that counts) is off by order 1."""


def causality(run: Runner, dims: Mapping[str, int], dtype: str, seed: int) -> PropertyResult:
    """Exact: changing u, delta, B, C and z after step t leaves y up to t as it was, to the bit."""
    inputs = _typical(dims, dtype, seed)
    other = _typical(dims, dtype, seed + len(inputs) * 4)
    length = dims["L"]
    before = run(inputs, dims)["y"]
    for t in _split_points(length, seed):
        changed = dict(inputs)
        for name in ("u", "delta", "B", "C", "z"):
            changed[name] = inputs[name].copy()
            changed[name][..., t:] = other[name][..., t:]
        after = run(changed, dims)["y"]
        broken = _first_difference(before[..., :t], after[..., :t])
        if broken is not None:
            return PropertyResult(
                "causality", False, f"inputs changed from step {t} on, yet y{broken} before it changed"
            )
    return PropertyResult("causality", True, f"y before the changed steps is bit-identical (L = {length})")


def linearity_power_of_two(run: Runner, dims: Mapping[str, int], dtype: str, seed: int) -> PropertyResult:
    """Exact: u times 2^k gives y and h_last times 2^k, since every term is linear in u and z is fixed."""
    inputs = _typical(dims, dtype, seed)
    once = run(inputs, dims)
    for factor in (2.0, 0.25):
        scaled = {**inputs, "u": (inputs["u"].astype(np.float32) * factor).astype(inputs["u"].dtype)}
        outputs = run(scaled, dims)
        for name in ("y", "h_last"):
            expected = once[name].astype(np.float32) * np.float32(factor)
            got = outputs[name].astype(np.float32)
            if dtype == "float16":
                # Half subnormals lose bits on the way down; compare where both are normal.
                normal = (np.abs(expected) > 1e-3) & (np.abs(expected) < 6e4)
                expected, got = np.where(normal, expected, 0.0), np.where(normal, got, 0.0)
            broken = _first_difference(expected, got)
            if broken is not None:
                return PropertyResult(
                    "linearity-power-of-two", False, f"u times {factor:g}: {name}{broken} is not scaled exactly"
                )
    return PropertyResult("linearity-power-of-two", True, "y and h_last scale exactly with u times 2 and 1/4")


def split_carry(run: Runner, dims: Mapping[str, int], dtype: str, seed: int) -> PropertyResult:
    """The run on each prefix ends in the state, and gives the outputs, of the oracle there."""
    inputs = _typical(dims, dtype, seed)
    allowed = PREFIX_TOLERANCE[dtype]
    for t in _split_points(dims["L"], seed):
        part = {name: _prefix(name, array, t) for name, array in inputs.items()}
        shorter = {**dims, "L": t}
        outputs, expected = run(part, shorter), reference(part, shorter)
        for name, exact in expected.items():
            scale = float(np.sqrt(np.mean(np.square(exact)))) or 1.0
            error = float(np.max(np.abs(outputs[name].astype(np.float64) - exact))) / scale
            if not error <= allowed:
                return PropertyResult(
                    "split-carry", False, f"{name} after the first {t} steps is off by {error:.3g} of its scale"
                )
    return PropertyResult("split-carry", True, "prefixes end in the oracle's states")


def zero_delta(run: Runner, dims: Mapping[str, int], dtype: str, seed: int) -> PropertyResult:
    """Exact: steps of size 0 add nothing: the state stays 0 and y is D u silu(z) alone.

    delta = -200 makes softplus exactly 0 in float32. y must not depend on B and C at all.
    """
    inputs = _typical(dims, dtype, seed)
    frozen = {
        **inputs,
        "delta": np.full_like(inputs["delta"], -200.0),
        "delta_bias": np.zeros_like(inputs["delta_bias"]),
    }
    outputs = run(frozen, dims)
    if np.any(outputs["h_last"] != 0.0):
        where = tuple(int(i) for i in np.argwhere(outputs["h_last"] != 0.0)[0])
        return PropertyResult("zero-delta", False, f"no step was taken, yet h_last{list(where)} is not 0")
    other = _typical(dims, dtype, seed + 4)
    again = run({**frozen, "B": other["B"], "C": other["C"]}, dims)
    broken = _first_difference(outputs["y"], again["y"])
    if broken is not None:
        return PropertyResult("zero-delta", False, f"no step was taken, yet y{broken} depends on B or C")
    return PropertyResult("zero-delta", True, "steps of size 0 leave the state at 0")


def channel_permutation(run: Runner, dims: Mapping[str, int], dtype: str, seed: int) -> PropertyResult:
    """Exact: channels are independent, so permuting them permutes the outputs."""
    inputs = _typical(dims, dtype, seed)
    order = np.random.default_rng(seed).permutation(dims["D"])
    if dims["D"] > 1 and np.array_equal(order, np.arange(dims["D"])):
        order = np.roll(order, 1)
    permuted = dict(inputs)
    for name in ("A", "D", "delta_bias"):
        permuted[name] = np.ascontiguousarray(inputs[name][order])
    for name in ("u", "delta", "z"):
        permuted[name] = np.ascontiguousarray(inputs[name][:, order])
    straight, mixed = run(inputs, dims), run(permuted, dims)
    for name in ("y", "h_last"):
        broken = _first_difference(straight[name][:, order], mixed[name])
        if broken is not None:
            return PropertyResult("channel-permutation", False, f"{name}{broken} depends on the channel's place")
    return PropertyResult("channel-permutation", True, "permuted channels give permuted outputs, to the bit")


PROPERTIES: dict[str, Callable[[Runner, Mapping[str, int], str, int], PropertyResult]] = {
    "causality": causality,
    "linearity-power-of-two": linearity_power_of_two,
    "split-carry": split_carry,
    "zero-delta": zero_delta,
    "channel-permutation": channel_permutation,
}


def _typical(dims: Mapping[str, int], dtype: str, seed: int) -> Arrays:
    return make_inputs(dims, dtype, seed - seed % 4 + TYPICAL)


def _split_points(length: int, seed: int) -> list[int]:
    """One step, one on either side of a SIMD-group's width, and one drawn; all inside the sequence."""
    drawn = int(np.random.default_rng(seed).integers(1, max(2, length)))
    return sorted({t for t in (1, 31, 33, drawn) if t < length})


def _prefix(name: str, array: npt.NDArray[Any], t: int) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array[..., :t]) if array.ndim == 3 else array


def _first_difference(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> list[int] | None:
    """Index of the first element whose bits differ (0 and -0 are equal, NaN differs from all), or None."""
    different = np.argwhere(~(one.astype(np.float32) == two.astype(np.float32)))
    return [int(index) for index in different[0]] if len(different) else None
