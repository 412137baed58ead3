/* Attributes of grn and its backward. */
#ifndef SL_OPS_GRN_H
#define SL_OPS_GRN_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_grn_attrs {
    int64_t sample_rows; /* tokens of a sample */
    float eps;           /* added to the mean length */
    int32_t unused;
};
SL_ATTRS_OF(grn)

#endif
