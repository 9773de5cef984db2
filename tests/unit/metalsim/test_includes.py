"""A file may bring in Metal's headers and what lies in the given folders, and learn nothing about other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalsim import CompiledFile, CompileFailure, FileOptions, compile_file
from metalsim.errors import InputError
from metalsim.text.includes import IncludeFolders, pragma_faults

SECRET = "4711.0815f"
KERNEL = "kernel void k(device float* out [[buffer(0)]]) { out[0] = VALUE; }\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A readable file beyond the folders, with a text that would compile."""
    path = tmp_path / "secret.h"
    path.write_text(f"#define VALUE {SECRET}\n", encoding="utf-8")
    return path


def build(cache: Path, folder: Path, text: str, *include: Path) -> CompiledFile | CompileFailure:
    (folder / "project").mkdir(exist_ok=True)
    path = folder / "project" / "kernel.metal"
    path.write_text(text, encoding="utf-8")
    return compile_file(path, "k", mode="checked", cache=cache, options=FileOptions(include=include))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('#include "{path}"', "relative to the folders"),
        ("#include <{path}>", "relative to the folders"),
        ('#include "../secret.h"', "leaves the folders"),
        ('#include "sub/../../secret.h"', "leaves the folders"),
        ('#inc\\\nlude "../secret.h"', "leaves the folders"),
        ('#include\\  \n "../secret.h"', "leaves the folders"),
        ('/* a */ # /* b */ include /* c */ "../secret.h"', "leaves the folders"),
        ('/* a\n*/ #include "../secret.h"', "leaves the folders"),
        ('%: include "../secret.h"', "leaves the folders"),
        ('const constant char* s = R"(/*)";\n#include "../secret.h"\n//*/', "leaves the folders"),
        ('#define NAME "../secret.h"\n#include NAME', "not a macro"),
        ('#define NAME "../secret.h"\n/* \n*/ #include NAME', "not a macro"),
        ('#include "link.h"', "leaves the folders"),
        ('#include "linked/secret.h"', "leaves the folders"),
        ('#include "nested.h"', "leaves the folders"),
        ('#include_next "secret.h"', "include_next"),
        ('#import "../secret.h"', "import"),
        ('#define VALUE 1\nconstant int t[] = {{\n#embed "../secret.h"\n}};', "embed"),
        ('#define VALUE 1\nconstant int t[] = {{\n# /**/ emb\\\ned "../secret.h"\n}};', "embed"),
        ('#if __has_include("../secret.h")\n#define VALUE 1\n#endif', "leaves the folders"),
        ('#if __has_include("{path}")\n#define VALUE 1\n#endif', "relative to the folders"),
        ('#define NAME "../secret.h"\n#if __has_include(NAME)\n#define VALUE 1\n#endif', "not a macro"),
        ('#define P(a, b) a##b\n#if P(__has_, include)("{path}")\n#define VALUE 1\n#endif', "__has_include"),
        (
            '#if __has_include("near.h")\n#endif\n#define P(a, b) a##b\n#if P(__has_, include)("{path}")\n'
            "#define VALUE 1\n#endif",
            "outside the folders",
        ),
        ('#if __has_embed("{path}")\n#define VALUE 1\n#endif', "__has_embed"),
        ('#define VALUE 1\n#pragma GCC dependency "../secret.h"', "pragma"),
        ("#define VALUE 1\n#pragma comment(lib, \"c\")", "pragma"),
        ("#define VALUE 1\n#pragma clang module import std", "pragma"),
        ("#define VALUE 1\n#pragma clang section bss=\"x\"", "pragma"),
        ("#define VALUE 1\n#pragma redefine_extname sin system", "pragma"),
        ('#define VALUE 1\n_Pragma("weak puts")', "pragma"),
        ('#define VALUE 1\n_Pragma("clang attribute push(__attribute__((constructor)), apply_to=function)")', "pragma"),
        ('#define VALUE 1\n#define H #\nH include "../secret.h"', "made by a macro"),
    ],
)  # fmt: skip
def test_nothing_outside_is_read(cache: Path, tmp_path: Path, outside: Path, text: str, said: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "near.h").touch()
    (tmp_path / "project" / "link.h").symlink_to(outside)
    (tmp_path / "project" / "linked").symlink_to(tmp_path)
    (tmp_path / "project" / "nested.h").write_text('#include "../secret.h"\n', encoding="utf-8")
    written = text.replace("{path}", str(outside)).replace("{{", "{").replace("}}", "}")
    result = build(cache, tmp_path, f"{written}\n{KERNEL}")
    assert isinstance(result, CompileFailure), "it was compiled"
    assert said in result.messages[0]
    assert SECRET not in " ".join(result.messages)


def test_headers_of_the_folders_are_read(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "deep" / "one.h").write_text('#include "../two.h"\n', encoding="utf-8")
    (tmp_path / "lib" / "two.h").write_text("// see #include DIRECTIVES\n#define VALUE 2\n", encoding="utf-8")
    probe = "#if __has_include(<deep/one.h>) && !__has_include(<deep/other.h>)\n#include <deep/one.h>\n#endif\n"
    text = f"#include <metal_stdlib>\n// #include <no/such/file.h>\n{probe}{KERNEL}"
    assert isinstance(build(cache, tmp_path, text, tmp_path / "lib"), CompiledFile)


def test_a_guarded_probe_without_a_use_compiles(cache: Path, tmp_path: Path) -> None:
    text = f"#ifdef __has_embed\n#error it has\n#endif\n#define VALUE 1\n{KERNEL}"
    assert isinstance(build(cache, tmp_path, text), CompiledFile)


def test_a_missing_header_is_named_with_the_folders(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    result = build(cache, tmp_path, '#include "lost.h"\n' + KERNEL, tmp_path / "lib")
    assert isinstance(result, CompileFailure)
    searched = f"looked in the file's own folder, {tmp_path / 'lib'}, Metal's headers"
    assert result.messages == (f"kernel.metal:1: 'lost.h' file not found; {searched}",)


def test_forged_line_markers_hide_no_file(cache: Path, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "near.h").touch()
    probe = '#if __has_include("near.h")\n#define P(a, b) a##b\n#if P(__has_, include)("../secret.h")\n#endif\n#endif'
    text = f'#line 1 "metal_stdlib"\n# 1 "metal_math" 1 3\n{probe}\n#define VALUE 1\n' + KERNEL
    result = build(cache, tmp_path, text)
    assert isinstance(result, CompileFailure)
    assert result.messages == ("secret.h lies outside the folders that may be read",)


def test_no_path_of_this_machine_gets_into_the_text(cache: Path, tmp_path: Path) -> None:
    text = "template <int N> struct extent_of;\nextent_of<sizeof(__FILE__)> n;\n#define VALUE 1\n" + KERNEL
    result = build(cache, tmp_path, text)
    assert isinstance(result, CompileFailure)
    assert "extent_of<13>" in result.messages[0]  # kernel.metal and the closing zero
    for name in ("__BASE_FILE__", "__TIMESTAMP__"):
        result = build(cache, tmp_path, f"#define VALUE sizeof({name})\n" + KERNEL)
        assert isinstance(result, CompileFailure)
        assert f"undeclared identifier '{name}'" in result.messages[0]


def test_devices_and_folders_are_no_headers(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "endless.h").symlink_to("/dev/zero")
    (tmp_path / "project" / "folder.h").mkdir()
    for name in ("endless.h", "folder.h"):
        result = build(cache, tmp_path, f'#include "{name}"\n' + KERNEL)
        assert isinstance(result, CompileFailure), name


def test_what_is_given_wrongly_is_the_callers_error(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        compile_file(tmp_path / "lost.metal", "k", mode="checked", cache=cache)
    options = FileOptions(macros={"A B": "1"})
    with pytest.raises(InputError, match="'A B'"):
        compile_file(KERNEL, "k", mode="checked", cache=cache, options=options)


def test_pragmas_of_metal_pass() -> None:
    assert pragma_faults('#pragma unroll(4)\n#pragma clang loop unroll(full)\n#pragma METAL internals\n# 1 "a"\n') == ()


def test_lines_count_continued_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.metal"
    path.write_text('#define A \\\n  1 \\\n  2\n\n#include "/x"\n', encoding="utf-8")
    (fault,) = IncludeFolders((), tmp_path).survey(path).faults
    assert fault.startswith("a.metal:5: ")


def test_folders_with_spaces_and_odd_letters(cache: Path, tmp_path: Path) -> None:
    library = tmp_path / "a lib #1 $x (é)"
    library.mkdir()
    (library / "one two.h").write_text("#define VALUE 1\n", encoding="utf-8")
    text = f'#include "one two.h"\n{KERNEL}'
    assert isinstance(build(cache, tmp_path, text, library), CompiledFile)
