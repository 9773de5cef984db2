"""Oracle of the Mamba-1 selective scan: inputs in several regimes, and the recurrence in numpy float64.

The definition is that of the Mamba paper (Gu and Dao, arXiv 2312.00752, section 3) with the conventions of
its selective_scan_fn: zero-order hold for A, Euler for B, softplus with a linear branch above 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Float64 = npt.NDArray[np.float64]

REGIMES = ("typical", "long-memory", "underflow", "mixed")
"""What ``make_inputs`` draws; a seed takes the regime at its remainder."""

SOFTPLUS_LINEAR_ABOVE = 20.0
"""Argument above which softplus(v) is taken to be v (as mamba_ssm's selective_scan does)."""


def make_inputs(dims: Mapping[str, int], dtype: str, seed: int) -> Arrays:
    """Inputs of one problem, rounded to their element types.

    The step sizes softplus(delta + delta_bias) lie around 1e-3 to 0.1 per channel, as in a trained model's
    initialization, and A is -(1..N) times a factor per channel. Regimes, by ``seed % 4``:

    - ``typical``;
    - ``long-memory``: steps near 1e-3, so that a state remembers some thousand steps and errors add up;
    - ``underflow``: A fifty times larger, and one step in fifty beyond softplus's linear branch, so that
      exp(dt A) underflows to 0 (u is small there: dt u keeps its size, and so does y);
    - ``mixed``: every channel draws one of the three.

    Args:
        dims: ``B``, ``D``, ``N``, ``L``.
        dtype: io element type: ``float32``, ``float16`` or ``bfloat16``.
        seed: of all draws.

    Shapes:
        u, delta, z: (B, D, L); B, C: (B, N, L); A: (D, N); D, delta_bias: (D,). The last three float32.
    """
    rng = np.random.default_rng(seed)
    batches, channels, states, length = (dims[name] for name in ("B", "D", "N", "L"))
    regime = REGIMES[seed % len(REGIMES)]
    kinds = rng.integers(0, 3, channels) if regime == "mixed" else np.full(channels, REGIMES.index(regime))
    step = np.exp(rng.uniform(np.log(1e-3), np.log(0.1), channels))
    step = np.where(kinds == 1, np.exp(rng.uniform(np.log(8e-4), np.log(2e-3), channels)), step)
    bias = np.log(np.expm1(step))
    factor = rng.uniform(0.5, 1.5, channels) * np.where(kinds == 2, 50.0, 1.0)

    def normal(*shape: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    u, delta = normal(batches, channels, length), normal(batches, channels, length)
    delta *= np.where(kinds == 1, 0.1, 0.5).astype(np.float32)[None, :, None]
    for channel in np.flatnonzero(kinds == 2):
        beyond = rng.random((batches, length), dtype=np.float32) < 0.02
        delta[:, channel][beyond] = rng.uniform(20.0, 45.0, int(beyond.sum())) - bias[channel]
        u[:, channel][beyond] *= 0.02
    io = io_type(dtype)
    return {
        "u": u.astype(io, copy=False),
        "delta": delta.astype(io, copy=False),
        "A": (-np.arange(1, states + 1)[None, :] * factor[:, None]).astype(np.float32),
        "B": normal(batches, states, length).astype(io, copy=False),
        "C": normal(batches, states, length).astype(io, copy=False),
        "D": 1.0 + 0.5 * normal(channels),
        "z": (np.float32(1.5) * normal(batches, channels, length)).astype(io, copy=False),
        "delta_bias": bias.astype(np.float32),
    }


def io_type(dtype: str) -> np.dtype[Any]:
    """The numpy type of an io element type; ``bfloat16`` is that of ml_dtypes."""
    if dtype == "bfloat16":
        import ml_dtypes

        wide: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return wide
    return np.dtype(dtype)


def reference(inputs: Mapping[str, npt.NDArray[Any]], dims: Mapping[str, int]) -> dict[str, Float64]:
    """The outputs in float64 from the same rounded inputs.

    Shapes:
        inputs: as ``make_inputs`` gives them.
        y: (B, D, L); h_last: (B, D, N), the state after the last step.
    """
    exact = {name: array.astype(np.float64) for name, array in inputs.items()}
    u, A, B, C, z = (exact[name] for name in ("u", "A", "B", "C", "z"))
    step = softplus(exact["delta"] + exact["delta_bias"][None, :, None])
    drive = step * u
    state = np.zeros((dims["B"], dims["D"], dims["N"]))
    y = exact["D"][None, :, None] * u
    rows_per_block = max(1, 2**21 // max(1, state.size))
    for start in range(0, dims["L"], rows_per_block):
        steps = slice(start, start + rows_per_block)
        decay = np.exp(np.moveaxis(step[..., steps], -1, 0)[..., None] * A[None, None])
        added = np.moveaxis(drive[..., steps], -1, 0)[..., None] * np.moveaxis(B[..., steps], -1, 0)[:, :, None]
        history = np.empty_like(decay)
        for row in range(len(decay)):
            np.multiply(state, decay[row], out=history[row])
            history[row] += added[row]
            state = history[row]
        y[..., steps] += np.einsum("tbdn,bnt->bdt", history, C[..., steps])
    return {"y": y * z / (1.0 + np.exp(-z)), "h_last": np.array(state)}


def softplus(value: Float64) -> Float64:
    """log(1 + e^v), the value itself above ``SOFTPLUS_LINEAR_ABOVE``."""
    bounded = np.minimum(value, SOFTPLUS_LINEAR_ABOVE)
    return np.where(value > SOFTPLUS_LINEAR_ABOVE, value, np.log1p(np.exp(bounded)))


def restrict(
    inputs: Arrays, dims: Mapping[str, int], outputs: Arrays, written: Mapping[str, npt.NDArray[np.bool_]]
) -> tuple[Arrays, dict[str, int], Arrays]:
    """The largest sub-problem that a partial launch computed in full: some batches times some channels.

    A channel counts when all its outputs were written. Where no channel does, everything is returned as it
    is, so that the comparison fails on the missing elements instead of passing on nothing.

    Args:
        written: per output, which elements the launch wrote.
    """
    complete = np.all(written["y"], axis=2) & np.all(written["h_last"], axis=2)
    best: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]] | None = None
    together = np.ones(complete.shape[1], dtype=bool)
    order = np.argsort(-complete.sum(axis=1), kind="stable")
    for count, batch in enumerate(order, start=1):
        together &= complete[batch]
        area = count * int(together.sum())
        if area > (best[0].size * best[1].size if best else 0):
            best = np.sort(order[:count]), np.flatnonzero(together)
    if best is None:
        return inputs, dict(dims), outputs
    batches, channels = best
    per_channel = {"A", "D", "delta_bias"}
    per_batch = {"B", "C"}

    def part(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if name in per_channel:
            return np.ascontiguousarray(array[channels])
        if name in per_batch:
            return np.ascontiguousarray(array[batches])
        return np.ascontiguousarray(array[np.ix_(batches, channels)])

    return (
        {name: part(name, array) for name, array in inputs.items()},
        {**dims, "B": batches.size, "D": channels.size},
        {name: part(name, array) for name, array in outputs.items()},
    )
