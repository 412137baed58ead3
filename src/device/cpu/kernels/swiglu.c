/* SwiGLU and GeGLU (ops/swiglu.c), a vector of gate and one of up at a time. */
#include "ops/swiglu.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd_math.h"

typedef struct swiglu_job {
    const void *gu, *ds;
    void *out;   /* s[rows, width] or dgu[rows, 2 width] */
    void *again; /* backward: s, or NULL */
    int64_t rows, width;
    bool bf16, gelu;
} swiglu_job;

#define GELU_2K 1.5957691216057308f /* 2 sqrt(2/pi) */

/* What the logistic function takes of a gate. */
SL_INLINE vf swiglu_inner(vf gate, bool gelu)
{
    if (!gelu)
        return gate;
    vf inner = vf_fma(vf_mul(gate, gate), vf_set1(0.044715f), vf_set1(1.0f));
    return vf_mul(vf_mul(gate, inner), vf_set1(GELU_2K));
}

SL_INLINE void swiglu_step(const swiglu_job *job, int64_t row, int64_t i, int lanes, bool bf16, bool gelu)
{
    const int64_t at = row * 2 * job->width + i;
    vf gate = vf_get(job->gu, at, lanes, bf16), up = vf_get(job->gu, at + job->width, lanes, bf16);
    vf_put(job->out, row * job->width + i, vf_mul(vf_mul(gate, vf_sigmoid(swiglu_inner(gate, gelu), NULL)), up), lanes,
           bf16);
}

/* d gate = ds up sigma (1 + gate z' (1 - sigma)), d up = ds gate sigma */
SL_INLINE void swiglu_bwd_step(const swiglu_job *job, int64_t row, int64_t i, int lanes, bool bf16, bool gelu)
{
    const int64_t at = row * 2 * job->width + i;
    vf gate = vf_get(job->gu, at, lanes, bf16), up = vf_get(job->gu, at + job->width, lanes, bf16);
    vf ds = vf_get(job->ds, row * job->width + i, lanes, bf16), rest;
    vf sigma = vf_sigmoid(swiglu_inner(gate, gelu), &rest), passed = vf_mul(gate, sigma), steep = passed;
    if (gelu) {
        vf dz = vf_fma(vf_mul(gate, gate), vf_set1(3 * 0.044715f), vf_set1(1.0f));
        steep = vf_mul(passed, vf_mul(dz, vf_set1(GELU_2K)));
    }
    vf slope = vf_fma(steep, rest, sigma);
    vf_put(job->out, at, vf_mul(vf_mul(ds, up), slope), lanes, bf16);
    vf_put(job->out, at + job->width, vf_mul(ds, passed), lanes, bf16);
    if (job->again)
        vf_put(job->again, row * job->width + i, vf_mul(passed, up), lanes, bf16);
}

SL_INLINE void swiglu_rows(const swiglu_job *job, int64_t tile, bool backward, bool bf16, bool gelu)
{
    const int64_t width = job->width, per_tile = tile_rows(width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        int64_t i = 0;
        for (; i + VF_LANES <= width; i += VF_LANES) {
            if (backward)
                swiglu_bwd_step(job, row, i, VF_LANES, bf16, gelu);
            else
                swiglu_step(job, row, i, VF_LANES, bf16, gelu);
        }
        if (i < width) {
            if (backward)
                swiglu_bwd_step(job, row, i, (int) (width - i), bf16, gelu);
            else
                swiglu_step(job, row, i, (int) (width - i), bf16, gelu);
        }
    }
}

SL_INLINE void swiglu_any(const swiglu_job *job, int64_t tile, bool backward, bool bf16)
{
    if (job->gelu)
        swiglu_rows(job, tile, backward, bf16, true);
    else
        swiglu_rows(job, tile, backward, bf16, false);
}

SL_CPU_TILES(swiglu_tile, swiglu_job, swiglu_any(job, tile, false, bf16))

SL_CPU_TILES(swiglu_bwd_tile, swiglu_job, swiglu_any(job, tile, true, bf16))

static void swiglu_run(const sl_launch *launch, sl_pool *pool)
{
    const sl_type *s = &launch->out[0].type;
    swiglu_job job = {.gu = launch->in[0].data,
                      .out = launch->out[0].data,
                      .rows = s->dim[0],
                      .width = s->dim[1],
                      .bf16 = s->dtype == SL_BF16,
                      .gelu = sl_swiglu_attrs(&launch->attrs)->gelu};
    sl_pool_run(pool, swiglu_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

static void swiglu_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    const sl_type *ds = &launch->in[0].type;
    swiglu_job job = {.gu = launch->in[1].data,
                      .ds = launch->in[0].data,
                      .out = launch->out[0].data,
                      .again = launch->out[1].data,
                      .rows = ds->dim[0],
                      .width = ds->dim[1],
                      .bf16 = ds->dtype == SL_BF16,
                      .gelu = sl_swiglu_attrs(&launch->attrs)->gelu};
    sl_pool_run(pool, swiglu_bwd_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

SL_CPU_KERNEL(swiglu, SL_OP_SWIGLU, .run = swiglu_run);
SL_CPU_KERNEL(swiglu_bwd, SL_OP_SWIGLU_BWD, .run = swiglu_bwd_run);
