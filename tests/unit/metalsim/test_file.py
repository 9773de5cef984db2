"""Whole .metal files: signatures, templates, function constants, includes, several kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from metalsim import (
    CompiledFile,
    CompileFailure,
    FileOptions,
    Fresh,
    LaunchOptions,
    ReadOnly,
    RunResult,
    compile_file,
    list_kernels,
    run_file,
)
from metalsim.errors import InputError
from tests.unit.metalsim.launching import Launcher, seen

FILE = """\
#include <metal_stdlib>
#include <metal_simdgroup>
using namespace metal;

constant float weights[4] = {1.0, 2.0, 3.0, 4.0};
constant bool flip [[function_constant(0)]];
constant int extra [[function_constant(1 + 1)]];
constant bool both = flip && is_function_constant_defined(extra);

namespace util {
struct Args { uint n; float scale; };
template <typename T> struct Pair {
    T a, b;
    Pair(T x, T y) thread : a(x), b(y) {}
    Pair(T x, T y) device : a(x), b(y) {}
    T sum() const thread { return a + b; }
    T sum() const device { return a + b; }
};
inline float twice(constant const int factors[2], float x) { return factors[0] * x; }
}

template <typename T, int WIDTH>
[[kernel]] void reverse(
    device T* out [[buffer(2)]],
    const device T* a [[buffer(0)]],
    constant util::Args& args [[buffer(1)]],
    threadgroup T* tile [[threadgroup(0)]],
    ushort t [[thread_index_in_threadgroup]],
    uint3 p [[thread_position_in_grid]]) {
  tile[t] = a[p.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  util::Pair<T> pair(tile[WIDTH - 1 - t], T(1));
  T more = both ? T(extra) : T(0);
  if (p.x < args.n) out[p.x] = pair.sum() * T(args.scale) + T(weights[t % 4]) + more;
}
#define instantiate(name, type) \\
  template [[host_name("reverse_" #name)]] [[kernel]] decltype(reverse<type, 32>) reverse<type, 32>;
instantiate(float, float)
instantiate(half, half)
template [[host_name("reverse_old_style")]] kernel void reverse<float, 16>(
    device float*, const device float*, constant util::Args&, threadgroup float*, ushort, uint3);

namespace sums {
kernel void total(device atomic_uint* sum, const device uint* x, constant int factors[2],
                  uint i [[thread_position_in_grid]], uint2 g [[threads_per_grid]]) {
  atomic_fetch_add_explicit(sum, uint(util::twice(factors, x[i])) + (g.x - g.x), memory_order_relaxed);
}
}
"""
ARGS = np.array([(64, 2.0)], dtype=[("n", np.uint32), ("scale", np.float32)])
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0])


@pytest.fixture
def compiled(launch: Launcher) -> Any:
    def compile_it(source: str | Path, entry: str, **options: Any) -> CompiledFile:
        result = compile_file(source, entry, mode="checked", cache=launch.cache, options=FileOptions(**options))
        assert isinstance(result, CompiledFile), result
        return result

    return compile_it


def failure(launch: Launcher, source: str, entry: str = "k") -> tuple[str, ...]:
    result = compile_file(source, entry, mode="checked", cache=launch.cache)
    assert isinstance(result, CompileFailure), result
    return result.messages


def launched(kernel: CompiledFile, a: np.ndarray[Any, Any], dtype: Any, elements: int = 32) -> RunResult:
    options = LaunchOptions(threadgroup_lengths={0: elements * a.itemsize})
    buffers = {"a": a, 1: ARGS, 2: Fresh(dtype, a.shape)}
    return run_file(kernel, buffers, grid=(a.size, 1, 1), threadgroup=(32, 1, 1), options=options)


@pytest.mark.parametrize(
    ("entry", "dtype"),
    [("reverse_float", "float32"), ("reverse_half", "float16"), ("reverse<bfloat, 32>", "bfloat16")],
)
@pytest.mark.parametrize(
    ("constants", "more"), [({0: True, "extra": 7}, 7), ({0: True}, 0), ({"flip": False, 2: 7}, 0)]
)
def test_instances_and_function_constants(
    compiled: Any, entry: str, dtype: str, constants: dict[int | str, Any], more: int
) -> None:
    kernel = compiled(FILE, entry, constants=constants)
    a = np.arange(64).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    result = launched(kernel, a, dtype)
    assert result.findings == ()
    reversed_tiles = np.arange(64.0).reshape(2, 32)[:, ::-1].ravel()
    expected = (reversed_tiles + 1) * 2 + np.tile(WEIGHTS, 16) + more
    np.testing.assert_array_equal(result.outputs["out"].astype(np.float64), expected)
    assert [c.defined for c in kernel.constants] == [
        0 in constants or "flip" in constants,
        bool(more) or 2 in constants,
    ]


def test_all_kernels_are_listed(launch: Launcher) -> None:
    names = list_kernels(FILE, cache=launch.cache)
    assert names == ("sums::total", "reverse_float", "reverse_half", "reverse_old_style")


def test_buffers_without_index_count_up(compiled: Any) -> None:
    kernel = compiled(FILE, "total")
    assert [(p.name, p.index) for p in kernel.parameters] == [
        ("sum", 0), ("x", 1), ("factors", 2), ("i", -1), ("g", -1),
    ]  # fmt: skip
    buffers = {0: np.zeros(1, np.uint32), 1: np.arange(50, dtype=np.uint32), 2: np.array([3, 9], np.int32)}
    result = run_file(kernel, buffers, grid=(50, 1, 1), threadgroup=(32, 1, 1))
    assert result.findings == ()
    assert result.outputs["sum"][0] == 3 * 49 * 50 // 2
    assert buffers[0][0] == 0


def test_a_threadgroup_argument_that_is_too_short(compiled: Any) -> None:
    result = launched(compiled(FILE, "reverse_float"), np.arange(64, dtype=np.float32), "float32", elements=30)
    lines = FILE.splitlines()
    writes = lines.index("  tile[t] = a[p.x];") + 1
    assert ("out-of-range", writes) in seen(result.findings)
    assert result.findings[0].place == "kernel.metal"
    assert "tile[30]" in result.findings[0].message


def test_a_missing_barrier_in_a_file(compiled: Any) -> None:
    source = FILE.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", "")
    result = launched(compiled(source, "reverse_float"), np.arange(64, dtype=np.float32), "float32")
    assert "race" in {f.kind for f in result.findings}


def test_an_old_style_instantiation_uses_its_own_arguments(compiled: Any) -> None:
    # WIDTH is 16, so the threads from 16 on index below the tile.
    result = launched(compiled(FILE, "reverse_old_style"), np.arange(64, dtype=np.float32), "float32")
    assert "out-of-range" in {f.kind for f in result.findings}


def test_includes_macros_and_lines(launch: Launcher, compiled: Any, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "scale.h").write_text("#pragma once\ninline float scale(float x) {\n  return FACTOR * x;\n}\n")
    (tmp_path / "near.h").write_text("inline void put(device float* out, uint i, float x) {\n  out[i] = x;\n}\n")
    path = tmp_path / "scaled.metal"
    path.write_text(
        '#include <metal_stdlib>\n#include "lib/scale.h"\n#include "near.h"\n#include <scale.h>\n'
        "kernel void k(device float* out, const device float* x, uint i [[thread_position_in_grid]]) {\n"
        "  put(out, i + SHIFT, scale(x[i]));\n}\n"
    )
    x = np.arange(8, dtype=np.float32)

    def result(shift: str) -> RunResult:
        kernel = compiled(path, "k", include=[tmp_path / "lib"], macros={"FACTOR": "3.0", "SHIFT": shift})
        return run_file(kernel, {0: Fresh("float32", (8,)), 1: x}, grid=(8, 1, 1), threadgroup=(8, 1, 1))

    np.testing.assert_array_equal(result("0").outputs["out"], 3 * x)
    (finding,) = (f for f in result("1").findings if f.kind == "out-of-range")
    assert (finding.place, finding.line) == ("near.h", 2)
    message = compile_file(path, "k", mode="checked", cache=launch.cache)
    assert isinstance(message, CompileFailure)
    found = "scaled.metal:4: 'scale.h' file not found; looked in the file's own folder, Metal's headers"
    assert message.messages == (found,)


@pytest.mark.parametrize(
    ("source", "entry", "words"),
    [
        (FILE, "nothing", "kernels: sums::total, reverse_float"),
        (FILE, "reverse", "is a template; name an instance: reverse_float"),
        ("kernel void k(device float* a) {\n  a[0] = b;\n}", "k", "kernel.metal:2: use of undeclared identifier 'b'"),
        (
            "\nkernel void k(texture2d<float> t [[texture(0)]]) {}",
            "k",
            "kernel.metal:2: metalsim does not support textures (texture2d)",
        ),
        ("kernel void k(device float* a) {\n  threadgroup float* p = a;\n}", "k", "kernel.metal:2: cannot initialize"),
        ("kernel void k(device float* a) {\n\n  double d = 1; }", "k", "kernel.metal:3: Metal has no 'double'"),
        ('#include "gone.h"\n', "k", "kernel.metal:1: 'gone.h' file not found"),
    ],
)
def test_what_does_not_compile(launch: Launcher, source: str, entry: str, words: str) -> None:
    assert words in failure(launch, source, entry)[0]


def test_unknown_and_missing_bindings(compiled: Any) -> None:
    kernel = compiled(FILE, "reverse_float")
    with pytest.raises(InputError, match="no buffer 'b'"):
        run_file(kernel, {"b": ARGS}, grid=(1, 1, 1), threadgroup=(1, 1, 1),
                 options=LaunchOptions(threadgroup_lengths={0: 4}))  # fmt: skip
    with pytest.raises(InputError, match="threadgroup argument 0 tile of 0 bytes"):
        run_file(kernel, {}, grid=(1, 1, 1), threadgroup=(1, 1, 1))
    with pytest.raises(InputError, match="read-only"):
        run_file(kernel, {"a": Fresh("float32", (1,))}, grid=(1, 1, 1), threadgroup=(1, 1, 1),
                 options=LaunchOptions(threadgroup_lengths={0: 4}))  # fmt: skip


def test_a_buffer_that_is_not_bound_is_out_of_range(compiled: Any) -> None:
    options = LaunchOptions(threadgroup_lengths={0: 128})
    result = run_file(
        compiled(FILE, "reverse_float"), {1: ARGS, 2: Fresh("float32", (32,))},
        grid=(32, 1, 1), threadgroup=(32, 1, 1), options=options,
    )  # fmt: skip
    assert "out-of-range" in {f.kind for f in result.findings}


def test_matrix_types(compiled: Any) -> None:
    source = """kernel void k(device float4* out, uint i [[thread_position_in_grid]]) {
  float4x4 m(2.0f);
  m[1][0] = 5;
  half4x4 h(m);
  out[0] = m * float4(1, 2, 3, 4);
  out[1] = float4(1, 2, 3, 4) * float4x4(h);
  out[2] = transpose(m)[0];
  out[3] = (m * m)[1];
}"""
    result = run_file(compiled(source, "k"), {0: Fresh("float32", (4, 4))}, grid=(1, 1, 1), threadgroup=(1, 1, 1))
    m = 2 * np.eye(4)
    m[0, 1] = 5
    v = np.array([1, 2, 3, 4])
    np.testing.assert_array_equal(result.outputs["out"], [m @ v, v @ m, m[0], (m @ m)[:, 1]])


def test_counted_mode(launch: Launcher) -> None:
    kernel = compile_file(FILE, "total", mode="counted", cache=launch.cache)
    assert isinstance(kernel, CompiledFile)
    buffers = {0: np.zeros(1, np.uint32), 1: np.arange(64, dtype=np.uint32), 2: np.array([1, 0], np.int32)}
    result = run_file(kernel, buffers, grid=(64, 1, 1), threadgroup=(32, 1, 1))
    assert result.raw is not None
    assert int(result.raw.groups["device_bytes_read"].sum()) == 64 * (4 + 4)
    assert {site.place for site in kernel.sites} >= {"kernel.metal"}


def test_constructs_of_real_files(compiled: Any) -> None:
    """Conditionals of vectors in two spaces, initialized threadgroup arrays, macros in pragmas, array references."""
    source = """#include <metal_stdlib>
using namespace metal;
#define LEAST(x, y) ((x) < (y) ? (x) : (y))
inline void double_all(thread float4 (&values)[2]) {
  #pragma unroll (LEAST(2, 4))
  for (int i = 0; i < 2; i++) values[i] *= 2;
}
kernel void k(device float4* out, const device float4* x, uint i [[thread_position_in_grid]]) {
  threadgroup float4 tile[4] = {0};
  tile[i] = i < 3 ? x[i] : float4(7);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float4 both[2] = {i > 0 ? float4(1) : tile[0], float4(static_cast<bfloat>(half(i)))};
  double_all(both);
  out[i] = both[0] + both[1] + tile[i];
}"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = run_file(compiled(source, "k"), {0: Fresh("float32", (4, 4)), 1: x}, grid=(4, 1, 1), threadgroup=(4, 1, 1))
    assert result.findings == ()
    tile = np.vstack([x, np.full((1, 4), 7.0)])
    first = np.vstack([x[:1], np.ones((3, 4))])
    np.testing.assert_array_equal(result.outputs["out"], 2 * first + 2 * np.arange(4)[:, None] + tile)


def test_template_arguments_of_the_options_make_an_instance(launch: Launcher) -> None:
    text = """template <typename T, int N, bool TWICE = false>
kernel void f(device T* out, uint i [[thread_position_in_grid]]) { out[i] = T(i * N * (TWICE ? 2 : 1)); }
"""
    for template, factor in (({"T": "float16", "N": 3}, 3), ({"N": 5, "T": "float", "TWICE": True}, 10)):
        compiled = compile_file(text, "f", mode="checked", cache=launch.cache, options=FileOptions(template=template))
        assert isinstance(compiled, CompiledFile)
        dtype = "float16" if factor == 3 else "float32"
        result = run_file(compiled, {"out": Fresh(dtype, (8,))}, grid=(8, 1, 1), threadgroup=(8, 1, 1))
        np.testing.assert_array_equal(result.outputs["out"], np.arange(8) * factor)
    failed = compile_file(text, "f", mode="checked", cache=launch.cache, options=FileOptions(template={"N": 5}))
    assert isinstance(failed, CompileFailure)
    assert "takes the template arguments T, N, TWICE" in failed.messages[0]


def test_a_write_to_a_read_only_array_is_found_where_the_parameter_allows_it(launch: Launcher) -> None:
    text = """kernel void f(device int* x, device int* out, uint i [[thread_position_in_grid]]) {
  out[i] = x[i];
  x[i] = 0;
}"""
    compiled = compile_file(text, "f", mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile)
    x = np.arange(8, dtype=np.int32)
    result = run_file(compiled, {"x": ReadOnly(x), 1: Fresh("int32", (8,))}, grid=(8, 1, 1), threadgroup=(8, 1, 1))
    assert {(f.kind, f.line) for f in result.findings} == {("read-only", 3)}
    assert set(result.outputs) == {"out"}


@pytest.mark.parametrize("name", ["transpose", "rotate", "reverse_bits", "dot"])
def test_a_kernel_may_have_the_name_of_a_library_function(launch: Launcher, name: str) -> None:
    text = f"""#include <metal_stdlib>
using namespace metal;
kernel void {name}(device uint* out, uint i [[thread_position_in_grid]]) {{ out[i] = i; }}
"""
    compiled = compile_file(text, name, mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile), compiled.messages


def test_a_function_constants_index_that_is_no_integer(launch: Launcher) -> None:
    text = "constant int mode [[function_constant(0.0f)]];\nkernel void k(device int* out) { out[0] = mode; }\n"
    assert isinstance(compile_file(text, "k", mode="checked", cache=launch.cache), CompiledFile | CompileFailure)


@pytest.mark.parametrize(
    "text",
    [
        "kernel void k(device int* out, uint [[thread_position_in_grid]]) { out[0] = 1; }",
        "kernel void k(device int* out [[buffer(0)]], [[thread_position_in_grid]]) { out[0] = 1; }",
        "constant bool b K[function_constant(0)]];\nkernel void k(device int* out) { out[0] = b; }",
        "[[function_constant(0)]];\nkernel void k(device int* out) { out[0] = 1; }",
    ],
)
def test_odd_declarations_are_left_to_the_compiler(launch: Launcher, text: str) -> None:
    result = compile_file(text, "k", mode="checked", cache=launch.cache)
    assert isinstance(result, CompileFailure) == (", [[" in text or "bool b" in text)


def test_threadgroup_memory_beyond_any_address_is_a_compile_failure(launch: Launcher) -> None:
    body = "threadgroup float a[1ul << 36]; threadgroup float b[4]; a[t] = b[t] = 1; out[t] = b[3 - t] + a[t + 1];"
    text = f"kernel void k(device float* out, uint t [[thread_position_in_threadgroup]]) {{ {body} }}\n"
    failure = compile_file(text, "k", mode="checked", cache=launch.cache)
    assert isinstance(failure, CompileFailure)
    assert failure.messages == ("threadgroup arrays, constants or code are too large for any address",)


@pytest.mark.parametrize("opening", ["namespace a {", "struct a {"])
def test_deep_nesting_is_a_compile_failure(launch: Launcher, opening: str) -> None:
    text = opening * 1500 + "}" * 1500 + ";\nkernel void k(device int* out) { out[0] = 1; }\n"
    failure = compile_file(text, "k", mode="checked", cache=launch.cache)
    assert isinstance(failure, CompileFailure)
    assert failure.messages == ("namespaces, classes or brackets are nested too deeply",)


def test_a_lone_surrogate_is_a_compile_failure(launch: Launcher) -> None:
    failure = compile_file("// \udcff\n", "k", mode="checked", cache=launch.cache)
    assert isinstance(failure, CompileFailure)
    assert failure.messages == ("kernel.metal:1: not UTF-8",)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("x[i + 1]", "x[16], outside its 16 elements"),
        ("float4(x[i + 1].y)", "x[16][1], outside its 16 elements"),
    ],
)
def test_an_index_counts_in_the_vectors_that_the_kernel_indexes(launch: Launcher, index: str, words: str) -> None:
    text = f"""#include <metal_stdlib>
using namespace metal;
kernel void shift(device const float4* x, device float4* out, uint i [[thread_position_in_grid]]) {{
  out[i] = {index};
}}
"""
    compiled = compile_file(text, "shift", mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile)
    x = np.zeros((16, 4), np.float32)
    result = run_file(compiled, {0: x, 1: Fresh("float32", (16, 4))}, grid=(16, 1, 1), threadgroup=(16, 1, 1))
    (finding,) = result.findings
    assert (finding.kind, finding.line) == ("out-of-range", 4)
    assert words in finding.message


def test_a_buffer_index_beyond_the_table_is_a_limit(launch: Launcher) -> None:
    text = "kernel void f(device float* out [[buffer(31)]], uint i [[thread_position_in_grid]]) { out[i] = 0; }"
    compiled = compile_file(text, "f", mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile)
    result = run_file(compiled, {31: Fresh("float32", (4,))}, grid=(4, 1, 1), threadgroup=(4, 1, 1))
    assert [(f.kind, f.message) for f in result.findings] == [("limit", "32 buffer arguments; the limit is 31")]
