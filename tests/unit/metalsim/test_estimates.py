"""Estimates of real kernels for a chip of the knowledge graph: what bounds them, and what must not be faster."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgraph.graph import KnowledgeGraph
from kx.paths import Home
from metalsim import CompileFailure, Limits, compile_kernel, run
from metalsim.errors import InputError
from metalsim.estimate.chip import CHIP_QUANTITIES, OPERATION_CLASSES, ChipModel
from metalsim.estimate.cost import Estimate, estimate_run, estimate_to_json
from metalsim.estimate.counters import Counters, LaunchShape, counters_to_json
from metalsim.estimate.occupancy import find_residency
from metalsim.estimate.sampling import choose_threadgroups
from metalsim.launchfile import read_launch
from metalsim.report import COUNTED_THREADGROUPS, Surroundings, run_launch
from tests.unit.metalsim.launching import Launcher
from tests.unit.metalsim.test_cost import counters

PAGE = Path(__file__).parents[3] / "docs" / "estimate.md"
X = np.random.default_rng(0).random(1 << 20).astype(np.float32)


def figures_table() -> str:
    """The M1 Max's figures as the page has them, in two tables: of the machine, and of operation classes."""
    with tempfile.TemporaryDirectory() as folder:
        figures = KnowledgeGraph.open(Home(Path(folder))).chip("m1-max").quantities

    def told(name: str) -> tuple[str, str]:
        """Its source, and ``assumed`` or the like."""
        return figures[name].source.iri.rpartition(":")[2], figures[name].confidence

    lines = ["| quantity | unit | M1 Max | meaning | source | basis |", "|---|---|---|---|---|---|"]
    for quantity in CHIP_QUANTITIES:
        if "-cycles-" not in quantity.name:
            value = f"{figures[quantity.name].value:.10g}"
            cells = (f"`{quantity.name}`", quantity.unit, value, quantity.meaning, *told(quantity.name))
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| class | what falls into it | issue | latency | source | basis |", "|---|---|---|---|---|---|"]
    for name, meaning in OPERATION_CLASSES.items():
        issue, latency = f"issue-cycles-{name}", f"latency-cycles-{name}"
        both = [dict.fromkeys(pair) for pair in zip(told(issue), told(latency), strict=True)]
        values = [f"{figures[key].value:.10g}" for key in (issue, latency)]
        lines.append(f"| {' | '.join((f'`{name}`', meaning, *values, *(' / '.join(pair) for pair in both)))} |")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def quantities(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, float]:
    chip = KnowledgeGraph.open(Home(tmp_path_factory.mktemp("home"))).chip("m1-max")
    return {name: quantity.value for name, quantity in chip.quantities.items()}


def estimated(
    launcher: Launcher, quantities: Mapping[str, float], source: str, threads: int, threadgroup: int, x: Any = X
) -> tuple[Counters, Estimate]:
    """A launch of ``threads`` that reads ``x`` and writes as many floats, estimated from 8 threadgroups."""
    inputs = {"x": x}
    compiled = compile_kernel(
        launcher.kernel(source, inputs, {"out": ("float32", x.shape)}), mode="counted", cache=launcher.cache
    )
    assert not isinstance(compiled, CompileFailure), compiled.messages
    sample = choose_threadgroups(-(-threads // threadgroup), 0, 8)
    grid = (threads, 1, 1)
    result = run(compiled, inputs, {}, grid=grid, threadgroup=(threadgroup, 1, 1), threadgroups=sample.indices)
    assert not result.findings
    return estimate_run(compiled, result, grid=grid, buffer_bytes=2 * x.nbytes, quantities=quantities, sample=sample)


COPY = "uint i = thread_position_in_grid.x;\nout[i] = x[i];"


def test_a_large_copy_is_bound_by_bandwidth_and_a_small_one_by_its_launch(
    counted: Launcher, quantities: Mapping[str, float]
) -> None:
    large = np.zeros(1 << 22, np.float32)
    _, slow = estimated(counted, quantities, COPY, 1 << 22, 256, large)
    _, fast = estimated(counted, quantities, COPY, 1 << 12, 256)
    assert (slow.bound_by, fast.bound_by) == ("bandwidth", "launch")
    attainable = quantities["memory-bandwidth"] * quantities["attainable-bandwidth-fraction"] * 1e3
    assert slow.parts.bandwidth_us == pytest.approx(2 * large.nbytes / attainable)
    assert fast.time_us < 2 * quantities["launch-overhead"]


def test_more_bytes_never_take_less_time(counted: Launcher, quantities: Mapping[str, float]) -> None:
    times = [estimated(counted, quantities, COPY, 1 << size, 256)[1].time_us for size in range(8, 21, 2)]
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_exponentials_are_bound_by_compute(counted: Launcher, quantities: Mapping[str, float]) -> None:
    source = """
uint i = thread_position_in_grid.x;
float v = x[i], w = x[i ^ 1];
for (int k = 0; k < 200; k++) { v = exp(v) * 0.25f; w = exp(w) * 0.5f; }
out[i] = v + w;
"""
    found, result = estimated(counted, quantities, source, 1 << 20, 256)
    assert found.transcendental_operations == 400 * (1 << 20)
    assert result.bound_by == "compute"
    assert result.parts.compute_us > 5 * result.parts.bandwidth_us


def test_a_serial_scan_is_bound_by_latency(counted: Launcher, quantities: Mapping[str, float]) -> None:
    """One SIMD-group, every step waits for the last one's load."""
    source = """
uint i = thread_position_in_grid.x, at = i;
for (int k = 0; k < 512; k++) at = (at + (uint)x[at] + 32) & 1048575;
out[i] = at;
"""
    found, result = estimated(counted, quantities, source, 32, 32)
    assert result.bound_by == "latency"
    assert found.longest_chain.steps["device-load"] == 512
    # each step costs at least a hit of L1
    assert result.longest_chain_cycles > 512 * quantities["l1-latency"]


def test_low_occupancy_takes_longer(counted: Launcher, quantities: Mapping[str, float]) -> None:
    """The same chain of loads; 28 KiB of threadgroup memory leave room for two threadgroups of 64 on a core."""
    source = """
threadgroup float tile[SIZE];
uint i = thread_position_in_grid.x, at = i;
tile[thread_position_in_threadgroup.x] = x[i];
for (int k = 0; k < 32; k++) at = (at + (uint)x[at] + 32) & 1048575;
out[i] = at + tile[thread_position_in_threadgroup.x];
"""
    roomy = estimated(counted, quantities, source.replace("SIZE", "64"), 1 << 18, 64)[1]
    tight = estimated(counted, quantities, source.replace("SIZE", "7168"), 1 << 18, 64)[1]
    assert tight.residency.limit == "threadgroup memory"
    assert tight.residency.threadgroups == 2
    assert tight.residency.threads_in_flight == 2 * 64 * quantities["gpu-cores"]
    assert tight.occupancy < roomy.occupancy / 5
    assert tight.time_us > 2 * roomy.time_us


def test_an_array_that_no_register_can_hold_costs_memory_traffic(
    counted: Launcher, quantities: Mapping[str, float]
) -> None:
    source = """
uint i = thread_position_in_grid.x;
float bins[64] = {0};
for (int k = 0; k < 64; k++) bins[INDEX] += 1.0f;
float sum = 0;
for (int k = 0; k < 64; k++) sum += bins[k] * k;
out[i] = sum;
"""
    indexed = estimated(counted, quantities, source.replace("INDEX", "(uint)(x[k] * 64) & 63"), 1 << 18, 256)
    constant = estimated(counted, quantities, source.replace("INDEX", "k"), 1 << 18, 256)
    assert constant[0].thread_array_bytes == 0
    assert indexed[0].thread_array_bytes == 256
    assert indexed[1].parts.bandwidth_us > 5 * constant[1].parts.bandwidth_us
    assert any("no register" in note for note in indexed[1].notes)


@pytest.mark.parametrize(
    ("half_registers", "threads"), [(112, 896), (128, 832), (144, 704), (160, 640), (208, 512), (232, 448), (256, 384)]
)
def test_registers_leave_room_for_as_many_threads_as_was_measured(
    quantities: Mapping[str, float], half_registers: int, threads: int
) -> None:
    """Threads of an M1 core by registers per thread (metal-benchmarks README, table of occupancy), in pairs of
    SIMD-groups, as the hardware hands them out."""
    needy = counters(10_000, 64, registers=half_registers // 2)
    residency = find_residency(needy, ChipModel.from_quantities(quantities))
    assert (residency.limit, residency.threadgroups * 64) == ("registers", threads)


def test_everything_in_flight_is_limited_by_the_launch(quantities: Mapping[str, float]) -> None:
    few = find_residency(counters(40, 128), ChipModel.from_quantities(quantities))
    assert (few.limit, few.threadgroups_in_flight, few.threads_in_flight) == ("launch", 40, 40 * 128)


def test_what_was_not_counted_cannot_be_estimated(launch: Launcher, quantities: Mapping[str, float]) -> None:
    compiled = compile_kernel(
        launch.kernel(COPY, {"x": X[:64]}, {"out": ("float32", (64,))}), mode="checked", cache=launch.cache
    )
    assert not isinstance(compiled, CompileFailure)
    result = run(compiled, {"x": X[:64]}, {}, grid=(64, 1, 1), threadgroup=(64, 1, 1))
    with pytest.raises(InputError, match="nothing was counted"):
        estimate_run(compiled, result, grid=(64, 1, 1), buffer_bytes=512, quantities=quantities)


def test_counters_and_estimate_are_told_by_name(counted: Launcher, quantities: Mapping[str, float]) -> None:
    found, result = estimated(counted, quantities, COPY, 1 << 12, 256)
    told = estimate_to_json(result, "m1-max")
    assert (told["chip"], told["time_us"], told["bound_by"]) == ("m1-max", result.time_us, "launch")
    assert set(told["parts"]) == {"bandwidth", "compute", "latency", "synchronization", "launch"}
    assert told["notes"][0].startswith("an estimate")
    numbers = counters_to_json(found, result)
    assert numbers["threads_in_flight"] == told["threads_in_flight"] == 4096
    assert numbers["longest_chain_cycles"] == result.longest_chain_cycles
    assert set(numbers) - set(counters_to_json(found)) == {
        "threads_in_flight", "threadgroups_in_flight", "longest_chain_cycles",
    }  # fmt: skip
    undescribed = [name for name in numbers if f"`{name}`" not in PAGE.read_text(encoding="utf-8")]
    assert not undescribed
    assert isinstance(found.shape, LaunchShape)


def test_the_page_has_the_figures_of_the_graph() -> None:
    assert figures_table() in PAGE.read_text(encoding="utf-8")


def test_the_page_prints_what_its_example_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    printed = re.search(r"prints\n\n```text\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert printed is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], str(PAGE), "exec"), {})
    assert capsys.readouterr().out == printed[1]


def test_a_launch_of_many_threadgroups_is_counted_from_a_sample(
    counted: Launcher, quantities: Mapping[str, float], tmp_path: Path
) -> None:
    """700 threadgroups of 32, the last of 5 threads: more than are counted one by one, and still exact."""
    file, launch = tmp_path / "copy.metal", tmp_path / "launch.json"
    file.write_text(
        "#include <metal_stdlib>\nkernel void copy(device const float* x [[buffer(0)]], "
        "device float* out [[buffer(1)]], uint i [[thread_position_in_grid]]) { out[i] = x[i]; }\n",
        encoding="utf-8",
    )
    threads = 699 * 32 + 5
    buffers = [{"name": name, "role": role, "dtype": "float32", "shape": [threads]} for name, role in
               (("x", "in"), ("out", "out"))]  # fmt: skip
    plan = {"grid_threads": [threads, 1, 1], "threadgroup": [32, 1, 1], "buffers": buffers}
    launch.write_text(json.dumps(plan), encoding="utf-8")
    report = run_launch(file, read_launch(launch), Surroundings(counted.cache, Limits(), quantities=quantities))
    assert (report.errors, report.findings) == ((), ())
    assert report.counters is not None
    assert report.counters.sampled_threadgroups == COUNTED_THREADGROUPS < report.counters.shape.threadgroups == 700
    assert report.counters.device_bytes_read == report.counters.device_bytes_written == 4 * threads
    assert report.estimate is not None
    assert report.estimate.residency.threads_in_flight == threads
