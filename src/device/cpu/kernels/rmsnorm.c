/*
 * RMSNorm. A row is read twice, the second time from the first cache. Backward, with u = dy w:
 *     dx = rstd u - x rstd^3 mean(u x)        dw = sum over rows of dy x rstd, by partial rows (column_sums.h)
 */
#include <math.h>

#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/norm.h"

typedef struct rmsnorm_job {
    const void *x, *w, *dy;
    const float *rstd;
    void *y, *dx;
    float *rstd_out, *partials;
    int64_t rows, width;
    float eps;
    bool bf16, accumulate;
} rmsnorm_job;

/* sum of a*b (or a*b*c) over a row: four running sums, then across lanes. */
SL_INLINE float row_dot(const void *a, const void *b, const void *c, int64_t at, int64_t width, bool bf16)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= width; i += 4 * VF_LANES) {
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            int64_t j = i + k * VF_LANES;
            vf x = vf_get(a, at + j, VF_LANES, bf16), y = vf_get(b, at + j, VF_LANES, bf16);
            sum[k] = vf_fma(c ? vf_mul(x, vf_get(c, j, VF_LANES, bf16)) : x, y, sum[k]);
        }
    }
    for (; i < width; i += VF_LANES) {
        int lanes = (int) SL_MIN(width - i, VF_LANES);
        vf x = vf_get(a, at + i, lanes, bf16), y = vf_get(b, at + i, lanes, bf16);
        sum[0] = vf_fma(c ? vf_mul(x, vf_get(c, i, lanes, bf16)) : x, y, sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

SL_INLINE void rmsnorm_rows(const rmsnorm_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, per_tile = tile_rows(width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        const int64_t at = row * width;
        float squares = row_dot(job->x, job->x, NULL, at, width, bf16);
        float rstd = 1.0f / sqrtf(squares / (float) width + job->eps);
        if (job->rstd_out)
            job->rstd_out[row] = rstd;
        vf r = vf_set1(rstd);
        int64_t i = 0;
        for (; i + VF_LANES <= width; i += VF_LANES) {
            vf x = vf_mul(vf_get(job->x, at + i, VF_LANES, bf16), r);
            vf_put(job->y, at + i, vf_mul(x, vf_get(job->w, i, VF_LANES, bf16)), VF_LANES, bf16);
        }
        if (i < width) {
            int lanes = (int) (width - i);
            vf x = vf_mul(vf_get(job->x, at + i, lanes, bf16), r);
            vf_put(job->y, at + i, vf_mul(x, vf_get(job->w, i, lanes, bf16)), lanes, bf16);
        }
    }
}

static void rmsnorm_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const rmsnorm_job *job = context;
    if (job->bf16)
        rmsnorm_rows(job, tile, true);
    else
        rmsnorm_rows(job, tile, false);
}

static void rmsnorm_run(const sl_launch *launch, sl_pool *pool)
{
    rmsnorm_job job = {
        .x = launch->in[0].data,
        .w = launch->in[1].data,
        .y = launch->out[0].data,
        .rstd_out = launch->out[1].data,
        .rows = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .eps = sl_norm_attrs(&launch->attrs)->eps,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, rmsnorm_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

/* One vector of a row: dx, and dy x rstd into the partial row. */
SL_INLINE void rmsnorm_bwd_step(const rmsnorm_job *job, int64_t at, int64_t i, int lanes, vf r, vf k, float *partial,
                                bool bf16)
{
    vf dy = vf_get(job->dy, at + i, lanes, bf16), x = vf_get(job->x, at + i, lanes, bf16);
    if (partial)
        vf_store(partial + i, vf_fma(vf_mul(dy, r), x, vf_load(partial + i, lanes)), lanes);
    if (job->dx) {
        vf u = vf_mul(vf_mul(dy, vf_get(job->w, i, lanes, bf16)), r);
        vf_put_add(job->dx, at + i, vf_fnma(x, k, u), lanes, bf16, job->accumulate);
    }
}

SL_INLINE void rmsnorm_bwd_rows(const rmsnorm_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, end = SL_MIN((tile + 1) * PARTIAL_ROWS, job->rows);
    float *partial = job->partials ? job->partials + tile * width : NULL;
    if (partial)
        memset(partial, 0, (size_t) width * sizeof *partial);
    for (int64_t row = tile * PARTIAL_ROWS; row < end; row++) {
        const int64_t at = row * width;
        float rstd = job->rstd[row], dot = job->dx ? row_dot(job->dy, job->x, job->w, at, width, bf16) : 0.0f;
        vf r = vf_set1(rstd), k = vf_set1(rstd * rstd * rstd * (dot / (float) width));
        int64_t i = 0;
        for (; i + VF_LANES <= width; i += VF_LANES)
            rmsnorm_bwd_step(job, at, i, VF_LANES, r, k, partial, bf16);
        if (i < width)
            rmsnorm_bwd_step(job, at, i, (int) (width - i), r, k, partial, bf16);
    }
}

static void rmsnorm_bwd_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const rmsnorm_job *job = context;
    if (job->bf16)
        rmsnorm_bwd_rows(job, tile, true);
    else
        rmsnorm_bwd_rows(job, tile, false);
}

static size_t rmsnorm_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    const sl_type *x = &launch->in[1].type;
    return (size_t) (tile_count(x->dim[0], PARTIAL_ROWS) * x->dim[1]) * sizeof(float);
}

static void rmsnorm_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    rmsnorm_job job = {
        .dy = launch->in[0].data,
        .x = launch->in[1].data,
        .w = launch->in[2].data,
        .rstd = launch->in[3].data,
        .dx = launch->out[0].data,
        .partials = launch->out[1].data ? launch->workspace : NULL,
        .rows = launch->in[1].type.dim[0],
        .width = launch->in[1].type.dim[1],
        .bf16 = launch->in[1].type.dtype == SL_BF16,
        .accumulate = launch->accumulate & 1u,
    };
    int64_t parts = tile_count(job.rows, PARTIAL_ROWS);
    sl_pool_run(pool, rmsnorm_bwd_tile, &job, parts);
    column_sums_finish(pool, job.partials, parts, job.width, &launch->out[1], launch->accumulate & 2u);
}

SL_CPU_KERNEL(rmsnorm, SL_OP_RMSNORM, .run = rmsnorm_run);
SL_CPU_KERNEL(rmsnorm_bwd, SL_OP_RMSNORM_BWD, .workspace = rmsnorm_bwd_workspace, .run = rmsnorm_bwd_run);
