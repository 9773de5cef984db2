"""The syntax view: what is extracted, and that broken text stays readable around the break."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.detectors import detect
from ingest.parse import parse
from ingest.syntax import split_top, target_path

KERNEL = """\
#define COPY(to, from) \\
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from))
template <typename T, int kWidth = 4, bool kCausal = true>
__global__ void __launch_bounds__(128, 2)
    work(const T* __restrict__ in, T* out, const __grid_constant__ Params params) {
    extern __shared__ __align__(16) unsigned char pool[];
    __shared__ float box[32][32 + 1], *where;
    for (int i = blockIdx.x; i < params.n; i += gridDim.x) {
        float acc[kWidth] = {};
        acc[0] += box[i][0];
        state.row_max[i][0] = fmaxf(acc[0], 1.f);
        if constexpr (kCausal) { out[i] = acc[0]; } else { out[i] = params.n > 0 ? T(1) : T(0); }
    }
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0}, {%1};\\n @p bra done;" : "+f"(x) : "r"(y));
}
"""


def test_kernel() -> None:
    view = parse(KERNEL)
    (kernel,) = view.kernels
    assert kernel.name == "work"
    assert view.line(kernel.name_start) == 5
    assert view.line(kernel.body.end - 1) == 16
    assert kernel.template_parameters == ("typename T", "int kWidth = 4", "bool kCausal = true")
    assert kernel.parameters == ("const T* __restrict__ in", "T* out", "const __grid_constant__ Params params")
    assert kernel.launch_bounds == "128, 2"
    assert view.error_count == 0


def test_statements() -> None:
    view = parse(KERNEL)
    (loop,) = view.loops
    assert (loop.kind, loop.variable, loop.condition) == ("for", "i", "i < params.n")
    box = view.variables_named["box"][0]
    assert (box.shared, box.dimensions, box.type) == (True, ("32", "32 + 1"), "__shared__ float")
    assert view.variables_named["pool"][0].shared
    assert view.variables_named["in"][0].is_pointer
    written = {a.name: a for a in view.assignments}
    assert written["state.row_max"].operator == "="
    assert written["acc"].feeds_itself
    assert [(b.condition, b.constexpr, b.expression) for b in view.branches] == [
        ("kCausal", True, False),
        ("params.n > 0", False, True),
    ]


def test_assembly_also_in_macros() -> None:
    view = parse(KERNEL)
    assert [statement.mnemonics for statement in view.assembly] == [
        ("cp.async.ca.shared.global",),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "bra"),
    ]
    (macro,) = view.defines
    assert (macro.name, macro.parameters) == ("COPY", ("to", "from"))


def test_calls_are_not_definitions() -> None:
    view = parse("__device__ void f(int a) {}\n__global__ void k() { ns::f<2>(g(1, 2)); x.f(); }\n")
    assert [(c.path, c.template_arguments, c.arguments) for c in view.calls("f")] == [
        ("ns::f", "2", ("g(1, 2)",)),
        ("x.f", "", ()),
    ]


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("a[i].b[j]", "a.b"),
        ("*p", "p"),
        ("row_sum(mi)", "row_sum"),
        ("*reinterpret_cast<float4*>(out + i)", "out"),
        ("*(uint4*)(A_shared_ptr)", "A_shared_ptr"),
        ("this->m", "this.m"),
        ("", ""),
    ],
)
def test_target_path(target: str, path: str) -> None:
    assert target_path(target) == path


def test_split_top() -> None:
    assert split_top("a < b, f(c, d), T<e, g>(h), [i, j]") == ("a < b", "f(c, d)", "T<e, g>(h)", "[i, j]")


def test_a_broken_function_does_not_hide_its_neighbours() -> None:
    broken = "__global__ void bad(float* x) { x[0 = ; if ( }\n"
    good = "__global__ void {}(float* x) {{ __syncthreads(); x[0] = __expf(x[1]); }}\n"
    view = parse(good.format("before") + broken + good.format("after"))
    assert view.error_count > 0
    assert {"before", "after"} <= {kernel.name for kernel in view.kernels}
    assert {"block-barrier", "fast-math-intrinsics"} <= {d.slug for d in detect(view)}


def test_a_kernel_behind_an_unknown_macro_is_found() -> None:
    view = parse("MY_API(2) EXPORT __global__ void\nLAUNCH(256) work(float* x) { x[0] = 1.f; }\n")
    assert [kernel.name for kernel in view.kernels] == ["work"]


def test_a_declaration_is_no_kernel() -> None:
    assert parse("__global__ void later(float* x);\n").kernels == ()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([*KERNEL.split(), "}", "{", "(", ")", '"', "#if 0", "\n", "<", ">", "*/"]), max_size=80)
)
def test_any_token_soup_is_read(words: list[str]) -> None:
    detect(parse(" ".join(words)))


def test_twenty_thousand_lines_take_seconds() -> None:
    body = KERNEL[KERNEL.index("template") :]
    text = "".join(body.replace("work", f"work_{i}") for i in range(20_000 // body.count("\n") + 1))
    assert text.count("\n") >= 20_000
    start = time.process_time()
    view = parse(text)
    found = detect(view)
    assert time.process_time() - start < 10
    assert len(view.kernels) > 1000
    assert {"grid-stride-loop", "bank-conflict-padding", "launch-bounds"} <= {d.slug for d in found}


@pytest.mark.parametrize(
    "text", ["(" * 20_000, "{" * 20_000, "a<" * 20_000, '"' * 20_001, "x = " * 20_000, "\\\n" * 20_000]
)
def test_degenerate_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    detect(parse(text))
    assert time.process_time() - start < 10
