"""What the sketches for small batches, moments and losses must compute; the rest stands in sketch_trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.unit.kgraph.sketch_trials import Trial

Array = npt.NDArray[Any]
_DRAW = np.random.default_rng(11)
_LANE = "ushort lane = thread_index_in_simdgroup; ushort group = simdgroup_index_in_threadgroup; "
_TID = "uint i = thread_position_in_threadgroup.x; "


def _floats(*shape: int, dtype: str = "float32") -> Array:
    return _DRAW.uniform(0.1, 1.0, shape).astype(dtype)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _causal_attention(q: Array, k: Array, v: Array, first_position: int) -> Array:
    """Outputs [Q, D] of queries that each see one key more than the one before; weights in base 2."""
    scores = _wide(q) @ _wide(k).T
    hidden = np.arange(len(k))[None, :] > first_position + np.arange(len(q))[:, None]
    weights = np.exp2(scores - scores.max(axis=1, keepdims=True)) * ~hidden
    return weights @ _wide(v) / weights.sum(axis=1, keepdims=True)


def _dequantized(packed: Array, scale_and_bias: Array) -> Array:
    nibbles = (packed[:, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    group = np.repeat(_wide(scale_and_bias), 32, axis=0)
    return nibbles.ravel() * group[:, 0] + group[:, 1]


def _log_sum_exp(logits: Array) -> Array:
    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


_K = 608
"""Weights of a row: a lane takes two or three words of eight, and the last round of words is not full."""

_PACKED = _DRAW.integers(0, 2**32, _K // 8, dtype=np.uint32)
_GROUPS = _floats(-(-_K // 32), 2, dtype="float16")
_VECTORS = _floats(3, _K)
_Q, _KEYS, _VALUES = _floats(3, 64), _floats(7, 64, dtype="float16"), _floats(7, 64, dtype="float16")
_FAR = (1000.0 + _DRAW.uniform(0.0, 1.0, 200)).astype(np.float32)
_HIDDEN, _WEIGHT = _floats(2, 64, dtype="float16"), 4 * _floats(45, 64, dtype="float16") - 2
_LABELS = np.array([44, 3], dtype=np.uint32)
_LOGITS = _wide(_HIDDEN) @ _wide(_WEIGHT).T
_LSE = _log_sum_exp(_LOGITS)

SMALL_BATCHES = {
    "few-queries-share-keys": Trial(
        _LANE + "Queries<3, 2> r; float mine[6]; for (ushort a = 0; a < 3; ++a) { r.m[a] = -1e30f; r.l[a] = 0.0f;"
        " for (ushort j = 0; j < 2; ++j) { r.o[a][j] = 0.0f; mine[2 * a + j] = q[64 * a + 2 * lane + j]; } }"
        " for (uint key = 0; key < 7; ++key) take_key_for_all<3, 2>(r, mine, k + 64 * key, v + 64 * key, key, 4, lane);"
        " for (ushort a = 0; a < 3; ++a) for (ushort j = 0; j < 2; ++j)"
        " out[64 * a + 2 * lane + j] = r.o[a][j] / r.l[a];",
        {"q": _Q, "k": _KEYS, "v": _VALUES},
        {"out": _causal_attention(_Q, _KEYS, _VALUES, 4)},
        tolerance=1e-5,
    ),
    "few-vectors-share-weights": Trial(
        _LANE + f"float sum[3]; dot_of_vectors<3>(sum, w, (const device half2*)sb, x, {_K}, lane);"
        " if (lane == 0) for (ushort b = 0; b < 3; ++b) out[b] = sum[b];",
        {"w": _PACKED, "sb": _GROUPS, "x": _VECTORS},
        {"out": _wide(_VECTORS) @ _dequantized(_PACKED, _GROUPS)[:_K]},
    ),
}

MOMENTS_AND_LOSSES = {
    "layer-norm-two-pass": Trial(
        _LANE + _TID + "threadgroup float slot[64]; float4 v = float4(0.0f);"
        " for (ushort j = 0; j < 4; ++j) if (4 * i + j < 200) v[j] = x[4 * i + j];"
        " v = layer_normalized(v, i, 200, 1e-5f, slot, lane, group, 3);"
        " for (ushort j = 0; j < 4; ++j) if (4 * i + j < 200) out[4 * i + j] = v[j];",
        {"x": _FAR},
        {"out": (_wide(_FAR) - _wide(_FAR).mean()) / np.sqrt(_wide(_FAR).var() + 1e-5)},
        threads=96,
        tolerance=1e-3,
    ),
    "moments-by-shuffles": Trial(
        _LANE + "float3 whole = row_moments(x, 200, lane), few = row_moments(x, 5, lane);"
        " if (lane == 7) { mean[0] = whole.y; mean[1] = few.y; squares[0] = whole.z; squares[1] = few.z;"
        " count[0] = whole.x; count[1] = few.x; }",
        {"x": _FAR},
        {
            "mean": np.array([_wide(_FAR).mean(), _wide(_FAR[:5]).mean()]),
            "squares": np.array([_wide(_FAR).var() * 200, _wide(_FAR[:5]).var() * 5]),
            "count": np.array([200.0, 5.0]),
        },
        tolerance=1e-3,
    ),
    "fused-cross-entropy": Trial(
        _LANE + "float part[2], sums[2]; token_losses<2, 2>(part, sums, hidden, w, label, 45, lane);"
        " if (lane == 0) for (ushort t = 0; t < 2; ++t) { loss[t] = part[t]; lse[t] = sums[t]; }"
        " for (uint row = lane; row < 45; row += 32) gradient[row] = logit_gradient(logits[row], sums[0], row == 44);",
        {"hidden": _HIDDEN, "w": _WEIGHT, "label": _LABELS, "logits": _LOGITS[0].astype(np.float32)},
        {
            "loss": _LSE - _LOGITS[[0, 1], _LABELS],
            "lse": _LSE,
            "gradient": np.exp(_LOGITS[0] - _LSE[0]) - (np.arange(45) == 44),
        },
        tolerance=1e-5,
    ),
}
