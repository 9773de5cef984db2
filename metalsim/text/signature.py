"""Generates a kernel's function from its body, as ``mx.fast.metal_kernel`` does.

Rules: MLX, mlx/backend/common/metal_kernel.cpp at 846d176. The Metal text is
for people and for MLX; the C++ text is what metalsim compiles, with the user's lines kept by ``#line``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from metalsim.model import Argument, MlxKernel

CONSTANT_BELOW_ELEMENTS = 8
"""Inputs with fewer elements are passed in the constant address space."""

TYPE_TOKENS: Mapping[str, str] = {
    "float32": "float",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Metal's names of the dtypes, as MLX writes them."""

# Order and numbering are the runtime's: msim_attribute(4 * position + axis), runtime/launch.c.
_VECTOR_ATTRIBUTES = (
    "thread_position_in_grid", "thread_position_in_threadgroup", "threadgroup_position_in_grid",
    "threads_per_threadgroup", "dispatch_threads_per_threadgroup", "threadgroups_per_grid",
    ("threads_per_grid", "grid_size"), "grid_origin",
)  # fmt: skip
_SCALAR_ATTRIBUTES = (
    "thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup", ("threads_per_simdgroup", "thread_execution_width"),
    "thread_index_in_quadgroup", "quadgroup_index_in_threadgroup", "quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup", "dispatch_quadgroups_per_threadgroup",
)  # fmt: skip

Role = Literal["input", "shape", "strides", "ndim", "output", "attribute"]
Space = Literal["device", "constant", "value"]


def _numbered() -> dict[str, tuple[str, int]]:
    table: dict[str, tuple[str, int]] = {}
    for position, entry in enumerate(_VECTOR_ATTRIBUTES + _SCALAR_ATTRIBUTES):
        kind = "uint3" if position < len(_VECTOR_ATTRIBUTES) else "uint"
        for name in (entry,) if isinstance(entry, str) else entry:
            table[name] = (kind, 4 * position)
    return dict(sorted(table.items()))


ATTRIBUTES: Mapping[str, tuple[str, int]] = _numbered()
"""Attribute name to its type and to its number in the runtime."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the generated function.

    Attributes:
        name: as the body sees it.
        role: what it carries.
        declaration: its Metal text, without the attribute.
        argument: name of the input or output that it belongs to; empty for attributes.
        space: address space of a buffer; ``value`` for a reference to one constant, and for attributes.
        buffer: index in the buffer table, -1 for attributes.
    """

    name: str
    role: Role
    declaration: str
    argument: str
    space: Space
    buffer: int


@dataclass(frozen=True)
class Signature:
    """A kernel's generated function.

    Attributes:
        function: name of the function.
        parameters: in order.
        template: template parameters as ``typename T`` or ``int N``.
        template_values: their values as C++ text.
    """

    function: str
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...]
    template_values: tuple[str, ...]

    @property
    def buffer_count(self) -> int:
        """Entries of the buffer table that the kernel takes."""
        return sum(p.buffer >= 0 for p in self.parameters)


def element_count(shape: tuple[int, ...]) -> int:
    """Elements of an array; 1 for a 0-d array."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def input_space(shape: tuple[int, ...]) -> Space:
    """Address space in which MLX passes an input of this shape."""
    if not shape:
        return "value"
    return "constant" if element_count(shape) < CONSTANT_BELOW_ELEMENTS else "device"


def _input_parameters(argument: Argument, source: str, first_buffer: int) -> list[Parameter]:
    name, token = argument.name, TYPE_TOKENS[argument.dtype]
    space = input_space(argument.shape)
    declaration = f"const constant {token}& {name}" if space == "value" else f"const {space} {token}* {name}"
    parameters = [Parameter(name, "input", declaration, name, space, first_buffer)]
    helpers: tuple[tuple[Role, str, Space], ...] = (
        ("shape", "const constant int* {}", "constant"),
        ("strides", "const constant int64_t* {}", "constant"),
        ("ndim", "const constant int& {}", "value"),
    )
    for role, text, helper_space in helpers:
        helper = f"{name}_{role}"
        if argument.shape and helper in source:
            buffer = first_buffer + len(parameters)
            parameters.append(Parameter(helper, role, text.format(helper), name, helper_space, buffer))
    return parameters


def _template(kernel: MlxKernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    parameters, values = [], []
    for name, value in kernel.template.items():
        if isinstance(value, bool):
            parameters.append(f"bool {name}")
            values.append("true" if value else "false")
        elif isinstance(value, int):
            parameters.append(f"int {name}")
            values.append(str(value))
        else:
            parameters.append(f"typename {name}")
            values.append(TYPE_TOKENS[value])
    return tuple(parameters), tuple(values)


def _function_name(kernel: MlxKernel, template_values: tuple[str, ...]) -> str:
    parts = ["custom_kernel_" + kernel.name, *template_values]
    for argument in kernel.inputs:
        suffix = {"value": "s", "constant": "c", "device": ""}[input_space(argument.shape)]
        parts.append(TYPE_TOKENS[argument.dtype] + suffix)
    parts += [TYPE_TOKENS[argument.dtype] for argument in kernel.outputs]
    return "_".join(parts)


def make_signature(kernel: MlxKernel) -> Signature:
    """The function that MLX would generate for ``kernel``.

    Buffers are numbered inputs first, each followed by its helpers, then outputs.
    """
    parameters: list[Parameter] = []
    for argument in kernel.inputs:
        parameters += _input_parameters(argument, kernel.source, len(parameters))
    for argument in kernel.outputs:
        token = TYPE_TOKENS[argument.dtype]
        declaration = f"device {f'atomic<{token}>' if kernel.atomic_outputs else token}* {argument.name}"
        parameters.append(Parameter(argument.name, "output", declaration, argument.name, "device", len(parameters)))
    for name, (kind, _) in ATTRIBUTES.items():
        if name in kernel.source:
            parameters.append(Parameter(name, "attribute", f"{kind} {name}", "", "value", -1))
    template, values = _template(kernel)
    return Signature(_function_name(kernel, values), tuple(parameters), template, values)


def signature_faults(kernel: MlxKernel) -> tuple[str, ...]:
    """Why MLX or Metal would refuse the kernel before its body is read; empty when nothing speaks against it."""
    faults = []
    names = [a.name for a in (*kernel.inputs, *kernel.outputs)] + list(kernel.template)
    for name in [kernel.name, *names]:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            faults.append(f"signature: {name!r} is no C identifier")
    for name in sorted({n for n in names if names.count(n) > 1}):
        faults.append(f"signature: the name {name!r} is used twice")
    if not kernel.outputs:
        faults.append("signature: a kernel needs at least one output")
    for name, value in kernel.template.items():
        if isinstance(value, int) and value < 0:
            faults.append(
                f"signature: template argument {name} = {value}: MLX puts it into the function's name, "
                "where a minus sign cannot stand"
            )
        elif isinstance(value, str) and value not in TYPE_TOKENS:
            faults.append(f"signature: template argument {name} = {value!r} is no dtype")
    return tuple(faults)


def metal_text(kernel: MlxKernel, signature: Signature) -> str:
    """The Metal text that MLX would compile, without its preamble."""
    lines = [kernel.header.rstrip("\n")] if kernel.header else []
    if signature.template:
        lines.append(f"template <{', '.join(signature.template)}>")
    parameters = []
    for p in signature.parameters:
        attribute = f"buffer({p.buffer})" if p.buffer >= 0 else p.name
        parameters.append(f"  {p.declaration} [[{attribute}]]")
    lines.append(f"[[kernel]] void {signature.function}(")
    lines.append(",\n".join(parameters) + ") {")
    lines += [kernel.source.rstrip("\n"), "}"]
    if signature.template:
        instance = f"{signature.function}<{', '.join(signature.template_values)}>"
        lines.append(f'template [[host_name("{signature.function}")]] [[kernel]] decltype({instance}) {instance};')
    return "\n".join(lines) + "\n"


def cxx_text(signature: Signature, *, body: str, header: str, swizzles: str) -> str:
    """The C++ text to compile: shim, rewritten header and body, and the entry point.

    Args:
        signature: of the kernel.
        body, header: already rewritten (``metalsim.text.rewrite``), with their line breaks in place.
        swizzles: macro definitions of the swizzles used.
    """
    lines = [swizzles, '#include "metalsim/kernel.h"', "using namespace metal;"]
    lines += ['#line 1 "header"', header, '#line 1 "signature"']
    if signature.template:
        lines.append(f"template <{', '.join(signature.template)}>")
    parameters = ", ".join(p.declaration for p in signature.parameters)
    lines.append(f"static inline __attribute__((always_inline)) void {signature.function}({parameters}) {{")
    lines += ['#line 1 "body"', body, '#line 100 "signature"', "}"]
    arguments = []
    for p in signature.parameters:
        if p.role == "attribute":
            kind, number = ATTRIBUTES[p.name]
            axes = range(number, number + (3 if kind == "uint3" else 1))
            values = ", ".join(f"msim_attribute({axis})" for axis in axes)
            arguments.append(f"uint3{{{values}}}" if kind == "uint3" else values)
        else:
            pointer = p.declaration.removesuffix(p.name).replace("&", "*").strip()
            star = "*" if p.space == "value" else ""
            arguments.append(f"{star}({pointer})msim_buffer({p.buffer})")
    instance = f"<{', '.join(signature.template_values)}>" if signature.template else ""
    lines.append('extern "C" [[clang::sycl_external]] void msim_entry() {')
    lines.append(f"    {signature.function}{instance}({', '.join(arguments)});")
    lines.append("}")
    return "\n".join(lines) + "\n"
