/* Rotation frequencies, shared by the reference and the kernels so that all turn by the same angles. */
#ifndef SL_OPS_ROPE_H
#define SL_OPS_ROPE_H

#include "ops/op.h"

/* Radians per position of pair j in [0, head_dim/2). The angle is (double) position * frequency: in f32 it would be off by
 * .06 radians at position one million. */
double sl_rope_frequency(const sl_attrs *attrs, int64_t j);

#endif
