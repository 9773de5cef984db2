/* Names that MLX's preamble puts before the text of a custom kernel (mlx/backend/metal/kernels/utils.h
 * at 846d176), in our own words. */
#ifndef METALSIM_MLX_H
#define METALSIM_MLX_H

#include "math.h"
#include "simd.h"

typedef half float16_t;
typedef bfloat bfloat16_t;

template <class T> struct Limits {
    static const constexpr T max = metal::numeric_limits<T>::max();
    static const constexpr T min = metal::numeric_limits<T>::lowest();
    static const constexpr T finite_max = max;
    static const constexpr T finite_min = min;
};
#define MSIM_LIMITS(T)                                                      \
    template <> struct Limits<T> {                                          \
        static constexpr T max = (T)__builtin_inff();                       \
        static constexpr T min = (T)-__builtin_inff();                      \
        static constexpr T finite_max = metal::numeric_limits<T>::max();    \
        static constexpr T finite_min = metal::numeric_limits<T>::lowest(); \
    };
MSIM_LIMITS(float) MSIM_LIMITS(half) MSIM_LIMITS(bfloat)
#undef MSIM_LIMITS
template <> struct Limits<bool> { static constexpr bool max = true, min = false; };

template <class T> MSIM_INLINE T ceildiv(T n, T m) { return (n + m - 1) / m; }

/* Offset in elements of the elem-th element in row-major order of a strided array. */
template <class I = long, class E, class S, class D>
MSIM_INLINE I elem_to_loc(E elem, S shape, D strides, int ndim) {
    I loc = 0;
    for (int i = ndim - 1; i >= 0 && elem > 0; --i) {
        loc += (I)(elem % shape[i]) * (I)strides[i];
        elem /= shape[i];
    }
    return loc;
}
template <class I = long, class D> MSIM_INLINE I elem_to_loc_1(uint elem, const D &stride) { return elem * (I)stride; }
template <class I = long, class D> MSIM_INLINE I elem_to_loc_2(metal::uint2 elem, D strides) {
    return elem.x * (I)strides[1] + elem.y * (I)strides[0];
}
template <class I = long, class D> MSIM_INLINE I elem_to_loc_3(metal::uint3 elem, D strides) {
    return elem.x * (I)strides[2] + elem.y * (I)strides[1] + elem.z * (I)strides[0];
}

/* log(1 + x) without losing small x: Kahan's correction. */
MSIM_INLINE float log1p(float x) {
    float y = 1.0f + x;
    return y == 1.0f ? x : y == __builtin_inff() ? y : x * (metal::log(y) / (y - 1.0f));
}
MSIM_INLINE bfloat log1p(bfloat x) { return (bfloat)log1p((float)x); }

#endif
