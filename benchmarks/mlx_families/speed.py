"""The launch that speed is measured on: steel attention of 1024 queries and keys, two heads of 64, float32."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.mlx_families.attention import Problem, steel
from benchmarks.mlx_families.launches import KernelLaunch

PROBLEM = Problem(L=1024, S=1024, H=2, D=64, KV=2)


def launches() -> Iterator[KernelLaunch]:
    """That launch."""
    yield steel(PROBLEM, "float32")
