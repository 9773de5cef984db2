from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalsim.text.rewrite import rewrite
from metalsim.text.swizzles import vector_macros
from metalsim.text.tokens import tokenize
from tests.unit.metalsim.launching import Launcher


def body(text: str) -> str:
    result = rewrite(text, place="body", arrays_allowed=True)
    assert result.faults == ()
    return result.text


def faults(text: str, *, arrays_allowed: bool = True) -> tuple[str, ...]:
    return rewrite(text, place="body", arrays_allowed=arrays_allowed).faults


@pytest.mark.parametrize(
    ("literal", "rewritten"),
    [
        ("1.5", "1.5f"),
        (".5", ".5f"),
        ("1.", "1.f"),
        ("1e-3", "1e-3f"),
        ("2.0f", "2.0f"),
        ("1.0h", "((half)1.0f)"),
        ("1bf", "1bf"),
        ("2.5bf", "((bfloat)2.5f)"),
        ("0x1p-3", "0x1p-3f"),
        ("17", "17"),
        ("17u", "17u"),
        ("0xffu", "0xffu"),
        ("1e3f", "1e3f"),
    ],
)
def test_literals(literal: str, rewritten: str) -> None:
    assert body(f"x = {literal};") == f"x = {rewritten};"


@pytest.mark.parametrize(
    "text",
    [
        "threadgroup float* p = tile + 3;",
        "const threadgroup T *p;",
        "auto p = (threadgroup float*)q;",
        "f<threadgroup float*>(p);",
        "using P = threadgroup float*;",
        "threadgroup Pair<N * 2>* p = pairs;",
        "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "// threadgroup float x[3];\n/* threadgroup float y[3]; */",
    ],
)
def test_pointers_and_comments_stay(text: str) -> None:
    assert body(text) == text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("threadgroup float a[4];", ["a"]),
        ("threadgroup T a[4][BK * (BN + 1)], b;", ["a", "b"]),
        ("threadgroup Pair<float, (N > 2)> pairs[2];", ["pairs"]),
        ("threadgroup metal::vec<float, 4> v[2];", ["v"]),
        ("threadgroup unsigned int counter;", ["counter"]),
        ("if (a) { threadgroup float inner[2]; }", ["inner"]),
        ("threadgroup\nfloat\na[4];\nint x;", ["a"]),
    ],
)
def test_arrays_become_registered_statics(text: str, names: list[str]) -> None:
    rewritten = body(text)
    for name in names:
        assert f'::bytes, "{name}");' in rewritten
        assert f"auto &{name} = " in rewritten
    assert rewritten.count("msim_declare") == len(names)
    assert rewritten.count("\n") == text.count("\n")


def test_attributes_go_and_lines_stay() -> None:
    assert body("[[unroll]] for (;;)\n[[maybe_unused,\n x]] int a[2]; a[b[0]] = 1;") == (
        " for (;;)\n\n int a[2]; a[b[0]] = 1;"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('asm("nop");', "inline assembly"),
        ("threadgroup float a[2] = {1, 2};", "initializer"),
        ("#define TILE threadgroup float t[3]\nTILE;", "macro"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    assert words in faults(text)[0]


def test_what_metal_lacks_is_lint_with_its_line() -> None:
    result = rewrite("int a;\ndouble d = 1;\ngoto end;", place="body", arrays_allowed=True)
    assert result.lint == ((2, "Metal has no 'double'"), (3, "Metal has no 'goto'"))
    assert result.faults == ()


def test_threadgroup_arrays_only_in_the_body() -> None:
    assert "body:2" in faults("void f() {\nthreadgroup float a[3]; }", arrays_allowed=False)[0]
    assert faults("void f(threadgroup float* a, threadgroup T& b);", arrays_allowed=False) == ()


def test_swizzles_that_occur_are_listed() -> None:
    result = rewrite("a.xy = b.zw; c.rgb; d->xxxx; e.xyq; other.w;\n#define S v.yz", place="body", arrays_allowed=True)
    assert result.swizzles == {"xy", "zw", "rgb", "xxxx", "yz"}
    macros = vector_macros(result.swizzles, has_unions=False).splitlines()
    assert macros[0] == "#define MSIM_SWIZZLES_2 MSIM_SWIZZLE(xxxx, 4, 0, 0, 0, 0) MSIM_SWIZZLE(xy, 2, 0, 1)"
    assert "MSIM_SWIZZLE(rgb, 3, 0, 1, 2)" in macros[1]
    assert "MSIM_SWIZZLE(zw, 2, 2, 3)" in macros[2]


@given(st.text(alphabet="ab1.\"'/*\\\n#[]<>-: \t", max_size=60))
def test_tokens_join_to_the_text(text: str) -> None:
    tokens = tokenize(text)
    assert "".join(t.text for t in tokens) == text
    line = 1
    for token in tokens:
        assert token.line == line
        line += token.text.count("\n")


@pytest.mark.parametrize(
    ("source", "header", "message"),
    [
        ("int a = 1;\nout[0] = undeclared;", "", "body:2: use of undeclared identifier 'undeclared'"),
        ("out[0] = f();", "\nfloat f() { return nothing; }", "header:2: use of undeclared identifier 'nothing'"),
        ("device float* p = x;", "", "body:1: "),
        ("threadgroup float a[4]; device float* p = a;", "", "body:1: "),
        ("long v = 3;\nout[0] = simd_sum(v);", "", "body:2: simd_sum takes no 64-bit values"),
        ("out[0] = max(1.0, half(2));", "", "ambiguous"),
        ("texture2d<float> t;", "", "texture2d"),
        ("#include <metal_nothing>\n", "", "'metal_nothing' file not found"),
        ("uint3 thread_position_in_grid;", "", "redefinition"),
    ],
)
def test_errors_carry_the_users_lines(launch: Launcher, source: str, header: str, message: str) -> None:
    assert message in launch.failure(source, header)[0]
