/* Which rows of the cache a launch writes and reads: the rules that reference and kernels share. */
#ifndef SL_OPS_CACHED_ATTENTION_H
#define SL_OPS_CACHED_ATTENTION_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_cached_attention_attrs {
    int32_t heads, kv_heads, head_dim;
    float scale;    /* usually 1/sqrt(head_dim) */
    int64_t rows;   /* of the cache: positions are below it */
    int64_t window; /* most rows that a query sees behind and including its own; 0: all */
    float cap;      /* scores are cap * tanh(score / cap); 0: as they are */
    int32_t unused;
};
SL_ATTRS_OF(cached_attention)

/* Of n positions p, p+1, .., p+count-1, p+count-1, ..: the first, and how many rows are tokens. Launches never change, so a chunk that
 * is not full repeats its last position. */
static inline SL_HD int64_t sl_cached_count(const int32_t *positions, int64_t n)
{
    return (int64_t) positions[n - 1] - positions[0] + 1;
}

/* The first row that the query at `position` sees. */
static inline SL_HD int64_t sl_cached_first(const sl_attrs *attrs, int64_t position)
{
    const int64_t window = sl_cached_attention_attrs(attrs)->window;
    return window > 0 && position >= window ? position - window + 1 : 0;
}

#endif
