/* bfloat16 as uint16_t: the upper half of an f32. Header-only; also compiled by nvcc. */
#ifndef SL_CORE_BF16_H
#define SL_CORE_BF16_H

#include <stdint.h>
#include <string.h>

#include "core/rng.h"

typedef uint16_t sl_bf16;

static inline SL_HD float sl_bf16_to_f32(sl_bf16 x)
{
    uint32_t bits = (uint32_t) x << 16;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

/* Round to nearest, ties to even; NaN stays a (quiet) NaN. */
static inline SL_HD sl_bf16 sl_f32_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (sl_bf16) ((bits >> 16) | 0x40u);
    return (sl_bf16) ((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Stochastic rounding: up with probability equal to the part cut off; `noise` is 16 random bits. Infinity and NaN stay.
 */
static inline SL_HD sl_bf16 sl_f32_to_bf16_stochastic(float x, uint32_t noise)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return sl_f32_to_bf16(x);
    return (sl_bf16) ((bits + (noise & 0xffffu)) >> 16);
}

#endif
