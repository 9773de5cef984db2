/* Address spaces, scalar types and the type traits that kernels use. */
#ifndef METALSIM_TYPES_H
#define METALSIM_TYPES_H

#include "abi.h"

/* Pointers of different spaces are different types; all of them lower to address space 0. */
#define device __attribute__((opencl_global))
#define threadgroup __attribute__((opencl_local))
#define constant const __attribute__((opencl_global_host))
#define thread
#define kernel

#define MSIM_INLINE inline __attribute__((always_inline, nodebug))
#define MSIM_HERE msim::location here = {__builtin_LINE(), __builtin_FILE()}

#define METAL_FUNC inline __attribute__((always_inline))
#define __METAL_VERSION__ 310
#define __METAL__ 1

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned long uintptr_t;
typedef long intptr_t;
typedef _Float16 half;
typedef __bf16 bfloat;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define HUGE_VALH ((half)__builtin_inff())
#define HUGE_VALBF ((bfloat)__builtin_inff())
#define MAXFLOAT FLT_MAX
#define MAXHALF HALF_MAX
#define MAXBFLOAT BFLT_MAX
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_RADIX 2
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_EXP 128
#define FLT_MIN_EXP (-125)
#define FLT_MAX_10_EXP 38
#define FLT_MIN_10_EXP (-37)
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)6.103515625e-5f)
#define HALF_EPSILON ((half)9.765625e-4f)
#define HALF_RADIX 2
#define HALF_DIG 2
#define HALF_MANT_DIG 11
#define HALF_MAX_EXP 16
#define HALF_MIN_EXP (-13)
#define HALF_MAX_10_EXP 4
#define HALF_MIN_10_EXP (-4)
#define BFLT_MAX ((bfloat)3.38953139e+38f)
#define BFLT_MIN ((bfloat)1.175494351e-38f)
#define BFLT_EPSILON ((bfloat)7.8125e-3f)
#define BFLT_RADIX 2
#define BFLT_DIG 2
#define BFLT_MANT_DIG 8
#define BFLT_MAX_EXP 128
#define BFLT_MIN_EXP (-125)
#define BFLT_MAX_10_EXP 38
#define BFLT_MIN_10_EXP (-37)
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define UINT_MAX 0xffffffffu
#define LONG_MAX 0x7fffffffffffffffl
#define LONG_MIN (-0x7fffffffffffffffl - 1)
#define ULONG_MAX 0xfffffffffffffffful
#define M_E_F 2.71828182845904523536f
#define M_E_H ((half)2.71828182845904523536f)
#define M_E_BF ((bfloat)2.71828182845904523536f)
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG2E_H ((half)1.44269504088896340736f)
#define M_LOG2E_BF ((bfloat)1.44269504088896340736f)
#define M_LOG10E_F 0.43429448190325182765f
#define M_LOG10E_H ((half)0.43429448190325182765f)
#define M_LOG10E_BF ((bfloat)0.43429448190325182765f)
#define M_LN2_F 0.69314718055994530942f
#define M_LN2_H ((half)0.69314718055994530942f)
#define M_LN2_BF ((bfloat)0.69314718055994530942f)
#define M_LN10_F 2.30258509299404568402f
#define M_LN10_H ((half)2.30258509299404568402f)
#define M_LN10_BF ((bfloat)2.30258509299404568402f)
#define M_PI_F 3.14159265358979323846f
#define M_PI_H ((half)3.14159265358979323846f)
#define M_PI_BF ((bfloat)3.14159265358979323846f)
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_2_H ((half)1.57079632679489661923f)
#define M_PI_2_BF ((bfloat)1.57079632679489661923f)
#define M_PI_4_F 0.78539816339744830962f
#define M_PI_4_H ((half)0.78539816339744830962f)
#define M_PI_4_BF ((bfloat)0.78539816339744830962f)
#define M_1_PI_F 0.31830988618379067154f
#define M_1_PI_H ((half)0.31830988618379067154f)
#define M_1_PI_BF ((bfloat)0.31830988618379067154f)
#define M_2_PI_F 0.63661977236758134308f
#define M_2_PI_H ((half)0.63661977236758134308f)
#define M_2_PI_BF ((bfloat)0.63661977236758134308f)
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_2_SQRTPI_H ((half)1.12837916709551257390f)
#define M_2_SQRTPI_BF ((bfloat)1.12837916709551257390f)
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT2_H ((half)1.41421356237309504880f)
#define M_SQRT2_BF ((bfloat)1.41421356237309504880f)
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_SQRT1_2_H ((half)0.70710678118654752440f)
#define M_SQRT1_2_BF ((bfloat)0.70710678118654752440f)

namespace std {
/* What the compiler makes of { a, b } by this name. */
template <class T> class initializer_list {
    const T *first;
    size_t count;

public:
    constexpr initializer_list() : first(nullptr), count(0) {}
    constexpr size_t size() const { return count; }
    constexpr const T *begin() const { return first; }
    constexpr const T *end() const { return first + count; }
};
}  // namespace std

namespace msim {
/* Where a function of the shim is called from: a default argument, evaluated at the call. */
struct location {
    unsigned line;
    const char *place;
};
}  // namespace msim

namespace metal {

template <class T, T V> struct integral_constant {
    static constexpr T value = V;
    using value_type = T;
    using type = integral_constant;
    constexpr operator T() const { return V; }
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;
template <bool V> using bool_constant = integral_constant<bool, V>;

template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T &> { using type = T; };
template <class T> struct remove_reference<T &&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> struct remove_cv<volatile T> { using type = T; };
template <class T> struct remove_cv<const volatile T> { using type = T; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_pointer { using type = T; };
template <class T> struct remove_pointer<T *> { using type = T; };
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct is_integral : bool_constant<__is_integral(T)> {};
template <class T> constexpr bool is_integral_v = __is_integral(T);
template <class T>
struct is_floating_point : bool_constant<is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, half> ||
                                         is_same_v<remove_cv_t<T>, bfloat>> {};
template <class T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct is_arithmetic : bool_constant<is_integral_v<T> || is_floating_point_v<T>> {};
template <class T> constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T> struct is_signed : bool_constant<is_floating_point_v<T> || __is_signed(T)> {};
template <class T> constexpr bool is_signed_v = is_signed<T>::value;
template <class T> struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <class T> constexpr bool is_unsigned_v = __is_unsigned(T);
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T *> : true_type {};
template <class T> constexpr bool is_pointer_v = is_pointer<T>::value;
template <class A, class B> constexpr bool is_convertible_v = __is_convertible(A, B);
template <class T> using make_unsigned_t = __make_unsigned(T);
template <class T> using make_signed_t = __make_signed(T);
template <class T> struct make_unsigned { using type = __make_unsigned(T); };
template <class T> struct make_signed { using type = __make_signed(T); };

/* Kernels specialize the one with Apple's inner name for types of their own. */
template <class T> struct _numeric_limits_impl {
    static constexpr bool is_specialized = true, is_integer = true, is_exact = true, is_bounded = true;
    static constexpr bool is_signed = __is_signed(T), is_modulo = !is_signed, is_iec559 = false;
    static constexpr bool has_infinity = false, has_quiet_NaN = false, has_signaling_NaN = false;
    static constexpr int digits = is_same_v<T, bool> ? 1 : sizeof(T) * 8 - is_signed, radix = 2;
    static constexpr int digits10 = digits * 643 / 2136, max_digits10 = 0;
    static constexpr int min_exponent = 0, min_exponent10 = 0, max_exponent = 0, max_exponent10 = 0;
    static constexpr T min() { return is_signed ? T(1ul << (sizeof(T) * 8 - 1)) : T(0); }
    static constexpr T max() { return T(~0ul >> (64 - digits)); }
    static constexpr T lowest() { return min(); }
    static constexpr T epsilon() { return T(0); }
    static constexpr T round_error() { return T(0); }
    static constexpr T infinity() { return T(0); }
    static constexpr T quiet_NaN() { return T(0); }
    static constexpr T signaling_NaN() { return T(0); }
    static constexpr T denorm_min() { return T(0); }
};
template <class T> struct numeric_limits : _numeric_limits_impl<T> {};
#define MSIM_FLOAT_LIMITS(T, NAME, DENORM_MIN, MAX_DIGITS10)                                       \
    template <> struct numeric_limits<T> {                                                         \
        static constexpr bool is_specialized = true, is_integer = false, is_exact = false, is_bounded = true; \
        static constexpr bool is_signed = true, is_modulo = false, is_iec559 = true;               \
        static constexpr bool has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true; \
        static constexpr int digits = NAME##_MANT_DIG, digits10 = NAME##_DIG, radix = NAME##_RADIX; \
        static constexpr int max_digits10 = MAX_DIGITS10;                                          \
        static constexpr int min_exponent = NAME##_MIN_EXP, min_exponent10 = NAME##_MIN_10_EXP;    \
        static constexpr int max_exponent = NAME##_MAX_EXP, max_exponent10 = NAME##_MAX_10_EXP;    \
        static constexpr T min() { return NAME##_MIN; }                                            \
        static constexpr T max() { return NAME##_MAX; }                                            \
        static constexpr T lowest() { return -NAME##_MAX; }                                        \
        static constexpr T epsilon() { return NAME##_EPSILON; }                                    \
        static constexpr T round_error() { return (T)0.5f; }                                       \
        static constexpr T infinity() { return (T)__builtin_inff(); }                              \
        static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }                           \
        static constexpr T signaling_NaN() { return (T)__builtin_nansf(""); }                      \
        static constexpr T denorm_min() { return (T)DENORM_MIN; }                                  \
    };
MSIM_FLOAT_LIMITS(float, FLT, 1.401298464e-45f, 9)
MSIM_FLOAT_LIMITS(half, HALF, 5.960464478e-8f, 5)
MSIM_FLOAT_LIMITS(bfloat, BFLT, 9.183549616e-41f, 4)
#undef MSIM_FLOAT_LIMITS

template <class To, class From> MSIM_INLINE To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs types of equal size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

}  // namespace metal

namespace msim {

/* Type of an expression with reference, const and address space taken off. */
template <class T> struct unqualified { using type = T; };
#define MSIM_SPACE(...)                                                        \
    template <class T> struct unqualified<__VA_ARGS__ T> { using type = T; };  \
    template <class T> struct unqualified<const __VA_ARGS__ T> { using type = T; };
MSIM_SPACE(device) MSIM_SPACE(threadgroup) MSIM_SPACE(__attribute__((opencl_global_host)))
#undef MSIM_SPACE
template <class T> using value_t = typename unqualified<__remove_cvref(T)>::type;

/* Type without its address space, const and volatile kept. */
template <class T> struct without_space { using type = T; };
#define MSIM_SPACE(...)                                                                        \
    template <class T> struct without_space<__VA_ARGS__ T> { using type = T; };                \
    template <class T> struct without_space<const __VA_ARGS__ T> { using type = const T; };
MSIM_SPACE(device) MSIM_SPACE(threadgroup) MSIM_SPACE(__attribute__((opencl_global_host)))
#undef MSIM_SPACE

/* clang refuses half <-> bfloat; Metal goes through float. */
template <class T, class U> MSIM_INLINE constexpr T convert(U value) {
    if constexpr ((metal::is_same_v<T, half> && metal::is_same_v<U, bfloat>) ||
                  (metal::is_same_v<T, bfloat> && metal::is_same_v<U, half>))
        return (T)(float)value;
    else
        return (T)value;
}

template <class T> struct scalar_of { static constexpr unsigned bytes = sizeof(T); };
/* static_cast, which clang refuses between half and bfloat. */
template <class T, class U> MSIM_INLINE constexpr T static_convert(U &&value) {
    using From = value_t<U>;
    if constexpr ((metal::is_same_v<T, half> && metal::is_same_v<From, bfloat>) ||
                  (metal::is_same_v<T, bfloat> && metal::is_same_v<From, half>))
        return (T)(float)value;
    else
        return static_cast<T>(static_cast<U &&>(value));
}
/* half() and half(x). */
template <class T> MSIM_INLINE constexpr T construct() { return T(); }
template <class T, class U> MSIM_INLINE constexpr T construct(U &&value) { return (T)static_convert<T>((U &&)value); }

/* A copy in thread memory of what lies anywhere. */
template <class T> MSIM_INLINE constexpr value_t<T> value_of(T &&value) { return value; }
/* An operand of ?: of type A beside one of type B: itself when the types agree, a copy when their spaces differ. */
template <class A, class B, class T> MSIM_INLINE constexpr decltype(auto) side(T &&value) {
    if constexpr (metal::is_same_v<A, B> || __is_array(__remove_reference_t(T)))
        return static_cast<T &&>(value);
    else
        return value_of(value);
}

template <class T, unsigned long N> struct scalar_of<T[N]> : scalar_of<T> {};
template <class T, unsigned long N> struct scalar_of<device T[N]> : scalar_of<T> {};
template <class T, unsigned long N> struct scalar_of<threadgroup T[N]> : scalar_of<T> {};

}  // namespace msim

namespace metal {
template <class T> struct remove_addrspace { using type = typename msim::without_space<T>::type; };
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
}  // namespace metal

using metal::as_type;
using nullptr_t = decltype(nullptr);

#endif
