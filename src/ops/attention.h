/* Which rows of the context a query sees: the rule that reference and kernels share. */
#ifndef SL_OPS_ATTENTION_H
#define SL_OPS_ATTENTION_H

#include "ops/op.h"

#define SL_ATTENTION_MAX_HEAD_DIM 512

/*
 * segments[0] = 0 <= segments[1] <= ... are boundaries between packed sequences, in rows of kv, padded by repeating the last
 * one; a boundary past m counts as m. Query i stands at row q_offset + i and sees the rows [*first, *end) of its own sequence,
 * itself the last one if causal. `boundaries` is the operand's length (sequences + 1).
 */
static inline void sl_attention_rows(const sl_attrs *attrs, const int32_t *segments, int64_t boundaries, int64_t m,
                                     int64_t i, int64_t *first, int64_t *end)
{
    int64_t row = attrs->attention.q_offset + i, s = 0;
    while (s + 2 < boundaries && segments[s + 1] <= row)
        s++;
    *first = segments[s];
    *end = SL_MIN((int64_t) segments[s + 1], m);
    if (attrs->attention.causal)
        *end = SL_MIN(*end, row + 1);
}

#endif
