"""A program in a reply: one JSON block for the launches, one Metal block per kernel body.

Kernel text stands in fenced blocks of its own, since code inside JSON strings comes back with broken
escapes. Prose around the blocks is ignored. What is wrong is said in full, so that it can be mended in one
further round.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pydantic

from kx.errors import DataMalformed
from search.expressions import evaluate
from search.program import IO_DTYPE, Program, Stage, TensorSpec
from search.task import Task

_FENCE = re.compile(r"^```[ \t]*(?P<info>[^\n`]*)\n(?P<text>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPEN_FENCE = re.compile(r"^```", re.MULTILINE)
_METAL = {"metal", "msl", "cpp", "c++", "c"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DTYPES = ("float32", "float16", "bfloat16", "int32", "uint32", "int16", "uint16", "int8", "uint8", "bool", IO_DTYPE)
Extents = tuple[str | int, str | int, str | int]


class ReplyFlawed(Exception):
    """A reply that is no program; ``flaws`` say why, a line each."""

    def __init__(self, flaws: list[str]) -> None:
        super().__init__("; ".join(flaws))
        self.flaws = flaws


class _Tensor(pydantic.BaseModel, extra="forbid"):
    name: str
    dtype: str
    shape: list[str | int]


class _Stage(pydantic.BaseModel, extra="forbid"):
    name: str
    inputs: list[str]
    outputs: list[_Tensor | str]
    grid: Extents
    threadgroup: Extents
    template: dict[str, bool | int | str] = {}


class _Launches(pydantic.BaseModel, extra="forbid"):
    stages: list[_Stage] = pydantic.Field(min_length=1, max_length=8)
    concepts: list[str] = []
    notes: str = ""


@dataclass(frozen=True)
class _Block:
    """A fenced block: the words of its first line, and its text."""

    words: tuple[str, ...]
    text: str


@dataclass
class _Findings:
    flaws: list[str] = field(default_factory=list)

    def add(self, flaw: str) -> None:
        self.flaws.append(flaw)

    def require_none(self) -> None:
        if self.flaws:
            raise ReplyFlawed(self.flaws)


def program_from_reply(text: str, task: Task, author: str, concepts: tuple[str, ...] = ()) -> Program:
    """The program in a reply.

    Args:
        text: the whole reply.
        task: whose inputs, outputs and dimensions it may name.
        author: recorded in the program.
        concepts: recorded when the reply names none.

    Raises:
        ReplyFlawed: there is no program in it.
    """
    blocks = _blocks(text)
    launches = _launches(blocks)
    bodies, headers = _kernel_texts(blocks, [stage.name for stage in launches.stages])
    found = _Findings()
    known = {spec.name: spec for spec in (*task.inputs, *task.outputs)}
    written: dict[str, TensorSpec] = {}
    stages = []
    for stage in launches.stages:
        outputs = _outputs(stage, task, found)
        _check_stage(stage, {*(spec.name for spec in task.inputs), *written}, task, found)
        written |= {spec.name: spec for spec in outputs}
        stages.append(
            Stage(
                stage.name, bodies[stage.name], tuple(stage.inputs), outputs, _texts(stage.grid),
                _texts(stage.threadgroup), headers.get(stage.name, ""), dict(stage.template),
            )
        )  # fmt: skip
    for spec in task.outputs:
        if spec.name not in written:
            found.add(f"no stage writes the output {spec.name}")
        elif written[spec.name] != known[spec.name]:
            found.add(f"output {spec.name} must be {spec.dtype}[{', '.join(spec.shape)}]: give its name alone")
    found.require_none()
    return Program(task.name, tuple(stages), tuple(launches.concepts) or concepts, {}, author)


def json_from_reply(text: str) -> Any:
    """The JSON of a reply: its ```json block, or else the outermost braces of the text.

    Raises:
        ReplyFlawed: there is none that parses.
    """
    fenced = [block.text for block in _blocks(text) if block.words[:1] == ("json",)]
    candidate = fenced[0] if fenced else text[text.find("{") : text.rfind("}") + 1]
    if not candidate.strip():
        raise ReplyFlawed(["the reply has no ```json block"])
    try:
        return json.loads(candidate)
    except ValueError as exc:
        raise ReplyFlawed([f"the JSON does not parse: {exc}"]) from exc


def flaws_of(error: pydantic.ValidationError) -> list[str]:
    """What is wrong with validated data, a line each."""
    lines = []
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"])
        lines.append(f"{place or 'the JSON'}: {item['msg']}")
    return list(dict.fromkeys(lines))


def _blocks(text: str) -> list[_Block]:
    clean = text.replace("\r\n", "\n")
    blocks = [_Block(tuple(match["info"].replace(":", " ").split()), match["text"]) for match in _FENCE.finditer(clean)]
    if len(_OPEN_FENCE.findall(clean)) % 2:
        raise ReplyFlawed(["a ``` block is not closed: the reply seems cut off"])
    return [_Block((block.words[0].lower(), *block.words[1:]) if block.words else (), block.text) for block in blocks]


def _launches(blocks: list[_Block]) -> _Launches:
    found = [block for block in blocks if block.words[:1] == ("json",)]
    if not found:
        raise ReplyFlawed(["the reply has no ```json block with the stages"])
    try:
        return _Launches.model_validate(json.loads(found[0].text))
    except pydantic.ValidationError as exc:
        raise ReplyFlawed(flaws_of(exc)) from exc
    except ValueError as exc:
        raise ReplyFlawed([f"the JSON does not parse: {exc}"]) from exc


def _kernel_texts(blocks: list[_Block], names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Bodies and headers by stage; an unnamed block is the body of the stage that comes next."""
    bodies: dict[str, str] = {}
    headers: dict[str, str] = {}
    for block in blocks:
        if block.words[:1] and block.words[0] not in _METAL:
            continue
        words = [word for word in block.words[1:] if word != "body"]
        target = headers if "header" in words else bodies
        named = [word for word in words if word in names]
        left = [name for name in names if name not in target]
        name = named[0] if named else (left[0] if left else "")
        if name:
            target[name] = block.text
    missing = [name for name in names if not bodies.get(name, "").strip()]
    if missing:
        raise ReplyFlawed([f"stage {name} has no ```metal {name} block with its body" for name in missing])
    return bodies, headers


def _outputs(stage: _Stage, task: Task, found: _Findings) -> tuple[TensorSpec, ...]:
    own = {spec.name: spec for spec in task.outputs}
    outputs = []
    for item in stage.outputs:
        if isinstance(item, str):
            if item not in own:
                found.add(
                    f"stage {stage.name}: {item} is none of the task's outputs; an intermediate needs dtype and shape"
                )
                continue
            outputs.append(own[item])
            continue
        if item.dtype not in _DTYPES:
            found.add(f"stage {stage.name}: output {item.name} has the dtype {item.dtype}; known: {', '.join(_DTYPES)}")
        for extent in item.shape:
            _check_expression(extent, task, f"stage {stage.name}: shape of {item.name}", found)
        outputs.append(TensorSpec(item.name, item.dtype, tuple(str(extent) for extent in item.shape)))
    if not stage.outputs:
        found.add(f"stage {stage.name} writes nothing")
    return tuple(outputs)


def _check_stage(stage: _Stage, readable: set[str], task: Task, found: _Findings) -> None:
    if not _IDENTIFIER.fullmatch(stage.name):
        found.add(f"{stage.name!r} is no C identifier")
    for name in stage.inputs:
        if name not in readable:
            found.add(f"stage {stage.name} reads {name}: neither an input of the task nor written by an earlier stage")
    for axis, extent in zip("xyz", stage.grid, strict=True):
        _check_expression(extent, task, f"stage {stage.name}: grid.{axis}", found)
    for axis, extent in zip("xyz", stage.threadgroup, strict=True):
        _check_expression(extent, task, f"stage {stage.name}: threadgroup.{axis}", found)
    for name, value in stage.template.items():
        if isinstance(value, str) and value not in _DTYPES:
            _check_expression(value, task, f"stage {stage.name}: template {name}", found, -math.inf)


def _check_expression(expression: str | int, task: Task, place: str, found: _Findings, least: float = 1) -> None:
    """Whether it can be computed for every case of the task, and is never below ``least``."""
    for case in (*task.workloads, *task.twins, task.property_case):
        dims: Mapping[str, int] = case.dims
        try:
            value = evaluate(expression, dims)
        except DataMalformed as exc:
            found.add(f"{place}: {exc.message}")
            return
        if value < least:
            found.add(f"{place} is {value} for {dict(dims)}")
            return


def _texts(extents: Extents) -> tuple[str, str, str]:
    x, y, z = (str(extent) for extent in extents)
    return (x, y, z)
