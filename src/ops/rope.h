/* Rotation frequencies, shared by the reference and the kernels so that all turn by the same angles. Header-only: a device plugin
 * cannot call into the library. */
#ifndef SL_OPS_ROPE_H
#define SL_OPS_ROPE_H

#include <math.h>

#include "ops/op.h"

#define SL_TWO_PI 6.283185307179586

/* Radians per position of pair j in [0, head_dim/2). The angle is (double) position * frequency: in f32 it would be off by
 * .06 radians at position one million. */
static inline double sl_rope_frequency(const sl_attrs *attrs, int64_t j)
{
    double frequency = pow((double) attrs->rope.theta, -2.0 * (double) j / attrs->rope.head_dim);
    double factor = attrs->rope.factor, low = attrs->rope.low_freq_factor, high = attrs->rope.high_freq_factor;
    if (factor == 0 || factor == 1)
        return frequency;
    double turns = attrs->rope.original_context * frequency / SL_TWO_PI; /* within the original context */
    if (turns < low)
        return frequency / factor;
    if (turns > high)
        return frequency;
    double smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

#endif
