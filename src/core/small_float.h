/*
 * Floating-point types that only files have: IEEE half, and the 8-bit types of the Open Compute Project (sign, exponent, mantissa):
 *
 *     f16  1 5 10   bias 15                     e4m3  1 4 3   bias 7, no infinity, NaN is s.1111.111, largest 448
 *     e8m0   8      bias 127, 2^x, NaN is 255   e5m2  1 5 2   bias 15, infinity and NaN as in IEEE types
 *
 * Their values are all f32 values, so widening is exact.
 */
#ifndef SL_CORE_SMALL_FLOAT_H
#define SL_CORE_SMALL_FLOAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float sl_f32_of_bits(uint32_t bits)
{
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

/* Without branches, so that a loop of it becomes vector code: a subnormal is a normal number less the smallest normal. */
static inline float sl_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t) (half & 0x8000u) << 16, exponent = half & 0x7c00u,
             rest = (uint32_t) (half & 0x7fffu) << 13;
    uint32_t normal = rest + (exponent == 0x7c00u ? (uint32_t) 224 << 23 : (uint32_t) 112 << 23), subnormal;
    float small = sl_f32_of_bits(rest + ((uint32_t) 113 << 23)) - 0x1p-14f;
    memcpy(&subnormal, &small, 4);
    return sl_f32_of_bits(sign | (exponent ? normal : subnormal));
}

/* Round to nearest, ties to even; what is too large becomes infinite, NaN stays a quiet NaN. */
static inline uint16_t sl_f32_to_f16(float value)
{
    uint32_t bits, magnitude;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t) (bits >> 16 & 0x8000u);
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t) (sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) /* 65520, halfway to what would come behind the largest */
        return sign | 0x7c00u;
    if (magnitude < 0x38800000u) { /* subnormal: adding 1/2 leaves multiples of 2^-24, rounded, in the mantissa */
        float shifted = sl_f32_of_bits(magnitude) + 0.5f;
        memcpy(&magnitude, &shifted, 4);
        return (uint16_t) (sign | (magnitude - 0x3f000000u));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u) - ((uint32_t) 112 << 23);
    return (uint16_t) (sign | magnitude >> 13);
}

static inline float sl_e5m2_to_f32(uint8_t x)
{
    return sl_f16_to_f32((uint16_t) (x << 8)); /* the upper half of an f16 */
}

static inline float sl_e4m3_to_f32(uint8_t x)
{
    uint32_t sign = (uint32_t) (x & 0x80u) << 24, rest = x & 0x7fu;
    if (rest == 0x7fu)
        return sl_f32_of_bits(sign | 0x7fc00000u);
    /* Exponent and mantissa as those of an f16 are too small by 2^8: the biases are 7 and 15. */
    float magnitude = sl_f16_to_f32((uint16_t) (rest << 7)) * 256;
    return sign ? -magnitude : magnitude;
}

static inline float sl_e8m0_to_f32(uint8_t x)
{
    if (x == 255)
        return NAN;
    return sl_f32_of_bits(x ? (uint32_t) x << 23 : (uint32_t) 1 << 22); /* 2^-127 is subnormal */
}

#endif
