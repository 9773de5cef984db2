"""Metal's functions of floating-point numbers, in every type and on any values, against numpy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metalsim.execute.launch import numpy_dtype
from metalsim.model import DType
from tests.unit.metalsim.launching import Launcher

FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")
METAL = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}
Reference = Callable[[Any, Any, Any], Any]


def _at_pi(function: Callable[[float], float], x: float) -> float:
    """sin or cos of pi x, exact for multiples of one half."""
    if not math.isfinite(x):
        return math.nan
    exact = {
        math.sin: {0.0: 0, 0.5: 1, 1.0: 0, 1.5: -1},
        math.cos: {0.0: 1, 0.5: 0, 1.0: -1, 1.5: 0},
    }[function]
    r = math.fmod(x, 2.0)
    return exact.get(abs(r) if function is math.cos else r % 2.0, function(math.pi * r))


def _pow(x: float, y: float) -> float:
    """numpy takes a square root for y = 0.5, which differs for infinities."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x != 0:
            return math.nan
        return -math.inf if math.copysign(1, x) < 0 and y % 2 == 1 else math.inf


def _median(x: Any, y: Any, z: Any) -> Any:
    return np.fmax(np.fmin(x, y), np.fmin(np.fmax(x, y), z))


def _sign(x: float) -> float:
    return 0.0 if math.isnan(x) else float(np.sign(x))


def _round(x: float) -> float:
    """Halves away from zero."""
    return x if not math.isfinite(x) else math.copysign(math.floor(abs(x) + 0.5), x)


def _smoothstep(low: float, high: float, x: float) -> float:
    t = np.clip((x - low) / (high - low), 0, 1)
    return float(t * t * (3 - 2 * t))


# Exact up to the last rounding in the type.
EXACT: dict[str, Reference] = {
    "fabs(a)": lambda a, b, c: np.abs(a),
    "abs(a)": lambda a, b, c: np.abs(a),
    "ceil(a)": lambda a, b, c: np.ceil(a),
    "floor(a)": lambda a, b, c: np.floor(a),
    "trunc(a)": lambda a, b, c: np.trunc(a),
    "rint(a)": lambda a, b, c: np.rint(a),
    "round(a)": lambda a, b, c: _round(a),
    "copysign(a, b)": lambda a, b, c: np.copysign(a, b),
    "fmin(a, b)": lambda a, b, c: np.fmin(a, b),
    "fmax(a, b)": lambda a, b, c: np.fmax(a, b),
    "min(a, b)": lambda a, b, c: np.fmin(a, b),
    "max(a, b)": lambda a, b, c: np.fmax(a, b),
    "min3(a, b, c)": lambda a, b, c: np.fmin(a, np.fmin(b, c)),
    "max3(a, b, c)": lambda a, b, c: np.fmax(a, np.fmax(b, c)),
    "fmin3(a, b, c)": lambda a, b, c: np.fmin(a, np.fmin(b, c)),
    "fmax3(a, b, c)": lambda a, b, c: np.fmax(a, np.fmax(b, c)),
    "median3(a, b, c)": _median,
    "fmedian3(a, b, c)": _median,
    "clamp(a, T(-1), T(2))": lambda a, b, c: np.fmin(np.fmax(a, -1), 2),
    "saturate(a)": lambda a, b, c: np.fmin(np.fmax(a, 0), 1),
    "sign(a)": lambda a, b, c: _sign(a),
    "step(a, b)": lambda a, b, c: 0.0 if b < a else 1.0,
    "fdim(a, b)": lambda a, b, c: math.nan if math.isnan(a) or math.isnan(b) else max(a - b, 0.0) if a != b else 0.0,
    "fma(a, b, c)": lambda a, b, c: a * b + c,
    "sqrt(a)": lambda a, b, c: np.sqrt(a),
    "divide(a, b)": lambda a, b, c: np.divide(a, b),
    "fast::divide(a, b)": lambda a, b, c: np.divide(a, b),
    "a / b": lambda a, b, c: np.divide(a, b),
    "select(a, b, a < c)": lambda a, b, c: b if a < c else a,
    "T(isnan(a)) + T(2) * T(isinf(a)) + T(4) * T(isfinite(a)) + T(8) * T(signbit(a))": lambda a, b, c: (
        np.isnan(a) + 2 * np.isinf(a) + 4 * np.isfinite(a) + 8 * np.signbit(a)
    ),
    "T(isordered(a, b)) + T(2) * T(isunordered(a, b))": lambda a, b, c: 2 if math.isnan(a) or math.isnan(b) else 1,
}

# Within a few units in the last place.
CLOSE: dict[str, Reference] = {
    "exp(a)": lambda a, b, c: np.exp(a),
    "exp2(a)": lambda a, b, c: np.exp2(a),
    "exp10(a)": lambda a, b, c: np.power(10.0, a),
    "log(a)": lambda a, b, c: np.log(a),
    "log2(a)": lambda a, b, c: np.log2(a),
    "log10(a)": lambda a, b, c: np.log10(a),
    "sin(a)": lambda a, b, c: np.sin(a),
    "cos(a)": lambda a, b, c: np.cos(a),
    "tan(a)": lambda a, b, c: np.tan(a),
    "asin(a)": lambda a, b, c: np.arcsin(a),
    "acos(a)": lambda a, b, c: np.arccos(a),
    "atan(a)": lambda a, b, c: np.arctan(a),
    "atan2(a, b)": lambda a, b, c: np.arctan2(a, b),
    "sinh(a)": lambda a, b, c: np.sinh(a),
    "cosh(a)": lambda a, b, c: np.cosh(a),
    "tanh(a)": lambda a, b, c: np.tanh(a),
    "asinh(a)": lambda a, b, c: np.arcsinh(a),
    "acosh(a)": lambda a, b, c: np.arccosh(a),
    "atanh(a)": lambda a, b, c: np.arctanh(a),
    "sinpi(a)": lambda a, b, c: _at_pi(math.sin, a),
    "cospi(a)": lambda a, b, c: _at_pi(math.cos, a),
    "rsqrt(a)": lambda a, b, c: 1 / np.sqrt(a),
    "pow(a, b)": lambda a, b, c: _pow(a, b),
    "powr(fabs(a), b)": lambda a, b, c: _pow(abs(a), b),
    "fmod(a, b)": lambda a, b, c: np.fmod(a, b),
    "precise::exp(a)": lambda a, b, c: np.exp(a),
    "fast::exp(a)": lambda a, b, c: np.exp(a),
    "fast::sin(a)": lambda a, b, c: np.sin(a),
}


def launch_functions(
    launch: Launcher, functions: dict[str, Reference], dtype: DType, rows: np.ndarray[Any, Any], *, vector: bool
) -> np.ndarray[Any, Any]:
    """Results of all functions, a row of them for each row of three arguments."""
    kind = f"vec<{METAL[dtype]}, 3>" if vector else METAL[dtype]
    lines = [f"typedef {kind} T;", "uint i = thread_position_in_grid.x;"]
    lines += [f"T {name} = T(x[3 * i + {k}]);" for k, name in enumerate("abc")]
    lines += [f"{name}.x = 1;" for name in "abc" if vector]
    for k, function in enumerate(functions):
        lines.append(f"out[i * {len(functions)} + {k}] = T({function}){'.z' if vector else ''};")
    shape = (len(rows), len(functions))
    result = launch("\n".join(lines), {"x": rows}, {"out": (dtype, shape)}, grid=len(rows), threadgroup=32)
    assert [f for f in result.findings if f.kind != "nan"] == []
    return result.outputs["out"]


def expected_of(functions: dict[str, Reference], dtype: DType, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        wide = [[f(*map(np.float64, row)) for f in functions.values()] for row in rows.astype(np.float64)]
        return np.array(wide, np.float64).astype(numpy_dtype(dtype))


def check(
    launch: Launcher,
    functions: dict[str, Reference],
    dtype: DType,
    rows: np.ndarray[Any, Any],
    *,
    units: int,
    vector: bool = False,
) -> None:
    """Within ``units`` in the last place of the type; NaN where numpy has one."""
    actual = launch_functions(launch, functions, dtype, rows, vector=vector)
    expected = expected_of(functions, dtype, rows)
    limits = ml_dtypes.finfo(numpy_dtype(dtype))
    for k, function in enumerate(functions):
        got, want = actual[:, k].astype(np.float64), expected[:, k].astype(np.float64)
        assert (np.isnan(got) == np.isnan(want)).all(), (function, rows[np.isnan(got) != np.isnan(want)][:3])
        with np.errstate(invalid="ignore"):
            tolerance = units * np.maximum(np.abs(want) * float(limits.eps), float(limits.smallest_subnormal))
            wrong = ~np.isnan(want) & (got != want) & ~(np.abs(got - want) <= tolerance)
        assert not wrong.any(), (function, rows[wrong][:3], got[wrong][:3], want[wrong][:3])


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-3, 100.25, math.inf, -math.inf, math.nan)


def special_rows(dtype: DType) -> np.ndarray[Any, Any]:
    rows = [(a, b, c) for a in SPECIAL for b in SPECIAL for c in (0.0, -2.0, math.nan)]
    return np.array(rows, np.float64).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_functions_of_special_values(launch: Launcher, dtype: DType, vector: bool) -> None:
    functions = {name: f for name, f in EXACT.items() if not vector or "T(" not in name or "clamp" in name}
    check(launch, functions, dtype, special_rows(dtype), units=0, vector=vector)


@pytest.mark.parametrize("dtype", FLOATS)
def test_transcendental_functions_of_special_values(launch: Launcher, dtype: DType) -> None:
    check(launch, CLOSE, dtype, special_rows(dtype), units=4)


SETTINGS = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SETTINGS
@given(data=st.data(), dtype=st.sampled_from(("float32", "float16")))
def test_exact_functions_of_any_values(launch: Launcher, data: st.DataObject, dtype: DType) -> None:
    value = st.floats(width=32 if dtype == "float32" else 16, allow_subnormal=True)
    rows = np.array(data.draw(st.lists(st.tuples(value, value, value), min_size=8, max_size=50)), numpy_dtype(dtype))
    # Twice rounded in numpy: float64 holds no exact product and sum of three floats.
    functions = {name: f for name, f in EXACT.items() if not name.startswith("fma")}
    check(launch, functions, dtype, rows, units=0)


@SETTINGS
@given(data=st.data(), dtype=st.sampled_from(FLOATS))
def test_transcendental_functions_of_any_values(launch: Launcher, data: st.DataObject, dtype: DType) -> None:
    value = st.floats(-30, 30, width=16)
    rows = data.draw(st.lists(st.tuples(value, value, value), min_size=8, max_size=50))
    check(launch, CLOSE, dtype, np.array(rows, np.float64).astype(numpy_dtype(dtype)), units=4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_with_two_results(launch: Launcher, dtype: DType) -> None:
    values = [0.0, -0.0, 1.0, -1.75, 6.25, 1000.0, 0.001, -math.inf]
    x = np.array(values, np.float64).astype(numpy_dtype(dtype))
    source = f"""\
typedef {METAL[dtype]} T;
uint i = thread_position_in_grid.x;
T v = x[i], part; int e;
out[9 * i] = frexp(v, e); out[9 * i + 1] = T(e);
out[9 * i + 2] = modf(v, part); out[9 * i + 3] = part;
out[9 * i + 4] = ldexp(v, 3); out[9 * i + 5] = nextafter(v, T(2000));
vec<T, 2> w(v), whole; int2 es;
out[9 * i + 6] = frexp(w, es).y + T(es.y); out[9 * i + 7] = (modf(w, whole) + whole).x;
out[9 * i + 8] = ldexp(w, int2(1, 2)).y;
"""
    result = launch(source, {"x": x}, {"out": (dtype, (len(x), 9))}, grid=len(x), threadgroup=8)
    limits = ml_dtypes.finfo(numpy_dtype(dtype))
    for v, row in zip(x.astype(np.float64).tolist(), result.outputs["out"], strict=True):
        mantissa, exponent = math.frexp(v)
        part, whole = math.modf(v)
        expected = np.array([mantissa, exponent, part, whole, v * 8], np.float64).astype(numpy_dtype(dtype))
        if math.isinf(v):
            expected[1] = row[1]  # Metal leaves the exponent open
            assert float(row[5]) == -float(limits.max)
        else:
            after = float(row[5])
            assert after > v and after - v <= max(float(limits.smallest_subnormal), 2 * abs(v) * float(limits.eps))
            assert float(row[6]) == float(np.float64(mantissa + exponent).astype(numpy_dtype(dtype)))
            assert float(row[8]) == float(np.float64(4 * v).astype(numpy_dtype(dtype)))
        np.testing.assert_array_equal(row[:5], expected)
        assert float(row[7]) == v


def test_results_round_below_one_in_half(launch: Launcher) -> None:
    """fract() of a small negative half was 1 after rounding."""
    source = "out[0] = fract(half(-1e-5)); out[1] = float(fract(bfloat(-1e-5))); out[2] = fract(-1e-12);"
    result = launch(source, {"x": np.zeros(8, np.float32)}, {"out": ("float32", (3,))}, grid=1, threadgroup=1)
    np.testing.assert_array_equal(result.outputs["out"], np.float32([1 - 2.0**-11, 1 - 2.0**-8, 1 - 2.0**-24]))


def test_normal_numbers_are_those_of_the_type(launch: Launcher) -> None:
    """A subnormal half was taken for normal, since it is a normal float."""
    source = """\
half h = x[0];
out[0] = float(isnormal(h)) + 2 * float(isnormal(float(h))) + 4 * float(isnormal(half(1))) + 8 * float(isnormal(x[1]));
out[1] = float(all(isnormal(half2(1, 2)))) + 2 * float(isnormal(half2(h)).y);
"""
    x = np.array([2.0**-20, 0, 0, 0, 0, 0, 0, 0], np.float32)
    result = launch(source, {"x": x}, {"out": ("float32", (2,))}, grid=1, threadgroup=1)
    assert result.outputs["out"].tolist() == [6, 1]


def test_geometric_functions(launch: Launcher) -> None:
    source = """\
float3 a(x[0], x[1], x[2]), b(x[3], x[4], x[5]), n = normalize(b);
out[0] = dot(a, b); out[1] = length(a); out[2] = distance(a, b); out[3] = length_squared(a);
out[4] = distance_squared(a, b);
float3 c = cross(a, b); out[5] = c.x; out[6] = c.y; out[7] = c.z; out[8] = n.y;
out[9] = reflect(a, n).y; out[10] = faceforward(a, b, n).z; out[11] = refract(normalize(a), n, 0.5).x;
out[12] = refract(normalize(a), n, 9.0).x; out[13] = fast::length(a.xy); out[14] = precise::distance(a.xz, b.xz);
out[15] = mix(a, b, 0.25).y; out[16] = smoothstep(-2.0, 2.0, a).y; out[17] = max(a, 0.0).z + min(a.x, b).x;
"""
    x = np.array([0.3, -1.2, 2.1, 0.9, 0.4, -0.7, 0, 0], np.float32)
    result = launch(source, {"x": x}, {"out": ("float32", (18,))}, grid=1, threadgroup=1)
    a, b = x[:3].astype(np.float64), x[3:6].astype(np.float64)
    n, i = b / np.linalg.norm(b), a / np.linalg.norm(a)

    def refract(eta: float) -> np.ndarray[Any, Any]:
        k = 1 - eta**2 * (1 - (n @ i) ** 2)
        return np.zeros(3) if k < 0 else eta * i - (eta * (n @ i) + math.sqrt(k)) * n

    expected = [a @ b, np.linalg.norm(a), np.linalg.norm(a - b), a @ a, (a - b) @ (a - b), *np.cross(a, b), n[1]]
    expected += [(a - 2 * (n @ a) * n)[1], (a if n @ b < 0 else -a)[2], refract(0.5)[0], refract(9.0)[0]]
    expected += [np.linalg.norm(a[:2]), np.linalg.norm((a - b)[[0, 2]]), a[1] + (b - a)[1] / 4]
    expected += [_smoothstep(-2, 2, a[1]), max(a[2], 0) + min(a[0], b[0])]
    np.testing.assert_allclose(result.outputs["out"], expected, rtol=1e-5, atol=1e-6)
