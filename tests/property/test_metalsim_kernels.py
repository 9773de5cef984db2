"""Random kernels in metalsim against the same computation in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metalsim import Argument, CompileFailure, MlxKernel, compile_kernel, run

SETTINGS = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Expression = tuple[str, str]
"""An expression in Metal and in numpy."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metalsim-cache")


LEAVES = st.sampled_from(
    [("a", "a"), ("b", "b"), ("float(i)", "i"), ("0.75", "np.float32(0.75)"), ("3", "np.float32(3)")]
)


def _combine(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def binary(operator: str, left: Expression, right: Expression) -> Expression:
        return f"({left[0]} {operator} {right[0]})", f"({left[1]} {operator} {right[1]})"

    def named(names: tuple[str, str], left: Expression, right: Expression) -> Expression:
        return f"{names[0]}(float({left[0]}), float({right[0]}))", f"{names[1]}({left[1]}, {right[1]})"

    def unary(names: tuple[str, str], part: Expression) -> Expression:
        return f"{names[0]}(float({part[0]}))", f"{names[1]}({part[1]})"

    return st.one_of(
        st.builds(binary, st.sampled_from(["+", "-", "*"]), parts, parts),
        st.builds(named, st.sampled_from([("max", "np.maximum"), ("min", "np.minimum")]), parts, parts),
        st.builds(unary, st.sampled_from([("floor", "np.floor"), ("abs", "np.abs"), ("-", "-")]), parts),
    )


@SETTINGS
@given(
    expression=st.recursive(LEAVES, _combine, max_leaves=12),
    size=st.integers(1, 150),
    threads=st.integers(1, 70),
    seed=st.integers(0, 1000),
)
def test_elementwise_float_arithmetic_is_exactly_numpys(
    cache: Path, expression: Expression, size: int, threads: int, seed: int
) -> None:
    """Every step rounds to float32, as numpy does: bit for bit the same, on any ragged grid."""
    random = np.random.default_rng(seed)
    size += 8  # below 8 elements the signature differs; one compiled kernel serves all sizes
    arrays = {name: random.standard_normal(size).astype(np.float32) for name in ("x", "y")}
    source = f"uint i = thread_position_in_grid.x;\nfloat a = x[i], b = y[i];\nout[i] = {expression[0]};"
    kernel = MlxKernel(
        "random",
        source,
        tuple(Argument(name, "float32", (8,)) for name in arrays),
        (Argument("out", "float32", (8,)),),
    )
    compiled = compile_kernel(kernel, mode="checked", cache=cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    result = run(compiled, arrays, {"out": (size,)}, grid=(size, 1, 1), threadgroup=(threads, 1, 1), seed=seed)
    names = {"a": arrays["x"], "b": arrays["y"], "i": np.arange(size, dtype=np.float32), "np": np}
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.broadcast_to(np.asarray(eval(expression[1], names), np.float32), (size,))
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], expected)


SCAN = """\
threadgroup int totals[32];
uint i = thread_position_in_grid.x, lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
int inside = simd_prefix_inclusive_sum(x[i]);
if (lane == threads_per_simdgroup - 1 || thread_index_in_threadgroup == threads_per_threadgroup.x - 1)
  totals[group] = inside;
threadgroup_barrier(mem_flags::mem_threadgroup);
int before = 0;
for (uint g = 0; g < group; g++) before += totals[g];
out[i] = before + inside;
"""


@SETTINGS
@given(size=st.integers(8, 2100), threads=st.integers(1, 1024), seed=st.integers(0, 1000))
def test_a_threadgroup_scan_of_any_size(cache: Path, size: int, threads: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-1000, 1000, size).astype(np.int32)
    kernel = MlxKernel("scan", SCAN, (Argument("x", "int32", (8,)),), (Argument("out", "int32", (8,)),))
    compiled = compile_kernel(kernel, mode="checked", cache=cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    result = run(compiled, {"x": x}, {"out": (size,)}, grid=(size, 1, 1), threadgroup=(threads, 1, 1), seed=seed)
    width = min(threads, size)
    expected = np.concatenate([np.cumsum(x[start : start + width]) for start in range(0, size, width)])
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"], expected)


@SETTINGS
@given(
    mask=st.lists(st.booleans(), min_size=32, max_size=32),
    delta=st.integers(1, 31),
    operation=st.sampled_from(["sum", "max", "min", "xor", "or"]),
)
def test_collectives_of_any_subset_of_lanes(cache: Path, mask: list[bool], delta: int, operation: str) -> None:
    chosen = np.array(mask)
    x = np.random.default_rng(delta).integers(0, 1000, 32).astype(np.int32)
    source = f"""\
uint lane = thread_index_in_simdgroup;
int r = -1;
if (on[lane]) r = simd_{operation}(x[lane]);
int all_lanes = simd_{operation}(x[lane]);
out[lane] = r;
out[lane + 32] = simd_shuffle_rotate_down(all_lanes + int(lane), ushort(on[32]));
"""
    on = np.concatenate([chosen.astype(np.int32), [delta]]).astype(np.int32)
    arguments = (Argument("x", "int32", (32,)), Argument("on", "int32", (33,)))
    kernel = MlxKernel("subset", source, arguments, (Argument("out", "int32", (64,)),))
    compiled = compile_kernel(kernel, mode="checked", cache=cache)
    assert not isinstance(compiled, CompileFailure), compiled.messages
    result = run(compiled, {"x": x, "on": on}, {}, grid=(32, 1, 1), threadgroup=(32, 1, 1))
    reduce = {
        "sum": np.add, "max": np.maximum, "min": np.minimum, "xor": np.bitwise_xor, "or": np.bitwise_or
    }[operation].reduce  # fmt: skip
    partial = reduce(x[chosen]) if chosen.any() else -1
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs["out"][:32], np.where(chosen, partial, -1))
    np.testing.assert_array_equal(result.outputs["out"][32:], reduce(x) + (np.arange(32) + delta) % 32)
