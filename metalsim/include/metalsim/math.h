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

#define MSIM_UNARY(name, expression)                                                    \
    MSIM_INLINE float name(float x) { return expression; }                              \
    MSIM_INLINE half name(half h) { float x = (float)h; return (half)(expression); }    \
    MSIM_INLINE bfloat name(bfloat h) { float x = (float)h; return (bfloat)(expression); } \
    MSIM_VECTOR_UNARY(name)
#define MSIM_BINARY(name, expression)                                                   \
    MSIM_INLINE float name(float x, float y) { return expression; }                     \
    MSIM_INLINE half name(half a, half b) { float x = (float)a, y = (float)b; return (half)(expression); } \
    MSIM_INLINE bfloat name(bfloat a, bfloat b) { float x = (float)a, y = (float)b; return (bfloat)(expression); } \
    MSIM_VECTOR_BINARY(name)
#define MSIM_TERNARY(name, expression)                                                  \
    MSIM_INLINE float name(float x, float y, float z) { return expression; }            \
    MSIM_INLINE half name(half a, half b, half c) {                                     \
        float x = (float)a, y = (float)b, z = (float)c; return (half)(expression); }    \
    MSIM_INLINE bfloat name(bfloat a, bfloat b, bfloat c) {                             \
        float x = (float)a, y = (float)b, z = (float)c; return (bfloat)(expression); }  \
    MSIM_VECTOR_TERNARY(name)

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
MSIM_UNARY(sinpi, __builtin_sinf(x * 3.14159265358979323846f))
MSIM_UNARY(cospi, __builtin_cosf(x * 3.14159265358979323846f))
MSIM_UNARY(floor, __builtin_floorf(x))
MSIM_UNARY(ceil, __builtin_ceilf(x))
MSIM_UNARY(round, __builtin_roundf(x))
MSIM_UNARY(rint, __builtin_rintf(x))
MSIM_UNARY(trunc, __builtin_truncf(x))
MSIM_UNARY(fabs, __builtin_fabsf(x))
MSIM_UNARY(fract, __builtin_fminf(x - __builtin_floorf(x), 0.99999994f))
MSIM_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSIM_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? 0.0f : x)
MSIM_BINARY(pow, __builtin_powf(x, y))
MSIM_BINARY(powr, __builtin_powf(x, y))
MSIM_BINARY(atan2, __builtin_atan2f(x, y))
MSIM_BINARY(fmod, __builtin_fmodf(x, y))
MSIM_BINARY(fmin, __builtin_fminf(x, y))
MSIM_BINARY(fmax, __builtin_fmaxf(x, y))
MSIM_BINARY(fdim, x > y ? x - y : 0.0f)
MSIM_BINARY(copysign, __builtin_copysignf(x, y))
MSIM_BINARY(step, y < x ? 0.0f : 1.0f)
MSIM_BINARY(divide, x / y)
MSIM_BINARY(min, __builtin_fminf(x, y))
MSIM_BINARY(max, __builtin_fmaxf(x, y))
MSIM_TERNARY(fma, __builtin_fmaf(x, y, z))
MSIM_TERNARY(mix, x + (y - x) * z)
MSIM_TERNARY(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
MSIM_UNARY(abs, __builtin_fabsf(x))

MSIM_INLINE float smoothstep(float low, float high, float x) {
    float t = clamp((x - low) / (high - low), 0.0f, 1.0f);
    return t * t * (3.0f - 2.0f * t);
}
MSIM_INLINE float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
MSIM_INLINE half ldexp(half x, int e) { return (half)__builtin_ldexpf((float)x, e); }
MSIM_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }
MSIM_INLINE float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
template <class P> MSIM_INLINE float frexp(float x, P &e) { int k; float r = __builtin_frexpf(x, &k); e = k; return r; }
template <class P> MSIM_INLINE float modf(float x, P &whole) { whole = __builtin_truncf(x); return __builtin_copysignf(x - whole, x); }
template <class P> MSIM_INLINE float sincos(float x, P &c) { c = __builtin_cosf(x); return __builtin_sinf(x); }

#define MSIM_INTEGER(T)                                                                 \
    MSIM_INLINE T min(T a, T b) { return b < a ? b : a; }                               \
    MSIM_INLINE T max(T a, T b) { return a < b ? b : a; }                               \
    MSIM_INLINE T clamp(T a, T low, T high) { return min(max(a, low), high); }          \
    MSIM_INLINE T abs(T a) { return a < T(0) ? T(-a) : a; }                             \
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
    MSIM_INLINE T mulhi(T a, T b) { return T((__int128)a * (__int128)b >> (8 * sizeof(T))); } \
    MSIM_INLINE T madhi(T a, T b, T c) { return T(mulhi(a, b) + c); }                   \
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
MSIM_VECTOR_UNARY(popcount) MSIM_VECTOR_UNARY(clz) MSIM_VECTOR_UNARY(ctz) MSIM_VECTOR_UNARY(reverse_bits)
MSIM_VECTOR_BINARY(rotate) MSIM_VECTOR_BINARY(addsat) MSIM_VECTOR_BINARY(subsat)
MSIM_INLINE int mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
MSIM_INLINE uint mul24(uint a, uint b) { return (a & 0xffffff) * (b & 0xffffff); }
MSIM_INLINE int mad24(int a, int b, int c) { return mul24(a, b) + c; }
MSIM_INLINE uint mad24(uint a, uint b, uint c) { return mul24(a, b) + c; }
template <class A> MSIM_INLINE A max3(A a, A b, A c) { return max(max(a, b), c); }
template <class A> MSIM_INLINE A min3(A a, A b, A c) { return min(min(a, b), c); }

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
MSIM_TEST(isnormal, __builtin_isnormal(x))
MSIM_TEST(signbit, (as_type<uint>(x) >> 31) != 0)

template <class T, enable_if_t<msim::is_scalar<T>, int> = 0>
MSIM_INLINE T select(T a, T b, bool c) { return c ? b : a; }
template <class A, class B, class C, class V = msim::common_vector<A, B>, class M = msim::vector_of<C>>
MSIM_INLINE V select(const A &a, const B &b, const C &c) {
    V v(a), w(b), r;
    M m(c);
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
template <class A, class V = msim::vector_of<A>> MSIM_INLINE V normalize(const A &a) { return V(a) * rsqrt(dot(a, a)); }
template <class A, class B, class V = msim::common_vector<A, B>> MSIM_INLINE V cross(const A &a, const B &b) {
    V v(a), w(b);
    return V(v.y * w.z - v.z * w.y, v.z * w.x - v.x * w.z, v.x * w.y - v.y * w.x);
}

#define MSIM_MATH_NAMES                                                                 \
    using metal::exp; using metal::exp2; using metal::exp10; using metal::log; using metal::log2; \
    using metal::log10; using metal::sqrt; using metal::rsqrt; using metal::sin; using metal::cos; \
    using metal::tan; using metal::asin; using metal::acos; using metal::atan; using metal::sinh; \
    using metal::cosh; using metal::tanh; using metal::asinh; using metal::acosh; using metal::atanh; \
    using metal::sinpi; using metal::cospi; using metal::floor; using metal::ceil; using metal::round; \
    using metal::rint; using metal::trunc; using metal::fabs; using metal::fract; using metal::saturate; \
    using metal::pow; using metal::powr; using metal::atan2; using metal::fmod; using metal::fmin; \
    using metal::fmax; using metal::min; using metal::max; using metal::fma; using metal::clamp; \
    using metal::abs; using metal::ldexp; using metal::sincos; using metal::normalize; using metal::length; \
    using metal::distance;
namespace precise { MSIM_MATH_NAMES using metal::mix; using metal::divide; }
namespace fast {
MSIM_MATH_NAMES using metal::mix;
// Rounded as the exact division is; the flag tells the cost model that the GPU multiplies by a reciprocal.
MSIM_INLINE float msim_fast_divide(float x, float y) {
#pragma clang fp reciprocal(on)
    return x / y;
}
MSIM_BINARY(divide, msim_fast_divide(x, y))
}  // namespace fast

}  // namespace metal

#endif
