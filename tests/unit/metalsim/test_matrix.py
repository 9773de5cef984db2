"""simdgroup_matrix: products against numpy float64, the lane layout, faults and counts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from metalsim.build.kernel import CompiledKernel, compile_kernel
from metalsim.estimate.counters import LaunchShape, count
from metalsim.execute.launch import run
from tests.unit.metalsim.launching import Launcher, dtype_name, seen

DTYPES: dict[str, Any] = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
# Half a unit in the last place of each type's mantissa.
ROUNDING = {"float": 2.0**-24, "half": 2.0**-11, "bfloat": 2.0**-8}
RNG = np.random.default_rng(3)


def operand(kind: str, *shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape).astype(DTYPES[kind])


def bound(kind: str, terms: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Error of eight float additions of ``terms`` (sum of magnitudes), then one rounding to ``kind``."""
    return 9 * ROUNDING["float"] * terms + ROUNDING[kind] * terms


@pytest.mark.parametrize("result", DTYPES)
@pytest.mark.parametrize("factors", DTYPES)
def test_multiply_accumulate_in_all_types(launch: Launcher, factors: str, result: str) -> None:
    source = f"""
simdgroup_matrix<{factors}, 8, 8> a, b;
simdgroup_{result}8x8 c;
simdgroup_load(a, x, 8);
simdgroup_load(b, y, 8);
simdgroup_load(c, z, 8);
simdgroup_multiply_accumulate(c, a, b, c);
simdgroup_store(c, out, 8);
"""
    x, y, z = operand(factors, 8, 8), operand(factors, 8, 8), operand(result, 8, 8)
    inputs = {"x": x, "y": y, "z": z}
    outputs = {"out": (dtype_name(z), (8, 8))}
    found = launch("thread_index_in_simdgroup;" + source, inputs, outputs, grid=32, threadgroup=32)
    assert found.findings == ()
    a, b, c = (v.astype(np.float64) for v in (x, y, z))
    terms = np.abs(a) @ np.abs(b) + np.abs(c)
    assert np.all(np.abs(found.outputs["out"].astype(np.float64) - (a @ b + c)) <= bound(result, terms))


def test_the_lane_layout(launch: Launcher) -> None:
    source = """
simdgroup_float8x8 m;
simdgroup_load(m, x);
uint lane = thread_index_in_simdgroup;
out[2 * lane] = m.thread_elements()[0];
out[2 * lane + 1] = m.thread_elements()[1];
"""
    x = np.arange(64, dtype=np.float32)
    found = launch(source, {"x": x}, {"out": ("float32", (32, 2))}, grid=32, threadgroup=32)
    assert found.findings == ()
    for lane, (first, second) in enumerate(found.outputs["out"]):
        b0, b1, b2, b3, b4 = ((lane >> k) & 1 for k in range(5))
        row, column = 4 * b4 + 2 * b2 + b1, 4 * b3 + 2 * b0
        assert (first, second) == (8 * row + column, 8 * row + column + 1)


def test_elements_can_be_written(launch: Launcher) -> None:
    source = """
simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(2.0);
thread auto& e = m.thread_elements();
e[0] += thread_index_in_simdgroup;
reinterpret_cast<thread float2&>(m.thread_elements()).y = -1;
simdgroup_store(m, out, 8);
"""
    found = launch(source, {}, {"out": ("float32", (8, 8))}, grid=32, threadgroup=32)
    assert found.findings == ()
    out = found.outputs["out"]
    assert sorted(out[:, ::2].ravel()) == [2.0 + lane for lane in range(32)]
    assert np.all(out[:, 1::2] == -1)


@pytest.mark.parametrize("transpose", ["false", "true"])
@pytest.mark.parametrize("space", ["device", "threadgroup"])
def test_origin_stride_and_transpose(launch: Launcher, space: str, transpose: str) -> None:
    # The origin counts in the matrix's own columns (x) and rows (y).
    load = f"simdgroup_load(m, from, 20, ulong2(3, 5), {transpose});"
    store = f"simdgroup_store(m, out, 24, ulong2(4, 1), {transpose});"
    stage = """threadgroup half from[20 * 20];
for (uint i = thread_index_in_simdgroup; i < 400; i += 32) from[i] = x[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
"""
    body = (stage if space == "threadgroup" else "const device half* from = x; thread_index_in_simdgroup;\n") + (
        "simdgroup_half8x8 m;\n" + load + store
    )
    x = operand("half", 20, 20)
    found = launch(body, {"x": x}, {"out": ("float16", (24, 24))}, grid=32, threadgroup=32, init_value=0.0)
    assert found.findings == ()
    expected = np.zeros((24, 24), np.float16)
    if transpose == "true":
        expected[4:12, 1:9] = x[3:11, 5:13]
    else:
        expected[1:9, 4:12] = x[5:13, 3:11]
    np.testing.assert_array_equal(found.outputs["out"], expected)


def test_transposed_operand(launch: Launcher) -> None:
    source = """
simdgroup_float8x8 a, b, c;
simdgroup_load(a, x, 8);
simdgroup_load(b, y, 8, 0, true);
simdgroup_multiply(c, a, b);
simdgroup_store(a * b, out, 8);
simdgroup_store(c, other, 8);
thread_index_in_simdgroup;
"""
    x, y = operand("float", 8, 8), operand("float", 8, 8)
    shapes = {"out": ("float32", (8, 8)), "other": ("float32", (8, 8))}
    found = launch(source, {"x": x, "y": y}, shapes, grid=32, threadgroup=32)
    assert found.findings == ()
    expected = x.astype(np.float64) @ y.T.astype(np.float64)
    np.testing.assert_allclose(found.outputs["out"], expected, atol=8 * 2.0**-23)
    np.testing.assert_array_equal(found.outputs["out"], found.outputs["other"])


def test_diagonal_and_filled(launch: Launcher) -> None:
    source = """
simdgroup_float8x8 d(3.0f), f = make_filled_simdgroup_matrix<float, 8, 8>(0.5f), r;
simdgroup_float8x8 e = make_diagonal_simdgroup_matrix<float, 8>(1.0f);
simdgroup_multiply_accumulate(r, d, e, f);
simdgroup_store(r, out);
thread_index_in_simdgroup;
"""
    found = launch(source, {}, {"out": ("float32", (8, 8))}, grid=32, threadgroup=32)
    np.testing.assert_array_equal(found.outputs["out"], 3 * np.eye(8, dtype=np.float32) + 0.5)


GEMM = """
#include <metal_simdgroup_matrix>
// 16 x 16 tile of C per threadgroup of four SIMD-groups, K in steps of 8 through threadgroup memory.
threadgroup T ta[16][8], tb[8][16];
uint tid = thread_index_in_threadgroup, sg = simdgroup_index_in_threadgroup;
uint row = threadgroup_position_in_grid.y * 16, col = threadgroup_position_in_grid.x * 16;
simdgroup_float8x8 acc = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
for (uint k = 0; k < K; k += 8) {
    ta[tid / 8][tid % 8] = a[(row + tid / 8) * K + k + tid % 8];
    tb[tid / 16][tid % 16] = b[(k + tid / 16) * N + col + tid % 16];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<T, 8, 8> fa, fb;
    simdgroup_load(fa, &ta[sg / 2 * 8][0], 8);
    simdgroup_load(fb, &tb[0][sg % 2 * 8], 16);
    simdgroup_multiply_accumulate(acc, fa, fb, acc);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
simdgroup_store(acc, out + (row + sg / 2 * 8) * N + col + sg % 2 * 8, N);
"""
M, N, K = 32, 48, 40
TEMPLATE: dict[str, int | bool | str] = {"T": "float16", "N": N, "K": K}


def gemm(launch: Launcher, source: str) -> Any:
    a, b = operand("half", M, K), operand("half", K, N)
    found = launch(
        source,
        {"a": a, "b": b},
        {"out": ("float32", (M, N))},
        grid=(128 * (N // 16), M // 16, 1),
        threadgroup=128,
        template=TEMPLATE,
    )
    return found, a.astype(np.float64) @ b.astype(np.float64)


def test_a_tiled_gemm(launch: Launcher) -> None:
    found, expected = gemm(launch, GEMM)
    assert found.findings == ()
    np.testing.assert_allclose(found.outputs["out"], expected, atol=K * 2.0**-23)


@pytest.mark.parametrize("which", [0, 1])
def test_a_gemm_without_a_barrier_is_a_race(launch: Launcher, which: int) -> None:
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    parts = GEMM.split(barrier)
    source = barrier.join(parts[: which + 1]) + ";" + barrier.join(parts[which + 1 :])
    found, _ = gemm(launch, source)
    races = [f for f in found.findings if f.kind == "race"]
    assert races
    assert {f.line for f in races} <= {9, 10, 13, 14}


@pytest.mark.parametrize(("barrier", "racy"), [("", True), ("simdgroup_barrier(mem_flags::mem_threadgroup);", False)])
def test_store_then_load_of_one_simdgroup(launch: Launcher, barrier: str, racy: bool) -> None:
    source = f"""threadgroup float tile[64];
simdgroup_float8x8 m;
simdgroup_load(m, x, 8);
simdgroup_store(m, tile, 8);
{barrier}
simdgroup_load(m, tile, 8, 0, true);
simdgroup_store(m, out, 8);
thread_index_in_simdgroup;
"""
    found = launch(source, {"x": operand("float", 8, 8)}, {"out": ("float32", (8, 8))}, grid=32, threadgroup=32)
    assert (("race", 6) in seen(found.findings)) is racy
    assert bool(found.findings) is racy


def test_a_tile_that_leaves_its_array(launch: Launcher) -> None:
    source = (
        "simdgroup_float8x8 m;\nsimdgroup_load(m, x + 8 * thread_position_in_grid.y, 8);\nsimdgroup_store(m, out, 8);"
    )
    found = launch(source, {"x": operand("float", 8, 8)}, {"out": ("float32", (8, 8))}, grid=(32, 2, 1), threadgroup=32)
    out_of_range = [f for f in found.findings if f.kind == "out-of-range"]
    assert [(f.line, f.count) for f in out_of_range] == [(2, 8)]
    assert "x[6" in out_of_range[0].message


@pytest.mark.parametrize(
    "statement",
    ["simdgroup_load(m, x, 8);", "simdgroup_store(m, out, 8);", "simdgroup_multiply(m, m, m);"],
)
def test_lanes_that_are_elsewhere(launch: Launcher, statement: str) -> None:
    source = f"""simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(1.0f);
if (thread_index_in_simdgroup != 9) {{
    {statement}
}}
out[2 * thread_index_in_simdgroup] = m.thread_elements()[0];
"""
    found = launch(source, {"x": operand("float", 8, 8)}, {"out": ("float32", (64,))}, grid=32, threadgroup=32)
    inactive = [f for f in found.findings if f.kind == "divergence"]
    assert [f.line for f in inactive] == [3]
    assert "lane 9 is missing" in inactive[0].message


def test_a_short_simdgroup_has_no_matrix(launch: Launcher) -> None:
    source = "simdgroup_float8x8 m(1);\nsimdgroup_store(m, out, 8);\nthread_index_in_simdgroup;"
    found = launch(source, {}, {"out": ("float32", (8, 8))}, grid=16, threadgroup=32)
    assert ("divergence", 2) in seen(found.findings)
    assert "fewer threads" in found.findings[0].message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("simdgroup_matrix<float, 4, 4> m;", "8 by 8"),
        ("simdgroup_matrix<int, 8, 8> m;", "float, half or bfloat"),
        ("simdgroup_half8x8 m; simdgroup_load(m, x, 8);", "no matching function"),
        ("simdgroup_float8x8 m; float y[64]; simdgroup_load(m, y, 8);", "no matching function"),
        ("simdgroup_float8x8 m; simdgroup_store(m, x, 8);", "no matching function"),
    ],
)
def test_what_does_not_compile(launch: Launcher, source: str, words: str) -> None:
    assert words in launch.failure(source)[0]


def test_products_are_counted(counted: Launcher) -> None:
    a, b = operand("half", M, K), operand("half", K, N)
    kernel = counted.kernel(GEMM, {"a": a, "b": b}, {"out": ("float32", (M, N))}, "", TEMPLATE)
    compiled = compile_kernel(kernel, mode="counted", cache=counted.cache)
    assert isinstance(compiled, CompiledKernel), compiled
    grid = (128 * (N // 16), M // 16, 1)
    result = run(compiled, {"a": a, "b": b}, {}, grid=grid, threadgroup=(128, 1, 1))
    assert result.raw is not None
    products = M * N * K // 512
    assert int(result.raw.groups["matrix_simd_ops"].sum()) == products
    shape = LaunchShape(grid[0] * grid[1], 6, 128, a.nbytes + b.nbytes + 4 * M * N)
    counters = count(compiled.sites, compiled.blocks, result.raw, shape)
    assert counters.operations["matrix-multiply"] == products
    assert counters.arithmetic_operations == 2 * M * N * K
    # K / 8 products depend on each other.
    assert counters.longest_chain.steps["matrix-multiply"] == K // 8
