"""Kernels against numpy float64, within the precision of their type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from metalsim.execute.launch import numpy_dtype
from metalsim.model import DType
from tests.unit.metalsim.launching import Launcher

FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")
EPSILON = {"float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.9e-3}


def sample(dtype: DType, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(numpy_dtype(dtype))


def assert_close(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], dtype: DType, roundings: int = 2
) -> None:
    tolerance = roundings * EPSILON[dtype]
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


UNARY = {
    "exp(v)": np.exp,
    "metal::fast::exp2(v)": np.exp2,
    "log(abs(v))": lambda v: np.log(np.abs(v)),
    "metal::precise::log2(abs(v) + T(1))": lambda v: np.log2(np.abs(v) + 1),
    "sqrt(abs(v))": lambda v: np.sqrt(np.abs(v)),
    "rsqrt(abs(v) + T(1))": lambda v: 1 / np.sqrt(np.abs(v) + 1),
    "tanh(v)": np.tanh,
    "sin(v) * cos(v)": lambda v: np.sin(v) * np.cos(v),
    "pow(abs(v), T(1.5))": lambda v: np.abs(v) ** 1.5,
    "fma(v, v, T(1))": lambda v: v * v + 1,
    "clamp(v, T(-1), T(1))": lambda v: np.clip(v, -1, 1),
    "max(v, T(0)) - min(v, T(0))": np.abs,
    "floor(v) + ceil(v) + round(v) + trunc(v)": lambda v: (
        np.floor(v) + np.ceil(v) + np.copysign(np.floor(np.abs(v) + 0.5), v) + np.trunc(v)
    ),
    "sign(v)": np.sign,
    "select(T(1), T(2), v > T(0))": lambda v: np.where(v > 0, 2, 1),
    "mix(v, T(1), T(0.25))": lambda v: v + (1 - v) * 0.25,
    "T(isnan(v)) + T(isinf(v)) + T(isfinite(v))": np.ones_like,
    "v / (T(1) + exp(-v))": lambda v: v / (1 + np.exp(-v)),
}


@pytest.mark.parametrize("dtype", FLOATS)
def test_elementwise_math(launch: Launcher, dtype: DType) -> None:
    """One kernel with an output per expression: exact in the type's own rounding steps."""
    x = sample(dtype, 100)
    lines = ["uint i = thread_position_in_grid.x;", "T v = x[i];"]
    lines += [f"out{k}[i] = {expression};" for k, expression in enumerate(UNARY)]
    outputs: dict[str, tuple[DType, tuple[int, ...]]] = {f"out{k}": (dtype, (100,)) for k in range(len(UNARY))}
    result = launch("\n".join(lines), {"x": x}, outputs, grid=100, threadgroup=64, template={"T": dtype})
    assert result.findings == ()
    wide = x.astype(np.float64)
    for k, reference in enumerate(UNARY.values()):
        assert_close(result.outputs[f"out{k}"], reference(wide), dtype, roundings=5)


SOFTMAX = """\
threadgroup float part[32];
uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
uint row = threadgroup_position_in_grid.x, size = threads_per_threadgroup.x, columns = x_shape[1];
const device T* in = x + row * columns;
float top = -INFINITY;
for (uint i = thread_index_in_threadgroup; i < columns; i += size) top = max(top, float(in[i]));
top = simd_max(top);
if (lane == 0) part[group] = top;
threadgroup_barrier(mem_flags::mem_threadgroup);
top = simd_max(lane < simdgroups_per_threadgroup ? part[lane] : -INFINITY);
threadgroup_barrier(mem_flags::mem_threadgroup);
float sum = 0;
for (uint i = thread_index_in_threadgroup; i < columns; i += size) sum += exp(float(in[i]) - top);
sum = simd_sum(sum);
if (lane == 0) part[group] = sum;
threadgroup_barrier(mem_flags::mem_threadgroup);
sum = simd_sum(lane < simdgroups_per_threadgroup ? part[lane] : 0.0);
for (uint i = thread_index_in_threadgroup; i < columns; i += size)
  out[row * columns + i] = T(exp(float(in[i]) - top) / sum);
"""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [5, 257])
def test_softmax_of_rows(launch: Launcher, dtype: DType, columns: int) -> None:
    x = sample(dtype, 3, columns)
    result = launch(SOFTMAX, {"x": x}, {"out": (dtype, x.shape)}, grid=3 * 96, threadgroup=96, template={"T": dtype})
    assert result.findings == ()
    wide = np.exp(x.astype(np.float64))
    assert_close(result.outputs["out"], wide / wide.sum(1, keepdims=True), dtype)


def test_a_tree_reduction_in_threadgroup_memory(launch: Launcher) -> None:
    source = """\
threadgroup float tree[SIZE];
uint i = thread_index_in_threadgroup;
tree[i] = x[thread_position_in_grid.x];
for (uint step = SIZE / 2; step > 0; step /= 2) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < step) tree[i] += tree[i + step];
}
if (i == 0) out[threadgroup_position_in_grid.x] = tree[0];
"""
    x = sample("float32", 512)
    result = launch(source, {"x": x}, {"out": ("float32", (4,))}, grid=512, threadgroup=128, template={"SIZE": 128})
    assert result.findings == ()
    assert_close(result.outputs["out"], x.astype(np.float64).reshape(4, 128).sum(1), "float32", roundings=40)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_linear_recurrence_by_shuffles(launch: Launcher, dtype: DType) -> None:
    """h[t] = a[t] h[t-1] + b[t], by five steps of the pair operator."""
    source = """\
uint lane = thread_index_in_simdgroup, i = thread_position_in_grid.x;
float A = a[i], B = b[i];
for (ushort step = 1; step < 32; step *= 2) {
  float earlier_A = simd_shuffle_and_fill_up(A, 1.0f, step), earlier_B = simd_shuffle_up(B, step);
  if (lane >= step) { B = A * earlier_B + B; A = A * earlier_A; }
}
out[i] = T(B);
"""
    a, b = sample(dtype, 64, seed=1), sample(dtype, 64, seed=2)
    result = launch(source, {"a": a, "b": b}, {"out": (dtype, (64,))}, grid=64, threadgroup=32, template={"T": dtype})
    assert result.findings == ()
    expected = np.zeros(64)
    for start in (0, 32):
        state = 0.0
        for t in range(start, start + 32):
            state = float(a[t]) * state + float(b[t])
            expected[t] = state
    assert_close(result.outputs["out"], expected, dtype, roundings=8)


def test_simd_functions_on_integers(launch: Launcher) -> None:
    expressions = {
        "simd_sum(v)": lambda v: np.full(32, v.sum()),
        "simd_min(v)": lambda v: np.full(32, v.min()),
        "simd_max(v)": lambda v: np.full(32, v.max()),
        "simd_and(v)": lambda v: np.full(32, np.bitwise_and.reduce(v)),
        "simd_or(v)": lambda v: np.full(32, np.bitwise_or.reduce(v)),
        "simd_xor(v)": lambda v: np.full(32, np.bitwise_xor.reduce(v)),
        "simd_product(v)": lambda v: np.full(32, np.multiply.reduce(v)),
        "simd_prefix_inclusive_sum(v)": np.cumsum,
        "simd_prefix_exclusive_sum(v)": lambda v: np.cumsum(v) - v,
        "simd_prefix_inclusive_product(v)": np.cumprod,
        "simd_shuffle(v, ushort(31 - lane))": lambda v: v[::-1],
        "simd_shuffle_xor(v, 5)": lambda v: v[np.arange(32) ^ 5],
        "simd_shuffle_up(v, 3)": lambda v: np.concatenate([v[:3], v[:-3]]),
        "simd_shuffle_down(v, 3)": lambda v: np.concatenate([v[3:], v[-3:]]),
        "simd_shuffle_rotate_up(v, 3)": lambda v: np.roll(v, 3),
        "simd_shuffle_rotate_down(v, 3)": lambda v: np.roll(v, -3),
        "simd_shuffle_and_fill_up(v, 100 + v, 3)": lambda v: np.concatenate([100 + v[-3:], v[:-3]]),
        "simd_shuffle_and_fill_down(v, 100 + v, 3)": lambda v: np.concatenate([v[3:], 100 + v[:3]]),
        "simd_shuffle_and_fill_up(v, 7, 1, 8)": lambda v: np.where(np.arange(32) % 8, np.roll(v, 1), 7),
        "simd_broadcast(v, 9)": lambda v: np.full(32, v[9]),
        "simd_broadcast_first(v)": lambda v: np.full(32, v[0]),
        "quad_sum(v)": lambda v: v.reshape(8, 4).sum(1).repeat(4),
        "quad_shuffle_xor(v, 1)": lambda v: v[np.arange(32) ^ 1],
        "quad_broadcast(v, 2)": lambda v: v[2::4].repeat(4),
        "int(simd_ballot(v > 0).any()) + int((ulong)simd_ballot(lane < 4))": lambda v: np.full(32, 16),
        "int(simd_all(v > -100)) + 2 * int(simd_any(v == 1000)) + 4 * int(simd_is_first())": lambda v: (
            1 + 4 * (np.arange(32) == 0)
        ),
    }
    v = np.random.default_rng(3).integers(-4, 9, 32).astype(np.int32)
    lines = ["int v = x[thread_position_in_grid.x];", "uint lane = thread_index_in_simdgroup;"]
    lines += [f"out[{32 * k} + lane] = {expression};" for k, expression in enumerate(expressions)]
    shape = (len(expressions), 32)
    result = launch("\n".join(lines), {"x": v}, {"out": ("int32", shape)}, grid=32, threadgroup=32)
    assert result.findings == ()
    for row, (expression, reference) in zip(result.outputs["out"], expressions.items(), strict=True):
        np.testing.assert_array_equal(row, reference(v).astype(np.int32), err_msg=expression)


def test_prefix_sums_of_an_unfinished_simdgroup(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] = simd_prefix_inclusive_sum(x[i]);"
    x = np.arange(1, 46, dtype=np.float32)
    result = launch(source, {"x": x}, {"out": ("float32", (45,))}, grid=45, threadgroup=64)
    expected = np.concatenate([np.cumsum(x[:32]), np.cumsum(x[32:])])
    np.testing.assert_array_equal(result.outputs["out"], expected)


def test_collectives_in_divergent_branches(launch: Launcher) -> None:
    source = """\
uint lane = thread_index_in_simdgroup;
int v = x[lane], r = 0;
if (lane % 3 == 0) {
  r = simd_sum(v);
} else if (lane % 3 == 1) {
  r = simd_max(v);
  if (lane < 16) r += 1000 * simd_min(v);
} else {
  r = simd_prefix_exclusive_sum(v);
}
out[lane] = r + 100000 * simd_sum(1);
"""
    x = np.random.default_rng(4).integers(0, 20, 32).astype(np.int32)
    result = launch(source, {"x": x}, {"out": ("int32", (32,))}, grid=32, threadgroup=32)
    lanes, expected = np.arange(32), np.zeros(32, np.int64)
    expected[0::3] = x[0::3].sum()
    expected[1::3] = x[1::3].max()
    low = (lanes % 3 == 1) & (lanes < 16)
    expected[low] += 1000 * x[low].min()
    expected[2::3] = np.cumsum(x[2::3]) - x[2::3]
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], expected + 3200000)


def test_collectives_in_loops_of_uneven_length(launch: Launcher) -> None:
    source = """\
uint lane = thread_index_in_simdgroup;
int total = 0;
for (uint k = 0; k <= lane % 5; k++) total += simd_sum(int(lane));
out[lane] = total + 10000 * simd_sum(1);
"""
    x = np.zeros(32, np.int32)
    result = launch(source, {"x": x}, {"out": ("int32", (32,))}, grid=32, threadgroup=32)
    lanes = np.arange(32)
    sums = np.cumsum([lanes[lanes % 5 >= k].sum() for k in range(5)])
    np.testing.assert_array_equal(result.outputs["out"], sums[lanes % 5] + 320000)


def test_a_ragged_grid_in_three_axes(launch: Launcher) -> None:
    source = """\
uint3 p = thread_position_in_grid, t = threads_per_threadgroup, n = threads_per_grid;
uint i = (p.z * n.y + p.y) * n.x + p.x;
uint3 q = threadgroup_position_in_grid * dispatch_threads_per_threadgroup + thread_position_in_threadgroup;
out[i] = int(all(q == p)) + 10 * int(t.x * t.y * t.z) + 10000 * int(thread_index_in_threadgroup);
"""
    nx, ny, nz = 7, 5, 3
    x = np.zeros(32, np.int32)
    result = launch(source, {"x": x}, {"out": ("int32", (nz, ny, nx))}, grid=(nx, ny, nz), threadgroup=(4, 2, 8))
    assert result.findings == ()
    assert (result.threadgroups_total, result.threads_per_threadgroup) == (6, 24)
    z, y, xs = np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij")
    tx, ty = np.minimum(4, nx - xs // 4 * 4), np.minimum(2, ny - y // 2 * 2)
    index = (z * ty + y % 2) * tx + xs % 4
    np.testing.assert_array_equal(result.outputs["out"], 1 + 10 * tx * ty * 3 + 10000 * index)


def test_vectors_convert_and_compare_as_in_metal(launch: Launcher) -> None:
    source = """\
device int* o = out;
float4 f = float4(1.9, -1.9, 0.5, 300.25);
int4 i = int4(f);
o[0] = i.x; o[1] = i.y; o[2] = i.z; o[3] = i.w;
bool4 below = f < float4(1);
o[4] = below.x; o[5] = below.y; o[6] = int(any(below)); o[7] = int(all(below));
f.xy = f.yx;
f.zw += 1;
o[8] = int(f.x * 10); o[9] = int(f.y * 10); o[10] = int(f.z * 10); o[11] = int(f.w);
half4 h(f); float4 back = float4(h); uchar4 bytes = uchar4(uint4(1, 2, 3, 257));
o[12] = int(back.w); o[13] = bytes.w; o[14] = int(sizeof(float3)); o[15] = int(sizeof(packed_float3));
o[16] = as_type<int>(1.0); o[17] = int(dot(float3(1, 2, 3), f.xxy)); o[18] = float4(x[0], float2(2, 3), 4)[2];
float4 picked = select(float4(1), float4(2), below); o[19] = int(picked.x + picked.y);
float3 c = cross(float3(1, 0, 0), float3(0, 1, 0)); o[20] = int(c.z) + int(length(float2(3, 4)));
uint2 u = uint2(7u, 9u) << 1; o[21] = int(u.x + u.y); o[22] = popcount(255u) + clz(1u) + int(ctz(8u));
const device float4* rows = (const device float4*)x; o[23] = int(rows[1].w) + int(rows[1][0]);
"""
    x = np.arange(32, dtype=np.float32)
    result = launch(source, {"x": x}, {"out": ("int32", (24,))}, grid=1, threadgroup=1)
    assert result.findings == ()
    expected = [1, -1, 0, 300, 0, 1, 1, 0, -19, 19, 15, 301, 301, 1, 16, 12]
    expected += [0x3F800000, int(-1.9 - 3.8 + 5.7), 3, 3, 6, 32, 42, 11]
    np.testing.assert_array_equal(result.outputs["out"], expected)


def test_literals_without_suffix_are_float(launch: Launcher) -> None:
    source = """\
out[0] = x[0] * 0.1 == x[0] * 0.1f ? 1 : 0; out[1] = int(sizeof(1.0h));
#define HALF .5
out[2] = sizeof(HALF);
"""
    result = launch(source, {"x": sample("float32", 8)}, {"out": ("int32", (3,))}, grid=1, threadgroup=1)
    np.testing.assert_array_equal(result.outputs["out"], [1, 2, 4])


def test_arithmetic_rounds_after_every_step(launch: Launcher) -> None:
    source = "T a = x[0], b = x[1]; out[0] = (a + b) - a;"
    for dtype, value in (("float16", 2048.0), ("bfloat16", 256.0), ("float32", 2.0**24)):
        x = np.array([value, 1.0]).astype(numpy_dtype(dtype))  # type: ignore[arg-type]
        result = launch(source, {"x": x}, {"out": (dtype, (1,))}, grid=1, threadgroup=1, template={"T": dtype})  # type: ignore[dict-item]
        assert float(result.outputs["out"][0]) == 0.0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_every_element_type_passes_through(launch: Launcher, dtype: DType) -> None:
    x = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 120, 50).astype(dtype)
    source = "uint i = thread_position_in_grid.x; out[i] = x[i];"
    result = launch(source, {"x": x}, {"out": (dtype, (50,))}, grid=50, threadgroup=32)
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], x)


def test_small_and_scalar_inputs_come_in_constant(launch: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
out[i] = x[i] * scale + float(few[i % 3]) + float(x_shape[1] + x_strides[0] + x_ndim);
"""
    x, few = sample("float32", 4, 6), np.array([1, 2, 3], np.int32)
    inputs = {"x": x, "scale": np.array(2.5, np.float32), "few": few}
    result = launch(source, inputs, {"out": ("float32", (4, 6))}, grid=24, threadgroup=24)
    assert result.findings == ()
    assert_close(result.outputs["out"].ravel(), x.ravel() * 2.5 + np.tile(few, 8) + 14, "float32")


def test_results_do_not_depend_on_the_run(launch: Launcher) -> None:
    x = sample("float32", 3, 257)
    options: dict[str, Any] = {"grid": 3 * 96, "threadgroup": 96, "template": {"T": "float32"}}
    first = launch(SOFTMAX, {"x": x}, {"out": ("float32", x.shape)}, **options)
    second = launch(SOFTMAX, {"x": x}, {"out": ("float32", x.shape)}, seed=7, **options)
    np.testing.assert_array_equal(first.outputs["out"], second.outputs["out"])
    assert numpy_dtype("bfloat16") == np.dtype(ml_dtypes.bfloat16)
