"""One file to a reading, and why a file is refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ingest.parse import parse
from ingest.reader import primitive_uses, read_source, reading_version
from kx.errors import FileUnreadable

CODE = b"""\
// __ldg is only mentioned
__global__ void k(const float* in, float* out) {
    extern __shared__ float pool[];
    out[threadIdx.x] = __ldg(in);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {}, {};\\n" ::);
    __syncthreads(); __syncthreads();
}
"""
TOKENS = {
    "__ldg": "ldg",
    "__syncthreads": "barrier",
    "threadIdx.x": "thread",
    "extern __shared__": "dynamic",
    "mma.sync": "mma",
    "mma.sync.m16n8k16": "mma-shape",
    "__stcs": "stcs",
}


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_reading(tmp_path: Path) -> None:
    path = write(tmp_path, "k.cu", CODE)
    reading = read_source(path, tokens=TOKENS)
    assert reading.file == path.as_posix()
    assert reading.sha256 == hashlib.sha256(CODE).hexdigest()
    assert reading.line_count == 7
    assert [(k.name, k.line, k.last_line) for k in reading.kernels] == [("k", 2, 7)]
    assert {use.token: use.lines for use in reading.primitives} == {
        "__ldg": (4,),
        "__syncthreads": (6,),
        "threadIdx.x": (4,),
        "extern __shared__": (3,),
        "mma.sync.m16n8k16": (5,),
    }
    assert {c.slug for c in reading.concepts} >= {"dynamic-shared-memory", "tensor-core-mma", "read-only-cache"}


@pytest.mark.parametrize("variant", [CODE.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + CODE], ids=["crlf", "bom"])
def test_line_breaks_and_byte_order_marks_change_nothing(tmp_path: Path, variant: bytes) -> None:
    plain = read_source(write(tmp_path, "plain.cu", CODE), tokens=TOKENS)
    other = read_source(write(tmp_path, "other.cu", variant), tokens=TOKENS)
    assert (other.kernels, other.primitives, other.concepts) == (plain.kernels, plain.primitives, plain.concepts)


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("a.cu", b"", "empty"),
        ("a.cu", b" \n\n", "empty"),
        ("a.cu", b"\x7fELF\x02\x01\x01\x00\x00", "binary"),
        ("a.cu", "__global__ void k() {}".encode("utf-16"), "binary"),
        ("a.cpp", b"int main() { return 0; }\n", "not CUDA"),
        ("a.h", b"// __global__ would be CUDA\nint f();\n", "not CUDA"),
        ("a.txt", CODE, "not CUDA"),
    ],
)
def test_refused(tmp_path: Path, name: str, data: bytes, word: str) -> None:
    with pytest.raises(FileUnreadable, match=word):
        read_source(write(tmp_path, name, data), tokens={})


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match="cannot be read"):
        read_source(tmp_path, tokens={})


@pytest.mark.parametrize("name", ["a.h", "a.hpp", "a.cpp", "a.inl", "a.cuh", "a.CU"])
def test_suffixes(tmp_path: Path, name: str) -> None:
    assert read_source(write(tmp_path, name, CODE), tokens={}).kernels


def test_latin_1_is_read(tmp_path: Path) -> None:
    data = "// Größe\n__global__ void k() { __syncthreads(); }\n".encode("latin-1")
    assert read_source(write(tmp_path, "a.cu", data), tokens={}).concepts[0].first_line == 2


def test_the_closest_generalization_of_a_mnemonic_counts() -> None:
    view = parse('__device__ void f() { asm("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {}, [%0];" ::"r"(0)); }')
    tokens = {"ldmatrix": "plain", "ldmatrix.trans": "trans", "ldmatrix.x2": "two"}
    assert [use.token for use in primitive_uses(view, tokens)] == ["ldmatrix.trans"]


def test_version_follows_the_tokens() -> None:
    assert reading_version(TOKENS) == reading_version(dict(reversed(TOKENS.items())))
    assert reading_version(TOKENS) != reading_version({})


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cu")
    with pytest.raises(FileUnreadable, match="not a regular file"):
        read_source(tmp_path / "pipe.cu", tokens=TOKENS)
