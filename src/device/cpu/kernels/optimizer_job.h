/* The launch of an optimizer, unpacked. Tiles are whole blocks of rounding noise. */
#ifndef SL_DEVICE_CPU_OPTIMIZER_JOB_H
#define SL_DEVICE_CPU_OPTIMIZER_JOB_H

#include "device/cpu/simd/simd_noise.h"
#include "optim/element.h"

enum { OPTIMIZER_TILE = 128 * SL_NOISE_BLOCK };

typedef struct optimizer_job {
    sl_adamw_scalars adamw;
    sl_sgd_scalars sgd;
    const sl_step_params *step;
    uint64_t stream;
    int64_t count, decayed;
    const void *g;
    void *p, *state[2]; /* m and v, or momentum */
    float *master;
    bool g_bf16, p_bf16, state_bf16, stochastic;
} optimizer_job;

/* Which code an element needs; a constant in each specialisation. */
typedef struct optimizer_kind {
    bool g_bf16, p_bf16, state_bf16, master, stochastic;
} optimizer_kind;

SL_INLINE optimizer_kind optimizer_kind_of(const optimizer_job *job)
{
    optimizer_kind kind = {job->g_bf16, job->p_bf16, job->state_bf16, job->master != NULL, job->stochastic};
    return kind;
}

/* Elements [first, first + count) of a launch whose operands are g, step, gate -> p, states, master. */
static inline optimizer_job optimizer_job_of(const sl_launch *launch, int states, int64_t first, int64_t count,
                                             uint64_t stream, bool stochastic)
{
    const sl_operand *g = &launch->in[0], *p = &launch->out[0], *state = &launch->out[1], *master = state + states;
    const bool g_bf16 = g->type.dtype == SL_BF16, p_bf16 = p->type.dtype == SL_BF16,
               state_bf16 = state->type.dtype == SL_BF16;
    return (optimizer_job){
        .step = launch->in[1].data,
        .stream = stream,
        .count = count,
        .g = element_const(g->data, first, g_bf16),
        .p = element(p->data, first, p_bf16),
        .state = {element(state[0].data, first, state_bf16),
                  states > 1 ? element(state[1].data, first, state_bf16) : NULL},
        .master = master->data ? (float *) master->data + first : NULL,
        .g_bf16 = g_bf16,
        .p_bf16 = p_bf16,
        .state_bf16 = state_bf16,
        .stochastic = stochastic,
    };
}

/* The policies of training, then whatever else: calls run(job, tile, kind) with a constant kind for f32, bf16 and
 * bf16-master. The kind is that of `all`. */
#define OPTIMIZER_DISPATCH(run, job, tile) OPTIMIZER_DISPATCH_OF(run, job, tile, job)
#define OPTIMIZER_DISPATCH_OF(run, job, tile, all)                                                      \
    do {                                                                                                \
        const optimizer_kind kind_ = optimizer_kind_of(all);                                            \
        if (!kind_.g_bf16 && !kind_.p_bf16 && !kind_.state_bf16 && !kind_.master)                       \
            run(job, tile, (optimizer_kind){false, false, false, false, false});                        \
        else if (kind_.g_bf16 && kind_.p_bf16 && kind_.state_bf16 && !kind_.master && kind_.stochastic) \
            run(job, tile, (optimizer_kind){true, true, true, false, true});                            \
        else if (kind_.g_bf16 && kind_.p_bf16 && !kind_.state_bf16 && kind_.master)                     \
            run(job, tile, (optimizer_kind){true, true, false, true, false});                           \
        else                                                                                            \
            run(job, tile, kind_);                                                                      \
    } while (0)

/* State k (tensor k of the noise, 0 is the parameter) back to memory. */
SL_INLINE void optimizer_put(void *data, int64_t i, vf x, int lanes, bool bf16, bool stochastic, noise_words words,
                             int64_t j)
{
    if (bf16 && stochastic)
        vf_store_stochastic((sl_bf16 *) data + i, x, rounding_noise(words, j), lanes);
    else
        vf_put(data, i, x, lanes, bf16);
}

/* Lanes that are updated. */
SL_INLINE vm optimizer_updates(vf gradient)
{
    return vf_lt(vf_abs(gradient), vf_set1(INFINITY));
}

/* Lanes j.. of a block whose first `limit` elements decay. */
SL_INLINE vf optimizer_decay(int64_t j, vi limit, float decay, float rest)
{
    return vf_select(vi_gt(limit, vi_add(vi_iota(), vi_set1((int32_t) j))), vf_set1(decay), vf_set1(rest));
}
SL_INLINE vi optimizer_limit(const optimizer_job *job, int64_t i0)
{
    int64_t limit = job->decayed - i0;
    return vi_set1((int32_t) (limit < 0 ? 0 : limit > SL_NOISE_BLOCK ? SL_NOISE_BLOCK : limit));
}

#endif
