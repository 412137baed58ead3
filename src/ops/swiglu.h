/* Attributes of SwiGLU and GeGLU, forward and backward. */
#ifndef SL_OPS_SWIGLU_H
#define SL_OPS_SWIGLU_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_swiglu_attrs {
    int32_t gelu; /* 1: the gate passes through the tanh form of GELU, 0: through SiLU */
};
SL_ATTRS_OF(swiglu)

#endif
