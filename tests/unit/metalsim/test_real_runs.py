"""What went wrong when kernels that others wrote were run, each as a small kernel of ours."""

from __future__ import annotations

import numpy as np
import pytest

from metalsim import CompileFailure, RunResult, compile_file, run_file
from metalsim.build.instrument import instrument
from tests.unit.metalsim.launching import Launcher

# SIMD-group 0 scans 32 partial sums, though a small threadgroup has written only the first ones.
SCAN = """
threadgroup float sums[32];
uint i = thread_position_in_threadgroup.x;
uint lane = thread_index_in_simdgroup, simdgroup = simdgroup_index_in_threadgroup;
float prefix = simd_prefix_inclusive_sum(x[i]);
if (lane == 31) sums[simdgroup] = prefix;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (simdgroup == 0) sums[lane] = simd_prefix_exclusive_sum(sums[lane]);
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = prefix + SELECTED;
"""

# The greatest of four partial results, of which only two were written.
MAXIMUM = """
threadgroup KIND best[4];
uint i = thread_position_in_threadgroup.x;
KIND most = simd_max(x[i]);
if (thread_index_in_simdgroup == 0) best[simdgroup_index_in_threadgroup] = most;
threadgroup_barrier(mem_flags::mem_threadgroup);
KIND all = best[0];
for (int k = 1; k < COUNT; k++) all = max(all, best[k]);
out[i] = all;
"""


def _scan(launch: Launcher, selected: str) -> RunResult:
    x = np.arange(96, dtype=np.float32)
    source = SCAN.replace("SELECTED", selected)
    return launch(source, {"x": x}, {"out": ("float32", (96,))}, grid=96, threadgroup=96)


def test_reading_unwritten_threadgroup_memory_was_reported_though_nothing_depends_on_it(launch: Launcher) -> None:
    result = _scan(launch, "sums[simdgroup]")
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], np.cumsum(np.arange(96, dtype=np.float32)))


def test_reading_unwritten_threadgroup_memory_is_reported_where_results_depend_on_it(launch: Launcher) -> None:
    result = _scan(launch, "sums[31 - simdgroup]")
    assert {(f.kind, f.line) for f in result.findings} == {("uninitialized", 8)}
    assert "sums[3]" in result.findings[0].message


@pytest.mark.parametrize("kind", ["float", "int", "half", "uint"])
def test_a_maximum_over_unwritten_memory_is_reported_for_every_type(launch: Launcher, kind: str) -> None:
    names = {"float": "float32", "int": "int32", "half": "float16", "uint": "uint32"}
    x = np.arange(64).astype(names[kind])
    for count, expected in (("4", {"uninitialized"}), ("2", set())):
        source = MAXIMUM.replace("KIND", kind).replace("COUNT", count)
        result = launch(source, {"x": x}, {"out": (names[kind], (64,))}, grid=64, threadgroup=64)
        assert {f.kind for f in result.findings} == expected


def test_outputs_are_those_of_the_launch_with_the_given_seed_after_it_was_repeated(launch: Launcher) -> None:
    source = MAXIMUM.replace("KIND", "int").replace("COUNT", "4")
    x = np.full(64, np.iinfo(np.int32).min, np.int32)
    seen = [
        launch(source, {"x": x}, {"out": ("int32", (64,))}, grid=64, threadgroup=64, seed=3).outputs["out"]
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*seen)


# Thread 0 of both threadgroups reads what thread 0 of the second one then overwrites.
SHARED_FLAG = """
#include <metal_stdlib>
using namespace metal;
kernel void publish(device float* flag [[buffer(0)]], device float* out [[buffer(1)]],
                    uint g [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  if (t == 0) {
    out[g] = flag[0];
    if (g == 1) flag[0] = 2.0f;
  }
}
"""


def test_a_read_by_the_same_thread_of_another_threadgroup_was_forgotten(launch: Launcher) -> None:
    compiled = compile_file(SHARED_FLAG, "publish", mode="checked", cache=launch.cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    buffers = {"flag": np.ones(1, np.float32), "out": np.zeros(2, np.float32)}
    result = run_file(compiled, buffers, grid=(64, 1, 1), threadgroup=(32, 1, 1))
    assert [(f.kind, f.line) for f in result.findings] == [("race", 8)]
    assert "threadgroup 0" in result.findings[0].message
    assert "threadgroup 1" in result.findings[0].message


# A load-and-store loop that clang turns into vector operations, some of them without a line of their own.
PARTIAL_SUMS = """
#include <metal_stdlib>
using namespace metal;
struct Adder {
  static void run(const device float* x, device float* out, threadgroup float* partial, uint lane, uint simdgroup) {
    float result[2] = {0};
    for (int k = 0; k < 2; k++) result[k] = simd_sum(x[simdgroup * 64 + k * 32 + lane]);
    threadgroup float* own = partial + simdgroup * 2;
    if (lane == 0) {
      for (int k = 0; k < 2; k++) own[k] = result[k];
      threadgroup_barrier(mem_flags::mem_none);
      if (simdgroup == 0) {
        for (int other = 1; other < 4; other++)
          for (int k = 0; k < 2; k++) result[k] += own[other * 2 + k];
        for (int k = 0; k < 2; k++) out[k] = result[k];
      }
    }
  }
};
kernel void add(const device float* x [[buffer(0)]], device float* out [[buffer(1)]],
                uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[8];
  Adder::run(x, out, partial, lane, simdgroup);
}
"""


def test_a_race_through_a_pointer_into_threadgroup_memory_tells_its_line(launch: Launcher) -> None:
    compiled = compile_file(PARTIAL_SUMS, "add", mode="checked", cache=launch.cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    result = run_file(
        compiled,
        {"x": np.ones(256, np.float32), "out": np.zeros(2, np.float32)},
        grid=(128, 1, 1),
        threadgroup=(128, 1, 1),
    )
    np.testing.assert_array_equal(result.outputs["out"], [128, 128])
    races = [f for f in result.findings if f.kind == "race"]
    assert races
    assert all(9 <= f.line <= 15 and f.place == "kernel.metal" for f in races)


def test_an_access_whose_line_the_optimizer_dropped_had_none() -> None:
    text = """\
define void @kernel(ptr %p, ptr %q) {
  %a = load float, ptr %p, align 4, !dbg !4
  %b = load float, ptr %q, align 4, !dbg !5
  store float %a, ptr %q, align 4
  store float %b, ptr %p, align 4, !dbg !6
  ret void
}
!1 = !DIFile(filename: "body", directory: "")
!2 = distinct !DISubprogram(name: "kernel", scope: !1, file: !1, line: 1)
!4 = !DILocation(line: 3, column: 1, scope: !2)
!5 = !DILocation(line: 0, column: 0, scope: !2)
!6 = !DILocation(line: 7, column: 1, scope: !2)
"""
    sites = instrument(text, mode="checked").sites
    assert [(site.kind, site.place, site.line) for site in sites] == [
        ("load", "body", 3),
        ("load", "body", 3),
        ("store", "body", 7),
        ("store", "body", 7),
    ]


# The arguments of the instances follow from the types of their parameters.
DEDUCED = """
#include <metal_stdlib>
using namespace metal;
template <int N> struct Sizes { int size[N]; };
template <typename T, int N>
[[kernel]] void product(const constant Sizes<N>* sizes [[buffer(0)]], device T* out [[buffer(1)]]) {
  int p = 1;
  for (int i = 0; i < N; i++) p *= sizes->size[i];
  out[0] = T(p);
}
template [[host_name("product_3")]] [[kernel]] void product(
    const constant Sizes<3>* sizes [[buffer(0)]], device float* out [[buffer(1)]]);
template [[host_name("product_2_int")]] [[kernel]] void product(
    const constant Sizes<2>* sizes [[buffer(0)]], device int* out [[buffer(1)]]);
"""


@pytest.mark.parametrize(("entry", "expected"), [("product_3", np.float32(30)), ("product_2_int", np.int32(6))])
def test_an_instantiation_without_template_arguments_was_lost(
    launch: Launcher, entry: str, expected: np.generic
) -> None:
    compiled = compile_file(DEDUCED, entry, mode="checked", cache=launch.cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    buffers = {"sizes": np.array([2, 3, 5], np.int32), "out": np.zeros(1, expected.dtype)}
    result = run_file(compiled, buffers, grid=(1, 1, 1), threadgroup=(1, 1, 1))
    assert result.findings == ()
    assert result.outputs["out"][0] == expected
