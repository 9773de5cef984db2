"""A candidate as data: stages of Metal text with launch expressions; never Python.

A program cannot call a library, read a clock or keep state between calls: it is text for
``mx.fast.metal_kernel`` and integer expressions over the task's dimensions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kx.errors import DataMalformed
from search.expressions import evaluate

IO_DTYPE = "T"
"""Stands for the workload's input and output element type in dtypes and template values."""

Geometry = tuple[str, str, str]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a task or between stages.

    Attributes:
        name: identifier.
        dtype: numpy name, or ``T`` for the workload's io dtype.
        shape: expressions over the task's dimensions.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]

    def dtype_for(self, io_dtype: str) -> str:
        """The concrete element type."""
        return io_dtype if self.dtype == IO_DTYPE else self.dtype

    def shape_for(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The concrete extents."""
        return tuple(evaluate(extent, dims) for extent in self.shape)


@dataclass(frozen=True)
class Stage:
    """One kernel launch.

    Attributes:
        name: C identifier, unique in its program.
        body: kernel body in the convention of ``mx.fast.metal_kernel``.
        inputs: names of task inputs or of outputs of earlier stages, in signature order.
        outputs: what it writes; names of the task's outputs or of intermediates.
        grid: THREADS per axis, expressions over the dimensions.
        threadgroup: threads per axis, likewise.
        header: helper functions placed before the signature.
        template: template argument -> int, bool, ``T``, a dtype's name, or an expression over the dimensions.
    """

    name: str
    body: str
    inputs: tuple[str, ...]
    outputs: tuple[TensorSpec, ...]
    grid: Geometry
    threadgroup: Geometry
    header: str = ""
    template: Mapping[str, int | bool | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A complete candidate.

    Attributes:
        task: the task it serves.
        stages: launches in order.
        concepts: slugs of the optimization concepts it is said to use.
        choices: the block options it was composed from; empty for free text.
        author: who wrote it: ``seed``, ``block-author``, ``llm:<model>`` or ``person``.
    """

    task: str
    stages: tuple[Stage, ...]
    concepts: tuple[str, ...] = ()
    choices: Mapping[str, str | int] = field(default_factory=dict)
    author: str = "seed"

    @property
    def digest(self) -> str:
        """Identity: the hash of what runs (task and stages), whoever wrote it and why."""
        content = {"task": self.task, "stages": [asdict(stage) for stage in self.stages]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form that ``program_from_json`` reads back."""
        return {"digest": self.digest, **asdict(self)}


def program_from_json(data: Mapping[str, Any]) -> Program:
    """The program that ``Program.to_json`` described.

    Raises:
        DataMalformed: a key is missing or of the wrong kind, or the digest does not fit the content.
    """
    try:
        stages = tuple(_stage_from_json(stage) for stage in data["stages"])
        program = Program(
            task=str(data["task"]),
            stages=stages,
            concepts=tuple(data["concepts"]),
            choices=dict(data["choices"]),
            author=str(data["author"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise DataMalformed(f"not a program: {exc!r}") from exc
    if data.get("digest", program.digest) != program.digest:
        raise DataMalformed(
            f"program {data['digest']} has the content of {program.digest}", "it was edited: remove its digest"
        )
    return program


def _stage_from_json(data: Mapping[str, Any]) -> Stage:
    outputs = tuple(
        TensorSpec(str(spec["name"]), str(spec["dtype"]), tuple(str(extent) for extent in spec["shape"]))
        for spec in data["outputs"]
    )
    return Stage(
        name=str(data["name"]),
        body=str(data["body"]),
        inputs=tuple(str(name) for name in data["inputs"]),
        outputs=outputs,
        grid=_geometry(data["grid"]),
        threadgroup=_geometry(data["threadgroup"]),
        header=str(data.get("header", "")),
        template=dict(data.get("template", {})),
    )


def _geometry(values: Any) -> Geometry:
    x, y, z = (str(value) for value in values)
    return (x, y, z)
