/* Attributes of the norm of query and key heads, forward and backward. */
#ifndef SL_OPS_QK_NORM_H
#define SL_OPS_QK_NORM_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_qk_norm_attrs {
    int32_t heads, kv_heads, head_dim;
    float eps;
};
SL_ATTRS_OF(qk_norm)

#endif
