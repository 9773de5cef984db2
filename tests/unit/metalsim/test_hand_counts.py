"""Counts of kernels of different kinds, each against an analysis by hand.

Every docstring works out what the kernel must do; the test asks that the counters say the same. A line is 128 bytes,
a SIMD-group 32 lanes. In chains, ``device-load`` and ``threadgroup-load`` are rounds of waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metalsim import CompileFailure, compile_kernel, run
from metalsim.estimate.counters import Counters, LaunchShape, count, counters_to_json
from tests.unit.metalsim.launching import Launcher

Extent = tuple[int, int, int]
Arrays = dict[str, np.ndarray[Any, Any]]
CHAIN_NOISE = {"branch", "compare-select", "int32", "int-shift", "int-multiply", "int64", "address", "store", "convert"}
"""Classes of index arithmetic and loop control, which the analyses leave out."""


def counters_of(
    launcher: Launcher,
    source: str,
    inputs: Arrays,
    output: tuple[str, tuple[int, ...]],
    grid: Extent,
    threadgroup: Extent,
    atomic: bool = False,
) -> Counters:
    kernel = launcher.kernel(source, inputs, {"out": output})
    if atomic:
        kernel = replace(kernel, atomic_outputs=True)
    compiled = compile_kernel(kernel, mode="counted", cache=launcher.cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    result = run(compiled, inputs, {}, grid=grid, threadgroup=threadgroup, init_value=0.0)
    assert result.raw is not None
    assert not result.findings
    size = sum(array.nbytes for array in (*inputs.values(), *result.outputs.values()))
    shape = LaunchShape(int(np.prod(grid)), result.threadgroups_total, result.threads_per_threadgroup, size)
    return count(compiled.sites, compiled.blocks, result.raw, shape)


def assert_told(counters: Counters, **expected: float) -> None:
    told = counters_to_json(counters)
    assert {name: told[name] for name in expected} == expected


def chain_of(counters: Counters) -> Mapping[str, float]:
    return {name: steps for name, steps in counters.longest_chain.steps.items() if name not in CHAIN_NOISE}


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).uniform(0.1, 1.0, shape).astype(np.float32)


def test_copy_with_a_ragged_tail(counted: Launcher) -> None:
    """1000 threads in threadgroups of 256: three full ones and one of 232, which is 7 SIMD-groups and one of 8 lanes.

    Bytes: 1000 loads and 1000 stores of 4. SIMD-groups: 3 * 8 + 8 = 32, each loads and stores once: 64 accesses.
    A full one covers 32 * 4 = 128 bytes from a multiple of 128 on, so every access touches one line: 64 lines.
    Without a barrier each SIMD-group is one segment: 32 lines read, 32 written. A thread waits once, for its load.
    """
    source = "uint i = thread_position_in_grid.x;\nout[i] = x[i];"
    counters = counters_of(counted, source, {"x": floats(1000)}, ("float32", (1000,)), (1000, 1, 1), (256, 1, 1))
    assert_told(
        counters, threads=1000, threadgroups=4, device_bytes_read=4000, device_bytes_written=4000,
        device_simd_accesses=64, device_lines=64, device_lines_per_simd_access=1, segments=32,
        segment_device_lines_read=32, segment_device_lines_written=32, device_lines_per_segment=2,
        threadgroup_device_lines=64, barriers=0, arithmetic_operations=0, transcendental_operations=0,
    )  # fmt: skip
    assert chain_of(counters) == {"device-load": 1}


def test_strided_copy(counted: Launcher) -> None:
    """256 threads read every 16th float: 64 bytes apart, so that two lanes share a line.

    A SIMD-group's load spans 32 * 64 = 2048 bytes: 16 lines; its store is packed: 1 line. 8 SIMD-groups: 16 accesses,
    8 * (16 + 1) = 136 lines, though lanes ask for only 2048 bytes of the 136 * 128 = 17408 that move.
    """
    source = "uint i = thread_position_in_grid.x;\nout[i] = x[i * 16];"
    counters = counters_of(counted, source, {"x": floats(4096)}, ("float32", (256,)), (256, 1, 1), (256, 1, 1))
    assert_told(
        counters, device_bytes_read=1024, device_bytes_written=1024, device_simd_accesses=16, device_lines=136,
        device_lines_per_simd_access=8.5, segment_device_lines_read=128, segment_device_lines_written=8,
    )  # fmt: skip
    assert counters.coalescing == 2048 / 17408


def test_float4_copy(counted: Launcher) -> None:
    """128 threads copy 16 bytes each: 2048 bytes in, 2048 out, by 4 SIMD-groups.

    One load of a SIMD-group covers 32 * 16 = 512 bytes, 4 lines: 8 accesses, 32 lines. A vector load is one access.
    """
    source = """\
uint i = thread_position_in_grid.x;
((device float4*)out)[i] = ((const device float4*)x)[i];
"""
    counters = counters_of(counted, source, {"x": floats(512)}, ("float32", (512,)), (128, 1, 1), (128, 1, 1))
    assert_told(
        counters, device_bytes_read=2048, device_bytes_written=2048, device_simd_accesses=8, device_lines=32,
        device_lines_per_simd_access=4, segment_device_lines_read=16, segment_device_lines_written=16,
    )  # fmt: skip


def test_reduction_by_simd_sum_and_threadgroup_memory(counted: Launcher) -> None:
    """Two threadgroups of 256 threads sum 256 floats each.

    Per threadgroup: 8 SIMD-groups load a line each and reduce; lane 0 of each writes 4 bytes to threadgroup memory
    (8 accesses, 32 bytes); one barrier; the first SIMD-group's first 8 lanes read those 32 bytes (1 access), reduce
    once more, and lane 0 stores 4 bytes (1 line). So 9 reductions, 9 device accesses of a line, 9 accesses of
    threadgroup memory of one cycle each. Segments: the barrier splits the first SIMD-group's work in two, the other
    seven touch device memory only before it: 9. Chain of the first SIMD-group: load, reduce, barrier, threadgroup
    load, reduce.
    """
    source = """\
threadgroup float partial[8];
uint lane = thread_index_in_simdgroup, s = simdgroup_index_in_threadgroup;
float v = simd_sum(x[thread_position_in_grid.x]);
if (lane == 0) partial[s] = v;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (s == 0) {
    v = simd_sum(lane < 8 ? partial[lane] : 0.0f);
    if (lane == 0) out[threadgroup_position_in_grid.x] = v;
}
"""
    counters = counters_of(counted, source, {"x": floats(512)}, ("float32", (2,)), (512, 1, 1), (256, 1, 1))
    assert_told(
        counters, device_bytes_read=2 * 1024, device_bytes_written=2 * 4, device_simd_accesses=2 * 9,
        device_lines=2 * 9, segments=2 * 9, segment_device_lines_read=2 * 8, segment_device_lines_written=2,
        threadgroup_bytes_written=2 * 32, threadgroup_bytes_read=2 * 32, threadgroup_memory_bytes=32,
        bank_cycles=2 * 9, bank_conflict_cycles=0, barriers=2, simd_barriers=0, reductions=2 * 9, shuffles=0,
    )  # fmt: skip
    assert chain_of(counters) == {"device-load": 1, "simd-reduction": 2, "barrier": 1, "threadgroup-load": 1}


@pytest.mark.parametrize(("width", "cycles"), [(32, 32), (33, 1)])
def test_tiled_transpose_with_and_without_padding(counted: Launcher, width: int, cycles: int) -> None:
    """A 64 by 64 matrix in four tiles of 32 by 32; threadgroups of 32 by 8 threads, 4 rows per thread.

    Per threadgroup each of the 8 SIMD-groups loads 4 rows of a tile (a row is 32 * 4 = 128 bytes, one line), stores
    them to threadgroup memory (32 neighbouring words, one cycle), and after the barrier reads 4 columns and stores
    them as rows. So 32 loads and 32 stores of one line; 32 + 32 threadgroup accesses of 128 bytes, 4096 bytes each
    way. A column of rows of 32 words lies in one bank: 32 cycles, 31 too many; with rows of 33 words lane k is in bank
    33 k mod 32 = k: one cycle.
    """
    source = f"""\
threadgroup float tile[32][{width}];
uint2 at = thread_position_in_threadgroup.xy, group = threadgroup_position_in_grid.xy;
for (uint j = 0; j < 32; j += 8)
    tile[at.y + j][at.x] = x[(group.y * 32 + at.y + j) * 64 + group.x * 32 + at.x];
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint j = 0; j < 32; j += 8)
    out[(group.x * 32 + at.y + j) * 64 + group.y * 32 + at.x] = tile[at.x][at.y + j];
"""
    counters = counters_of(counted, source, {"x": floats(4096)}, ("float32", (4096,)), (64, 16, 1), (32, 8, 1))
    assert_told(
        counters, threadgroups=4, device_bytes_read=4 * 4096, device_bytes_written=4 * 4096,
        device_simd_accesses=4 * 64, device_lines=4 * 64, threadgroup_bytes_written=4 * 4096,
        threadgroup_bytes_read=4 * 4096, threadgroup_memory_bytes=32 * width * 4,
        bank_cycles=4 * (32 + 32 * cycles), bank_conflict_cycles=4 * 32 * (cycles - 1), barriers=4,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "kind", "size"), [("float32", "float", 4), ("float16", "half", 2)])
def test_matrix_product_by_simdgroup_matrix(counted: Launcher, dtype: str, kind: str, size: int) -> None:
    """64 by 64 by 64, one SIMD-group per 8 by 8 tile of the result: 64 SIMD-groups, 8 products of 8x8 each.

    Products: 64 * 8 = 512, each 2 * 8^3 = 1024 floating-point operations: 2 * 64^3 = 524288 in all; the 8 of a
    SIMD-group depend on each other. Bytes: 2 * 8 tiles of 64 elements are loaded by each SIMD-group, 64 * 16 * 64 =
    65536 elements; one tile is stored, 64 * 64 = 4096. A tile has 8 rows, 64 elements apart (256 or 128 bytes): 8 rows
    in 8 lines, so that every access of a tile touches 8 lines.
    """
    source = """\
uint tile = thread_position_in_grid.x / 32, row = tile / 8 * 8, column = tile % 8 * 8;
simdgroup_matrix<T, 8, 8> p, q, r(0);
for (uint k = 0; k < 64; k += 8) {
    simdgroup_load(p, a + row * 64 + k, 64);
    simdgroup_load(q, b + k * 64 + column, 64);
    simdgroup_multiply_accumulate(r, p, q, r);
}
simdgroup_store(r, out + row * 64 + column, 64);
""".replace("T", kind)
    values = {name: floats(4096).astype(dtype) for name in ("a", "b")}
    counters = counters_of(counted, source, values, (dtype, (4096,)), (64 * 32, 1, 1), (128, 1, 1))
    assert_told(
        counters, device_bytes_read=65536 * size, device_bytes_written=4096 * size, matrix_multiplies=512,
        arithmetic_operations=524288, device_lines_per_simd_access=8, shuffles=0, reductions=0,
        **{f"matrix_multiplies_{kind}": 512},
    )  # fmt: skip
    assert chain_of(counters)["matrix-multiply"] == 8


def test_softmax_of_rows(counted: Launcher) -> None:
    """16 rows of 1024 floats, one SIMD-group each, three passes: largest value, sum of exponentials, result.

    Per row: each pass loads 4096 bytes by 32 accesses of one line; the last also stores 32 lines. Three passes load
    96 lines by accesses, but the row has 32: no barrier, so one segment, 32 lines read and 32 written. Two
    reductions. Exponentials: 2 * 1024, divisions: 1024, all of the complex pipeline. Floating-point operations: a
    subtraction before each exponential, one addition to the sum: 3 * 1024 (comparisons are none). The sum is a
    chain of 32 additions per lane.
    """
    source = """\
uint lane = thread_position_in_threadgroup.x, row = threadgroup_position_in_grid.x * 1024;
float top = -INFINITY, sum = 0;
for (uint j = lane; j < 1024; j += 32) top = max(top, x[row + j]);
top = simd_max(top);
for (uint j = lane; j < 1024; j += 32) sum += exp(x[row + j] - top);
sum = simd_sum(sum);
for (uint j = lane; j < 1024; j += 32) out[row + j] = exp(x[row + j] - top) / sum;
"""
    size = 16 * 1024
    counters = counters_of(counted, source, {"x": floats(size)}, ("float32", (size,)), (16 * 32, 1, 1), (32, 1, 1))
    assert_told(
        counters, device_bytes_read=3 * 4 * size, device_bytes_written=4 * size, device_simd_accesses=16 * 128,
        device_lines=16 * 128, segments=16, segment_device_lines_read=16 * 32, segment_device_lines_written=16 * 32,
        transcendental_operations=3 * size, arithmetic_operations=3 * size, reductions=2 * 16, barriers=0,
        lane_utilization=1,
    )  # fmt: skip
    assert counters.transcendental_instructions == 3 * size / 32
    assert chain_of(counters)["float32-add"] >= 32


def test_gather_and_scatter(counted: Launcher) -> None:
    """1024 threads move an element each through the permutation 33 i mod 1024: every lane is in another line.

    Lanes k of SIMD-group g touch element 32 g + 33 k mod 1024, in line (g + k) mod 32 (k < 32): all 32 lines. So per
    SIMD-group the index is 1 line, the gather 32, the scatter 32: 3 accesses, 65 lines. 32 SIMD-groups. A threadgroup
    of 8 reads 8 lines of indices and all 32 of x, and writes all 32: 72 lines, far fewer than 8 * 65 by accesses. The
    gather waits for the index: two rounds.
    """
    source = "uint i = thread_position_in_grid.x;\nint k = at[i];\nout[k] = x[k];"
    inputs = {"at": (33 * np.arange(1024) % 1024).astype(np.int32), "x": floats(1024)}
    counters = counters_of(counted, source, inputs, ("float32", (1024,)), (1024, 1, 1), (256, 1, 1))
    assert_told(
        counters, device_bytes_read=8 * 1024, device_bytes_written=4 * 1024, device_simd_accesses=32 * 3,
        device_lines=32 * 65, segment_device_lines_read=32 * 33, segment_device_lines_written=32 * 32,
        threadgroup_device_lines=4 * 72,
    )  # fmt: skip
    assert chain_of(counters) == {"device-load": 2}


def test_histogram_by_atomics(counted: Launcher) -> None:
    """512 threads add to 16 bins of 4 bytes in device memory.

    16 SIMD-groups load a line of keys and issue one atomic on the line that has all bins: 32 accesses of a line. An
    atomic reads and writes: 512 * 4 bytes of keys and as many of bins are read, as many written. A segment reads two
    lines and writes one. The atomic waits for the key.
    """
    source = "atomic_fetch_add_explicit(&out[keys[thread_position_in_grid.x]], 1u, memory_order_relaxed);"
    inputs = {"keys": (np.arange(512) % 16).astype(np.uint32)}
    counters = counters_of(counted, source, inputs, ("uint32", (16,)), (512, 1, 1), (256, 1, 1), atomic=True)
    assert_told(
        counters, device_bytes_read=4096, device_bytes_written=2048, device_simd_accesses=32, device_lines=32,
        segments=16, segment_device_lines_read=32, segment_device_lines_written=16,
    )  # fmt: skip
    assert counters.operations["atomic"] == 16
    assert chain_of(counters) == {"device-load": 1, "atomic": 1}


def test_scan_of_a_threadgroup(counted: Launcher) -> None:
    """Prefix sums of 256 floats: within SIMD-groups, of the 8 sums, and the two put together.

    8 + 1 prefix operations. Threadgroup memory: 8 writes of one lane, 1 read and 1 write of 8 lanes, and 8 reads in
    which all 32 lanes want the same word, one cycle: 18 accesses and cycles, no conflict; written 32 + 32 bytes, read
    32 + 256 * 4. Two barriers. One addition per thread. Chain of the first SIMD-group: load, prefix, barrier,
    threadgroup load, prefix, barrier, threadgroup load, add.
    """
    source = """\
threadgroup float sums[8];
uint i = thread_position_in_grid.x, lane = thread_index_in_simdgroup, s = simdgroup_index_in_threadgroup;
float v = simd_prefix_inclusive_sum(x[i]);
if (lane == 31) sums[s] = v;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (s == 0) {
    float before = simd_prefix_exclusive_sum(lane < 8 ? sums[lane] : 0.0f);
    if (lane < 8) sums[lane] = before;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = v + sums[s];
"""
    counters = counters_of(counted, source, {"x": floats(256)}, ("float32", (256,)), (256, 1, 1), (256, 1, 1))
    assert_told(
        counters, prefix_operations=9, reductions=0, barriers=2, bank_cycles=18, bank_conflict_cycles=0,
        threadgroup_bytes_written=64, threadgroup_bytes_read=32 + 1024, arithmetic_operations=256,
        device_bytes_read=1024, device_bytes_written=1024, device_lines=16,
    )  # fmt: skip
    assert chain_of(counters) == {
        "device-load": 1, "simd-prefix": 2, "barrier": 2, "threadgroup-load": 2, "float32-add": 1,
    }  # fmt: skip


def test_shuffles_and_simdgroup_barriers(counted: Launcher) -> None:
    """64 threads: a butterfly of 5 shuffles of a float2 (two 32-bit words), so 10 per SIMD-group; 20 in all.

    10 additions per thread. One simdgroup barrier per SIMD-group cuts its work in two segments: the load before it,
    the store after it. A lane stores 8 bytes: 2 lines per SIMD-group, read and written.
    """
    source = """\
uint i = thread_position_in_grid.x;
float2 v = ((const device float2*)x)[i];
simdgroup_barrier(mem_flags::mem_none);
for (ushort k = 16; k > 0; k /= 2) v += simd_shuffle_xor(v, k);
((device float2*)out)[i] = v;
"""
    counters = counters_of(counted, source, {"x": floats(128)}, ("float32", (128,)), (64, 1, 1), (64, 1, 1))
    assert_told(
        counters, shuffles=20, simd_barriers=2, barriers=0, arithmetic_operations=640, segments=4,
        segment_device_lines_read=4, segment_device_lines_written=4, device_lines_per_segment=2,
    )  # fmt: skip


def test_a_thread_array_that_no_register_can_hold(counted: Launcher) -> None:
    """32 threads count 64 keys into 16 floats of their own: the index is data, so the array needs memory.

    Per thread: it is cleared (64 bytes), 64 times read and written at 4 bytes, and read once (64 bytes): 320 bytes
    each way. With a constant index the optimizer keeps it in registers, and nothing is counted.
    """
    source = """\
float bins[16] = {0};
for (int k = 0; k < 64; k++) bins[INDEX] += 1.0f;
float sum = 0;
for (int k = 0; k < 16; k++) sum += bins[k] * k;
out[thread_position_in_grid.x] = sum;
"""
    inputs = {"keys": (np.arange(64) % 16).astype(np.int32)}
    launch: Any = (inputs, ("float32", (32,)), (32, 1, 1), (32, 1, 1))
    dynamic = counters_of(counted, source.replace("INDEX", "keys[k] & 15"), *launch)
    assert dynamic.thread_array_bytes == 64
    assert dynamic.thread_array_bytes_read == dynamic.thread_array_bytes_written == 32 * 320
    assert 32 * 2 * 64 < dynamic.thread_array_accesses <= 32 * 2 * (64 + 16)
    constant = counters_of(counted, source.replace("INDEX", "k & 15") + "(void)keys;", *launch)
    assert (constant.thread_array_bytes, constant.thread_array_accesses) == (0, 0)
