"""Whether it matters that a kernel reads threadgroup memory that it never wrote.

Real kernels do so without harm: a SIMD-group that scans 32 partial sums of which a smaller threadgroup wrote only
eight uses only the eight results. Whether a value is used cannot be seen at the read. So the launch is repeated with
other contents in that memory: outputs that stay the same to the last bit do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CONTENTS = (0x00, 0x7B, 0xFB)
"""Bytes that fill the memory in the repetitions: zeros, large and very negative numbers in every float format and as
signed integers. Together they change sums, products, minima and maxima, and take away what NaNs hide."""


def is_unused(outputs: Mapping[str, Array], before: Mapping[str, Array], repeat: Callable[[int], None]) -> bool:
    """Whether outputs are the same whatever unwritten threadgroup memory holds.

    Args:
        outputs: of the first launch; they hold the same values afterwards.
        before: what they held before it.
        repeat: launches the kernel again, on ``outputs``, with a byte that fills the unwritten memory.
    """
    results = {name: array.copy() for name, array in outputs.items()}
    try:
        for byte in CONTENTS:
            _fill(outputs, before)
            repeat(byte)
            if any(outputs[name].tobytes() != array.tobytes() for name, array in results.items()):
                return False
        return True
    finally:
        _fill(outputs, results)


def _fill(outputs: Mapping[str, Array], values: Mapping[str, Array]) -> None:
    for name, array in outputs.items():
        np.copyto(array, values[name])
