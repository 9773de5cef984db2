"""NaNs are told of where they are born, if they reach an output, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from metalsim import CompileFailure, FileOptions, Finding, Fresh, RunResult, examine_file, examine_kernel
from tests.unit.metalsim.launching import Launcher

N = 64
INDEX = "uint i = thread_position_in_grid.x;\n"


def examined(
    launch: Launcher,
    source: str,
    x: np.ndarray[Any, Any],
    outputs: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
) -> RunResult:
    kernel = launch.kernel(source, {"x": x}, outputs or {"out": ("float32", (N,))})
    result = examine_kernel(kernel, {"x": x}, grid=(N, 1, 1), threadgroup=(N, 1, 1), cache=launch.cache)
    assert not isinstance(result, CompileFailure), result.messages
    return result


def births(result: RunResult) -> list[Finding]:
    return [finding for finding in result.findings if finding.kind == "nan"]


def ramp(dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.arange(N).astype(dtype)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("x[i] / (x[i] * 0)", "0 / 0"),
        ("((x[i] + 1) / (x[i] * 0)) - (1.0f / (x[i] * 0))", "inf - inf"),
        ("log(x[i] - 5)", "log(-5)"),
        ("sqrt(-1 - x[i])", "sqrt(-1)"),
        ("pow(x[i] - 9, 0.3f)", "pow(-9, 0.3)"),
        ("fmod(x[i] + 1, x[i] * 0)", "fmod(1, 0)"),
        ("fma(x[i] * 0, 1 / (x[i] * 0), 2.0f)", "fma(0, inf, 2)"),
        ("acos(x[i] + 2)", "acos(2)"),
        ("simd_sum(i % 32 == 0 ? 1 / (x[i] * 0) : i % 32 == 16 ? -1 / (x[i] * 0) : 1)", "inf + -inf"),
    ],
)
def test_the_operation_and_its_operands_are_named(launch: Launcher, expression: str, words: str) -> None:
    result = examined(launch, f"{INDEX}float unused = x[i];\nout[i] = {expression};", ramp())
    found = births(result)
    assert [finding.line for finding in found][:1] == [3]
    assert found[0].message.startswith("thread 0 of threadgroup 0 computes ")
    assert any(words in finding.message for finding in found), found
    assert "out[0]" in found[0].message
    assert np.isnan(result.outputs["out"][0])


@pytest.mark.parametrize(
    ("kind", "dtype"), [("half", np.float16), ("bfloat", ml_dtypes.bfloat16), ("float", np.float32)]
)
def test_the_mark_survives_every_format(launch: Launcher, kind: str, dtype: Any) -> None:
    name = np.dtype(dtype).name
    source = f"""{INDEX}T z = x[i] * T(0.0f);
T q = z / z;
float wide = float(q) * 3.0f;
out[i] = T(wide);
""".replace("T", kind)
    result = examined(launch, source, ramp(dtype), {"out": (name, (N,))})
    assert [(f.line, f.kind) for f in result.findings] == [(3, "nan")]
    assert "0 / 0" in result.findings[0].message
    assert "and 63 more elements" in result.findings[0].message


def test_vectors_are_looked_at_by_component(launch: Launcher) -> None:
    source = f"{INDEX}float4 v = float4(1, x[i], 2, 3);\nfloat4 w = v / float4(x[i] * 0);\nout[i] = dot(w, w);"
    (found,) = births(examined(launch, source, ramp()))
    assert (found.line, "0 / 0" in found.message) == (3, True)


def test_what_is_selected_away_is_no_finding(launch: Launcher) -> None:
    """A masked softmax computes (-inf) - (-inf) and does not use it."""
    source = f"""{INDEX}float low = -1 / (x[i] * 0);
float shifted = low - low;
float bad = log(-1 - x[i]);
out[i] = isnan(shifted) ? x[i] : shifted;
if (i == 3) out[i] = bad;
"""
    (found,) = births(examined(launch, source, ramp()))
    assert found.line == 4
    clean = examined(launch, source.replace("if (i == 3)", "if (bad == 3)"), ramp())
    assert clean.findings == ()


def test_a_NaN_of_an_input_is_not_born_here(launch: Launcher) -> None:
    x = ramp()
    x[7] = np.nan
    result = examined(launch, f"{INDEX}out[i] = sqrt(x[i] * 2 + 1);", x)
    assert result.findings == ()
    assert np.isnan(result.outputs["out"][7])


def test_never_written_memory_is_no_birth(launch: Launcher) -> None:
    source = f"threadgroup float s[64];\n{INDEX}if (i < 32) s[i] = x[i];\nout[i] = s[i] * 2;"
    result = examined(launch, source, ramp())
    assert {f.kind for f in result.findings} == {"uninitialized"}
    partly = examined(launch, f"{INDEX}if (i < 32) out[i] = x[i];", ramp())
    assert {f.kind for f in partly.findings} == {"not-written"}


def test_the_first_place_comes_first(launch: Launcher) -> None:
    source = f"""{INDEX}float late, early;
if (i < 32) {{
  late = 0;
  early = x[i] * 0 / (x[i] * 0);
}} else {{
  late = sqrt(-x[i]);
  early = 0;
}}
out[i] = late + early;
"""
    assert [f.line for f in births(examined(launch, source, ramp()))] == [5, 7]


def test_births_by_atomics_and_matrices(launch: Launcher) -> None:
    source = f"""{INDEX}float big = (i & 1 ? 1.0f : -1.0f) / (x[i] * 0);
if (i == 0) out[0] = 0;
threadgroup_barrier(mem_flags::mem_device);
atomic_fetch_add_explicit((device atomic<float>*)out, big, memory_order_relaxed);
"""
    found = births(examined(launch, source, ramp(), {"out": ("float32", (1,))}))
    assert [f.line for f in found] == [5]
    source = """simdgroup_float8x8 a(1.0f), b, c(0.0f);
b = make_filled_simdgroup_matrix<float, 8, 8>(1 / (x[1] - 1));
simdgroup_multiply_accumulate(c, a, b, c);
simdgroup_store(c, out, 8);
"""
    found = births(examined(launch, source, ramp(), {"out": ("float32", (64,))}))
    assert [f.line for f in found] == [3]
    assert "fma(0, inf, inf)" in found[0].message or "fma(" in found[0].message


def test_births_in_a_file(launch: Launcher) -> None:
    text = """#include <metal_stdlib>
using namespace metal;
template <typename T> T safe(T a, T b) {
  return a / b;
}
kernel void shares(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  out[i] = safe(a[i], a[i]);
}
"""
    buffers = {0: ramp(), 1: Fresh("float32", (N,))}
    options = FileOptions()
    result = examine_file(
        text, "shares", buffers, grid=(N, 1, 1), threadgroup=(32, 1, 1), cache=launch.cache, options=options
    )
    assert not isinstance(result, CompileFailure)
    assert [(f.kind, f.line, f.place) for f in result.findings] == [("nan", 4, "kernel.metal")]
    assert result.findings[0].count == 1
