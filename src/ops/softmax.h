/* Attributes of softmax, forward and backward. */
#ifndef SL_OPS_SOFTMAX_H
#define SL_OPS_SOFTMAX_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_softmax_attrs {
    float scale;
    int32_t causal; /* row i sees columns 0..i */
};
SL_ATTRS_OF(softmax)

#endif
