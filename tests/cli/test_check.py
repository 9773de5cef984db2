from __future__ import annotations

from pathlib import Path

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
SIZES = ("--grid", "128", "--threadgroup", "64,1,1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reverse.metal"
    path.write_text(REVERSE)
    return path


def test_clean_kernels_exit_with_0(kx: Kx, file: Path) -> None:
    result = kx("check", str(file), *SIZES)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "2 kernels compiled and run, 0 with findings" in result.stderr


def test_a_race_is_printed_with_its_line(kx: Kx, file: Path) -> None:
    file.write_text(REVERSE.replace("  threadgroup_barrier(mem_flags::mem_threadgroup);\n", "\n"))
    result = kx("check", str(file), "--kernel", "reverse_half", *SIZES)
    assert result.exit_code == 1
    assert "reverse.metal:9: race: tile[" in result.stdout
    assert "[reverse_half]" in result.stdout


def test_json_holds_all_kernels(kx: Kx, file: Path) -> None:
    file.write_text(REVERSE.replace("x[i]", "x[i + 1]"))
    result = kx("check", str(file), "--json", *SIZES)
    assert result.exit_code == 1
    answer = parse_one_object(result)
    assert (answer["clean"], answer["ran"]) == (False, True)
    assert [k["kernel"] for k in answer["kernels"]] == ["reverse_float", "reverse_half"]
    for kernel in answer["kernels"]:
        (finding,) = kernel["findings"]
        assert (finding["kind"], finding["place"], finding["line"]) == ("out-of-range", "reverse.metal", 7)


def test_compile_errors_are_findings_with_file_and_line(kx: Kx, file: Path) -> None:
    file.write_text(REVERSE.replace("tile[63 - t]", "gone"))
    result = kx("check", str(file))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "reverse.metal:9: use of undeclared identifier 'gone'"


def test_sizes_and_values_can_be_given(kx: Kx, file: Path) -> None:
    short = kx("check", str(file), "--kernel", "reverse_float", *SIZES, "--buffer", "x=float32:100", "--set", "n=90")
    assert short.exit_code == 1
    assert "x[100], outside its 100 elements" in short.stdout
    unwritten = kx(
        "check", str(file), "--kernel", "reverse_float", *SIZES, "--buffer", "out=float32:128", "--set", "n=90"
    )
    assert unwritten.exit_code == 1
    assert "38 elements of the output were never written" in unwritten.stdout
    # The default size is a guess, of which an unwritten rest says nothing.
    assert kx("check", str(file), "--kernel", "reverse_float", *SIZES, "--set", "n=90").exit_code == 0


def test_the_chips_limits_hold(kx: Kx, file: Path) -> None:
    result = kx(
        "check", str(file), "--kernel", "reverse<float>", "--grid", "2048", "--threadgroup", "2048", "--chip", "m1-max"
    )
    assert result.exit_code == 1
    assert "a threadgroup of 2048 threads; the limit is 1024" in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--grid", "0,1"), "is not X,Y,Z"),
        (("--grid", "64"), "--grid and --threadgroup belong together"),
        ((*SIZES, "--buffer", "x=floaty"), "not NAME=DTYPE:SHAPE"),
        ((*SIZES, "--set", "m=3"), "has no buffer m"),
        ((*SIZES, "--set", "n=many"), "not a number"),
        (("--chip", "m99"), "m99"),
    ],
)
def test_bad_input_exits_with_2(kx: Kx, file: Path, options: tuple[str, ...], words: str) -> None:
    result = kx("check", str(file), "--kernel", "reverse_float", *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_missing_file_exits_with_2(kx: Kx) -> None:
    assert kx("check", "gone.metal").exit_code == 2


def test_no_compiler_exits_with_3(kx: Kx, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METALSIM_CXX", "no-such-clang")
    result = kx("check", str(file))
    assert result.exit_code == 3
    assert "no-such-clang" in result.stderr
