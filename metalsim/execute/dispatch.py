"""Runs kernels of whole files on numpy arrays bound to their buffer indices."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metalsim.build.abi import MAX_THREADGROUP_ARGUMENT_BYTES, BufferSpec, Role
from metalsim.build.file import CompiledFile, FileParameter
from metalsim.errors import InputError
from metalsim.execute.checks import BufferName
from metalsim.execute.elements import read_element
from metalsim.execute.launch import Array, LaunchOptions, Poison, RunResult, execute, numpy_dtype, prefilled
from metalsim.model import DType


@dataclass(frozen=True)
class Fresh:
    """A buffer that holds nothing yet: reading it before it was written is a finding, and so is never writing it.

    Attributes:
        dtype: element type.
        shape: extent per axis.
    """

    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ReadOnly:
    """An array that the kernel must not write, even where its parameter would let it.

    Attributes:
        array: the values.
    """

    array: Array


Bound = Array | Fresh | ReadOnly


class _Table:
    """Buffers in the order of the function's parameters."""

    def __init__(self, compiled: CompiledFile, buffers: Mapping[int | str, Bound], seed: int) -> None:
        self.names: list[BufferName] = []
        self.outputs: dict[str, Array] = {}
        self._arrays: list[Array] = []
        self._roles: list[Role] = []
        parameters = [p for p in compiled.parameters if p.role == "buffer"]
        self.table_entries = max((p.index + 1 for p in parameters), default=0)
        known = {p.index for p in parameters} | {p.name for p in parameters}
        unknown = [key for key in buffers if key not in known]
        if unknown:
            listed = ", ".join(f"{p.index} {p.name}" for p in parameters)
            raise InputError(f"the kernel has no buffer {unknown[0]!r}", f"its buffers: {listed}")
        for parameter in parameters:
            bound = buffers.get(parameter.index, buffers.get(parameter.name))
            self._bind(parameter, bound, seed)

    def _bind(self, parameter: FileParameter, bound: Bound | None, seed: int) -> None:
        if bound is None:
            # Not bound: any access is out of range.
            array: Array = np.zeros(0, np.uint8)
            role = Role.INPUT
        elif isinstance(bound, Fresh):
            if not parameter.writable:
                raise InputError(f"buffer {parameter.index} {parameter.name} is read-only and needs an array")
            array = np.asarray(prefilled(bound.dtype, bound.shape, Poison(seed)), numpy_dtype(bound.dtype))
            role = Role.OUTPUT
        else:
            writable = parameter.writable and not isinstance(bound, ReadOnly)
            array = np.array(bound.array if isinstance(bound, ReadOnly) else bound, order="C")
            role = Role.INITIALIZED_OUTPUT if writable else Role.INPUT
            if parameter.space == "constant":
                role = Role.CONSTANT
        if role in (Role.OUTPUT, Role.INITIALIZED_OUTPUT):
            self.outputs[parameter.name] = array
        element = read_element(parameter.kind[:-1])
        # Of packed or unusual data, the array's own elements are what the user knows.
        is_vector = element is not None and element.width > 1 and numpy_dtype(element.dtype) == array.dtype
        vector_bytes = element.bytes if element is not None and is_vector else 0
        self.names.append(BufferName(parameter.name, max(array.itemsize, 1), array.nbytes, vector_bytes))
        self._arrays.append(array)
        self._roles.append(role)

    def table(self) -> ctypes.Array[BufferSpec]:
        """The C structures."""
        specs = [
            BufferSpec(array.ctypes.data, array.nbytes, max(array.itemsize, 1), int(role))
            for array, role in zip(self._arrays, self._roles, strict=True)
        ]
        return (BufferSpec * max(len(specs), 1))(*specs)


def run_file(
    compiled: CompiledFile,
    buffers: Mapping[int | str, Any],
    *,
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    options: LaunchOptions | None = None,
) -> RunResult:
    """Run a kernel of a file.

    Args:
        compiled: from ``compile_file``.
        buffers: array, numpy scalar, ``ReadOnly`` or ``Fresh`` by buffer index or parameter name; structures as arrays
            of a structured dtype. Arrays are copied. A buffer that is left out has no elements.
        grid: threads per axis, x first.
        threadgroup: threads per axis, clamped to the grid; threadgroups at the grid's edge are smaller.
        options: limits, sampled threadgroups, ``threadgroup_lengths`` in bytes by index, and the like.

    Returns:
        ``outputs`` holds every buffer that the kernel may write, by parameter name.

    Raises:
        InputError: an unknown buffer, a read-only one without values, a missing or too large threadgroup length,
            an empty grid.
        EnvironmentLacking: not enough memory.
    """
    options = options or LaunchOptions()
    wanted = {p.index: p.name for p in compiled.parameters if p.role == "threadgroup"}
    for index in options.threadgroup_lengths:
        if index not in wanted:
            raise InputError(f"the kernel has no threadgroup argument {index}")
    for index, name in wanted.items():
        length = options.threadgroup_lengths.get(index, 0)
        if not 0 < length <= MAX_THREADGROUP_ARGUMENT_BYTES:
            raise InputError(
                f"threadgroup argument {index} {name} of {length} bytes",
                f"set LaunchOptions.threadgroup_lengths, at most {MAX_THREADGROUP_ARGUMENT_BYTES}",
            )
    return execute(compiled, _Table(compiled, buffers, options.seed), grid, threadgroup, options)
