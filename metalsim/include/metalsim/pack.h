/* Packing of normalized values, rounded to nearest even; the first component is in the lowest bits. */
#ifndef METALSIM_PACK_H
#define METALSIM_PACK_H

#include "math.h"

namespace msim {

/* Bits of one field: unsigned from [0, 1], signed from [-1, 1]. NaN gives 0. */
MSIM_INLINE uint pack_unorm(float x, uint bits) {
    return (uint)metal::rint(metal::saturate(x) * (float)((1u << bits) - 1));
}
MSIM_INLINE uint pack_snorm(float x, uint bits) {
    x = x == x ? metal::clamp(x, -1.0f, 1.0f) : 0.0f;
    return (uint)(int)metal::rint(x * (float)((1u << (bits - 1)) - 1)) & ((1u << bits) - 1);
}
MSIM_INLINE float unpack_unorm(uint x, uint offset, uint bits) {
    return (float)(x >> offset & ((1u << bits) - 1)) / (float)((1u << bits) - 1);
}
MSIM_INLINE float unpack_snorm(uint x, uint offset, uint bits) {
    int field = (int)(x << (32 - bits - offset)) >> (32 - bits);
    return metal::max((float)field / (float)((1u << (bits - 1)) - 1), -1.0f);
}
/* IEC 61966-2-1. */
MSIM_INLINE float linear_of_srgb(float c) {
    return c <= 0.04045f ? c / 12.92f : metal::pow((c + 0.055f) / 1.055f, 2.4f);
}
MSIM_INLINE float srgb_of_linear(float c) {
    c = metal::saturate(c);
    return c < 0.0031308f ? 12.92f * c : 1.055f * metal::pow(c, 1.0f / 2.4f) - 0.055f;
}

}  // namespace msim

namespace metal {

#define MSIM_PACK(T)                                                                                        \
    MSIM_INLINE vec<T, 4> unpack_unorm4x8_to_##T(uint x) {                                                  \
        vec<T, 4> r;                                                                                        \
        for (uint i = 0; i < 4; i++) r.element[i] = (T)msim::unpack_unorm(x, 8 * i, 8);                     \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE vec<T, 4> unpack_snorm4x8_to_##T(uint x) {                                                  \
        vec<T, 4> r;                                                                                        \
        for (uint i = 0; i < 4; i++) r.element[i] = (T)msim::unpack_snorm(x, 8 * i, 8);                     \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE vec<T, 4> unpack_unorm4x8_srgb_to_##T(uint x) {                                             \
        vec<T, 4> r;                                                                                        \
        for (uint i = 0; i < 3; i++) r.element[i] = (T)msim::linear_of_srgb(msim::unpack_unorm(x, 8 * i, 8)); \
        r.element[3] = (T)msim::unpack_unorm(x, 24, 8);                                                     \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE vec<T, 2> unpack_unorm2x16_to_##T(uint x) {                                                 \
        return vec<T, 2>((T)msim::unpack_unorm(x, 0, 16), (T)msim::unpack_unorm(x, 16, 16));                \
    }                                                                                                       \
    MSIM_INLINE vec<T, 2> unpack_snorm2x16_to_##T(uint x) {                                                 \
        return vec<T, 2>((T)msim::unpack_snorm(x, 0, 16), (T)msim::unpack_snorm(x, 16, 16));                \
    }                                                                                                       \
    MSIM_INLINE vec<T, 4> unpack_unorm10a2_to_##T(uint x) {                                                 \
        vec<T, 4> r;                                                                                        \
        for (uint i = 0; i < 3; i++) r.element[i] = (T)msim::unpack_unorm(x, 10 * i, 10);                   \
        r.element[3] = (T)msim::unpack_unorm(x, 30, 2);                                                     \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE uint pack_##T##_to_unorm4x8(vec<T, 4> v) {                                                  \
        uint r = 0;                                                                                         \
        for (uint i = 0; i < 4; i++) r |= msim::pack_unorm((float)v.element[i], 8) << 8 * i;                \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE uint pack_##T##_to_snorm4x8(vec<T, 4> v) {                                                  \
        uint r = 0;                                                                                         \
        for (uint i = 0; i < 4; i++) r |= msim::pack_snorm((float)v.element[i], 8) << 8 * i;                \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE uint pack_##T##_to_srgb_unorm4x8(vec<T, 4> v) {                                             \
        uint r = msim::pack_unorm((float)v.element[3], 8) << 24;                                            \
        for (uint i = 0; i < 3; i++)                                                                        \
            r |= msim::pack_unorm(msim::srgb_of_linear((float)v.element[i]), 8) << 8 * i;                   \
        return r;                                                                                           \
    }                                                                                                       \
    MSIM_INLINE uint pack_##T##_to_unorm2x16(vec<T, 2> v) {                                                 \
        return msim::pack_unorm((float)v.x, 16) | msim::pack_unorm((float)v.y, 16) << 16;                   \
    }                                                                                                       \
    MSIM_INLINE uint pack_##T##_to_snorm2x16(vec<T, 2> v) {                                                 \
        return msim::pack_snorm((float)v.x, 16) | msim::pack_snorm((float)v.y, 16) << 16;                   \
    }                                                                                                       \
    MSIM_INLINE uint pack_##T##_to_unorm10a2(vec<T, 4> v) {                                                 \
        uint r = msim::pack_unorm((float)v.element[3], 2) << 30;                                            \
        for (uint i = 0; i < 3; i++) r |= msim::pack_unorm((float)v.element[i], 10) << 10 * i;              \
        return r;                                                                                           \
    }
MSIM_PACK(float) MSIM_PACK(half)
#undef MSIM_PACK

}  // namespace metal

#endif
