/* Rotation frequencies, shared by the reference and the kernels so that all turn by the same angles. Header-only: a device plugin
 * cannot call into the library. */
#ifndef SL_OPS_ROPE_H
#define SL_OPS_ROPE_H

#include <math.h>

#include "ops/op.h"

typedef enum sl_rope_style { SL_ROPE_NONE, SL_ROPE_HALF, SL_ROPE_INTERLEAVED } sl_rope_style;

struct SL_ATTRS_TYPE sl_rope_attrs {
    int32_t heads, kv_heads, head_dim, style; /* sl_rope_style */
    float theta;
    /* Llama-3 frequency scaling; factor 0 or 1 = none */
    float factor, low_freq_factor, high_freq_factor;
    int32_t original_context;
    int32_t rotary; /* the first elements of a head, which are turned; the others stay as they are. 0: all */
};
SL_ATTRS_OF(rope)

static inline int32_t sl_rope_rotary(const sl_attrs *attrs)
{
    return sl_rope_attrs(attrs)->rotary ? sl_rope_attrs(attrs)->rotary : sl_rope_attrs(attrs)->head_dim;
}

#define SL_TWO_PI 6.283185307179586

/* Radians per position of pair j in [0, rotary/2). The angle is (double) position * frequency: in f32 it would be off by
 * .06 radians at position one million. */
static inline double sl_rope_frequency(const sl_attrs *attrs, int64_t j)
{
    double frequency = pow((double) sl_rope_attrs(attrs)->theta, -2.0 * (double) j / sl_rope_rotary(attrs));
    double factor = sl_rope_attrs(attrs)->factor, low = sl_rope_attrs(attrs)->low_freq_factor,
           high = sl_rope_attrs(attrs)->high_freq_factor;
    if (factor == 0 || factor == 1)
        return frequency;
    double turns = sl_rope_attrs(attrs)->original_context * frequency / SL_TWO_PI; /* within the original context */
    if (turns < low)
        return frequency / factor;
    if (turns > high)
        return frequency;
    double smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

#endif
