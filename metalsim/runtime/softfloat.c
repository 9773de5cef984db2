/* Conversions that compilers call by name, so that kernels need no compiler runtime library.
 *
 * All round to nearest, ties to even. bfloat is the upper half of float.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
/* half and bfloat are passed in xmm registers, as float is. */
typedef _Float16 half_argument;
typedef __bf16 bfloat_argument;
#else
typedef __fp16 half_argument;
typedef __bf16 bfloat_argument;
#endif

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

uint16_t msim_bfloat_bits(float x) {
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float msim_float_of_bfloat(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Round a double to a format of `mantissa` stored bits and `exponent` bits of bias `bias`. */
static uint16_t narrow(double x, int mantissa, int bias) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction = bits & 0xfffffffffffffu;
    uint16_t infinity = (uint16_t)((2 * bias + 1) << mantissa);
    if (exponent == 1024) return sign | infinity | (fraction ? 1 << (mantissa - 1) | (uint16_t)(fraction >> (52 - mantissa)) : 0);
    if (exponent > bias) return sign | infinity;
    if (exponent < -bias - mantissa - 1) return sign;
    fraction |= 0x10000000000000u;
    int shift = 52 - mantissa;
    if (exponent < 1 - bias) shift += 1 - bias - exponent;
    uint64_t kept = fraction >> shift, rest = fraction & (((uint64_t)1 << shift) - 1);
    uint64_t half = (uint64_t)1 << (shift - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    if (exponent >= 1 - bias) kept += (uint64_t)(exponent + bias - 1) << mantissa;
    return sign | (uint16_t)kept;
}

static uint16_t half_bits(double x) { return narrow(x, 10, 15); }

static float float_of_half(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
    uint32_t bits = sign;
    if (exponent == 31) bits |= 0x7f800000 | fraction << 13;
    else if (exponent) bits |= (exponent + 112) << 23 | fraction << 13;
    else if (fraction) {
        int shift = __builtin_clz(fraction) - 21;
        bits |= (uint32_t)(113 - shift) << 23 | ((fraction << shift & 0x3ff) << 13);
    }
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static half_argument half_of(uint16_t bits) {
    half_argument result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static uint16_t bits_of(half_argument x) {
    uint16_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

__attribute__((weak)) half_argument __truncsfhf2(float x) { return half_of(half_bits((double)x)); }
__attribute__((weak)) half_argument __truncdfhf2(double x) { return half_of(half_bits(x)); }
__attribute__((weak)) float __extendhfsf2(half_argument x) { return float_of_half(bits_of(x)); }

__attribute__((weak)) bfloat_argument __truncsfbf2(float x) {
    uint16_t bits = msim_bfloat_bits(x);
    bfloat_argument result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

__attribute__((weak)) bfloat_argument __truncdfbf2(double x) {
    uint16_t bits = narrow(x, 7, 127);
    bfloat_argument result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
