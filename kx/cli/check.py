"""``kx check``: a Metal kernel file through the compiler and, given sizes, through every check."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kx.cli.output import json_option, note, print_json, print_text
from kx.errors import InputError
from kx.paths import Home
from kx.settings import Settings

if TYPE_CHECKING:
    from metalsim import CompiledFile, Finding, Limits
    from metalsim.file import FileParameter

_FINDINGS = 1
_THREADGROUP_BYTES = 32768
_NUMPY_NAMES = {"float": "float32", "half": "float16", "bfloat": "bfloat16", "char": "int8", "uchar": "uint8"} | {
    "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32", "long": "int64", "ulong": "uint64",
    "bool": "bool", "size_t": "uint64", "float16_t": "float16", "bfloat16_t": "bfloat16",
} | {f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}  # fmt: skip
_ELEMENT = re.compile(r"(?:packed_)?(?:_?atomic[_<])?(?P<name>[a-z]\w*?)(?P<width>[234])?>?")
_BUFFER = re.compile(r"(?P<name>\w+)=(?P<dtype>[a-z]+\d*):(?P<shape>\d+(?:x\d+)*)")


def _size(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is not X,Y,Z", param=parameter)
    x, y, z = [*map(int, parts), 1, 1][:3]
    return x, y, z


@click.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", metavar="NAME", default="", help="Only this kernel: a function, a host name or f<float>.")
@click.option("--grid", metavar="X,Y,Z", callback=_size, help="Threads; with --threadgroup the kernel is run.")
@click.option("--threadgroup", metavar="X,Y,Z", callback=_size, help="Threads of a threadgroup.")
@click.option("--buffer", "buffers", metavar="NAME=DTYPE:8x64", multiple=True, help="Type and shape of a buffer.")
@click.option("--set", "values", metavar="NAME=VALUE", multiple=True, help="Value of a constant argument.")
@click.option("-I", "include", type=click.Path(exists=True, file_okay=False, path_type=Path), multiple=True,
              help="A folder for #include.")  # fmt: skip
@click.option("--chip", metavar="SLUG", default="", help="Whose limits hold, e.g. m1-max.")
@json_option
def check(
    as_json: bool,
    file: Path,
    kernel: str,
    chip: str,
    grid: tuple[int, int, int] | None,
    threadgroup: tuple[int, int, int] | None,
    include: tuple[Path, ...],
    **given: tuple[str, ...],
) -> None:
    """Compile the kernels of a .metal file and run all checks.

    Without sizes the kernels are compiled only. With --grid and --threadgroup each is run on random inputs: an
    output starts uninitialized, a buffer has as many elements as the grid has threads unless --buffer says
    otherwise, and an integer constant is that number unless --set does. Exits with 1 when something was found.
    """
    from metalsim import CompileFailure, FileOptions, compile_file, list_kernels

    if (grid is None) != (threadgroup is None):
        raise InputError("--grid and --threadgroup belong together")
    home = Home.from_environment()
    limits = _limits(home, chip or Settings.load(home).chip)
    options = FileOptions(include=include)
    names: Any = (kernel,) if kernel else list_kernels(file, cache=home.cache, options=options)
    if names == ():
        raise InputError(f"{file.name} has no kernel to compile", "name an instance of a template: --kernel 'f<float>'")
    results: list[dict[str, Any]] = []
    for name in ("",) if isinstance(names, CompileFailure) else names:
        done = names if not name else compile_file(file, name, mode="checked", cache=home.cache, options=options,
                                                   limits=limits)  # fmt: skip
        errors = list(done.messages) if isinstance(done, CompileFailure) else []
        found: tuple[Finding, ...] = ()
        if not isinstance(done, CompileFailure) and grid and threadgroup:
            found = _run(done, grid, threadgroup, given)
        results.append({"kernel": name, "errors": errors, "findings": [asdict(item) for item in found]})
    clean = not any(result["errors"] or result["findings"] for result in results)
    if as_json:
        print_json({"file": str(file), "clean": clean, "ran": grid is not None, "kernels": results})
    else:
        _print(file, results, grid is not None)
    if not clean:
        click.get_current_context().exit(_FINDINGS)


def _print(file: Path, results: list[dict[str, Any]], ran: bool) -> None:
    for result in results:
        for message in result["errors"]:
            print_text(message)
        for item in result["findings"]:
            place = f"{item['place']}:{item['line']}: " if item["line"] else f"{file.name}: "
            times = f" ({item['count']} times)" if item["count"] > 1 else ""
            print_text(f"{place}{item['kind']}: {item['message']}{times} [{result['kernel']}]")
    bad = sum(bool(result["errors"] or result["findings"]) for result in results)
    note(f"{len(results)} kernels {'compiled and run' if ran else 'compiled'}, {bad} with findings")


def _limits(home: Home, chip: str) -> Limits | None:
    if not chip:
        return None
    from kgraph.graph import KnowledgeGraph
    from metalsim import Limits
    from search.session import chip_for

    limits = chip_for(KnowledgeGraph.open(home), chip).limits
    return Limits(
        max_threads_per_threadgroup=int(limits["threads-per-threadgroup"]),
        max_threadgroup_bytes=int(limits["threadgroup-memory-bytes"]),
        simd_width=int(limits["simd-width"]),
        max_buffers=int(limits["buffer-arguments"]),
    )


def _run(
    compiled: CompiledFile,
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    given: dict[str, tuple[str, ...]],
) -> tuple[Finding, ...]:
    from metalsim import LaunchOptions, run_file

    shapes, values = _shapes(given["buffers"]), dict(_pair(text) for text in given["values"])
    names = {p.name for p in compiled.parameters if p.role == "buffer"}
    if unknown := sorted((shapes.keys() | values.keys()) - names):
        raise InputError(f"kernel {compiled.entry} has no buffer {unknown[0]}", f"it has {', '.join(sorted(names))}")
    threads = grid[0] * grid[1] * grid[2]
    buffers: dict[int | str, Any] = {}
    for position, parameter in enumerate(p for p in compiled.parameters if p.role == "buffer"):
        shape = shapes.get(parameter.name)
        buffers[parameter.name] = _fill(parameter, shape, values.get(parameter.name), threads, position)
    local = [p.index for p in compiled.parameters if p.role == "threadgroup"]
    lengths = {index: _THREADGROUP_BYTES // len(local) for index in local}
    options = LaunchOptions(threadgroup_lengths=lengths)
    result = run_file(compiled, buffers, grid=grid, threadgroup=threadgroup, options=options)
    # The size of a buffer that nobody named is a guess: what is left of it says nothing.
    guessed = [f"is {name}[" for name in names if name not in shapes]
    return tuple(
        item for item in result.findings
        if item.kind != "not-written" or not any(text in item.message for text in guessed)
    )  # fmt: skip


def _fill(
    parameter: FileParameter, shape: tuple[str, tuple[int, ...]] | None, value: str | None, threads: int, seed: int
) -> Any:
    """What a buffer starts with: random numbers, a constant, or nothing for an output."""
    import numpy as np

    from metalsim import Fresh
    from metalsim.launch import numpy_dtype

    match = _ELEMENT.fullmatch(parameter.kind[:-1])
    known = _NUMPY_NAMES.get(match["name"]) if match else None
    if shape is None and (match is None or known is None):
        kind = parameter.kind[:-1]
        raise InputError(f"buffer {parameter.name} holds {kind}", f"say its bytes: --buffer {parameter.name}=uint8:64")
    dtype: Any = shape[0] if shape else known
    width = int(match["width"] or 1) if match else 1
    extent = shape[1] if shape else (width,) if parameter.kind.endswith("&") else (threads * width,)
    random = np.random.default_rng(seed)
    if value is not None or (parameter.kind.endswith("&") and shape is None):
        whole = not dtype.startswith(("float", "bfloat"))
        number = _number(parameter.name, value) if value is not None else threads if whole else 1.0
        return np.full(extent, number).astype(numpy_dtype(dtype))
    if parameter.writable and "atomic" not in parameter.kind:
        return Fresh(dtype, extent)
    if parameter.writable:
        return np.zeros(extent, numpy_dtype(dtype))
    if dtype.startswith(("float", "bfloat")):
        return random.standard_normal(extent).astype(numpy_dtype(dtype))
    return random.integers(0, 2 if dtype == "bool" else 8, extent).astype(numpy_dtype(dtype))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as exc:
        raise InputError(f"--set {name}={text}: not a number") from exc


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text}: not NAME=VALUE")
    return name, value


def _shapes(texts: tuple[str, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    result = {}
    for text in texts:
        match = _BUFFER.fullmatch(text)
        if match is None or match["dtype"] not in _NUMPY_NAMES.values():
            raise InputError(f"--buffer {text}: not NAME=DTYPE:SHAPE", "x=float32:8x64")
        result[match["name"]] = (match["dtype"], tuple(map(int, match["shape"].split("x"))))
    return result
