"""A kernel is compiled for this machine: what would reach outside the simulator is refused, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalsim import Argument, CompiledKernel, CompileFailure, MlxKernel, compile_kernel
from metalsim.build.containment import escapes, mathematical_functions

X = Argument("x", "float32", (64,))
OUT = Argument("out", "float32", (64,))


def build(cache: Path, source: str, header: str = "") -> CompiledKernel | CompileFailure:
    kernel = MlxKernel("k", source + "\nout[thread_position_in_grid.x] = x[0];", (X,), (OUT,), header)
    return compile_kernel(kernel, mode="checked", cache=cache)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("header", "source", "said"),
    [
        ('extern "C" int system(const char*);', "", "extern"),
        ("int system(const thread char*);", "char c[2] = {'a', 0}; system(c);", "not a function of Metal"),
        ("", '__builtin_printf("hello");', "is not a function of Metal"),
        ("#define CALL(name) __builtin_##name\n", 'CALL(printf)("hello");', "is not a function of Metal"),
        ("", 'asm("nop");', "asm"),
        ("", '__asm__ volatile("syscall");', "__asm__"),
        ("#define HIDDEN __as##m__\n", 'HIDDEN volatile("nop");', "assembly"),
        ("__attribute__((constructor)) void early() { }", "", "__attribute__"),
        ("", "((void (*)(int))0x1234)(1);", "through a pointer"),
        ("", "__builtin_trap();", "never returns"),
        ("", "msim_store(0, 4, 0);", "reserved"),
        ("#include </etc/passwd>\n", "", ""),
        ('#include "/etc/passwd"\n', "", ""),
        ("#include <stdlib.h>\n", "exit(1);", ""),
    ],
)  # fmt: skip
def test_reaching_outside_is_a_compile_failure(cache: Path, header: str, source: str, said: str) -> None:
    result = build(cache, source, header)
    assert isinstance(result, CompileFailure), f"{header}{source} was compiled"
    text = " ".join(result.messages)
    assert said in text
    assert "root:" not in text, "an included file's content must not be quoted"


def test_what_kernels_need_is_let_through(cache: Path) -> None:
    source = """
    threadgroup float shared[64];
    float v = x[thread_index_in_threadgroup];
    shared[thread_index_in_threadgroup] = exp(v) + log(v * v + 1.0f) + sin(v) + pow(abs(v), 1.5f) + tanh(v);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    half h = half(shared[0]);
    bfloat16_t b = bfloat16_t(v);
    float parts[4] = {v, v, v, v};
    x_sum = simd_sum(parts[0] + float(h) + float(b));"""
    kernel = MlxKernel("k", source.replace("x_sum =", "out[thread_index_in_threadgroup] ="), (X,), (OUT,))
    for mode in ("checked", "counted"):
        built = compile_kernel(kernel, mode=mode, cache=cache)  # type: ignore[arg-type]
        assert isinstance(built, CompiledKernel), built


def test_modules_are_judged_by_what_they_call() -> None:
    assert "expf" in mathematical_functions()
    body = "define void @msim_entry() {{\n  {}\n  ret void\n}}\n"
    assert escapes(body.format("%a = call float @expf(float 1.0)")) == ()
    assert escapes(body.format("call void @llvm.memcpy.p0.p0.i64(ptr null, ptr null, i64 4, i1 false)")) == ()
    assert escapes(body.format("%a = call i32 @system(ptr null)")) == ("system is not a function of Metal",)
    assert escapes(body.format("call void %p(i32 1)")) == ("a call through a pointer is not supported",)
    entry = "{{ i32, ptr, ptr }} {{ i32 1, ptr @{}, ptr null }}"
    at_load = f"@llvm.global_ctors = appending global [1 x {{{{ i32, ptr, ptr }}}}] [{entry}]\n"
    assert "constructor" in escapes(at_load.format("early"))[0]
    assert escapes(at_load.format("asan.module_ctor")) == ()
    assert escapes("@environ = external global ptr\n") == ("the variable environ, defined elsewhere, is not Metal",)
