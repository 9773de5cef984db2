from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metalsim import Argument, CompiledKernel, MlxKernel, compile_kernel, run
from metalsim.build.toolchain import COMPILER_VARIABLE, error_messages
from metalsim.errors import CompilerMissing, InputError
from tests.unit.metalsim.launching import Launcher

DOUBLE = MlxKernel(
    "double_it",
    "uint i = thread_position_in_grid.x;\nout[i] = 2 * x[i];",
    (Argument("x", "float32", (64,)),),
    (Argument("out", "float32", (64,)),),
)
X = np.arange(64, dtype=np.float32)


def compiled(cache: Path, kernel: MlxKernel = DOUBLE) -> CompiledKernel:
    result = compile_kernel(kernel, mode="checked", cache=cache)
    assert isinstance(result, CompiledKernel), result
    return result


def test_the_second_compilation_takes_the_first_ones_files(launch: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(launch.cache)

    def no_process(*args: object, **kwargs: object) -> None:
        raise AssertionError("the compiler was started")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    assert compiled(launch.cache) == first


def test_other_text_is_another_entry(launch: Launcher) -> None:
    other = MlxKernel("double_it", DOUBLE.source.replace("2", "3"), DOUBLE.inputs, DOUBLE.outputs)
    assert compiled(launch.cache, other).library != compiled(launch.cache).library


def test_a_compiled_kernel_serves_other_shapes(launch: Launcher) -> None:
    kernel = compiled(launch.cache)
    x = np.arange(1000, dtype=np.float32)
    result = run(kernel, {"x": x}, {"out": (1000,)}, grid=(1000, 1, 1), threadgroup=(256, 1, 1))
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], 2 * x)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros(7, np.float32), "another signature"),
        (np.zeros((8, 8), np.float32), "another signature"),
        (np.zeros(64, np.float64), "float64"),
        (None, "missing"),
    ],
)
def test_arrays_of_another_signature_are_refused(launch: Launcher, x: np.ndarray | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(compiled(launch.cache), {} if x is None else {"x": x}, {}, grid=(8, 1, 1), threadgroup=(8, 1, 1))


def test_impossible_launches_are_refused(launch: Launcher) -> None:
    kernel = compiled(launch.cache)
    with pytest.raises(InputError, match="at least one thread"):
        run(kernel, {"x": X}, {}, grid=(0, 1, 1), threadgroup=(8, 1, 1))
    with pytest.raises(InputError, match="threadgroup 8 does not exist"):
        run(kernel, {"x": X}, {}, grid=(64, 1, 1), threadgroup=(8, 1, 1), threadgroups=[8])


def test_views_are_made_contiguous(launch: Launcher) -> None:
    result = run(
        compiled(launch.cache),
        {"x": np.arange(128, dtype=np.float32)[::2]},
        {},
        grid=(64, 1, 1),
        threadgroup=(64, 1, 1),
    )
    np.testing.assert_array_equal(result.outputs["out"], 4 * X)


def test_processes_share_a_cache(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.unit.metalsim.test_toolchain import compiled; "
        "print(compiled(Path(sys.argv[1])).library)"
    )
    root = str(Path(__file__).parents[3])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=root,
            env=os.environ | {"PYTHONPATH": root},
        )
        for _ in range(3)
    ]
    libraries = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(libraries) == 1
    leftovers = [p.name for p in (tmp_path / "metalsim").iterdir() if p.name.startswith("build-")]
    assert leftovers == []


def test_a_missing_compiler_is_said_with_a_hint(launch: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompilerMissing) as caught:
        compile_kernel(DOUBLE, mode="checked", cache=launch.cache, compiler=["no-such-clang"])
    assert "ziglang" in caught.value.hint
    monkeypatch.setenv(COMPILER_VARIABLE, "also-missing -x")
    with pytest.raises(CompilerMissing, match="also-missing"):
        compile_kernel(DOUBLE, mode="checked", cache=launch.cache)


def test_a_program_that_is_no_clang(tmp_path: Path) -> None:
    program = tmp_path / "fake"
    program.write_text("#!/bin/sh\necho gcc 13\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(CompilerMissing, match="not clang"):
        compile_kernel(DOUBLE, mode="checked", cache=tmp_path, compiler=[str(program)])


def test_errors_in_the_shim_are_charged_to_the_users_line() -> None:
    diagnostics = """\
In file included from kernel.cpp:2:
include/metalsim/simd.h:73:5: error: static assertion failed: simd_sum takes no 64-bit values
body:9:7: note: in instantiation of function template specialization
body:12:1: error: expected ';'
body:12:1: error: expected ';'
1 error generated.
"""
    assert error_messages(diagnostics) == (
        "body:9: simd_sum takes no 64-bit values",
        "body:12: expected ';'",
    )


def test_max_findings_bounds_the_list(launch: Launcher) -> None:
    source = "\n".join(f"out[thread_position_in_grid.x + {k}] = x[1000 + {k}];" for k in range(20))
    kernel = compiled(launch.cache, MlxKernel("many", source, DOUBLE.inputs, DOUBLE.outputs))
    result = run(kernel, {"x": X}, {}, grid=(64, 1, 1), threadgroup=(64, 1, 1), max_findings=5)
    assert len(result.findings) == 5
