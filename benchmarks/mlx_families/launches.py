"""What a launch of one of MLX's kernels consists of, and what it should give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from metalsim import Fresh

Array = npt.NDArray[Any]
Size = tuple[int, int, int]

KERNELS = "mlx/backend/metal/kernels"
"""Folder of MLX's kernels inside its checkout."""

FLOATS = ("float32", "float16", "bfloat16")
METAL_NAMES = {"float32": "float", "float16": "half", "bfloat16": "bfloat16_t"}
"""Element types as ``get_type_string`` in mlx/backend/metal/utils.cpp names them, where not ``float16_t``."""

_EPSILONS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class KernelLaunch:
    """One launch.

    Attributes:
        family: of kernels.
        file: below ``KERNELS``.
        entry: host name of the kernel.
        dtype: that the launch is about.
        shape: of the problem, in words.
        buffers: by index.
        grid: threads per axis.
        threadgroup: threads per axis.
        expected: outputs by parameter name, float64 or integers; NaN where any value is right.
        constants: function constants by index.
        threadgroup_lengths: bytes of threadgroup arguments.
        roundings: allowed error of float outputs in units of float32's epsilon times the largest expected value.
        half_roundings: likewise, on top, of float16 and bfloat16 outputs, in their epsilon; one suffices where
            the kernel computes in float32 and rounds the result.
        known: beginnings of findings that reading the kernel showed to be right: ``kind file:line``.
    """

    family: str
    file: str
    entry: str
    dtype: str
    shape: str
    buffers: Mapping[int, Array | Fresh]
    grid: Size
    threadgroup: Size
    expected: Mapping[str, Array]
    constants: Mapping[int | str, int | bool | float] = field(default_factory=dict)
    threadgroup_lengths: Mapping[int, int] = field(default_factory=dict)
    roundings: float = 4.0
    half_roundings: float = 1.0
    known: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Kernel, constants that are set, and shape."""
        given = ",".join(f"{key}={int(value)}" for key, value in self.constants.items() if value)
        return f"{self.entry}{f' [{given}]' if given else ''} {self.shape}"

    def tolerance(self, dtype: str) -> float:
        """Allowed error of an output of that type, relative to its largest expected value; 0 for integers."""
        if dtype not in FLOATS:
            return 0.0
        return self.roundings * _EPSILONS["float32"] + (
            0.0 if dtype == "float32" else self.half_roundings * _EPSILONS[dtype]
        )

    def named(self, entry: str) -> KernelLaunch:
        """The same launch of another kernel."""
        return replace(self, entry=entry)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """numpy's type, bfloat16 from ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def draw(seed: int, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> Array:
    """Normal values, or integers over [-100, 100] cut to the type's range, of ``shape`` and ``dtype``."""
    random = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype in FLOATS:
        return np.asarray((random.standard_normal(shape) * scale).astype(kind))
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    low = 0 if kind.kind == "u" else -100
    return random.integers(low, 100, shape).astype(kind)


def threads(threadgroups: Size, threadgroup: Size) -> Size:
    """Grid in threads of ``dispatch_threadgroups``."""
    return (
        threadgroups[0] * threadgroup[0],
        threadgroups[1] * threadgroup[1],
        threadgroups[2] * threadgroup[2],
    )


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))


def exact(array: Array) -> Array:
    """Float64 copy of an array of any float type."""
    return np.asarray(array, np.float64)
