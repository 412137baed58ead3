/* SwiGLU, a vector of gate and one of up at a time. */
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd_math.h"

typedef struct swiglu_job {
    const void *gu, *ds;
    void *out;   /* s[rows, width] or dgu[rows, 2 width] */
    void *again; /* backward: s, or NULL */
    int64_t rows, width;
    bool bf16;
} swiglu_job;

SL_INLINE void swiglu_step(const swiglu_job *job, int64_t row, int64_t i, int lanes, bool bf16)
{
    const int64_t at = row * 2 * job->width + i;
    vf gate = vf_get(job->gu, at, lanes, bf16), up = vf_get(job->gu, at + job->width, lanes, bf16);
    vf_put(job->out, row * job->width + i, vf_mul(vf_mul(gate, vf_sigmoid(gate, NULL)), up), lanes, bf16);
}

/* d gate = ds up sigma (1 + gate (1 - sigma)), d up = ds gate sigma */
SL_INLINE void swiglu_bwd_step(const swiglu_job *job, int64_t row, int64_t i, int lanes, bool bf16)
{
    const int64_t at = row * 2 * job->width + i;
    vf gate = vf_get(job->gu, at, lanes, bf16), up = vf_get(job->gu, at + job->width, lanes, bf16);
    vf ds = vf_get(job->ds, row * job->width + i, lanes, bf16), rest, sigma = vf_sigmoid(gate, &rest),
       silu = vf_mul(gate, sigma);
    vf slope = vf_fma(silu, rest, sigma);
    vf_put(job->out, at, vf_mul(vf_mul(ds, up), slope), lanes, bf16);
    vf_put(job->out, at + job->width, vf_mul(ds, silu), lanes, bf16);
    if (job->again)
        vf_put(job->again, row * job->width + i, vf_mul(silu, up), lanes, bf16);
}

SL_INLINE void swiglu_rows(const swiglu_job *job, int64_t tile, bool backward, bool bf16)
{
    const int64_t width = job->width, per_tile = tile_rows(width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        int64_t i = 0;
        for (; i + VF_LANES <= width; i += VF_LANES) {
            if (backward)
                swiglu_bwd_step(job, row, i, VF_LANES, bf16);
            else
                swiglu_step(job, row, i, VF_LANES, bf16);
        }
        if (i < width) {
            if (backward)
                swiglu_bwd_step(job, row, i, (int) (width - i), bf16);
            else
                swiglu_step(job, row, i, (int) (width - i), bf16);
        }
    }
}

SL_CPU_TILES(swiglu_tile, swiglu_job, swiglu_rows(job, tile, false, bf16))

SL_CPU_TILES(swiglu_bwd_tile, swiglu_job, swiglu_rows(job, tile, true, bf16))

static void swiglu_run(const sl_launch *launch, sl_pool *pool)
{
    const sl_type *s = &launch->out[0].type;
    swiglu_job job = {launch->in[0].data, NULL, launch->out[0].data, NULL, s->dim[0], s->dim[1], s->dtype == SL_BF16};
    sl_pool_run(pool, swiglu_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

static void swiglu_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    const sl_type *ds = &launch->in[0].type;
    swiglu_job job = {launch->in[1].data, launch->in[0].data, launch->out[0].data, launch->out[1].data,
                      ds->dim[0],         ds->dim[1],         ds->dtype == SL_BF16};
    sl_pool_run(pool, swiglu_bwd_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

SL_CPU_KERNEL(swiglu, SL_OP_SWIGLU, .run = swiglu_run);
SL_CPU_KERNEL(swiglu_bwd, SL_OP_SWIGLU_BWD, .run = swiglu_bwd_run);
