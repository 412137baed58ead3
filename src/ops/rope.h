/* Rotation frequencies, shared by the reference and the kernels so that all turn by the same angles. Header-only: a device plugin
 * cannot call into the library. */
#ifndef SL_OPS_ROPE_H
#define SL_OPS_ROPE_H

#include <math.h>

#include "ops/op.h"
#include "sluice/model.h" /* sl_rope_scaling */

typedef enum sl_rope_style { SL_ROPE_NONE, SL_ROPE_HALF, SL_ROPE_INTERLEAVED } sl_rope_style;

struct SL_ATTRS_TYPE sl_rope_attrs {
    int32_t heads, kv_heads, head_dim, style; /* sl_rope_style */
    float theta;
    /* llama3 and yarn: pairs that turn less than `low` times within the original context, and more than `high` times */
    float factor, low_freq_factor, high_freq_factor;
    int32_t original_context;
    int32_t rotary;     /* the first elements of a head, which are turned; the others stay as they are. 0: all */
    int32_t scaling;    /* sl_rope_scaling */
    float magnitude;    /* what is turned is multiplied by it; 0: 1 */
    int32_t exact_ramp; /* yarn: the blend begins and ends between pairs */
    int32_t unused;
    int64_t seqlen; /* dynamic and long: tokens of a sequence; 0: not beyond the original context */
};
SL_ATTRS_OF(rope)

static inline int32_t sl_rope_rotary(const sl_attrs *attrs)
{
    return sl_rope_attrs(attrs)->rotary ? sl_rope_attrs(attrs)->rotary : sl_rope_attrs(attrs)->head_dim;
}

static inline float sl_rope_magnitude(const sl_attrs *attrs)
{
    return sl_rope_attrs(attrs)->magnitude != 0 ? sl_rope_attrs(attrs)->magnitude : 1;
}

#define SL_TWO_PI 6.283185307179586

/* The pair, as a real number, that turns `turns` times within the original context. */
static inline double sl_rope_pair_of(const sl_attrs *attrs, double turns)
{
    return sl_rope_rotary(attrs) * log(sl_rope_attrs(attrs)->original_context / (turns * SL_TWO_PI)) /
           (2 * log((double) sl_rope_attrs(attrs)->theta));
}

/* 0 for pairs that keep their frequency, 1 for those that get 1/factor of it. */
static inline double sl_rope_ramp(const sl_attrs *attrs, int64_t j)
{
    double first = sl_rope_pair_of(attrs, sl_rope_attrs(attrs)->high_freq_factor);
    double last = sl_rope_pair_of(attrs, sl_rope_attrs(attrs)->low_freq_factor);
    if (!sl_rope_attrs(attrs)->exact_ramp)
        first = floor(first), last = ceil(last);
    first = fmax(first, 0), last = fmin(last, sl_rope_rotary(attrs) - 1);
    if (first == last)
        last += 0.001;
    return fmin(fmax(((double) j - first) / (last - first), 0), 1);
}

/* Radians per position of pair j in [0, rotary/2). The angle is (double) position * frequency: in f32 it would be off by
 * .06 radians at position one million. `factors` (may be NULL: 1) are those of SL_ROPE_LONG: [2][rotary/2]. */
static inline double sl_rope_frequency(const sl_attrs *attrs, const float *factors, int64_t j)
{
    double theta = sl_rope_attrs(attrs)->theta, r = sl_rope_rotary(attrs);
    double frequency = pow(theta, -2.0 * (double) j / r);
    double factor = sl_rope_attrs(attrs)->factor, low = sl_rope_attrs(attrs)->low_freq_factor,
           high = sl_rope_attrs(attrs)->high_freq_factor;
    double original = sl_rope_attrs(attrs)->original_context, seqlen = (double) sl_rope_attrs(attrs)->seqlen;
    if (sl_rope_attrs(attrs)->scaling == SL_ROPE_LONG)
        return factors ? frequency / factors[seqlen > original ? sl_rope_rotary(attrs) / 2 + j : j] : frequency;
    if (factor == 0 || factor == 1)
        return frequency;
    if (sl_rope_attrs(attrs)->scaling == SL_ROPE_LINEAR)
        return frequency / factor;
    if (sl_rope_attrs(attrs)->scaling == SL_ROPE_DYNAMIC)
        return seqlen > original
                   ? pow(theta * pow(factor * seqlen / original - (factor - 1), r / (r - 2)), -2.0 * (double) j / r)
                   : frequency;
    if (sl_rope_attrs(attrs)->scaling == SL_ROPE_YARN) {
        double ramp = sl_rope_ramp(attrs, j);
        return ramp * frequency / factor + (1 - ramp) * frequency;
    }
    double turns = original * frequency / SL_TWO_PI; /* within the original context */
    if (turns < low)
        return frequency / factor;
    if (turns > high)
        return frequency;
    double smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

#endif
