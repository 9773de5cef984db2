"""Stands in for ``mlx.core`` on a Mac: arrays are MLX's own on the CPU, kernels are run by metalsim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import metalsim
from metalsim.model import Argument, MlxKernel
from search.backends.mlx_arrays import to_mlx, to_numpy

Fault = Callable[[dict[str, Any]], dict[str, Any]]


class SimulatedKernel:
    """What ``mx.fast.metal_kernel`` returns: same keywords; ``fault`` may change the outputs."""

    def __init__(self, mx: SimulatedMlx, **definition: Any) -> None:
        self.mx, self.definition = mx, definition

    def __call__(self, **call: Any) -> list[Any]:
        mx, definition = self.mx, self.definition
        arrays = {
            name: to_numpy(mx.core, array)
            for name, array in zip(definition["input_names"], call["inputs"], strict=True)
        }
        dtypes = [str(dtype).rsplit(".", maxsplit=1)[-1] for dtype in call["output_dtypes"]]
        outs = definition["output_names"]
        kernel = MlxKernel(
            name=definition["name"],
            source=definition["source"],
            header=definition["header"],
            inputs=tuple(Argument(name, a.dtype.name, a.shape) for name, a in arrays.items()),
            outputs=tuple(Argument(*item) for item in zip(outs, dtypes, call["output_shapes"], strict=True)),
            template={
                name: value if isinstance(value, int) else str(value).rsplit(".", maxsplit=1)[-1]
                for name, value in call["template"]
            },
        )
        compiled = metalsim.compile_kernel(kernel, mode="plain", cache=mx.cache)
        if isinstance(compiled, metalsim.CompileFailure):
            raise RuntimeError("\n".join(f"error: {line}" for line in compiled.messages))  # noqa: TRY004 (MLX raises it)
        shapes = dict(zip(outs, call["output_shapes"], strict=True))
        result = metalsim.run(compiled, arrays, shapes, grid=call["grid"], threadgroup=call["threadgroup"])
        outputs = {name: np.array(result.outputs[name]) for name in outs}
        mx.launches += 1
        outputs = mx.fault(outputs, call) if mx.fault else outputs
        return [to_mlx(mx.core, outputs[name]) for name in outs]


class SimulatedMlx:
    """The parts of ``mlx.core`` that back ends use.

    Attributes:
        core: the real ``mlx.core``, on the CPU.
        fault: changes what a kernel wrote, given its outputs and the call.
        launches: kernels run.
    """

    def __init__(self, core: Any, cache: Path, device_name: str = "Apple M1 Max") -> None:
        self.core, self.cache = core, cache
        self.fault: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None = None
        self.launches = 0
        self.fast = SimpleNamespace(metal_kernel=lambda **definition: SimulatedKernel(self, **definition))
        self.metal = SimpleNamespace(is_available=lambda: True)
        self.device_info = lambda: {"device_name": device_name, "architecture": "applegpu_g13s"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)
