"""Hooks in LLVM IR text: where they go, what they say, and that the result still compiles."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from metalsim.build.instrument import Instrumented, instrument

HEAD = """\
%struct.Pair = type { i32, <4 x float>, i8 }
@table = internal global [64 x float] zeroinitializer, align 16
"""


def function(body: str, arguments: str = "ptr %p, ptr %q, i32 %n", returns: str = "void") -> str:
    return f"{HEAD}define {returns} @kernel({arguments}) {{\n{body}\n}}\n"


def hooks(result: Instrumented) -> list[str]:
    return [line.strip() for line in result.text.splitlines() if re.match(r"\s+call void @msim_", line)]


def compiles(text: str, folder: Path) -> None:
    source = folder / "module.ll"
    source.write_text(text)
    command = [sys.executable, "-m", "ziglang", "cc", "-c", "-O1", str(source), "-o", str(folder / "module.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def operations(body: str, **more: str) -> dict[str, int]:
    """Operations of the entry block."""
    return dict(instrument(function(body, **more), mode="counted").blocks[0].operations)


def test_every_kind_of_access_is_hooked_before_it_happens(tmp_path: Path) -> None:
    result = instrument(
        function(
            """\
  %a = load float, ptr %p, align 4
  store half 0xH3C00, ptr %q, align 2
  %b = load volatile <3 x float>, ptr %p, align 16
  %c = load atomic i32, ptr %p monotonic, align 4
  store atomic i32 1, ptr %p monotonic, align 4
  %d = atomicrmw add ptr %p, i32 1 monotonic, align 4
  %e = cmpxchg weak ptr %p, i64 0, i64 1 monotonic monotonic, align 8
  %f = load %struct.Pair, ptr %p, align 16
  %g = load i1, ptr getelementptr inbounds ([64 x float], ptr @table, i64 0, i64 3), align 4
  ret void"""
        ),
        mode="checked",
    )
    assert [(site.kind, site.bytes) for site in result.sites] == [
        ("load", 4), ("store", 2), ("load", 12), ("atomic", 4), ("atomic", 4), ("atomic", 4), ("atomic", 8),
        ("load", 48), ("load", 1),
    ]  # fmt: skip
    assert hooks(result)[0] == "call void @msim_load(ptr %p, i32 4, i32 0)"
    assert hooks(result)[-1].startswith("call void @msim_load(ptr getelementptr inbounds (")
    lines = [line.strip() for line in result.text.splitlines()]
    for index, line in enumerate(lines):
        if re.match(r"(store|%\w+ = (load|atomicrmw|cmpxchg))", line):
            assert lines[index - 1].startswith("call void @msim_"), line
    compiles(result.text, tmp_path)


def test_local_variables_are_left_alone_and_doubtful_pointers_are_not(tmp_path: Path) -> None:
    result = instrument(
        function(
            """\
entry:
  %one = alloca [4 x float], align 16
  %two = alloca [4 x float], align 16
  %yes = icmp eq i32 %n, 3
  %element = getelementptr inbounds [4 x float], ptr %one, i64 0, i64 2
  store float 1.0, ptr %element, align 4
  %either = select i1 %yes, ptr %one, ptr %two
  %a = load float, ptr %either, align 4
  %mixed = select i1 %yes, ptr %one, ptr %p
  %b = load float, ptr %mixed, align 4
  br label %loop

loop:
  %walk = phi ptr [ %one, %entry ], [ %next, %loop ]
  %far = phi ptr [ %p, %entry ], [ %one, %loop ]
  %c = load float, ptr %walk, align 4
  %d = load float, ptr %far, align 4
  %next = getelementptr inbounds float, ptr %walk, i64 1
  %done = icmp eq ptr %next, %p
  br i1 %done, label %out, label %loop

out:
  ret void"""
        ),
        mode="checked",
    )
    assert [hook.removeprefix("call void @msim_").split(",")[0] for hook in hooks(result)] == [
        "load(ptr %mixed", "own_load(ptr %walk", "load(ptr %far",
    ]  # fmt: skip
    assert hooks(result)[1].endswith("ptr %one, i64 16)")  # it walks through all of one variable
    assert [(site.operation, site.element_bytes) for site in result.sites] == [("", 1), ("float[4]", 4), ("", 1)]
    compiles(result.text, tmp_path)


MEMORY = """\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
"""


def test_copies_are_a_load_and_a_store_and_lengths_may_be_unknown(tmp_path: Path) -> None:
    text = MEMORY + function(
        """\
  %local = alloca [8 x float], align 16
  %many = zext i32 %n to i64
  call void @llvm.memcpy.p0.p0.i64(ptr nonnull align 16 %local, ptr noundef dereferenceable(32) %p, i64 32, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr align 4 %q, ptr align 4 %p, i64 %many, i1 false)
  call void @llvm.memset.p0.i64(ptr align 4 %q, i8 0, i64 64, i1 false)
  ret void"""
    )
    result = instrument(text, mode="checked")
    assert [(site.kind, site.bytes) for site in result.sites] == [
        ("load", 32), ("load", 0), ("store", 0), ("store", 64),
    ]  # fmt: skip
    assert "trunc i64 %many to i32" in result.text
    compiles(result.text, tmp_path)


def test_noundef_is_not_read_as_the_constant_undef() -> None:
    text = MEMORY + function(
        "  call void @llvm.memset.p0.i64(ptr noundef nonnull align 4 %q, i8 0, i64 4, i1 false)\n  ret void"
    )
    assert hooks(instrument(text, mode="checked")) == ["call void @msim_store(ptr %q, i32 4, i32 0)"]


def test_odd_but_valid_text_stays_valid(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
define i32 @"odd name; [with) brackets"(ptr %"my ptr", i32 %n, ptr addrspace(1) %far) { ; comment, !dbg !9
"first block":
  %"a value" = load i32, ptr %"my ptr", align 4 ; !dbg !3
  %near = load float, ptr addrspace(1) %far, align 4
  switch i32 %n, label %other [
    i32 1, label %"case one"
    i32 -2, label %other
  ]

"case one":                                       ; preds = %"first block"
  %v = insertelement <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>, float %near, i64 2
  store <4 x float> %v, ptr %"my ptr", align 16
  br label %other

other:
  %r = phi i32 [ 0, %"first block" ], [ 0, %"first block" ], [ 1, %"case one" ]
  %x = add i32 %r, %"a value"
  ret i32 %x
}
"""
    )
    for mode in ("checked", "counted"):
        result = instrument(text, mode=mode)  # type: ignore[arg-type]
        assert len(result.sites) == 3
        assert 'ptr %"my ptr", i32 4, i32 0' in result.text
        compiles(result.text, tmp_path)
    assert [block.function for block in result.blocks] == ["odd name; [with) brackets"] * 3
    assert result.blocks[0].operations["branch"] == 2


def test_unknown_instructions_are_kept_and_counted_as_other() -> None:
    line = "  %x = frobnicate i32 %n, { weird } !thing !4"
    result = instrument(function(f"{line}\n  ret void"), mode="counted")
    assert line in result.text.splitlines()
    assert result.blocks[0].operations == {"other": 1}


def test_nothing_but_hooks_is_added() -> None:
    text = MEMORY + function("  %a = load i32, ptr %p\n  store i32 %a, ptr %q\n  ret void")
    result = instrument(text, mode="counted")
    kept = [line for line in result.text.splitlines() if "msim_" not in line]
    assert [line for line in kept if line] == [line for line in text.splitlines() if line]


def test_promises_that_hooks_break_are_withdrawn(tmp_path: Path) -> None:
    text = (
        "define float @reads(ptr readonly %p) #0 {\n  %a = load float, ptr %p\n  ret float %a\n}\n"
        "attributes #0 = { mustprogress nofree nosync nounwind willreturn memory(argmem: read) }\n"
    )
    result = instrument(text, mode="checked")
    assert "attributes #0 = { mustprogress nounwind }" in result.text
    compiles(result.text, tmp_path)


def test_the_runtime_may_already_be_declared(tmp_path: Path) -> None:
    text = "declare void @msim_load(ptr noundef, i32 noundef, i32 noundef)\n" + function(
        "  %a = load i32, ptr %p\n  ret void"
    )
    result = instrument(text, mode="counted")
    assert result.text.count("declare void @msim_load(") == 1
    compiles(result.text, tmp_path)


LOCATED = """\
define void @kernel(ptr %p) !dbg !5 {
  %a = load float, ptr %p, align 4, !dbg !10
  %b = load float, ptr %p, align 4, !dbg !11
  %c = load float, ptr %p, align 4, !dbg !13
  %d = load float, ptr %p, align 4, !dbg !16
  %e = load float, ptr %p, align 4
  ret void, !dbg !10
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "generated.cpp", directory: "d")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DIFile(filename: "body", directory: "d")
!4 = !DIFile(filename: "header", directory: "d")
!5 = distinct !DISubprogram(name: "kernel", file: !1, line: 1, type: !6, unit: !0, spFlags: DISPFlagDefinition)
!6 = !DISubroutineType(types: !7)
!7 = !{}
!8 = !DILexicalBlockFile(scope: !5, file: !3, discriminator: 0)
!9 = distinct !DISubprogram(name: "shim", file: !1, line: 90, type: !6, unit: !0, spFlags: DISPFlagDefinition)
!10 = !DILocation(line: 7, column: 3, scope: !8)
!11 = !DILocation(line: 91, column: 3, scope: !9, inlinedAt: !12)
!12 = distinct !DILocation(line: 8, column: 9, scope: !8)
!13 = !DILocation(line: 4, column: 3, scope: !14, inlinedAt: !12)
!14 = distinct !DISubprogram(name: "helper", file: !4, line: 3, type: !6, unit: !0, spFlags: DISPFlagDefinition)
!15 = distinct !DILocation(line: 2, column: 1, scope: !5)
!16 = !DILocation(line: 92, column: 3, scope: !9, inlinedAt: !15)
"""


def test_sites_are_charged_to_the_users_line(tmp_path: Path) -> None:
    result = instrument(LOCATED, mode="counted")
    assert [(site.place, site.line) for site in result.sites] == [
        ("body", 7),  # its own line
        ("body", 8),  # code of the shim, inlined into line 8
        ("header", 4),  # a helper of the user's header keeps its own line
        ("", 0),  # code of the shim that no line of the user's called
        ("", 0),
    ]
    assert (result.blocks[0].place, result.blocks[0].line) == ("body", 7)
    assert "i32 4, i32 0), !dbg !10" in result.text
    compiles(result.text, tmp_path)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%a = fadd float %x, %y\n ret void", {"float32-add": 1}),
        ("%a = fmul half 0xH3C00, %h\n ret void", {"float16-multiply": 1}),
        ("%a = fsub bfloat 0xR3F80, %b\n ret void", {"bfloat16-add": 1}),
        ("%m = fmul float %x, %y\n %a = fadd float %m, %x\n ret void", {"float32-fma": 1}),
        ("%m = fmul float %x, %y\n %a = fsub float %x, %m\n ret void", {"float32-fma": 1}),
        (
            "%m = fmul float %x, %y\n %o = fmul float %y, %y\n %a = fadd float %m, %o\n ret void",
            {"float32-fma": 1, "float32-multiply": 1},
        ),
        (
            "%m = fmul float %x, %y\n %a = fadd float %m, %x\n %b = fadd float %m, %y\n ret void",
            {"float32-multiply": 1, "float32-add": 2},
        ),
        ("%m = fmul float %x, %y\n %a = fadd float %m, %m\n ret void", {"float32-multiply": 1, "float32-add": 1}),
        ("%m = mul i32 %n, %n\n %a = add i32 %m, 7\n ret void", {"int-multiply": 1}),
        ("%m = shl i32 %n, 2\n %a = add i32 %m, %n\n ret void", {"int32": 1}),
        ("%m = shl i32 %n, 7\n %a = add i32 %m, %n\n ret void", {"int32": 1, "int-shift": 1}),
        ("%a = sdiv i32 %n, %n\n ret void", {"int-divide": 1}),
        ("%a = udiv i32 %n, 10\n ret void", {"int-multiply": 2}),
        (
            "%w = sext i32 %n to i64\n %a = mul i64 %w, %w\n %b = add i64 %a, 1\n ret void",
            {"int64-multiply": 1, "int64": 1},
        ),
        ("%a = fdiv float %x, %y\n ret void", {"divide": 1}),
        ("%a = fdiv arcp float %x, %y\n ret void", {"fast-divide": 1}),
        ("%a = fdiv float 1.000000e+00, %y\n ret void", {"reciprocal": 1}),
        ("%s = call float @llvm.sqrt.f32(float %x)\n %a = fdiv float 1.000000e+00, %s\n ret void", {"rsqrt": 1}),
        ("%a = call float @llvm.sqrt.f32(float %x)\n ret void", {"sqrt": 1}),
        (
            "%a = call float @llvm.exp2.f32(float %x)\n %b = tail call float @expf(float %x) #4\n ret void",
            {"exp2": 1, "exp": 1},
        ),
        (
            "%a = call float @llvm.sin.f32(float %x)\n %b = call float @tanhf(float %y)\n ret void",
            {"sine": 1, "transcendental": 1},
        ),
        ("%a = call float @llvm.fma.f32(float %x, float %y, float %x)\n ret void", {"float32-fma": 1}),
        ("%a = call float @llvm.fabs.f32(float %x)\n %b = fneg float %a\n ret void", {}),
        ("%c = fcmp olt float %x, %y\n %a = select i1 %c, float %x, float %y\n ret void", {"compare-select": 1}),
        ("%c = icmp eq i32 %n, 0\n %a = zext i1 %c to i32\n ret void", {"compare-select": 1}),
        ("%a = sitofp i32 %n to float\n %b = fptosi float %a to i32\n ret void", {"convert": 2}),
        ("%a = fpext half %h to float\n %b = fptrunc float %a to half\n ret void", {}),
        ("%a = fpext bfloat %b to float\n ret void", {"convert-bfloat": 1}),
        ("call void @msim_barrier(i32 2, i32 1, ptr null)\n ret void", {"barrier": 1}),
        ("%a = call ptr @msim_buffer(i32 0)\n %b = call i32 @msim_attribute(i32 1)\n ret void", {}),
        ("%a = call float @llvm.vector.reduce.fadd.v4f32(float %x, <4 x float> %v)\n ret void", {"float32-add": 4}),
        ("%a = call i32 @helper(i32 %n)\n ret void", {"branch": 1}),
    ],
)  # fmt: skip
def test_operations_are_classified(body: str, expected: dict[str, int]) -> None:
    arguments = "float %x, float %y, half %h, bfloat %b, i32 %n, <4 x float> %v"
    assert operations(body, arguments=arguments) == expected


def test_only_lanes_that_somebody_uses_are_counted() -> None:
    body = """\
  %m = fmul <4 x float> %v, %v
  %s = shufflevector <4 x float> %m, <4 x float> poison, <4 x i32> <i32 2, i32 poison, i32 1, i32 poison>
  %t = fadd <4 x float> %s, %v
  %r = extractelement <4 x float> %t, i64 0
  %w = fmul <4 x float> %v, %v
  store <4 x float> %w, ptr %p, align 16
  store float %r, ptr %p, align 4
  ret void"""
    counted = operations(body, arguments="<4 x float> %v, ptr %p")
    assert counted == {"float32-fma": 1, "float32-multiply": 4, "store": 2}


REQUEST = """\
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @msim_collective(ptr)
define void @msim_entry(ptr %p, float %x) {
  %value = alloca float, align 4
  %request = alloca [48 x i8], align 8
  store float %x, ptr %value, align 4
  store ptr %value, ptr %request, align 8
  %rest = getelementptr inbounds nuw i8, ptr %request, i64 8
  CLEARED
  call void @msim_collective(ptr %request)
  %sum = load float, ptr %value, align 4
  %twice = fadd float %sum, %sum
  store float %twice, ptr %value, align 4
  %op = getelementptr inbounds nuw i8, ptr %request, i64 16
  store i32 14, ptr %op, align 8
  call void @msim_collective(ptr %request)
  %other = load float, ptr %value, align 4
  store float %other, ptr %p, align 4
  ret void
}
"""


@pytest.mark.parametrize(
    "cleared",
    [
        "call void @llvm.memset.p0.i64(ptr align 8 %rest, i8 0, i64 16, i1 false)",
        "%ignored = call ptr @memset(ptr noundef %rest, i32 noundef 0, i64 noundef 16)",
    ],
)
def test_collectives_are_recognised_by_their_request_and_lie_on_the_chain(cleared: str) -> None:
    block = instrument(REQUEST.replace("CLEARED", cleared), mode="counted").blocks[0]
    assert block.operations == {"simd-reduction": 1, "shuffle": 1, "float32-add": 1, "store": 1}
    assert block.chain == {"simd-reduction": 1, "float32-add": 1, "shuffle": 1, "store": 1}


def chain_of(body: str) -> tuple[dict[str, int], int]:
    block = instrument(function(body), mode="counted").blocks[0]
    return dict(block.chain), len(block.chain_sites)


def test_independent_loads_overlap_and_dependent_ones_do_not() -> None:
    independent = """\
  %a = load float, ptr %p
  %b = load float, ptr %q
  %c = fadd float %a, %b
  store float %c, ptr %q
  ret void"""
    assert chain_of(independent) == ({"float32-add": 1, "store": 1}, 1)
    dependent = """\
  %a = load ptr, ptr %p
  %b = load float, ptr %a
  %c = fadd float %b, %b
  store float %c, ptr %q
  ret void"""
    assert chain_of(dependent) == ({"float32-add": 1, "store": 1}, 2)


def test_a_barrier_orders_what_comes_after_it() -> None:
    body = """\
  %a = load float, ptr %p
  store float %a, ptr @table
  call void @msim_barrier(i32 2, i32 1, ptr null)
  %b = load float, ptr @table
  store float %b, ptr %q
  ret void"""
    chain, loads = chain_of(body)
    assert (chain, loads) == ({"store": 2, "barrier": 1}, 2)


LOOP = """\
entry:
  br label %loop

loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %s1, %loop ]
  %held = phi float [ 0.0, %entry ], [ %next, %loop ]
  %at = getelementptr inbounds float, ptr %p, i32 %i
  %next = load float, ptr %at, align 4
  %used = call float @llvm.sqrt.f32(float HELD)
  %s1 = fadd float %sum, %used
  %i1 = add i32 %i, 1
  %done = icmp eq i32 %i1, %n
  br i1 %done, label %out, label %loop

out:
  store float %s1, ptr %q, align 4
  ret void"""


def test_prefetching_a_value_takes_its_load_off_the_chain_of_arithmetic() -> None:
    """Used in the same turn: load then sqrt. Used in the next one: whichever takes longer."""
    direct = instrument(function(LOOP.replace("HELD", "%next")), mode="counted").blocks[1]
    prefetched = instrument(function(LOOP.replace("HELD", "%held")), mode="counted").blocks[1]
    assert (direct.chain, direct.chain_sites) == ({"sqrt": 1, "float32-add": 1}, (0,))
    assert (prefetched.chain, prefetched.chain_sites) == ({}, (0,))


def test_a_load_is_awaited_in_the_block_that_first_uses_it() -> None:
    body = """\
entry:
  %a = load float, ptr %p, align 4
  %yes = icmp sgt i32 %n, 3
  br i1 %yes, label %more, label %use

more:
  %b = load float, ptr %q, align 4
  br label %use

use:
  %c = phi float [ 0.0, %entry ], [ %b, %more ]
  %d = fadd float %a, %c
  store float %d, ptr %q, align 4
  br label %later

later:
  %e = fmul float %a, %d
  store float %e, ptr %q, align 4
  ret void"""
    blocks = instrument(function(body), mode="counted").blocks
    assert [block.chain_sites for block in blocks] == [(), (), (), ()]
    assert [block.awaited_sites for block in blocks] == [(), (), (0, 1), ()]


def test_registers_grow_with_values_held() -> None:
    def held(count: int) -> int:
        loads = [f"  %v{i} = load float, ptr %p, align 4" for i in range(count)]
        stores = [f"  store float %v{i}, ptr %q, align 4" for i in range(count)]
        return instrument(function("\n".join([*loads, *stores, "  ret void"])), mode="counted").blocks[0].registers

    assert held(40) - held(8) == 32


KERNEL = """\
#define device __attribute__((opencl_global))
#define threadgroup __attribute__((opencl_local))
typedef float float4 __attribute__((ext_vector_type(4)));
extern "C" [[clang::sycl_external]] void msim_barrier(unsigned, unsigned, const char *);
#line 1 "header"
inline float weigh(float a, float b) {
  return a * b + 1.0f;
}
#line 1 "signature"
extern "C" [[clang::sycl_external]] void msim_entry(
    const device float *x, device _Float16 *y, const device float4 *z, int n, int lane) {
#line 1 "body"
  static threadgroup float shared[64];
  float total = 0;
  for (int i = 0; i < n; i++) {
    total += weigh(x[i * 32 + lane], float(i));
  }
  shared[lane] = total;
  msim_barrier(2, 7, "body");
  const float4 v = z[lane];
  float kept[8];
  for (int i = 0; i < 8; i++) kept[i] = x[i];
  switch (n) {
    case 3: y[4] = 0; break;
    case 7: y[7] = 2; break;
    case 9: y[8] = (_Float16)(1.0f / total); break;
  }
  y[lane] = (_Float16)(total + __builtin_expf(v.x + v.y * v.z) + shared[63 - lane] + kept[lane & 7]);
}
"""
FLAGS = (
    *("-S", "-emit-llvm", "-gline-tables-only", "-x", "c++", "-std=c++17", "-ffp-contract=off", "-fno-math-errno"),
    *("-Xclang", "-fsycl-is-device", "-Xclang", "-aux-triple", "-Xclang", "x86_64-unknown-linux-gnu"),
    "-Wno-unused-command-line-argument",
)


@pytest.fixture(scope="module", params=["-O0", "-O1", "-O2"])
def kernel_ir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(KERNEL)
    command = [sys.executable, "-m", "ziglang", "c++", request.param, *FLAGS, "kernel.cpp", "-o", "kernel.ll"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return request.param, (folder / "kernel.ll").read_text()


def test_a_compiled_kernel_survives_and_names_its_lines(kernel_ir: tuple[str, str], tmp_path: Path) -> None:
    level, text = kernel_ir
    for mode in ("checked", "counted"):
        result = instrument(text, mode=mode)  # type: ignore[arg-type]
        compiles(result.text, tmp_path)
    lines = {(site.place, site.line, site.kind) for site in result.sites}
    wanted = {
        ("body", 4, "load"), ("body", 6, "store"), ("body", 8, "load"), ("body", 10, "load"),
        ("body", 16, "load"), ("body", 16, "store"),
    }  # fmt: skip
    assert wanted <= lines
    assert {place for place, line, _ in lines if line} == {"body"}
    totals: dict[str, int] = {}
    for block in result.blocks:
        for name, count in block.operations.items():
            totals[name] = totals.get(name, 0) + count
    assert (totals["exp"], totals["barrier"], totals["reciprocal"]) == (1, 1, 1)
    assert "other" not in totals
    if level != "-O0":
        assert totals["float32-fma"] >= 2  # weigh and v.x + v.y * v.z
