"""Mode ``plain`` gives bit for bit what ``checked`` gives, without looking at anything."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.metalsim.launching import Launcher
from tests.unit.metalsim.test_numerics import SOFTMAX

PRODUCT = """\
threadgroup T left[64], right[64];
uint lane = thread_index_in_simdgroup;
simdgroup_matrix<T, 8, 8> a, b;
simdgroup_matrix<float, 8, 8> c(0.0f);
for (uint k = 0; k < 8; k++) {
  for (uint e = lane; e < 64; e += 32) {
    left[e] = T(x[64 * k + e]);
    right[e] = T(x[511 - 64 * k - e]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(a, left, 8);
  simdgroup_load(b, right, 8);
  simdgroup_barrier(mem_flags::mem_none);
  simdgroup_multiply_accumulate(c, a, b, c);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
simdgroup_store(c, out, 8);
"""


@pytest.fixture(scope="module")
def plain(launch: Launcher) -> Launcher:
    return Launcher(launch.cache, "plain")


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_products_of_matrices_are_the_same(launch: Launcher, plain: Launcher, kind: str) -> None:
    x = {"x": np.random.default_rng(5).standard_normal(512).astype(np.float32)}
    options = {"grid": 32, "threadgroup": 32, "template": {"T": kind}}
    checked = launch(PRODUCT, x, {"out": ("float32", (8, 8))}, **options)
    fast = plain(PRODUCT, x, {"out": ("float32", (8, 8))}, **options)
    assert checked.findings == fast.findings == ()
    np.testing.assert_array_equal(checked.outputs["out"], fast.outputs["out"])
    exact = sum(
        x["x"][64 * k : 64 * k + 64].reshape(8, 8).astype(np.float64)
        @ x["x"][448 - 64 * k : 512 - 64 * k][::-1].reshape(8, 8).astype(np.float64)
        for k in range(8)
    )
    np.testing.assert_allclose(
        fast.outputs["out"], exact, atol={"float32": 1e-5, "float16": 0.02, "bfloat16": 0.2}[kind]
    )


def test_a_softmax_is_the_same(launch: Launcher, plain: Launcher) -> None:
    x = {"x": np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32)}
    options = {"grid": 4 * 128, "threadgroup": 128, "template": {"T": "float32"}}
    results = [run(SOFTMAX, x, {"out": ("float32", (4, 1000))}, **options) for run in (launch, plain)]
    np.testing.assert_array_equal(results[0].outputs["out"], results[1].outputs["out"])


def test_a_crash_is_still_a_finding(plain: Launcher) -> None:
    source = "uint i = thread_position_in_grid.x;\nout[i] = *(const device float*)(ulong(x[i]) * 4096 + 16);"
    result = plain(source, {"x": np.zeros(64, np.float32)}, {"out": ("float32", (64,))}, grid=64, threadgroup=64)
    assert [finding.kind for finding in result.findings] == ["crash"]
