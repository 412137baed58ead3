/* LAMB: the vector form of sl_lamb_element, operation by operation, so the bits are the reference's. A tensor is read twice: for its norms,
 * whose partial sums lie in the workspace, and for the update. */
#include "optim/lamb.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/optimizer_job.h"
#include "device/cpu/kernels/tiles.h"
#include "ops/reduce.h"

enum { NORM_BLOCKS = 16, NORM_VECS = SL_SUM_LANES / VF_LANES };

typedef struct lamb_job {
    sl_lamb_scalars s;
    optimizer_job all; /* pointers at the tensor's first element */
    float *sums[2];    /* of p and u, by tile of NORM_BLOCKS blocks */
    float rate;
} lamb_job;

typedef struct lamb_values {
    vf p, m, v, u;
} lamb_values;

SL_INLINE lamb_values lamb_element(const lamb_job *job, optimizer_kind kind, int64_t i, int lanes)
{
    const sl_lamb_scalars *s = &job->s;
    const optimizer_job *all = &job->all;
    lamb_values x;
    vf g = vf_mul(vf_get(all->g, i, lanes, kind.g_bf16), vf_set1(s->factor));
    x.p = kind.master ? vf_load(all->master + i, lanes) : vf_get(all->p, i, lanes, kind.p_bf16);
    x.m = vf_get(all->state[0], i, lanes, kind.state_bf16), x.v = vf_get(all->state[1], i, lanes, kind.state_bf16);
    x.m = vf_fma(vf_set1(s->beta1), x.m, vf_mul(vf_set1(s->rest1), g));
    x.v = vf_fma(vf_set1(s->beta2), x.v, vf_mul(vf_set1(s->rest2), vf_mul(g, g)));
    vf root = vf_fma(vf_sqrt(x.v), vf_set1(s->inv_sqrt_bias2), vf_set1(s->eps));
    x.u = vf_fma(vf_set1(s->decay), x.p, vf_div(vf_mul(x.m, vf_set1(s->inv_bias1)), root));
    return x;
}

/* One vector of lanes of the sums. Lanes past the end load zeros, but u is 0 / eps there, which may be NaN. */
SL_INLINE void lamb_add(const lamb_job *job, optimizer_kind kind, int64_t i, int lanes, vf *p_sum, vf *u_sum)
{
    lamb_values x = lamb_element(job, kind, i, lanes);
    if (lanes < VF_LANES)
        x.u = vf_select(vi_gt(vi_set1(lanes), vi_iota()), x.u, vf_zero());
    *p_sum = vf_fma(x.p, x.p, *p_sum);
    *u_sum = vf_fma(x.u, x.u, *u_sum);
}

SL_INLINE float fold_lanes(const vf lane[NORM_VECS])
{
    float all[SL_SUM_LANES];
    for (int v = 0; v < NORM_VECS; v++)
        vf_store(all + v * VF_LANES, lane[v], VF_LANES);
    return sl_sum_fold(all);
}

SL_INLINE void lamb_norms(const lamb_job *job, int64_t tile, optimizer_kind kind)
{
    const int64_t size = (int64_t) NORM_BLOCKS * SL_SUM_BLOCK, end = SL_MIN((tile + 1) * size, job->all.count);
    sl_sum_tree tree[2] = {{.blocks = 0}};
    for (int64_t first = tile * size; first < end; first += SL_SUM_BLOCK) {
        vf p[NORM_VECS], u[NORM_VECS];
        for (int v = 0; v < NORM_VECS; v++)
            p[v] = u[v] = vf_zero();
        const int64_t count = SL_MIN(end - first, SL_SUM_BLOCK);
        int64_t i = 0;
        for (; i + SL_SUM_LANES <= count; i += SL_SUM_LANES) {
            SL_UNROLL
            for (int v = 0; v < NORM_VECS; v++)
                lamb_add(job, kind, first + i + v * VF_LANES, VF_LANES, &p[v], &u[v]);
        }
        SL_UNROLL
        for (int v = 0; v < NORM_VECS; v++) {
            const int64_t left = count - i - v * VF_LANES;
            if (left > 0)
                lamb_add(job, kind, first + i + v * VF_LANES, (int) SL_MIN(left, VF_LANES), &p[v], &u[v]);
        }
        sl_sum_tree_add(&tree[0], fold_lanes(p));
        sl_sum_tree_add(&tree[1], fold_lanes(u));
    }
    for (int k = 0; k < 2; k++)
        job->sums[k][tile] = sl_sum_tree_end(&tree[k]);
}

static void norm_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const lamb_job *job = context;
    OPTIMIZER_DISPATCH_OF(lamb_norms, job, tile, &job->all);
}

SL_INLINE void lamb_step(const lamb_job *job, optimizer_kind kind, int64_t i0, int64_t j, int lanes, noise_words *words)
{
    const optimizer_job *all = &job->all;
    const int64_t i = i0 + j;
    lamb_values x = lamb_element(job, kind, i, lanes);
    x.p = vf_fnma(vf_set1(job->rate), x.u, x.p);
    optimizer_put(all->state[0], i, x.m, lanes, kind.state_bf16, kind.stochastic, words[1], j);
    optimizer_put(all->state[1], i, x.v, lanes, kind.state_bf16, kind.stochastic, words[2], j);
    if (kind.master)
        vf_store(all->master + i, x.p, lanes);
    optimizer_put(all->p, i, x.p, lanes, kind.p_bf16, kind.stochastic && !kind.master, words[0], j);
}

SL_INLINE void lamb_blocks(const lamb_job *job, int64_t tile, optimizer_kind kind)
{
    const int64_t end = SL_MIN((tile + 1) * OPTIMIZER_TILE, job->all.count);
    for (int64_t i0 = tile * OPTIMIZER_TILE; i0 < end; i0 += SL_NOISE_BLOCK) {
        const int64_t count = SL_MIN(SL_NOISE_BLOCK, end - i0);
        noise_words words[SL_NOISE_TENSORS];
        if (kind.stochastic)
            rounding_words(job->all.step, job->all.stream, i0 / SL_NOISE_BLOCK, words, SL_NOISE_TENSORS);
        int64_t j = 0;
        for (; j + VF_LANES <= count; j += VF_LANES)
            lamb_step(job, kind, i0, j, VF_LANES, words);
        if (j < count)
            lamb_step(job, kind, i0, j, (int) (count - j), words);
    }
}

static void update_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const lamb_job *job = context;
    OPTIMIZER_DISPATCH_OF(lamb_blocks, job, tile, &job->all);
}

static int64_t norm_tiles(int64_t count)
{
    return tile_count(count, (int64_t) NORM_BLOCKS * SL_SUM_BLOCK);
}

static void update_tensor(const sl_launch *launch, sl_pool *pool, int tensor)
{
    const struct sl_lamb_attrs *attrs = sl_lamb_attrs(&launch->attrs);
    const int64_t first = sl_lamb_first(attrs, launch->in[0].type.dtype, tensor), count = attrs->count[tensor];
    lamb_job job = {
        .s = sl_lamb_prepare(&launch->attrs, tensor, launch->in[1].data, launch->in[2].data),
        .all = optimizer_job_of(launch, 2, first, count, attrs->stream + (uint64_t) tensor, attrs->stochastic)};
    const int64_t tiles = norm_tiles(count);
    sl_sum_tree tree[2] = {{.blocks = 0}};
    job.sums[0] = launch->workspace, job.sums[1] = job.sums[0] + tiles;
    sl_pool_run(pool, norm_tile, &job, tiles);
    for (int64_t i = 0; i < tiles; i++)
        for (int k = 0; k < 2; k++)
            sl_sum_tree_add(&tree[k], job.sums[k][i]);
    job.rate = sl_lamb_rate(&job.s, sl_sum_tree_end(&tree[0]), sl_sum_tree_end(&tree[1]));
    if (!isnan(job.rate))
        sl_pool_run(pool, update_tile, &job, tile_count(count, OPTIMIZER_TILE));
}

static void lamb_run(const sl_launch *launch, sl_pool *pool)
{
    for (int k = 0; k < sl_lamb_attrs(&launch->attrs)->tensors && !sl_gate_skips(launch->in[2].data); k++)
        update_tensor(launch, pool, k);
}

static size_t lamb_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    return 2 * (size_t) norm_tiles(sl_type_count(&launch->in[0].type)) * sizeof(float);
}

/* Both moments have one dtype. */
static bool lamb_supports(const sl_launch *launch)
{
    return launch->out[1].type.dtype == launch->out[2].type.dtype;
}

SL_CPU_KERNEL(lamb, SL_OP_LAMB, .supports = lamb_supports, .workspace = lamb_workspace, .run = lamb_run);
