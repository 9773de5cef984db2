"""What the MLX back ends share, with metalsim behind MLX's interface."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kx.errors import BackendUnavailable, InputError
from search.backends import Chip, mlx_metal
from search.backends.mlx_arrays import to_mlx, to_numpy
from search.backends.mlx_cuda import Machine as CudaMachine
from search.backends.mlx_device import MlxDevice, complaints
from search.backends.mlx_harness import differences
from search.backends.mlx_metal import Machine, MetalPlatform, chip_slug
from search.backends.mlx_timing import Schedule, Subject, drift, measure, median_interval
from search.backends.self_test import probe, try_out
from search.evaluation.gates import evaluate_program
from search.outcome import CompileFailed, Mismatch, RuntimeFailed, Scored, outcome_from_json, outcome_to_json
from search.program import Program
from search.task import Case, Task, load_task
from tests.unit.search.simulated_mlx import SimulatedMlx

core: Any = pytest.importorskip("mlx.core")

QUANTITIES = {"gpu-cores": 32.0, "schedulers-per-core": 4.0, "simd-width": 32.0, "gpu-clock": 1.3,
              "memory-bandwidth": 4e5, "slc-bytes": 1e4, "l2-bytes": 1e3}  # fmt: skip
LIMITS = {"threads-per-threadgroup": 1024, "threadgroup-memory-bytes": 32768, "simd-width": 32, "buffer-arguments": 31}
BRIEF = Schedule(warm_up_ms=0.1, sample_ms=0.001, samples=9, least_samples=7, budget_s=0.1, most_calls=2)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def task() -> Task:
    """The scan with one small workload and two twins."""
    whole = load_task("mamba_scan")
    small = Case("small", {"B": 1, "D": 4, "N": 16, "L": 40}, "float32")
    return dataclasses.replace(
        whole, workloads=(small,), twins=(whole.twins[0], whole.twins[4]), property_ids=("zero-delta",),
        property_case=Case("properties", {"B": 1, "D": 4, "N": 16, "L": 40}, "float32"),
    )  # fmt: skip


@pytest.fixture
def mx(cache: Path) -> SimulatedMlx:
    return SimulatedMlx(core, cache)


@pytest.fixture
def machine(mx: SimulatedMlx, cache: Path) -> Machine:
    made = Machine(Chip("m1-max", QUANTITIES, LIMITS), cache, None)
    made.schedule = BRIEF
    made.__dict__["device"] = MlxDevice(mx, made.platform)
    return made


def test_a_good_program_is_scored_with_its_raw_samples(machine: Machine, task: Task) -> None:
    outcome = evaluate_program(task.seed, task, machine, 5)
    assert isinstance(outcome, Scored), outcome
    assert outcome.timing == "measured"
    (timed,) = outcome.workloads
    assert BRIEF.least_samples <= len(timed.samples_us) == len(timed.sentinel_us) <= BRIEF.samples
    assert timed.low_us <= timed.time_us <= timed.high_us
    assert timed.time_us == pytest.approx(np.median(timed.samples_us))
    assert sum(timed.parts_us[name] for name in ("bandwidth", "latency")) <= timed.time_us * 1.000001
    again = outcome_from_json(json.loads(json.dumps(outcome_to_json(outcome))))
    assert again == outcome


def run_with(machine: Machine, mx: SimulatedMlx, task: Task, fault: Any) -> Any:
    mx.fault = fault
    return evaluate_program(task.seed, task, machine, 5)


def test_device_that_differs_from_the_simulation_is_found(machine: Machine, mx: SimulatedMlx, task: Task) -> None:
    def doubled(outputs: dict[str, Any], _: Any) -> dict[str, Any]:
        return {**outputs, "y": outputs["y"] * np.asarray(2, outputs["y"].dtype)}

    outcome = run_with(machine, mx, task, doubled)
    assert isinstance(outcome, RuntimeFailed)
    assert "between metalsim and this device" in outcome.findings[0]


def test_elements_that_keep_their_poison_are_found(machine: Machine, mx: SimulatedMlx, task: Task) -> None:
    def unwritten(outputs: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
        if call["init_value"] is not None:
            outputs["h_last"].reshape(-1)[3] = call["init_value"]
        return outputs

    outcome = run_with(machine, mx, task, unwritten)
    assert isinstance(outcome, RuntimeFailed)
    assert "h_last differs between two runs" in outcome.findings[0]


def test_a_race_on_the_device_is_found(machine: Machine, mx: SimulatedMlx, task: Task) -> None:
    rng = random.Random(1)

    def unsteady(outputs: dict[str, Any], _: Any) -> dict[str, Any]:
        outputs["y"].reshape(-1)[0] *= np.asarray(1 + rng.random() * 1e-3, outputs["y"].dtype)
        return outputs

    outcome = run_with(machine, mx, task, unsteady)
    assert isinstance(outcome, RuntimeFailed)
    assert any("differs between two runs" in line for line in outcome.findings)


def test_timed_outputs_are_compared_with_the_oracle(machine: Machine, mx: SimulatedMlx, task: Task) -> None:
    """Right under the checks, wrong when timed: poison tells a checked call from a timed one."""

    def lazy(outputs: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
        if call["init_value"] is None:
            outputs["y"][:] = 0
        return outputs

    outcome = run_with(machine, mx, task, lazy)
    assert isinstance(outcome, Mismatch)
    assert (outcome.case, outcome.output) == ("small", "y")


def test_outputs_of_another_calls_inputs_are_a_mismatch(machine: Machine, mx: SimulatedMlx, task: Task) -> None:
    """A stale result, as from memory that an earlier call filled: timed calls have other inputs from call to call."""
    seen: list[dict[str, Any]] = []

    def stale(outputs: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
        if call["init_value"] is None and outputs["y"].shape == (1, 4, 40):
            seen.append(outputs)
            return seen[-2] if len(seen) > 1 else outputs
        return outputs

    outcome = run_with(machine, mx, task, stale)
    assert isinstance(outcome, Mismatch | RuntimeFailed)


def test_text_that_the_device_refuses_is_a_compile_failure(machine: Machine, mx: SimulatedMlx, task: Task) -> None:
    mx.fast.metal_kernel = lambda **_: lambda **call: [core.zeros(shape) for shape in call["output_shapes"]]
    mx.core = _Failing("program_source:7:3: error: no such function\nnote: somewhere")
    outcome = evaluate_program(task.seed, task, machine, 5)
    assert outcome == CompileFailed(task.twins[0].dtype, ("program_source:7:3: error: no such function",))


def test_what_mlx_refuses_when_a_kernel_is_called_is_a_failure_too(
    machine: Machine, mx: SimulatedMlx, task: Task
) -> None:
    def call(**_: Any) -> Any:
        raise ValueError("[custom_kernel] too many threads")

    mx.fast.metal_kernel = lambda **_: call
    outcome = evaluate_program(task.seed, task, machine, 5)
    assert outcome == CompileFailed(task.twins[0].dtype, ("[custom_kernel] too many threads",))


class _Failing:
    """MLX whose evaluation fails, as it does where a kernel does not compile."""

    def __init__(self, message: str) -> None:
        self.message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(core, name)

    def eval(self, *_: Any) -> None:
        raise RuntimeError(self.message)


def test_turns_alternate_and_every_sample_ends_on_inputs_that_warm_up_did_not_see(mx: SimulatedMlx, task: Task) -> None:
    device = RecordingDevice(mx, MetalPlatform({}))
    other = dataclasses.replace(task.seed, author="other")
    sets = [device.place(task.make_inputs(task.workloads[0], seed)) for seed in (1, 2, 3)]
    subjects = [Subject(task.seed, task, task.workloads[0]), Subject(other, task, task.workloads[0])]
    schedule = Schedule(warm_up_ms=3.0, sample_ms=4.0, samples=4, least_samples=4, budget_s=9.0, most_calls=50)
    first, second = measure(device, subjects, sets, schedule, device.clock)
    assert (first.calls, second.calls) == (4, 4)
    assert first.us + second.us == pytest.approx([1000.0] * 8)
    finished = [(author, used) for author, used in device.finished if used]
    taken = finished[-8:]
    assert [author for author, _ in taken] == ["seed", "other", "other", "seed"] * 2
    assert all(used == [0, 2, 1, 0] or used[-1] == 0 for _, used in taken)
    assert all(0 not in used for _, used in finished[:-8])


class RecordingDevice(MlxDevice):
    """Runs nothing; each call takes a millisecond of its own clock."""

    def __init__(self, mx: Any, platform: Any) -> None:
        super().__init__(mx, platform)
        self.now = 0.0
        self.pending: list[int] = []
        self.author = ""
        self.finished: list[tuple[str, list[int]]] = []
        self.known: list[Any] = []

    def clock(self) -> float:
        return self.now

    def place(self, inputs: Any) -> Any:
        placed = super().place(inputs)
        self.known.append(placed)
        return placed

    def call(self, program: Program, task: Task, case: Case, inputs: Any, **more: Any) -> Any:
        self.author = program.author
        self.pending.append(next(i for i, known in enumerate(self.known) if known is inputs))
        assert (more["after"] is None) == (len(self.pending) == 1), "calls of a sample form a chain"
        array = core.zeros((8,))
        return type("Call", (), {"tensors": {"y": array, "h_last": array}, "last": array})()

    def finish(self, arrays: Any) -> None:
        self.now += 1e-3 * len(self.pending)
        self.finished.append((self.author, self.pending))
        self.pending = []


def test_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    for count in (7, 13, 25):
        hits = 0
        for _ in range(1000):
            _, low, high = median_interval(list(rng.exponential(1.0, count)))
            hits += low <= np.log(2) <= high
        assert hits >= 935, (count, hits)
        assert median_interval([5.0] * count) == (5.0, 5.0, 5.0)
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_drift_shows_clocks_that_fall() -> None:
    assert drift([1.0] * 9) == 1.0
    assert drift([1.0] * 5 + [2.0] * 5) == 2.0


def test_arrays_come_back_as_they_went(mx: SimulatedMlx, task: Task) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        inputs = task.make_inputs(Case("c", {"B": 1, "D": 2, "N": 16, "L": 3}, dtype), 4)
        for array in inputs.values():
            back = to_numpy(core, to_mlx(core, array))
            assert back.dtype == array.dtype
            assert not differences({"a": back}, {"a": array})


def test_messages_keep_their_errors() -> None:
    assert complaints("In file x\nbody(3): error: bad\nbody(4): warning: odd\n") == ("body(3): error: bad",)
    assert complaints("Too many threads.\nmore") == ("Too many threads.", "more")


@pytest.mark.parametrize("name", ["Apple M3 Max", "Apple M1"])
def test_the_chip_at_hand_has_to_be_the_one_named(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = SimulatedMlx(core, cache, name)
    monkeypatch.setattr(mlx_metal, "import_mlx", lambda _: simulated)
    machine = Machine(Chip("m3-max-40-core", QUANTITIES, LIMITS), cache, None)
    if name == "Apple M3 Max":
        machine.require_device()
    else:
        with pytest.raises(InputError, match="Apple M1, not m3-max-40-core"):
            machine.require_device()
    assert chip_slug("Apple M4 Pro") == "m4-pro"


def test_a_machine_without_the_gpu_says_what_to_install(cache: Path) -> None:
    if core.metal.is_available() or core.cuda.is_available():
        pytest.skip("this machine has one")
    for kind, word in ((Machine, "Metal"), (CudaMachine, "CUDA")):
        with pytest.raises(BackendUnavailable, match=word) as caught:
            kind(Chip("m1-max", QUANTITIES, LIMITS), cache, None).require()
        assert caught.value.exit_code == 3
        assert "pip install" in caught.value.hint


def test_a_kernel_that_takes_all_buffers_is_refused(mx: SimulatedMlx, task: Task) -> None:
    from metalsim.model import Argument, MlxKernel
    from search.backends.mlx_device import Refused

    inputs = tuple(Argument(f"a{i}", "float32", (8,)) for i in range(30))
    kernel = MlxKernel("k", "y[0] = a0[0];", inputs, (Argument("y", "float32", (8,)),))
    with pytest.raises(Refused, match="31 buffers"):
        MetalPlatform({}).define(mx, kernel, (1, 1, 1), (1, 1, 1))


def test_self_test_holds_on_a_device_that_keeps_metals_rules(machine: Machine, task: Task) -> None:
    trials = list(try_out(machine, task))
    assert [trial.held for trial in trials] == [True] * 3, trials
    assert "measured" in trials[-1].detail


def test_self_test_fails_where_lanes_hold_other_elements_of_a_matrix(machine: Machine, mx: SimulatedMlx) -> None:
    def transposed(outputs: dict[str, Any], _: Any) -> dict[str, Any]:
        outputs["y"][[1, 2]] = outputs["y"][[2, 1]]
        return outputs

    mx.fault = transposed
    trial = probe(machine.device)
    assert not trial.held
    assert "y differs" in trial.detail
