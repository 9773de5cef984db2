"""metalsim's estimates with an H200's figures against times measured by mlx_calibration.py: ranks and errors.

    python benchmarks/mlx_rank.py PROGRAMS.json TIMES.jsonl [--figures h200.toml] [--counted FOLDER] [--out FILE.json]

Estimates the same programs on the same workloads; what metalsim counted is kept in the folder `--counted`, so that
other figures can be tried in a second. Ranks are compared per workload and over all pairs, after the workload's own
level is taken out (ratio to the seed). Times whose outputs were wrong are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metalsim.estimate.cost import ChipModel, estimate
from metalsim.estimate.counters import Counters
from search.backends import Chip
from search.backends.metalsim import Machine
from search.program import Program, program_from_json
from search.task import Case, Task, load_task

FIGURES = Path(__file__).parent / "h200.toml"


class CountingMachine(Machine):
    """metalsim's back end, which also keeps what it counted."""

    counted: list[Counters]

    def _count(self, *arguments: Any) -> Counters:
        result = super()._count(*arguments)
        self.counted.append(result)
        return result


def counters_of(program: Program, task: Task, case: Case, chip: Chip, folder: Path) -> list[Counters]:
    """Counters of each stage, from the folder where they are there."""
    path = folder / f"{program.digest}-{case.label}.pkl"
    if path.exists():
        kept: list[Counters] = pickle.loads(path.read_bytes())[0]
        return kept
    machine = CountingMachine(chip, folder / "kernels", None)
    machine.counted = []
    failed = machine.prepare(program, task, [case])
    if failed is not None:
        raise SystemExit(f"{program.digest}: {failed.messages[0]}")
    machine.time(case, task.make_inputs(case, 1), 3)
    path.write_bytes(pickle.dumps((machine.counted,)))
    return machine.counted


def ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ranks from 1, equal values sharing their mean rank."""
    order = np.argsort(values, kind="stable")
    result = np.empty(len(values))
    result[order] = np.arange(1, len(values) + 1)
    for value in np.unique(values):
        same = values == value
        result[same] = result[same].mean()
    return result


def spearman(one: list[float], other: list[float]) -> float:
    """Spearman's rank correlation."""
    return float(np.corrcoef(ranks(np.array(one)), ranks(np.array(other)))[0, 1])


def measured_times(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(program, workload) -> row, of those whose outputs were right."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row["digest"], row["workload"]): row for row in rows if isinstance(row.get("error"), float)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path)
    parser.add_argument("times", type=Path)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--counted", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", action="store_true", help="Print every pair, worst first.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        compare_all(options, Path(scratch))


def compare_all(options: argparse.Namespace, scratch: Path) -> None:
    folder = options.counted or scratch
    folder.mkdir(parents=True, exist_ok=True)
    task, times = load_task("mamba_scan"), measured_times(options.times)
    figures = tomllib.loads(options.figures.read_text(encoding="utf-8"))
    quantities = {name: float(item["value"]) for name, item in figures["quantities"].items()}
    chip, model = Chip("h200", quantities, figures["limits"]), ChipModel.from_quantities(quantities)
    rows = []
    for entry in json.loads(options.programs.read_text(encoding="utf-8")):
        program = program_from_json(entry["program"])
        for case in task.workloads:
            row = times.get((program.digest, case.label))
            if row is None:
                continue
            parts = [estimate(item, model) for item in counters_of(program, task, case, chip, folder)]
            rows.append({
                "digest": program.digest, "workload": case.label, "measured_us": row["us"],
                "estimated_us": sum(part.time_us for part in parts), "bound_by": parts[0].bound_by,
                "choices": dict(program.choices),
            })  # fmt: skip
    report(rows, task.seed.digest, options)


def report(rows: list[dict[str, Any]], seed: str, options: argparse.Namespace) -> None:
    by_workload = defaultdict(list)
    for row in rows:
        by_workload[row["workload"]].append(row)
    summary: dict[str, Any] = {}
    relative: tuple[list[float], list[float]] = ([], [])
    for label, group in by_workload.items():
        measured, estimated = ([row[f"{kind}_us"] for row in group] for kind in ("measured", "estimated"))
        logs = [math.log(e / m) for m, e in zip(measured, estimated, strict=True)]
        reference = next((row for row in group if row["digest"] == seed), group[0])
        relative[0].extend(m / reference["measured_us"] for m in measured)
        relative[1].extend(e / reference["estimated_us"] for e in estimated)
        middle = float(np.median(logs))
        summary[label] = {
            "programs": len(group),
            "spearman": spearman(measured, estimated),
            "median_ratio": math.exp(middle),
            "median_error_after_scaling": math.exp(float(np.median(np.abs(np.array(logs) - middle)))) - 1,
        }
    summary["all, relative to the seed"] = {"programs": len(relative[0]), "spearman": spearman(*relative)}
    for label, item in summary.items():
        print(f"{label:28s} " + "  ".join(f"{name} {value:.3f}" for name, value in item.items()))
    if options.show:
        for row in sorted(rows, key=lambda row: -abs(math.log(row["estimated_us"] / row["measured_us"]))):
            print(f"{row['workload']:15s} {row['digest']} measured {row['measured_us']:9.1f} estimated "
                  f"{row['estimated_us']:9.1f} {row['bound_by']:11s} {row['choices']}")  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps({"summary": summary, "pairs": rows}, indent=1))


if __name__ == "__main__":
    main()
