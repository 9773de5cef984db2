"""Products of matrices that are performed at once give bit for bit what they give one by one."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from metalsim.build import toolchain
from metalsim.build.meetings import gather_meetings
from tests.unit.metalsim.launching import Launcher

TILES = """\
threadgroup float s[4][64];
uint lane = thread_index_in_simdgroup;
for (uint t = 0; t < 4; t++) {
  for (uint e = lane; e < 64; e += 32) s[t][e] = x[64 * t + e];
}
threadgroup_barrier(mem_flags::mem_threadgroup);
simdgroup_matrix<float, 8, 8> a0, a1, b0, b1, c0(0.0f), c1(1.0f), d;
simdgroup_load(a0, s[0], 8);
simdgroup_load(b0, s[1], 8);
simdgroup_load(a1, s[2], 8);
simdgroup_load(b1, s[3], 8);
"""
CHAINS = """\
simdgroup_multiply_accumulate(c0, a0, b0, c0);
simdgroup_multiply_accumulate(c1, a0, b1, c1);
simdgroup_multiply_accumulate(c0, a1, b0, c0);
simdgroup_multiply_accumulate(c1, a1, b1, c1);
simdgroup_store(c0, out, 8);
simdgroup_store(c1, out + 64, 8);
"""
RESULTS_AS_OPERANDS = """\
simdgroup_multiply(c0, a0, b0);
simdgroup_multiply(d, c0, b1);
simdgroup_multiply_accumulate(c1, c0, d, c0);
simdgroup_store(c0, out, 8);
simdgroup_store(c1, out + 64, 8);
"""
SCALED_BETWEEN = """\
simdgroup_multiply(c0, a0, b0);
simdgroup_multiply(c1, a1, b0);
c0.thread_elements() *= 0.5f;
simdgroup_multiply_accumulate(d, a1, b1, c0);
simdgroup_multiply_accumulate(c1, a0, b1, c1);
simdgroup_store(d, out, 8);
simdgroup_store(c1, out + 64, 8);
"""
STORED_BETWEEN = """\
simdgroup_multiply(c0, a0, b0);
simdgroup_multiply(c1, a0, b1);
simdgroup_store(c0, s[0], 8);
threadgroup_barrier(mem_flags::mem_threadgroup);
simdgroup_load(d, s[0], 8, ulong2(0), true);
simdgroup_multiply_accumulate(d, d, b1, c1);
simdgroup_multiply_accumulate(c1, d, a1, c0);
simdgroup_store(d, out, 8);
simdgroup_store(c1, out + 64, 8);
"""


# Elsewhere the result of a product is another type, and products stay single.
gathered = pytest.mark.skipif(platform.machine() != "x86_64", reason="products are gathered on x86-64")


EXCHANGES = """\
uint lane = thread_index_in_simdgroup;
float a = x[lane], b = x[32 + lane], c = x[64 + lane];
a = max(a, simd_shuffle_xor(a, 1));
a = max(a, simd_shuffle_xor(a, 8));
b = b + simd_shuffle_xor(b, 1);
b = b * 0.5f + simd_shuffle_xor(b, 8);
int d = simd_shuffle_xor(int(lane) * 3, 31);
c = simd_shuffle_xor(c, ushort(x[96] > 100.0f ? 3 : 5));
out[lane] = a;
out[32 + lane] = b;
out[64 + lane] = c;
out[96 + lane] = float(d);
"""


@pytest.fixture(scope="module")
def plain(launch: Launcher) -> Launcher:
    return Launcher(launch.cache, "plain")


def _x(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal(256).astype(np.float32)}


@pytest.mark.parametrize(
    "body", [EXCHANGES, *(TILES + body for body in (CHAINS, RESULTS_AS_OPERANDS, SCALED_BETWEEN, STORED_BETWEEN))]
)
def test_what_is_done_at_once_is_what_is_done_one_by_one(launch: Launcher, plain: Launcher, body: str) -> None:
    options = {"grid": 32, "threadgroup": 32}
    checked = launch(body, _x(3), {"out": ("float32", (128,))}, **options)
    fast = plain(body, _x(3), {"out": ("float32", (128,))}, **options)
    assert checked.findings == fast.findings == ()
    np.testing.assert_array_equal(checked.outputs["out"], fast.outputs["out"])


def test_a_product_follows_numpy(plain: Launcher) -> None:
    x = _x(8)
    fast = plain(TILES + CHAINS, x, {"out": ("float32", (128,))}, grid=32, threadgroup=32)
    a0, b0, a1, b1 = x["x"].reshape(4, 8, 8).astype(np.float64)
    expected = np.stack([a0 @ b0 + a1 @ b0, 1.0 * np.eye(8) + a0 @ b1 + a1 @ b1])
    np.testing.assert_allclose(fast.outputs["out"].reshape(2, 8, 8), expected, atol=1e-5)


def test_lanes_that_ended_are_missed(launch: Launcher, plain: Launcher) -> None:
    body = TILES + "if (lane >= 30) return;\n" + CHAINS
    for run in (launch, plain):
        found = run(body, _x(4), {"out": ("float32", (128,))}, grid=32, threadgroup=32)
        assert "30" in found.findings[0].message, found.findings
        assert np.isnan(found.outputs["out"]).any()


def test_lanes_at_other_products_keep_their_operands(plain: Launcher) -> None:
    """Half of the lanes wait at one product, half at another: elements of the missing ones are NaN in both."""
    split = "if (lane < 16) {\n" + CHAINS + "} else {\n" + CHAINS.replace("c0, a0, b0", "c0, b0, a0") + "}\n"
    found = plain(TILES + split, _x(5), {"out": ("float32", (128,))}, grid=32, threadgroup=32)
    assert found.findings
    assert np.isnan(found.outputs["out"]).all()


@pytest.mark.parametrize("lanes", [32, 20])
def test_an_exchange_with_a_lane_that_ended_is_told(launch: Launcher, plain: Launcher, lanes: int) -> None:
    body = EXCHANGES.replace("float a =", "if (lane == 5) return;\nfloat a =", 1)
    messages = []
    for run in (launch, plain):
        found = run(body, _x(4), {"out": ("float32", (128,))}, grid=lanes, threadgroup=lanes)
        messages.append({finding.message for finding in found.findings if finding.kind == "divergence"})
        assert np.isnan(found.outputs["out"][37])
    assert messages[1]
    assert messages[1] <= messages[0]


def _module(launch: Launcher, body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text that was gathered when the body was compiled."""
    seen: list[str] = []

    def note(text: str) -> str:
        seen.append(text)
        return gather_meetings(text)

    monkeypatch.setattr(toolchain, "gather_meetings", note)
    launch(body, _x(1), {"out": ("float32", (128,))}, grid=32, threadgroup=32)
    return gather_meetings(seen[0])


@gathered
@pytest.mark.parametrize(("body", "meetings"), [(CHAINS, 1), (STORED_BETWEEN, 2)])
def test_lanes_meet_once_for_products_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, meetings: int
) -> None:
    text = _module(Launcher(tmp_path, "plain"), TILES + body, monkeypatch)
    assert text.count("call void @msim_products(") == meetings
    assert "call <2 x float> @msim_multiply(" not in text


def test_chains_of_exchanges_side_by_side_meet_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three independent exchanges, then two that need their results; one with a mask that varies stays single."""
    text = _module(Launcher(tmp_path, "plain"), EXCHANGES, monkeypatch)
    assert text.count("call void @msim_exchanges(") == 2
    assert text.count("i32 @msim_exchange(") == 2  # it, and the declaration


@gathered
def test_a_load_behind_a_store_waits_for_the_product_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lanes do in step without a barrier, which checked mode reports, stays in step."""
    body = (
        TILES
        + """\
uint r = lane % 8;
s[0][lane] = x[lane] + 1.0f;
simdgroup_multiply(c0, a0, b0);
float neighbour = s[0][31 - lane];
simdgroup_multiply(c1, a1, b1);
out[lane] = neighbour;
out[32 + lane] = c0.thread_elements().x + c1.thread_elements().x;
"""
    )
    launcher = Launcher(tmp_path, "plain")
    text = _module(launcher, body, monkeypatch)
    assert text.count("call <2 x float> @msim_multiply(") == 2
    found = launcher(body, _x(1), {"out": ("float32", (128,))}, grid=32, threadgroup=32)
    np.testing.assert_array_equal(found.outputs["out"][:32], _x(1)["x"][:32][::-1] + 1.0)


def test_a_module_without_products_stays_as_it_is() -> None:
    text = "define void @f() {\n  ret void\n}\n"
    assert gather_meetings(text) == text
