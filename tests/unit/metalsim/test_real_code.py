"""Small kernels for what did not compile, or was reported wrongly, in code that others wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from metalsim import CompiledFile, CompileFailure, FileOptions, Fresh, compile_file, run_file
from metalsim.build.file import kernel_families
from tests.unit.metalsim.launching import Launcher

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def built(launch: Launcher, text: str, entry: str = "k", options: FileOptions | None = None) -> CompiledFile:
    compiled = compile_file(HEAD + text, entry, mode="checked", cache=launch.cache, options=options)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    return compiled


def outputs(launch: Launcher, text: str, count: int, **buffers: Any) -> list[float]:
    """What kernel ``k`` writes to ``float* o``, one thread for each element."""
    arguments: dict[int | str, Any] = {"o": Fresh("float32", (count,))}
    arguments.update(buffers.items())
    result = run_file(built(launch, text), arguments, grid=(count, 1, 1), threadgroup=(count, 1, 1))
    assert not result.findings
    return [float(value) for value in result.outputs["o"]]


def test_list_shorter_than_its_vector_is_filled_with_zeros(launch: Launcher) -> None:
    text = """kernel void k(device float* o, uint i [[thread_position_in_grid]]) {
      uint4 a = {1, i, i ^ 3};
      float4 b = {float2(a.xy), 5};
      const int2 c = {7};
      o[i] = b[i] + a[i] * 10 + (i < 2 ? c[i] * 100 : 0);
    }"""
    assert outputs(launch, text, 4) == [711.0, 11.0, 15.0, 0.0]


UNUSED = """
template <typename T> struct Unused { T value = missing_name; };
template <typename T> T unused(T x) { return also_missing(x); }
template <typename T> T used(T x) {
#pragma unroll
    for (int i = 0; i < 2; i++) x += 1;
    return x;
}
kernel void other(device float* o [[buffer(0)]]) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 2; i++) o[i] = nobody_knows(i);
}
kernel void k(device float* o, uint i [[thread_position_in_grid]]) { o[i] = used(float(i)); }
"""


def test_other_kernels_and_unused_templates_do_not_matter(launch: Launcher) -> None:
    assert outputs(launch, UNUSED, 3) == [2.0, 3.0, 4.0]
    broken = compile_file(HEAD + UNUSED, "other", mode="checked", cache=launch.cache)
    assert isinstance(broken, CompileFailure)
    assert "kernel.metal:13" in broken.messages[0]
    assert "nobody_knows" in broken.messages[0]


def test_faulty_function_fails_every_kernel(launch: Launcher) -> None:
    text = HEAD + "float helper(float x) { return nobody_knows(x); }\nkernel void k(device float* o) { o[0] = 1; }"
    broken = compile_file(text, "k", mode="checked", cache=launch.cache)
    assert isinstance(broken, CompileFailure)
    assert "kernel.metal:3" in broken.messages[0]


def test_specializations_stay_with_their_template(launch: Launcher) -> None:
    text = """
    template <typename T> struct Scale { static constexpr constant float value = 1; };
    template <> struct Scale<half> { static constexpr constant float value = 3; };
    template <typename T> struct Scale<T*> { static constexpr constant float value = 5; };
    template <typename T> float scaled(T x) { return x * Scale<T>::value; }
    template <> float scaled<int>(int x) { return x * Scale<thread float*>::value; }
    kernel void k(device float* o, uint i [[thread_position_in_grid]]) {
      o[i] = scaled(float(i)) + scaled(half(i)) * 10 + scaled(int(i)) * 100;
    }"""
    assert outputs(launch, text, 3) == [0.0, 531.0, 1062.0]


def test_families_of_a_file(launch: Launcher) -> None:
    text = """
    template <typename T> kernel void fill(device T* o, uint i [[thread_position_in_grid]]) { o[i] = T(i); }
    template [[host_name("fill_f")]] kernel decltype(fill<float>) fill<float>;
    template [[host_name("fill_h")]] kernel decltype(fill<half>) fill<half>;
    kernel void k(device float* o) { o[0] = 1; }"""
    assert kernel_families(HEAD + text, cache=launch.cache) == {"fill": ("fill_f", "fill_h"), "k": ("k",)}


def test_conditional_between_elements_of_two_spaces(launch: Launcher) -> None:
    text = """
    struct Pair { float a, b; };
    constant Pair start[1] = {{7, 1}};
    kernel void k(device float* o, const device float* x, uint i [[thread_position_in_threadgroup]]) {
      threadgroup Pair shared[2];
      if (i < 2) shared[i] = Pair{x[i], 1};
      threadgroup_barrier(mem_flags::mem_threadgroup);
      Pair chosen = i < 2 ? shared[i] : start[0];
      float y = i < 2 ? shared[i].a : x[i];
      o[i] = chosen.a + y;
    }"""
    assert outputs(launch, text, 4, x=np.arange(4, dtype=np.float32)) == [0.0, 2.0, 9.0, 10.0]


def test_conditional_of_one_space_stays_assignable(launch: Launcher) -> None:
    text = """kernel void k(device float* o, device float* x, uint i [[thread_position_in_threadgroup]]) {
      float a[2] = {1, 2}, b[2] = {3, 4};
      (i > 1 ? a[i % 2] : b[i % 2]) += 10;
      thread float& last = i == 3 ? a[0] : b[0];
      last += 100;
      o[i] = a[0] + a[1] + b[0] + b[1] + x[i];
    }"""
    assert outputs(launch, text, 4, x=np.zeros(4, np.float32)) == [120.0] * 4


def test_deleted_functions_are_no_delete_expressions(launch: Launcher) -> None:
    text = """
    template <typename A, typename B> B convert(A) = delete;
    template <> inline float convert<int, float>(int x) { return float(x) + 0.5f; }
    struct Fixed { float x; Fixed() = delete; Fixed(float y) : x(y) {} };
    kernel void k(device float* o, uint i [[thread_position_in_grid]]) {
      Fixed fixed(2);
      assert(fixed.x > 1);
      o[i] = convert<int, float>(int(i)) * fixed.x;
    }"""
    assert outputs(launch, text, 3) == [1.0, 3.0, 5.0]


def test_trait_of_what_simd_functions_take(launch: Launcher) -> None:
    text = """
    template <typename T> constexpr constant bool taken = __is_valid_simdgroup_type<T>::value;
    static_assert(taken<float> && taken<half> && taken<bfloat> && taken<uchar> && taken<int4>, "");
    static_assert(!taken<long> && !taken<bool>, "");
    kernel void k(device float* o, uint i [[thread_position_in_grid]]) { o[i] = taken<float2>; }"""
    assert outputs(launch, text, 2) == [1.0, 1.0]


def test_constructor_with_and_without_an_address_space_is_one(launch: Launcher) -> None:
    text = """
    template <typename T> struct Best {
      T m; float d;
      constexpr Best() = default;
      constexpr Best() threadgroup = default;
      float sum() const threadgroup { return float(m) + d; }
      float sum() const { return float(m) + d; }
    };
    kernel void k(device float* o, const device float* x, uint i [[thread_position_in_threadgroup]]) {
      threadgroup Best<float> shared[4];
      Best<float> own;
      own.m = x[i];
      own.d = 1;
      shared[i] = own;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      o[i] = shared[3 - i].sum() + own.sum();
    }"""
    assert outputs(launch, text, 4, x=np.arange(4, dtype=np.float32)) == [5.0] * 4


def test_hint_to_unroll_changes_no_result(launch: Launcher) -> None:
    text = """
    kernel void k(device float* o, uint i [[thread_position_in_grid]]) {
      float part[4];
    #pragma clang loop unroll(full)
      for (int j = 0; j < 4; j++) part[j] = j * i;
      float sum = 0;
    #pragma unroll(4)
      for (int j = 0; j < 4; j++) sum += part[j];
      o[i] = sum + __LINE__;
    }"""
    assert outputs(launch, text, 3) == [11.0, 17.0, 23.0]
    compiled = compile_file(HEAD + text, "k", mode="plain", cache=launch.cache)
    assert not isinstance(compiled, CompileFailure)
    result = run_file(compiled, {"o": Fresh("float32", (3,))}, grid=(3, 1, 1), threadgroup=(3, 1, 1))
    assert list(result.outputs["o"]) == [11.0, 17.0, 23.0]


def test_limits_of_a_type_of_the_kernels_own(launch: Launcher) -> None:
    text = """
    template <typename T> struct Indexed { uint i; T value; };
    namespace metal {
    template <typename T> struct _numeric_limits_impl<Indexed<T>> {
      static constexpr Indexed<T> lowest() { return Indexed<T>{7, numeric_limits<T>::lowest()}; }
    };
    }
    template <typename T> constexpr T start() { return numeric_limits<T>::lowest(); }
    kernel void k(device float* o, uint i [[thread_position_in_grid]]) {
      Indexed<half> best = start<Indexed<half>>();
      o[i] = best.i + float(best.value);
    }"""
    assert outputs(launch, text, 2) == [7.0 - 65504.0] * 2


def test_methods_told_apart_by_a_comparison_in_their_template_are_both_kept(launch: Launcher) -> None:
    header = """
template <typename U> struct Halved {
  template <typename T, metal::enable_if_t<sizeof(T) < 4, bool> = true> T of(T v) thread { return v / T(4); }
  template <typename T, metal::enable_if_t<sizeof(T) == 4, bool> = true> T of(T v) thread { return v / T(2); }
};
"""
    source = """\
Halved<float> halved;
uint i = thread_position_in_grid.x;
out[i] = halved.of(x[i]) + float(halved.of(half(x[i])));
"""
    x = np.arange(8, dtype=np.float32)
    result = launch(source, {"x": x}, {"out": ("float32", (8,))}, grid=8, threadgroup=8, header=header)
    np.testing.assert_array_equal(result.outputs["out"], x * 0.75)
