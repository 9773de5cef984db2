"""Kernels that try to get out: each ends in a compile failure or in a finding, and nothing outside has changed.

What a kernel would do if it came through is to create a file, or to copy a secret of the environment to its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from metalsim import Argument, CompileFailure, MlxKernel
from metalsim.build.containment import escapes
from metalsim.execute.isolation import Allowance, BodyProgram, FileLaunch, FileProgram, IsolatedRunner

SECRET = "METALSIM_TEST_SECRET"
ALLOWANCE = Allowance(limit_s=0.3, memory_bytes=1 << 30, compile_limit_s=30)
C_STRING = "char c[64]; for (int j = 0; j < 64; j++) c[j] = PATH[j];"


@pytest.fixture(scope="module")
def runner() -> Iterator[IsolatedRunner]:
    with pytest.MonkeyPatch.context() as patch, IsolatedRunner(ALLOWANCE) as runner:
        patch.setenv(SECRET, "hunter2")
        yield runner


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def outcome(runner: IsolatedRunner, cache: Path, canary: Path, body: str, head: str = "") -> str:
    """``compile: messages`` or ``kinds: messages`` of a file's kernel with this body."""
    text = f"""#include <metal_stdlib>
using namespace metal;
constant char PATH[64] = "{canary}";
{head}
kernel void k(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {{
    if (i == 0) {{
        {body}
        out[1] = 1;
    }}
}}
"""
    compiled = runner.compile(FileProgram(text, "k"), mode="checked", cache=cache)
    if isinstance(compiled, CompileFailure):
        return "compile: " + " | ".join(compiled.messages)
    result = runner.run(compiled, FileLaunch({0: np.zeros(64, np.int32)}, (4, 1, 1), (4, 1, 1)))
    return ",".join(f.kind for f in result.findings) + ": " + " | ".join(f.message for f in result.findings)


def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c") / "canary"


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_path(tmp_path_factory)


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ('extern "C" int creat(const thread char*, int);', f"{C_STRING} creat(c, 511);", "creat is not a function"),
        ('extern "C" long syscall(long, ...);', f"{C_STRING} syscall(85, c, 511);", "syscall is not a function"),
        ('extern "C" int fork();', "out[0] = fork();", "fork is not a function"),
        ('int made(const thread char*, int) __asm__("creat");', f"{C_STRING} made(c, 511);", "inline assembly"),
        ("", 'asm volatile("syscall");', "inline assembly"),
        ("#define JOIN(a, b) a##b", 'JOIN(__as, m__)("nop");', "inline assembly"),
        ('asm(".globl x\\nx: nop");', "", "inline assembly"),
        ("", 'register int r asm("rax") = 3; out[0] = r;', "inline assembly"),
        ('extern "C" int t() { return 1; } int u() __attribute__((alias("t")));', "out[0] = u();", "alias"),
        ("extern char** environ;", "out[0] = environ[0][0];", "environ"),
        ("extern void* stdout;", "out[0] = int(long(stdout));", "stdout"),
        ("", '__builtin_printf("x %d", 3);', "printf is not a function"),
        ("", "__builtin_abort();", "abort is not a function"),
        ("", "((void (*)(int))0x401000)(1);", "through a pointer"),
        ("int g(int x) { return x; }", "out[0] = ((int (*)(int))(long(&g) + 1))(3);", "pointer"),
        ('extern "C" void msim_stop();', "msim_stop();", "reserved"),
        ('extern "C" void msim_store(const void*, int, int);', "msim_store(0, 4, 0);", "reserved"),
        ('extern "C" void __ubsan_handle_x(int);', "__ubsan_handle_x(0);", "reserved"),
        ('extern "C" int msim_run(device int* p) { return p[0]; }', "out[0] = msim_run(out);", "reserved"),
        ('extern "C" [[gnu::noinline]] int kill(int x) { return x; }', "out[0] = kill(3);", "outside the kernel"),
        ('extern "C" [[gnu::noinline]] int mmap(int x) { return x; }', "out[0] = mmap(3);", "outside the kernel"),
        ("", "*(thread long*)__builtin_frame_address(0) = 0x1234;", "outside Metal"),
        ("", "out[0] = int(long(__builtin_return_address(0)));", "outside Metal"),
        ("", "out[0] = int(__builtin_ia32_rdtsc());", "outside Metal"),
        ("", "__builtin_debugtrap();", "outside Metal"),
        ("", "__builtin_trap();", "never returns"),
    ],
)  # fmt: skip
def test_reaching_out_does_not_compile(
    runner: IsolatedRunner, cache: Path, canary: Path, head: str, body: str, said: str
) -> None:
    told = outcome(runner, cache, canary, body, head)
    assert told.startswith("compile: "), "it was run: " + told
    assert said in told
    assert not canary.exists()
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("head", "body", "kinds", "said"),
    [
        ("", "*(device volatile int*)0x401000 = 1;", {"out-of-range"}, "no buffer"),
        ("", "device int* p = (device int*)(ulong(out) + 0x10000000000ul); *p = 1;", {"out-of-range"}, "no buffer"),
        ("", "long a[2]; thread long* p = a; p[out[0] + 7] = 1; out[0] = int(a[1]);", {"out-of-range"}, "array"),
        ("", "thread char* p = (thread char*)__builtin_alloca(out[0] + 9999999); p[0] = 1; out[0] = p[5];", {"crash"}, ""),  # noqa: E501
        ("", "threadgroup int big[1 << 28]; big[i] = 1; out[0] = big[5];", {"limit"}, "memory"),
        ("", "for (;;) { }", {"hang"}, "did not end in time"),
        ("", "while (true) out[i] += 1;", {"hang"}, "did not end in time"),
        (
            "template <typename T> T f(T n) { volatile T a[99]; a[n % 99] = n; return n == 0 ? a[3] : f<T>(n - 1) + a[1]; }",  # noqa: E501
            "out[0] = f<int>(out[0] + 1000000);",
            {"crash"},
            "thread memory",
        ),
        ("struct B { int a[200000]; };", "B b; volatile int j = 5; b.a[j] = 3; out[0] = b.a[7];", {"crash"}, "memory"),
        ("", "__builtin_memset((void*)out, 0, 1 << 30);", {"out-of-range", "crash"}, "outside its 64 elements"),
        ("", "out[2] = out[3] / (out[4] - out[5]);", {"crash"}, "by zero"),
    ],
)  # fmt: skip
def test_breaking_the_process_is_a_finding(
    runner: IsolatedRunner, cache: Path, canary: Path, head: str, body: str, kinds: set[str], said: str
) -> None:
    told = outcome(runner, cache, canary, body, head)
    found, _, words = told.partition(": ")
    assert kinds <= set(found.split(",")), told
    assert said in words
    assert not canary.exists()
    assert outcome(runner, cache, canary, "out[0] = 1;") == ": "


@pytest.mark.parametrize(
    "source",
    [
        '_Pragma("redefine_extname sin system") out[0] = x[0];',
        "#define JOIN(a, b) a##b\nJOIN(ms, im_stop)();",
        '#define JOIN(a, b) a##b\nJOIN(__as, m__)("nop");',
        '#include "/etc/hostname"\nout[0] = x[0];',
        "/*\n*/ #include NAME\nout[0] = x[0];",
        '#define P(a, b) a##b\n#if P(__has_, include)("/etc/passwd")\n#endif\nout[0] = x[0];',
        '#define P(a, b) a##b\n#if P(__has_, include)("/no/such/file")\n#endif\nout[0] = x[0];',
        "out[0] = sizeof(__BASE_FILE__);",
    ],
)
def test_bodies_cannot_reach_out_either(runner: IsolatedRunner, cache: Path, source: str) -> None:
    kernel = MlxKernel("k", source, (Argument("x", "float32", (64,)),), (Argument("out", "float32", (64,)),))
    assert isinstance(runner.compile(BodyProgram(kernel), mode="checked", cache=cache), CompileFailure)


def test_code_at_load_is_refused() -> None:
    entry = "[{ i32, ptr, ptr } { i32 1, ptr @early, ptr null }]"
    module = f"@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}] {entry}\n"
    assert "constructor" in escapes(module)[0]
    called = "define void @msim_entry() {\n  %a = call ptr @llvm.frameaddress.p0(i32 0)\n  ret void\n}\n"
    assert "frameaddress" in escapes(called)[0]
    assert escapes(called.replace("llvm.frameaddress.p0(i32 0)", "msim_buffer(i32 0)").replace("ptr @", "ptr @")) == ()
    assert escapes("define i32 @open() {\n  ret i32 0\n}\n") == ("open is the name of a function outside the kernel",)


def test_a_sealed_process_can_do_nothing_but_compute(tmp_path: Path) -> None:
    """Even code that came through every check: run in place of a kernel."""
    import os
    import subprocess
    import sys

    if sys.platform != "linux":
        pytest.skip("system calls are filtered on Linux only")
    script = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from metalsim.execute.confinement import close_files, limit_resources, seal
libc = ctypes.CDLL(None, use_errno=True)
read, write = os.pipe()
if os.fork() == 0:
    close_files([write])
    limit_resources(processor_s=5, memory_bytes=1 << 28)
    assert seal()
    said = []
    for name, deed in {
        "open": lambda: open(sys.argv[2], "w"), "read": lambda: open("/etc/passwd"),
        "mkdir": lambda: os.mkdir(sys.argv[2]),
        "unlink": lambda: os.unlink(sys.argv[1] + "/README.md"), "kill": lambda: os.kill(os.getppid(), 9),
        "chdir": lambda: os.chdir("/"), "environ": lambda: len(os.environ) == 0 or 1 / 0,
    }.items():
        try:
            deed()
        except (OSError, ZeroDivisionError):
            said.append(name)
    try:
        bytearray(1 << 29)
    except MemoryError:
        said.append("memory")
    os.write(write, " ".join(said).encode())
    libc.socket(2, 1, 0)
    os.write(write, b" socket went through")
    os._exit(0)
os.close(write)
print(os.read(read, 1000).decode(), os.wait()[1])
"""
    root, target = str(Path(__file__).parents[3]), tmp_path / "canary"
    command = [sys.executable, "-c", script, root, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {SECRET: "hunter2"})
    assert done.stdout.strip() == "open read mkdir unlink kill chdir environ memory 31"  # killed by SIGSYS
    assert not target.exists()
