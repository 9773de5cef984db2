"""What metalsim does not have fails with one message that names it and the user's line."""

from __future__ import annotations

import pytest

from metalsim import CompiledFile, CompileFailure, compile_file
from tests.unit.metalsim.launching import Launcher

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNEL = "kernel void k(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) {{\n  {}\n}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel void k(texture2d<float> t [[texture(0)]]) {}", "3: metalsim does not support textures (texture2d)"),
        ("kernel void k(device float* o,\n  depth2d<float> t [[texture(0)]]) {}", "4: {} textures (depth2d)"),
        (KERNEL.format("constexpr sampler s(filter::linear);"), "4: {} samplers (sampler)"),
        ("struct P { half4 c; };\nkernel void k(imageblock<P> b) {}", "4: {} imageblocks (imageblock)"),
        (
            "#include <metal_tensor>\nkernel void k(tensor<device half, dextents<int, 2>> a [[buffer(0)]]) {}",
            "4: {} tensors (tensor)",
        ),
        (
            "kernel void k(visible_function_table<float(float)> t [[buffer(0)]]) {}",
            "3: {} function tables (visible_function_table)",
        ),
        (
            "#include <metal_raytracing>\nusing namespace metal::raytracing;\n" + KERNEL.format("ray r; o[i] = 1;"),
            "6: {} ray tracing (ray)",
        ),
        ("kernel void k(command_buffer c [[buffer(0)]]) {}", "3: {} indirect command buffers (command_buffer)"),
        (KERNEL.format("double2 d = double2(i); o[i] = d.x;"), "4: {} 64-bit floats (double2)"),
        (KERNEL.format("simdgroup_event e;"), "4: {} asynchronous copies of SIMD-groups (simdgroup_event)"),
        (
            KERNEL.format("atomic_fetch_add_explicit((device atomic_int*)o, 1, memory_order_acquire);"),
            "4: Metal's atomic functions take memory_order_relaxed only",
        ),
        (
            KERNEL.format("atomic_fetch_add_explicit((device atomic_ulong*)o, 1ul, memory_order_relaxed);"),
            "4: atomic_fetch_add_explicit takes 32-bit atomics",
        ),
        (KERNEL.format("o[i] = simd_sum(ulong(i));"), "4: simd_sum takes no 64-bit values"),
        (KERNEL.format("float4 v = float4(1, 2, 3);"), "4: a vector needs as many components as it is wide"),
        (KERNEL.format("float4 f = int4(1);"), "4: no viable conversion from 'vec<int, [...]>' to 'vec<float, [...]>'"),
        (KERNEL.format("bfloat b = o[i];"), "4: implicit conversion from float to bfloat; write bfloat(...)"),
    ],
)
def test_one_message_names_what_is_not_there(launch: Launcher, text: str, message: str) -> None:
    failure = compile_file(HEAD + text, "k", mode="checked", cache=launch.cache)
    assert isinstance(failure, CompileFailure)
    assert failure.messages == ("kernel.metal:" + message.format("metalsim does not support"),)


def test_a_body_names_it_too(launch: Launcher) -> None:
    assert launch.failure("float y = 1;\ntexture2d<float> t;") == (
        "body:2: metalsim does not support textures (texture2d)",
    )


@pytest.mark.parametrize(
    "text",
    [
        # Names of features as names of variables.
        KERNEL.format("float sampler = 1, ray = 2, mesh = 3, tensor = 4; o[i] = ray * mesh + tensor + sampler;"),
        # Other stages of a file do not matter to its kernels.
        "struct V { float4 p [[position]]; };\n"
        "vertex V vs(uint i [[vertex_id]], constant float4* a [[buffer(0)]]) { V v; v.p = a[i]; return v; }\n"
        "[[fragment]] half4 fs(V in [[stage_in]], texture2d<half> t [[texture(0)]]) { return t.read(0); }\n"
        + KERNEL.format("o[i] = 1;"),
        "#include <metal_raytracing>\nusing namespace metal::raytracing;\n" + KERNEL.format("o[i] = 1;"),
    ],
)
def test_what_only_looks_like_it_compiles(launch: Launcher, text: str) -> None:
    compiled = compile_file(HEAD + text, "k", mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile), compiled.messages
