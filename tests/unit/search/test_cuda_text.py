"""Metal text rewritten for CUDA: what each rule writes, and what is refused by name. benchmarks/mlx_conformance.py
runs the result on a GPU."""

from __future__ import annotations

import re

import pytest

from metalsim.model import Argument, MlxKernel
from search.authors.block_author import BlockAuthor
from search.backends.cuda_text.rewrite import float_literal, rewrite_body, rewrite_header
from search.backends.cuda_text.source import CudaKernel, write_cuda_kernel
from search.backends.mlx_arrays import extents_of, kernel_of, tensors_of
from search.task import load_task

LANE = "const uint lane = thread_index_in_simdgroup;\n"


def kernel(body: str, header: str = "", **more: object) -> MlxKernel:
    arguments = (Argument("x", "float32", (64, 2)), Argument("n", "int32", ()))
    return MlxKernel("k", body, arguments, (Argument("y", "float16", (64,)),), header=header, **more)  # type: ignore[arg-type]


def written(body: str, *, grid: int = 64, group: int = 64, header: str = "") -> CudaKernel:
    return write_cuda_kernel(kernel(body, header), (grid, 1, 1), (group, 1, 1))


@pytest.mark.parametrize(
    ("metal", "cuda"),
    [
        ("threadgroup float tile[N * 2], more[4];", "__shared__ float tile[N * 2], more[4];"),
        ("threadgroup vec<T, 4> tile[2];", "__shared__ vec<T, 4> tile[2];"),
        ("threadgroup float* p = tile + 1;", " float* p = tile + 1;"),
        ("const device T* source = x;", "const  T* source = x;"),
        ("float a = 1.0 + 2.5e-3 + 3.f + 1;", "float a = 1.0f + 2.5e-3f + 3.f + 1;"),
        ("half a = 0.5h; bfloat b = 1.0bf;", "half a = half(0.5f); bfloat b = bfloat(1.0f);"),
        ("v.xy = w.zyx.xy;", "v.kx_set(kx_axes<0, 1>()) = w.kx_get(kx_axes<2, 1, 0>()).kx_get(kx_axes<0, 1>());"),
        ("f(v.rgb);", "f(v.kx_get(kx_axes<0, 1, 2>()));"),
        ("#pragma clang loop unroll(full)\nfor (;;) {}", "#pragma unroll\nfor (;;) {}"),
        ("#pragma clang loop unroll_count(4)\nx();", "#pragma unroll 4\nx();"),
        ("#include <metal_stdlib>\nx();", "\nx();"),
        ("// device threadgroup 1.0\nx();", "// device threadgroup 1.0\nx();"),
    ],
)
def test_each_rule(metal: str, cuda: str) -> None:
    assert rewrite_body(metal, "").text == cuda


def test_lines_stay_where_they_were() -> None:
    text = "threadgroup float a[4];\n[[unroll]]\n#include <x>\n#define K 2.0 \\\n  + 1.0\nx.xy = y;\n"
    assert rewrite_body(text, "").text.count("\n") == text.count("\n")


@pytest.mark.parametrize("literal", ["7", "0x1f", "12u", "0xEFul", "1'000"])
def test_integers_stay_integers(literal: str) -> None:
    assert float_literal(literal) == literal


def test_a_program_scope_constant_is_cudas_constant_memory_and_a_parameters_space_goes() -> None:
    text = rewrite_header(
        "constant float table[2] = {1.0, 2.0};\ninline float at(constant float* p) { return *p; }"
    ).text
    assert text.startswith("__constant__ float table[2] = {1.0f, 2.0f};")
    assert "at( float* p)" in text


def test_overloads_by_address_space_are_one_function() -> None:
    text = (
        "inline float at(const device float* p) { return *p; }\ninline float at(const constant float* p) { return *p; }"
    )
    assert rewrite_header(text).text.count("return") == 1


@pytest.mark.parametrize(
    "body",
    [
        "texture2d<float> t;",
        "simdgroup_event e;",
        "packed_float3 p;",
        "float4x4 m;",
        'asm("x");',
        "os_log_default.log();",
    ],
)
def test_what_has_no_counterpart_is_refused_by_name_and_line(body: str) -> None:
    refusals = written(f"\n{body}").refusals
    assert any("line 2" in line and re.findall(r"\w+", body)[0] in line for line in refusals)


def test_a_member_that_is_named_like_something_refused_is_not() -> None:
    assert not written("s.sampler = 1;").refusals


@pytest.mark.parametrize(
    "body",
    [
        "x = simd_sum(x);",
        LANE + "float own = f[lane];\nfor (int i = 0; i < n; i++) {\n    own += simd_shuffle_up(own, 1);\n}",
        "if (simdgroup_index_in_threadgroup == 0) { x = simd_sum(x); }",
        LANE + "if (lane == 0) { y[0] = 1; }\nx = simd_sum(x);",
        LANE + "const float below = simd_shuffle_up(v, 1);\nv = lane >= 1 ? v + below : v;",
        LANE + "for (uint i = lane; i < 64; i += 32) { t[i] = 0; }\nx = simd_max(x);",
    ],
)
def test_where_all_lanes_arrive_nobody_asks(body: str) -> None:
    assert "kx_active" not in rewrite_body(body, "").text


@pytest.mark.parametrize(
    "body",
    [
        LANE + "if (lane < 5) { x = simd_sum(x); }",
        LANE + "if (lane < 5) { a(); } else x = simd_sum(x);",
        LANE + "uint end = 3;\nif (lane > 2) { end = 4; }\nfor (uint i = 0; i < end; i++) { x = simd_sum(x); }",
        LANE + "for (uint i = lane; i < 99; i += 32) { x = simd_sum(x); }",
        LANE + "uint k = lane;\nwhile (k > 0) { k -= 1; simdgroup_barrier(mem_flags::mem_none); }",
        LANE + "x = lane > 3 ? simd_sum(x) : 0.0;",
        LANE + "for (int i = 0; i < 9; i++) {\n    if (lane == i) { break; }\n    x = simd_sum(x);\n}",
        LANE + "int limit = 0;\nfind(limit, lane);\nif (limit > 2) { x = simd_sum(x); }",
    ],
)
def test_where_lanes_may_be_missing_the_call_asks_who_is_there(body: str) -> None:
    header = "inline void find(thread int& limit, int row) { limit = row; }"
    assert re.search(r"simd\w+<kx_active>\(", rewrite_body(body, header).text)


@pytest.mark.parametrize(
    ("grid", "group", "body", "lanes"),
    [
        (128, 64, "x = simd_sum(x);", "kx_whole"),
        (100, 64, "x = simd_sum(x);", "kx_active"),
        (48, 48, "x = simd_sum(x);", "kx_active"),
        (3, 64, "x = simd_sum(x);", "kx_active"),
        (64, 64, LANE + "if (lane > 3) { return; }\nx = simd_sum(x);", "kx_active"),
        (64, 64, LANE + "if (lane > 3) { x = total(x); }", "kx_active"),
        (64, 64, "x = total(x);", "kx_whole"),
    ],
)
def test_who_takes_part_follows_from_launch_and_text(grid: int, group: int, body: str, lanes: str) -> None:
    header = "inline float total(float v) { return simd_sum(v); }"
    assert f"#define KX_LANES {lanes}\n" in written(body, grid=grid, group=group, header=header).header


def test_surplus_threads_of_a_rounded_grid_end_and_edges_have_their_own_size() -> None:
    text = written("y[thread_position_in_grid.x] = threads_per_threadgroup.x;", grid=100, group=64).header
    assert "if (blockIdx.x * blockDim.x + threadIdx.x >= 100u ||" in text
    assert "const uint3 kx_size = min(kx_full, kx_grid - kx_group * kx_full);" in text
    assert ">= 128u" not in written("y[0] = 0;", grid=128, group=64).header


def test_lanes_of_ragged_threadgroups_along_two_axes_are_refused() -> None:
    for body, refused in (("x = simd_sum(x);", True), ("y[thread_position_in_grid.x] = 0;", False)):
        refusals = write_cuda_kernel(kernel(body), (10, 10, 1), (8, 8, 1)).refusals
        assert bool(refusals) is refused


def test_signature_follows_mlx_and_hides_what_differs() -> None:
    made = written("y[0] = x[0] + n + x_shape[1] + x_strides[0] + x_ndim;")
    assert made.input_names == ("kx0", "kx1")
    assert "kx0_shape.data(), reinterpret_cast<const long*>(kx0_strides.data()), kx0_ndim, *kx1" in made.source
    assert "reinterpret_cast<kx_metal::half*>(kx_out0)" in made.source
    assert (
        "const float* x, const int* x_shape, const int64_t* x_strides, int x_ndim, const int32_t n, half* y"
        in made.header
    )


def test_name_tells_the_text_apart() -> None:
    one, other = written("y[0] = 1;"), written("y[0] = 2;")
    assert one.name != other.name
    assert one == written("y[0] = 1;")


def test_template_arguments_are_lines_of_the_text() -> None:
    made = write_cuda_kernel(
        kernel("y[0] = T(N);", template={"T": "bfloat16", "N": 4, "FLAG": True}), (32,) * 3, (32, 1, 1)
    )
    assert all(
        line in made.header for line in ("using T = bfloat;", "constexpr int N = 4;", "constexpr bool FLAG = true;")
    )


def test_matrices_rename_the_lanes_and_need_whole_simdgroups() -> None:
    body = "simdgroup_float8x8 m;\nsimdgroup_load(m, x);\ny[thread_index_in_simdgroup] = 0;"
    assert "#define KX_MATRIX_LANES 1" in written(body).header
    assert "kx_renamed(threadIdx.x)" in written(body).header
    assert "whole SIMD-groups" in written(body, grid=48, group=48).refusals[0]


def test_every_edit_of_the_seed_is_rewritten_for_every_case() -> None:
    task = load_task("mamba_scan")
    author = BlockAuthor(task)
    for edit in author.edits(task.seed):
        program = author.write(task.seed, edit)
        for case in (task.workloads[0], task.twins[1], task.twins[4]):
            for stage in program.stages:
                metal = kernel_of(stage, case, tensors_of(program, task))
                made = write_cuda_kernel(
                    metal, extents_of(stage.grid, case.dims), extents_of(stage.threadgroup, case.dims)
                )
                assert not made.refusals
                assert not re.search(
                    r"\b(?:device|threadgroup|thread) ", made.header.split('"header"')[1].split("//")[0]
                )
