"""Arrays between numpy and MLX, element types by numpy's names; and launches as the two kernel APIs take them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kx.errors import DataMalformed
from metalsim.model import Argument, DType, MlxKernel
from search.expressions import evaluate
from search.program import IO_DTYPE, Program, Stage, TensorSpec
from search.task import Case, Task

Extents = tuple[int, int, int]

_DTYPES = frozenset(("float32", "float16", "bfloat16", "int32", "uint32", "int8", "uint8", "bool"))


def to_mlx(mx: Any, array: npt.NDArray[Any]) -> Any:
    """A copy of ``array`` on MLX's default device; ``bfloat16`` is that of ml_dtypes."""
    if array.dtype.name == "bfloat16":
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array)


def to_numpy(mx: Any, array: Any) -> npt.NDArray[Any]:
    """A copy of an MLX array."""
    if array.dtype == mx.bfloat16:
        import ml_dtypes

        wide: npt.NDArray[Any] = np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
        return wide
    return np.array(array)


def tensors_of(program: Program, task: Task) -> dict[str, TensorSpec]:
    """Every tensor that a stage may read or write, by name."""
    made = [spec for stage in program.stages for spec in stage.outputs]
    return {spec.name: spec for spec in (*task.inputs, *made)}


def kernel_of(stage: Stage, case: Case, tensors: Mapping[str, TensorSpec]) -> MlxKernel:
    """The stage's kernel for the shapes and element types of ``case``.

    Raises:
        DataMalformed: the stage reads what no input or earlier stage provides.
    """
    missing = [name for name in stage.inputs if name not in tensors]
    if missing:
        raise DataMalformed(f"stage {stage.name} reads {missing[0]!r}, which no input or earlier stage provides")

    def argument(spec: TensorSpec) -> Argument:
        return Argument(spec.name, cast(DType, spec.dtype_for(case.dtype)), spec.shape_for(case.dims))

    return MlxKernel(
        name=stage.name,
        source=stage.body,
        header=stage.header,
        inputs=tuple(argument(tensors[name]) for name in stage.inputs),
        outputs=tuple(argument(spec) for spec in stage.outputs),
        template={name: _template_value(value, case) for name, value in stage.template.items()},
    )


def extents_of(expressions: Sequence[str], dims: Mapping[str, int]) -> Extents:
    """Threads per axis."""
    x, y, z = (evaluate(extent, dims) for extent in expressions)
    return (x, y, z)


def bytes_of(argument: Argument) -> int:
    """Size of an array."""
    size = {"bool": 1, "bfloat16": 2}.get(argument.dtype) or np.dtype(argument.dtype).itemsize
    return int(size) * math.prod(argument.shape)


def _template_value(value: int | bool | str, case: Case) -> int | bool | str:
    if isinstance(value, int):
        return value
    if value == IO_DTYPE:
        return case.dtype
    return value if value in _DTYPES else evaluate(value, case.dims)
