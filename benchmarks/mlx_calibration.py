"""Programs of a task on an NVIDIA GPU through ``mlx_cuda``: right or not, and how long they take.

    python benchmarks/mlx_calibration.py programs FILE.json [--run FOLDER] [--count 80]     on any machine
    python benchmarks/mlx_calibration.py measure FILE.json OUT [--budget-s 330] [--done OLD.jsonl]    on the GPU

`programs` writes the seed, the programs of a search's run folder and random ones of the block author. `measure` needs
MLX with CUDA, no compiler and no graph. It writes OUT/checks.jsonl (each program on every twin against the float64
oracle), OUT/times.jsonl (raw samples per program and workload, its timed outputs against the oracle) and
OUT/machine.json (device, versions, copy bandwidth, cost of an empty launch, the token-by-token loop), a line at a time,
so that an end at any moment loses one line. PYTHONPATH has to name
the checkout where kx is not installed. `--done` names times.jsonl of earlier runs, whose entries are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metalsim.model import Argument, MlxKernel
from search.authors.block_author import BlockAuthor
from search.backends.mlx_arrays import to_numpy
from search.backends.mlx_cuda import CudaPlatform
from search.backends.mlx_device import Ceilings, MlxDevice, Refused
from search.backends.mlx_timing import Samples, Schedule, Subject, measure, median_interval
from search.evaluation.oracle import compare
from search.outcome import Mismatch
from search.program import Program, program_from_json
from search.task import Case, Task, load_task

TASK = "mamba_scan"
GROUP = 10
STARTED = time.monotonic()
SCHEDULE = Schedule(warm_up_ms=50.0, sample_ms=1.0, samples=13, least_samples=7, budget_s=2.5, most_calls=60)


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


# ---- which programs


def sampled(task: Task, count: int, seed: int) -> list[Program]:
    """The seed, every single edit of it, and random walks through the block author's space."""
    author, rng = BlockAuthor(task), random.Random(seed)
    found = {task.seed.digest: task.seed}
    for edit in author.edits(task.seed):
        program = author.write(task.seed, edit)
        found.setdefault(program.digest, program)
    while len(found) < count:
        program = task.seed
        for _ in range(rng.randint(2, 9)):
            program = author.write(program, rng.choice(list(author.edits(program))))
            choices = author.choices_of(program)
            assert choices is not None
            program = (author.resize(choices, 1, rng) or [program])[0] if rng.random() < 0.6 else program
        found.setdefault(program.digest, program)
    return list(found.values())


def write_programs(path: Path, run: Path | None, count: int) -> None:
    """The seed, the best of ``run`` and its other programs, then samples up to ``count`` more."""
    task = load_task(TASK)
    chosen = {task.seed.digest: {"from": "seed", "program": task.seed.to_json()}}
    if run is not None:
        best = next(
            line.split()[2] for line in (run / "best.metal").read_text().splitlines() if line.startswith("// program ")
        )
        for file in sorted((run / "programs").glob("*.json"), key=lambda item: item.stem != best):
            program = program_from_json(json.loads(file.read_text()))
            origin = "best" if program.digest == best else "search"
            chosen.setdefault(program.digest, {"from": origin, "program": program.to_json()})
    searched = len(chosen)
    for program in sampled(task, count, 20261201):
        chosen.setdefault(program.digest, {"from": "sample", "program": program.to_json()})
    first, others = list(chosen.values())[:2], list(chosen.values())[2:]
    random.Random(1).shuffle(others)  # so that a part of them is a fair part
    path.write_text(json.dumps([*first, *others]))
    print(f"{len(chosen)} programs, {searched} of them from the search, in {path}")


# ---- right or not


def check_program(entry: dict[str, Any]) -> dict[str, Any]:
    """One program on every twin; runs in a process of its own."""
    import mlx.core as mx

    task, program = load_task(TASK), program_from_json(entry["program"])
    device = MlxDevice(mx, CudaPlatform())
    row: dict[str, Any] = {"digest": program.digest, "from": entry["from"], "cases": {}, "faults": []}
    started = time.monotonic()
    for number, case in enumerate(task.twins):
        inputs = task.make_inputs(case, 1000 + number)
        try:
            outputs = [device.run(program, task, case, device.place(inputs), poison) for poison in (float("nan"), 77.0)]
        except Refused as exc:
            row["faults"].append({"case": case.label, "refused": list(exc.lines)})
            continue
        result = compare(task, case, outputs[0], task.reference(inputs, case))
        if isinstance(result, Mismatch):
            row["faults"].append({"case": case.label, "mismatch": asdict(result)})
        else:
            row["cases"][case.label] = result
        if any(outputs[0][name].tobytes() != outputs[1][name].tobytes() for name in outputs[0]):
            row["faults"].append({"case": case.label, "unsteady": True})
    row["seconds"] = time.monotonic() - started
    return row


def check_all(entries: list[dict[str, Any]], out: Path, limit_s: float, processes: int) -> list[dict[str, Any]]:
    """Every program, side by side; those that the limit cuts off are missing from the file.

    Returns the programs to be timed: those that ran, then those that were cut off; none that was refused.
    """
    faulty = done = 0
    ran: dict[str, bool] = {}
    # One process a program: a fault of the GPU must not reach the next one.
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1)
    futures = [pool.submit(check_program, entry) for entry in entries]
    with (out / "checks.jsonl").open("a") as log:
        try:
            for future in as_completed(futures, timeout=limit_s):
                row = future.result()
                log.write(json.dumps(row) + "\n")
                log.flush()
                done += 1
                ran[row["digest"]] = not any("refused" in fault for fault in row["faults"])
                if row["faults"]:
                    faulty += 1
                    say(f"  {row['digest']} from {row['from']}: {json.dumps(row['faults'])[:400]}")
        except (TimeoutError, BrokenProcessPool) as exc:
            say(f"  checks cut off: {exc!r}")
            for process in list((pool._processes or {}).values()):  # a hung kernel must not hold the rest
                process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    say(f"checked {done} of {len(entries)} programs on {len(load_task(TASK).twins)} twins, {faulty} with faults")
    kept = [entry for entry in entries if ran.get(entry["program"]["digest"], True)]
    return sorted(kept, key=lambda entry: entry["program"]["digest"] not in ran)


def reference_of(label: str) -> str:
    """Write the oracle's outputs of a workload to a file; runs in a process of its own."""
    task = load_task(TASK)
    case = next(item for item in task.workloads if item.label == label)
    path = reference_path(label)
    if not path.exists():
        np.savez(path.with_suffix(".part.npz"), **task.reference(task.make_inputs(case, 1), case))
        path.with_suffix(".part.npz").rename(path)
    return label


def reference_path(label: str) -> Path:
    return Path(os.environ.get("TMPDIR", "/tmp")) / f"kx-reference-{label}.npz"


# ---- how long


def input_sets(device: MlxDevice, task: Task, case: Case, ceilings: Ceilings) -> list[dict[str, Any]]:
    """Inputs of seed 1 first, others behind, copies until the last-level cache is exceeded twice."""
    distinct = [task.make_inputs(case, seed) for seed in (1, 2, 3)]
    size = sum(array.nbytes for array in distinct[0].values())
    count = min(24, max(3, int(-(-2 * ceilings.cache_bytes // size))))
    return [device.place(distinct[number % 3]) for number in range(count)]


def time_group(
    device: MlxDevice, task: Task, case: Case, programs: list[dict[str, Any]], sets: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Programs in turns, the seed among them as sentinel of the clocks; each one's outputs against the oracle."""
    read = [program_from_json(entry["program"]) for entry in programs]
    subjects = [Subject(program, task, case) for program in (task.seed, *read)]
    try:
        results = measure(device, subjects, sets, SCHEDULE)
    except Refused as exc:
        if len(programs) == 1:
            return [{"digest": read[0].digest, "workload": case.label, "refused": list(exc.lines)}]
        halves = programs[: len(programs) // 2], programs[len(programs) // 2 :]
        return [row for half in halves for row in time_group(device, task, case, half, sets)]
    with np.load(reference_path(case.label)) as file:
        expected = dict(file)
    sentinel = results[0]
    return [
        timed_row(device, task, case, subject.program, samples, sentinel, expected)
        for subject, samples in zip(subjects, results, strict=True)
    ]


def timed_row(
    device: MlxDevice,
    task: Task,
    case: Case,
    program: Program,
    samples: Samples,
    sentinel: Samples,
    expected: dict[str, npt.NDArray[Any]],
) -> dict[str, Any]:
    outputs = {spec.name: to_numpy(device.mx, samples.last.tensors[spec.name]) for spec in task.outputs}
    result = compare(task, case, outputs, expected)
    median, low, high = median_interval(samples.us)
    return {
        "digest": program.digest,
        "workload": case.label,
        "us": median,
        "low_us": low,
        "high_us": high,
        "calls": samples.calls,
        "peak_bytes": samples.peak_bytes,
        "samples_us": [round(value, 4) for value in samples.us],
        "sentinel_us": [round(value, 4) for value in sentinel.us],
        "error": asdict(result) if isinstance(result, Mismatch) else result,
    }


def time_all(entries: list[dict[str, Any]], out: Path, done: set[tuple[str, str]], budget_s: float) -> None:
    """Groups of programs over all workloads until the budget is used up."""
    import mlx.core as mx

    task, device = load_task(TASK), MlxDevice(mx, CudaPlatform())
    ceilings = device.platform.ceilings(mx)
    sets = {case.label: input_sets(device, task, case, ceilings) for case in task.workloads}
    say("input sets placed: " + ", ".join(f"{label} {len(items)}" for label, items in sets.items()))
    slowest = 0.0
    with (out / "times.jsonl").open("a") as log:
        for start in range(0, len(entries), GROUP):
            began = time.monotonic()
            group = entries[start : start + GROUP]
            if began - STARTED + slowest > budget_s:
                say(f"stopped before program {start}: the budget is used up")
                return
            for case in task.workloads:
                left = [e for e in group if (e["program"]["digest"], case.label) not in done]
                rows = time_group(device, task, case, left, sets[case.label]) if left else []
                for row in rows:
                    log.write(json.dumps(row) + "\n")
                log.flush()
                wrong = [row["digest"] for row in rows if not isinstance(row.get("error"), float)]
                best = min((row["us"] for row in rows if "us" in row), default=float("nan"))
                seed = next((row["us"] for row in rows if row["digest"] == task.seed.digest), float("nan"))
                say(f"  {start:3d}+{len(left)} {case.label}: seed {seed:.1f} us, best {best:.1f} us, wrong {wrong}")
            slowest = max(slowest, time.monotonic() - began)
    say("all programs timed")


# ---- the machine


def seconds(mx: Any, make: Any, repeats: int) -> list[float]:
    """Wall-clock time of each evaluation of what ``make`` asks for."""
    taken = []
    for _ in range(repeats):
        arrays = make()
        mx.synchronize()
        began = time.perf_counter()
        mx.eval(arrays)
        mx.synchronize()
        taken.append(time.perf_counter() - began)
    return taken


def copy_bandwidth(mx: Any) -> dict[str, Any]:
    """A chain of copies of 1 GiB by MLX: each reads and writes all of it."""
    source = mx.random.normal((2**28,))
    mx.eval(source)

    def chain() -> Any:
        array = source
        for _ in range(8):
            array = mx.negative(array)
        return array

    taken = seconds(mx, chain, 8)[2:]
    return {"bytes_per_call": 2 * 2**30, "us": [value / 8 * 1e6 for value in taken],
            "gb_s": 2 * 2**30 * 8 / min(taken) / 1e9}  # fmt: skip


def empty_launch(mx: Any, device: MlxDevice) -> dict[str, Any]:
    """A chain of kernels that write eight floats each: what a launch costs in these measurements."""
    shape = (Argument("x", "float32", (8,)),)
    kernel = MlxKernel("tiny", "y[thread_position_in_grid.x] = x[thread_position_in_grid.x] + 1.0f;", shape,
                       (Argument("y", "float32", (8,)),))  # fmt: skip
    run = device.platform.define(mx, kernel, (8, 1, 1), (8, 1, 1))

    def chain() -> Any:
        array = mx.zeros((8,))
        for _ in range(100):
            (array,) = run(inputs=[array], output_shapes=[(8,)], output_dtypes=[mx.float32], grid=(8, 1, 1),
                           threadgroup=(8, 1, 1), init_value=None, chained=None)  # fmt: skip
        return array

    return {"us": [value / 100 * 1e6 for value in seconds(mx, chain, 10)[2:]]}


def token_loop(mx: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """The scan as mlx-lm's Mamba block runs it: MLX operations, one token after the other."""
    bias, rate, skip = inputs["delta_bias"], inputs["A"], inputs["D"]
    state, columns = None, []
    for t in range(inputs["u"].shape[2]):
        u, b, c = inputs["u"][:, :, t], inputs["B"][:, :, t], inputs["C"][:, :, t]
        raw = inputs["delta"][:, :, t] + bias
        dt = mx.logaddexp(raw, mx.array(0.0))
        added = mx.expand_dims(dt * u, -1) * mx.expand_dims(b, 1)
        state = added if state is None else added + state * mx.exp(mx.expand_dims(dt, -1) * rate)
        y = (state @ mx.expand_dims(c, -1)).squeeze(2) + skip * u
        gate = inputs["z"][:, :, t]
        columns.append(y * gate * mx.sigmoid(gate))
    return mx.stack(columns, axis=-1), state


def time_loop(mx: Any, device: MlxDevice, label: str, length: int) -> dict[str, Any]:
    """The token-by-token loop on the first ``length`` steps of a workload, checked against the oracle."""
    task = load_task(TASK)
    case = next(item for item in task.workloads if item.label == label)
    part = Case(case.label, {**case.dims, "L": length}, case.dtype)
    inputs = task.make_inputs(part, 1)
    arrays = device.place(inputs)
    built: list[float] = []

    def make() -> Any:
        began = time.perf_counter()
        result = token_loop(mx, arrays)
        built.append(time.perf_counter() - began)
        return result

    taken = seconds(mx, make, 4)
    y, state = make()
    result = compare(task, part, {"y": to_numpy(mx, y), "h_last": to_numpy(mx, state)}, task.reference(inputs, part))
    return {
        "dims": dict(part.dims),
        "evaluate_us": [value * 1e6 for value in taken],
        "build_graph_us": [value * 1e6 for value in built],
        "error": asdict(result) if isinstance(result, Mismatch) else result,
    }


def examine_machine(out: Path) -> None:
    """Device, versions, ceilings, and what to compare programs with."""
    import mlx.core as mx

    device = MlxDevice(mx, CudaPlatform())
    facts: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": {name: value for name, value in mx.device_info().items() if name not in ("uuid", "pci_bus_id")},
        "mlx": mx.__version__,
        "numpy": np.__version__,
        "ceilings": asdict(device.platform.ceilings(mx)),
        "schedule": asdict(SCHEDULE),
    }
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem,temperature.gpu", "--format=csv,noheader"]
    try:
        facts["nvidia_smi"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout
    except OSError as exc:
        facts["nvidia_smi"] = str(exc)
    for name, part in (
        ("copy", lambda: copy_bandwidth(mx)),
        ("empty_launch", lambda: empty_launch(mx, device)),
        ("loop_B1-D2048-L1024", lambda: time_loop(mx, device, "B1-D2048-L1024", 1024)),
        ("loop_B1-D768-L1024", lambda: time_loop(mx, device, "B1-D768-L2048", 1024)),
    ):
        try:
            facts[name] = part()
        except (RuntimeError, ValueError, Refused) as exc:
            facts[name] = {"failed": str(exc)[:500]}
        say(f"{name}: {json.dumps(facts[name])[:300]}")
    (out / "machine.json").write_text(json.dumps(facts, indent=1, default=str))


def measure_all(programs: Path, out: Path, options: argparse.Namespace) -> None:
    """Checks, machine, times, in this order; see the module's text."""
    out.mkdir(parents=True, exist_ok=True)
    entries = json.loads(programs.read_text())
    task = load_task(TASK)
    done = set()
    for file in options.done:
        done |= {(row["digest"], row["workload"]) for row in map(json.loads, Path(file).read_text().splitlines())}
    say(f"{len(entries)} programs, {len(done)} times known")
    with ProcessPoolExecutor(max_workers=3) as oracle:
        references = [oracle.submit(reference_of, case.label) for case in task.workloads]
        if options.checks_s > 0:
            entries = check_all(entries, out, options.checks_s, options.processes)
        for future in references:
            future.result()
        say("references computed")
    if options.machine:
        examine_machine(out)
    time_all(entries, out, done, options.budget_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    write = parts.add_parser("programs")
    write.add_argument("file", type=Path)
    write.add_argument("--run", type=Path)
    write.add_argument("--count", type=int, default=80)
    run = parts.add_parser("measure")
    run.add_argument("file", type=Path)
    run.add_argument("out", type=Path)
    run.add_argument("--budget-s", type=float, default=330.0)
    run.add_argument("--checks-s", type=float, default=120.0)
    run.add_argument("--processes", type=int, default=10)
    run.add_argument("--machine", action=argparse.BooleanOptionalAction, default=True)
    run.add_argument("--done", action="append", default=[])
    options = parser.parse_args()
    if options.part == "programs":
        write_programs(options.file, options.run, options.count)
    else:
        measure_all(options.file, options.out, options)


if __name__ == "__main__":
    main()
