"""Compiles and runs kernels in one call, for the tests of metalsim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metalsim import Argument, CompileFailure, Finding, MlxKernel, RunResult, compile_kernel, run
from metalsim.build.toolchain import Mode
from metalsim.model import DType


def dtype_name(array: np.ndarray[Any, Any]) -> DType:
    return str(array.dtype)  # type: ignore[return-value]


@dataclass
class Launcher:
    """Runs kernel bodies; ``mode`` is that of all launches."""

    cache: Path
    mode: Mode = "checked"

    def kernel(
        self,
        source: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        outputs: Mapping[str, tuple[str, tuple[int, ...]]],
        header: str = "",
        template: dict[str, int | bool | str] | None = None,
    ) -> MlxKernel:
        return MlxKernel(
            "tested",
            source,
            tuple(Argument(n, dtype_name(a), a.shape) for n, a in inputs.items()),
            tuple(Argument(n, d, s) for n, (d, s) in outputs.items()),  # type: ignore[arg-type]
            header,
            template or {},
        )

    def __call__(
        self,
        source: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        outputs: Mapping[str, tuple[str, tuple[int, ...]]],
        *,
        grid: int | tuple[int, int, int],
        threadgroup: int | tuple[int, int, int],
        header: str = "",
        template: dict[str, int | bool | str] | None = None,
        **options: Any,
    ) -> RunResult:
        kernel = self.kernel(source, inputs, outputs, header, template)
        compiled = compile_kernel(kernel, mode=self.mode, cache=self.cache)
        assert not isinstance(compiled, CompileFailure), compiled.messages
        grid = (grid, 1, 1) if isinstance(grid, int) else grid
        threadgroup = (threadgroup, 1, 1) if isinstance(threadgroup, int) else threadgroup
        shapes = {name: shape for name, (_, shape) in outputs.items()}
        return run(compiled, inputs, shapes, grid=grid, threadgroup=threadgroup, **options)

    def failure(self, source: str, header: str = "", **template: int | bool | str) -> tuple[str, ...]:
        """Messages of a body over ``x`` (64 floats) and ``out`` (64 floats) that must not compile."""
        kernel = self.kernel(source, {"x": np.zeros(64, np.float32)}, {"out": ("float32", (64,))}, header, template)
        compiled = compile_kernel(kernel, mode=self.mode, cache=self.cache)
        assert isinstance(compiled, CompileFailure)
        return compiled.messages


def seen(findings: tuple[Finding, ...]) -> set[tuple[str, int]]:
    """Kind and line of each finding."""
    return {(f.kind, f.line) for f in findings}
