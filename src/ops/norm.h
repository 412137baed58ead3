/* Attributes of RMSNorm and LayerNorm, forward and backward. */
#ifndef SL_OPS_NORM_H
#define SL_OPS_NORM_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_norm_attrs {
    float eps;
};
SL_ATTRS_OF(norm)

#endif
