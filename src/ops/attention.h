/* Where q, k and v lie and which rows of the context a query sees: the rules that reference and kernels share. */
#ifndef SL_OPS_ATTENTION_H
#define SL_OPS_ATTENTION_H

#include "ops/op.h"

#define SL_ATTENTION_MAX_HEAD_DIM 512

struct SL_ATTRS_TYPE sl_attention_attrs {
    int32_t heads, kv_heads, head_dim, causal;
    int64_t q_offset;         /* row of kv that query 0 stands at: the slice's place in its sequence */
    float scale;              /* usually 1/sqrt(head_dim) */
    int32_t nondeterministic; /* backward: may add in any order, so that its last bits differ from run to run */
    int64_t sequence; /* for the cost alone: tokens per packed sequence (0: the boundaries' equal shares of the rows) */
    int64_t uniform;  /* rows of every segment where all are alike, as the boundaries say too; 0: only they know */
    int64_t window;   /* most rows that a query sees behind and including its own; 0: all of its sequence */
    float cap;        /* scores are cap * tanh(score / cap); 0: as they are */
    int32_t unused;
};
SL_ATTRS_OF(attention)

/*
 * segments[0] = 0 <= segments[1] <= ... are boundaries between packed sequences, in rows of kv, padded by repeating the last
 * one; a boundary past m counts as m. Query i stands at row q_offset + i and sees the rows [*first, *end) of its own sequence,
 * itself the last one if causal, and none before the window. `boundaries` is the operand's length (sequences + 1).
 */
static inline void sl_attention_rows(const sl_attrs *attrs, const int32_t *segments, int64_t boundaries, int64_t m,
                                     int64_t i, int64_t *first, int64_t *end)
{
    int64_t row = sl_attention_attrs(attrs)->q_offset + i, s = 0;
    while (s + 2 < boundaries && segments[s + 1] <= row)
        s++;
    *first = segments[s];
    if (sl_attention_attrs(attrs)->window > 0)
        *first = SL_MAX(*first, row - sl_attention_attrs(attrs)->window + 1);
    *end = SL_MIN((int64_t) segments[s + 1], m);
    if (sl_attention_attrs(attrs)->causal)
        *end = SL_MIN(*end, row + 1);
}

/*
 * Apart, q[n, h*e] and kv[m, 2g*e]; or, where there is no kv operand, side by side in the rows of one, qkv[n, (h+2g)*e], and so are
 * their gradients then. o and do are [n, h*e] always. In elements.
 */
typedef struct sl_attention_layout {
    int64_t m;                             /* rows of k and v */
    int64_t o_stride, q_stride, kv_stride; /* of rows */
    int64_t kv_first;                      /* where a row's k begins; 0: apart */
} sl_attention_layout;

static inline sl_attention_layout sl_attention_places(const sl_attrs *attrs, const sl_type *q, const sl_type *kv)
{
    int64_t e = sl_attention_attrs(attrs)->head_dim, q_width = sl_attention_attrs(attrs)->heads * e,
            kv_width = 2 * sl_attention_attrs(attrs)->kv_heads * e, all = q_width + kv_width;
    sl_attention_layout apart = {kv->dim[0], q_width, q_width, kv_width, 0},
                        together = {q->dim[0], q_width, all, all, q_width};
    return kv->rank ? apart : together;
}

/* k and v of the operands q and kv, or dk and dv of dq and dkv; NULL where they are absent. */
static inline void *sl_attention_kv(const sl_attention_layout *at, const sl_operand *q, const sl_operand *kv)
{
    if (at->kv_first == 0 || !q->data)
        return kv->data;
    return (char *) q->data + (size_t) at->kv_first * sl_dtype_bytes(q->type.dtype);
}

#endif
