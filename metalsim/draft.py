"""Drafts a launch file for a kernel: every buffer with the type that the kernel's text gives it."""

from __future__ import annotations

from typing import Any

from metalsim.build.file import CompiledFile, FileParameter
from metalsim.execute.elements import read_element
from metalsim.launchfile import BodyFile

_THREADS = 1024
_THREADGROUP = 256
_THREADGROUP_BYTES = 4096
_STRUCT_BYTES = 64


def draft_launch(compiled: CompiledFile, entry: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A launch file's content for a kernel, to be edited.

    Args:
        compiled: the kernel, in any mode.
        entry: its name as the user says it.

    Returns:
        the content, for JSON, and remarks on what is a guess beyond sizes.
    """
    remarks: list[str] = []
    buffers = sorted((p for p in compiled.parameters if p.role == "buffer"), key=lambda p: p.index)
    content: dict[str, Any] = {
        "entry": entry,
        "grid_threads": [_THREADS, 1, 1],
        "threadgroup": [_THREADGROUP, 1, 1],
        "buffers": [_buffer(parameter, seed, remarks) for seed, parameter in enumerate(buffers)],
    }
    if memory := [_THREADGROUP_BYTES for p in compiled.parameters if p.role == "threadgroup"]:
        content["threadgroup_memory"] = memory
    if compiled.constants:
        content["function_constants"] = {constant.name: 0 for constant in compiled.constants}
    return content, tuple(remarks)


def draft_body(body: BodyFile) -> dict[str, Any]:
    """A launch file's content for a kernel body, whose arrays' types it does not say: float32 is a guess."""
    content: dict[str, Any] = {}
    if body.grid is None:
        content["grid_threads"] = [_THREADS, 1, 1]
    if body.threadgroup is None:
        content["threadgroup"] = [_THREADGROUP, 1, 1]
    plain = {"dtype": "float32", "shape": [_THREADS]}
    inputs = [
        {"name": name, "role": "in", **plain, "fill": {"kind": "normal", "seed": seed}}
        for seed, name in enumerate(body.input_names)
    ]
    content["buffers"] = [*inputs, *({"name": name, "role": "out", **plain} for name in body.output_names)]
    return content


def _buffer(parameter: FileParameter, seed: int, remarks: list[str]) -> dict[str, Any]:
    kind = parameter.kind[:-1]
    element = read_element(kind)
    if element is None:
        remarks.append(f"buffer {parameter.name} holds {kind}: give its bytes as uint8, best from an .npy file")
        return {"name": parameter.name, "role": "in", "dtype": "uint8", "shape": [_STRUCT_BYTES],
                "fill": {"kind": "zeros"}}  # fmt: skip
    dtype, width = element.dtype, [element.width] if element.width > 1 else []
    if parameter.kind.endswith("&"):
        if width:
            return {"name": parameter.name, "role": "in", "dtype": dtype, "shape": width,
                    "fill": {"kind": "const", "value": 1}}  # fmt: skip
        value = _THREADS if "int" in dtype else 1
        return {"name": parameter.name, "role": "scalar", "dtype": dtype, "value": value}
    entry: dict[str, Any] = {"name": parameter.name, "role": "in", "dtype": dtype, "shape": [_THREADS, *width]}
    if parameter.writable and "atomic" in kind:
        return {**entry, "role": "inout", "fill": {"kind": "zeros"}}
    if parameter.writable:
        return {**entry, "role": "out"}
    random = "normal" if dtype.startswith(("float", "bfloat")) else "randint"
    return {**entry, "fill": {"kind": random, "seed": seed}}
