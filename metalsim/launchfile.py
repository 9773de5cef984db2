"""Reads launch files and body files: JSON descriptions of what a kernel is run with.

A launch file names the kernel, its grid and its buffers; docs/metalsim-launch.md describes every key. A
body file holds the arguments of ``mx.fast.metal_kernel`` by their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from metalsim.errors import InputError
from metalsim.execute.launch import Array, numpy_dtype
from metalsim.model import DType
from metalsim.text.signature import element_count

BufferRole = Literal["in", "out", "inout", "scalar"]
FillKind = Literal["uniform", "normal", "arange", "zeros", "const", "randint"]
TemplateValue = int | bool | str

MAX_BUFFER_BYTES = 1 << 32
_LAUNCH_KEYS = frozenset((
    "entry", "grid_threads", "threadgroup", "buffers", "threadgroup_memory", "function_constants", "template",
    "init_value",
))  # fmt: skip
_BUFFER_KEYS = frozenset(("name", "role", "dtype", "shape", "fill", "file", "value"))
_FILL_KEYS = frozenset(("kind", "seed", "lo", "hi", "value"))
_BODY_KEYS = frozenset((
    "name", "input_names", "output_names", "source", "header", "template", "grid", "threadgroup", "atomic_outputs",
    "init_value", "ensure_row_contiguous",
))  # fmt: skip


@dataclass(frozen=True)
class Fill:
    """Numbers that a buffer starts with.

    Attributes:
        kind: ``uniform`` in [lo, hi), ``normal`` with mean 0 and deviation 1 (clipped to lo and hi where
            given), ``arange`` from lo in steps of 1, ``zeros``, ``const`` (the value lo), or ``randint`` in [lo, hi).
        seed: of numpy's ``default_rng``; other kinds don't use it.
        lo, hi: None where the file gives none.
    """

    kind: FillKind = "uniform"
    seed: int = 0
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True)
class BufferPlan:
    """One buffer of a launch.

    Attributes:
        name: of the kernel's parameter.
        role: whether the kernel reads it, writes it, both, or takes one value.
        dtype: element type.
        shape: extent per axis.
        fill: what it starts with; of no use for ``out``.
        file: an ``.npy`` file instead of ``fill``.
    """

    name: str
    role: BufferRole
    dtype: DType
    shape: tuple[int, ...]
    fill: Fill = field(default_factory=Fill)
    file: Path | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """What a kernel is run with.

    Attributes:
        entry: the kernel; empty for a body, or for the only kernel of a file.
        grid: threads per axis, x first; None where a body file says it.
        threadgroup: threads per axis; None where a body file says it.
        buffers: in the order of their indices.
        threadgroup_memory: bytes of threadgroup arguments, by index.
        constants: function constants by index or name.
        template: template arguments by name; a type by its dtype's name or Metal's.
        init_value: of outputs; None leaves them uninitialized.
    """

    entry: str
    grid: tuple[int, int, int] | None
    threadgroup: tuple[int, int, int] | None
    buffers: tuple[BufferPlan, ...]
    threadgroup_memory: tuple[int, ...] = ()
    constants: Mapping[int | str, int | float | bool] = field(default_factory=dict)
    template: Mapping[str, TemplateValue] = field(default_factory=dict)
    init_value: float | None = None


@dataclass(frozen=True)
class BodyFile:
    """A kernel body in the convention of ``mx.fast.metal_kernel``, by that function's argument names.

    Attributes:
        grid, threadgroup: threads per axis; None when left to the launch file.
        template: template arguments by name.
        init_value: of outputs; None when left to the launch file.
    """

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str
    atomic_outputs: bool
    grid: tuple[int, int, int] | None
    threadgroup: tuple[int, int, int] | None
    template: Mapping[str, TemplateValue]
    init_value: float | None


class _Reader:
    """Takes values out of parsed JSON; every fault names the file and the key."""

    def __init__(self, path: Path, place: str, data: Any, keys: Iterable[str]) -> None:
        self._path, self._place = path, place
        if not isinstance(data, dict):
            raise InputError(f"{path}: {place or 'the file'} is not a JSON object")
        self._data: dict[str, Any] = data
        unknown = sorted(set(data) - set(keys))
        if unknown:
            raise self.fault(unknown[0], "is unknown", f"keys: {', '.join(sorted(keys))}")

    def fault(self, key: str, words: str, hint: str = "") -> InputError:
        name = f"{self._place}.{key}" if self._place else key
        return InputError(f"{self._path}: {name} {words}", hint)

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        return self._data.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str):
            raise self.fault(key, "is missing" if value is None else "is not a string")
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in allowed:
            raise self.fault(key, f"is {value!r}", f"one of {', '.join(allowed)}")
        return value

    def number(self, key: str) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        # Words for what JSON has no number for.
        if isinstance(value, str) and value in ("inf", "-inf", "nan"):
            return float(value)
        if not isinstance(value, int | float):
            raise self.fault(key, f"is {value!r}, not a number")
        return value

    def flag(self, key: str) -> bool:
        value = self._data.get(key, False)
        if not isinstance(value, bool):
            raise self.fault(key, f"is {value!r}, not true or false")
        return value

    def whole_numbers(self, key: str, *, least: int) -> tuple[int, ...]:
        value = self._data.get(key)
        if not isinstance(value, list) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            raise self.fault(key, "is missing" if value is None else "is not a list of whole numbers")
        if any(v < least for v in value):
            raise self.fault(key, f"is {value}: each must be at least {least}")
        return tuple(value)

    def extents(self, key: str) -> tuple[int, int, int] | None:
        if self._data.get(key) is None:
            return None
        value = self.whole_numbers(key, least=1)
        if not 1 <= len(value) <= 3:
            raise self.fault(key, f"has {len(value)} entries", "threads in x, y, z")
        x, y, z = [*value, 1, 1][:3]
        return x, y, z

    def names(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.fault(key, "is missing" if value is None else "is not a list of names")
        return tuple(value)

    def template(self, key: str) -> dict[str, TemplateValue]:
        value = self._data.get(key)
        pairs = list(value.items()) if isinstance(value, dict) else value or []
        result: dict[str, TemplateValue] = {}
        for pair in pairs if isinstance(pairs, list) else [None]:
            match pair:
                case (str(name), int() | str() as argument) | [str(name), int() | str() as argument]:
                    result[name] = argument
                case _:
                    raise self.fault(key, "is not a list of pairs", '[["T", "float32"], ["N", 4]]')
        return result


def _parse(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InputError(f"{path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InputError(f"{path}: not UTF-8 text") from exc
    except json.JSONDecodeError as exc:
        raise InputError(f"{path}:{exc.lineno}: not JSON: {exc.msg}") from exc
    except RecursionError as exc:
        raise InputError(f"{path}: JSON nested too deep") from exc


def read_launch(path: Path) -> LaunchPlan:
    """Read a launch file.

    Args:
        path: of the JSON file; ``.npy`` files are looked for beside it.

    Raises:
        InputError: not JSON, an unknown key, a value of the wrong kind; names the file and the key.
    """
    reader = _Reader(path, "", _parse(path), _LAUNCH_KEYS)
    listed = reader.raw("buffers")
    if not isinstance(listed, list):
        raise reader.fault("buffers", "is missing" if listed is None else "is not a list")
    constants = reader.raw("function_constants") or {}
    if not isinstance(constants, dict) or not all(isinstance(v, int | float) for v in constants.values()):
        raise reader.fault("function_constants", "is not an object of numbers", '{"causal": true}')
    buffers = tuple(_buffer(path, position, item) for position, item in enumerate(listed))
    repeated = sorted({b.name for b in buffers if sum(other.name == b.name for other in buffers) > 1})
    if repeated:
        raise reader.fault("buffers", f"names {repeated[0]!r} twice")
    memory = reader.whole_numbers("threadgroup_memory", least=1) if reader.has("threadgroup_memory") else ()
    return LaunchPlan(
        reader.text("entry", ""),
        reader.extents("grid_threads"),
        reader.extents("threadgroup"),
        buffers,
        memory,
        {int(name) if name.isdigit() else name: value for name, value in constants.items()},
        reader.template("template"),
        reader.number("init_value"),
    )


def _buffer(path: Path, position: int, item: Any) -> BufferPlan:
    reader = _Reader(path, f"buffers[{position}]", item, _BUFFER_KEYS)
    name = reader.text("name")
    role = cast(BufferRole, reader.choice("role", get_args(BufferRole)))
    dtype = reader.text("dtype", "") if not reader.has("dtype") else reader.choice("dtype", get_args(DType))
    file = path.parent / reader.text("file") if reader.has("file") else None
    if not dtype and file is None:
        raise reader.fault("dtype", "is missing")
    shape: tuple[int, ...] = reader.whole_numbers("shape", least=0) if reader.has("shape") else ()
    if file is not None:
        array = _load(reader, file, dtype, shape if reader.has("shape") else None)
        return BufferPlan(name, role, cast(DType, dtype or array.dtype.name), array.shape, file=file)
    if not reader.has("shape") and role != "scalar":
        raise reader.fault("shape", "is missing")
    if element_count(shape) * numpy_dtype(dtype).itemsize > MAX_BUFFER_BYTES:
        raise reader.fault("shape", f"makes a buffer of over {MAX_BUFFER_BYTES >> 30} GiB")
    fill = _fill(path, f"buffers[{position}].fill", reader.raw("fill"))
    if reader.has("value"):
        fill = Fill("const", lo=reader.number("value"))
    elif role == "scalar" and not reader.has("fill"):
        raise reader.fault("value", "is missing: a scalar needs a value, a fill or a file")
    return BufferPlan(name, role, cast(DType, dtype), shape, fill)


def _fill(path: Path, place: str, item: Any) -> Fill:
    if item is None:
        return Fill()
    reader = _Reader(path, place, item, _FILL_KEYS)
    kind = cast(FillKind, reader.choice("kind", get_args(FillKind)))
    low = reader.number("value") if reader.has("value") else reader.number("lo")
    seed = reader.raw("seed")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise reader.fault("seed", f"is {seed!r}, not a whole number from 0")
    if kind == "const" and low is None:
        raise reader.fault("value", "is missing: const needs one")
    high = reader.number("hi")
    if kind == "randint" and int(low or 0) >= int(2 if high is None else high):
        raise reader.fault("hi", "must be above lo")
    return Fill(kind, seed or 0, low, high)


def _load(reader: _Reader, file: Path, dtype: str, shape: tuple[int, ...] | None) -> Array:
    try:
        array = np.load(file, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError, EOFError) as exc:
        raise reader.fault("file", f"{file.name} cannot be read as .npy: {exc}") from exc
    if not isinstance(array, np.ndarray):
        raise reader.fault("file", f"{file.name} is an archive, not one array")
    wanted = "float32" if dtype == "bfloat16" else dtype
    if (wanted and array.dtype.name != wanted) or array.dtype.name not in get_args(DType):
        raise reader.fault("file", f"{file.name} holds {array.dtype.name}, the launch says {dtype or 'no dtype'}",
                           "bfloat16 comes as float32")  # fmt: skip
    if shape is not None and array.shape != shape:
        raise reader.fault("file", f"{file.name} has shape {list(array.shape)}, the launch says {list(shape)}")
    return array


def read_body(path: Path) -> BodyFile:
    """Read a body file.

    Raises:
        InputError: not JSON, an unknown key, a value of the wrong kind; names the file and the key.
    """
    reader = _Reader(path, "", _parse(path), _BODY_KEYS)
    return BodyFile(
        reader.text("name"),
        reader.names("input_names"),
        reader.names("output_names"),
        reader.text("source"),
        reader.text("header", ""),
        reader.flag("atomic_outputs"),
        reader.extents("grid"),
        reader.extents("threadgroup"),
        reader.template("template"),
        reader.number("init_value"),
    )


def make_array(plan: BufferPlan) -> Array:
    """The array that a buffer starts with.

    Random numbers are those of ``numpy.random.default_rng(seed)``: ``uniform(lo, hi, shape)``,
    ``standard_normal(shape)`` and ``integers(lo, hi, shape)``, then converted; lo and hi are 0 and 1 by default, for
    ``randint`` 0 and 2.

    Returns:
        of the plan's shape and dtype; bfloat16 is rounded to nearest even.
    """
    dtype = numpy_dtype(plan.dtype)
    if plan.file is not None:
        return np.array(np.load(plan.file, allow_pickle=False)).astype(dtype)
    fill, random = plan.fill, np.random.default_rng(plan.fill.seed)
    low = 0.0 if fill.lo is None else fill.lo
    if fill.kind == "const":
        values: Array = np.full(plan.shape, low)
    elif fill.kind == "zeros":
        values = np.zeros(plan.shape)
    elif fill.kind == "arange":
        values = np.arange(element_count(plan.shape)).reshape(plan.shape) + (int(low) if low == int(low) else low)
    elif fill.kind == "randint":
        values = random.integers(int(low), int(2 if fill.hi is None else fill.hi), plan.shape)
    elif fill.kind == "normal":
        values = random.standard_normal(plan.shape)
        if fill.lo is not None or fill.hi is not None:
            values = np.clip(values, fill.lo, fill.hi)
    else:
        values = random.uniform(low, 1.0 if fill.hi is None else fill.hi, plan.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype)
