"""Cleaning: comments, dead branches and prose go, offsets and line breaks stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.text import clean, decode


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfint a;\n", "int a;\n"),
        (b"int a;\r\nint b;\r\n", "int a;\nint b;\n"),
        (b"int a;\rint b;", "int a;\nint b;"),
        ("// Größe\n".encode(), "// Größe\n"),
        ("// Größe\n".encode("latin-1"), "// Größe\n"),
    ],
    ids=["bom", "crlf", "cr", "utf-8", "latin-1"],
)
def test_decode(data: bytes, text: str) -> None:
    assert decode(data) == text


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("a /* b */ c // d\ne", ["a", "c", "e"], ["b", "d"]),
        ("a // b \\\n still b\nc", ["a", "c"], ["still"]),
        ('f("__ldg // not a comment"); g', ["f", "g"], ["__ldg", "comment"]),
        ("char q = '\"'; kept // \" gone", ["kept"], ["gone"]),
        ("int n = 1'000'000; kept", ["kept"], []),
        ('x = R"(gone " // gone)"; kept', ["kept"], ["gone"]),
        ("#if 0\ngone\n#else\nkept\n#endif\nalso", ["kept", "also"], ["gone"]),
        ("#if 1\nkept\n#else\ngone\n#endif", ["kept"], ["gone"]),
        ("#if 0\n#if X\ngone\n#else\ngone\n#endif\ngone\n#endif\nkept", ["kept"], ["gone"]),
        ("#if 0 && defined(X)\ngone\n#elif Y\nkept\n#endif", ["kept"], ["gone"]),
        ("#ifdef X\nkept\n#else\nalso\n#endif", ["kept", "also"], []),
        ("#include <gone/cub.cuh>\nkept", ["kept"], ["gone"]),
        ("/* never closed\ngone", [], ["gone"]),
        ("#if 0\ngone", [], ["gone"]),
        ('asm volatile("kept.instr %0;" :: "r"(x)); puts("gone");', ["kept.instr"], ["gone"]),
        ('#define W asm("kept.in.macro;")\n', ["kept.in.macro"], []),
        ('_Pragma("unroll kept")', ["unroll kept"], []),
    ],
)
def test_clean(text: str, kept: list[str], gone: list[str]) -> None:
    code = clean(text).code
    assert all(word in code for word in kept)
    assert not any(word in code for word in gone)


@given(st.text(alphabet=st.sampled_from("a1 \n\t\"'/*\\#(){};:<>é") | st.sampled_from("ifels0nd"), max_size=200))
def test_clean_keeps_offsets(text: str) -> None:
    code = clean(text).code
    assert len(code) == len(text)
    assert [i for i, c in enumerate(code) if c == "\n"] == [i for i, c in enumerate(text) if c == "\n"]
    assert all(new in (old, " ", "?") for old, new in zip(text, code, strict=True))
