"""scaled_dot_product_attention: steel (full) and vector kernels, as scaled_dot_product_attention.cpp launches them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, draw, exact, strides, threads
from metalsim import Fresh

STEEL_FILE = "steel/attn/kernels/steel_attention.metal"
VECTOR_FILE = "scaled_dot_product_attention.metal"

_PARAMS = np.dtype([
    *((name, np.int32) for name in ("B", "H", "D", "qL", "kL", "gqa_factor")),
    ("scale", np.float32),
    *((name, np.int32) for name in ("NQ", "NK", "NQ_aligned", "NK_aligned", "qL_rem", "kL_rem", "qL_off")),
    *((name, np.int64, 3) for name in ("Q_strides", "K_strides", "V_strides", "O_strides")),
], align=True)  # fmt: skip

_VECTOR_NAMES = {"float32": "float", "float16": "float16_t", "bfloat16": "bfloat16_t"}
_ALL_FLAGS = (20, 21, 22, 23, 24, 25)


@dataclass(frozen=True)
class Problem:
    """Sizes of an attention.

    Attributes:
        L: queries.
        S: keys.
        H: query heads.
        D: head dimension.
        B: batch.
        KV: key heads.
        mask: ``""``, ``causal``, ``bool`` or ``float``.
        sinks: one extra logit per head.
    """

    L: int
    S: int
    H: int
    D: int
    B: int = 1
    KV: int = 1
    mask: str = ""
    sinks: bool = False

    def __str__(self) -> str:
        extra = f" {self.mask}" if self.mask else ""
        return f"B={self.B} H={self.H}/{self.KV} L={self.L}/{self.S} D={self.D}{extra}{' sinks' if self.sinks else ''}"


@dataclass(frozen=True)
class _Arrays:
    q: Array
    k: Array
    v: Array
    mask: Array | None
    sinks: Array | None
    scale: float

    @classmethod
    def of(cls, p: Problem, dtype: str) -> _Arrays:
        q = draw(1, (p.B, p.H, p.L, p.D), dtype)
        k, v = draw(2, (p.B, p.KV, p.S, p.D), dtype), draw(3, (p.B, p.KV, p.S, p.D), dtype)
        mask = None
        if p.mask in ("bool", "float"):
            mask = draw(4, (p.B, p.H, p.L, p.S), "bool" if p.mask == "bool" else dtype)
            if p.mask == "bool":
                mask[..., 0] = True  # a row without any key has no defined result
        sinks = draw(5, (p.H,), dtype) if p.sinks else None
        return cls(q, k, v, mask, sinks, 1 / math.sqrt(p.D))

    def logits(self, p: Problem) -> Array:
        """Scaled and masked, float64 ``[B, H, L, S]``."""
        k = np.repeat(exact(self.k), p.H // p.KV, axis=1)
        logits = np.asarray(exact(self.q) @ k.swapaxes(-1, -2) * self.scale)
        if p.mask == "causal":
            logits = np.where(np.tri(p.L, p.S, p.S - p.L, dtype=bool), logits, -np.inf)
        elif self.mask is not None:
            logits = np.where(self.mask, logits, -np.inf) if p.mask == "bool" else logits + exact(self.mask)
        return logits

    def result(self, p: Problem) -> Array:
        """Attention in float64, ``[B, H, L, D]``."""
        logits = self.logits(p)
        highest = logits.max(-1, keepdims=True)
        sink = None if self.sinks is None else exact(self.sinks)[None, :, None, None]
        if sink is not None:
            highest = np.maximum(highest, sink)
        weights = np.exp(logits - highest)
        total = weights.sum(-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink - highest)
        return np.asarray(weights / total @ np.repeat(exact(self.v), p.H // p.KV, axis=1))


def steel(p: Problem, dtype: str) -> KernelLaunch:
    """Full attention: ``sdpa_full_self_attention_metal``; the output's memory order is B, L, H, D."""
    bq, bk, wm, wn = 32, 32 if p.D < 128 else 16, 4, 1
    arrays = _Arrays.of(p, dtype)
    params = np.zeros((), _PARAMS)
    blocks_q, blocks_k = -(-p.L // bq), -(-p.S // bk)
    values = {
        "B": p.B, "H": p.H, "D": p.D, "qL": p.L, "kL": p.S, "gqa_factor": p.H // p.KV, "scale": arrays.scale,
        "NQ": blocks_q, "NK": blocks_k, "NQ_aligned": p.L // bq, "NK_aligned": p.S // bk,
        "qL_rem": p.L % bq, "kL_rem": p.S % bk, "qL_off": p.S - p.L,
        "Q_strides": strides(arrays.q.shape)[:3], "K_strides": strides(arrays.k.shape)[:3],
        "V_strides": strides(arrays.v.shape)[:3], "O_strides": (p.L * p.H * p.D, p.D, p.H * p.D),
    }  # fmt: skip
    for name, value in values.items():
        params[name] = value
    buffers: dict[int, Array | Fresh] = {
        0: arrays.q, 1: arrays.k, 2: arrays.v, 3: Fresh(dtype, (p.B, p.L, p.H, p.D)), 4: params,  # type: ignore[arg-type]
    }  # fmt: skip
    if arrays.mask is not None:
        buffers[5], buffers[6] = np.array(strides(arrays.mask.shape)[:3], np.int64), arrays.mask
    if arrays.sinks is not None:
        buffers[7] = arrays.sinks
    mask_type = "bool_" if p.mask == "bool" else dtype
    group = (32, wm, wn)
    constants: dict[int | str, int | bool | float] = {
        200: p.L % bq == 0, 201: p.S % bk == 0, 300: arrays.mask is not None, 301: p.mask == "causal", 302: p.sinks,
    }  # fmt: skip
    return KernelLaunch(
        family="attention", file=STEEL_FILE,
        entry=f"steel_attention_{dtype}_bq{bq}_bk{bk}_bd{p.D}_wm{wm}_wn{wn}_mask{mask_type}",
        dtype=dtype, shape=str(p), buffers=buffers, grid=threads((blocks_q, p.H, p.B), group), threadgroup=group,
        expected={"O": arrays.result(p).transpose(0, 2, 1, 3)}, constants=constants, roundings=16,
    )  # fmt: skip


def _vector_constants(p: Problem) -> dict[int | str, int | bool | float]:
    flags = (p.mask in ("bool", "float"), False, p.mask == "causal", p.mask == "bool", p.mask == "float", p.sinks)
    return dict(zip(_ALL_FLAGS, flags, strict=True))


def _vector_inputs(p: Problem, arrays: _Arrays, first_mask: int) -> dict[int, Array | Fresh]:
    """Mask and sinks; the indices of the one-pass kernel are 2 below those of the two-pass one."""
    buffers: dict[int, Array | Fresh] = {}
    if arrays.mask is not None:
        head, query, key = (strides(arrays.mask.shape)[axis] for axis in (1, 2, 3))
        buffers[first_mask + (p.mask == "float")] = arrays.mask
        buffers |= {first_mask + 2 + i: np.int32(value) for i, value in enumerate((key, query, head))}  # type: ignore[misc]
    if arrays.sinks is not None:
        buffers[first_mask + 5] = arrays.sinks
    return buffers


def vector(p: Problem, dtype: str) -> KernelLaunch:
    """Few queries: ``sdpa_vector``."""
    arrays = _Arrays.of(p, dtype)
    head, row = strides(arrays.k.shape)[1:3]
    buffers: dict[int, Array | Fresh] = {
        0: arrays.q, 1: arrays.k, 2: arrays.v, 3: Fresh(dtype, arrays.q.shape),  # type: ignore[arg-type]
        4: np.array(p.H // p.KV, np.int32), 5: np.array(p.S, np.int32),
        6: np.array(head, np.uint64), 7: np.array(row, np.uint64),
        8: np.array(head, np.uint64), 9: np.array(row, np.uint64), 10: np.array(arrays.scale, np.float32),
    }  # fmt: skip
    buffers |= _vector_inputs(p, arrays, 11)
    if p.sinks:
        buffers[17] = np.array(p.H, np.int32)
    group = (1024, 1, 1)
    return KernelLaunch(
        family="sdpa_vector", file=VECTOR_FILE, entry=f"sdpa_vector_{_VECTOR_NAMES[dtype]}_{p.D}_{p.D}", dtype=dtype,
        shape=str(p), buffers=buffers, grid=threads((p.B * p.H, p.L, 1), group), threadgroup=group,
        expected={"out": arrays.result(p)}, constants=_vector_constants(p), roundings=4,
    )  # fmt: skip


def _partials(p: Problem, arrays: _Arrays, blocks: int) -> tuple[Array, Array, Array]:
    """Unnormalized output, sum and maximum of every ``blocks``-th key, ``[B, H, L, blocks(, D)]``."""
    logits, v = arrays.logits(p), np.repeat(exact(arrays.v), p.H // p.KV, axis=1)
    shape = (p.B, p.H, p.L, blocks)
    out, sums, maxima = np.zeros((*shape, p.D)), np.zeros(shape), np.zeros(shape)
    for block in range(blocks):
        part = logits[..., block::blocks]
        top = part.max(-1, initial=float(np.finfo(np.float32).min))
        if block == 0 and arrays.sinks is not None:
            top = np.maximum(top, exact(arrays.sinks)[None, :, None])
        weights = np.exp(part - top[..., None])
        sums[..., block], maxima[..., block] = weights.sum(-1), top
        if block == 0 and arrays.sinks is not None:
            sums[..., block] += np.exp(exact(arrays.sinks)[None, :, None] - top)
        out[..., block, :] = weights @ v[:, :, block::blocks]
    return out, sums, maxima


def two_pass(p: Problem, dtype: str, blocks: int = 32) -> tuple[KernelLaunch, KernelLaunch]:
    """``sdpa_vector_2pass``: partial results of blocks of keys, and their sum."""
    arrays = _Arrays.of(p, dtype)
    head, row = strides(arrays.k.shape)[1:3]
    out, sums, maxima = _partials(p, arrays, blocks)
    buffers: dict[int, Array | Fresh] = {
        0: arrays.q, 1: arrays.k, 2: arrays.v, 3: Fresh(dtype, out.shape),  # type: ignore[arg-type]
        4: Fresh("float32", sums.shape), 5: Fresh("float32", sums.shape), 7: np.array(p.S, np.int32),
        8: np.array(head, np.uint64), 9: np.array(row, np.uint64),
        10: np.array(head, np.uint64), 11: np.array(row, np.uint64), 12: np.array(arrays.scale, np.float32),
    }  # fmt: skip
    buffers |= _vector_inputs(p, arrays, 13)
    group = (32, p.H // p.KV, p.L)
    name = _VECTOR_NAMES[dtype]
    first = KernelLaunch(
        family="sdpa_vector", file=VECTOR_FILE, entry=f"sdpa_vector_2pass_1_{name}_{p.D}_{p.D}", dtype=dtype,
        shape=f"{p} blocks={blocks}", buffers=buffers, grid=threads((p.KV, p.B, blocks), group), threadgroup=group,
        expected={"out": out, "sums": sums, "maxs": maxima}, constants={**_vector_constants(p), 26: blocks},
    )  # fmt: skip
    partial = out.astype(arrays.q.dtype)
    weights = np.exp(maxima - maxima.max(-1, keepdims=True))
    total = (exact(partial) * weights[..., None]).sum(-2) / (sums * weights).sum(-1)[..., None]
    group = (1024, 1, 1)
    second = KernelLaunch(
        family="sdpa_vector", file=VECTOR_FILE, entry=f"sdpa_vector_2pass_2_{name}_{p.D}", dtype=dtype,
        shape=f"{p} blocks={blocks}", grid=threads((p.B * p.H, p.L, 1), group), threadgroup=group,
        buffers={0: partial, 1: sums.astype(np.float32), 2: maxima.astype(np.float32),
                 3: Fresh(dtype, (p.B, p.H, p.L, p.D)), 4: np.array(blocks, np.int32)},  # type: ignore[arg-type]
        expected={"out": total},
    )  # fmt: skip
    return first, second


STEEL_PROBLEMS = (
    Problem(L=64, S=64, H=2, D=64, KV=2),
    Problem(L=45, S=77, H=2, D=64),
    Problem(L=33, S=65, H=2, D=80, B=2, mask="causal"),
    Problem(L=40, S=50, H=2, D=128, mask="bool"),
    Problem(L=35, S=48, H=4, D=96, KV=2, mask="float", sinks=True),
)
VECTOR_PROBLEMS = (
    Problem(L=1, S=77, H=4, D=64, KV=2),
    Problem(L=3, S=130, H=2, D=96, KV=2, B=2, mask="causal"),
    Problem(L=2, S=45, H=2, D=128, mask="bool"),
    Problem(L=1, S=33, H=2, D=64, mask="float", sinks=True),
)


def launches() -> Iterator[KernelLaunch]:
    """All launches of the two families."""
    for dtype in FLOATS:
        for p in STEEL_PROBLEMS:
            yield steel(p, dtype)
        for p in VECTOR_PROBLEMS:
            yield vector(p, dtype)
            yield from two_pass(p, dtype)
