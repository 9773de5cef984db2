"""Runs compiled kernels on numpy arrays."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from metalsim.build.abi import MAX_THREADS, RANDOM_BYTES, SIMD_WIDTH, BufferSpec, Event, Launch, Role
from metalsim.build.births import arrivals
from metalsim.build.instrument import Site
from metalsim.build.kernel import CompiledKernel
from metalsim.build.toolchain import Mode
from metalsim.errors import EnvironmentLacking, InputError
from metalsim.execute.checks import BufferName, Geometry, Reporter, is_unwritten_read, limit_findings
from metalsim.execute.raw import GROUP_COUNTS, SITE_COUNTS, RawCounts
from metalsim.execute.unwritten import is_unused
from metalsim.model import Argument, DType, Finding, Limits
from metalsim.text.signature import element_count, input_space

Array = npt.NDArray[Any]

STACK_BYTES = 1 << 18
"""Thread memory of one thread, for its local arrays; only what is touched becomes real memory."""

_EVENT_CAPACITY = 512


@dataclass(frozen=True)
class RunResult:
    """What a launch gave.

    Attributes:
        outputs: one array per output; elements that no thread wrote hold NaN or random bits.
        findings: faults; empty in counted mode apart from accesses out of range and exceeded limits.
        raw: counts, None in checked mode.
        threadgroups_total: threadgroups of the grid.
        threadgroups_run: how many of them were run (0 when the launch is impossible).
        threads_per_threadgroup: threads of a full threadgroup, after the clamp to the grid.
        threadgroup_bytes: bytes of threadgroup memory declared by the threadgroup that reached most.
    """

    outputs: dict[str, Array]
    findings: tuple[Finding, ...]
    raw: RawCounts | None
    threadgroups_total: int
    threadgroups_run: int
    threads_per_threadgroup: int
    threadgroup_bytes: int


@dataclass(frozen=True)
class Poison:
    """What outputs hold before the launch.

    Attributes:
        seed: of the random bits that stand in integer outputs and threadgroup memory.
        init_value: value of all outputs instead, as MLX's ``init_value``; they then count as written.
    """

    seed: int = 0
    init_value: float | None = None


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy type of a ``metalsim.model.DType``."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


@cache
def load_library(path: Path) -> tuple[ctypes.CDLL, threading.Lock]:
    """A compiled kernel's library, and the lock that its launches take in turn."""
    if sys.platform == "linux":
        # Kernels are linked without libm: glibc's is put into the global scope, musl's is part of its libc.
        with contextlib.suppress(OSError):
            ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(path))
    library.msim_run.argtypes = [ctypes.POINTER(Launch)]
    library.msim_run.restype = ctypes.c_int
    return library, threading.Lock()


def _checked_input(argument: Argument, inputs: Mapping[str, Array]) -> Array:
    if argument.name not in inputs:
        raise InputError(f"input '{argument.name}' is missing")
    array = np.ascontiguousarray(inputs[argument.name]).reshape(np.shape(inputs[argument.name]))
    if array.dtype != numpy_dtype(argument.dtype):
        raise InputError(f"input '{argument.name}' is {array.dtype}, the kernel takes {argument.dtype}")
    same_class = array.ndim == len(argument.shape) and input_space(array.shape) == input_space(argument.shape)
    if not same_class:
        raise InputError(
            f"input '{argument.name}' of shape {array.shape} has another signature than {argument.shape}",
            "compile the kernel again for this shape",
        )
    return array


def prefilled(kind: DType, shape: tuple[int, ...], poison: Poison) -> Array:
    """An array as outputs look before the launch."""
    dtype = numpy_dtype(kind)
    if poison.init_value is not None:
        return np.full(shape, poison.init_value).astype(dtype)
    if kind in ("float32", "float16", "bfloat16"):
        return np.full(shape, np.nan, np.float32).astype(dtype)
    random = np.random.default_rng(poison.seed)
    if kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def has_nan(array: Array) -> bool:
    """Whether any element, or any floating-point member of a structure, is NaN."""
    if array.dtype.names:
        return any(has_nan(array[name]) for name in array.dtype.names)
    floating = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
    return floating and bool(np.isnan(array).any())


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [element_count(shape[axis + 1 :]) for axis in range(len(shape))]


class _Buffers:
    """The buffer table of a launch; keeps the arrays alive."""

    def __init__(
        self,
        compiled: CompiledKernel,
        inputs: Mapping[str, Array],
        output_shapes: Mapping[str, tuple[int, ...]],
        poison: Poison,
    ) -> None:
        kernel = compiled.kernel
        arrays = {a.name: _checked_input(a, inputs) for a in kernel.inputs}
        self.outputs: dict[str, Array] = {}
        for argument in kernel.outputs:
            shape = tuple(output_shapes.get(argument.name, argument.shape))
            self.outputs[argument.name] = prefilled(argument.dtype, shape, poison)
        self.names: list[BufferName] = []
        self._arrays: list[Array] = []
        self._roles: list[Role] = []
        written = Role.OUTPUT if poison.init_value is None else Role.INITIALIZED_OUTPUT
        for parameter in compiled.signature.parameters:
            owner = parameter.argument
            if parameter.role == "output":
                self._add(parameter.name, self.outputs[owner], written)
            elif parameter.role == "input":
                role = Role.INPUT if parameter.space == "device" else Role.CONSTANT
                self._add(parameter.name, arrays[owner], role)
            elif parameter.role != "attribute":
                shape = arrays[owner].shape
                values = {"shape": list(shape), "strides": _strides(shape), "ndim": [len(shape)]}[parameter.role]
                kind = np.int64 if parameter.role == "strides" else np.int32
                self._add(parameter.name, np.array(values, kind), Role.CONSTANT)

    def _add(self, name: str, array: Array, role: Role) -> None:
        self.names.append(BufferName(name, array.itemsize, array.nbytes))
        self._arrays.append(array)
        self._roles.append(role)

    @property
    def table_entries(self) -> int:
        """Buffers of a generated signature have all indices from 0."""
        return len(self.names)

    def table(self) -> ctypes.Array[BufferSpec]:
        """The C structures."""
        specs = [
            BufferSpec(array.ctypes.data, array.nbytes, array.itemsize, int(role))
            for array, role in zip(self._arrays, self._roles, strict=True)
        ]
        return (BufferSpec * max(len(specs), 1))(*specs)


class _Counters:
    """Arrays that the runtime counts into."""

    def __init__(self, compiled: Program, groups: npt.NDArray[np.uint64], threads: int) -> None:
        self._groups = groups
        self._blocks = np.zeros((len(groups), len(compiled.blocks), threads), np.uint32)
        self._sites = np.zeros(len(compiled.sites), SITE_COUNTS)
        self._counts = np.zeros(len(groups), GROUP_COUNTS)

    def attach(self, launch: Launch) -> None:
        """Let the launch count into these arrays."""
        launch.block_counts = self._blocks.ctypes.data
        launch.sites = self._sites.ctypes.data
        launch.counts = self._counts.ctypes.data

    def raw(self) -> RawCounts:
        """The counts."""
        return RawCounts(self._groups.astype(np.int64), self._blocks, self._sites, self._counts)


def _chosen(threadgroups: Sequence[int] | None, total: int) -> npt.NDArray[np.uint64]:
    if threadgroups is None:
        return np.arange(total, dtype=np.uint64)
    for index in threadgroups:
        if not 0 <= index < total:
            raise InputError(f"threadgroup {index} does not exist", f"the grid has {total} threadgroups")
    return np.array(sorted(set(threadgroups)), np.uint64)


class Program(Protocol):
    """What ``execute`` needs of a compiled kernel."""

    @property
    def mode(self) -> Mode:
        """What it was compiled for."""
        ...

    @property
    def library(self) -> Path:
        """The shared library."""
        ...

    @property
    def sites(self) -> tuple[Site, ...]:
        """Places that access memory."""
        ...

    @property
    def blocks(self) -> tuple[Any, ...]:
        """Profiles of the basic blocks."""
        ...

    @property
    def limits(self) -> Limits:
        """That it was compiled for."""
        ...


class Bindings(Protocol):
    """The buffer table of a launch."""

    @property
    def names(self) -> Sequence[BufferName]:
        """Buffers in the table's order."""
        ...

    @property
    def table_entries(self) -> int:
        """Entries that the buffer argument table needs: one more than the largest index."""
        ...

    @property
    def outputs(self) -> dict[str, Array]:
        """Arrays that the kernel writes."""
        ...

    def table(self) -> ctypes.Array[BufferSpec]:
        """The C structures."""
        ...


@dataclass(frozen=True)
class LaunchOptions:
    """How to run, apart from sizes.

    Attributes:
        limits: of the chip; None for those that the kernel was compiled with.
        threadgroups: linear indices of the threadgroups to run, x fastest; None for all.
        seed: of the poison in threadgroup memory.
        max_findings: at most that many findings are reported.
        threadgroup_lengths: bytes of threadgroup arguments by index.
    """

    limits: Limits | None = None
    threadgroups: Sequence[int] | None = None
    seed: int = 0
    max_findings: int = 32
    threadgroup_lengths: Mapping[int, int] = field(default_factory=dict)


def _execute(compiled: Program, launch: Launch) -> None:
    library, lock = load_library(compiled.library)
    with lock:
        ready = library.msim_run(ctypes.byref(launch))
    if not ready:
        raise EnvironmentLacking("not enough memory to simulate the launch", "use smaller arrays or fewer threads")


def _simulate(
    compiled: Program,
    buffers: Bindings,
    chosen: npt.NDArray[np.uint64],
    geometry: Geometry,
    grid: tuple[int, int, int],
    options: LaunchOptions,
    unwritten_byte: int = RANDOM_BYTES,
) -> tuple[Launch, list[Event], RawCounts | None]:
    """Run the chosen threadgroups; the finished launch, what the runtime noticed, and the counts."""
    table, events = buffers.table(), (Event * _EVENT_CAPACITY)()
    launch = Launch(
        buffers=table, buffer_count=len(buffers.names), groups=chosen.ctypes.data, group_count=len(chosen),
        seed=options.seed, stack_bytes=STACK_BYTES, events=events, event_capacity=_EVENT_CAPACITY,
        site_count=len(compiled.sites), block_count=len(compiled.blocks),
        checked=compiled.mode in ("checked", "traced"), counted=compiled.mode == "counted",
        traced=compiled.mode == "traced", unwritten_byte=unwritten_byte,
        grid=grid, threadgroup=geometry.threadgroup,
    )  # fmt: skip
    roots = np.array([site.buffer for site in compiled.sites], np.int32)  # -1 is NO_INDEX
    launch.site_buffers = roots.ctypes.data
    for index, length in options.threadgroup_lengths.items():
        launch.threadgroup_lengths[index] = length
    counters = None
    if compiled.mode == "counted":
        counters = _Counters(compiled, chosen, element_count(geometry.threadgroup))
        counters.attach(launch)
    _execute(compiled, launch)
    return launch, events[: launch.event_count], counters.raw() if counters else None


def _observe(
    compiled: Program,
    buffers: Bindings,
    chosen: npt.NDArray[np.uint64],
    geometry: Geometry,
    grid: tuple[int, int, int],
    options: LaunchOptions,
) -> tuple[Launch, list[Event], RawCounts | None]:
    """As ``_simulate``, without reads of unwritten threadgroup memory that turn out not to matter."""
    before = {name: array.copy() for name, array in buffers.outputs.items()} if compiled.mode == "checked" else {}
    launch, events, raw = _simulate(compiled, buffers, chosen, geometry, grid, options)
    kept = [event for event in events if not is_unwritten_read(event)]
    if len(kept) == len(events) or launch.stopped:
        return launch, events, raw

    def repeat(byte: int) -> None:
        _simulate(compiled, buffers, chosen, geometry, grid, options, byte)

    # In traced mode that memory always holds the same; the launch in checked mode has told what matters.
    unused = compiled.mode == "traced" or is_unused(buffers.outputs, before, repeat)
    return launch, kept if unused else events, raw


def run(  # noqa: PLR0913
    compiled: CompiledKernel,
    inputs: Mapping[str, Array],
    output_shapes: Mapping[str, tuple[int, ...]],
    *,
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    limits: Limits | None = None,
    threadgroups: Sequence[int] | None = None,
    seed: int = 0,
    max_findings: int = 32,
    init_value: float | None = None,
) -> RunResult:
    """Run a kernel.

    Args:
        compiled: from ``compile_kernel``.
        inputs: by name; made row-contiguous when they are not.
        output_shapes: by name; an output that is not named has the shape it was compiled with.
        grid: threads per axis, x first.
        threadgroup: threads per axis, clamped to the grid as MLX does; threadgroups at the grid's edge
            are smaller.
        limits: of the chip, by default those that the kernel was compiled with.
        threadgroups: linear indices of the threadgroups to run, x fastest; None for all.
        seed: of the poison in outputs and threadgroup memory.
        max_findings: at most that many findings are reported.
        init_value: fills all outputs before the launch, as MLX's ``init_value``.

    Raises:
        InputError: arrays that don't fit the compiled signature, an empty grid, an index out of range.
        EnvironmentLacking: not enough memory.
    """
    buffers = _Buffers(compiled, inputs, output_shapes, Poison(seed, init_value))
    return execute(compiled, buffers, grid, threadgroup, LaunchOptions(limits, threadgroups, seed, max_findings))


def execute(
    compiled: Program,
    buffers: Bindings,
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    options: LaunchOptions,
) -> RunResult:
    """Run a compiled kernel on a buffer table.

    Args:
        compiled: from ``compile_kernel`` or ``compile_file``.
        buffers: in the order in which the kernel asks for them.
        grid: threads per axis, x first.
        threadgroup: threads per axis, clamped to the grid.
        options: limits, sampled threadgroups and the like.

    Raises:
        InputError: an empty grid, an index out of range.
        EnvironmentLacking: not enough memory.
    """
    if min(*grid, *threadgroup) < 1:
        raise InputError(f"grid {grid} and threadgroup {threadgroup} need at least one thread per axis")
    limits = options.limits or compiled.limits
    if limits.simd_width != SIMD_WIDTH:
        raise InputError(f"metalsim runs SIMD-groups of {SIMD_WIDTH} lanes, not {limits.simd_width}")
    size = (min(grid[0], threadgroup[0]), min(grid[1], threadgroup[1]), min(grid[2], threadgroup[2]))
    groups = (-(-grid[0] // size[0]), -(-grid[1] // size[1]), -(-grid[2] // size[2]))
    threads, total = element_count(size), element_count(groups)
    requested = element_count(threadgroup)
    chosen = _chosen(options.threadgroups, total)
    if threads > MAX_THREADS:
        findings = limit_findings(limits, threads=requested, threadgroup_bytes=0, buffers=buffers.table_entries)
        return RunResult(buffers.outputs, findings[: options.max_findings], None, total, 0, threads, 0)

    launch, events, raw = _observe(compiled, buffers, chosen, Geometry(groups, size), grid, options)
    born = arrivals(buffers.outputs) if compiled.mode == "traced" else {}
    reporter = Reporter(compiled.sites, buffers.names, Geometry(groups, size), born)
    declared = int(launch.threadgroup_bytes)
    found = limit_findings(limits, threads=requested, threadgroup_bytes=declared, buffers=buffers.table_entries)
    found += reporter.findings(events, options.max_findings)
    return RunResult(buffers.outputs, found[: options.max_findings], raw, total, len(chosen), threads, declared)
