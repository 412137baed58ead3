/*
 * Optimizer states in 8 bits. Elements come in blocks of 64, each with a scale of its own and a byte for each element, 68 bytes in all:
 *
 *     scale f32 | code 0 | code 1 | ... | code 63          magnitude = level^2 * scale
 *
 *     first moment    bit 7: sign, bits 0..6: level, at most 127        scale = largest magnitude / 127^2
 *     second moment   level of its square root, at most 255             scale = largest root / 255^2
 *
 * Squared levels are dense near zero, where most elements of a block are: the smallest magnitude is 1/16,129 of the block's largest (of
 * roots 1/65,025), the steps at the upper end are 1.6 % and 0.8 %. A lookup table of a dynamic data type (Dettmers et al., 2022) reaches
 * further down, but needs a search for each code; a square root gives the level at once, and the same bits on every device.
 *
 * A moment changes by less than a step in most updates, so rounding to nearest would freeze it. Levels are rounded stochastically, so that the
 * expected moment is exact. A second moment that is not zero is never rounded to zero: the update divides by its root.
 *
 * Blocks are stored whole, so a state can be cut wherever a block begins. A block is as short as parameters are aligned (256 bytes of f32);
 * larger blocks would save 5 % of the bytes and tie runs of parameters to another alignment.
 */
#ifndef SL_OPTIM_CODES_H
#define SL_OPTIM_CODES_H

#include <math.h>
#include <string.h>

#include "core/rng.h" /* SL_HD */
#include "tensor/type.h"

enum { SL_CODES_BLOCK = 64, SL_CODES_BYTES = SL_CODES_BLOCK + 4, SL_FIRST_LEVELS = 127, SL_SECOND_LEVELS = 255 };

static inline int64_t sl_codes_blocks(int64_t count)
{
    return (count + SL_CODES_BLOCK - 1) / SL_CODES_BLOCK;
}

static inline sl_type sl_codes_type(int64_t count)
{
    return sl_type_1d(SL_U8, sl_codes_blocks(count) * SL_CODES_BYTES);
}

static inline SL_HD float sl_codes_square(int32_t level)
{
    return (float) (level * level);
}

/* The level of a magnitude >= 0. `noise`: 16 random bits. `squared`: expectations are those of the magnitude's square. */
static inline SL_HD int32_t sl_codes_level(float magnitude, float scale, int32_t levels, bool squared, uint32_t noise)
{
    if (!(scale > 0))
        return 0;
    const int32_t whole = (int32_t) sqrtf(magnitude / scale), below = whole < levels ? whole : levels - 1;
    float low = sl_codes_square(below) * scale, high = sl_codes_square(below + 1) * scale, x = magnitude;
    if (squared)
        low = low * low, high = high * high, x = x * x;
    const bool up = (float) noise * 0x1p-16f < (x - low) / (high - low);
    const int32_t level = below + (up ? 1 : 0);
    return squared && level == 0 && magnitude > 0 ? 1 : level;
}

static inline SL_HD float sl_codes_first(uint8_t code, float scale)
{
    const float magnitude = sl_codes_square(code & 127) * scale;
    return code & 128 ? -magnitude : magnitude;
}

/* The root of a second moment. */
static inline SL_HD float sl_codes_second(uint8_t code, float scale)
{
    return sl_codes_square(code) * scale;
}

static inline SL_HD uint8_t sl_codes_put_first(float value, float scale, uint32_t noise)
{
    const int32_t level = sl_codes_level(fabsf(value), scale, SL_FIRST_LEVELS, false, noise);
    return (uint8_t) (level | (value < 0 ? 128 : 0));
}

static inline SL_HD uint8_t sl_codes_put_second(float root, float scale, uint32_t noise)
{
    return (uint8_t) sl_codes_level(root, scale, SL_SECOND_LEVELS, true, noise);
}

/* The scale of a block whose largest magnitude is this. */
static inline SL_HD float sl_codes_scale(float largest, int32_t levels)
{
    return largest / sl_codes_square(levels);
}

#endif
