"""Compiles kernels of whole ``.metal`` files: any signature, templates, function constants, includes."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metalsim.build.abi import THREADGROUP_ARGUMENTS
from metalsim.build.instrument import Site
from metalsim.build.toolchain import Mode, Toolchain
from metalsim.model import CompileFailure, Finding, Limits
from metalsim.text.features import name_feature
from metalsim.text.lint import lint
from metalsim.text.nesting import refuse_deep_nesting
from metalsim.text.rewrite import RED_ZONE_BYTES, Rewritten, rewrite_file
from metalsim.text.signature import ATTRIBUTES, TYPE_TOKENS
from metalsim.text.source import FunctionConstant, KernelFunction, KernelParameter, LineMap, Source, Value, read_source
from metalsim.text.swizzles import vector_macros
from metalsim.text.tokens import Token

_DEFAULT_NAME = "kernel.metal"
# MLX names the short floats by aliases of its own.
_TYPE_NAMES = {**TYPE_TOKENS, "float16": "half", "bfloat16": "bfloat"}
# Unrolled loops take twice as long to compile and no less to check. What is counted should be what a GPU executes.
_UNROLL = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+(?:clang[ \t]+loop[ \t]+)?unroll\b.*$", re.MULTILINE)
_MARKER = re.compile(r'^# (\d+) "([^"\n]*)".*$', re.MULTILINE)


@dataclass(frozen=True)
class FileParameter:
    """One parameter of a compiled kernel.

    Attributes:
        name: in the text.
        role: ``buffer``, ``threadgroup`` or ``attribute``.
        index: in its argument table, -1 for attributes.
        space: ``device``, ``constant``, ``threadgroup`` or empty.
        writable: whether the kernel may write through it.
        kind: what a buffer holds, with ``*`` or ``&``: ``float*``, ``uint&``.
    """

    name: str
    role: str
    index: int
    space: str
    writable: bool
    kind: str = ""


@dataclass(frozen=True)
class CompiledFile:
    """A kernel of a file, ready to run (``metalsim.execute.dispatch.run_file``).

    Attributes:
        entry: C++ text of the function or instance.
        mode: ``checked`` finds faults, ``counted`` counts accesses and executed blocks.
        parameters: of the function.
        constants: function constants of the file; one without a value is 0 and counts as not defined.
        library: path of the compiled library.
        sites: places that access memory.
        blocks: profiles of the basic blocks, empty in checked mode.
        limits: that it was compiled for.
        lint: what Metal's compiler would refuse; only when compiled with ``strict=False``.
    """

    entry: str
    mode: Mode
    parameters: tuple[FileParameter, ...]
    constants: tuple[FunctionConstant, ...]
    library: Path
    sites: tuple[Site, ...] = field(repr=False)
    blocks: tuple[Any, ...] = field(repr=False)
    limits: Limits
    lint: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class FileOptions:
    """How a file is read.

    Attributes:
        constants: values of function constants, by index or name.
        include: folders for ``#include``; the file's own is always one.
        macros: preprocessor definitions.
        compiler: command of a clang, by default the one of the ziglang package.
        strict: whether what the lint finds is a failure.
        template: arguments of an entry that is a template, by name: an int, a bool, or a type by its dtype's or
            Metal's name.
    """

    constants: Mapping[int | str, Value] = field(default_factory=dict)
    include: Sequence[Path] = ()
    macros: Mapping[str, str] = field(default_factory=dict)
    compiler: Sequence[str] | None = None
    strict: bool = True
    template: Mapping[str, int | bool | str] = field(default_factory=dict)


def read_file(source: str | Path, cache: Path, options: FileOptions) -> Source | CompileFailure:
    """A file after the preprocessor, split into what it declares.

    Args:
        source: the text itself, or the path of a file.
        cache: folder for the compiler's files.
        options: as for ``compile_file``.
    """
    toolchain = Toolchain(cache, options.compiler)
    if isinstance(source, Path):
        text = toolchain.preprocess(source, options.include, options.macros)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _DEFAULT_NAME
            # A lone surrogate makes a file that is no text, and is refused as one.
            path.write_text(source, encoding="utf-8", errors="surrogatepass", newline="")
            text = toolchain.preprocess(path, options.include, options.macros)
    if isinstance(text, CompileFailure):
        return text
    # Names without folders: those are what people read, and the cache serves a file wherever it lies.
    text = _MARKER.sub(lambda match: f'# {match[1]} "{Path(match[2]).name}"', text)
    # Whoever compiles all kernels of a file reads it once.
    return _read_text(text, tuple((key, type(value), value) for key, value in options.constants.items()))


@functools.lru_cache(maxsize=2)
def _read_text(text: str, constants: tuple[tuple[int | str, type, Value], ...]) -> Source:
    return read_source(text, {key: value for key, _, value in constants})


@refuse_deep_nesting
def list_kernels(
    source: str | Path, *, cache: Path, options: FileOptions | None = None
) -> tuple[str, ...] | CompileFailure:
    """Names of the kernels of a file: functions that are no templates, and explicit instantiations.

    Args:
        source: the text itself, or the path of a file.
        cache: folder for the compiler's files.
        options: as for ``compile_file``.
    """
    read = read_file(source, cache, options or FileOptions())
    return read if isinstance(read, CompileFailure) else read.kernel_names


@refuse_deep_nesting
def kernel_families(
    source: str | Path, *, cache: Path, options: FileOptions | None = None
) -> dict[str, tuple[str, ...]] | CompileFailure:
    """As ``list_kernels``, by the function or template that they are made from; a template may have none.

    Args:
        source: the text itself, or the path of a file.
        cache: folder for the compiler's files.
        options: as for ``compile_file``.
    """
    read = read_file(source, cache, options or FileOptions())
    if isinstance(read, CompileFailure):
        return read
    families: dict[str, list[str]] = {}
    for function in read.functions.values():
        families[function.name] = [] if function.is_template else [function.host_name or function.name]
    for host, instance in read.instances.items():
        families.setdefault(instance.partition("<")[0].strip(), []).append(host)
    return {name: tuple(hosts) for name, hosts in families.items()}


@refuse_deep_nesting
def compile_file(
    source: str | Path,
    entry: str,
    *,
    mode: Mode,
    cache: Path,
    options: FileOptions | None = None,
    limits: Limits | None = None,
) -> CompiledFile | CompileFailure:
    """Compile one kernel of a ``.metal`` file, or take it from the cache.

    Args:
        source: the text itself, or the path of a file.
        entry: the kernel: its function's name, the host name of an instantiation, or ``f<float, 4>``.
        mode: ``checked`` or ``counted``.
        cache: folder for compiled kernels; several processes may share it.
        options: function constants, include folders, macros, compiler.
        limits: of the chip, by default Apple's common ones.

    Returns:
        the compiled kernel, or why it does not compile, with file names and lines.

    Raises:
        CompilerMissing: there is no compiler.
    """
    options = options or FileOptions()
    found = read_file(source, cache, options)
    if isinstance(found, CompileFailure):
        return found
    chosen = _choose(found, entry, options.template)
    if isinstance(chosen, CompileFailure):
        return chosen
    function, instance = chosen
    parameters = _parameters(function, instance)
    tokens = found.tokens_of(instance)
    if isinstance(parameters, CompileFailure):
        return name_feature(parameters, [(tokens, found.lines.place)])
    rewritten = rewrite_file(tokens)
    text = "\n".join(
        (
            vector_macros(rewritten.swizzles, rewritten.has_unions),
            '#include "metalsim/entry.h"',
            "using namespace metal;",
            rewritten.text if mode in ("counted", "plain") else _UNROLL.sub("", rewritten.text),
            '#line 1 "signature"',
            _entry_text(instance, parameters),
        )
    )
    toolchain = Toolchain(cache, options.compiler)
    with ThreadPoolExecutor(1) as beside:
        # The compiler takes longer than the lint, and most texts have no faults.
        building = None
        if not rewritten.faults and not (rewritten.lint and options.strict):
            building = beside.submit(toolchain.build, text, mode=mode, user_files=found.files, inlined=True)
        linted = _lint(tokens, rewritten, found.lines)
    faults = [_placed(fault, found.lines) for fault in rewritten.faults]
    faults += [f"{item.place}:{item.line}: {item.message}" for item in linted if options.strict]
    if faults or building is None:
        return CompileFailure(tuple(faults), linted)
    built = building.result()
    if isinstance(built, CompileFailure):
        return replace(name_feature(built, [(tokens, found.lines.place)]), lint=linted)
    shown = tuple(parameter for parameter, _ in parameters)
    return CompiledFile(
        instance, mode, shown, found.constants, built.library,
        built.instrumented.sites, built.instrumented.blocks, limits or Limits(), linted,
    )  # fmt: skip


def _lint(tokens: Sequence[Token], rewritten: Rewritten, lines: LineMap) -> tuple[Finding, ...]:
    faults = sorted({*rewritten.lint, *lint(tokens)})
    placed = ((lines.place(line), words) for line, words in faults)
    return tuple(Finding("lint", words, line, place) for (place, line), words in placed)


def _placed(fault: str, lines: LineMap) -> str:
    match = re.match(r":(\d+): (.*)", fault, re.DOTALL)
    if match is None:
        return fault
    place, line = lines.place(int(match[1]))
    return f"{place}:{line}: {match[2]}"


def _choose(
    source: Source, entry: str, template: Mapping[str, int | bool | str]
) -> tuple[KernelFunction, str] | CompileFailure:
    """The function and the C++ text of the instance that ``entry`` names."""
    text = source.instances.get(entry, entry)
    name = text.partition("<")[0].strip()
    fits = [f for f in source.functions.values() if name in (f.name, f.host_name) or f.name.endswith("::" + name)]
    if not fits:
        listed = ", ".join(source.kernel_names[:12]) or "none"
        return CompileFailure((f"there is no kernel {entry!r} in the file; kernels: {listed}",))
    function = fits[0]
    arguments = text[text.index("<") :] if "<" in text else ""
    if function.is_template and not arguments and template:
        return _instantiate(function, template)
    if function.is_template and not arguments:
        named = [host for host, of in source.instances.items() if of.partition("<")[0].strip() == function.name]
        hint = f"name an instance: {', '.join(named[:8])}" if named else f"write {entry}<...>"
        return CompileFailure((f"{function.place}:{function.line}: kernel {entry!r} is a template; {hint}",))
    return function, function.name + arguments


def _instantiate(
    function: KernelFunction, template: Mapping[str, int | bool | str]
) -> tuple[KernelFunction, str] | CompileFailure:
    """The C++ text of the instance with these arguments; those at the end may have defaults."""
    where = f"{function.place}:{function.line}"
    unknown = [name for name in template if name not in function.template]
    given = [name for name in function.template if name in template]
    if unknown or given != list(function.template[: len(given)]):
        wanted = ", ".join(function.template)
        return CompileFailure((f"{where}: kernel {function.name!r} takes the template arguments {wanted}",))
    values = [template[name] for name in given]
    texts = [str(v).lower() if isinstance(v, bool) else _TYPE_NAMES.get(str(v), str(v)) for v in values]
    return function, f"{function.name}<{', '.join(texts)}>"


def _parameters(function: KernelFunction, instance: str) -> tuple[tuple[FileParameter, int], ...] | CompileFailure:
    """Parameters with the runtime's number of their attribute; buffers without an index get the next free one."""
    result: list[tuple[FileParameter, int]] = []
    given = instance.partition("<")[2].rpartition(">")[0].replace(" ", "").split(",")
    named = dict(zip(function.template, given, strict=False))
    where = f"{function.place}:{function.line}"
    taken = {int(p.attributes["buffer"], 0) for p in function.parameters if _number(p, "buffer")}
    free = (i for i in range(1000) if i not in taken)
    for p in function.parameters:
        builtin = next((a for a in p.attributes if a in ATTRIBUTES), None)
        if builtin:
            result.append((FileParameter(p.name, "attribute", -1, "", False), ATTRIBUTES[builtin][1]))
        elif p.space == "threadgroup":
            index = int(p.attributes["threadgroup"], 0) if _number(p, "threadgroup") else 0
            if index >= THREADGROUP_ARGUMENTS:
                return CompileFailure((f"{where}: parameter {p.name!r}: threadgroup index {index} is too large",))
            result.append((FileParameter(p.name, "threadgroup", index, p.space, True), -1))
        elif p.space:
            index = int(p.attributes["buffer"], 0) if _number(p, "buffer") else next(free)
            kind = named.get(p.kind[:-1], p.kind[:-1]) + p.kind[-1]
            result.append((FileParameter(p.name, "buffer", index, p.space, p.writable, kind), -1))
        else:
            what = ", ".join(p.attributes) or "no attribute"
            return CompileFailure((f"{where}: parameter {p.name!r} ({what}) is nothing that metalsim can pass",))
    return tuple(result)


def _number(parameter: KernelParameter, attribute: str) -> bool:
    return parameter.attributes.get(attribute, "").isdigit()


def _entry_text(instance: str, parameters: Sequence[tuple[FileParameter, int]]) -> str:
    # From the global scope: a kernel may have the name of a function of Metal's library, such as transpose.
    instance = f"::{instance}"
    lines = [f"using msim_parameters = msim::parameters<decltype(&{instance})>;"]
    body, arguments = [], []
    for position, (parameter, number) in enumerate(parameters):
        kind = f"msim_parameters::type<{position}>"
        if parameter.role == "attribute":
            arguments.append(f"msim::attribute<{kind}, {number}>()")
        elif parameter.role == "buffer":
            slot = _slot(parameters, parameter)
            arguments.append(f"msim::buffer_argument<{kind}>::at(msim_buffer({slot}))")
        else:
            storage = f"msim_threadgroup_{parameter.index}"
            body.append(
                f"    static threadgroup struct {{ char before[{RED_ZONE_BYTES}]; "
                f"alignas(16) char data[MSIM_THREADGROUP_BYTES]; char after[{RED_ZONE_BYTES}]; }} {storage};\n"
                f"    msim_declare((const void *)&{storage}.data, msim_threadgroup_length({parameter.index}), "
                f'msim::pointed<{kind}>::bytes, "{parameter.name}");'
            )
            arguments.append(f"msim::buffer_argument<{kind}>::at((void *)&{storage}.data)")
    lines.append('extern "C" [[clang::sycl_external]] void msim_entry() {')
    lines += [*body, f"    {instance}({', '.join(arguments)});", "}", ""]
    return "\n".join(lines)


def _slot(parameters: Sequence[tuple[FileParameter, int]], wanted: FileParameter) -> int:
    """Position of a buffer among the buffers: the runtime numbers them without gaps."""
    return [p for p, _ in parameters if p.role == "buffer"].index(wanted)
