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
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX ((half)65504.0f)
#define MAXHALF HALF_MAX
#define HALF_MIN ((half)6.103515625e-5f)
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define UINT_MAX 0xffffffffu
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define CHAR_BIT 8
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_E_F 2.71828182845904523536f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

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

template <class T> struct numeric_limits {
    static constexpr bool is_integer = true, is_signed = __is_signed(T);
    static constexpr int digits = sizeof(T) * 8 - is_signed;
    static constexpr T min() { return is_signed ? T(1ul << (sizeof(T) * 8 - 1)) : T(0); }
    static constexpr T max() { return T(~0ul >> (64 - digits)); }
    static constexpr T lowest() { return min(); }
};
#define MSIM_FLOAT_LIMITS(T, MIN, MAX, EPSILON, DIGITS)                            \
    template <> struct numeric_limits<T> {                                         \
        static constexpr bool is_integer = false, is_signed = true;                \
        static constexpr int digits = DIGITS;                                      \
        static constexpr T min() { return (T)MIN; }                                \
        static constexpr T max() { return (T)MAX; }                                \
        static constexpr T lowest() { return -(T)MAX; }                            \
        static constexpr T epsilon() { return (T)EPSILON; }                        \
        static constexpr T infinity() { return (T)__builtin_inff(); }              \
        static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }           \
    };
MSIM_FLOAT_LIMITS(float, 1.175494351e-38f, 3.402823466e+38f, 1.192092896e-07f, 24)
MSIM_FLOAT_LIMITS(half, 6.103515625e-5f, 65504.0f, 9.765625e-4f, 11)
MSIM_FLOAT_LIMITS(bfloat, 1.175494351e-38f, 3.38953139e+38f, 7.8125e-3f, 8)
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
template <class T, class U> MSIM_INLINE T convert(U value) {
    if constexpr ((metal::is_same_v<T, half> && metal::is_same_v<U, bfloat>) ||
                  (metal::is_same_v<T, bfloat> && metal::is_same_v<U, half>))
        return (T)(float)value;
    else
        return (T)value;
}

template <class T> struct scalar_of { static constexpr unsigned bytes = sizeof(T); };
template <class T, unsigned long N> struct scalar_of<T[N]> : scalar_of<T> {};
template <class T, unsigned long N> struct scalar_of<device T[N]> : scalar_of<T> {};
template <class T, unsigned long N> struct scalar_of<threadgroup T[N]> : scalar_of<T> {};

}  // namespace msim

namespace metal {
template <class T> struct remove_addrspace { using type = typename msim::without_space<T>::type; };
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
}  // namespace metal

using metal::as_type;

#endif
