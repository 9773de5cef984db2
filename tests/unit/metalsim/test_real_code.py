"""Small kernels for what did not compile, or was reported wrongly, in code that others wrote."""

from __future__ import annotations

from typing import Any

from metalsim import CompiledFile, CompileFailure, FileOptions, Fresh, compile_file, run_file
from metalsim.file import kernel_families
from tests.unit.metalsim.launching import Launcher

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def built(launch: Launcher, text: str, entry: str = "k", options: FileOptions | None = None) -> CompiledFile:
    compiled = compile_file(HEAD + text, entry, mode="checked", cache=launch.cache, options=options)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    return compiled


def outputs(launch: Launcher, text: str, count: int, **buffers: Any) -> list[float]:
    """What kernel ``k`` writes to ``float* o``, one thread for each element."""
    buffers["o"] = Fresh("float32", (count,))
    result = run_file(built(launch, text), buffers, grid=(count, 1, 1), threadgroup=(count, 1, 1))
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
