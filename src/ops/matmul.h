/* Attributes of matmul. */
#ifndef SL_OPS_MATMUL_H
#define SL_OPS_MATMUL_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_matmul_attrs {
    int32_t trans_a, trans_b; /* A is [M,K] or, transposed, [K,M]; B is [K,N] or, transposed, [N,K] */
};
SL_ATTRS_OF(matmul)

#endif
