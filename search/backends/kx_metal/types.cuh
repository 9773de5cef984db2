// Metal's scalar types for the text of a Metal kernel that NVRTC compiles. Needs cuda_fp16.h and cuda_bf16.h, which
// MLX includes before the text of a custom kernel.
//
// All names live in kx_metal, together with the kernel's own text: they come before CUDA's names of the same spelling.
#include <cuda/std/limits>
#include <cuda/std/type_traits>

#define KX_FN __device__ __forceinline__
#define KX_UNROLL _Pragma("unroll")

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
#undef HUGE_VALF
#define HUGE_VALF __int_as_float(0x7f800000)
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#endif
#ifndef FLT_MIN
#define FLT_MIN 1.175494351e-38f
#endif
#ifndef FLT_EPSILON
#define FLT_EPSILON 1.192092896e-07f
#endif
#ifndef INT_MAX
#define INT_MAX 2147483647
#endif
#ifndef UINT_MAX
#define UINT_MAX 4294967295u
#endif
#define MAXFLOAT FLT_MAX
#define MAXHALF 65504.0f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

namespace kx_metal {

namespace metal = ::kx_metal;

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
// NVRTC's are long long, which is another type.
using int64_t = long;
using uint64_t = unsigned long;

using cuda::std::bool_constant;
using cuda::std::conditional_t;
using cuda::std::decay_t;
using cuda::std::enable_if;
using cuda::std::enable_if_t;
using cuda::std::false_type;
using cuda::std::integral_constant;
using cuda::std::is_integral_v;
using cuda::std::is_same;
using cuda::std::is_same_v;
using cuda::std::is_signed_v;
using cuda::std::is_unsigned_v;
using cuda::std::make_unsigned_t;
using cuda::std::remove_cv_t;
using cuda::std::remove_reference_t;
using cuda::std::true_type;

struct half;
struct bfloat;

template <class X> inline constexpr bool is_small_float_v = is_same_v<X, half> || is_same_v<X, bfloat>;
template <class X>
inline constexpr bool is_floating_point_v = cuda::std::is_floating_point_v<X> || is_small_float_v<X>;
template <class X> inline constexpr bool is_arithmetic_v = cuda::std::is_arithmetic_v<X> || is_small_float_v<X>;
// Metal converts integers to the small float that they meet; half and bfloat don't mix.
template <class H, class A, class B>
inline constexpr bool is_pair_of = (is_same_v<A, H> && (is_same_v<B, H> || is_integral_v<B>)) ||
                                   (is_same_v<B, H> && is_integral_v<A>);

#define KX_SMALL_FLOAT(NAME, OTHER, NATIVE, TO_FLOAT, FROM_FLOAT)                                              \
    struct NAME {                                                                                              \
        NATIVE native;                                                                                         \
        NAME() = default;                                                                                      \
        KX_FN NAME(NATIVE value) : native(value) {}                                                            \
        template <class X, enable_if_t<cuda::std::is_arithmetic_v<X>, int> = 0>                                \
        KX_FN NAME(X value) : native(FROM_FLOAT(float(value))) {}                                              \
        explicit KX_FN NAME(const OTHER &value);                                                               \
        KX_FN operator float() const { return TO_FLOAT(native); }                                              \
        template <class X> KX_FN NAME &operator+=(X x) { return *this = NAME(*this + x); }                     \
        template <class X> KX_FN NAME &operator-=(X x) { return *this = NAME(*this - x); }                     \
        template <class X> KX_FN NAME &operator*=(X x) { return *this = NAME(*this * x); }                     \
        template <class X> KX_FN NAME &operator/=(X x) { return *this = NAME(*this / x); }                     \
        KX_FN NAME &operator++() { return *this += 1; }                                                        \
        KX_FN NAME &operator--() { return *this -= 1; }                                                        \
    };                                                                                                         \
    KX_FN NAME operator-(NAME a) { return NAME(__hneg(a.native)); }                                            \
    KX_SMALL_OPERATOR(NAME, +, __hadd)                                                                         \
    KX_SMALL_OPERATOR(NAME, -, __hsub)                                                                         \
    KX_SMALL_OPERATOR(NAME, *, __hmul)                                                                         \
    KX_SMALL_OPERATOR(NAME, /, __hdiv)

#define KX_SMALL_OPERATOR(NAME, OP, FUNCTION)                                                                  \
    template <class A, class B, enable_if_t<is_pair_of<NAME, A, B>, int> = 0>                                  \
    KX_FN NAME operator OP(A a, B b) { return NAME(FUNCTION(NAME(a).native, NAME(b).native)); }

KX_SMALL_FLOAT(half, bfloat, __half, __half2float, __float2half_rn)
KX_SMALL_FLOAT(bfloat, half, __nv_bfloat16, __bfloat162float, __float2bfloat16_rn)
KX_FN half::half(const bfloat &value) : native(__float2half_rn(float(value))) {}
KX_FN bfloat::bfloat(const half &value) : native(__float2bfloat16_rn(float(value))) {}

using float16_t = half;
using bfloat16_t = bfloat;

template <class To, class From> KX_FN To as_type(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type takes types of equal size");
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

// What two scalars are together in an operator or in min, max and the like.
template <class A, class B, bool = is_same_v<A, B>> struct common {
    using type = decltype(A() + B());
};
template <class A, class B> struct common<A, B, true> {
    using type = A;
};
template <class A, class B> using common_t = typename common<A, B>::type;

template <class T> struct numeric_limits : cuda::std::numeric_limits<T> {};
template <> struct numeric_limits<half> {
    static KX_FN half max() { return half(65504.0f); }
    static KX_FN half lowest() { return half(-65504.0f); }
    static KX_FN half min() { return half(6.103515625e-5f); }
    static KX_FN half epsilon() { return half(9.765625e-4f); }
    static KX_FN half infinity() { return half(INFINITY); }
    static KX_FN half quiet_NaN() { return half(NAN); }
};
template <> struct numeric_limits<bfloat> {
    static KX_FN bfloat max() { return bfloat(3.38953139e38f); }
    static KX_FN bfloat lowest() { return bfloat(-3.38953139e38f); }
    static KX_FN bfloat min() { return bfloat(1.175494351e-38f); }
    static KX_FN bfloat epsilon() { return bfloat(7.8125e-3f); }
    static KX_FN bfloat infinity() { return bfloat(INFINITY); }
    static KX_FN bfloat quiet_NaN() { return bfloat(NAN); }
};

template <class T> KX_FN T ceildiv(T n, T m) { return (n + m - 1) / m; }

}  // namespace kx_metal
