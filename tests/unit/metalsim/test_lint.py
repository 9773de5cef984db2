"""What Metal's compiler refuses and clang accepts is a compile failure with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalsim import CompiledFile, CompileFailure, FileOptions, Finding, compile_file
from metalsim.lint import lint
from metalsim.tokens import tokenize
from tests.unit.metalsim.launching import Launcher


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("int a;\nfloat* p = x;", 2, "pointer 'p' needs an address space"),
        ("int a = 1;\nconst float4 & r = v;", 2, "reference 'r' needs an address space"),
        ("uint n = i;\nfloat a[n];", 2, "its length 'n' is not constant"),
        ("\nfloat a[thread_position_in_grid];", 2, "not constant"),
        ("int x;\n\nstatic int n = 0;", 3, "static local"),
    ],
)
def test_faults_of_a_body(text: str, line: int, words: str) -> None:
    (fault,) = lint(tokenize(text), in_body=True)
    assert fault[0] == line
    assert words in fault[1]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("\nvoid f(float* p) {}", 2, "pointer 'p' needs an address space"),
        ("struct S {\n  void set(const half &x) { y = x; }\n  half y;\n};", 2, "reference 'x'"),
        ("void f() {\n  static float cache[2];\n}", 2, "static local"),
        ("int f(int n) {\n  return n ? f(n - 1) : 0;\n}", 1, "'f' calls itself"),
        ("int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }", 2, "'f' calls itself"),
    ],
)
def test_faults_of_a_file(text: str, line: int, words: str) -> None:
    faults = lint(tokenize(text))
    assert faults[0][0] == line
    assert words in faults[0][1]


@pytest.mark.parametrize(
    "text",
    [
        "device float* p = x; const device float4 & r = x[0]; thread float& t = y; threadgroup half* q;",
        "constexpr int n = 4; const uint m = 3; float a[n], b[m], c[2 * n];",
        "float y = a * b; float z = half(2) * c; int k = int(x) & mask; uint u = (uint) * p;",
        "static constexpr constant float table[2] = {1, 2}; constant static constexpr int k = 1;",
        "uint n = 3; float x = a[n]; values[n] = 1;",
        "auto f = metal::fast::exp; sum += float(a) * float(b);",
    ],
)
def test_what_metal_accepts_in_a_body(text: str) -> None:
    assert lint(tokenize(text), in_body=True) == ()


@pytest.mark.parametrize(
    "text",
    [
        "float f(float x);\nfloat f(float x, float y) { return f(x); }\nfloat f(float x) { return x; }",
        "template <class T> T f(T x) { return f(float(x)); }",
        "struct A { float exp(float x) { return metal::exp(x); } };",
        "float exp(float x) { return metal::exp(x); }",
        "void f(device float* p, thread half& h, constant int (&a)[2]) {}",
        "static inline float g(float x) { return x; }\nstatic constant float t[1] = {1};",
    ],
)
def test_what_metal_accepts_in_a_file(text: str) -> None:
    assert lint(tokenize(text)) == ()


@pytest.mark.parametrize(
    ("source", "header", "words"),
    [
        ("float* p = nullptr;", "", "body:1: pointer 'p'"),
        ("", "\nvoid f(float* p) {}", "header:2: pointer 'p'"),
        ("\nbfloat b = x[0];", "", "body:2: implicit conversion from float to bfloat"),
        ("virtual int k;", "", "body:1: Metal has no 'virtual'"),
        ("int k = 1;\nauto p = new int;", "", "body:2: Metal has no 'new'"),
    ],
)
def test_compiling_reports_them(launch: Launcher, source: str, header: str, words: str) -> None:
    assert launch.failure(source, header)[0].startswith(words)


def test_compiling_a_file_reports_them_by_its_lines(launch: Launcher) -> None:
    source = "#include <metal_stdlib>\n\nvoid f(float* p) {}\n"
    source += "kernel void k(device bfloat* x, uint i [[thread_position_in_grid]]) {\n"
    result = compile_file(source + "  x[i] = 1;\n}", "k", mode="checked", cache=launch.cache)
    assert isinstance(result, CompileFailure)
    assert result.messages == (
        "kernel.metal:3: pointer 'p' needs an address space (device, constant, threadgroup or thread)",
    )
    other = source.replace("void f(float* p) {}", "") + "  float y = x[i];\n  x[i] = y;\n}"
    result = compile_file(other, "k", mode="checked", cache=launch.cache)
    assert isinstance(result, CompileFailure)
    assert result.messages == ("kernel.metal:6: implicit conversion from float to bfloat; write bfloat(...)",)


def test_lint_is_a_failure_when_strict_and_a_finding_when_not(tmp_path: Path) -> None:
    text = "kernel void f(device float* out [[buffer(0)]]) {\n  double d = 2;\n  out[0] = d;\n}\n"
    strict = compile_file(text, "f", mode="checked", cache=tmp_path)
    assert isinstance(strict, CompileFailure)
    assert strict.messages == ("kernel.metal:2: Metal has no 'double'",)
    lax = compile_file(text, "f", mode="checked", cache=tmp_path, options=FileOptions(strict=False))
    assert isinstance(lax, CompiledFile)
    assert lax.lint == strict.lint == (Finding("lint", "Metal has no 'double'", 2, "kernel.metal"),)
