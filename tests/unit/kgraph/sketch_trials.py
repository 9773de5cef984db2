"""What the sketches of the patterns must compute: a body that calls each, its inputs, and numpy's answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_DRAW = np.random.default_rng(7)


@dataclass(frozen=True)
class Trial:
    """A launch of one threadgroup that uses a sketch.

    Attributes:
        body: in the convention of mx.fast.metal_kernel, after the sketch as its header.
        inputs, expected: arrays by name; those of ``expected`` are the outputs.
        threads: of the threadgroup.
        tolerance: relative to the largest expected value; 0 for exactly.
        init_value: of outputs before the launch; given for atomic outputs.
    """

    body: str
    inputs: dict[str, Array]
    expected: dict[str, Array]
    threads: int = 32
    tolerance: float = 2e-6
    init_value: float | None = None


@dataclass(frozen=True)
class FileTrial:
    """A launch of a sketch that is a kernel; buffers by index, outputs as the expected arrays."""

    inputs: dict[int, Any]
    expected: dict[int, Array]
    grid: int
    threads: int = 32
    constants: dict[int, Any] = field(default_factory=dict)


def _floats(*shape: int, dtype: str = "float32") -> Array:
    return _DRAW.uniform(0.1, 1.0, shape).astype(dtype)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _causal_tiles() -> Array:
    """Brute force of (first tile past the visible keys, first tile with a hidden key) per query block of 8."""
    rows = []
    for block in range(8):
        begin, end, offset, keys, width = 8 * block, 8 * block + 8, 7, 60, 16
        tiles = [range(t * width, (t + 1) * width) for t in range(8)]
        seen = [t for t, tile in enumerate(tiles) if tile[0] < keys and tile[0] <= end - 1 + offset]
        whole = [t for t, tile in enumerate(tiles) if tile[-1] <= begin + offset]
        rows.append((len(seen), len(whole)))
    return np.array(rows, dtype=np.int32).ravel()


def _recurrence(a: Array, b: Array) -> Array:
    h, states = 0.0, []
    for decay, term in zip(_wide(a), _wide(b), strict=True):
        h = decay * h + term
        states.append(h)
    return np.array(states)


def _attend(q: Array, k: Array, v: Array) -> Array:
    scores = _wide(k) @ _wide(q)
    weights = np.exp2(scores - scores.max())
    return weights @ _wide(v) / weights.sum()


_S8, _M8 = _floats(8, 8), _floats(8, 8, dtype="float16")
_A, _B = _floats(300), _floats(300)
_ROWS = _floats(32, 32)
_E4M3 = np.array([0x00, 0x01, 0x08, 0x38, 0x3C, 0x7E, 0x81, 0xB8], dtype=np.uint8)
_LOAD8 = (
    "simdgroup_matrix<float, 8, 8> m; simdgroup_load(m, x, 8);"
    " float2 pair = float2(m.thread_elements()[0], m.thread_elements()[1]);"
)
_STORE8 = "m.thread_elements()[0] = r; m.thread_elements()[1] = r; simdgroup_store(m, out, 8);"
_ZERO = "simdgroup_matrix<float, 8, 8>(0.0f)"
_LANE = "ushort lane = thread_index_in_simdgroup; ushort group = simdgroup_index_in_threadgroup; "
_TID = "uint i = thread_position_in_threadgroup.x; "
_LOG2E = np.log2(np.e)

MATRIX = {
    "fragment-layout": Trial(
        "simdgroup_matrix<float, 8, 8> m; simdgroup_load(m, x, 8);"
        " short2 c = fragment_coordinate(thread_index_in_simdgroup);"
        " out[8 * c.y + c.x] = m.thread_elements()[0]; out[8 * c.y + c.x + 1] = m.thread_elements()[1];",
        {"x": _S8},
        {"out": _S8},
        tolerance=0,
    ),
    "fragment-row-reduction": Trial(
        f"{_LOAD8} float r = row_max(pair); {_STORE8}",
        {"x": _S8},
        {"out": np.repeat(_S8.max(axis=1, keepdims=True), 8, axis=1)},
        tolerance=0,
    ),
    "sums-without-matrices": Trial(
        f"{_LOAD8} float r = row_sum(pair); {_STORE8}",
        {"x": _S8},
        {"out": np.repeat(_S8.sum(axis=1, keepdims=True), 8, axis=1)},
    ),
    "fragment-layout-16x16": Trial(
        "for (ushort e = 0; e < 8; ++e) { short2 c = wide_coordinate(thread_index_in_simdgroup, e);"
        " out[16 * c.y + c.x] = 16 * c.y + c.x; }",
        {},
        {"out": np.arange(256, dtype=np.int32)},
        tolerance=0,
    ),
    "score-as-operand": Trial(
        f"simdgroup_matrix<float, 8, 8> o = {_ZERO}, sm; simdgroup_matrix<half, 8, 8> vm; simdgroup_load(sm, s, 8);"
        " simdgroup_load(vm, v, 8); add_weighted_values(o, sm, vm, 1.5f); simdgroup_store(o, out, 8);",
        {"s": _S8, "v": _M8},
        {"out": np.exp2(_wide(_S8) - 1.5) @ _wide(_M8)},
        tolerance=1e-3,
    ),
    "simd-group-tile-32": Trial(
        f"Tile t; for (short i = 0; i < 4; ++i) for (short j = 0; j < 4; ++j) t.c[i][j] = {_ZERO};"
        " add_product(t, a, b, 8, 32);"
        " for (short i = 0; i < 4; ++i) for (short j = 0; j < 4;"
        " ++j) simdgroup_store(t.c[i][j], out + 256 * i + 8 * j, 32);",
        {"a": (a := _floats(32, 8, dtype="float16")), "b": (b := _floats(8, 32, dtype="float16"))},
        {"out": _wide(a) @ _wide(b)},
    ),
    "serpentine-order": Trial(
        "Products f; for (short i = 0; i < 2; ++i) simdgroup_load(f.a[i], a + 64 * i, 8);"
        " for (short j = 0; j < 4; ++j) simdgroup_load(f.b[j], b + 8 * j, 32);"
        f" for (short i = 0; i < 2; ++i) for (short j = 0; j < 4; ++j) f.c[i][j] = {_ZERO}; multiply_serpentine(f);"
        " for (short i = 0; i < 2; ++i) for (short j = 0; j < 4;"
        " ++j) simdgroup_store(f.c[i][j], out + 256 * i + 8 * j, 32);",
        {"a": (a := _floats(16, 8, dtype="float16")), "b": (b := _floats(8, 32, dtype="float16"))},
        {"out": _wide(a) @ _wide(b)},
    ),
    "half-operands-float-sums": Trial(
        _TID + "out[i] = advance(s[i], d[i], b[i], x[i]);",
        {
            "s": (s := _floats(32)),
            "d": (d := _floats(32)),
            "b": (b := _floats(32, dtype="float16")),
            "x": (x := _floats(32, dtype="float16")),
        },
        {"out": _wide(d) * _wide(s) + _wide(b) * _wide(x)},
        tolerance=2e-7,
    ),
    "mixed-type-multiply": Trial(
        f"simdgroup_matrix<float, 8, 8> sum = {_ZERO}; simdgroup_matrix<half, 8, 8> am, bm; simdgroup_load(am, a, 8);"
        " simdgroup_load(bm, b, 8); accumulate_in_float(sum, am, bm); simdgroup_store(sum, out, 8);",
        {"a": _M8, "b": (b := _floats(8, 8, dtype="float16"))},
        {"out": _wide(_M8) @ _wide(b)},
        tolerance=5e-7,
    ),
    "fragment-load-fence": Trial(
        _TID + "threadgroup half ta[128], tb[128]; for (uint k = i; k < 128; k += 32) { ta[k] = a[k]; tb[k] = b[k]; }"
        f" threadgroup_barrier(mem_flags::mem_threadgroup); simdgroup_matrix<float, 8, 8> sum = {_ZERO};"
        " multiply_steps(sum, ta, tb, 16, 8, 2); simdgroup_store(sum, out, 8);",
        {"a": (a := _floats(8, 16, dtype="float16")), "b": (b := _floats(16, 8, dtype="float16"))},
        {"out": _wide(a) @ _wide(b)},
    ),
    "matmul2d-in-a-kernel": Trial(
        _TID + "uint2 t = owned_tile(i, 4); out[2 * i] = t.x; out[2 * i + 1] = t.y;",
        {},
        {"out": np.array([[g % 4 * 32, g // 4 * 32] for g in range(32)], dtype=np.uint32).ravel()},
        tolerance=0,
    ),
    "matrix-unit-by-chip": Trial(
        _TID + "out[i] = use_matmul2d(i < 16, 50 * i);",
        {},
        {"out": np.array([int(8 <= i < 16) for i in range(32)], dtype=np.int32)},
        tolerance=0,
    ),
}

MEMORY = {
    "k-transposed-at-load": Trial(
        _TID + "threadgroup half kt[D * ROW]; store_transposed(kt, k, i, 64);"
        " for (uint j = i; j < D * BK; j += 64) out[j] = kt[j / BK * ROW + j % BK];",
        {"k": (k := _floats(32, 64, dtype="float16"))},
        {"out": k.T.copy()},
        threads=64,
        tolerance=0,
    ),
    "pad-sixteen-bytes": Trial(
        _TID + "threadgroup half tile[8 * 72]; store_tile(tile, x, 64, 512, i, 64);"
        " threadgroup_barrier(mem_flags::mem_threadgroup); for (uint j = i; j < 512;"
        " j += 64) out[j] = tile[j / 64 * 72 + j % 64];",
        {"x": (x := _floats(8, 64, dtype="float16"))},
        {"out": x},
        threads=64,
        tolerance=0,
    ),
    "alias-buffers": Trial(
        _TID + "threadgroup float shared[TILE]; out[i] = dot_then_sum(shared, k, v, 2.0f, i);",
        {"k": (k := _floats(1024)), "v": (v := _floats(1024))},
        {"out": 2 * np.roll(k, -1) * np.roll(v, -1)},
        threads=1024,
    ),
    "no-staging": Trial(
        f"simdgroup_matrix<float, 8, 8> sum = {_ZERO}; multiply_from_device(sum, a, b, 16, 8, 16);"
        " simdgroup_store(sum, out, 8);",
        {"a": (a := _floats(8, 16, dtype="float16")), "b": (b := _floats(16, 8, dtype="float16"))},
        {"out": _wide(a) @ _wide(b)},
    ),
    "register-prefetch": Trial(
        _TID + "threadgroup float tile[64]; out[i] = sum_of_tiles(x, tile, 3, i, 64);",
        {"x": (x := _floats(3, 64))},
        {"out": x[:, ::-1].sum(axis=0)},
        threads=64,
    ),
    "simd-group-private-tiles": Trial(
        _LANE + _TID + "threadgroup float shared[64]; out[i] = reversed_in_simd_group(shared, x[i], lane, group);",
        {"x": (x := _floats(2, 32))},
        {"out": x[:, ::-1].copy()},
        threads=64,
        tolerance=0,
    ),
    "one-barrier-reduction": Trial(
        _LANE + _TID + "threadgroup float slot[32]; out[i] = block_sum(x[i], slot, lane, group, 3);",
        {"x": (x := _floats(96))},
        {"out": np.full(96, x.sum())},
        threads=96,
    ),
    "transpose-reduce": Trial(
        _LANE + _TID + "threadgroup float square[1024]; float s = sum_over_simd_groups(x[i], square, lane, group);"
        " if (lane == 0) out[group] = s;",
        {"x": _ROWS},
        {"out": _ROWS.sum(axis=0)},
        threads=1024,
    ),
}

ATTENTION = {
    "exp2-form": Trial(
        _TID + "out[i] = weight(s[i], 1.0f, 0.125f);",
        {"s": (s := _floats(32))},
        {"out": np.exp(0.125 * (_wide(s) - 1.0))},
    ),
    "finite-mask": Trial(
        _TID + "out[i] = normalized(2.0f * i, masked_score(1.0f, i, 15), i < 16 ? 4.0f : 0.0f);",
        {},
        {"out": np.array([i / 2 if i <= 15 else 0.0 for i in range(32)], dtype=np.float32)},
        tolerance=0,
    ),
    "causal-bounds": Trial(
        _TID + "if (i < 8) { KeyTiles t = causal_tiles(8 * i, 8 * i + 8, 7, 60, 16); out[2 * i] = t.end;"
        " out[2 * i + 1] = t.first_masked; }",
        {},
        {"out": _causal_tiles()},
        tolerance=0,
    ),
    "attention-block-sizes": Trial(
        "if (thread_position_in_threadgroup.x == 0) { out[0] = Blocks<64>::BK; out[1] = Blocks<128>::BK;"
        " out[2] = Blocks<128>::ROWS_PER_SIMD_GROUP; out[3] = Blocks<256>::BYTES; }",
        {},
        {"out": np.array([32, 16, 8, 2 * (32 * 264 + 256 * 24)], dtype=np.int32)},
        tolerance=0,
    ),
    "head-dimension-paged": Trial(
        "threadgroup half tp[4]; for (ushort j = 0; j < 4; ++j) tp[j] = p[j];"
        " for (ushort j = 0; j < 16; ++j) out[j] = o[j]; add_slices(out, tp, v, 0.5f, 4, 16);",
        {"p": (p := _floats(8, dtype="float16")), "o": (o := _floats(16)), "v": (v := _floats(4, 16, dtype="float16"))},
        {"out": 0.5 * _wide(o) + _wide(p)[:4] @ _wide(v)},
        threads=1,
    ),
    "decode-one-pass": Trial(
        _LANE + "Row<2> row = {{0.0f, 0.0f}, -1e30f, 0.0f}; float mine[2] = {q[2 * lane], q[2 * lane + 1]};"
        " for (uint j = 0; j < 5; ++j) take_key<2>(row, mine, k + 64 * j, v + 64 * j, lane);"
        " for (ushort j = 0; j < 2; ++j) out[2 * lane + j] = row.o[j] / row.l;",
        {
            "q": (q := _floats(64)),
            "k": (k := _floats(5, 64, dtype="float16")),
            "v": (v := _floats(5, 64, dtype="float16")),
        },
        {"out": _attend(q, k, v)},
        tolerance=1e-5,
    ),
    "two-pass-split-kv": Trial(
        _TID + "float r = merged(o[i], m[i], l[i]); if (i == 0) out[0] = r;",
        {"o": (o := _floats(32)), "m": (m := 8 * _floats(32)), "l": (part := _floats(32))},
        {"out": np.array([(np.exp2(_wide(m)) @ _wide(o)) / (np.exp2(_wide(m)) @ _wide(part))])},
        tolerance=1e-5,
    ),
    "gqa-group-in-threadgroup": Trial(
        _TID + "Heads h = heads_of(i / 4, i % 4, 4); out[2 * i] = h.kv; out[2 * i + 1] = h.query;",
        {},
        {"out": np.array([[h // 4, h] for h in range(32)], dtype=np.uint32).ravel()},
        tolerance=0,
    ),
    "backward-without-atomics": Trial(
        _TID + "out[i] = score_gradient(s[i], 1.25f, dp[i], 0.5f);",
        {"s": (s := _floats(32)), "dp": (dp := _floats(32))},
        {"out": np.exp2(_wide(s) - 1.25) * (_wide(dp) - 0.5)},
    ),
    "head-split-over-two": Trial(
        _LANE + _TID + "threadgroup float slot[64]; out[i] = whole_score(x[i], slot, lane, group);",
        {"x": (x := _floats(2, 32))},
        {"out": np.tile(x.sum(axis=0), 2)},
        threads=64,
        tolerance=1e-7,
    ),
}

REDUCTION = {
    "simd-prefix-scan": Trial(
        _LANE + _TID + "threadgroup float slot[32]; float4 v = ((const device float4*)x)[i];"
        " scan_in_place(v, slot, lane, group); ((device float4*)out)[i] = v;",
        {"x": (x := _floats(256))},
        {"out": np.cumsum(_wide(x))},
        threads=64,
    ),
    "pair-scan": Trial(
        _LANE + "out[lane] = scan_pairs(float2(a[lane], b[lane]), lane).y;",
        {"a": _A[:32], "b": _B[:32]},
        {"out": _recurrence(_A[:32], _B[:32])},
    ),
    "chunk-carry": Trial(
        _LANE + "float last = scan_row(a, b, out, 300, lane); if (lane == 0) end[0] = last;",
        {"a": _A, "b": _B},
        {"out": (h := _recurrence(_A, _B)), "end": h[-1:]},
        tolerance=5e-6,
    ),
    "states-across-lanes": Trial(
        _TID + "out[i] = sum_of_16_lanes(x[i]);",
        {"x": (x := _floats(2, 16))},
        {"out": np.repeat(x.sum(axis=1), 16)},
    ),
    "shared-b-c": Trial(
        _TID + "threadgroup float tile[N * CHUNK]; stage_chunk(tile, b, 32, 40, i, 64);"
        " for (uint j = i; j < N * CHUNK; j += 64) out[j] = tile[j];",
        {"b": (b := _floats(16, 40))},
        {"out": np.pad(b[:, 32:], ((0, 0), (0, 24)))},
        threads=64,
        tolerance=0,
    ),
    "fused-gate": Trial(
        _TID + "out[i] = gated(x[i], 0.5f, x[i], z[i]) + softplus(80.0f * z[i] - 40.0f);",
        {"x": (x := _floats(32)), "z": (z := _floats(32))},
        {"out": 1.5 * _wide(x) * _wide(z) / (1 + np.exp(-_wide(z))) + np.logaddexp(0.0, 80 * _wide(z) - 40)},
    ),
    "ssm-decode": Trial(
        _LANE + "for (ushort j = 0; j < 2; ++j) out[2 * lane + j] = h[2 * lane + j];"
        " float r = decode_step<2>(out, b, c, 0.75f, 2.0f, lane); if (lane == 0) y[0] = r;",
        {"h": (h := _floats(64)), "b": (b := _floats(64)), "c": (c := _floats(64))},
        {"out": (n := 0.75 * _wide(h) + 2 * _wide(b)), "y": np.array([n @ _wide(c)])},
    ),
    "scan-decay-base-2": Trial(
        _TID + "out[i] = advance_state(h[i], d[i], -1.44269504f, 0.5f, x[i]);",
        {"h": (h := _floats(32)), "d": (d := _floats(32)), "x": (x := _floats(32))},
        {"out": np.exp(-_wide(d)) * _wide(h) + 0.5 * _wide(d) * _wide(x)},
    ),
    "single-row-norm": Trial(
        _LANE + _TID + "threadgroup float slot[32];"
        " float4 v = normalized(x, i, 256, 1e-5f, slot, lane, group, 2); ((device float4*)out)[i] = v;",
        {"x": (x := _floats(256, dtype="float16"))},
        {"out": _wide(x) / np.sqrt(np.mean(_wide(x) ** 2) + 1e-5)},
        threads=64,
    ),
    "online-softmax-row": Trial(
        _LANE + "float2 r = max_and_sum(x, 100, lane); if (lane == 0) { out[0] = r.x; out[1] = r.y; }",
        {"x": (x := 5 * _floats(100))},
        {"out": np.array([x.max(), np.exp(_wide(x) - x.max()).sum()])},
    ),
    "reduce-before-atomic": Trial(
        _LANE + _TID + "add_once(&out[0], x[i], lane);",
        {"x": (x := _floats(96))},
        {"out": np.array([x.sum()])},
        threads=96,
        init_value=0.0,
    ),
    "float-compare-exchange": Trial(
        _TID + "store_max(&out[0], i == 9 ? NAN : x[i]);",
        {"x": (x := np.r_[_floats(9), 9, _floats(54)].astype(np.float32))},
        {"out": np.array([np.delete(x, 9).max()], dtype=np.float32).view(np.uint32)},
        threads=64,
        tolerance=0,
        init_value=0,
    ),
    "decoupled-fallback-scan": Trial(
        "uint sum = predecessor_sum(out, x, 1, 8); atomic_store_explicit(&out[1], sum, memory_order_relaxed);"
        " atomic_store_explicit(&out[0], sum | 0x80000000u, memory_order_relaxed);"
        " atomic_store_explicit(&out[2], predecessor_sum(out, x, 1, 8), memory_order_relaxed);",
        {"x": np.arange(16, dtype=np.uint32)},
        {"out": np.array([28 | 1 << 31, 28, 28], dtype=np.uint32)},
        threads=1,
        tolerance=0,
        init_value=0,
    ),
}

LOADS = {
    "packed-loads": Trial(
        _TID + "out[i] = sum_of_eight(x, i);",
        {"x": (x := _floats(32, 8, dtype="float16"))},
        {"out": _wide(x).sum(axis=1)},
    ),
    "small-indices": Trial(
        _LANE + "for (ulong r = 0; r < 3; ++r) { float s = row_sum<50>(x, r, lane); if (lane == 0) out[r] = s; }",
        {"x": (x := _floats(3, 50))},
        {"out": x.sum(axis=1)},
    ),
    "streaming-prefetch": Trial(
        _LANE + "((device float4*)out)[lane] = sum_of_four((const device float4*)x, 32, lane);",
        {"x": (x := _floats(5, 128))},
        {"out": x[1:].sum(axis=0)},
    ),
    "guarded-vectors": Trial(
        _TID + "((device float4*)out)[i] = load_or_zero(x, 4 * i, 10);",
        {"x": (x := _floats(10))},
        {"out": np.pad(x, (0, 6))},
        threads=4,
        tolerance=0,
    ),
    "template-dispatch": Trial(
        "float h[4]; for (ushort n = 0; n < 4; ++n) h[n] = x[n]; out[0] = sum_of_states<4, true>(h, 2.0f);"
        " out[1] = sum_of_states<4, false>(h, 2.0f);",
        {"x": (x := _floats(8))},
        {"out": x[:4].sum() * np.array([2.0, 1.0])},
        threads=1,
    ),
    "quantized-dot-without-shifts": Trial(
        "float4 v = float4(x[0], x[1], x[2], x[3]); float sum = prepared(v);"
        " out[0] = quantized_dot(0x8421, v); out[1] = sum;",
        {"x": (x := _floats(8))},
        {"out": np.array([x[:4] @ [1, 2, 4, 8], x[:4].sum()])},
        threads=1,
    ),
    "fp8-decode": Trial(
        _TID + "out[i] = decode_e4m3(x[i]);",
        {"x": _E4M3},
        {"out": np.array([0, 2**-9, 2**-6, 1, 1.5, 448, -(2**-9), -1], dtype=np.float16)},
        threads=8,
        tolerance=0,
    ),
    "bfloat-by-shift": Trial(
        _TID + "((device float4*)out)[i] = widened(((const device ushort4*)x)[i]);",
        {"x": (x := _floats(32)).view(np.uint32).__rshift__(16).astype(np.uint16)},
        {"out": (x.view(np.uint32) & 0xFFFF0000).view(np.float32)},
        threads=8,
        tolerance=0,
    ),
    "enough-threadgroups": Trial(
        _TID + "out[i] = parts_wanted(40, 12 * (i + 1));",
        {},
        {"out": np.array([max(1, -(-240 // (12 * (i + 1)))) for i in range(32)], dtype=np.uint32)},
        tolerance=0,
    ),
    "threadgroup-swizzle": Trial(
        _TID + "uint2 t = swizzled(uint2(i % 16, i / 16), 2); out[4 * t.y + t.x] = i;",
        {},
        {"out": np.array([(r // 4) * 16 + c * 4 + r % 4 for r in range(8) for c in range(4)], dtype=np.uint32)},
        tolerance=0,
    ),
    "unroll-by-kind": Trial(
        "out[0] = sum_of_steps(x, 9);",
        {"x": (x := _floats(36))},
        {"out": np.array([x.sum()])},
        threads=1,
    ),
    "coherent-exchange": Trial(
        "publish((device float*)&out[1], &out[0], 2.5f);"
        " atomic_store_explicit(&out[2], uint(arrived(&out[0])), memory_order_relaxed);",
        {},
        {"out": np.array([1, np.float32(2.5).view(np.uint32), 1], dtype=np.uint32)},
        threads=1,
        tolerance=0,
        init_value=0,
    ),
    "functions-by-name": Trial(
        _TID + "out[i] = weight(x[i], 1.0f, 0.5f) + inverse_norm(x[i], 1e-5f);",
        {"x": (x := _floats(32))},
        {"out": 0.5 * np.exp(_wide(x) - 1) + 1 / np.sqrt(_wide(x) + 1e-5)},
    ),
}

TRIALS: dict[str, Trial] = {**MATRIX, **MEMORY, **ATTENTION, **REDUCTION, **LOADS}

FILE_TRIALS: dict[str, FileTrial] = {
    "reduce-all-in-two-kernels": FileTrial(
        {0: (x := _floats(200)), 2: np.uint32(200)},
        {1: np.array([np.r_[x[:64], x[128:192]].sum(), np.r_[x[64:128], x[192:]].sum()], dtype=np.float32)},
        grid=128,
        threads=64,
    ),
    "fixed-order-merge": FileTrial(
        {0: (x := _floats(3, 40)), 2: np.uint32(3)}, {1: (x[0] + x[1]) + x[2]}, grid=40, threads=40
    ),
    "loaders-by-function-constant": FileTrial(
        {0: (x := _floats(40)), 2: np.uint32(40)}, {1: x}, grid=64, constants={0: False}
    ),
    "threadgroup-size": FileTrial({1: np.float32(2.0), 0: (x := _floats(32))}, {0: 2 * x}, grid=32),
}
