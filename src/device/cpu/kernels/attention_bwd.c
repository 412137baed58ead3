/*
 * Attention backward from the saved row statistics: with P = exp(S - lse), taken as 2^(log2(e) S - log2(e) lse), and
 * D = rowsum(dO * O),
 *
 *     dV = P^T dO     dP = dO V^T     dS = P * (dP - D)     dK = scale dS^T Q     dQ = scale dS K
 *
 * Key-major: the keys are the lanes. For 64 keys of a K/V head, K^T and V^T are packed once, dK^T and dV^T stay in
 * scratch, and all queries that see the keys (of all heads of the group) pass by in blocks of 64: five GEMMs per
 * pair of blocks. dQ gathers in f32, in one of three ways, chosen by shapes and sequences alone, never by threads:
 *   whole   a task owns a (K/V head, sequence), and dQ a buffer of the thread; where there are enough such tasks.
 *   parts   the blocks of keys are dealt to a fixed number of parts, each with a dQ of its own in the workspace, which
 *           are added in order at the end: few heads, few sequences, as in the slices of a long one.
 *   split   where those would be too large: dK and dV by blocks of keys, then dQ query-major as in the forward. Seven
 *           GEMMs.
 */
#include "core/pool.h"
#include "device/cpu/kernels/attention_job.h"
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/kernel.h"

enum { AT_WHOLE_TASKS = 8 };                /* fewer (K/V head, sequence) pairs than this: parts */
#define AT_WHOLE_FLOATS ((int64_t) 4 << 20) /* longest dQ buffer of a thread */
#define AT_PARTS_FLOATS ((int64_t) 8 << 20) /* largest dQ of all parts together */

static int64_t at_dq_floats(const at_job *job)
{
    int64_t floats = job->heads / job->kv_heads * job->n * job->padded;
    return floats <= AT_WHOLE_FLOATS && job->kv_heads * job->sequences >= AT_WHOLE_TASKS ? floats : 0;
}

static int64_t at_parts(const at_job *job)
{
    return at_blocks(2 * AT_WHOLE_TASKS, job->kv_heads);
}

static int64_t at_parts_floats(const at_job *job)
{
    int64_t floats = at_parts(job) * job->heads * job->n * job->padded;
    return floats <= AT_PARTS_FLOATS && job->kv_heads < AT_WHOLE_TASKS ? floats : 0;
}

static int64_t at_tiles_floats(const at_job *job)
{
    return 4 * job->dim * AT_BLOCK + 3 * AT_BLOCK * job->padded + 2 * AT_BLOCK * AT_BLOCK;
}

/* D for 64 queries of one head. */
SL_INLINE void at_delta_tile(const at_job *job, int64_t tile, bool bf16)
{
    const int64_t head = tile % job->heads, q0 = tile / job->heads * AT_BLOCK, q1 = at_min(q0 + AT_BLOCK, job->n);
    for (int64_t i = q0; i < q1; i++) {
        int64_t at = i * job->o_stride + head * job->dim, e = 0;
        vf sum = vf_zero();
        for (; e + VF_LANES <= job->dim; e += VF_LANES)
            sum = vf_fma(vf_get(job->d_o, at + e, VF_LANES, bf16), vf_get(job->o, at + e, VF_LANES, bf16), sum);
        if (e < job->dim) {
            int left = (int) (job->dim - e);
            sum = vf_fma(vf_get(job->d_o, at + e, left, bf16), vf_get(job->o, at + e, left, bf16), sum);
        }
        job->delta[head * job->n + i] = vf_sum(sum);
    }
}

typedef struct at_backward {
    float *at, *bt;   /* the packed pair, [dim][64]: K^T and V^T, or Q^T and dO^T */
    float *ct, *dt;   /* results of the lanes' side: dK^T and dV^T, or dQ^T */
    float *a, *b, *k; /* [64][padded]: the passing pair, Q and dO or K and V; K as rows */
    float *p, *ds;    /* [64][64] */
    float *dq;        /* [group][dq_rows][padded], row 0 is query dq_first */
    int64_t dq_rows, dq_first;
} at_backward;

SL_INLINE at_backward at_backward_scratch(const at_job *job, int thread)
{
    at_backward t;
    const int64_t panel = job->dim * AT_BLOCK, rows = AT_BLOCK * job->padded;
    t.at = job->scratch + thread * job->scratch_floats;
    t.bt = t.at + panel;
    t.ct = t.bt + panel;
    t.dt = t.ct + panel;
    t.a = t.dt + panel;
    t.b = t.a + rows;
    t.k = t.b + rows;
    t.p = t.k + rows;
    t.ds = t.p + AT_BLOCK * AT_BLOCK;
    t.dq = t.ds + AT_BLOCK * AT_BLOCK;
    t.dq_rows = t.dq_first = 0;
    return t;
}

/* P and dS of query rows [r0, r1) against the first `vecs` vectors of keys. Query r sees the block's keys from low0 + r on and, of
 * these, the first seen0 + r. */
SL_INLINE void at_key_major_ds(const at_job *job, const at_backward *t, int64_t r0, int64_t r1, int64_t vecs,
                               const float *lse, const float *delta, int64_t low0, int64_t seen0, bool masked)
{
    for (int64_t r = r0; r < r1; r++) {
        vf l = vf_set1(lse[r] * VF_LOG2E), d = vf_set1(delta[r]);
        vi limit = vi_set1((int32_t) at_clamp(seen0 + r)), low = vi_set1((int32_t) at_clamp(low0 + r - 1));
        for (int64_t v = 0; v < vecs; v++) {
            float *p = t->p + r * AT_BLOCK + v * VF_LANES, *ds = t->ds + r * AT_BLOCK + v * VF_LANES;
            vf slope, s = vf_load(p, VF_LANES), back = vf_sub(vf_load(ds, VF_LANES), d);
            if (job->cap > 0) {
                s = at_cap(s, job->cap, &slope);
                back = vf_mul(back, slope);
            }
            vf x = vf_exp2(vf_sub(s, l));
            if (masked) {
                vi key = vi_add(vi_iota(), vi_set1((int32_t) (v * VF_LANES)));
                x = vf_select(vi_gt(limit, key), x, vf_zero());
                x = vf_select(vi_gt(key, low), x, vf_zero());
            }
            vf_store(p, x, VF_LANES);
            vf_store(ds, vf_mul(x, back), VF_LANES);
        }
    }
}

/* One pair of blocks, a group of query rows (16 along the diagonal, else all) at a time. `first` is the row in kv of
 * query 0. */
SL_INLINE void at_key_major_pair(const at_job *job, const at_backward *t, int64_t first, int64_t queries, int64_t k0,
                                 int64_t keys, const float *lse, const float *delta, float *dq)
{
    const int64_t padded = job->padded;
    for (int64_t r0 = 0, r1; r0 < queries; r0 = r1) {
        const bool diagonal = job->causal && first + r0 + 1 < k0 + keys;
        r1 = diagonal ? at_min(r0 + AT_GROUP, queries) : queries;
        const int64_t seen = diagonal ? at_min(first + r1 - k0, keys) : keys, vecs = at_blocks(seen, VF_LANES);
        at_product s = {.c = t->p + r0 * AT_BLOCK,
                        .a = t->a + r0 * padded,
                        .b = t->at,
                        .ldc = AT_BLOCK,
                        .lda = padded,
                        .ldb = AT_BLOCK,
                        .depth = job->dim};
        at_set(&s, r1 - r0, 0, vecs);
        at_product dp = s;
        dp.c = t->ds + r0 * AT_BLOCK;
        dp.a = t->b + r0 * padded;
        dp.b = t->bt;
        at_set(&dp, r1 - r0, 0, vecs);
        const int64_t low0 = first + 1 - job->window - k0;
        if (diagonal)
            at_key_major_ds(job, t, r0, r1, vecs, lse, delta, low0, first + 1 - k0, true);
        else if (low0 + r1 - 1 > 0)
            at_key_major_ds(job, t, r0, r1, vecs, lse, delta, low0, 2 * AT_BLOCK, true);
        else
            at_key_major_ds(job, t, r0, r1, vecs, lse, delta, 0, 0, false);
        at_product dv = {.c = t->dt,
                         .a = t->b + r0 * padded,
                         .b = s.c,
                         .ldc = AT_BLOCK,
                         .lda = padded,
                         .ldb = AT_BLOCK,
                         .depth = r1 - r0};
        at_add_transposed(&dv, job->dim, 0, vecs);
        at_product dk = dv;
        dk.c = t->ct;
        dk.a = t->a + r0 * padded;
        dk.b = dp.c;
        at_add_transposed(&dk, job->dim, 0, vecs);
        if (dq) {
            at_product x = {.c = dq + r0 * padded,
                            .a = dp.c,
                            .b = t->k,
                            .ldc = padded,
                            .lda = AT_BLOCK,
                            .ldb = padded,
                            .depth = seen};
            at_add(&x, r1 - r0, 0, padded / VF_LANES);
        }
    }
}

/* dK and dV of one block of keys of a K/V head, from all queries that see them. */
SL_INLINE void at_key_block(const at_job *job, const at_backward *t, int64_t kv_head, const at_span *span, int64_t k0,
                            int64_t keys, bool with_dq, bool bf16)
{
    const int64_t dim = job->dim, padded = job->padded, group = job->heads / job->kv_heads,
                  k_at = k0 * job->kv_stride + kv_head * dim;
    const void *k = element_const(job->kv, k_at, bf16), *v = element_const(k, job->kv_heads * dim, bf16);
    at_pack_transposed(t->at, k, job->kv_stride, keys, dim, VF_LOG2E, bf16);
    at_pack_transposed(t->bt, v, job->kv_stride, keys, dim, 1.0f, bf16);
    if (with_dq)
        at_pack_rows(t->k, padded, k, job->kv_stride, keys, dim, job->scale, bf16);
    memset(t->ct, 0, (size_t) (dim * AT_BLOCK) * sizeof *t->ct);
    memset(t->dt, 0, (size_t) (dim * AT_BLOCK) * sizeof *t->dt);
    const int64_t first_q = job->causal ? at_max(span->q0, k0 - job->offset) : span->q0;
    const int64_t end_q = at_min(span->q1, k0 + keys - 1 + job->window - job->offset);
    for (int64_t i = 0; i < group; i++) {
        const int64_t head = kv_head * group + i;
        for (int64_t q0 = first_q; q0 < end_q; q0 += AT_BLOCK) {
            const int64_t queries = at_min(AT_BLOCK, end_q - q0);
            const int64_t q_at = q0 * job->q_stride + head * dim, o_at = q0 * job->o_stride + head * dim;
            at_pack_rows(t->a, padded, element_const(job->q, q_at, bf16), job->q_stride, queries, dim, job->scale,
                         bf16);
            at_pack_rows(t->b, padded, element_const(job->d_o, o_at, bf16), job->o_stride, queries, dim, 1.0f, bf16);
            float *dq = with_dq ? t->dq + (i * t->dq_rows + q0 - t->dq_first) * padded : NULL;
            at_key_major_pair(job, t, job->offset + q0, queries, k0, keys, job->lse + head * job->n + q0,
                              job->delta + head * job->n + q0, dq);
        }
    }
    void *dk = element(job->dkv, k_at, job->dkv_bf16), *dv = element(dk, job->kv_heads * dim, job->dkv_bf16);
    if (job->dkv_bf16) {
        at_unpack_transposed(dk, job->kv_stride, keys, dim, t->ct, NULL, true, job->accumulate);
        at_unpack_transposed(dv, job->kv_stride, keys, dim, t->dt, NULL, true, job->accumulate);
    } else {
        at_unpack_transposed(dk, job->kv_stride, keys, dim, t->ct, NULL, false, job->accumulate);
        at_unpack_transposed(dv, job->kv_stride, keys, dim, t->dt, NULL, false, job->accumulate);
    }
}

/* A K/V head and a whole sequence: dK, dV and dQ. */
SL_INLINE void at_sequence_tile(const at_job *job, int64_t tile, int thread, bool bf16)
{
    const int64_t kv_head = tile % job->kv_heads, group = job->heads / job->kv_heads, padded = job->padded,
                  dim = job->dim;
    const at_span span = at_sequence(job, tile / job->kv_heads);
    const int64_t queries = span.q1 - span.q0;
    at_backward t = at_backward_scratch(job, thread);
    t.dq_rows = queries;
    t.dq_first = span.q0;
    memset(t.dq, 0, (size_t) (group * queries * padded) * sizeof *t.dq);
    for (int64_t k0 = span.k0; k0 < span.k1; k0 += AT_BLOCK)
        at_key_block(job, &t, kv_head, &span, k0, at_min(AT_BLOCK, span.k1 - k0), true, bf16);
    for (int64_t i = 0; i < group; i++) {
        for (int64_t q = 0; q < queries; q++) {
            const float *from = t.dq + (i * queries + q) * padded;
            int64_t at = (span.q0 + q) * job->q_stride + (kv_head * group + i) * dim, e = 0;
            for (; e + VF_LANES <= dim; e += VF_LANES)
                vf_put(job->dq, at + e, vf_load(from + e, VF_LANES), VF_LANES, bf16);
            if (e < dim)
                vf_put(job->dq, at + e, vf_load(from + e, VF_LANES), (int) (dim - e), bf16);
        }
    }
}

/* The block-th block of keys of all sequences, and its sequence. */
SL_INLINE int64_t at_find_key_block(const at_job *job, int64_t block, at_span *span)
{
    for (int64_t s = 0; s < job->sequences; s++) {
        *span = at_sequence(job, s);
        int64_t blocks = at_blocks(span->k1 - span->k0, AT_BLOCK);
        if (block < blocks)
            break;
        block -= blocks;
    }
    return span->k0 + block * AT_BLOCK;
}

/* A K/V head and one block of keys: dK and dV only. */
SL_INLINE void at_keys_tile(const at_job *job, int64_t tile, int thread, bool bf16)
{
    at_backward t = at_backward_scratch(job, thread);
    at_span span = {0, 0, 0, 0};
    const int64_t k0 = at_find_key_block(job, tile / job->kv_heads, &span);
    at_key_block(job, &t, tile % job->kv_heads, &span, k0, at_min(AT_BLOCK, span.k1 - k0), false, bf16);
}

/* A K/V head and one part of the key blocks: dK, dV, and this part of dQ. */
SL_INLINE void at_part_tile(const at_job *job, int64_t tile, int thread, bool bf16)
{
    const int64_t part = tile / job->kv_heads, parts = at_parts(job),
                  floats = job->heads / job->kv_heads * job->n * job->padded;
    at_backward t = at_backward_scratch(job, thread);
    t.dq = job->partials + tile * floats;
    t.dq_rows = job->n;
    memset(t.dq, 0, (size_t) floats * sizeof *t.dq);
    for (int64_t b = part * job->key_blocks / parts; b < (part + 1) * job->key_blocks / parts; b++) {
        at_span span = {0, 0, 0, 0};
        const int64_t k0 = at_find_key_block(job, b, &span);
        at_key_block(job, &t, tile % job->kv_heads, &span, k0, at_min(AT_BLOCK, span.k1 - k0), true, bf16);
    }
}

/* dQ of 64 queries of a head: the parts in order. */
SL_INLINE void at_gather_tile(const at_job *job, int64_t tile, bool bf16)
{
    const int64_t head = tile % job->heads, q0 = tile / job->heads * AT_BLOCK, q1 = at_min(q0 + AT_BLOCK, job->n);
    const int64_t padded = job->padded, parts = at_parts(job), part_floats = job->heads * job->n * padded;
    for (int64_t q = q0; q < q1; q++) {
        const float *from = job->partials + (head * job->n + q) * padded;
        for (int64_t e = 0; e < job->dim; e += VF_LANES) {
            vf sum = vf_load(from + e, VF_LANES);
            for (int64_t part = 1; part < parts; part++)
                sum = vf_add(sum, vf_load(from + part * part_floats + e, VF_LANES));
            const int64_t at = q * job->q_stride + head * job->dim + e, left = job->dim - e;
            if (left >= VF_LANES)
                vf_put(job->dq, at, sum, VF_LANES, bf16);
            else
                vf_put(job->dq, at, sum, (int) left, bf16);
        }
    }
}

/* dS^T of one block of keys for one vector of queries: p[key][query] holds scores, ds dP^T. */
SL_INLINE void at_query_major_ds(const at_job *job, const at_backward *t, int64_t v, int64_t keys, vf lse, vf delta,
                                 int64_t limit0)
{
    const int64_t low0 = limit0 - job->window - 1;
    vi limit = vi_set1(AT_BLOCK), low = vi_add(vi_set1((int32_t) at_clamp(low0)), vi_iota());
    if (job->causal)
        limit = vi_add(vi_set1((int32_t) at_clamp(limit0)), vi_iota());
    bool masked = (job->causal && limit0 < keys) || low0 + VF_LANES > 0;
    for (int64_t j = 0; j < keys; j++) {
        float *ds = t->ds + j * AT_BLOCK + v * VF_LANES;
        vf slope, s = vf_load(t->p + j * AT_BLOCK + v * VF_LANES, VF_LANES);
        vf back = vf_sub(vf_load(ds, VF_LANES), delta);
        if (job->cap > 0) {
            s = at_cap(s, job->cap, &slope);
            back = vf_mul(back, slope);
        }
        vf x = vf_exp2(vf_sub(s, lse));
        if (masked) {
            x = vf_select(vi_gt(limit, vi_set1((int32_t) j)), x, vf_zero());
            x = vf_select(vi_gt(vi_set1((int32_t) j), low), x, vf_zero());
        }
        vf_store(ds, vf_mul(x, back), VF_LANES);
    }
}

/* A head and one block of queries: dQ only, queries along the lanes as in the forward. */
SL_INLINE void at_queries_tile(const at_job *job, int64_t tile, int thread, bool bf16)
{
    const int64_t dim = job->dim, padded = job->padded, head = tile % job->heads;
    int64_t block = tile / job->heads;
    const at_span span = at_find_query_block(job, AT_BLOCK, &block);
    const int64_t q0 = span.q0 + block * AT_BLOCK, queries = at_min(AT_BLOCK, span.q1 - q0);
    const int64_t vecs = at_blocks(queries, VF_LANES), first = job->offset + q0;
    const int64_t k_end = job->causal ? at_min(span.k1, first + queries) : span.k1;
    const int64_t kv_head = head / (job->heads / job->kv_heads), q_at = q0 * job->q_stride + head * dim;
    at_backward t = at_backward_scratch(job, thread);
    at_pack_transposed(t.at, element_const(job->q, q_at, bf16), job->q_stride, queries, dim, job->scale * VF_LOG2E,
                       bf16);
    at_pack_transposed(t.bt, element_const(job->d_o, q0 * job->o_stride + head * dim, bf16), job->o_stride, queries,
                       dim, 1.0f, bf16);
    memset(t.ct, 0, (size_t) (dim * AT_BLOCK) * sizeof *t.ct);
    float row[2][AT_BLOCK] = {{0}};
    for (int64_t i = 0; i < queries; i++) {
        row[0][i] = job->lse[head * job->n + q0 + i] * VF_LOG2E;
        row[1][i] = job->delta[head * job->n + q0 + i];
    }
    for (int64_t k0 = at_max(span.k0, first + 1 - job->window); k0 < k_end; k0 += AT_BLOCK) {
        const int64_t keys = at_min(AT_BLOCK, k_end - k0);
        const void *k = element_const(job->kv, k0 * job->kv_stride + kv_head * dim, bf16);
        at_pack_rows(t.a, padded, k, job->kv_stride, keys, dim, 1.0f, bf16);
        at_pack_rows(t.b, padded, element_const(k, job->kv_heads * dim, bf16), job->kv_stride, keys, dim, 1.0f, bf16);
        at_product s = {.c = t.p, .a = t.a, .b = t.at, .ldc = AT_BLOCK, .lda = padded, .ldb = AT_BLOCK, .depth = dim};
        at_set(&s, keys, 0, vecs);
        at_product dp = s;
        dp.c = t.ds;
        dp.a = t.b;
        dp.b = t.bt;
        at_set(&dp, keys, 0, vecs);
        for (int64_t v = 0; v < vecs; v++)
            at_query_major_ds(job, &t, v, keys, vf_load(row[0] + v * VF_LANES, VF_LANES),
                              vf_load(row[1] + v * VF_LANES, VF_LANES), first + v * VF_LANES + 1 - k0);
        at_product dq = {
            .c = t.ct, .a = t.a, .b = t.ds, .ldc = AT_BLOCK, .lda = padded, .ldb = AT_BLOCK, .depth = keys};
        at_add_transposed(&dq, dim, 0, vecs);
    }
    for (int64_t i = 0; i < AT_BLOCK; i++)
        row[0][i] = job->scale;
    at_unpack_transposed(element(job->dq, q_at, bf16), job->q_stride, queries, dim, t.ct, row[0], bf16, false);
}

/* Each pass for each dtype. */
static void at_delta_f32(void *context, int64_t tile, int thread)
{
    (void) thread;
    at_delta_tile(context, tile, false);
}
static void at_delta_bf16(void *context, int64_t tile, int thread)
{
    (void) thread;
    at_delta_tile(context, tile, true);
}
static void at_sequence_f32(void *context, int64_t tile, int thread)
{
    at_sequence_tile(context, tile, thread, false);
}
static void at_sequence_bf16(void *context, int64_t tile, int thread)
{
    at_sequence_tile(context, tile, thread, true);
}
static void at_keys_f32(void *context, int64_t tile, int thread)
{
    at_keys_tile(context, tile, thread, false);
}
static void at_keys_bf16(void *context, int64_t tile, int thread)
{
    at_keys_tile(context, tile, thread, true);
}
static void at_queries_f32(void *context, int64_t tile, int thread)
{
    at_queries_tile(context, tile, thread, false);
}
static void at_queries_bf16(void *context, int64_t tile, int thread)
{
    at_queries_tile(context, tile, thread, true);
}

static void at_part_f32(void *context, int64_t tile, int thread)
{
    at_part_tile(context, tile, thread, false);
}
static void at_part_bf16(void *context, int64_t tile, int thread)
{
    at_part_tile(context, tile, thread, true);
}
static void at_gather_f32(void *context, int64_t tile, int thread)
{
    (void) thread;
    at_gather_tile(context, tile, false);
}
static void at_gather_bf16(void *context, int64_t tile, int thread)
{
    (void) thread;
    at_gather_tile(context, tile, true);
}

static int64_t at_backward_floats(const at_job *job)
{
    return at_tiles_floats(job) + at_dq_floats(job);
}

static int64_t at_delta_floats(const at_job *job)
{
    return (job->heads * job->n + 63) & ~(int64_t) 63;
}

static size_t attention_bwd_workspace(const sl_launch *launch, int threads)
{
    at_job job = at_job_shape(launch, &launch->in[1], &launch->in[2], &launch->in[5]);
    return (size_t) (threads * at_backward_floats(&job) + at_delta_floats(&job) + at_parts_floats(&job)) *
           sizeof(float);
}

/* Rows of kv that no query of this launch sees belong to no tile: their gradient is zero. */
static void at_clear_unseen(const at_job *job)
{
    const size_t size = job->dkv_bf16 ? 2 : 4, row_bytes = (size_t) job->kv_stride * size;
    int64_t row = 0;
    for (int64_t s = 0; s <= job->sequences; s++) {
        at_span span = {0, 0, job->m, job->m};
        if (s < job->sequences)
            span = at_sequence(job, s);
        for (; row < span.k0; row++)
            memset((char *) job->dkv + (size_t) row * row_bytes, 0, (size_t) (2 * job->kv_heads * job->dim) * size);
        row = at_max(row, span.k1);
    }
}

static void attention_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    at_job job = at_job_shape(launch, &launch->in[1], &launch->in[2], &launch->in[5]);
    job.d_o = launch->in[0].data;
    job.o = launch->in[3].data;
    job.lse = launch->in[4].data;
    job.dq = launch->out[0].data;
    const sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    job.dkv = sl_attention_kv(&at, &launch->out[0], &launch->out[1]);
    job.dkv_bf16 = launch->out[at.kv_first ? 0 : 1].type.dtype == SL_BF16;
    job.accumulate = launch->accumulate & 2u;
    job.delta = launch->workspace;
    job.partials = job.delta + at_delta_floats(&job);
    job.scratch = job.partials + at_parts_floats(&job);
    job.scratch_floats = at_backward_floats(&job);
    if (job.dkv && !job.accumulate)
        at_clear_unseen(&job);
    sl_pool_run(pool, job.bf16 ? at_delta_bf16 : at_delta_f32, &job, at_blocks(job.n, AT_BLOCK) * job.heads);

    int64_t used = 0, filled = 0;
    for (int64_t s = 0; s < job.sequences; s++) {
        at_span span = at_sequence(&job, s);
        used += span.q1 > span.q0;
        filled = span.k1 > span.k0 || span.q1 > span.q0 ? s + 1 : filled; /* empty ones behind it fill up the list */
        job.key_blocks += at_blocks(span.k1 - span.k0, AT_BLOCK);
    }
    const int64_t query_tiles = at_blocks(job.n, AT_BLOCK) * job.heads;
    if (job.dq && job.dkv && at_dq_floats(&job) && used * job.kv_heads >= AT_WHOLE_TASKS) {
        sl_pool_run(pool, job.bf16 ? at_sequence_bf16 : at_sequence_f32, &job, filled * job.kv_heads);
    } else if (job.dq && job.dkv && at_parts_floats(&job)) {
        sl_pool_run(pool, job.bf16 ? at_part_bf16 : at_part_f32, &job, at_parts(&job) * job.kv_heads);
        sl_pool_run(pool, job.bf16 ? at_gather_bf16 : at_gather_f32, &job, query_tiles);
    } else {
        if (job.dkv)
            sl_pool_run(pool, job.bf16 ? at_keys_bf16 : at_keys_f32, &job, job.key_blocks * job.kv_heads);
        if (job.dq)
            sl_pool_run(pool, job.bf16 ? at_queries_bf16 : at_queries_f32, &job,
                        at_query_blocks(&job, AT_BLOCK) * job.heads);
    }
}

SL_CPU_KERNEL(attention_bwd, SL_OP_ATTENTION_BWD, .workspace = attention_bwd_workspace, .run = attention_bwd_run);
