// Metal's mathematical, relational, integer and geometric functions.
//
// Unqualified and precise:: names are CUDA's accurate functions; fast:: names are the hardware's approximations.
namespace kx_metal {

template <class A, class R = void> using if_integral = enable_if_t<is_integral_v<A>, R>;
template <class A, class R = void> using if_scalar = enable_if_t<is_arithmetic_v<A>, R>;

// One function of float, for half and bfloat rounded once, for vectors by component.
#define KX_UNARY(NAME, VALUE)                                                             \
    KX_FN float NAME(float x) { return VALUE; }                                           \
    KX_FN half NAME(half a) { return half(NAME(float(a))); }                              \
    KX_FN bfloat NAME(bfloat a) { return bfloat(NAME(float(a))); }                        \
    template <class I> KX_FN if_integral<I, float> NAME(I a) { return NAME(float(a)); }   \
    template <class T, int N> KX_FN vec<T, N> NAME(const vec<T, N> &a) {                  \
        return kx_map<T>([](T p) { return NAME(p); }, a);                                 \
    }
#define KX_BINARY(NAME, VALUE)                                                            \
    KX_FN float NAME(float x, float y) { return VALUE; }                                  \
    KX_FN half NAME(half a, half b) { return half(NAME(float(a), float(b))); }            \
    KX_FN bfloat NAME(bfloat a, bfloat b) { return bfloat(NAME(float(a), float(b))); }    \
    template <class T, int N> KX_FN vec<T, N> NAME(const vec<T, N> &a, const vec<T, N> &b) { \
        return kx_map<T>([](T p, T q) { return NAME(p, q); }, a, b);                      \
    }
#define KX_TEST(NAME, VALUE)                                                              \
    KX_FN bool NAME(float x) { return VALUE; }                                            \
    KX_FN bool NAME(half a) { return NAME(float(a)); }                                    \
    KX_FN bool NAME(bfloat a) { return NAME(float(a)); }                                  \
    template <class T, int N> KX_FN vec<bool, N> NAME(const vec<T, N> &a) {               \
        return kx_map<bool>([](T p) { return NAME(p); }, a);                              \
    }

KX_UNARY(exp, ::expf(x)) KX_UNARY(exp2, ::exp2f(x)) KX_UNARY(exp10, ::exp10f(x))
KX_UNARY(log, ::logf(x)) KX_UNARY(log2, ::log2f(x)) KX_UNARY(log10, ::log10f(x)) KX_UNARY(log1p, ::log1pf(x))
KX_UNARY(sqrt, ::sqrtf(x)) KX_UNARY(rsqrt, ::rsqrtf(x))
KX_UNARY(sin, ::sinf(x)) KX_UNARY(cos, ::cosf(x)) KX_UNARY(tan, ::tanf(x))
KX_UNARY(asin, ::asinf(x)) KX_UNARY(acos, ::acosf(x)) KX_UNARY(atan, ::atanf(x))
KX_UNARY(sinh, ::sinhf(x)) KX_UNARY(cosh, ::coshf(x)) KX_UNARY(tanh, ::tanhf(x))
KX_UNARY(asinh, ::asinhf(x)) KX_UNARY(acosh, ::acoshf(x)) KX_UNARY(atanh, ::atanhf(x))
KX_UNARY(sinpi, ::sinpif(x)) KX_UNARY(cospi, ::cospif(x))
KX_UNARY(floor, ::floorf(x)) KX_UNARY(ceil, ::ceilf(x)) KX_UNARY(trunc, ::truncf(x))
KX_UNARY(round, ::roundf(x)) KX_UNARY(rint, ::rintf(x)) KX_UNARY(fabs, ::fabsf(x))
KX_UNARY(fract, ::fminf(x - ::floorf(x), 0.999999940395355225f))
KX_UNARY(saturate, __saturatef(x)) KX_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
KX_BINARY(pow, ::powf(x, y)) KX_BINARY(powr, ::powf(x, y)) KX_BINARY(fmod, ::fmodf(x, y))
KX_BINARY(atan2, ::atan2f(x, y)) KX_BINARY(copysign, ::copysignf(x, y)) KX_BINARY(fdim, ::fdimf(x, y))
KX_BINARY(divide, x / y)
KX_TEST(isnan, x != x) KX_TEST(isinf, ::fabsf(x) == INFINITY) KX_TEST(isfinite, ::fabsf(x) < INFINITY)
KX_TEST(signbit, __float_as_int(x) < 0) KX_TEST(isnormal, ::fabsf(x) < INFINITY && ::fabsf(x) >= FLT_MIN)

KX_FN float ldexp(float x, int k) { return ::ldexpf(x, k); }
KX_FN float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
KX_FN half fma(half a, half b, half c) { return half(__hfma(a.native, b.native, c.native)); }
KX_FN bfloat fma(bfloat a, bfloat b, bfloat c) { return bfloat(__hfma(a.native, b.native, c.native)); }
template <class T, int N> KX_FN vec<T, N> fma(const vec<T, N> &a, const vec<T, N> &b, const vec<T, N> &c) {
    vec<T, N> result;
    KX_UNROLL for (int i = 0; i < N; i++) result[i] = fma(a[i], b[i], c[i]);
    return result;
}

KX_FN float abs(float x) { return ::fabsf(x); }
KX_FN half abs(half x) { return half(__habs(x.native)); }
KX_FN bfloat abs(bfloat x) { return bfloat(__habs(x.native)); }
template <class I> KX_FN if_integral<I, I> abs(I x) { return x < I(0) ? I(-x) : x; }
template <class T, int N> KX_FN vec<T, N> abs(const vec<T, N> &a) {
    return kx_map<T>([](T p) { return abs(p); }, a);
}

// Of a number and a NaN, the number.
#define KX_EXTREME(NAME, OP, FLOAT)                                                                            \
    template <class A, class B, enable_if_t<is_arithmetic_v<A> && is_arithmetic_v<B>, int> = 0>                \
    KX_FN common_t<A, B> NAME(A a, B b) {                                                                      \
        using C = common_t<A, B>;                                                                              \
        if constexpr (is_integral_v<C>) {                                                                      \
            return C(b) OP C(a) ? C(b) : C(a);                                                                 \
        } else {                                                                                               \
            return C(FLOAT(float(a), float(b)));                                                               \
        }                                                                                                      \
    }                                                                                                          \
    template <class T, int N> KX_FN vec<T, N> NAME(const vec<T, N> &a, const vec<T, N> &b) {                   \
        return kx_map<T>([](T p, T q) { return NAME(p, q); }, a, b);                                           \
    }                                                                                                          \
    template <class T, int N, class S> KX_FN if_scalar<S, vec<T, N>> NAME(const vec<T, N> &a, S b) {           \
        return NAME(a, vec<T, N>(b));                                                                          \
    }                                                                                                          \
    template <class T, int N, class S> KX_FN if_scalar<S, vec<T, N>> NAME(S a, const vec<T, N> &b) {           \
        return NAME(vec<T, N>(a), b);                                                                          \
    }
KX_EXTREME(min, <, ::fminf) KX_EXTREME(max, >, ::fmaxf) KX_EXTREME(fmin, <, ::fminf) KX_EXTREME(fmax, >, ::fmaxf)
template <class A, class B, class C> KX_FN auto min3(A a, B b, C c) { return min(min(a, b), c); }
template <class A, class B, class C> KX_FN auto max3(A a, B b, C c) { return max(max(a, b), c); }

template <class X, class L, class H> KX_FN auto clamp(X x, L low, H high) { return min(max(x, low), high); }
template <class A, class B, class F> KX_FN A mix(A a, B b, F f) { return a + (b - a) * f; }
template <class E, class X> KX_FN X step(E edge, X x) { return x < edge ? X(0) : X(1); }
template <class X> KX_FN if_scalar<X, X> smoothstep(X low, X high, X x) {
    X t = clamp((x - low) / (high - low), X(0), X(1));
    return t * t * (X(3) - X(2) * t);
}
template <class T> KX_FN if_scalar<T, T> select(T no, T yes, bool which) { return which ? yes : no; }
template <class T, int N> KX_FN vec<T, N> select(const vec<T, N> &no, const vec<T, N> &yes, const vec<bool, N> &which) {
    vec<T, N> result;
    KX_UNROLL for (int i = 0; i < N; i++) result[i] = which[i] ? yes[i] : no[i];
    return result;
}
template <int N> KX_FN bool any(const vec<bool, N> &v) {
    bool result = false;
    KX_UNROLL for (int i = 0; i < N; i++) result |= v[i];
    return result;
}
template <int N> KX_FN bool all(const vec<bool, N> &v) {
    bool result = true;
    KX_UNROLL for (int i = 0; i < N; i++) result &= v[i];
    return result;
}
KX_FN bool any(bool v) { return v; }
KX_FN bool all(bool v) { return v; }

template <class I> KX_FN if_integral<I, I> popcount(I x) { return I(__popcll(ulong(make_unsigned_t<I>(x)))); }
template <class I> KX_FN if_integral<I, I> clz(I x) {
    return I(__clzll(long(ulong(make_unsigned_t<I>(x)))) - (64 - 8 * int(sizeof(I))));
}
template <class I> KX_FN if_integral<I, I> ctz(I x) { return x == I(0) ? I(8 * sizeof(I)) : I(__ffsll(long(x)) - 1); }
KX_FN uint reverse_bits(uint x) { return __brev(x); }
KX_FN int reverse_bits(int x) { return int(__brev(uint(x))); }
KX_FN uint rotate(uint x, uint by) { return __funnelshift_l(x, x, by); }
KX_FN int rotate(int x, int by) { return int(rotate(uint(x), uint(by))); }
KX_FN int mulhi(int a, int b) { return __mulhi(a, b); }
KX_FN uint mulhi(uint a, uint b) { return __umulhi(a, b); }
template <class I> KX_FN if_integral<I, I> mul24(I a, I b) { return a * b; }
template <class I> KX_FN if_integral<I, I> mad24(I a, I b, I c) { return a * b + c; }
template <class I> KX_FN if_integral<I, I> absdiff(I a, I b) { return a < b ? b - a : a - b; }
template <class I> KX_FN if_integral<I, I> extract_bits(I x, uint offset, uint bits) {
    if (bits == 0) return I(0);
    constexpr uint width = 8 * sizeof(I);
    return I(I(make_unsigned_t<I>(x) << (width - bits - offset)) >> (width - bits));
}
template <class I> KX_FN if_integral<I, I> insert_bits(I base, I insert, uint offset, uint bits) {
    using U = make_unsigned_t<I>;
    U mask = bits == 8 * sizeof(I) ? U(~U(0)) : U((U(1) << bits) - 1);
    return I((U(base) & U(~(mask << offset))) | ((U(insert) & mask) << offset));
}

template <class T, int N> KX_FN T dot(const vec<T, N> &a, const vec<T, N> &b) {
    T sum = a[0] * b[0];
    KX_UNROLL for (int i = 1; i < N; i++) sum += a[i] * b[i];
    return sum;
}
template <class T, int N> KX_FN T length_squared(const vec<T, N> &a) { return dot(a, a); }
template <class T, int N> KX_FN T length(const vec<T, N> &a) { return sqrt(dot(a, a)); }
template <class T, int N> KX_FN T distance(const vec<T, N> &a, const vec<T, N> &b) { return length(a - b); }
template <class T, int N> KX_FN vec<T, N> normalize(const vec<T, N> &a) { return a * rsqrt(dot(a, a)); }
template <class T> KX_FN vec<T, 3> cross(const vec<T, 3> &a, const vec<T, 3> &b) {
    return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

#define KX_SAME(NAME) using kx_metal::NAME;
#define KX_SAME_EVERYWHERE                                                                                     \
    KX_SAME(sinh) KX_SAME(cosh) KX_SAME(asin) KX_SAME(acos) KX_SAME(atan) KX_SAME(atan2) KX_SAME(asinh)        \
    KX_SAME(acosh) KX_SAME(atanh) KX_SAME(floor) KX_SAME(ceil) KX_SAME(trunc) KX_SAME(round) KX_SAME(rint)     \
    KX_SAME(fabs) KX_SAME(abs) KX_SAME(fract) KX_SAME(saturate) KX_SAME(sign) KX_SAME(fmod) KX_SAME(copysign)  \
    KX_SAME(fma) KX_SAME(min) KX_SAME(max) KX_SAME(fmin) KX_SAME(fmax) KX_SAME(clamp) KX_SAME(mix)             \
    KX_SAME(isnan) KX_SAME(isinf) KX_SAME(isfinite) KX_SAME(length) KX_SAME(distance) KX_SAME(dot) KX_SAME(tanh)

namespace precise {
KX_SAME_EVERYWHERE
KX_SAME(exp) KX_SAME(exp2) KX_SAME(exp10) KX_SAME(log) KX_SAME(log2) KX_SAME(log10) KX_SAME(sqrt) KX_SAME(rsqrt)
KX_SAME(sin) KX_SAME(cos) KX_SAME(tan) KX_SAME(pow) KX_SAME(powr) KX_SAME(divide) KX_SAME(normalize)
}  // namespace precise

namespace fast {
KX_SAME_EVERYWHERE
KX_FN float kx_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KX_FN float kx_sqrt(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KX_FN float kx_rsqrt(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
KX_UNARY(exp, kx_exp2(x * 1.44269504088896340736f)) KX_UNARY(exp2, kx_exp2(x)) KX_UNARY(exp10, __exp10f(x))
KX_UNARY(log, __logf(x)) KX_UNARY(log2, __log2f(x)) KX_UNARY(log10, __log10f(x))
KX_UNARY(sqrt, kx_sqrt(x)) KX_UNARY(rsqrt, kx_rsqrt(x))
KX_UNARY(sin, __sinf(x)) KX_UNARY(cos, __cosf(x)) KX_UNARY(tan, __tanf(x))
KX_BINARY(pow, __powf(x, y)) KX_BINARY(powr, __powf(x, y)) KX_BINARY(divide, __fdividef(x, y))
template <class T, int N> KX_FN vec<T, N> normalize(const vec<T, N> &a) { return a * rsqrt(dot(a, a)); }
}  // namespace fast

}  // namespace kx_metal
