"""Each planted fault is reported by kind and line; the kernel without it is clean."""

from __future__ import annotations

import numpy as np
import pytest

from metalsim import Limits
from tests.unit.metalsim.launching import Launcher, seen
from tests.unit.metalsim.test_numerics import SOFTMAX

N = 64
X = {"x": np.arange(N, dtype=np.float32)}
OUT = {"out": ("float32", (N,))}

# Reverses the threadgroup's elements through threadgroup memory.
REVERSE = """\
threadgroup float tile[64];
uint i = thread_position_in_threadgroup.x;
tile[i] = x[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = tile[63 - i];
"""


def test_a_clean_kernel_has_no_findings(launch: Launcher) -> None:
    result = launch(REVERSE, X, OUT, grid=N, threadgroup=N)
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], X["x"][::-1])


@pytest.mark.parametrize(
    "barrier",
    [
        ";",
        "threadgroup_barrier(mem_flags::mem_none);",
        "threadgroup_barrier(mem_flags::mem_device);",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
    ],
)
def test_too_weak_a_barrier_is_a_race(launch: Launcher, barrier: str) -> None:
    source = REVERSE.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", barrier)
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert ("race", 5) in seen(result.findings) or ("race", 3) in seen(result.findings)
    assert "tile[" in result.findings[0].message


def test_a_simdgroup_barrier_suffices_within_a_simdgroup(launch: Launcher) -> None:
    source = REVERSE.replace("threadgroup_barrier", "simdgroup_barrier").replace("63 - i", "i ^ 1")
    assert launch(source, X, OUT, grid=N, threadgroup=N).findings == ()


def test_write_after_read_needs_a_barrier_too(launch: Launcher) -> None:
    source = REVERSE + "tile[i] = 0;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[i] += tile[i];"
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert ("race", 6) in seen(result.findings)
    assert any(f.line == 6 and f.also_lines for f in result.findings if f.kind == "race")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("out[i] = x[i + 1];", "x[64]"),
        ("out[i] = x[int(i) - 1];", "x[-1]"),
        ("out[i] = i < 63 ? x[i] : x[i + 1000000];", "x[1000063]"),
        ("out[i + 1] = x[i]; out[0] = 0;", "out[64]"),
        ("out[i] = x[i - 1u];", "x[4294967295]"),
    ],
)
def test_device_indexes_out_of_range(launch: Launcher, statement: str, words: str) -> None:
    source = "uint i = thread_position_in_grid.x;\n" + statement
    result = launch(source, X, OUT, grid=N, threadgroup=1)
    found = [f for f in result.findings if f.kind == "out-of-range"]
    assert [f.line for f in found] == [2]
    assert words in found[0].message


@pytest.mark.parametrize(
    "statement",
    [
        "tile[i][8] = 1;",  # a column too many: stays inside the array
        "tile[i + 1][i] = 1;",  # a row too many
        "int k = int(i) - 1; tile[k][0] = 1;",
        "float own[4]; own[i] = 1; tile[0][0] = own[i & 3];",
    ],
)
def test_array_indexes_out_of_range(launch: Launcher, statement: str) -> None:
    source = f"threadgroup float tile[8][8];\nuint i = thread_position_in_threadgroup.x;\n{statement}\nout[i] = x[i];"
    result = launch(source, X, {"out": ("float32", (8,))}, grid=8, threadgroup=8)
    assert ("out-of-range", 3) in seen(result.findings)


def test_from_one_threadgroup_array_into_its_neighbour(launch: Launcher) -> None:
    source = """\
threadgroup float a[16], b[16];
uint i = thread_position_in_threadgroup.x;
b[i] = 1;
threadgroup float *p = a;
p[i + 16] = x[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = b[i];
"""
    result = launch(source, X, {"out": ("float32", (16,))}, grid=16, threadgroup=16)
    assert seen(result.findings) == {("out-of-range", 5)}
    assert "a[16]" in result.findings[0].message
    np.testing.assert_array_equal(result.outputs["out"], np.ones(16, np.float32))


def test_a_write_to_an_input(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\n((device float*)x)[i] = 1;\nout[i] = x[i];"
    assert ("read-only", 2) in seen(launch(source, X, OUT, grid=N, threadgroup=N).findings)


def test_an_early_return_before_a_barrier(launch: Launcher) -> None:
    source = REVERSE.replace("tile[i] = x[i];", "tile[i] = x[i]; if (i == 63) { out[0] = tile[63]; return; }")
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert ("divergence", 4) in seen(result.findings)
    assert "ended" in result.findings[0].message


def test_a_barrier_in_one_branch(launch: Launcher) -> None:
    source = """\
uint i = thread_position_in_threadgroup.x;
if (i < 7) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = 1;
} else {
  out[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
"""
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert ("divergence", 3) in seen(result.findings)


def test_a_shuffle_from_a_lane_that_ended(launch: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
if (i >= 20) { out[i] = 0; return; }
out[i] = simd_shuffle_down(x[i], 1);
"""
    result = launch(source, X, {"out": ("float32", (32,))}, grid=32, threadgroup=32)
    assert seen(result.findings) == {("divergence", 3)}
    assert "lane 20" in result.findings[0].message
    assert np.isnan(result.outputs["out"][19])


def test_a_shuffle_in_a_branch(launch: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
float v = x[i];
if (i < 16) v = simd_shuffle_xor(v, 16);
out[i] = v;
"""
    result = launch(source, X, {"out": ("float32", (32,))}, grid=32, threadgroup=32)
    assert ("divergence", 3) in seen(result.findings)


HISTOGRAM = "uint i = thread_position_in_grid.x;\nout[int(x[i]) / 16] += 1;"


def test_a_histogram_without_atomics(launch: Launcher) -> None:
    small = {"out": ("float32", (4,))}
    within = launch(HISTOGRAM, X, small, grid=N, threadgroup=N, init_value=0.0)
    assert seen(within.findings) == {("race", 2)}
    across = launch(HISTOGRAM, X, small, grid=N, threadgroup=1, init_value=0.0)
    assert ("race", 2) in seen(across.findings)
    assert "threadgroup 1" in across.findings[0].message


def test_a_histogram_with_atomics(launch: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
atomic_fetch_add_explicit((device atomic<float>*)out + int(x[i]) / 16, 1.0, memory_order_relaxed);
"""
    result = launch(source, X, {"out": ("float32", (4,))}, grid=N, threadgroup=8, init_value=0.0)
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], np.full(4, 16, np.float32))


@pytest.mark.parametrize("which", range(SOFTMAX.count("threadgroup_barrier")))
def test_every_barrier_of_a_softmax_is_missed_when_it_is_gone(launch: Launcher, which: int) -> None:
    parts = SOFTMAX.split("threadgroup_barrier(mem_flags::mem_threadgroup);")
    source = "threadgroup_barrier(mem_flags::mem_threadgroup);".join(parts[: which + 1]) + ";".join(
        ["", "threadgroup_barrier(mem_flags::mem_threadgroup);".join(parts[which + 1 :])]
    )
    x = {"x": np.random.default_rng(0).standard_normal((1, 100)).astype(np.float32)}
    options = {"grid": 96, "threadgroup": 96, "template": {"T": "float32"}}
    result = launch(source, x, {"out": ("float32", (1, 100))}, **options)
    assert "race" in {f.kind for f in result.findings}


def test_device_memory_within_a_threadgroup(launch: Launcher) -> None:
    source = """\
uint i = thread_position_in_threadgroup.x;
out[i] = x[i];
threadgroup_barrier(mem_flags::FLAG);
float v = out[63 - i];
threadgroup_barrier(mem_flags::mem_device);
out[i] = v;
"""
    good = launch(source.replace("FLAG", "mem_device"), X, OUT, grid=N, threadgroup=N)
    assert good.findings == ()
    bad = launch(source.replace("FLAG", "mem_threadgroup"), X, OUT, grid=N, threadgroup=N)
    assert any(f.kind == "race" and f.line in (2, 4) for f in bad.findings)


def test_threadgroup_memory_that_was_never_written(launch: Launcher) -> None:
    source = "threadgroup float s[64];\nuint i = thread_position_in_threadgroup.x;\nout[i] = s[i] + x[i];"
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert seen(result.findings) == {("uninitialized", 3)}


def test_threadgroup_memory_does_not_survive_a_threadgroup(launch: Launcher) -> None:
    source = """\
threadgroup float s[1];
if (threadgroup_position_in_grid.x == 0) s[0] = x[0];
threadgroup_barrier(mem_flags::mem_threadgroup);
out[threadgroup_position_in_grid.x] = s[0];
"""
    result = launch(source, X, {"out": ("float32", (2,))}, grid=2, threadgroup=1)
    assert seen(result.findings) == {("uninitialized", 4)}


def test_outputs_that_were_never_written(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nif (i % 2 == 0) out[i] = x[i];"
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert seen(result.findings) == {("not-written", 0)}
    assert "32 elements" in result.findings[0].message
    assert "out[1]" in result.findings[0].message
    assert np.isnan(result.outputs["out"][1::2]).all()


def test_an_output_read_before_it_is_written(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] += x[i];"
    assert ("uninitialized", 2) in seen(launch(source, X, OUT, grid=N, threadgroup=N).findings)
    assert launch(source, X, OUT, grid=N, threadgroup=N, init_value=1.0).findings == ()


def test_a_load_behind_a_condition_is_not_hoisted(launch: Launcher) -> None:
    """The optimizer turned the branch into a select, so that all lanes seemed to read s[0]."""
    source = """\
threadgroup float s[64];
uint i = thread_position_in_threadgroup.x;
if (i == 5) s[0] = x[5];
float v = i == 5 ? s[0] : 1.0f;
out[i] = v;
"""
    assert launch(source, X, OUT, grid=N, threadgroup=N).findings == ()


def test_bytes_of_one_word_are_different_elements(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\n((device uchar*)out)[i] = uchar(i);"
    result = launch(source, X, {"out": ("uint32", (16,))}, grid=N, threadgroup=N)
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"].view(np.uint8), np.arange(N))


def test_limits(launch: Launcher) -> None:
    source = "threadgroup float s[8193];\nuint i = thread_position_in_grid.x;\ns[i] = x[i];\nout[i] = s[i];"
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert seen(result.findings) == {("limit", 0)}
    assert result.threadgroup_bytes == 32772
    source = "out[thread_position_in_grid.x] = x[0];"
    result = launch(source, X, OUT, grid=N, threadgroup=2048)
    assert ("limit", 0) in seen(result.findings)
    limits = Limits(max_buffers=1)
    assert ("limit", 0) in seen(launch(source, X, OUT, grid=N, threadgroup=N, limits=limits).findings)
    result = launch(source, X, {"out": ("float32", (2048,))}, grid=2048, threadgroup=2048)
    assert result.threadgroups_run == 0
    assert seen(result.findings) == {("limit", 0)}


def test_faults_of_the_processor_end_the_launch(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nint d = int(x[0]);\nout[i] = float(int(i + 1) / d);"
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert any(f.kind == "crash" and "divides" in f.message for f in result.findings)
    source = """\
uint i = thread_position_in_grid.x;
float big[200000];
for (int k = 0; k < 200000; k++) big[k] = x[(k + i) % 64];
out[i] = big[int(x[i])];
"""
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert any(f.kind == "crash" and "thread memory" in f.message for f in result.findings)


def test_a_wild_pointer_ends_the_launch(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] = *(const device float*)(ulong(i) * 4096 + 16);"
    result = launch(source, X, OUT, grid=N, threadgroup=N)
    assert ("out-of-range", 2) in seen(result.findings)


def test_counts_of_repeated_faults(launch: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] = x[i + 32];"
    (finding,) = launch(source, X, OUT, grid=N, threadgroup=N).findings
    assert finding.count == 32


def test_outside_the_sample_nothing_is_unwritten(launch: Launcher) -> None:
    source = "out[thread_position_in_grid.x] = x[thread_position_in_grid.x];"
    result = launch(source, X, OUT, grid=N, threadgroup=8, threadgroups=[0, 7])
    assert result.findings == ()
    assert (result.threadgroups_total, result.threadgroups_run) == (8, 2)
    assert np.isnan(result.outputs["out"][8:56]).all()
    np.testing.assert_array_equal(result.outputs["out"][56:], X["x"][56:])
