"""Compiles kernels in the convention of ``mx.fast.metal_kernel``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from metalsim.build.instrument import Site
from metalsim.build.toolchain import Mode, Toolchain, text_faults
from metalsim.model import CompileFailure, Finding, Limits, MlxKernel
from metalsim.text.features import name_feature
from metalsim.text.lint import lint
from metalsim.text.nesting import refuse_deep_nesting
from metalsim.text.rewrite import Rewritten, rewrite
from metalsim.text.signature import Signature, cxx_text, make_signature, metal_text, signature_faults
from metalsim.text.swizzles import vector_macros
from metalsim.text.tokens import tokenize


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel ready to run on other arrays of the same signature (dtypes, ndim, address spaces).

    Attributes:
        kernel: what was compiled.
        mode: ``checked`` finds faults, ``counted`` counts accesses and executed blocks.
        signature: of the generated function.
        text: the Metal text that MLX would compile.
        library: path of the compiled library.
        sites: places that access memory.
        blocks: profiles of the basic blocks, empty in checked mode.
        limits: that it was compiled for.
        lint: what Metal's compiler would refuse; only when compiled with ``strict=False``.
    """

    kernel: MlxKernel
    mode: Mode
    signature: Signature
    text: str = field(repr=False)
    library: Path
    sites: tuple[Site, ...] = field(repr=False)
    blocks: tuple[Any, ...] = field(repr=False)
    limits: Limits
    lint: tuple[Finding, ...] = ()


def _lint(kernel: MlxKernel, header: Rewritten, body: Rewritten) -> tuple[Finding, ...]:
    """What Metal's compiler would refuse and clang accepts, header first."""
    found = [("header", fault) for fault in sorted({*header.lint, *lint(tokenize(kernel.header))})]
    found += [("body", fault) for fault in sorted({*body.lint, *lint(tokenize(kernel.source), in_body=True)})]
    return tuple(Finding("lint", words, line, place) for place, (line, words) in found)


def _texts(kernel: MlxKernel) -> tuple[tuple[str, str], ...]:
    return ("header", kernel.header), ("body", kernel.source)


def _place(place: str, line: int) -> tuple[str, int]:
    return place, line


@refuse_deep_nesting
def compile_kernel(
    kernel: MlxKernel,
    *,
    mode: Mode,
    cache: Path,
    compiler: Sequence[str] | None = None,
    limits: Limits | None = None,
    strict: bool = True,
) -> CompiledKernel | CompileFailure:
    """Compile ``kernel``, or take it from the cache.

    Args:
        kernel: body, header, arguments and template values.
        mode: ``checked`` or ``counted``.
        cache: folder for compiled kernels; several processes may share it.
        compiler: command of a clang, by default the one of the ziglang package.
        limits: of the chip, by default Apple's common ones.
        strict: whether what the lint finds is a failure.

    Returns:
        the compiled kernel, or why it does not compile, with the user's line numbers.

    Raises:
        CompilerMissing: there is no compiler.
    """
    body = rewrite(kernel.source, place="body", arrays_allowed=True)
    header = rewrite(kernel.header, place="header", arrays_allowed=False)
    linted = _lint(kernel, header, body)
    faults = [*signature_faults(kernel), *text_faults(kernel.header, "header"), *text_faults(kernel.source, "body")]
    faults += [*header.faults, *body.faults]
    faults += [f"{item.place}:{item.line}: {item.message}" for item in linted if strict]
    if faults:
        return CompileFailure(tuple(faults), linted)
    signature = make_signature(kernel)
    swizzles = vector_macros(body.swizzles | header.swizzles, body.has_unions or header.has_unions)
    text = cxx_text(signature, body=body.text, header=header.text, swizzles=swizzles)
    built = Toolchain(cache, compiler).build(text, mode=mode)
    if isinstance(built, CompileFailure):
        texts = [(tokenize(text), partial(_place, place)) for place, text in _texts(kernel)]
        return replace(name_feature(built, texts), lint=linted)
    return CompiledKernel(
        kernel,
        mode,
        signature,
        metal_text(kernel, signature),
        built.library,
        built.instrumented.sites,
        built.instrumented.blocks,
        limits or Limits(),
        linted,
    )
