/* Attributes of the norm of queries and keys, forward and backward, and where the normed parts of a row lie. */
#ifndef SL_OPS_QK_NORM_H
#define SL_OPS_QK_NORM_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_qk_norm_attrs {
    int32_t heads, kv_heads, head_dim;
    float eps;
    float offset;  /* added to the weights, as RMSNorm's */
    int32_t whole; /* 1: one norm over all query heads and one over all key heads; 0: one for each head */
};
SL_ATTRS_OF(qk_norm)

/* A row: count[0] parts of dim[0] elements (q), count[1] of dim[1] (k), and v from element `normed` on. */
typedef struct sl_qk_parts {
    int64_t count[2], dim[2], normed, width;
} sl_qk_parts;

static inline sl_qk_parts sl_qk_norm_parts(const sl_attrs *attrs)
{
    const struct sl_qk_norm_attrs *a = sl_qk_norm_attrs(attrs);
    const int64_t e = a->head_dim, h = a->heads, g = a->kv_heads;
    const sl_qk_parts by_head = {{h, g}, {e, e}, (h + g) * e, (h + 2 * g) * e};
    const sl_qk_parts whole = {{1, 1}, {h * e, g * e}, (h + g) * e, (h + 2 * g) * e};
    return a->whole ? whole : by_head;
}

#endif
