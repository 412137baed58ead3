/* Attributes of rope_table and its backward. */
#ifndef SL_OPS_ROPE_TABLE_H
#define SL_OPS_ROPE_TABLE_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_rope_table_attrs {
    int32_t heads, kv_heads, head_dim;
    int32_t
        block; /* elements of a head that are turned as one: its halves are partners. head_dim, or half of it for two axes */
};
SL_ATTRS_OF(rope_table)

#endif
