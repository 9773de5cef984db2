"""What ingest knows of a source file: kernels, primitives, detected concepts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFact:
    """A ``__global__`` function.

    Attributes:
        name: identifier; line: 1-based line of the name; last_line: of the closing brace.
        template_parameters: as written, in order.
        parameters: as written, in order.
        launch_bounds: text of ``__launch_bounds__``'s arguments, or empty.
    """

    name: str
    line: int
    last_line: int
    template_parameters: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    launch_bounds: str = ""


@dataclass(frozen=True)
class PrimitiveUse:
    """A token of a CUDA primitive with the lines where it stands."""

    token: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Detection:
    """A concept found in a file.

    Attributes:
        slug: the concept.
        first_line, last_line: 1-based, inclusive: the most telling place.
        confidence: 0 to 1.
        why: what convinced the detector, in words with the identifiers it saw.
        kernel: the kernel it lies in, or empty.
        detector: ``name@version``.
    """

    slug: str
    first_line: int
    last_line: int
    confidence: float
    why: str
    kernel: str = ""
    detector: str = ""


@dataclass(frozen=True)
class SourceReading:
    """Everything read from one file.

    Attributes:
        file: path as the user gave it (relative stays relative), with forward slashes.
        sha256: of the file's bytes.
        line_count: lines of text.
        syntax_errors: how many error nodes the parser met (they are local).
    """

    file: str
    sha256: str
    line_count: int
    kernels: tuple[KernelFact, ...]
    primitives: tuple[PrimitiveUse, ...]
    concepts: tuple[Detection, ...]
    syntax_errors: int = 0
