"""Comparison with the float64 oracle, on an error that is relative to the reference's own scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from search.outcome import Mismatch
from search.task import Arrays, Case, Task


def scale_error(output: npt.NDArray[Any], reference: npt.NDArray[np.float64]) -> tuple[float, float, tuple[int, ...]]:
    """Largest and mean signed error of ``output``, each element's over its own size plus the reference's scale.

    error = |output - reference| / (|reference| + root mean square of the reference)

    Rounding to the output's type contributes at most its unit roundoff, however far peaks stand out. The scale
    makes zeros, a copy of an input or any constant fail whatever the magnitudes are: they are off by 0.5 and
    more where the reference exceeds its scale. A purely elementwise relative error would blow up near zero
    crossings, an absolute one hides small outputs.

    Shapes:
        output, reference: the same; empty is allowed.

    Returns:
        (largest error, signed mean error, index of the worst element). A NaN or infinity in ``output``
        where the reference is finite gives an infinite error.
    """
    if output.shape != reference.shape:
        return float("inf"), float("nan"), ()
    if reference.size == 0:
        return 0.0, 0.0, ()
    got = output.astype(np.float64)
    scale = float(np.sqrt(np.mean(np.square(reference)))) or np.finfo(np.float32).tiny
    difference = np.where(np.isfinite(got), got - reference, np.inf) / (np.abs(reference) + scale)
    magnitude = np.abs(difference)
    worst = np.unravel_index(int(np.argmax(magnitude)), reference.shape)
    finite = np.isfinite(difference)
    mean = float(np.mean(difference[finite])) if finite.any() else float("nan")
    return float(magnitude[worst]), mean, tuple(int(index) for index in worst)


def compare(
    task: Task, case: Case, outputs: Arrays, reference: Mapping[str, npt.NDArray[np.float64]]
) -> Mismatch | float:
    """The first output beyond tolerance as a ``Mismatch``, else the largest error over its tolerance (<= 1).

    An output is held to the tolerance of its own element type: a float32 state of a bfloat16 case to float32's,
    since the reference starts from the same rounded inputs. A missing output is a mismatch.
    """
    largest = 0.0
    for spec in task.outputs:
        allowed = task.tolerances[spec.dtype_for(case.dtype)].relative
        if spec.name not in outputs:
            return Mismatch(case.label, spec.name, float("inf"), allowed, float("nan"), ())
        error, mean, where = scale_error(outputs[spec.name], reference[spec.name])
        if not error <= allowed:
            return Mismatch(case.label, spec.name, error, allowed, mean, where)
        largest = max(largest, error / allowed)
    return largest
