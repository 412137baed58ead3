/* Attributes of embedding_bwd. */
#ifndef SL_OPS_EMBEDDING_H
#define SL_OPS_EMBEDDING_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_embedding_attrs {
    int64_t rows; /* vocabulary size V, which its inputs do not show */
};
SL_ATTRS_OF(embedding)

#endif
