/* AdamW: the vector form of sl_adamw_element, operation by operation, so the bits are the reference's. Memory-bound in
 * f32; in bf16 the noise of three roundings costs a third as many instructions as the update itself, and square root and
 * division keep their unit busy most of the time. */
#include "core/pool.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/optimizer_job.h"

#ifdef __AVX512F__
#include "device/cpu/kernels/adamw_bf16_avx512.h"
#include "optim/element.h"
#endif

SL_INLINE void adamw_step(const optimizer_job *job, optimizer_kind kind, int64_t i0, int64_t j, int lanes, vi limit,
                          noise_words *words)
{
    const sl_adamw_scalars *s = &job->adamw;
    const int64_t i = i0 + j;
    vf g = vf_mul(vf_get(job->g, i, lanes, kind.g_bf16), vf_set1(s->factor));
    vf m = vf_get(job->state[0], i, lanes, kind.state_bf16), v = vf_get(job->state[1], i, lanes, kind.state_bf16);
    vf p = kind.master ? vf_load(job->master + i, lanes) : vf_get(job->p, i, lanes, kind.p_bf16);
    const vm updates = optimizer_updates(g);
    m = vf_select(updates, vf_fma(vf_set1(s->beta1), m, vf_mul(vf_set1(s->rest1), g)), m);
    v = vf_select(updates, vf_fma(vf_set1(s->beta2), v, vf_mul(vf_set1(s->rest2), vf_mul(g, g))), v);
    vf ratio = vf_div(m, vf_fma(vf_sqrt(v), vf_set1(s->inv_sqrt_bias2), vf_set1(s->eps)));
    vf decayed = vf_mul(p, optimizer_decay(j, limit, s->decay, 1.0f));
    p = vf_select(updates, vf_fnma(vf_set1(s->step_size), ratio, decayed), p);
    optimizer_put(job->state[0], i, m, lanes, kind.state_bf16, kind.stochastic, words[1], j);
    optimizer_put(job->state[1], i, v, lanes, kind.state_bf16, kind.stochastic, words[2], j);
    if (kind.master)
        vf_store(job->master + i, p, lanes);
    optimizer_put(job->p, i, p, lanes, kind.p_bf16, kind.stochastic && !kind.master, words[0], j);
}

/* The front of a tile that has a faster form: whole blocks that decay alike, everything in bf16. Returns where it ends. */
SL_INLINE int64_t adamw_front(const optimizer_job *job, int64_t first, int64_t end, optimizer_kind kind)
{
#ifdef __AVX512F__
    const bool all = job->decayed >= end, none = job->decayed <= first;
    const int64_t blocks = (end - first) / SL_NOISE_BLOCK;
    if (kind.g_bf16 && kind.p_bf16 && kind.state_bf16 && !kind.master && kind.stochastic && (all || none) && blocks) {
        adamw_bf16_blocks(job, first / SL_NOISE_BLOCK, blocks, all ? job->adamw.decay : 1.0f);
        return first + blocks * SL_NOISE_BLOCK;
    }
#endif
    (void) job, (void) end, (void) kind;
    return first;
}

SL_INLINE void adamw_blocks(const optimizer_job *job, int64_t tile, optimizer_kind kind)
{
    const int64_t end = SL_MIN((tile + 1) * OPTIMIZER_TILE, job->count);
    for (int64_t i0 = adamw_front(job, tile * OPTIMIZER_TILE, end, kind); i0 < end; i0 += SL_NOISE_BLOCK) {
        const int64_t count = SL_MIN(SL_NOISE_BLOCK, end - i0);
        const vi limit = optimizer_limit(job, i0);
        noise_words words[SL_NOISE_TENSORS];
        if (kind.stochastic)
            rounding_words(job->step, job->stream, i0 / SL_NOISE_BLOCK, words, SL_NOISE_TENSORS);
        int64_t j = 0;
        for (; j + VF_LANES <= count; j += VF_LANES)
            adamw_step(job, kind, i0, j, VF_LANES, limit, words);
        if (j < count)
            adamw_step(job, kind, i0, j, (int) (count - j), limit, words);
    }
}

static void adamw_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    OPTIMIZER_DISPATCH(adamw_blocks, (const optimizer_job *) context, tile);
}

static void adamw_run(const sl_launch *launch, sl_pool *pool)
{
    const float *gate = launch->in[2].data;
    if (sl_gate_skips(gate))
        return;
    const struct sl_adamw_attrs *attrs = sl_adamw_attrs(&launch->attrs);
    optimizer_job job =
        optimizer_job_of(launch, 2, 0, sl_type_count(&launch->in[0].type), attrs->stream, attrs->stochastic);
    job.adamw = sl_adamw_prepare(&launch->attrs, launch->in[1].data, gate);
    job.decayed = attrs->decayed;
    sl_pool_run(pool, adamw_tile, &job, (job.count + OPTIMIZER_TILE - 1) / OPTIMIZER_TILE);
}

/* Both moments have one dtype. */
static bool adamw_supports(const sl_launch *launch)
{
    return launch->out[1].type.dtype == launch->out[2].type.dtype;
}

SL_CPU_KERNEL(adamw, SL_OP_ADAMW, .supports = adamw_supports, .run = adamw_run);
