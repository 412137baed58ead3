/* Attributes of dropout. */
#ifndef SL_OPS_DROPOUT_H
#define SL_OPS_DROPOUT_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_dropout_attrs {
    float probability;
    uint32_t stream;   /* which dropout of the model this is */
    int64_t first_row; /* of the chunk in the whole batch; set by the program */
};
SL_ATTRS_OF(dropout)

#endif
