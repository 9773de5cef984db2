"""What goes into a simulated launch and what comes out: kernels, limits, findings.

All classes are plain frozen data. A kernel that does not compile is a ``CompileFailure``, a kernel
that misbehaves has ``Finding``s: both are values, never exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DType = Literal[
    "float32", "float16", "bfloat16", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
"""Element types by numpy's names; ``bfloat16`` arrays are ``ml_dtypes.bfloat16``."""


@dataclass(frozen=True)
class Argument:
    """One input or output of a kernel.

    Attributes:
        name: identifier used in the body.
        dtype: element type.
        shape: extent per axis; ``()`` is a 0-d input, passed as a constant reference.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class MlxKernel:
    """A kernel body in the convention of ``mx.fast.metal_kernel``.

    The signature is generated as MLX generates it: inputs of fewer than 8 elements in ``constant``,
    larger ones in ``device``, 0-d ones by reference; ``<input>_shape``, ``_strides`` and ``_ndim``
    where the body names them; one argument per Metal attribute that the body names.

    Attributes:
        name: C identifier.
        source: the body only.
        header: helper functions, placed before the signature.
        inputs, outputs: in the order of the signature.
        template: template arguments; an int, a bool, or a dtype's name.
        atomic_outputs: whether the outputs are ``device atomic<T>*``.
    """

    name: str
    source: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    header: str = ""
    template: Mapping[str, int | bool | str] = field(default_factory=dict)
    atomic_outputs: bool = False


@dataclass(frozen=True)
class Limits:
    """What the chip allows; taken from the chip's profile in the knowledge graph.

    Attributes:
        max_threads_per_threadgroup: threads.
        max_threadgroup_bytes: bytes of threadgroup memory per threadgroup.
        simd_width: lanes of a SIMD-group.
        max_buffers: entries of the buffer argument table.
    """

    max_threads_per_threadgroup: int = 1024
    max_threadgroup_bytes: int = 32768
    simd_width: int = 32
    max_buffers: int = 31


FindingKind = Literal[
    "race", "out-of-range", "uninitialized", "not-written", "divergence", "limit", "lint", "read-only", "nan",
    "hang", "crash",
]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One fault that a check found.

    Attributes:
        kind: which check.
        message: one line in a kernel engineer's words, with buffer, index and threads.
        line: line of the kernel's body (1-based), 0 when it has none.
        place: ``body``, ``header`` or a file name: what ``line`` counts in.
        count: how often it was seen in this launch.
        also_lines: further lines of the same place that take part, such as the other access of a race.
    """

    kind: FindingKind
    message: str
    line: int = 0
    place: str = "body"
    count: int = 1
    also_lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class CompileFailure:
    """The kernel does not compile (or uses what metalsim does not support).

    Attributes:
        messages: the compiler's errors with the user's own line numbers, first one first.
        lint: what Metal's compiler refuses and this one takes; part of ``messages`` when that was the failure.
    """

    messages: tuple[str, ...]
    lint: tuple[Finding, ...] = ()
