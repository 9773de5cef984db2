"""Deletes each barrier of MLX's norm, softmax, scan, attention and gemm kernels in turn, and runs what is left.

    python -m benchmarks.barrier_mutants --mlx FOLDER [--json FILE]

FOLDER is a checkout of github.com/ml-explore/mlx; it is not changed. A barrier counts as caught when, in one of the
launches whose compiled kernel it changes, the checks report something that they do not report of the whole kernel.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.mlx_families import attention, gemm, rows, scan
from benchmarks.mlx_families.launches import KERNELS, KernelLaunch
from benchmarks.mlx_families.runner import compare, compile_launch, run_launch
from metalsim import CompiledFile, CompileFailure

_BARRIER = re.compile(r"\b(?:threadgroup|simdgroup)_barrier\([^()]*\);")
Place = tuple[str, str, int]
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


@dataclass
class Mutant:
    """A barrier that was deleted.

    Attributes:
        file: below the kernels' folder.
        line: of the barrier, from 1.
        text: of the barrier.
        found: launches that reported something, with the first report.
        silent: launches that reported nothing new.
        wrong: launches with wrong numbers.
        failures: compilers' errors.
    """

    file: str
    line: int
    text: str
    found: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def launches() -> Iterator[KernelLaunch]:
    """Launches that together run every kind of kernel of those families, in float32."""
    dtype = "float32"
    yield rows.rms_norm(2, 1000, dtype)
    yield rows.rms_norm(2, 5001, dtype)
    yield rows.rms_norm_gradient(520, 300, dtype)
    yield rows.rms_norm_gradient(2, 5001, dtype)
    yield rows.layer_norm(2, 1024, dtype)
    yield rows.layer_norm(2, 8195, dtype)
    yield rows.layer_norm_gradient(2, 1024, dtype)
    yield rows.layer_norm_gradient(2, 8195, dtype)
    for size in (1000, 5001):
        yield rows.softmax(2, size, dtype, precise=True)
        yield rows.logsumexp(2, size, dtype)
    for reverse in (False, True):
        yield scan.contiguous(2, 9001, dtype, "sum", inclusive=not reverse, reverse=reverse)
        yield scan.strided(2, 70, 45, dtype, "sum", inclusive=not reverse, reverse=reverse)
    for problem in attention.STEEL_PROBLEMS:
        yield attention.steel(problem, dtype)
    for problem in attention.VECTOR_PROBLEMS[:2]:
        yield attention.vector(problem, dtype)
        yield from attention.two_pass(problem, dtype)
    yield gemm.fused(gemm.Product(64, 64, 64), dtype)
    yield gemm.fused(gemm.Product(65, 70, 50), dtype)
    yield gemm.fused(gemm.Product(33, 128, 50, transpose_a=True), dtype)
    yield gemm.fused(gemm.Product(128, 50, 50, transpose_b=True), dtype)
    yield from gemm.split(gemm.Product(33, 30, 500), dtype)
    yield gemm.split(gemm.Product(64, 32, 512, transpose_b=True), dtype)[0]
    yield gemm.split(gemm.Product(64, 33, 520), dtype)[0]
    yield gemm.split(gemm.Product(33, 64, 520), dtype)[0]


def included(checkout: Path, file: str) -> set[str]:
    """The kernel file and what it includes, directly or not, below ``KERNELS``."""
    found, waiting = set(), [file]
    while waiting:
        name = waiting.pop()
        if name in found or not (checkout / KERNELS / name).exists():
            continue
        found.add(name)
        names = _INCLUDE.findall((checkout / KERNELS / name).read_text(encoding="utf-8"))
        waiting += [name.removeprefix(f"{KERNELS}/") for name in names if name.startswith(KERNELS)]
    return found


def _reports(compiled: CompiledFile, launch: KernelLaunch) -> tuple[dict[Place, str], bool]:
    result = run_launch(launch, compiled)
    error, tolerance = compare(launch, result)
    found: dict[Place, str] = {
        (f.kind, f.place, f.line): f"{f.kind} {f.place}:{f.line} {f.message}" for f in result.findings
    }
    return found, bool(error <= tolerance)


class Trial:
    """Runs launches whole and with one barrier less."""

    def __init__(self, checkout: Path, cache: Path) -> None:
        self._checkout = checkout
        self._cache = cache
        self.mutants: dict[tuple[str, int], Mutant] = {}
        self.launches = 0

    def run(self, launch: KernelLaunch) -> None:
        """Delete in turn each barrier that the launch's kernel has."""
        whole = compile_launch(launch, self._checkout, self._cache)
        if isinstance(whole, CompileFailure):
            raise SystemExit(f"{launch.title}: {whole.messages[0]}")
        self.launches += 1
        usual, _ = _reports(whole, launch)
        for file in sorted(included(self._checkout, launch.file)):
            text = (self._checkout / KERNELS / file).read_text(encoding="utf-8")
            for match in _BARRIER.finditer(text):
                with tempfile.TemporaryDirectory() as folder:
                    changed = Path(folder) / KERNELS / file
                    changed.parent.mkdir(parents=True)
                    changed.write_text(f"{text[: match.start()]};{text[match.end() :]}", encoding="utf-8")
                    compiled = compile_launch(launch, self._checkout, self._cache, changed=Path(folder))
                line = text.count("\n", 0, match.start()) + 1
                self._judge(Mutant(file, line, match[0]), launch, whole, compiled, usual)

    def _judge(
        self, mutant: Mutant, launch: KernelLaunch, whole: CompiledFile, compiled: CompiledFile | CompileFailure,
        usual: dict[Place, str],
    ) -> None:  # fmt: skip
        if isinstance(compiled, CompiledFile) and compiled.library.read_bytes() == whole.library.read_bytes():
            return  # in a template or branch that this kernel lacks
        mutant = self.mutants.setdefault((mutant.file, mutant.line), mutant)
        if isinstance(compiled, CompileFailure):
            mutant.failures.append(compiled.messages[0])
            return
        found, right = _reports(compiled, launch)
        new = [text for place, text in found.items() if place not in usual]
        if new:
            mutant.found[launch.title] = new[0]
        else:
            mutant.silent.append(launch.title)
        if not right:
            mutant.wrong.append(launch.title)


def main() -> None:
    """Run all mutants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlx", type=Path, required=True, help="checkout of github.com/ml-explore/mlx")
    parser.add_argument("--cache", type=Path, default=Path(".kx/cache"), help="folder of compiled kernels")
    parser.add_argument("--json", type=Path, help="file for the raw results")
    parser.add_argument("--only", default="", help="launches whose title contains this")
    options = parser.parse_args()
    trial = Trial(options.mlx, options.cache)
    for launch in launches():
        if options.only in launch.title:
            trial.run(launch)
    mutants = sorted(trial.mutants.values(), key=lambda m: (m.file, m.line))
    print("| barrier | text | launches with a report | without | wrong numbers | first report |")
    print("|---|---|---|---|---|---|")
    for m in mutants:
        first = next(iter(m.found.values()), "none")
        print(
            f"| {m.file}:{m.line} | {m.text} | {len(m.found)} | {len(m.silent)} | {len(m.wrong)} | {first[:140]} |",
            *m.failures,
            sep="\n",
        )
    caught = sum(bool(m.found) for m in mutants)
    right = sum(bool(m.found) and not m.wrong for m in mutants)
    print(f"\n{trial.launches} launches, {len(mutants)} barriers: {caught} caught, {right} of them with right numbers")
    for m in mutants:
        if m.wrong and not m.found:
            print(f"wrong numbers without a report: {m.file}:{m.line} {m.wrong}")
    if options.json:
        head = {"python": platform.python_version(), "machine": platform.machine(), "launches": trial.launches}
        text = json.dumps({**head, "mutants": [asdict(m) for m in mutants]}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
