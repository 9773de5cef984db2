"""``kx metal``: Metal kernels compiled, checked, run and estimated on this machine's CPU."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kx.cli.output import json_option, note, print_json, print_table, print_text, progress
from kx.errors import InputError
from kx.paths import Home
from kx.settings import Settings
from kx.simulator import simulator_errors, simulator_limits

if TYPE_CHECKING:
    from metalsim import Finding
    from metalsim.report import EntryCheck, LaunchReport, Surroundings

_FINDINGS = 1
_DEFAULT_CHIP = "m1-max"
_NUMBERS = re.compile(r"\[[\d\s,]+\]")
"""A list of numbers, to be put on one line."""

_DIGITS = re.compile(r"\d+")

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

_include = click.option("-I", "--include", type=_FOLDER, multiple=True, help="A folder for #include.")
_chip = click.option("--chip", metavar="SLUG", default="", help="Whose limits and figures hold (default: m1-max).")


@click.group()
def metal() -> None:
    """Compile, check and run Metal kernels on this machine's CPU.

    FILE is a .metal file, or a .json file with the arguments of mx.fast.metal_kernel by name (a body).
    """


@metal.command()
@click.argument("file", type=_FILE)
@click.option("--entry", metavar="NAME", default="", help="Only this kernel: a function, a host name, or f<float>.")
@click.option("--launch", type=_FILE, help="Launch file with function constants, templates, a body's arrays.")
@_include
@_chip
@json_option
@simulator_errors()
def check(as_json: bool, file: Path, entry: str, launch: Path | None, include: tuple[Path, ...], chip: str) -> None:
    """Compile the kernels of FILE and report errors and lint.

    The lint names what Apple's compiler refuses although this one takes it. Exits with 1 when a kernel does not
    compile or the lint says something.
    """
    from metalsim.launchfile import read_body, read_launch
    from metalsim.model import CompileFailure
    from metalsim.report import EntryCheck, check_body, check_file

    surroundings = _surroundings(chip, include)[1]
    plan = read_launch(launch) if launch else None
    if file.suffix == ".json":
        if plan is None:
            raise InputError(f"{file.name} is a body: its arrays' dtypes are needed", "--launch launch.json")
        checks: Any = (check_body(read_body(file), surroundings, plan),)
    else:
        with progress("compile") as advance:
            checks = check_file(file, entry, surroundings, plan, advance)
    unreadable = isinstance(checks, CompileFailure)
    if unreadable:
        checks = (EntryCheck(entry or file.name, False, checks.messages),)
    if as_json:
        print_json({"file": str(file), "entries": [_check_json(item) for item in checks]})
    else:
        _print_checks(file, checks)
    if not all(item.compiled and not item.lint for item in checks):
        click.get_current_context().exit(_FINDINGS)


@metal.command()
@click.argument("file", type=_FILE)
@click.option("--launch", type=_FILE, required=True, help="Launch file; `kx metal launch` writes one to start from.")
@click.option("--entry", metavar="NAME", default="", help="The kernel, instead of the launch file's.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the outputs, as .npy.")
@click.option("--no-estimate", is_flag=True, help="Check only: no counters and no estimate, in half the time.")
@click.option("--time-limit", metavar="SECONDS", type=click.FloatRange(min=0.1), default=20.0, show_default=True,
              help="A kernel that runs longer counts as hanging.")  # fmt: skip
@_include
@_chip
@json_option
@simulator_errors()
def run(
    as_json: bool,
    file: Path,
    launch: Path,
    include: tuple[Path, ...],
    out: Path | None,
    chip: str,
    **options: Any,
) -> None:
    """Run a launch of FILE with all checks; report findings, counters and an estimated time.

    Exits with 1 when the kernel does not compile or something was found.
    """
    from metalsim.execute.isolation import Allowance
    from metalsim.launchfile import read_body, read_launch
    from metalsim.report import run_launch

    slug, surroundings = _surroundings(chip, include)
    quantities: Mapping[str, float] = {} if options["no_estimate"] else surroundings.quantities
    surroundings = replace(surroundings, quantities=quantities, allowance=Allowance(options["time_limit"]))
    plan = read_launch(launch)
    if options["entry"]:
        plan = replace(plan, entry=options["entry"])
    report = run_launch(read_body(file) if file.suffix == ".json" else file, plan, surroundings)
    outputs = _write_outputs(report, out) if out else {}
    if as_json:
        print_json(_report_json(file, report, slug, outputs))
    else:
        _print_report(file, report, slug, outputs)
    if report.errors or report.findings:
        click.get_current_context().exit(_FINDINGS)


@metal.command()
@click.argument("file", type=_FILE)
@click.option("--entry", metavar="NAME", default="", help="The kernel; needed when the file has several.")
@_include
@simulator_errors()
def launch(file: Path, entry: str, include: tuple[Path, ...]) -> None:
    """Print a launch file for a kernel of FILE, to be edited: sizes are guesses, types are the kernel's.

    For instance: kx metal launch scan.metal > launch.json
    """
    from metalsim import CompileFailure, FileOptions, compile_file, list_kernels
    from metalsim.draft import draft_body, draft_launch
    from metalsim.launchfile import read_body

    if file.suffix == ".json":
        _print_launch(draft_body(read_body(file)))
        note("a body does not say what its arrays hold: dtypes and shapes are guesses")
        return

    cache, options = Home.from_environment().cache, FileOptions(include=include, strict=False)
    names: Any = (entry,) if entry else list_kernels(file, cache=cache, options=options)
    if not isinstance(names, CompileFailure) and len(names) != 1:
        listed = ", ".join(names[:8]) or "none that is no template; name an instance, such as 'f<float>'"
        raise InputError(f"{file.name} has {_count(len(names), 'kernel')}: name one by --entry", f"kernels: {listed}")
    compiled: Any = names
    if not isinstance(names, CompileFailure):
        compiled = compile_file(file, names[0], mode="checked", cache=cache, options=options)
    if isinstance(compiled, CompileFailure):
        raise InputError(compiled.messages[0], f"kx metal check {file} says more")
    content, remarks = draft_launch(compiled, names[0])
    _print_launch(content)
    for remark in remarks:
        note(remark)


def _print_launch(content: Mapping[str, Any]) -> None:
    """Print JSON with the lists of numbers on one line each."""
    print_text(_NUMBERS.sub(lambda match: f"[{', '.join(_DIGITS.findall(match[0]))}]", json.dumps(content, indent=2)))


def _surroundings(chip: str, include: tuple[Path, ...]) -> tuple[str, Surroundings]:
    """The chip's slug, and its limits and figures from the graph."""
    from kgraph.graph import KnowledgeGraph
    from metalsim.report import Surroundings
    from search.session import chip_for

    home = Home.from_environment()
    slug = chip or Settings.load(home).chip or _DEFAULT_CHIP
    profile = chip_for(KnowledgeGraph.open(home), slug)
    return slug, Surroundings(home.cache, simulator_limits(profile.limits), include, profile.quantities)


def _check_json(item: EntryCheck) -> dict[str, Any]:
    return {
        "name": item.name,
        "compiled": item.compiled,
        "error": "\n".join(item.errors) or None,
        "lint": [{"message": finding.message, "line": finding.line, "file": finding.place} for finding in item.lint],
    }


def _print_checks(file: Path, checks: tuple[EntryCheck, ...]) -> None:
    said: set[str] = set()
    for item in checks:
        lines = [f"{finding.place}:{finding.line}: lint: {finding.message}" for finding in item.lint]
        lines += [f"{message} [{item.name}]" for message in item.errors]
        for line in lines:
            # What the lint says of a file is said once, not for each of its kernels.
            if line not in said:
                print_text(line)
            said.add(line)
    if not checks:
        note(f"{file.name} has no kernel that is no template; name an instance: --entry 'f<float>'")
    bad = sum(not item.compiled for item in checks)
    linted = sum(bool(item.lint) for item in checks)
    note(f"{_count(len(checks), 'kernel')}: {bad} do not compile, {linted} with lint")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _place(file: Path, finding: Finding) -> str:
    """The file as given where the finding lies in it; the name of an included file, or ``FILE (header)``."""
    if finding.place in ("body", file.name, ""):
        return str(file)
    return f"{file} (header)" if finding.place == "header" else finding.place


def _report_json(file: Path, report: LaunchReport, chip: str, outputs: Mapping[str, Path]) -> dict[str, Any]:
    from metalsim.estimate.cost import estimate_to_json
    from metalsim.estimate.counters import counters_to_json

    findings = [
        {
            "kind": item.kind, "message": item.message, "file": _place(file, item), "line": item.line or None,
            "also_lines": list(item.also_lines), "count": item.count,
        }
        for item in report.findings
    ]  # fmt: skip
    return {
        "error": "\n".join(report.errors) or None,
        "findings": findings,
        "counters": counters_to_json(report.counters, report.estimate) if report.counters else None,
        "estimate": estimate_to_json(report.estimate, chip) if report.estimate else None,
        "outputs": {name: str(path) for name, path in outputs.items()},
    }


def _print_report(file: Path, report: LaunchReport, chip: str, outputs: Mapping[str, Path]) -> None:
    from metalsim.estimate.cost import estimate_to_json
    from metalsim.estimate.counters import counters_to_json

    for message in report.errors:
        print_text(message)
    for item in report.findings:
        line = f":{item.line}" if item.line else ""
        times = f" ({item.count} times)" if item.count > 1 and item.kind != "not-written" else ""
        print_text(f"{_place(file, item)}{line}: {item.kind}: {item.message}{times}")
    # Whoever looks for a fault does not look at speed.
    if report.counters and not report.findings:
        rows = [(name, _figure(value)) for name, value in counters_to_json(report.counters, report.estimate).items()]
        print_table(["counter", "value"], rows)
    if report.estimate and not report.findings:
        told = estimate_to_json(report.estimate, chip)
        parts = ", ".join(f"{name} {_figure(value)}" for name, value in told["parts"].items())
        print_text(f"estimated on {chip}: {_figure(told['time_us'])} us, bound by {told['bound_by']} ({parts})")
    for name, path in outputs.items():
        note(f"{name}: {path}")
    if report.errors:
        note("the kernel does not compile")
    else:
        note(_count(len(report.findings), "finding") if report.findings else "no findings")


def _figure(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) and value % 1 else f"{value:,.0f}" if isinstance(
        value, int | float) else str(value)  # fmt: skip


def _write_outputs(report: LaunchReport, folder: Path) -> dict[str, Path]:
    """One .npy file per output; bfloat16 as float32, which numpy can read."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, array in report.outputs.items():
        paths[name] = folder / f"{name}.npy"
        np.save(paths[name], array.astype(np.float32) if array.dtype.name == "bfloat16" else array, allow_pickle=False)
    return paths
