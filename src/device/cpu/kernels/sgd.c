/* SGD with momentum: the vector form of sl_sgd_element, operation by operation, so the bits are the reference's. */
#include "core/pool.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/optimizer_job.h"
#include "optim/element.h"

SL_INLINE void sgd_step(const optimizer_job *job, optimizer_kind kind, int64_t i0, int64_t j, int lanes, vi limit,
                        noise_words *words)
{
    const sl_sgd_scalars *s = &job->sgd;
    const int64_t i = i0 + j;
    vf p = kind.master ? vf_load(job->master + i, lanes) : vf_get(job->p, i, lanes, kind.p_bf16);
    vf b = vf_get(job->state[0], i, lanes, kind.state_bf16);
    vf g = vf_mul(vf_get(job->g, i, lanes, kind.g_bf16), vf_set1(s->factor));
    const vm updates = optimizer_updates(g);
    g = vf_fma(optimizer_decay(j, limit, s->weight_decay, 0.0f), p, g);
    b = vf_select(updates, vf_fma(vf_set1(s->momentum), b, g), b);
    p = vf_select(updates, vf_fnma(vf_set1(s->learning_rate), b, p), p);
    optimizer_put(job->state[0], i, b, lanes, kind.state_bf16, kind.stochastic, words[1], j);
    if (kind.master)
        vf_store(job->master + i, p, lanes);
    optimizer_put(job->p, i, p, lanes, kind.p_bf16, kind.stochastic && !kind.master, words[0], j);
}

SL_INLINE void sgd_blocks(const optimizer_job *job, int64_t tile, optimizer_kind kind)
{
    const int64_t end = SL_MIN((tile + 1) * OPTIMIZER_TILE, job->count);
    for (int64_t i0 = tile * OPTIMIZER_TILE; i0 < end; i0 += SL_NOISE_BLOCK) {
        const int64_t count = SL_MIN(SL_NOISE_BLOCK, end - i0);
        const vi limit = optimizer_limit(job, i0);
        noise_words words[2];
        if (kind.stochastic)
            rounding_words(job->step, job->stream, i0 / SL_NOISE_BLOCK, words, 2);
        int64_t j = 0;
        for (; j + VF_LANES <= count; j += VF_LANES)
            sgd_step(job, kind, i0, j, VF_LANES, limit, words);
        if (j < count)
            sgd_step(job, kind, i0, j, (int) (count - j), limit, words);
    }
}

static void sgd_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    OPTIMIZER_DISPATCH(sgd_blocks, (const optimizer_job *) context, tile);
}

static void sgd_run(const sl_launch *launch, sl_pool *pool)
{
    const float *gate = launch->in[2].data;
    if (sl_gate_skips(gate))
        return;
    const struct sl_sgd_attrs *attrs = sl_sgd_attrs(&launch->attrs);
    optimizer_job job =
        optimizer_job_of(launch, 1, 0, sl_type_count(&launch->in[0].type), attrs->stream, attrs->stochastic);
    job.sgd = sl_sgd_prepare(&launch->attrs, launch->in[1].data, gate);
    job.decayed = attrs->decayed;
    sl_pool_run(pool, sgd_tile, &job, (job.count + OPTIMIZER_TILE - 1) / OPTIMIZER_TILE);
}

SL_CPU_KERNEL(sgd, SL_OP_SGD, .run = sgd_run);
