/*
 * Attention forward, flash style. A tile is one head and 64 queries of one sequence; the queries are the lanes:
 *
 *     S^T[key][query] = K (scale log2(e) Q)^T        K rows as they lie, Q^T packed once per tile
 *     m' = max(m, max_key S^T);  P^T = 2^(S^T - m');  l = l 2^(m - m') + sum_key P^T
 *     O^T[e][query]   = O^T 2^(m - m') + V^T P^T
 *
 * over blocks of 64 keys, so maximum, sum and rescaling are vertical: no operation ever crosses lanes, and K and V are
 * only widened, never transposed. (With the keys along the lanes every row needs a horizontal maximum and sum per
 * block.) Along the causal diagonal the lanes of vector v need only the first keys of the block: the staircase
 * `depth[v]`, in steps of 16 keys, skips the rest. Blocks beyond the diagonal, the sequence or the window are never visited.
 */
#include <math.h>

#include "core/pool.h"
#include "device/cpu/kernels/attention_job.h"
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/cached_attention.h"

/* Keys of this block (of `keys`, the first standing at row k0) that the queries of vector v can see: whole groups, at
 * least one. */
SL_INLINE void at_staircase(const at_job *job, int64_t first_row, int64_t k0, int64_t keys, int64_t vecs,
                            int64_t *depth)
{
    for (int64_t v = 0; v < vecs; v++) {
        int64_t seen = job->causal ? first_row + (v + 1) * VF_LANES - k0 : keys;
        seen = at_max(at_blocks(seen, AT_GROUP), 1) * AT_GROUP;
        depth[v] = at_min(seen, keys);
    }
}

/* Scores of one block into s[key][query]; only the stairs. */
SL_INLINE void at_scores(float *s, const float *rows, const float *packed, const at_job *job, int64_t keys,
                         int64_t vecs, const int64_t *depth)
{
    at_product x = {
        .c = s, .a = rows, .b = packed, .ldc = AT_BLOCK, .lda = job->padded, .ldb = AT_BLOCK, .depth = job->dim};
    for (int64_t j = 0, v0 = 0; j < keys;) {
        while (depth[v0] <= j)
            v0++;
        int64_t end = depth[v0];
        x.c = s + j * AT_BLOCK;
        x.a = rows + j * job->padded;
        at_set(&x, end - j, v0, vecs);
        j = end;
    }
}

/* The score of a key out of sight: 2^(this - any score) is 0, and unlike infinity its difference with itself is no
 * NaN. */
#define AT_NONE (-1e30f)

typedef struct at_forward {
    float *qt, *ot, *k, *v, *s;
    float *max, *sum, *alpha; /* [AT_BLOCK] */
} at_forward;

static size_t at_forward_floats(const at_job *job)
{
    return (size_t) (2 * job->dim * AT_BLOCK + 2 * AT_BLOCK * job->padded + AT_BLOCK * AT_BLOCK + 3 * AT_BLOCK);
}

/* Online softmax of one block for one vector of queries: s becomes P^T. */
SL_INLINE void at_softmax(const at_job *job, const at_forward *t, int64_t v, int64_t depth, int64_t first_row,
                          int64_t k0)
{
    float *s = t->s + v * VF_LANES;
    vf max = vf_load(t->max + v * VF_LANES, VF_LANES), before = max, sum = vf_zero();
    const vf none = vf_set1(AT_NONE);
    for (int64_t j = 0; job->cap > 0 && j < depth; j++) {
        vf slope;
        vf_store(s + j * AT_BLOCK, at_cap(vf_load(s + j * AT_BLOCK, VF_LANES), job->cap, &slope), VF_LANES);
    }
    /* Lane i sees the block's keys low[i] < j < limit[i]. */
    int64_t limit0 = first_row + v * VF_LANES + 1 - k0, low0 = limit0 - job->window - 1;
    if ((job->causal && limit0 < depth) || low0 + VF_LANES > 0) {
        vi limit = vi_set1(AT_BLOCK), low = vi_add(vi_set1((int32_t) at_clamp(low0)), vi_iota());
        if (job->causal)
            limit = vi_add(vi_set1((int32_t) at_clamp(limit0)), vi_iota());
        for (int64_t j = 0; j < depth; j++) {
            const vi key = vi_set1((int32_t) j);
            vf x = vf_select(vi_gt(limit, key), vf_load(s + j * AT_BLOCK, VF_LANES), none);
            x = vf_select(vi_gt(key, low), x, none);
            vf_store(s + j * AT_BLOCK, x, VF_LANES);
            max = vf_max(max, x);
        }
    } else {
        vf most[4] = {max, max, max, max}; /* one chain of maxima would wait for itself */
        int64_t j = 0;
        for (; j + 4 <= depth; j += 4) {
            SL_UNROLL
            for (int i = 0; i < 4; i++)
                most[i] = vf_max(most[i], vf_load(s + (j + i) * AT_BLOCK, VF_LANES));
        }
        for (; j < depth; j++)
            most[0] = vf_max(most[0], vf_load(s + j * AT_BLOCK, VF_LANES));
        max = vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3]));
    }
    int64_t j = 0;
    vf more = vf_zero();
    for (; j + 2 <= depth; j += 2) {
        vf p0 = vf_exp2(vf_sub(vf_load(s + j * AT_BLOCK, VF_LANES), max));
        vf p1 = vf_exp2(vf_sub(vf_load(s + (j + 1) * AT_BLOCK, VF_LANES), max));
        vf_store(s + j * AT_BLOCK, p0, VF_LANES);
        vf_store(s + (j + 1) * AT_BLOCK, p1, VF_LANES);
        sum = vf_add(sum, p0);
        more = vf_add(more, p1);
    }
    if (j < depth) {
        vf p = vf_exp2(vf_sub(vf_load(s + j * AT_BLOCK, VF_LANES), max));
        vf_store(s + j * AT_BLOCK, p, VF_LANES);
        sum = vf_add(sum, p);
    }
    sum = vf_add(sum, more);
    vf alpha = vf_exp2(vf_sub(before, max));
    vf_store(t->alpha + v * VF_LANES, alpha, VF_LANES);
    vf_store(t->max + v * VF_LANES, max, VF_LANES);
    vf_store(t->sum + v * VF_LANES, vf_fma(vf_load(t->sum + v * VF_LANES, VF_LANES), alpha, sum), VF_LANES);
}

/* O^T = O^T alpha + V^T P^T, stair by stair: the first takes all lanes and rescales. */
SL_INLINE void at_weigh(const at_job *job, const at_forward *t, int64_t keys, int64_t vecs, const int64_t *depth)
{
    at_product x = {.c = t->ot, .alpha = t->alpha, .ldc = AT_BLOCK, .lda = job->padded, .ldb = AT_BLOCK};
    for (int64_t j = 0, v0 = 0; j < keys;) {
        while (depth[v0] <= j)
            v0++;
        x.depth = depth[v0] - j;
        x.a = t->v + j * job->padded;
        x.b = t->s + j * AT_BLOCK;
        if (j == 0)
            at_rescale_transposed(&x, job->dim, v0, vecs);
        else
            at_add_transposed(&x, job->dim, v0, vecs);
        j = depth[v0];
    }
}

SL_INLINE void at_forward_tile(const at_job *job, int64_t tile, int thread, bool bf16)
{
    const int64_t dim = job->dim, padded = job->padded, head = tile % job->heads;
    int64_t block = tile / job->heads;
    at_span span = at_find_query_block(job, AT_BLOCK, &block);
    block = at_blocks(span.q1 - span.q0, AT_BLOCK) - 1 - block; /* the longest first: the last to finish is short */
    const int64_t q0 = span.q0 + block * AT_BLOCK, queries = at_min(AT_BLOCK, span.q1 - q0);
    const int64_t vecs = at_blocks(queries, VF_LANES), first_row = job->offset + q0;
    const int64_t k_end = job->causal ? at_min(span.k1, first_row + queries) : span.k1;
    const int64_t kv_head = head / (job->heads / job->kv_heads);

    at_forward t;
    t.qt = job->scratch + thread * job->scratch_floats;
    t.ot = t.qt + dim * AT_BLOCK;
    t.k = t.ot + dim * AT_BLOCK;
    t.v = t.k + AT_BLOCK * padded;
    t.s = t.v + AT_BLOCK * padded;
    t.max = t.s + AT_BLOCK * AT_BLOCK;
    t.sum = t.max + AT_BLOCK;
    t.alpha = t.sum + AT_BLOCK;

    at_pack_transposed(t.qt, element_const(job->q, q0 * job->q_stride + head * dim, bf16), job->q_stride, queries, dim,
                       job->scale * VF_LOG2E, bf16);
    memset(t.ot, 0, (size_t) (dim * AT_BLOCK) * sizeof *t.ot);
    for (int64_t i = 0; i < AT_BLOCK; i++) {
        t.max[i] = AT_NONE;
        t.sum[i] = 0.0f;
    }
    for (int64_t k0 = at_max(span.k0, first_row + 1 - job->window); k0 < k_end; k0 += AT_BLOCK) {
        const int64_t keys = at_min(AT_BLOCK, k_end - k0);
        int64_t depth[AT_VECS];
        const void *k = element_const(job->kv, k0 * job->kv_stride + kv_head * dim, bf16);
        const void *v = element_const(k, job->kv_heads * dim, bf16);
        at_pack_rows(t.k, padded, k, job->kv_stride, keys, dim, 1.0f, bf16);
        at_pack_rows(t.v, padded, v, job->kv_stride, keys, dim, 1.0f, bf16);
        at_staircase(job, first_row, k0, keys, vecs, depth);
        at_scores(t.s, t.k, t.qt, job, keys, vecs, depth);
        for (int64_t u = 0; u < vecs; u++)
            at_softmax(job, &t, u, depth[u], first_row, k0);
        at_weigh(job, &t, keys, vecs, depth);
    }
    float *lse = job->lse_out + head * job->n + q0;
    for (int64_t i = 0; i < queries; i++) {
        lse[i] = t.max[i] * VF_LN2 + logf(t.sum[i]);
        t.alpha[i] = 1.0f / t.sum[i];
    }
    at_unpack_transposed(element(job->out, q0 * job->o_stride + head * dim, bf16), job->o_stride, queries, dim, t.ot,
                         t.alpha, bf16, false);
}

static void at_forward_f32(void *context, int64_t tile, int thread)
{
    at_forward_tile(context, tile, thread, false);
}
static void at_forward_bf16(void *context, int64_t tile, int thread)
{
    at_forward_tile(context, tile, thread, true);
}

static size_t attention_workspace(const sl_launch *launch, int threads)
{
    at_job job = at_job_shape(launch, &launch->in[0], &launch->in[1], &launch->in[2]);
    return (size_t) threads * at_forward_floats(&job) * sizeof(float);
}

static void attention_run(const sl_launch *launch, sl_pool *pool)
{
    at_job job = at_job_shape(launch, &launch->in[0], &launch->in[1], &launch->in[2]);
    job.out = launch->out[0].data;
    job.lse_out = launch->out[1].data;
    job.scratch = launch->workspace;
    job.scratch_floats = (int64_t) at_forward_floats(&job);
    sl_pool_run(pool, job.bf16 ? at_forward_bf16 : at_forward_f32, &job, at_query_blocks(&job, AT_BLOCK) * job.heads);
}

SL_CPU_KERNEL(attention, SL_OP_ATTENTION, .workspace = attention_workspace, .run = attention_run);

/* ---- over a cache ----
 *
 * Once the new rows lie in the cache, it is attention of one sequence whose queries stand behind its earlier rows. Where they stand is
 * known when the launch runs.
 */

/* The launch of plain attention by `count` queries behind `first` rows; `bounds` takes the sequence's. */
static sl_launch cached_inner(const sl_launch *launch, int64_t first, int64_t count, int32_t bounds[2])
{
    const struct sl_cached_attention_attrs *a = sl_cached_attention_attrs(&launch->attrs);
    sl_launch inner = {.op = SL_OP_ATTENTION};
    *sl_attention_set(&inner.attrs) =
        *SL_ATTRS(attention, .heads = a->heads, .kv_heads = a->kv_heads, .head_dim = a->head_dim, .causal = 1,
                  .q_offset = first, .scale = a->scale, .window = a->window, .cap = a->cap);
    bounds[0] = 0, bounds[1] = (int32_t) (first + count);
    inner.in[0] = launch->in[0];
    inner.in[0].type.dim[0] = count;
    inner.in[1] = launch->out[1];
    inner.in[1].type.dim[0] = first + count;
    inner.in[2] = (sl_operand){bounds, sl_type_1d(SL_I32, 2)};
    return inner;
}

/* lse, which nobody reads, then the scratch of the threads. */
static size_t cached_lse_floats(const sl_launch *launch)
{
    const int64_t heads = sl_cached_attention_attrs(&launch->attrs)->heads;
    return (size_t) SL_ROUND_UP(heads * launch->in[0].type.dim[0], 64);
}

static size_t cached_attention_workspace(const sl_launch *launch, int threads)
{
    int32_t bounds[2];
    const int64_t n = launch->in[0].type.dim[0];
    sl_launch inner = cached_inner(launch, launch->out[1].type.dim[0] - n, n, bounds);
    return attention_workspace(&inner, threads) + cached_lse_floats(launch) * sizeof(float);
}

static void cached_attention_run(const sl_launch *launch, sl_pool *pool)
{
    int32_t bounds[2];
    const int32_t *positions = launch->in[2].data;
    const sl_operand *o = &launch->out[0], *kv = &launch->in[1];
    const int64_t n = launch->in[0].type.dim[0], count = sl_cached_count(positions, n), first = positions[0];
    const size_t row = (size_t) kv->type.dim[1] * sl_dtype_bytes(kv->type.dtype);
    const size_t o_row = (size_t) o->type.dim[1] * sl_dtype_bytes(o->type.dtype);
    memcpy((char *) launch->out[1].data + (size_t) first * row, kv->data, (size_t) count * row);
    memset((char *) o->data + (size_t) count * o_row, 0, (size_t) (n - count) * o_row);
    const sl_launch inner = cached_inner(launch, first, count, bounds);
    at_job job = at_job_shape(&inner, &inner.in[0], &inner.in[1], &inner.in[2]);
    job.out = o->data;
    job.lse_out = launch->workspace;
    job.scratch = job.lse_out + cached_lse_floats(launch);
    job.scratch_floats = (int64_t) at_forward_floats(&job);
    sl_pool_run(pool, job.bf16 ? at_forward_bf16 : at_forward_f32, &job, at_query_blocks(&job, AT_BLOCK) * job.heads);
}

SL_CPU_KERNEL(cached_attention, SL_OP_CACHED_ATTENTION, .workspace = cached_attention_workspace,
              .run = cached_attention_run);
