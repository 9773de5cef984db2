"""What counted launches report, against counts by hand."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from metalsim import GROUP_COUNTS, SITE_COUNTS, CompileFailure, compile_kernel, run
from metalsim.build import abi
from tests.unit.metalsim.launching import Launcher

X = np.arange(4096, dtype=np.float32)


def counts(counted: Launcher, source: str, grid: int, threadgroup: int, **options: Any) -> tuple[Any, Any, Any]:
    """``(sites by kind and line, groups, raw)`` of a body over ``x`` and ``out`` (4096 floats)."""
    kernel = counted.kernel(source, {"x": X}, {"out": ("float32", (4096,))})
    compiled = compile_kernel(kernel, mode="counted", cache=counted.cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    result = run(compiled, {"x": X}, {}, grid=(grid, 1, 1), threadgroup=(threadgroup, 1, 1), **options)
    assert result.raw is not None
    sites: dict[tuple[str, int], Any] = {}
    for site in compiled.sites:
        one = {name: int(result.raw.sites[site.index][name]) for name in SITE_COUNTS.names or ()}
        earlier = sites.get((site.kind, site.line), dict.fromkeys(one, 0))
        sites[site.kind, site.line] = {name: earlier[name] + value for name, value in one.items()}
    return sites, result.raw.groups, result.raw


@pytest.mark.parametrize(
    ("index", "lines"), [("i", 1), ("i + 1", 2), ("i * 2", 2), ("i * 32", 32), ("0", 1), ("31 - i", 1)]
)
def test_lines_of_a_simdgroup_access(counted: Launcher, index: str, lines: int) -> None:
    source = f"uint i = thread_position_in_grid.x;\nfloat v = x[{index}];\nout[i] = v;"
    sites, groups, _ = counts(counted, source, 32, 32)
    load = sites["load", 2]
    assert (load["device_accesses"], load["device_bytes"], load["device_simd_accesses"]) == (32, 128, 1)
    assert load["device_lines"] == lines == groups[0]["device_lines_read"]
    assert groups[0]["device_bytes_written"] == 128


@pytest.mark.parametrize(
    ("index", "cycles"), [("i", 1), ("i * 2", 2), ("i * 32", 32), ("i * 33", 1), ("0", 1), ("(i & 1) * 32", 2)]
)
def test_bank_conflicts(counted: Launcher, index: str, cycles: int) -> None:
    source = f"threadgroup float s[2048];\nuint i = thread_position_in_grid.x;\nfloat v = s[{index}];\nout[i] = v;"
    sites, groups, _ = counts(counted, source, 32, 32)
    load = sites["load", 3]
    assert (load["threadgroup_accesses"], load["threadgroup_simd_accesses"]) == (32, 1)
    assert load["threadgroup_bank_cycles"] == cycles
    assert groups[0]["threadgroup_bytes"] == 8192


def test_a_vector_load_is_one_access(counted: Launcher) -> None:
    source = (
        "uint i = thread_position_in_grid.x;\nfloat4 v = ((const device float4*)x)[i];\nout[i] = v.x + v.y + v.z + v.w;"
    )
    sites, _, _ = counts(counted, source, 64, 64)
    load = sites["load", 2]
    assert (load["device_accesses"], load["device_bytes"], load["device_lines"]) == (64, 1024, 8)


def test_a_loop_matches_lanes_by_iteration(counted: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
float s = 0;
for (int k = 0; k < 10; k++)
  s += x[k * 32 + i];
out[i] = s;
"""
    sites, groups, _ = counts(counted, source, 32, 32)
    assert sites["load", 4]["device_lines"] == sites["load", 4]["device_simd_accesses"] == 10
    assert groups[0]["device_lines_read"] == 10


def test_synchronization_and_simd_operations(counted: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
float v = simd_sum(x[i]) + simd_prefix_inclusive_sum(x[i]);
threadgroup_barrier(mem_flags::mem_none);
float4 w = simd_shuffle_xor(float4(v), 1);
simdgroup_barrier(mem_flags::mem_none);
v += simd_broadcast(w.x + w.y + w.z + w.w, 3) + float(simd_all(v > 0));
threadgroup_barrier(mem_flags::mem_none);
out[i] = v;
"""
    _, groups, _ = counts(counted, source, 128, 64)
    assert len(groups) == 2
    for group in groups:
        assert (group["threads"], group["barriers"], group["simd_barriers"]) == (64, 2, 2)
        assert (group["reduction_simd_ops"], group["prefix_simd_ops"], group["vote_simd_ops"]) == (2, 2, 2)
        assert (group["shuffle_simd_ops"], group["shuffle_lanes"], group["broadcast_simd_ops"]) == (8, 256, 2)


def test_blocks_are_counted_per_thread_and_sampled_threadgroup(counted: Launcher) -> None:
    source = """\
uint i = thread_position_in_grid.x;
float s = 0;
for (uint k = 0; k < i; k++)
  s = s * x[k] + 1;
out[i] = s;
"""
    _, groups, raw = counts(counted, source, 40, 16, threadgroups=[0, 2])
    assert raw.threadgroups.tolist() == [0, 2]
    assert raw.block_counts.shape[0] == 2
    assert groups["threads"].tolist() == [16, 8]
    totals = raw.block_counts.max(axis=1)
    assert totals[0, 15] == 15
    assert totals[1, :8].tolist() == list(range(32, 40))
    assert not totals[1, 8:].any()


def test_constant_accesses_are_separate(counted: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] = float(x_shape[0]);"
    sites, _, _ = counts(counted, source, 32, 32)
    load = sites["load", 2]
    assert (load["constant_accesses"], load["constant_bytes"], load["device_accesses"]) == (32, 128, 0)


def test_a_wild_access_does_not_crash_a_counted_launch(counted: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] = x[i + 100000000u];"
    kernel = counted.kernel(source, {"x": X}, {"out": ("float32", (4096,))})
    compiled = compile_kernel(kernel, mode="counted", cache=counted.cache)
    assert not isinstance(compiled, CompileFailure)
    result = run(compiled, {"x": X}, {}, grid=(32, 1, 1), threadgroup=(32, 1, 1))
    assert [(f.kind, f.line) for f in result.findings] == [("out-of-range", 2)]


def test_python_and_c_agree_on_the_structures(counted: Launcher) -> None:
    kernel = counted.kernel("out[0] = x[0];", {"x": X}, {"out": ("float32", (4096,))})
    compiled = compile_kernel(kernel, mode="counted", cache=counted.cache)
    assert not isinstance(compiled, CompileFailure)
    sizes = (ctypes.c_uint32 * 5)()
    ctypes.CDLL(str(compiled.library)).msim_struct_bytes(sizes)
    ours = [ctypes.sizeof(s) for s in (abi.BufferSpec, abi.Event, abi.Launch)]
    assert list(sizes) == [*ours, SITE_COUNTS.itemsize, GROUP_COUNTS.itemsize]
