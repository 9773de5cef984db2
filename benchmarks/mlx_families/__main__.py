"""``python -m benchmarks.mlx_families FAMILY... --mlx FOLDER``."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from benchmarks.mlx_families.launches import KernelLaunch
from benchmarks.mlx_families.runner import Outcome, outcomes

FAMILIES = (
    "attention", "rows", "scan", "sort", "pointwise", "rope", "gemm", "reduce", "quantized", "conv", "speed",
)  # fmt: skip


def launches_of(family: str) -> Iterable[KernelLaunch]:
    """The launches of a family's module."""
    build: Callable[[], Iterable[KernelLaunch]] = import_module(f"benchmarks.mlx_families.{family}").launches
    return build()


def row(outcome: Outcome) -> str:
    """One line of the table."""
    verdict = (
        ("known" if outcome.known else "ok")
        if outcome.clean
        else "FAILS"
        if outcome.failure
        else "WRONG"
        if not outcome.right
        else "found"
    )
    constants = ",".join(f"{key}={value:g}" for key, value in outcome.constants.items())
    return (
        f"| {verdict} | {outcome.family} | {outcome.entry} {constants} | {outcome.dtype} | {outcome.shape} "
        f"| {outcome.error:.2g} / {outcome.tolerance:.2g} | {len(outcome.findings)} "
        f"| {outcome.compile_s:.2f} + {outcome.run_s:.3f} |"
    )


def main() -> None:
    """Run families and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+", choices=[*FAMILIES, "all"])
    parser.add_argument("--mlx", type=Path, required=True, help="checkout of github.com/ml-explore/mlx")
    parser.add_argument("--cache", type=Path, default=Path(".kx/cache"), help="folder of compiled kernels")
    parser.add_argument("--json", type=Path, help="file for the raw results")
    parser.add_argument("--only", default="", help="launches whose title contains this")
    options = parser.parse_args()
    families = FAMILIES if "all" in options.families else options.families
    print("| verdict | family | kernel, function constants | dtype | shape | error / tolerance | findings | seconds |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    records = []
    for family in families:
        chosen = (item for item in launches_of(family) if options.only in f"{item.dtype} {item.title}")
        for outcome in outcomes(chosen, options.mlx, options.cache):
            print(row(outcome), flush=True)
            for line in [outcome.failure] if outcome.failure else outcome.findings:
                print("   ", line, flush=True)
            records.append(outcome.record())
    right = sum(r["error"] <= r["tolerance"] for r in records)
    stopped = sum(r["stopped"] for r in records)
    clean = sum(not r["failure"] and len(r["findings"]) == r["known"] for r in records)
    known = sum(r["known"] for r in records)
    print(
        f"\n{len(records)} launches: {right} right, {stopped} ended by a fault of the kernel; "
        f"{clean} without findings other than {known} that reading confirmed"
    )
    if options.json:
        head = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
        options.json.write_text(json.dumps({**head, "launches": records}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
