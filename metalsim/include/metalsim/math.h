/* Math of the Metal standard library. Scalars are overloads, as in Metal, so that mixed types are
 * ambiguous where Metal finds them so; vectors and swizzles go component by component.
 *
 * Fidelity: everything is computed by the machine's libm in float; metal::fast is the same as
 * metal::precise. half and bfloat round once at the end.
 */
#ifndef METALSIM_MATH_H
#define METALSIM_MATH_H

#include "vec.h"

namespace metal {

#define MSIM_VECTOR_UNARY(name)                                                         \
    template <class A, class V = msim::vector_of<A>> MSIM_INLINE V name(const A &a) {   \
        V v(a), r;                                                                      \
        for (int i = 0; i < V::width; i++) r.element[i] = name(v.element[i]);           \
        return r;                                                                       \
    }
#define MSIM_VECTOR_BINARY(name)                                                        \
    template <class A, class B, class V = msim::common_vector<A, B>>                    \
    MSIM_INLINE V name(const A &a, const B &b) {                                        \
        V v(a), w(b), r;                                                                \
        for (int i = 0; i < V::width; i++) r.element[i] = name(v.element[i], w.element[i]); \
        return r;                                                                       \
    }
#define MSIM_VECTOR_TERNARY(name)                                                       \
    template <class A, class B, class C, class V = msim::common_vector<A, B, C>>        \
    MSIM_INLINE V name(const A &a, const B &b, const C &c) {                            \
        V v(a), w(b), u(c), r;                                                          \
        for (int i = 0; i < V::width; i++) r.element[i] = name(v.element[i], w.element[i], u.element[i]); \
        return r;                                                                       \
    }

#define MSIM_UNARY_SCALARS(name, expression)                                                    \
    MSIM_INLINE float name(float x) { return expression; }                              \
    MSIM_INLINE half name(half h) { float x = (float)h; return (half)(expression); }    \
    MSIM_INLINE bfloat name(bfloat h) { float x = (float)h; return (bfloat)(expression); }
#define MSIM_UNARY(name, expression) MSIM_UNARY_SCALARS(name, expression) MSIM_VECTOR_UNARY(name)
#define MSIM_BINARY_SCALARS(name, expression)                                                   \
    MSIM_INLINE float name(float x, float y) { return expression; }                     \
    MSIM_INLINE half name(half a, half b) { float x = (float)a, y = (float)b; return (half)(expression); } \
    MSIM_INLINE bfloat name(bfloat a, bfloat b) { float x = (float)a, y = (float)b; return (bfloat)(expression); }
#define MSIM_BINARY(name, expression) MSIM_BINARY_SCALARS(name, expression) MSIM_VECTOR_BINARY(name)
#define MSIM_TERNARY_SCALARS(name, expression)                                                  \
    MSIM_INLINE float name(float x, float y, float z) { return expression; }            \
    MSIM_INLINE half name(half a, half b, half c) {                                     \
        float x = (float)a, y = (float)b, z = (float)c; return (half)(expression); }    \
    MSIM_INLINE bfloat name(bfloat a, bfloat b, bfloat c) {                             \
        float x = (float)a, y = (float)b, z = (float)c; return (bfloat)(expression); }
#define MSIM_TERNARY(name, expression) MSIM_TERNARY_SCALARS(name, expression) MSIM_VECTOR_TERNARY(name)

MSIM_UNARY(exp, __builtin_expf(x))
MSIM_UNARY(exp2, __builtin_exp2f(x))
MSIM_UNARY(exp10, __builtin_powf(10.0f, x))
MSIM_UNARY(log, __builtin_logf(x))
MSIM_UNARY(log2, __builtin_log2f(x))
MSIM_UNARY(log10, __builtin_log10f(x))
MSIM_UNARY(sqrt, __builtin_sqrtf(x))
MSIM_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
MSIM_UNARY(sin, __builtin_sinf(x))
MSIM_UNARY(cos, __builtin_cosf(x))
MSIM_UNARY(tan, __builtin_tanf(x))
MSIM_UNARY(asin, __builtin_asinf(x))
MSIM_UNARY(acos, __builtin_acosf(x))
MSIM_UNARY(atan, __builtin_atanf(x))
MSIM_UNARY(sinh, __builtin_sinhf(x))
MSIM_UNARY(cosh, __builtin_coshf(x))
MSIM_UNARY(tanh, __builtin_tanhf(x))
MSIM_UNARY(asinh, __builtin_asinhf(x))
MSIM_UNARY(acosh, __builtin_acoshf(x))
MSIM_UNARY(atanh, __builtin_atanhf(x))
/* Exact where the result is: the argument is taken into [-0.5, 0.5] first. */
MSIM_INLINE float msim_sinpi(float x) {
    float r = x - 2.0f * __builtin_rintf(0.5f * x), a = __builtin_fabsf(r);
    return __builtin_sinf(__builtin_copysignf(a > 0.5f ? 1.0f - a : a, r) * M_PI_F);
}
MSIM_INLINE float msim_cospi(float x) {
    return __builtin_sinf((0.5f - __builtin_fabsf(x - 2.0f * __builtin_rintf(0.5f * x))) * M_PI_F);
}
MSIM_UNARY(sinpi, msim_sinpi(x))
MSIM_UNARY(cospi, msim_cospi(x))
MSIM_UNARY(tanpi, msim_sinpi(x) / msim_cospi(x))
MSIM_UNARY(floor, __builtin_floorf(x))
MSIM_UNARY(ceil, __builtin_ceilf(x))
MSIM_UNARY(round, __builtin_roundf(x))
MSIM_UNARY(rint, __builtin_rintf(x))
MSIM_UNARY(trunc, __builtin_truncf(x))
MSIM_UNARY(fabs, __builtin_fabsf(x))
MSIM_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSIM_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? 0.0f : x)
MSIM_BINARY(pow, __builtin_powf(x, y))
MSIM_BINARY(powr, __builtin_powf(x, y))
MSIM_BINARY(atan2, __builtin_atan2f(x, y))
MSIM_BINARY(fmod, __builtin_fmodf(x, y))
MSIM_BINARY(fmin, __builtin_fminf(x, y))
MSIM_BINARY(fmax, __builtin_fmaxf(x, y))
MSIM_BINARY(fdim, x <= y ? 0.0f : x - y)
MSIM_BINARY(copysign, __builtin_copysignf(x, y))
MSIM_BINARY(step, y < x ? 0.0f : 1.0f)
MSIM_BINARY(divide, x / y)
MSIM_BINARY_SCALARS(min, __builtin_fminf(x, y))
MSIM_BINARY_SCALARS(max, __builtin_fmaxf(x, y))
MSIM_TERNARY(fma, __builtin_fmaf(x, y, z))
MSIM_TERNARY(mix, x + (y - x) * z)
MSIM_TERNARY_SCALARS(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
MSIM_UNARY_SCALARS(abs, __builtin_fabsf(x))

MSIM_TERNARY_SCALARS(median3, __builtin_fmaxf(__builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z)))
MSIM_TERNARY(fmedian3, __builtin_fmaxf(__builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z)))
MSIM_TERNARY_SCALARS(min3, __builtin_fminf(x, __builtin_fminf(y, z)))
MSIM_TERNARY(fmin3, __builtin_fminf(x, __builtin_fminf(y, z)))
MSIM_TERNARY_SCALARS(max3, __builtin_fmaxf(x, __builtin_fmaxf(y, z)))
MSIM_TERNARY(fmax3, __builtin_fmaxf(x, __builtin_fmaxf(y, z)))
MSIM_INLINE float msim_smoothstep(float low, float high, float x) {
    float t = clamp((x - low) / (high - low), 0.0f, 1.0f);
    return t * t * (3.0f - 2.0f * t);
}
MSIM_TERNARY(smoothstep, msim_smoothstep(x, y, z))

/* Below 1 also after rounding: the largest value that each type has there. */
#define MSIM_FRACT(T, BELOW_ONE)                                                        \
    MSIM_INLINE T fract(T h) {                                                          \
        float x = (float)h, r = x - __builtin_floorf(x);                                \
        return (T)__builtin_fminf((float)(T)r, BELOW_ONE);                              \
    }
MSIM_FRACT(float, 0x1.fffffep-1f) MSIM_FRACT(half, 0x1.ffcp-1f) MSIM_FRACT(bfloat, 0x1.fep-1f)
#undef MSIM_FRACT
MSIM_VECTOR_UNARY(fract)

/* Functions with an exponent or a second result; P is in any address space. */
#define MSIM_PARTS(T)                                                                   \
    MSIM_INLINE T ldexp(T x, int e) { return (T)__builtin_ldexpf((float)x, e); }        \
    MSIM_INLINE int ilogb(T x) { return __builtin_ilogbf((float)x); }                   \
    template <class P> MSIM_INLINE T frexp(T x, P &exponent) {                          \
        int e = 0;                                                                      \
        float r = __builtin_frexpf((float)x, &e);                                       \
        exponent = e;                                                                   \
        return (T)r;                                                                    \
    }                                                                                   \
    template <class P> MSIM_INLINE T modf(T x, P &whole) {                              \
        float w = __builtin_truncf((float)x);                                           \
        whole = (T)w;                                                                   \
        bool infinite = __builtin_fabsf((float)x) == __builtin_inff();                  \
        return (T)__builtin_copysignf(infinite ? 0.0f : (float)x - w, (float)x);        \
    }                                                                                   \
    template <class P> MSIM_INLINE T sincos(T x, P &c) {                                \
        c = (T)__builtin_cosf((float)x);                                                \
        return (T)__builtin_sinf((float)x);                                             \
    }
MSIM_PARTS(float) MSIM_PARTS(half) MSIM_PARTS(bfloat)
#undef MSIM_PARTS
#define MSIM_VECTOR_PARTS(name, Part)                                                   \
    template <class A, class P, class V = msim::vector_of<A>> MSIM_INLINE V name(const A &a, P &parts) { \
        V v(a), r;                                                                      \
        for (int i = 0; i < V::width; i++) {                                            \
            Part part;                                                                  \
            r.element[i] = name(v.element[i], part);                                    \
            parts[i] = part;                                                            \
        }                                                                               \
        return r;                                                                       \
    }
MSIM_VECTOR_PARTS(frexp, int) MSIM_VECTOR_PARTS(modf, typename V::value_type)
MSIM_VECTOR_PARTS(sincos, typename V::value_type)
#undef MSIM_VECTOR_PARTS
template <class A, class B, class V = msim::vector_of<A>> MSIM_INLINE V ldexp(const A &a, const B &exponents) {
    V v(a), r;
    vec<int, V::width> e(exponents);
    for (int i = 0; i < V::width; i++) r.element[i] = ldexp(v.element[i], e.element[i]);
    return r;
}
template <class A, class V = msim::vector_of<A>> MSIM_INLINE vec<int, V::width> ilogb(const A &a) {
    V v(a);
    vec<int, V::width> r;
    for (int i = 0; i < V::width; i++) r.element[i] = ilogb(v.element[i]);
    return r;
}

MSIM_INLINE float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
#define MSIM_NEXTAFTER(T)                                                               \
    MSIM_INLINE T nextafter(T x, T y) {                                                 \
        float a = (float)x, b = (float)y;                                               \
        if (a != a || a == b) return a != a ? x : y;                                    \
        if (b != b) return y;                                                           \
        if (a == 0.0f) return as_type<T>(ushort(b < 0.0f ? 0x8001 : 1));                \
        ushort bits = as_type<ushort>(x);                                               \
        return as_type<T>(ushort((a < b) == (a > 0.0f) ? bits + 1 : bits - 1));         \
    }
MSIM_NEXTAFTER(half) MSIM_NEXTAFTER(bfloat)
#undef MSIM_NEXTAFTER
MSIM_VECTOR_BINARY(nextafter)

}  // namespace metal
namespace msim {
template <class T, unsigned long bytes = sizeof(T), bool is_signed = metal::is_signed_v<T>> struct wider {
    using type = metal::conditional_t<is_signed, long, unsigned long>;
};
template <class T> struct wider<T, 8, true> { using type = __int128; };
template <class T> struct wider<T, 8, false> { using type = unsigned __int128; };
template <class T> using double_width = typename wider<T>::type;
}  // namespace msim
namespace metal {

#define MSIM_INTEGER(T)                                                                 \
    MSIM_INLINE T min(T a, T b) { return b < a ? b : a; }                               \
    MSIM_INLINE T max(T a, T b) { return a < b ? b : a; }                               \
    MSIM_INLINE T clamp(T a, T low, T high) { return min(max(a, low), high); }          \
    MSIM_INLINE T abs(T a) { using U = make_unsigned_t<T>; return a < T(0) ? T(U(0) - (U)a) : a; } \
    MSIM_INLINE T popcount(T a) { return (T)__builtin_popcountll((make_unsigned_t<T>)a); } \
    MSIM_INLINE T clz(T a) {                                                            \
        return a ? T(__builtin_clzll((make_unsigned_t<T>)a) - (64 - 8 * sizeof(T))) : T(8 * sizeof(T)); } \
    MSIM_INLINE T ctz(T a) { return a ? T(__builtin_ctzll((make_unsigned_t<T>)a)) : T(8 * sizeof(T)); } \
    MSIM_INLINE T reverse_bits(T a) {                                                   \
        return T(__builtin_bitreverse64((make_unsigned_t<T>)a) >> (64 - 8 * sizeof(T))); } \
    MSIM_INLINE T rotate(T a, T n) {                                                    \
        using U = make_unsigned_t<T>; unsigned bits = 8 * sizeof(T), k = (U)n % bits;   \
        return T(((U)a << k) | ((U)a >> ((bits - k) % bits))); }                        \
    MSIM_INLINE T addsat(T a, T b) {                                                    \
        T r; return __builtin_add_overflow(a, b, &r) ? (b < T(0) ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r; } \
    MSIM_INLINE T subsat(T a, T b) {                                                    \
        T r; return __builtin_sub_overflow(a, b, &r) ? (is_signed_v<T> && b < T(0) ? numeric_limits<T>::max() : numeric_limits<T>::min()) : r; } \
    MSIM_INLINE make_unsigned_t<T> absdiff(T a, T b) {                                  \
        using U = make_unsigned_t<T>; return a < b ? U((U)b - (U)a) : U((U)a - (U)b); } \
    MSIM_INLINE T hadd(T a, T b) { return T((a >> 1) + (b >> 1) + (a & b & 1)); }       \
    MSIM_INLINE T rhadd(T a, T b) { return T((a >> 1) + (b >> 1) + ((a | b) & 1)); }    \
    MSIM_INLINE T mulhi(T a, T b) {                                                     \
        using W = msim::double_width<T>; return T((W)a * (W)b >> (8 * sizeof(T))); }    \
    MSIM_INLINE T madhi(T a, T b, T c) { return T((make_unsigned_t<T>)mulhi(a, b) + (make_unsigned_t<T>)c); } \
    MSIM_INLINE T madsat(T a, T b, T c) {                                               \
        using W = msim::double_width<T>; W r = (W)a * (W)b + (W)c;                      \
        W low = numeric_limits<T>::min(), high = numeric_limits<T>::max();              \
        return T(r < low ? low : r > high ? high : r); }                                \
    MSIM_INLINE T min3(T a, T b, T c) { return min(a, min(b, c)); }                     \
    MSIM_INLINE T max3(T a, T b, T c) { return max(a, max(b, c)); }                     \
    MSIM_INLINE T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }  \
    MSIM_INLINE T extract_bits(T a, uint offset, uint bits) {                           \
        if (!bits) return T(0);                                                         \
        unsigned rest = 8 * sizeof(T) - bits;                                           \
        return T(T((make_unsigned_t<T>)a << (rest - offset)) >> rest); }                \
    MSIM_INLINE T insert_bits(T base, T insert, uint offset, uint bits) {               \
        using U = make_unsigned_t<T>;                                                   \
        U mask = U((bits >= 8 * sizeof(T) ? ~0ul : ((1ul << bits) - 1)) << offset);     \
        return T(((U)base & ~mask) | (((U)insert << offset) & mask)); }
MSIM_INTEGER(char) MSIM_INTEGER(int8_t) MSIM_INTEGER(uchar) MSIM_INTEGER(short) MSIM_INTEGER(ushort)
MSIM_INTEGER(int) MSIM_INTEGER(uint) MSIM_INTEGER(long) MSIM_INTEGER(ulong)
MSIM_VECTOR_UNARY(abs) MSIM_VECTOR_BINARY(min) MSIM_VECTOR_BINARY(max) MSIM_VECTOR_TERNARY(clamp)
MSIM_VECTOR_TERNARY(min3) MSIM_VECTOR_TERNARY(max3) MSIM_VECTOR_TERNARY(median3)
MSIM_VECTOR_UNARY(popcount) MSIM_VECTOR_UNARY(clz) MSIM_VECTOR_UNARY(ctz) MSIM_VECTOR_UNARY(reverse_bits)
MSIM_VECTOR_BINARY(rotate) MSIM_VECTOR_BINARY(addsat) MSIM_VECTOR_BINARY(subsat) MSIM_VECTOR_BINARY(hadd)
MSIM_VECTOR_BINARY(rhadd) MSIM_VECTOR_BINARY(mulhi) MSIM_VECTOR_TERNARY(madhi) MSIM_VECTOR_TERNARY(madsat)
template <class A, class B, class V = msim::common_vector<A, B>>
MSIM_INLINE vec<make_unsigned_t<typename V::value_type>, V::width> absdiff(const A &a, const B &b) {
    V v(a), w(b);
    vec<make_unsigned_t<typename V::value_type>, V::width> r;
    for (int i = 0; i < V::width; i++) r.element[i] = absdiff(v.element[i], w.element[i]);
    return r;
}
template <class A, class V = msim::vector_of<A>> MSIM_INLINE V extract_bits(const A &a, uint offset, uint bits) {
    V v(a), r;
    for (int i = 0; i < V::width; i++) r.element[i] = extract_bits(v.element[i], offset, bits);
    return r;
}
template <class A, class B, class V = msim::vector_of<A>>
MSIM_INLINE V insert_bits(const A &base, const B &insert, uint offset, uint bits) {
    V v(base), w(insert), r;
    for (int i = 0; i < V::width; i++) r.element[i] = insert_bits(v.element[i], w.element[i], offset, bits);
    return r;
}
/* On 24 bits; what is above them is undefined in Metal and dropped here. */
MSIM_INLINE int mul24(int a, int b) { return int(uint(int(uint(a) << 8) >> 8) * uint(int(uint(b) << 8) >> 8)); }
MSIM_INLINE uint mul24(uint a, uint b) { return (a & 0xffffff) * (b & 0xffffff); }
MSIM_INLINE int mad24(int a, int b, int c) { return int(uint(mul24(a, b)) + uint(c)); }
MSIM_INLINE uint mad24(uint a, uint b, uint c) { return mul24(a, b) + c; }
MSIM_VECTOR_BINARY(mul24) MSIM_VECTOR_TERNARY(mad24)

#define MSIM_TEST(name, expression)                                                     \
    MSIM_INLINE bool name(float x) { return expression; }                               \
    MSIM_INLINE bool name(half h) { float x = (float)h; return expression; }            \
    MSIM_INLINE bool name(bfloat h) { float x = (float)h; return expression; }          \
    template <class A, class V = msim::vector_of<A>> MSIM_INLINE vec<bool, V::width> name(const A &a) { \
        V v(a); vec<bool, V::width> r;                                                  \
        for (int i = 0; i < V::width; i++) r.element[i] = name(v.element[i]);           \
        return r;                                                                       \
    }
MSIM_TEST(isnan, x != x)
MSIM_TEST(isinf, __builtin_fabsf(x) == __builtin_inff())
MSIM_TEST(isfinite, __builtin_fabsf(x) < __builtin_inff())
MSIM_TEST(signbit, (as_type<uint>(x) >> 31) != 0)
/* Of each type's own range: a half that is not normal is a normal float. */
#define MSIM_NORMAL(T) \
    MSIM_INLINE bool isnormal(T x) { return isfinite(x) && __builtin_fabsf((float)x) >= (float)numeric_limits<T>::min(); }
MSIM_NORMAL(float) MSIM_NORMAL(half) MSIM_NORMAL(bfloat)
#undef MSIM_NORMAL
template <class A, class V = msim::vector_of<A>> MSIM_INLINE vec<bool, V::width> isnormal(const A &a) {
    V v(a);
    vec<bool, V::width> r;
    for (int i = 0; i < V::width; i++) r.element[i] = isnormal(v.element[i]);
    return r;
}
#define MSIM_ORDER(T)                                                                   \
    MSIM_INLINE bool isunordered(T x, T y) { return isnan(x) || isnan(y); }             \
    MSIM_INLINE bool isordered(T x, T y) { return !isunordered(x, y); }
MSIM_ORDER(float) MSIM_ORDER(half) MSIM_ORDER(bfloat)
#undef MSIM_ORDER
template <class A, class B, class V = msim::common_vector<A, B>>
MSIM_INLINE vec<bool, V::width> isunordered(const A &a, const B &b) { return isnan(V(a)) | isnan(V(b)); }
template <class A, class B, class V = msim::common_vector<A, B>>
MSIM_INLINE vec<bool, V::width> isordered(const A &a, const B &b) { return !isunordered(a, b); }

template <class T, enable_if_t<msim::is_scalar<T>, int> = 0>
MSIM_INLINE T select(T a, T b, bool c) { return c ? b : a; }
template <class A, class B, class C, class V = msim::common_vector<A, B>>
MSIM_INLINE V select(const A &a, const B &b, const C &c) {
    V v(a), w(b), r;
    vec<bool, V::width> m(c);
    for (int i = 0; i < V::width; i++) r.element[i] = m.element[i] ? w.element[i] : v.element[i];
    return r;
}
template <class A, class V = msim::vector_of<A>> MSIM_INLINE bool any(const A &a) {
    V v(a); bool r = false;
    for (int i = 0; i < V::width; i++) r |= (bool)v.element[i];
    return r;
}
template <class A, class V = msim::vector_of<A>> MSIM_INLINE bool all(const A &a) {
    V v(a); bool r = true;
    for (int i = 0; i < V::width; i++) r &= (bool)v.element[i];
    return r;
}
MSIM_INLINE bool any(bool x) { return x; }
MSIM_INLINE bool all(bool x) { return x; }

template <class A, class B, class V = msim::common_vector<A, B>>
MSIM_INLINE typename V::value_type dot(const A &a, const B &b) {
    V v(a), w(b);
    typename V::value_type r = v.element[0] * w.element[0];
    for (int i = 1; i < V::width; i++) r = r + v.element[i] * w.element[i];
    return r;
}
template <class A, class V = msim::vector_of<A>> MSIM_INLINE typename V::value_type length_squared(const A &a) { return dot(a, a); }
template <class A, class V = msim::vector_of<A>> MSIM_INLINE typename V::value_type length(const A &a) { return sqrt(dot(a, a)); }
template <class A, class B, class V = msim::common_vector<A, B>>
MSIM_INLINE typename V::value_type distance(const A &a, const B &b) { return length(V(a) - V(b)); }
template <class A, class B, class V = msim::common_vector<A, B>>
MSIM_INLINE typename V::value_type distance_squared(const A &a, const B &b) { return length_squared(V(a) - V(b)); }
template <class A, class V = msim::vector_of<A>> MSIM_INLINE V normalize(const A &a) { return V(a) * rsqrt(dot(a, a)); }
template <class A, class B, class V = msim::common_vector<A, B>> MSIM_INLINE V cross(const A &a, const B &b) {
    V v(a), w(b);
    return V(v.y * w.z - v.z * w.y, v.z * w.x - v.x * w.z, v.x * w.y - v.y * w.x);
}

template <class A, class B, class C, class V = msim::common_vector<A, B, C>>
MSIM_INLINE V faceforward(const A &normal, const B &incident, const C &reference) {
    V n(normal);
    return dot(V(reference), V(incident)) < typename V::value_type(0) ? n : -n;
}
template <class A, class B, class V = msim::common_vector<A, B>> MSIM_INLINE V reflect(const A &incident, const B &normal) {
    V i(incident), n(normal);
    return i - n * (dot(n, i) * typename V::value_type(2));
}
template <class A, class B, class E, class V = msim::common_vector<A, B>>
MSIM_INLINE V refract(const A &incident, const B &normal, E ratio) {
    V i(incident), n(normal);
    using T = typename V::value_type;
    T eta = T(ratio), cosine = dot(n, i), k = T(1) - eta * eta * (T(1) - cosine * cosine);
    return k < T(0) ? V(T(0)) : i * eta - n * (eta * cosine + sqrt(k));
}

#define MSIM_MATH_NAMES \
    using metal::acos; using metal::acosh; using metal::asin; using metal::asinh; using metal::atan; \
    using metal::atan2; using metal::atanh; using metal::ceil; using metal::copysign; using metal::cos; \
    using metal::cosh; using metal::cospi; using metal::exp; using metal::exp2; using metal::exp10; \
    using metal::fabs; using metal::abs; using metal::fdim; using metal::floor; using metal::fma; \
    using metal::fmax; using metal::fmax3; using metal::fmedian3; using metal::fmin; using metal::fmin3; \
    using metal::fmod; using metal::fract; using metal::frexp; using metal::ilogb; using metal::ldexp; \
    using metal::log; using metal::log2; using metal::log10; using metal::max; using metal::max3; \
    using metal::median3; using metal::min; using metal::min3; using metal::modf; using metal::nextafter; \
    using metal::pow; using metal::powr; using metal::rint; using metal::round; using metal::rsqrt; \
    using metal::sin; using metal::sincos; using metal::sinh; using metal::sinpi; using metal::sqrt; \
    using metal::tan; using metal::tanh; using metal::tanpi; using metal::trunc; using metal::clamp; \
    using metal::mix; using metal::saturate; using metal::sign; using metal::smoothstep; using metal::step; \
    using metal::isnan; using metal::isinf; using metal::isfinite; using metal::isnormal; \
    using metal::isordered; using metal::isunordered; using metal::signbit; using metal::dot; \
    using metal::cross; using metal::length; using metal::length_squared; using metal::distance; \
    using metal::distance_squared; using metal::normalize; using metal::reflect; using metal::refract; \
    using metal::faceforward;
namespace precise { MSIM_MATH_NAMES using metal::divide; }
namespace fast {
MSIM_MATH_NAMES
// Rounded as the exact division is; the flag tells the cost model that the GPU multiplies by a reciprocal.
MSIM_INLINE float msim_fast_divide(float x, float y) {
#pragma clang fp reciprocal(on)
    return x / y;
}
MSIM_BINARY(divide, msim_fast_divide(x, y))
}  // namespace fast

}  // namespace metal

#endif
