"""A task: what is to be computed, on which workloads, and how right is right.

A task is a folder ``search/tasks/<name>/`` with

- ``task.toml``: dimensions, inputs, outputs, workloads, twins, tolerances, seed, analysis;
- ``reference.py``: ``make_inputs(dims, dtype, seed)`` and ``reference(inputs, dims)`` in numpy float64;
- ``properties.py``: ``PROPERTIES``, a dict from property id to a function of (run, dims, dtype, seed);
- the seed's Metal body and ``blocks/``, the building blocks of ``BlockAuthor``.
"""

from __future__ import annotations

import difflib
import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kx.errors import DataMalformed, UnknownName
from search.expressions import evaluate
from search.program import Program, Stage, TensorSpec

TASKS_FOLDER = Path(__file__).parent / "tasks"

Arrays = dict[str, npt.NDArray[Any]]
Runner = Callable[[Arrays, Mapping[str, int]], Arrays]
"""Runs the candidate on inputs of given dimensions and returns its outputs."""


@dataclass(frozen=True)
class PropertyResult:
    """Whether a property held; ``detail`` says in one line what was compared or where it broke."""

    id: str
    held: bool
    detail: str


Property = Callable[[Runner, Mapping[str, int], str, int], PropertyResult]
"""(run, dims, io dtype, seed) -> PropertyResult."""


@dataclass(frozen=True)
class Case:
    """Dimensions and element type of one problem instance.

    Attributes:
        label: shown to people; unique in the task.
        dims: value per dimension.
        dtype: the io element type that ``T`` stands for.
        twin_of: label of the workload whose structure this small case has, or empty.
    """

    label: str
    dims: Mapping[str, int]
    dtype: str
    twin_of: str = ""


@dataclass(frozen=True)
class Tolerance:
    """Largest error allowed for outputs of one element type (``scale_error`` of ``search.evaluation.oracle``)."""

    relative: float
    reason: str


@dataclass(frozen=True)
class Task:
    """See the module's text.

    Attributes:
        name: folder name.
        title: one line.
        kernel_class: slug in the graph (``scan``).
        dims: names of the dimensions in order.
        inputs, outputs: tensors.
        workloads: what is timed.
        twins: small cases that are checked, with every workload's structure and ragged lengths.
        tolerances: per element type; an output is held to that of its own.
        property_ids: properties that every candidate must keep, run on ``property_case``.
        minimal_bytes, minimal_flops: expressions over the dimensions plus ``itemsize``: what no kernel
            can do without; the floor of any time.
        analysis: the fixed analysis that precedes proposals: canonical_form, layout, access, and a
            bottleneck per runtime regime.
        seed: the naive program.
    """

    name: str
    title: str
    kernel_class: str
    dims: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    workloads: tuple[Case, ...]
    twins: tuple[Case, ...]
    tolerances: Mapping[str, Tolerance]
    property_ids: tuple[str, ...]
    property_case: Case
    minimal_bytes: str
    minimal_flops: str
    analysis: Mapping[str, Any]
    seed: Program
    folder: Path

    def make_inputs(self, case: Case, seed: int) -> Arrays:
        """Inputs of ``case`` drawn from ``seed``, in their concrete dtypes."""
        inputs: Arrays = self._module("reference").make_inputs(case.dims, case.dtype, seed)
        return inputs

    def reference(self, inputs: Arrays, case: Case) -> Arrays:
        """Outputs in float64 from the same rounded inputs."""
        outputs: Arrays = self._module("reference").reference(inputs, case.dims)
        return outputs

    def properties(self) -> dict[str, Property]:
        """The functions of ``property_ids``, by id."""
        known: dict[str, Property] = self._module("properties").PROPERTIES
        missing = [name for name in self.property_ids if name not in known]
        if missing:
            raise DataMalformed(f"task {self.name}: properties.py has no {', '.join(missing)}")
        return {name: known[name] for name in self.property_ids}

    def floor_bytes(self, case: Case) -> int:
        """Fewest bytes that must cross device memory."""
        return evaluate(self.minimal_bytes, {**case.dims, "itemsize": np.dtype(_numpy_name(case.dtype)).itemsize})

    def floor_flops(self, case: Case) -> int:
        """Fewest floating-point operations."""
        return evaluate(self.minimal_flops, dict(case.dims))

    def _module(self, part: str) -> Any:
        return importlib.import_module(f"search.tasks.{self.name}.{part}")


def _numpy_name(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype


def task_names() -> list[str]:
    """Names of the tasks that exist, sorted."""
    return sorted(path.parent.name for path in TASKS_FOLDER.glob("*/task.toml"))


def load_task(name: str) -> Task:
    """The task called ``name``.

    Raises:
        UnknownName: there is none; the hint lists those that exist.
        DataMalformed: its task.toml misses a key or has an unknown one.
    """
    names = task_names()
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"kernels: {', '.join(names)}"
        raise UnknownName(f"no kernel is called {name!r}", hint)
    folder = TASKS_FOLDER / name
    try:
        data = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        return _task_from(folder, data)
    except tomllib.TOMLDecodeError as exc:
        raise DataMalformed(f"{name}/task.toml: {exc}") from exc
    except KeyError as exc:
        raise DataMalformed(f"{name}/task.toml misses the key {exc}") from exc
    except (TypeError, AttributeError) as exc:
        raise DataMalformed(f"{name}/task.toml: {exc}") from exc


def _task_from(folder: Path, data: dict[str, Any]) -> Task:
    known = {
        "title", "kernel_class", "dims", "inputs", "outputs", "workloads", "twins", "tolerance",
        "properties", "minimal_bytes", "minimal_flops", "analysis", "seed",
    }  # fmt: skip
    unknown = sorted(set(data) - known)
    if unknown:
        hint = f"known: {', '.join(sorted(known))}"
        raise DataMalformed(f"{folder.name}/task.toml: unknown key {unknown[0]!r}", hint)
    outputs = tuple(_tensor(item) for item in data["outputs"])
    stage = data["seed"]
    seed = Program(
        task=folder.name,
        stages=(
            Stage(
                name=stage["name"],
                body=(folder / stage["body"]).read_text(encoding="utf-8"),
                inputs=tuple(stage["inputs"]),
                outputs=outputs,
                grid=tuple(stage["grid"]),
                threadgroup=tuple(stage["threadgroup"]),
                template=stage["template"],
            ),
        ),
        choices=stage.get("choices", {}),
    )
    return Task(
        name=folder.name,
        title=data["title"],
        kernel_class=data["kernel_class"],
        dims=tuple(data["dims"]),
        inputs=tuple(_tensor(item) for item in data["inputs"]),
        outputs=outputs,
        workloads=tuple(_case(item) for item in data["workloads"]),
        twins=tuple(_case(item) for item in data["twins"]),
        tolerances={
            dtype: Tolerance(float(item["relative"]), item["reason"]) for dtype, item in data["tolerance"].items()
        },
        property_ids=tuple(data["properties"]["ids"]),
        property_case=_case(data["properties"]["case"]),
        minimal_bytes=data["minimal_bytes"],
        minimal_flops=data["minimal_flops"],
        analysis=data["analysis"],
        seed=seed,
        folder=folder,
    )


def _tensor(item: dict[str, Any]) -> TensorSpec:
    return TensorSpec(item["name"], item["dtype"], tuple(item["shape"]))


def _case(item: dict[str, Any]) -> Case:
    return Case(item["label"], dict(item["dims"]), item["dtype"], item.get("twin_of", ""))
