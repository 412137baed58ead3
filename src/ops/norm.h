/* Attributes of RMSNorm and LayerNorm, forward and backward. */
#ifndef SL_OPS_NORM_H
#define SL_OPS_NORM_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_norm_attrs {
    float eps;
    float offset; /* added to the weights of RMSNorm: 1 where files hold what they differ from it (Gemma); 0: none */
};
SL_ATTRS_OF(norm)

#endif
