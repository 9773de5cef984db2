from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Kx, parse_one_object

REVERSE = """\
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void reverse(device T* out, const device T* x, constant uint& n, threadgroup T* tile,
                    uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  tile[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < n) out[i] = tile[63 - t];
}
template [[host_name("reverse_float")]] kernel decltype(reverse<float>) reverse<float>;
template [[host_name("reverse_half")]] kernel decltype(reverse<half>) reverse<half>;
"""
BARRIER = "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"


def launch_of(dtype: str = "float32", n: int = 128) -> dict[str, Any]:
    return {
        "entry": "reverse_float" if dtype == "float32" else "reverse_half",
        "grid_threads": [128, 1, 1],
        "threadgroup": [64, 1, 1],
        "buffers": [
            {"name": "out", "role": "out", "dtype": dtype, "shape": [128]},
            {"name": "x", "role": "in", "dtype": dtype, "shape": [128], "fill": {"kind": "normal", "seed": 3}},
            {"name": "n", "role": "scalar", "dtype": "uint32", "value": n},
        ],
        "threadgroup_memory": [256],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reverse.metal"
    path.write_text(REVERSE)
    return path


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    path = tmp_path / "launch.json"
    path.write_text(json.dumps(launch_of()))
    return path


def test_check_compiles_all_kernels_of_a_file(kx: Kx, file: Path) -> None:
    result = kx("metal", "check", str(file), "--json")
    assert result.exit_code == 0
    assert parse_one_object(result)["entries"] == [
        {"name": name, "compiled": True, "error": None, "lint": []} for name in ("reverse_float", "reverse_half")
    ]


def test_check_tells_a_compile_error_with_file_and_line(kx: Kx, file: Path) -> None:
    file.write_text(REVERSE.replace("tile[63 - t]", "gone"))
    result = kx("metal", "check", str(file), "--entry", "reverse_half")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("reverse.metal:9: use of undeclared identifier 'gone'")


def test_check_tells_lint_of_a_kernel_that_compiles(kx: Kx, file: Path) -> None:
    file.write_text(REVERSE.replace("tile[63 - t]", "T(double(tile[63 - t]))"))
    result = kx("metal", "check", str(file), "--json")
    assert result.exit_code == 1
    for entry in parse_one_object(result)["entries"]:
        assert entry["compiled"] is True
        assert entry["lint"] == [{"message": "Metal has no 'double'", "line": 9, "file": "reverse.metal"}]
    # In words, the file's lint is said once and not for each kernel.
    assert kx("metal", "check", str(file)).stdout == "reverse.metal:9: lint: Metal has no 'double'\n"


def test_a_clean_run_gives_outputs_counters_and_an_estimate(kx: Kx, file: Path, launch: Path, tmp_path: Path) -> None:
    result = kx("metal", "run", str(file), "--launch", str(launch), "--out", str(tmp_path / "o"), "--json")
    assert result.exit_code == 0, result.output
    answer = parse_one_object(result)
    assert (answer["error"], answer["findings"]) == (None, [])
    x = np.random.default_rng(3).standard_normal(128).astype(np.float32)
    found = np.load(answer["outputs"]["out"])
    np.testing.assert_array_equal(found, x.reshape(2, 64)[:, ::-1].reshape(128))
    assert answer["counters"]["device_bytes_written"] == 4 * 128
    assert answer["counters"]["barriers"] == 2
    assert answer["estimate"]["chip"] == "m1-max"
    assert answer["estimate"]["time_us"] > 0
    assert answer["estimate"]["bound_by"] in {"bandwidth", "compute", "latency", "synchronization", "launch"}


def test_a_race_is_told_with_both_lines(kx: Kx, file: Path, launch: Path) -> None:
    file.write_text(REVERSE.replace(BARRIER, "\n"))
    result = kx("metal", "run", str(file), "--launch", str(launch), "--json", "--no-estimate")
    assert result.exit_code == 1
    answer = parse_one_object(result)
    races = [item for item in answer["findings"] if item["kind"] == "race"]
    assert {(item["line"], *item["also_lines"]) for item in races} <= {(7, 9), (9, 7)}
    assert {item["file"] for item in races} == {str(file)}
    assert (answer["counters"], answer["estimate"]) == (None, None)
    words = kx("metal", "run", str(file), "--launch", str(launch), "--no-estimate").stdout
    assert f"{file}:9: race: tile[" in words or f"{file}:7: race: tile[" in words


def test_elements_that_nobody_writes_are_found(kx: Kx, file: Path, launch: Path) -> None:
    launch.write_text(json.dumps(launch_of(n=90)))
    result = kx("metal", "run", str(file), "--launch", str(launch), "--json", "--no-estimate")
    (finding,) = parse_one_object(result)["findings"]
    assert (finding["kind"], finding["line"]) == ("not-written", None)
    assert "38 elements" in finding["message"]


def test_outputs_keep_init_value_where_nobody_writes(kx: Kx, file: Path, launch: Path, tmp_path: Path) -> None:
    launch.write_text(json.dumps(launch_of(n=90) | {"init_value": 7}))
    result = kx("metal", "run", str(file), "--launch", str(launch), "--json", "--no-estimate", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert (np.load(tmp_path / "out.npy")[90:] == 7).all()


def test_a_kernel_that_does_not_compile_is_told_and_exits_with_1(kx: Kx, file: Path, launch: Path) -> None:
    file.write_text(REVERSE.replace("tile[63 - t]", "gone"))
    result = kx("metal", "run", str(file), "--launch", str(launch), "--json")
    assert result.exit_code == 1
    answer = parse_one_object(result)
    assert answer["error"].startswith("reverse.metal:9: use of undeclared identifier")
    assert (answer["findings"], answer["outputs"]) == ([], {})


def test_the_chips_limits_hold(kx: Kx, file: Path, launch: Path) -> None:
    launch.write_text(json.dumps(launch_of() | {"grid_threads": [2048], "threadgroup": [2048]}))
    result = kx("metal", "run", str(file), "--launch", str(launch), "--chip", "m1-max", "--json")
    assert result.exit_code == 1
    assert any(
        item["kind"] == "limit" and "2048 threads; the limit is 1024" in item["message"]
        for item in parse_one_object(result)["findings"]
    )


BODY = {
    "name": "halve",
    "input_names": ["x", "by"],
    "output_names": ["out"],
    "source": "uint i = thread_position_in_grid.x;\nif (i < x_shape[0]) out[i] = T(x[i] / by);",
    "template": [["T", "bfloat16"]],
    "grid": [128, 1, 1],
    "threadgroup": [32, 1, 1],
}
BODY_LAUNCH = {
    "buffers": [
        {"name": "x", "role": "in", "dtype": "float32", "shape": [100], "fill": {"kind": "arange", "lo": 1}},
        {"name": "by", "role": "scalar", "dtype": "float32", "value": 2},
        {"name": "out", "role": "out", "dtype": "bfloat16", "shape": [100]},
    ]
}


def test_a_body_runs_as_mlx_would_run_it(kx: Kx, tmp_path: Path) -> None:
    body, launch = tmp_path / "body.json", tmp_path / "launch.json"
    body.write_text(json.dumps(BODY))
    launch.write_text(json.dumps(BODY_LAUNCH))
    result = kx("metal", "run", str(body), "--launch", str(launch), "--json", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    out = np.load(parse_one_object(result)["outputs"]["out"])
    assert out.dtype == np.float32  # bfloat16 in a form that numpy knows
    np.testing.assert_array_equal(out, np.arange(1, 101) / 2)
    assert kx("metal", "check", str(body), "--launch", str(launch)).exit_code == 0
    body.write_text(json.dumps(BODY | {"source": "uint i = thread_position_in_grid.x;\nout[i] = T(x[i] / by);"}))
    bad = parse_one_object(kx("metal", "run", str(body), "--launch", str(launch), "--json", "--no-estimate"))
    assert {(item["kind"], item["line"], item["file"]) for item in bad["findings"]} == {("out-of-range", 2, str(body))}


def test_a_drafted_launch_runs(kx: Kx, file: Path, tmp_path: Path) -> None:
    drafted = kx("metal", "launch", str(file), "--entry", "reverse_half")
    assert drafted.exit_code == 0
    launch = tmp_path / "drafted.json"
    launch.write_text(drafted.stdout.replace("[256, 1, 1]", "[64, 1, 1]"))
    assert json.loads(drafted.stdout)["buffers"][1]["dtype"] == "float16"
    assert kx("metal", "run", str(file), "--launch", str(launch), "--no-estimate").exit_code == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grid": [1]}, "grid is unknown"),
        ({"grid_threads": [0]}, "grid_threads is [0]: each must be at least 1"),
        ({"grid_threads": None}, "names no grid"),
        ({"entry": ""}, "names no entry"),
        ({"buffers": [{"name": "x"}]}, "buffers[0].role is missing"),
        ({"buffers": [{"name": "x", "role": "in", "dtype": "double", "shape": [1]}]}, "buffers[0].dtype is 'double'"),
        ({"buffers": [{"name": "x", "role": "in", "dtype": "int8", "file": "gone.npy"}]}, "gone.npy cannot be read"),
        ({"threadgroup_memory": []}, "the kernel takes 1 threadgroup arguments, the launch gives 0"),
        ({"template": [["T"]]}, "template is not a list of pairs"),
    ],
)
def test_a_wrong_launch_names_the_key(kx: Kx, file: Path, launch: Path, change: dict[str, Any], words: str) -> None:
    launch.write_text(json.dumps(launch_of() | change))
    result = kx("metal", "run", str(file), "--launch", str(launch))
    assert result.exit_code == 2, result.output
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "gone.metal"), "gone.metal"),
        (("check", "reverse.metal", "--chip", "m99"), "m99"),
        (("run", "reverse.metal"), "--launch"),
        (("launch", "reverse.metal"), "name one by --entry"),
        (("run", "reverse.metal", "--launch", "reverse.metal"), "reverse.metal:1: not JSON"),
    ],
)
def test_wrong_usage_exits_with_2(kx: Kx, file: Path, arguments: tuple[str, ...], words: str) -> None:
    result = kx("metal", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_no_compiler_exits_with_3(kx: Kx, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METALSIM_CXX", "no-such-clang")
    result = kx("metal", "check", str(file))
    assert result.exit_code == 3
    assert "no-such-clang" in result.stderr


def test_a_relative_path_is_found_by_the_worker(kx: Kx, file: Path, launch: Path) -> None:
    include = file.parent / "sub"
    include.mkdir()
    (include / "size.h").write_text("constant int SIZE = 64;\n")
    file.write_text('#include "size.h"\n' + REVERSE.replace("63 - t", "SIZE - 1 - t"))
    assert kx("metal", "check", file.name, "-I", "sub").exit_code == 0
    result = kx("metal", "run", file.name, "--launch", launch.name, "-I", "sub", "--no-estimate")
    assert result.exit_code == 0, result.output


def test_a_drafted_launch_of_a_body_runs(kx: Kx, tmp_path: Path) -> None:
    body, launch = tmp_path / "body.json", tmp_path / "launch.json"
    body.write_text(json.dumps(BODY | {"input_names": ["x"], "source": BODY["source"].replace(" / by", "")}))
    drafted = kx("metal", "launch", str(body))
    assert drafted.exit_code == 0
    launch.write_text(drafted.stdout.replace("float32", "bfloat16").replace("1024", "128"))
    result = kx("metal", "run", str(body), "--launch", str(launch), "--no-estimate")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("group", ["metal", "graph"])
def test_a_group_without_a_command_prints_its_help(kx: Kx, group: str) -> None:
    result = kx(group)
    assert result.exit_code == 2
    assert "\nCommands:\n" in result.stderr
