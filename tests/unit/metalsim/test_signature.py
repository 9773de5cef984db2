"""The generated function, against the rules of mx.fast.metal_kernel."""

from __future__ import annotations

import numpy as np
import pytest

from metalsim import Argument, CompiledKernel, MlxKernel, compile_kernel, run
from metalsim.text.signature import ATTRIBUTES, make_signature, metal_text, signature_faults
from tests.unit.metalsim.launching import Launcher


def kernel(source: str, **options: object) -> MlxKernel:
    defaults: dict[str, object] = {
        "inputs": (Argument("x", "float16", (4, 8)),),
        "outputs": (Argument("out", "bfloat16", (4,)),),
    }
    return MlxKernel("k", source, **(defaults | options))  # type: ignore[arg-type]


def declarations(k: MlxKernel) -> list[str]:
    return [p.declaration for p in make_signature(k).parameters]


def test_inputs_below_eight_elements_are_constant_and_scalars_references() -> None:
    inputs = (
        Argument("big", "float32", (8,)),
        Argument("small", "float32", (7,)),
        Argument("none", "int32", (0,)),
        Argument("n", "uint32", ()),
    )
    assert declarations(kernel("", inputs=inputs)) == [
        "const device float* big",
        "const constant float* small",
        "const constant int32_t* none",
        "const constant uint32_t& n",
        "device bfloat16_t* out",
    ]


def test_shape_helpers_follow_their_input_by_plain_substring() -> None:
    inputs = (Argument("x", "float32", (9,)), Argument("n", "int32", ()))
    found = declarations(kernel("int max_shape = x_ndim + x_strides[0] + n_shape;", inputs=inputs))
    assert found == [
        "const device float* x",
        "const constant int* x_shape",
        "const constant int64_t* x_strides",
        "const constant int& x_ndim",
        "const constant int32_t& n",
        "device bfloat16_t* out",
    ]


def test_a_name_in_the_header_only_is_not_seen() -> None:
    assert len(declarations(kernel("", header="int f() { return x_shape[0] + grid_origin.x; }"))) == 2


def test_attributes_are_found_by_substring_even_in_a_comment() -> None:
    found = declarations(kernel("// dispatch_threads_per_threadgroup"))
    assert found[2:] == ["uint3 dispatch_threads_per_threadgroup", "uint3 threads_per_threadgroup"]


def test_there_are_twenty_attributes() -> None:
    assert len(ATTRIBUTES) == 20
    assert sum(kind == "uint3" for kind, _ in ATTRIBUTES.values()) == 9


def test_the_metal_text() -> None:
    k = kernel("  out[thread_position_in_grid.x] = T(N);", template={"T": "bfloat16", "N": 3, "B": True}, header="// h")
    signature = make_signature(k)
    assert (
        metal_text(k, signature)
        == """\
// h
template <typename T, int N, bool B>
[[kernel]] void custom_kernel_k_bfloat16_t_3_true_float16_t_bfloat16_t(
  const device float16_t* x [[buffer(0)]],
  device bfloat16_t* out [[buffer(1)]],
  uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  out[thread_position_in_grid.x] = T(N);
}
template [[host_name("custom_kernel_k_bfloat16_t_3_true_float16_t_bfloat16_t")]] [[kernel]] \
decltype(custom_kernel_k_bfloat16_t_3_true_float16_t_bfloat16_t<bfloat16_t, 3, true>) \
custom_kernel_k_bfloat16_t_3_true_float16_t_bfloat16_t<bfloat16_t, 3, true>;
"""
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": {"N": -1}}, "minus"),
        ({"template": {"T": "float64"}}, "no dtype"),
        ({"outputs": ()}, "at least one output"),
        ({"inputs": (Argument("out", "int8", (1,)),)}, "twice"),
        ({"inputs": (Argument("a b", "int8", (1,)),)}, "identifier"),
    ],
)
def test_what_mlx_would_refuse(options: dict[str, object], words: str) -> None:
    (fault,) = signature_faults(kernel("", **options))
    assert words in fault


def test_atomic_outputs_are_atomics(launch: Launcher) -> None:
    counting = MlxKernel(
        "histogram",
        "atomic_fetch_add_explicit(&out[x[thread_position_in_grid.x]], 1, memory_order_relaxed);",
        (Argument("x", "int32", (64,)),),
        (Argument("out", "int32", (4,)),),
        atomic_outputs=True,
    )
    assert "device atomic<int32_t>* out [[buffer(1)]]" in metal_text(counting, make_signature(counting))
    compiled = compile_kernel(counting, mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledKernel)
    x = np.arange(64, dtype=np.int32) % 4
    result = run(compiled, {"x": x}, {}, grid=(64, 1, 1), threadgroup=(32, 1, 1), init_value=0)
    assert result.findings == ()
    assert result.outputs["out"].tolist() == [16, 16, 16, 16]
