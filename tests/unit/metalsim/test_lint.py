"""What Metal's compiler refuses and clang accepts is a compile failure with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalsim import CompiledFile, CompileFailure, FileOptions, Finding, compile_file
from metalsim.text.lint import lint
from metalsim.text.rewrite import rewrite
from metalsim.text.tokens import tokenize
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


STRUCT = "struct S { int a; };\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (STRUCT + "void f(S* p) {}", 2, "pointer 'p' needs an address space"),
        (STRUCT + "void f(const S& r) {}", 2, "reference 'r' needs an address space"),
        ("struct Node {\n  float value;\n  Node* next;\n};", 3, "pointer 'next' needs an address space"),
        ("struct S {\n  float* data;\n};", 2, "pointer 'data' needs an address space"),
        ("float* f(device float* p) { return 0; }", 1, "the pointer that 'f' returns needs an address space"),
        ("void f(device char* p) {\n  auto q = (float*)p;\n}", 2, "pointer to 'float' needs an address space"),
        ("void f(device char* p) {\n  auto q = reinterpret_cast<const int*>(p);\n}", 2, "pointer to 'int' needs"),
        ("void f() {\n  float (*g)(float) = 0;\n}", 2, "no pointers to functions: 'g'"),
        ("float f(float x) {\n  return x + 1.0L;\n}", 2, "no 'long double': 1.0L"),
        ("void f() {\n  long long n = 0;\n}", 2, "no 'long long'"),
        ("int f(int x) {\n  return std::max(x, 1);\n}", 2, "no namespace 'std'"),
    ],
)
def test_types_that_metal_does_not_have(text: str, line: int, words: str) -> None:
    (fault,) = lint(tokenize(text))
    assert fault[0] == line
    assert words in fault[1]


@pytest.mark.parametrize(
    "text",
    [
        # A template's type may carry its address space, and so may a name given by typedef or using.
        "template <typename T> void f(T* p, const T& q) { T* r = p; }",
        "typedef device float Far; void f(Far* p) {}",
        STRUCT + "void f(device S* p, const thread S& q, constant S &r) { thread S* t = &q; auto& u = *p; }",
        STRUCT + "int f(S a, int b) { int S_size = 2; return a.a * b + (b & S_size); }",
        STRUCT + "thread S& pick(thread S& a) { return a; } device float* at(device float* p) { return p; }",
        "struct Node { float value; device Node* next; constant float* table; };",
        "void f(device char* p) { auto q = (device float*)p; auto r = reinterpret_cast<const device int*>(p); }",
        "float f(float a, int b) { return a * (float)b + (float(b) * a) + (a < b ? 1 : 0); }",
        # Functions are template arguments in kernels that Apple's compiler takes.
        "template <void (*load)(device const float*, short)> void f(device const float* p) { load(p, 1); }",
        "void f(device float (*rows)[4]) { (*rows)[1] = 2; }",
        "float f(float x) { return x + 1.0f + 1e3 + 0x1L + 10L; }",
        "struct A { int std; }; int f(A a) { long n = 1; unsigned long m = 2; return a.std + n + m; }",
    ],
)
def test_types_that_only_look_like_it(text: str) -> None:
    assert lint(tokenize(text)) == ()


WORDS = {
    "double": ("double d = 1;", "int double_width = 2;"),
    "goto": ("goto end;\nend: ;", "int goto_count = 1;"),
    "try": ("try { } catch (int e) { }", "bool retry = true;"),
    "throw": ("throw 1;", "int throws = 1;"),
    "new": ("auto p = new int(3);", "int new_value = 3;"),
    "delete": ("delete out;", "// delete this"),
    "virtual": ("virtual int v;", "int virtual_lane = 1;"),
    "dynamic_cast": ("auto p = dynamic_cast<device int*>(out);", "auto v = static_cast<int>(x[0]);"),
    "typeid": ("auto t = typeid(int);", "int type_id = 4;"),
    "thread_local": ("thread_local int t = 1;", "int thread_locals = 1;"),
}


@pytest.mark.parametrize("word", WORDS)
def test_words_that_metal_does_not_have(word: str) -> None:
    refused, taken = WORDS[word]
    assert (1, f"Metal has no {word!r}") in rewrite(refused, place="body", arrays_allowed=True).lint
    assert rewrite(taken, place="body", arrays_allowed=True).lint == ()
