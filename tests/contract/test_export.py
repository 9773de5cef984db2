"""best.py launches what was searched: its own calls of mx.fast.metal_kernel, answered by metalsim."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import metalsim
from metalsim.model import Argument, MlxKernel
from search.artifacts import dimension_of, render
from search.authors.block_author import BlockAuthor
from search.evaluation.oracle import compare
from search.outcome import Scored
from search.program import Program
from search.task import Task

mx: Any = pytest.importorskip("mlx.core")


class SimulatedKernel:
    """Stands in for the object that ``mx.fast.metal_kernel`` returns; same keywords, run by metalsim."""

    def __init__(self, cache: Path, **definition: Any) -> None:
        self.cache, self.definition = cache, definition

    def __call__(
        self, *, inputs: Any, output_shapes: Any, output_dtypes: Any, grid: Any, threadgroup: Any, template: Any
    ) -> list[Any]:
        names, outs = self.definition["input_names"], self.definition["output_names"]
        arrays = {name: np.array(array) for name, array in zip(names, inputs, strict=True)}
        dtypes = [str(dtype).split(".")[-1] for dtype in output_dtypes]
        kernel = MlxKernel(
            name=self.definition["name"],
            source=self.definition["source"],
            header=self.definition["header"],
            inputs=tuple(Argument(name, str(a.dtype), a.shape) for name, a in arrays.items()),  # type: ignore[arg-type]
            outputs=tuple(Argument(*item) for item in zip(outs, dtypes, output_shapes, strict=True)),
            template={name: value if isinstance(value, int) else str(value).split(".")[-1] for name, value in template},
        )
        compiled = metalsim.compile_kernel(kernel, mode="checked", cache=self.cache)
        assert isinstance(compiled, metalsim.CompiledKernel), compiled
        shapes = dict(zip(outs, output_shapes, strict=True))
        result = metalsim.run(compiled, arrays, shapes, grid=grid, threadgroup=threadgroup)
        assert not result.findings, result.findings
        return [mx.array(result.outputs[name]) for name in outs]


def write_module(task: Task, program: Program, folder: Path) -> ModuleType:
    text = render(
        "best.py.j2", task=task, run_id="r", chip="m1-max", backend="metalsim", dimension_of=dimension_of(task),
        program=program, outcome=Scored("estimated", (), (), (), 0.0), score=2.0,
    )  # fmt: skip
    path = folder / "best.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("best", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def simulated_mlx(monkeypatch: pytest.MonkeyPatch, kernel_cache: Path) -> None:
    def metal_kernel(**definition: Any) -> SimulatedKernel:
        return SimulatedKernel(kernel_cache, **definition)

    monkeypatch.setattr(mx.fast, "metal_kernel", metal_kernel)


@pytest.mark.usefixtures("simulated_mlx")
@pytest.mark.parametrize("edited", [False, True], ids=["seed", "edited"])
def test_exported_module_computes_the_task(task: Task, tmp_path: Path, edited: bool) -> None:
    author = BlockAuthor(task)
    program = author.write(task.seed, author.edits(task.seed)[0]) if edited else task.seed
    module = write_module(task, program, tmp_path)
    for case in [case for case in task.twins if case.dtype == "float32"][:3]:
        inputs = task.make_inputs(case, 6)
        results = getattr(module, task.name)(*(mx.array(inputs[spec.name]) for spec in task.inputs))
        outputs = {spec.name: np.array(result) for spec, result in zip(task.outputs, results, strict=True)}
        assert isinstance(compare(task, case, outputs, task.reference(inputs, case)), float)


@pytest.mark.usefixtures("simulated_mlx")
def test_exported_module_refuses_shapes_that_do_not_fit(task: Task, tmp_path: Path) -> None:
    module = write_module(task, task.seed, tmp_path)
    run: Callable[..., Any] = getattr(module, task.name)
    arrays = [mx.array(array) for array in task.make_inputs(task.twins[2], 6).values()]
    arrays[-1] = mx.zeros((1, 2, 3, 4))
    with pytest.raises(ValueError, match="has shape"):
        run(*arrays)
