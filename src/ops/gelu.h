/* Attributes of GELU, forward and backward. */
#ifndef SL_OPS_GELU_H
#define SL_OPS_GELU_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_gelu_attrs {
    int32_t tanh; /* 1: tanh approximation, 0: exact erf */
};
SL_ATTRS_OF(gelu)

#endif
