"""Writes what ``mx.fast.cuda_kernel`` takes: a header with the whole kernel in it, and a body that calls it.

The kernel is an inlined function of its own, so that its text sees Metal's names alone and MLX's signature can stay
MLX's. Rules of that signature: mlx/backend/cuda/custom_kernel.cpp at 846d176. How its launch differs from Metal's:
the grid is rounded up to whole threadgroups, and no attribute of a thread is given.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from metalsim.model import Argument, MlxKernel
from metalsim.text.signature import ATTRIBUTES
from metalsim.text.tokens import tokenize
from search.backends.cuda_text.rewrite import calls_diverge, rewrite_body, rewrite_header

WARP_LANES = 32
_HEADERS = Path(__file__).parent.parent / "kx_metal"
_LARGEST_GRID = (2**31 - 1, 65535, 65535)

_TYPES: Mapping[str, str] = {
    "float32": "float", "float16": "half", "bfloat16": "bfloat", "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip

Extents = tuple[int, int, int]


@dataclass(frozen=True)
class CudaKernel:
    """Arguments of ``mx.fast.cuda_kernel``.

    Attributes:
        name: with the hash of all text, since MLX finds compiled kernels by name.
        header, source: text.
        input_names, output_names: in the order of the Metal kernel's.
        refusals: what can't be rewritten; then the rest must not be used.
    """

    name: str
    header: str
    source: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Launch:
    """How a launch in Metal's terms looks on CUDA.

    Attributes:
        grid: threads per axis that exist on Metal.
        group: threads per axis of a full threadgroup.
    """

    grid: Extents
    group: Extents

    @property
    def is_ragged(self) -> bool:
        """Whether blocks reach beyond the grid."""
        return any(threads % size for threads, size in zip(self.grid, self.group, strict=True))

    @property
    def has_whole_simdgroups(self) -> bool:
        """Whether every warp has 32 threads that exist on Metal."""
        return not self.is_ragged and math.prod(self.group) % WARP_LANES == 0

    @property
    def is_flat(self) -> bool:
        """Whether threadgroups extend along x alone."""
        return self.group[1] == self.group[2] == 1

    def blocks(self) -> Extents:
        """Blocks per axis."""
        x, y, z = (-(-threads // size) for threads, size in zip(self.grid, self.group, strict=True))
        return (x, y, z)


def write_cuda_kernel(kernel: MlxKernel, grid: Extents, threadgroup: Extents) -> CudaKernel:
    """The CUDA text of one launch of a Metal kernel.

    Args:
        kernel: in the convention of ``mx.fast.metal_kernel``.
        grid: threads per axis.
        threadgroup: threads per axis as asked for; Metal and MLX take no more than the grid has.
    """
    x, y, z = (min(size, threads) for size, threads in zip(threadgroup, grid, strict=True))
    launch = _Launch(grid, (x, y, z))
    body, header = rewrite_body(kernel.source, kernel.header), rewrite_header(kernel.header)
    uses_lanes, uses_matrices = body.uses_lanes or header.uses_lanes, body.uses_matrices or header.uses_matrices
    refusals = [*header.refusals, *body.refusals, *_launch_refusals(launch, uses_lanes, uses_matrices)]
    if kernel.atomic_outputs:
        refusals.append("signature: outputs that are all atomic are not rewritten; cast the pointer where it is used")
    all_arrive = (
        launch.has_whole_simdgroups and not body.leaves_early and not calls_diverge(kernel.source, kernel.header)
    )
    names_in = tuple(f"kx{i}" for i in range(len(kernel.inputs)))
    names_out = tuple(f"kx_out{i}" for i in range(len(kernel.outputs)))
    parameters, arguments = _parameters(kernel, names_in, names_out)
    lines = [
        f"#define KX_MATRIX_LANES {int(uses_matrices)}",
        f"#define KX_LANES {'kx_whole' if all_arrive else 'kx_active'}",
        _headers(_headers_for(kernel, uses_lanes, uses_matrices)),
        "namespace kx_metal {",
        '#line 1 "header"',
        header.text,
        '#line 1 "signature"',
        f"KX_FN void kx_stage({', '.join(parameters)}) {{",
        *_constants(kernel),
        *_attributes(kernel, launch, uses_matrices),
        '#line 1 "body"',
        body.text,
        '#line 1 "after"',
        "}",
        "}  // namespace kx_metal",
        "",
    ]
    text = "\n".join(lines)
    source = f"    kx_metal::kx_stage({', '.join(arguments)});"
    digest = hashlib.sha256(f"{text}\0{source}".encode()).hexdigest()[:16]
    return CudaKernel(f"{kernel.name}_{digest}", text, source, names_in, names_out, tuple(refusals))


@cache
def _headers(names: tuple[str, ...]) -> str:
    """Our headers, packed: MLX hashes the whole text at every call, which took longer than a small launch."""
    texts = []
    for name in names:
        text = re.sub(r"//[^\n]*", "", (_HEADERS / f"{name}.cuh").read_text(encoding="utf-8"))
        text = re.sub(r"\s*\\\n\s*", " ", text)
        lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
        texts.append("\n".join([f'#line 1 "kx_metal/{name}.cuh"', *(line for line in lines if line)]))
    return "\n".join(texts)


def _headers_for(kernel: MlxKernel, uses_lanes: bool, uses_matrices: bool) -> tuple[str, ...]:
    text = kernel.header + kernel.source
    names = ["types", "vectors", "math"]
    if uses_lanes or uses_matrices or "barrier" in text or "atomic" in text:
        names.append("simd")
    if "atomic" in text:
        names.append("atomic")
    if uses_matrices:
        names.append("matrix")
    return tuple(names)


def _launch_refusals(launch: _Launch, uses_lanes: bool, uses_matrices: bool) -> list[str]:
    refusals = []
    if launch.is_ragged and not launch.is_flat and uses_lanes:
        refusals.append(
            f"launch: at the edges of a grid of {list(launch.grid)}, SIMD-groups of threadgroups of "
            f"{list(launch.group)} are other threads on CUDA; round the grid up"
        )
    if uses_matrices and not launch.has_whole_simdgroups:
        refusals.append("launch: simdgroup matrices need threadgroups of whole SIMD-groups that divide the grid")
    for axis, blocks, most in zip("xyz", launch.blocks(), _LARGEST_GRID, strict=True):
        if blocks > most:
            refusals.append(f"launch: {blocks} threadgroups along {axis}; CUDA takes {most}")
    return refusals


def _parameters(
    kernel: MlxKernel, names_in: tuple[str, ...], names_out: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Parameters of our function, and what the body that MLX wraps passes."""
    parameters, arguments = [], []
    for argument, name in zip(kernel.inputs, names_in, strict=True):
        kind = _TYPES[argument.dtype]
        pointer = _pointer(name, argument, "const ")
        parameters.append(f"const {kind}{'* ' if argument.shape else ' '}{argument.name}")
        arguments.append(pointer if argument.shape else f"*{pointer}")
        for helper, declaration, value in (
            ("shape", "const int* {}", "{}.data()"),
            ("strides", "const int64_t* {}", "reinterpret_cast<const long*>({}.data())"),
            ("ndim", "int {}", "{}"),
        ):
            if argument.shape and f"{argument.name}_{helper}" in kernel.source:
                parameters.append(declaration.format(f"{argument.name}_{helper}"))
                arguments.append(value.format(f"{name}_{helper}"))
    for argument, name in zip(kernel.outputs, names_out, strict=True):
        parameters.append(f"{_TYPES[argument.dtype]}* {argument.name}")
        arguments.append(_pointer(name, argument, ""))
    return parameters, arguments


def _pointer(name: str, argument: Argument, const: str) -> str:
    if argument.dtype in ("float16", "bfloat16", "int64", "uint64"):
        return f"reinterpret_cast<{const}kx_metal::{_TYPES[argument.dtype]}*>({name})"
    return name


def _constants(kernel: MlxKernel) -> list[str]:
    lines = []
    for name, value in kernel.template.items():
        if isinstance(value, bool):
            lines.append(f"constexpr bool {name} = {'true' if value else 'false'};")
        elif isinstance(value, int):
            lines.append(f"constexpr int {name} = {value};")
        else:
            lines.append(f"using {name} = {_TYPES[value]};")
    return lines


def _attributes(kernel: MlxKernel, launch: _Launch, renamed: bool) -> list[str]:
    """Definitions of the attributes that the body names, and the end of surplus threads."""
    used = {t.text for t in tokenize(kernel.source) if t.kind == "name" and t.text in ATTRIBUTES}
    lines = []
    if launch.is_ragged:
        x, y, z = (f"blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis}" for axis in "xyz")
        gx, gy, gz = launch.grid
        lines.append(f"if ({x} >= {gx}u || {y} >= {gy}u || {z} >= {gz}u) return;")
    if not used:
        return lines
    lines += [
        "const uint3 kx_group = kx_uint3(blockIdx);",
        "const uint3 kx_full = kx_uint3(blockDim);",
        f"const uint3 kx_grid = {_grid_text(launch)};",
        f"const uint3 kx_size = {'min(kx_full, kx_grid - kx_group * kx_full)' if launch.is_ragged else 'kx_full'};",
        *_thread_lines(launch, renamed),
    ]
    values = {
        "thread_position_in_grid": "kx_group * kx_full + kx_thread",
        "thread_position_in_threadgroup": "kx_thread",
        "threadgroup_position_in_grid": "kx_group",
        "threads_per_threadgroup": "kx_size",
        "dispatch_threads_per_threadgroup": "kx_full",
        "threadgroups_per_grid": "kx_uint3(gridDim)",
        "threads_per_grid": "kx_grid",
        "grid_size": "kx_grid",
        "grid_origin": "uint3(0u)",
        "thread_index_in_threadgroup": "kx_flat",
        "thread_index_in_simdgroup": "kx_flat % 32u",
        "simdgroup_index_in_threadgroup": "kx_flat / 32u",
        "simdgroups_per_threadgroup": "(kx_size.x * kx_size.y * kx_size.z + 31u) / 32u",
        "dispatch_simdgroups_per_threadgroup": "(kx_full.x * kx_full.y * kx_full.z + 31u) / 32u",
        "threads_per_simdgroup": "32u",
        "thread_execution_width": "32u",
        "thread_index_in_quadgroup": "kx_flat % 4u",
        "quadgroup_index_in_threadgroup": "kx_flat / 4u",
        "quadgroups_per_threadgroup": "(kx_size.x * kx_size.y * kx_size.z + 3u) / 4u",
        "dispatch_quadgroups_per_threadgroup": "(kx_full.x * kx_full.y * kx_full.z + 3u) / 4u",
    }
    return lines + [f"const {ATTRIBUTES[name][0]} {name} = {values[name]};" for name in sorted(used)]


def _grid_text(launch: _Launch) -> str:
    if launch.is_ragged:
        return f"uint3({', '.join(f'{threads}u' for threads in launch.grid)})"
    return "kx_uint3(gridDim) * kx_full"


def _thread_lines(launch: _Launch, renamed: bool) -> list[str]:
    """The thread's place in its threadgroup and its flattened index there, as Metal counts the threads that exist."""
    if launch.is_flat:
        flat = "kx_renamed(threadIdx.x)" if renamed else "threadIdx.x"
        return [f"const uint kx_flat = {flat};", "const uint3 kx_thread = uint3(kx_flat, 0u, 0u);"]
    if not renamed:
        return [
            "const uint3 kx_thread = kx_uint3(threadIdx);",
            "const uint kx_flat = (kx_thread.z * kx_size.y + kx_thread.y) * kx_size.x + kx_thread.x;",
        ]
    return [
        "const uint kx_flat = kx_renamed((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);",
        "const uint3 kx_thread = uint3(kx_flat % kx_full.x, kx_flat / kx_full.x % kx_full.y, "
        "kx_flat / (kx_full.x * kx_full.y));",
    ]
