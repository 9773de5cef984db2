"""Compiles kernels of a checkout of ``.metal`` files and tells which do not compile, and how long it takes.

    python -m benchmarks.metal_corpus CHECKOUT [FILE ...] [-I FOLDER] [--leave-out REGEX] [--per-family 3]
        [--constant NAME=VALUE] [--macro NAME=VALUE] [--jobs 1] [--results FILE.jsonl]

Without FILE all ``.metal`` files of CHECKOUT are taken. A family is one kernel function, or all explicit
instantiations of one kernel template; ``--per-family`` takes so many of each, evenly spaced from the first to the
last in the file's order (0: all). ``--constant`` gives a function constant its value, by index or name, in every
file that has it; the others get none. Each result is one line of the results file, and kernels that are in it
already are not compiled again: an interrupted run goes on, and a run with a larger sample adds to it. ``--again``
compiles those that failed once more.

Printed per file: families, kernels tried and compiled, reports of the lint, seconds per kernel (median, largest);
under it the first message of each failure. A kernel counts as compiled when metalsim's checked mode built a library
of it. The files are other people's code and never part of this repository.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from metalsim import CompileFailure, FileOptions, compile_file
from metalsim.build.file import kernel_families


@dataclass(frozen=True)
class Task:
    """One kernel to compile; ``file`` is relative to ``checkout``."""

    checkout: Path
    file: str
    entry: str
    family: str
    cache: Path
    options: FileOptions


@dataclass(frozen=True)
class Result:
    """What became of one kernel; ``messages`` are the compiler's, ``lint`` the lint's."""

    file: str
    entry: str
    family: str
    compiled: bool
    seconds: float
    messages: tuple[str, ...]
    lint: tuple[str, ...]


def evenly(names: Sequence[str], count: int) -> list[str]:
    """``count`` of the names, the first and the last among them; all when there are no more, or for 0."""
    if count == 0 or len(names) <= count:
        return list(names)
    if count == 1:
        return [names[0]]
    return [names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)]


def compiled(task: Task) -> Result:
    """Compile one kernel."""
    started = time.perf_counter()
    built = compile_file(task.checkout / task.file, task.entry, mode="checked", cache=task.cache, options=task.options)
    seconds = time.perf_counter() - started
    failed = isinstance(built, CompileFailure)
    lint = tuple(f"{item.place}:{item.line}: {item.message}" for item in built.lint)
    messages = built.messages if isinstance(built, CompileFailure) else ()
    return Result(task.file, task.entry, task.family, not failed, round(seconds, 3), messages, lint)


def tasks_of(file: str, arguments: argparse.Namespace, options: FileOptions) -> list[Task] | CompileFailure:
    """The sample of one file."""
    names = kernel_families(arguments.checkout / file, cache=arguments.cache, options=options)
    if isinstance(names, CompileFailure):
        return names
    return [
        Task(arguments.checkout, file, entry, family, arguments.cache, options)
        for family, entries in names.items()
        for entry in evenly(entries, arguments.per_family)
    ]


def read_results(path: Path | None, again: bool) -> dict[tuple[str, str], Result]:
    """Results of earlier runs by file and entry; a line that was cut short is left out."""
    found: dict[tuple[str, str], Result] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path and path.exists() else ():
        try:
            result = Result(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[result.file, result.entry] = result
    return {key: result for key, result in found.items() if result.compiled or not again}


def report(file: str, results: Sequence[Result]) -> Iterator[str]:
    """The lines about one file."""
    good = [r for r in results if r.compiled]
    families = len({r.family for r in results})
    lint = sum(len(r.lint) for r in results)
    seconds = sorted(r.seconds for r in good) or [0.0]
    yield (
        f"{file}: {families} families, {len(good)} of {len(results)} compile, {lint} lint, "
        f"{statistics.median(seconds):.2f} s median, {seconds[-1]:.2f} s largest"
    )
    for result in results:
        first = (*result.messages, *result.lint)[:1]
        if first:
            yield f"    {result.entry}: {first[0]}"


def value(text: str) -> int | float | bool:
    """A function constant's value."""
    if text in ("true", "false"):
        return text == "true"
    return float(text) if "." in text else int(text, 0)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", help="relative to the checkout; by default all")
    parser.add_argument("-I", dest="include", type=Path, action="append", default=[])
    parser.add_argument("--leave-out", default="", help="files whose path this regular expression finds")
    parser.add_argument("--per-family", type=int, default=3)
    parser.add_argument("--constant", action="append", default=[])
    parser.add_argument("--macro", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path(".kx/cache"))
    return parser.parse_args(words)


def main() -> None:
    """Compile the sample and print what came of it."""
    arguments = parse()
    files = arguments.files or sorted(
        str(p.relative_to(arguments.checkout)) for p in arguments.checkout.rglob("*.metal")
    )
    if arguments.leave_out:
        files = [file for file in files if not re.search(arguments.leave_out, file)]
    named = dict(text.split("=", 1) for text in arguments.constant)
    options = FileOptions(
        constants={int(key) if key.isdigit() else key: value(text) for key, text in named.items()},
        include=arguments.include,
        macros=dict(text.split("=", 1) for text in arguments.macro),
    )
    known = read_results(arguments.results, arguments.again)
    total: list[Result] = []
    print(f"python {platform.python_version()}, {platform.machine()}", flush=True)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for file in files:
            tasks = tasks_of(file, arguments, options)
            if isinstance(tasks, CompileFailure):
                print(f"{file}: {tasks.messages[0]}")
                continue
            fresh = [task for task in tasks if (task.file, task.entry) not in known]
            for result in pool.map(compiled, fresh):
                known[result.file, result.entry] = result
                if arguments.results:
                    with arguments.results.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(asdict(result)) + "\n")
            of_file = [known[task.file, task.entry] for task in tasks]
            total += of_file
            for line in report(file, of_file) if tasks else ():
                print(line, flush=True)
    for line in report("all", total):
        if not line.startswith(" "):
            print(line)


if __name__ == "__main__":
    main()
