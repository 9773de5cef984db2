"""Texts that break readers: each is a compile failure with a message, or compiles; none is an exception or a hang."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metalsim import CompiledFile, CompileFailure, compile_file
from metalsim.build.compiler import Compilation, CompilerLimits, default_compiler, run_compiler
from metalsim.execute.isolation import Allowance, FileProgram, IsolatedRunner

KERNEL = "kernel void k(device float* out [[buffer(0)]]) { out[0] = VALUE; }\n"


def valued(value: str) -> str:
    return KERNEL.replace("VALUE", value)


def bomb(levels: int) -> str:
    lines = ["#define A0 1"] + [f"#define A{i} {' + '.join([f'A{i - 1}'] * 10)}" for i in range(1, levels + 1)]
    return "\n".join(lines) + "\n" + valued(f"A{levels}")


@pytest.fixture(scope="module")
def runner() -> Iterator[IsolatedRunner]:
    with IsolatedRunner(Allowance(compile_limit_s=30)) as runner:
        yield runner


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no kernel 'k'"),
        (" \n\t\n", "no kernel 'k'"),
        (KERNEL + "/* never closed", "kernel.metal:2: unterminated /* comment"),
        (KERNEL + '"never closed', "kernel.metal:"),
        (KERNEL + 'R"x(never closed', "kernel.metal:2: raw string"),
        ("\0" + KERNEL, "kernel.metal:1: a NUL byte"),
        ("// a\n" + KERNEL + "\0", "kernel.metal:3: a NUL byte"),
        (valued("(" * 60000), "bracket nesting level"),
        (valued("[" * 2000), "kernel.metal:1: "),
        ("[[" * 30000 + KERNEL, "no kernel 'k'"),
        (valued("9" * 100000), "too large"),
        (valued("0x" + "f" * 10000), "too large"),
        (valued("1.2.3.4ee++..f"), "invalid suffix"),
        (valued("a" * 200000), "undeclared identifier"),
        ("#if 1\n" * 2000 + KERNEL, "unterminated conditional directive"),
        ('#include "kernel.metal"\n' + KERNEL, "nested too deeply"),
        ("x;\n" * 5000, "no kernel 'k'"),
        ("template <int N> struct F { enum { v = F<N + 1>::v }; };\n" + valued("F<0>::v"), "recursive template"),
        ("constexpr int f() { int n = 0; while (true) n ^= 1; return n; }\nconstant constexpr int v = f();\n"
         + valued("v"), "constant expression"),
        ("//" + "x" * (17 << 20), "larger than 16 MiB"),
        ("#error out of order\n" + KERNEL, "out of order"),
        (valued("\\u00e9"), "undeclared identifier"),
    ],
)  # fmt: skip
def test_it_does_not_compile_with_a_message(runner: IsolatedRunner, cache: Path, text: str, said: str) -> None:
    result = runner.compile(FileProgram(text, "k"), mode="checked", cache=cache)
    assert isinstance(result, CompileFailure)
    assert any(said in message for message in result.messages), result.messages[:3]
    assert max(map(len, result.messages)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.replace("VALUE", "1").replace("{", "{\r\n").replace("\n", "\r\n"),
        "\ufeff" + valued("1"),
        'constant char s[] = R"x(" ( /* )x";\n' + valued("1"),
        valued("(" * 500 + "1" + ")" * 500),
        valued("1" + " + 1" * 5000),
        "//" + "x" * 1000000 + "\n" + valued("1"),
        bomb(3),
    ],
)
def test_it_compiles(runner: IsolatedRunner, cache: Path, text: str) -> None:
    result = runner.compile(FileProgram(text, "k"), mode="checked", cache=cache)
    assert isinstance(result, CompiledFile), result


def test_bytes_that_are_no_text(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "kernel.metal"
    for content in (b"// fine\n// \xff\xfe\n", KERNEL.encode("utf-16"), b"\x80" * 100):
        path.write_bytes(content)
        result = compile_file(path, "k", mode="checked", cache=cache)
        assert isinstance(result, CompileFailure)
        assert "NUL byte" in result.messages[0] or "not UTF-8" in result.messages[0]


def test_a_macro_bomb_ends_at_a_limit(cache: Path) -> None:
    started = time.monotonic()
    with IsolatedRunner(Allowance(compile_limit_s=2)) as runner:
        result = runner.compile(FileProgram(bomb(11), "k"), mode="checked", cache=cache)
    assert isinstance(result, CompileFailure)
    assert "longer than 2 s" in result.messages[0] or "MiB" in result.messages[0]
    assert time.monotonic() - started < 20
    assert [path.name for path in (cache / "metalsim").iterdir() if path.name.startswith("build-")] == []


def compiled_with(limits: CompilerLimits, folder: Path, text: str, *what: str) -> Compilation:
    (folder / "a.cpp").write_text(text, encoding="utf-8")
    command = (*default_compiler(), *(what or ("-E", "-o", "a.ii")), "-w", "a.cpp")
    return run_compiler(command, folder, folder / "caches", limits)


def test_the_compilers_limits_are_told(tmp_path: Path) -> None:
    assert compiled_with(CompilerLimits(), tmp_path, "int a;").fault == ""
    endless = bomb(12)
    assert "longer than 1 s" in compiled_with(CompilerLimits(processor_s=1), tmp_path, endless, "-fsyntax-only").fault
    assert "MiB" in compiled_with(CompilerLimits(file_bytes=1 << 20), tmp_path, endless).fault
    late = compiled_with(CompilerLimits(wall_s=0.5), tmp_path, endless, "-fsyntax-only")
    assert late.fault.startswith("compiling took longer than")
