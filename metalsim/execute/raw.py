"""What a counted launch observed, as numpy arrays; the fields mirror runtime/msim.h."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SITE_COUNTS = np.dtype([
    (name, np.uint64)
    for name in (
        "device_accesses", "device_bytes", "device_simd_accesses", "device_lines",
        "threadgroup_accesses", "threadgroup_bytes", "threadgroup_simd_accesses", "threadgroup_bank_cycles",
        "constant_accesses", "constant_bytes", "constant_simd_accesses",
        "threadgroup_bank_conflict_cycles",
    )
])  # fmt: skip
"""Per site. ``*_accesses`` and ``*_bytes`` count lanes; ``*_simd_accesses`` count SIMD-groups, whose
lanes are matched by site and by execution since they were last together; ``device_lines`` are distinct
128-byte lines per SIMD-group access, summed; ``threadgroup_bank_cycles`` the cycles that the busiest of
32 banks of 4 bytes needs, summed, and ``threadgroup_bank_conflict_cycles`` how many of those are due to
an uneven use of the banks: beyond distinct words / 32, rounded up for each access."""

GROUP_COUNTS = np.dtype([
    (name, np.uint64)
    for name in (
        "threads",
        "device_lines_read", "device_lines_written", "device_bytes_read", "device_bytes_written",
        "barriers", "simd_barriers",
        "shuffle_simd_ops", "shuffle_lanes", "broadcast_simd_ops",
        "reduction_simd_ops", "prefix_simd_ops", "vote_simd_ops",
        "threadgroup_bytes",
        "matrix_simd_ops", "matrix_half_simd_ops", "matrix_bfloat_simd_ops",
        "device_simd_accesses", "device_lines",
        "device_segments", "device_segment_lines_read", "device_segment_lines_written",
        "threadgroup_bytes_moved", "threadgroup_bytes_read", "threadgroup_bytes_written",
        "threadgroup_simd_accesses", "threadgroup_bank_cycles", "threadgroup_bank_conflict_cycles",
    )
])  # fmt: skip
"""Per threadgroup run. Lines are distinct 128-byte lines of device memory; barriers count once per
threadgroup, SIMD barriers once per SIMD-group; SIMD operations once per SIMD-group, times the 32-bit
words of the value (shuffles, broadcasts) or its components (reductions, prefix operations); matrix
operations are multiplications of 8x8 matrices, by the type of the left factor (neither half nor bfloat: float).
A segment is what one SIMD-group does between two barriers of the threadgroup or the SIMD-group;
``device_segments`` counts those that touch device memory, ``device_segment_lines_*`` distinct lines per
segment, summed. ``threadgroup_bytes`` are declared, ``threadgroup_bytes_moved`` what lanes read or wrote; an
atomic operation moves its bytes once, and counts as reading and as writing them."""


@dataclass(frozen=True)
class RawCounts:
    """Counts of one launch.

    Attributes:
        threadgroups: int64 ``[n_run]``, linear index of each threadgroup that was run.
        block_counts: uint32 ``[n_run, n_blocks, n_threads]``, executions of each basic block by each
            thread (thread_index_in_threadgroup); threads that an edge threadgroup lacks stay 0.
        sites: ``SITE_COUNTS [n_sites]``, by ``Site.index``, summed over the threadgroups run.
        groups: ``GROUP_COUNTS [n_run]``.
    """

    threadgroups: npt.NDArray[np.int64]
    block_counts: npt.NDArray[np.uint32]
    sites: npt.NDArray[np.void]
    groups: npt.NDArray[np.void]
