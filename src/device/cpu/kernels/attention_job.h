/* The launch of an attention kernel, unpacked; the same for every instruction set. Sequences are packed end to end in
 * the rows of kv: sequence s has rows [segments[s], segments[s+1]), query i stands at row q_offset + i, and a query
 * sees the keys of its own sequence, when causal only those at or before its row, with a window only those inside it. */
#ifndef SL_DEVICE_CPU_ATTENTION_JOB_H
#define SL_DEVICE_CPU_ATTENTION_JOB_H

#include "ops/attention.h"

typedef struct at_job {
    int64_t n, m, offset;         /* queries, rows of kv, row of query 0 */
    int64_t heads, kv_heads, dim; /* dim: head_dim */
    int64_t padded;               /* dim, up to whole vectors of any width */
    int64_t q_stride, kv_stride;  /* elements from row to row of q and dq, of k and v and their gradients */
    int64_t o_stride;             /* of o and dO */
    int64_t sequences;
    const int32_t *segments;
    int64_t window;   /* keys that a query sees at most; more than there are where there is no window */
    float scale, cap; /* cap 0: none */
    bool causal, bf16, dkv_bf16, accumulate;
    const void *q, *kv, *o, *d_o;
    const float *lse;
    void *out, *dq, *dkv;
    float *lse_out;
    float *delta;           /* backward: rowsum(dO * O), [heads, n] */
    float *partials;        /* backward: dQ of each part, [parts, heads, n, padded] */
    int64_t key_blocks;     /* of all sequences */
    float *scratch;         /* of thread 0 */
    int64_t scratch_floats; /* of each thread */
} at_job;

/* The queries and keys of a sequence that meet in this launch. */
typedef struct at_span {
    int64_t q0, q1, k0, k1;
} at_span;

static inline int64_t at_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t at_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t at_blocks(int64_t count, int64_t block)
{
    return count > 0 ? (count + block - 1) / block : 0;
}

/* A key's place relative to a tile of at most 64, for comparing in i32 lanes: beyond either end one is as good as another. */
static inline int64_t at_clamp(int64_t place)
{
    return at_max(at_min(place, 128), -128);
}

static inline at_span at_sequence(const at_job *job, int64_t s)
{
    at_span x;
    x.k0 = at_min(job->segments[s], job->m);
    x.k1 = at_min(job->segments[s + 1], job->m);
    x.q0 = at_max(x.k0 - job->offset, 0);
    x.q1 = at_min(x.k1 - job->offset, job->n);
    if (x.q1 < x.q0)
        x.q1 = x.q0;
    if (job->causal)
        x.k1 = at_max(at_min(x.k1, job->offset + x.q1), x.k0);
    x.k0 = at_min(at_max(x.k0, job->offset + x.q0 + 1 - job->window), x.k1);
    return x;
}

/* Query blocks of all sequences; *tile becomes the block's number within the sequence that is returned. */
static inline int64_t at_query_blocks(const at_job *job, int64_t block)
{
    int64_t blocks = 0;
    for (int64_t s = 0; s < job->sequences; s++) {
        at_span x = at_sequence(job, s);
        blocks += at_blocks(x.q1 - x.q0, block);
    }
    return blocks;
}
static inline at_span at_find_query_block(const at_job *job, int64_t block, int64_t *tile)
{
    at_span x = {0, 0, 0, 0};
    for (int64_t s = 0; s < job->sequences; s++) {
        x = at_sequence(job, s);
        int64_t blocks = at_blocks(x.q1 - x.q0, block);
        if (*tile < blocks)
            break;
        *tile -= blocks;
    }
    return x;
}

static inline at_job at_job_shape(const sl_launch *launch, const sl_operand *q, const sl_operand *kv,
                                  const sl_operand *segments)
{
    const sl_attention_layout at = sl_attention_places(&launch->attrs, &q->type, &kv->type);
    at_job job = {0};
    job.n = q->type.dim[0];
    job.m = at.m;
    job.offset = sl_attention_attrs(&launch->attrs)->q_offset;
    job.heads = sl_attention_attrs(&launch->attrs)->heads;
    job.kv_heads = sl_attention_attrs(&launch->attrs)->kv_heads;
    job.dim = sl_attention_attrs(&launch->attrs)->head_dim;
    job.padded = (job.dim + 15) & ~(int64_t) 15;
    job.q_stride = at.q_stride;
    job.kv_stride = at.kv_stride;
    job.o_stride = at.o_stride;
    job.sequences = segments->type.dim[0] - 1;
    job.segments = segments->data;
    job.window = job.m + 128; /* beyond the lanes of a tile, too */
    if (sl_attention_attrs(&launch->attrs)->window > 0)
        job.window = at_min(job.window, sl_attention_attrs(&launch->attrs)->window);
    job.cap = sl_attention_attrs(&launch->attrs)->cap;
    job.scale = sl_attention_attrs(&launch->attrs)->scale;
    job.causal = sl_attention_attrs(&launch->attrs)->causal != 0;
    job.bf16 = q->type.dtype == SL_BF16;
    job.q = q->data;
    job.kv = sl_attention_kv(&at, q, kv);
    return job;
}

#endif
