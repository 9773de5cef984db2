"""Metal's types and syntax, each in a few lines whose results are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from metalsim import CompiledFile, FileOptions, Fresh, compile_file, run_file
from tests.unit.metalsim.launching import Launcher

WIDTH = 12


@dataclass(frozen=True)
class Case:
    """A block that writes the numbers ``expected`` to ``o``; ``head`` stands before the kernel."""

    body: str
    expected: tuple[float, ...]
    head: str = ""


CASES = {
    "bool vectors": Case(
        """bool3 b = float3(1, 2, 3) > float3(2); bool4 c = int4(1) == int4(1, 2, 3, 1), d = !c; d.xy = bool2(true);
        o[0] = any(b) + 2 * all(b); o[1] = b.z; float3 s = select(float3(1), float3(2), b); o[2] = s.x + 10 * s.z;
        c = c && d; o[3] = c.x + 2 * c.w; bool2 e = c.xw || bool2(false, true); o[4] = e.y; int3 i = int3(b);
        o[5] = i.z;
        c[2] = true; o[6] = c.z; o[7] = all(bool2(true)) + 2 * any(bool4(0)); bool3 n = not(b);
        o[8] = n.x + 2 * n.z;""",
        (1, 1, 21, 1, 1, 1, 1, 1, 1),
    ),
    "swizzles read and written": Case(
        """float4 v(1, 2, 3, 4); v.xy = v.yx; o[0] = v.x; v.zw += 10; o[1] = v.w; v.rgba = v.abgr; o[2] = v.x;
        thread float4 &r = v; r.yz *= float2(2, 3); o[3] = v.y; thread float4 *q = &v; q->xw = 7; o[4] = v.x + v.w;
        v.xy++; o[5] = v.x; --v.xy; o[6] = v.x; v.wzyx = float4(1, 2, 3, 4); o[7] = v.x; int4 k = 5; k.xy |= 2;
        k.zw <<= 1;
        k.x %= 4; o[8] = k.x + k.z; o[9] = v.xyz.zyx[0]; float2 t = v.x > v.y ? v.xy : v.zw; o[10] = t.x;
        auto a = v.yx; v.xy = a; o[11] = v.x;""",
        (2, 14, 14, 26, 14, 8, 7, 4, 13, 2, 4, 3),
    ),
    "swizzles of templates and overloads": Case(
        """float4 v(1, 2, 3, 4); o[0] = twice(v.xy).y; o[1] = added(v.xyz); o[2] = width(v.xy) * 10 + width(v.xyz);
        Box b; b.xy = v.zw; b.bar = 5; b.xy.x += 1; float2 xy = b.xy; o[3] = xy.x; o[4] = b.bar;
        b.rg[1] = b.xy.y; o[5] = b.rg[1];
        o[6] = max(v.xy, v.wz).x; float2 m = -v.xy; o[7] = m.y;""",
        (4, 6, 23, 4, 5, 4, 4, -2),
        """template <typename T> T twice(T v) { return v * T(2); }
        template <typename T, int N> T added(vec<T, N> v) { T s = v[0]; for (int i = 1; i < N; i++) s += v[i];
        return s; }
        int width(float2) { return 2; } int width(float3) { return 3; }
        struct Box { float2 xy; float bar, rg[2]; };""",
    ),
    "constructors": Case(
        """float4 a(1, float2(2, 3), 4), b(float3(5), 6), c = {1, 2}, d = float4{1, 2, 3, 4};
        half2 h = half2(1.5h, 2);
        o[0] = a.z; o[1] = b.w + b.x; o[2] = c.y + c.w; o[3] = d.w; o[4] = float4(h, 1u, true).z;
        uint2 u{3, 4}; o[5] = u.y;
        float2 m[2] = {{1, 2}, {3, 4}}; o[6] = m[1].x; o[7] = float4(packed_float3(7), 8).y; float2 z = {};
        o[8] = z.x;
        o[9] = int3(1.9, -1.9, 2u).y; float3 w = 4; o[10] = w.z;""",
        (3, 11, 2, 4, 1, 4, 3, 7, 0, -1, 4),
    ),
    "casts convert": Case(
        """float4 f(1.5, -2.5, 3, 300); int4 i = int4(f); o[0] = i.y; uchar4 c = uchar4(int4(257)); o[1] = c.x;
        half4 h = (half4)f; bfloat4 b = bfloat4(h); o[2] = float4(b).w; h = half4(b); o[3] = h.x;
        bool4 t = bool4(f); o[4] = t.y;
        half s = half(bfloat(2.5)); bfloat r = bfloat(s); r = (bfloat)s; s = (half)r; s = static_cast<half>(r);
        o[5] = s;
        o[6] = float(-(half)r * 2); short2 q = short2(f.zw); o[7] = q.y; o[8] = float2(t.xy).x; o[9] = long4(f).y;""",
        (-2, 1, 300, 1.5, 1, 2.5, -5, 300, 1, -2),
    ),
    "as_type": Case(
        """o[0] = as_type<float>(0x40000000u); o[1] = as_type<int>(1.0f) == 0x3f800000;
        half2 h = as_type<half2>(0x3c004000u);
        o[2] = h.x + 10 * h.y; uchar4 c = as_type<uchar4>(0x04030201u); o[3] = c.w;
        o[4] = as_type<float2>(0x4000000000000000ul).y;
        o[5] = as_type<half>(ushort(0x4200)); o[6] = as_type<bfloat>(ushort(0x4040));
        o[7] = as_type<uint2>(as_type<half4>(uint2(7, 9))).y;
        o[8] = as_type<float4>(uint4(0x40000000)).w; o[9] = as_type<float3>(int3(0x40000000)).z;
        o[10] = as_type<uint>(packed_half2(half2(0, 0)));""",
        (2, 1, 12, 4, 2, 3, 3, 9, 2, 2, 0),
    ),
    "packed vectors": Case(
        """packed_float3 p(1, 2, 3), a[2]; p.x = 4; p.y += 2; p[2] = 9; o[0] = p.x + p.y + p.z; float3 f = p;
        f = p * 2 + f; o[1] = f.z;
        p = f.zyx; o[2] = p.x; p += f; o[3] = p.y; a[1] = p; o[4] = a[1].xz.y; o[5] = dot(p, float3(1, 0, 0));
        o[6] = length(packed_float2(3, 4));
        S s; s.h = half4(1, 2, 3, 4); s.p = p; o[7] = float(s.h.w) + s.p.x; o[8] = all(p == packed_float3(p));
        o[9] = uint3(packed_uchar3(1, 2, 3)).z;
        p.xy = float2(8, 7); o[10] = max(p, 7.5).y; o[11] = sizeof(S) * 100 + alignof(packed_float3);""",
        (17, 27, 27, 24, 39, 39, 5, 43, 1, 3, 7.5, 2404),
        "struct S { packed_float3 p; packed_half4 h; uchar c; };",
    ),
    "sizes": Case(
        """o[0] = sizeof(float3) + alignof(float3); o[1] = sizeof(half3); o[2] = sizeof(char3);
        o[3] = sizeof(bool4); o[4] = sizeof(long3);
        o[5] = sizeof(packed_half3); o[6] = sizeof(float3x3); o[7] = sizeof(half2x2); o[8] = sizeof(bfloat3);
        o[9] = alignof(float2x2);
        o[10] = sizeof(long) + sizeof(size_t) + sizeof(int) + sizeof(half);""",
        (32, 8, 4, 4, 32, 6, 48, 8, 8, 8, 22),
    ),
    "matrices": Case(
        """float2x3 a(float3(1, 2, 3), float3(4, 5, 6)); float3 r = a * float2(1, 10); o[0] = r.z;
        float2 l = float3(1, 0, 2) * a; o[1] = l.y;
        float3x3 m = a * transpose(a); o[2] = m[0][1]; o[3] = determinant(float2x2(1, 2, 3, 4)); float4x4 d(2);
        d[1].xy = float2(1, 3); d[2][3] = 5;
        o[4] = determinant(d); o[5] = determinant(float3x3(float3(2, 0, 1), float3(0, 3, 0), float3(1, 0, 4)));
        half2x2 h(1.5h); o[6] = (h * half2(2))[1];
        m *= 2; o[7] = m[0][1]; m = -m + m; o[8] = m[2][2]; float2x2 q = {1, 2, 3, 4}; q *= q; o[9] = q[1][0];
        o[10] = float2x2(h)[0][0];""",
        (63, 16, 22, -2, 24, 21, 3, 44, 0, 15, 1.5),
    ),
    "unions and structures": Case(
        """Bits b = made(uint2(1, 2)), c = b; c = b; o[0] = c.bytes[1][0]; o[1] = c.words.x; W w;
        w.v = float4(3); W v = w; o[2] = v.f[2];
        Der d; d.base = 1; d.more = 2; o[3] = d.base + d.more; C x(1, 2), y; y = x + x; y += x;
        o[4] = (x * y).re; o[5] = Ten<3>::value;
        o[6] = int(Kind::b) + sizeof(Kind); auto [p, q] = x; o[7] = p + q;""",
        (1, 2, 3, 3, -9, 13, 4, 3),
        """union Bits { uint2 words; uchar4 bytes[2]; }; struct W { union { float4 v; float f[4]; }; int k; };
        Bits made(uint2 a) { Bits b; b.words = a; b.words.xy = b.words.yx; return b; }
        struct Base { int base; }; struct Der : Base { int more; };
        struct C { float re, im; C(float a, float b) : re(a), im(b) {} C() = default;
          C operator+(C c) const { return C(re + c.re, im + c.im); }
          thread C &operator+=(C c) thread { re += c.re; im += c.im; return *this; } };
        C operator*(C a, C b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
        template <int N> struct Ten { static constant constexpr int value = Ten<N - 1>::value + 1; };
        template <> struct Ten<0> { static constant constexpr int value = 10; };
        enum class Kind : uchar { a, b = 3 };""",
    ),
    "constants of a file": Case(
        """o[0] = TABLE[2] + SIZE; o[1] = VECTOR.y; o[2] = PAIRS[1].x; o[3] = ROWS[1][0]; o[4] = LIST[2];
        o[5] = ITEM.b; o[6] = IDENTITY[1].y;
        float a[SIZE]; a[3] = 1; o[7] = a[3]; constant float *p = TABLE; o[8] = p[1]; o[9] = SUM.y;""",
        (7, 2, 3, 3, 3, 2.5, 1, 1, 2, -4),
        """constant float TABLE[3] = {1, 2, 3}; constant constexpr int SIZE = 4;
        constant float4 VECTOR = float4(1, 2, 3, 4);
        constant float2 PAIRS[2] = {float2(1, 2), {3, 4}};
        static constexpr constant int ROWS[2][2] = {{1, 2}, {3, 4}};
        constant array<int, 3> LIST = {1, 2, 3}; struct Item { int a; float b; }; constant Item ITEM = {1, 2.5};
        constant float3x3 IDENTITY = float3x3(1);
        constant float2 SUM = -(float2(1, 2) * 3 - 2);""",
    ),
    "overloads by address space": Case(
        """threadgroup float t[2]; t[0] = 1; float l[2]; o[0] = where(o); o[1] = where(t); o[2] = where(x);
        o[3] = where(l);
        o[4] = Space<device float *>::value + 10 * Space<threadgroup int *>::value;
        device Cell *c = (device Cell *)(o + 5); c->set(6); o[6] = c->get() + 1; o[7] = sizeof(x[0]);""",
        (1, 2, 3, 4, 21, 6, 7, 4),
        """int where(device const float *) { return 1; } int where(threadgroup const float *) { return 2; }
        int where(constant float *) { return 3; } int where(thread const float *) { return 4; }
        template <typename T> struct Space;
        template <typename T> struct Space<device T *> { static constant constexpr int value = 1; };
        template <typename T> struct Space<threadgroup T *> { static constant constexpr int value = 2; };
        struct Cell { float v; float get() const device { return v; } float get() const thread { return v; }
          void set(float a) device { v = a; } void set(float a) thread { v = a; } };""",
    ),
    "literals and limits": Case(
        """o[0] = sizeof(1.0) + sizeof(1.0h) * 10 + sizeof(1.0bf) * 100; o[1] = 1.5h + .5 + 0x1p3f + 1e1;
        o[2] = 0b101 + 1'000; o[3] = HALF_MAX;
        o[4] = numeric_limits<half>::max() == HALF_MAX && FLT_MAX == MAXFLOAT && isinf(HUGE_VALF) &&
        isinf(INFINITY) && isnan(NAN);
        o[5] = numeric_limits<float>::digits10 + numeric_limits<int>::digits + numeric_limits<half>::radix;
        o[6] = INT_MIN + INT_MAX;
        o[7] = numeric_limits<uchar>::max() + numeric_limits<char>::lowest();
        o[8] = M_PI_F > 3.14159 && M_PI_F < 3.1416;
        o[9] = numeric_limits<bfloat>::epsilon() == BFLT_EPSILON;
        o[10] = UINT_MAX == 0xffffffffu && ULONG_MAX == ~0ul && USHRT_MAX == 65535;""",
        (224, 20, 1005, 65504, 1, 39, -1, 127, 1, 1, 1),
    ),
    "array, lambdas and constant conditions": Case(
        """array<float, 4> a = {1, 2, 3, 4}; float s = 0; for (float v : a) s += v; o[0] = s;
        o[1] = a.size() + a.back(); array<float4, 2> b; b[1] = 3;
        o[2] = b[1].z; auto f = [&](float v) { return v * s; }; o[3] = f(2) + [](int k) { return k; }(3);
        if constexpr (is_same_v<decltype(s), float>) o[4] = 1; else o[4] = 2; static_assert(sizeof(int) == 4, "int");
        if (int z = 3; z > 2) o[5] = z; o[6] = only(3); o[7] = sizes(1, 2.0f, 3h0); array<array<int, 2>, 2> n;
        n[1][0] = 4; o[8] = n[1][0];""".replace("3h0", "3.0h"),
        (10, 8, 3, 23, 1, 3, 3, 3, 4),
        """template <typename T, typename = enable_if_t<is_integral_v<T>>> T only(T a) { return a; }
        template <typename... A> int sizes(A...) { return sizeof...(A); }""",
    ),
    "packing": Case(
        """o[0] = pack_float_to_unorm4x8(float4(0, 1, 0.5, 2)) == 0xff80ff00u;
        o[1] = unpack_unorm4x8_to_float(0xff80ff00u).z * 255;
        o[2] = pack_float_to_snorm4x8(float4(-1, 1, 0, -2)) == 0x81007f81u;
        o[3] = unpack_snorm4x8_to_float(0x80007f81u).w; o[4] = unpack_snorm4x8_to_half(0x81u).x;
        o[5] = pack_float_to_unorm2x16(float2(1, 0)); o[6] = unpack_snorm2x16_to_float(0x80008001u).y;
        o[7] = pack_half_to_unorm10a2(half4(1, 0, 0, 1)) == 0xc00003ffu;
        o[8] = unpack_unorm10a2_to_float(0xc00003ffu).w;
        o[9] = pack_float_to_srgb_unorm4x8(unpack_unorm4x8_srgb_to_float(0x80402010u)) == 0x80402010u;""",
        (1, 128, 1, -1, -1, 65535, -1, 1, 1, 1),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(launch: Launcher) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """All cases in one kernel."""
    blocks = [f"{{ device float *o = base + {k * WIDTH}; {case.body} }}" for k, case in enumerate(CASES.values())]
    heads = [case.head for case in CASES.values()]
    text = "\n".join(
        [
            "#include <metal_stdlib>\nusing namespace metal;",
            *heads,
            "kernel void k(device float *base [[buffer(0)]], constant float *x [[buffer(1)]]) {",
            *blocks,
            "}",
        ]
    )
    compiled = compile_file(text, "k", mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile), compiled.messages
    rows = Fresh("float32", (len(CASES), WIDTH))
    result = run_file(compiled, {"base": rows, "x": np.ones(4, np.float32)}, grid=(1, 1, 1), threadgroup=(1, 1, 1))
    assert {f.kind for f in result.findings} <= {"not-written"}
    return result.outputs["base"]


@pytest.mark.parametrize("name", CASES)
def test_results_of(name: str, results: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    expected = CASES[name].expected
    actual = results[list(CASES).index(name), : len(expected)]
    np.testing.assert_array_equal(actual, np.float32(expected))


TYPES = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float")


def test_every_width_of_every_type(launch: Launcher) -> None:
    """Arithmetic, comparisons and conversions to float of all 33 vector types."""
    lines, expected = [], []
    for kind in TYPES:
        for width in (2, 3, 4):
            v = f"{kind}{width}"
            lines.append(
                f"{{ {v} a({', '.join(map(str, range(1, width + 1)))}), b(2); a += b * 3; a.xy = a.yx - {v}(1).xy;"
            )
            lines.append(f"float{width} f = float{width}(a); bool{width} c = a > b; {kind} s = a[{width - 1}];")
            lines.append(f"out[{4 * len(expected)}] = f.x; out[{4 * len(expected) + 1}] = f[{width - 1}];")
            lines.append(
                f"out[{4 * len(expected) + 2}] = all(c); out[{4 * len(expected) + 3}] = float(s) + sizeof({v}); }}"
            )
            last = width + 6 if width > 2 else 6
            size = {"c": 1, "u": 1, "s": 2, "h": 2, "b": 2, "i": 4, "f": 4, "l": 8}[kind[0]]
            size = {"ushort": 2, "uint": 4, "ulong": 8}.get(kind, size)
            expected.append((7, last, 1, last + size * (4 if width == 3 else width)))
    shape = (len(expected), 4)
    result = launch(
        "\n".join(lines), {"x": np.zeros(8, np.float32)}, {"out": ("float32", shape)}, grid=1, threadgroup=1
    )
    np.testing.assert_array_equal(result.outputs["out"], np.float32(expected))


def test_vectors_in_buffers_have_metals_layout(launch: Launcher) -> None:
    text = """#include <metal_stdlib>
using namespace metal;
struct Particle { packed_float3 position; half mass; float3 speed; packed_half4 tint; bool on; };
kernel void k(device Particle *p [[buffer(0)]], constant packed_float3 *shift [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
  p[i].position += shift[i];
  p[i].position.yz *= 2.0;
  p[i].speed.xy = p[i].position.zx;
  p[i].tint.x = half(p[i].tint[3] + p[i].mass);
  p[i].on = !p[i].on;
}"""
    compiled = compile_file(text, "k", mode="checked", cache=launch.cache)
    assert isinstance(compiled, CompiledFile), compiled.messages
    layout = np.dtype(
        {
            "names": ["position", "mass", "speed", "tint", "on"],
            "formats": [("<f4", 3), "<f2", ("<f4", 3), ("<f2", 4), "?"],
            "offsets": [0, 12, 16, 32, 40],
            "itemsize": 48,
        }
    )
    particles = np.zeros(5, layout)
    particles["position"] = np.arange(15).reshape(5, 3)
    particles["mass"], particles["tint"], particles["speed"] = 1.5, [1, 2, 3, 4], 9
    shift = np.arange(15, dtype=np.float32).reshape(5, 3) * 10
    result = run_file(compiled, {"p": particles, "shift": shift}, grid=(5, 1, 1), threadgroup=(5, 1, 1))
    assert result.findings == ()
    after = result.outputs["p"].view(layout).reshape(5)
    moved = (np.arange(15).reshape(5, 3) * 11) * [1, 2, 2]
    np.testing.assert_array_equal(after["position"], moved)
    np.testing.assert_array_equal(after["speed"], np.stack([moved[:, 2], moved[:, 0], np.full(5, 9)], 1))
    np.testing.assert_array_equal(after["tint"][:, 0], 5.5)
    assert after["on"].all()


def test_function_constants_and_attributes_of_every_kind(launch: Launcher) -> None:
    text = """#include <metal_stdlib>
using namespace metal;
constant int n [[function_constant(0)]];
constant bool has_n = is_function_constant_defined(n);
constant int rows = has_n ? n : 4;
constant uint2 pair [[function_constant(3)]];
[[max_total_threads_per_threadgroup(64)]] kernel void k(
    device float *o [[buffer(0)]], constant uint &scale [[buffer(1)]], constant array<float, 3> &list [[buffer(2)]],
    ushort lane [[thread_index_in_simdgroup]], uint2 tid [[thread_position_in_grid]],
    ushort3 inner [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
    ushort2 size [[threads_per_threadgroup]]) {
  o[tid.x] = rows * 1000 + scale * inner.x + list[group] + lane + size.x + pair.x;
}"""
    for constants, rows in (({}, 4), ({0: 7}, 7)):
        options = FileOptions(constants=constants)  # type: ignore[arg-type]
        compiled = compile_file(text, "k", mode="checked", cache=launch.cache, options=options)
        assert isinstance(compiled, CompiledFile), compiled.messages
        buffers = {"o": Fresh("float32", (24,)), "scale": np.uint32(2), "list": np.float32([0.25, 0.5, 0.75])}
        result = run_file(compiled, buffers, grid=(24, 1, 1), threadgroup=(8, 1, 1))
        lane = np.arange(24) % 8
        expected = rows * 1000 + 3 * lane + np.repeat([0.25, 0.5, 0.75], 8) + 8
        np.testing.assert_array_equal(result.outputs["o"], np.float32(expected))


def test_functions_that_the_documentation_lists_are_there() -> None:
    root = Path(__file__).parents[3]
    table = (root / "docs" / "metalsim-language.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1] for line in table.splitlines() if line.startswith(("| math", "| integer", "| relational"))
    ]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    headers = "".join(p.read_text(encoding="utf-8") for p in (root / "metalsim" / "include").rglob("*.h"))
    assert len(names) > 25
    assert {name for name in names if not re.search(rf"[ (]{name}[,(]", headers)} == set()
