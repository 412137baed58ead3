/*
 * RMSNorm, row by row (rms_row.h); dw is the sum over rows of dy x rstd, by partial rows (column_sums.h).
 */
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/rms_row.h"
#include "ops/norm.h"

typedef struct rmsnorm_job {
    const void *x, *w, *dy;
    const float *rstd;
    void *y, *dx;
    float *rstd_out, *partials;
    int64_t rows, width;
    float eps, offset;
    bool bf16, accumulate;
} rmsnorm_job;

SL_INLINE void rmsnorm_rows(const rmsnorm_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, per_tile = tile_rows(width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        const int64_t at = row * width;
        float rstd = rms_row(job->x, job->w, job->offset, job->y, at, width, job->eps, bf16);
        if (job->rstd_out)
            job->rstd_out[row] = rstd;
    }
}

SL_CPU_TILES(rmsnorm_tile, rmsnorm_job, rmsnorm_rows(job, tile, bf16))

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
        .offset = sl_norm_attrs(&launch->attrs)->offset,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, rmsnorm_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

SL_INLINE void rmsnorm_bwd_rows(const rmsnorm_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, end = SL_MIN((tile + 1) * PARTIAL_ROWS, job->rows);
    float *partial = job->partials ? job->partials + tile * width : NULL;
    if (partial)
        memset(partial, 0, (size_t) width * sizeof *partial);
    for (int64_t row = tile * PARTIAL_ROWS; row < end; row++) {
        const rms_bwd x = {job->x, job->w, job->dy, job->offset, job->dx, partial, job->accumulate};
        rms_bwd_row(&x, row * width, width, job->rstd[row], bf16);
    }
}

SL_CPU_TILES(rmsnorm_bwd_tile, rmsnorm_job, rmsnorm_bwd_rows(job, tile, bf16))

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
        .offset = sl_norm_attrs(&launch->attrs)->offset,
        .bf16 = launch->in[1].type.dtype == SL_BF16,
        .accumulate = launch->accumulate & 1u,
    };
    int64_t parts = tile_count(job.rows, PARTIAL_ROWS);
    sl_pool_run(pool, rmsnorm_bwd_tile, &job, parts);
    column_sums_finish(pool, job.partials, parts, job.width, &launch->out[1], launch->accumulate & 2u);
}

SL_CPU_KERNEL(rmsnorm, SL_OP_RMSNORM, .run = rmsnorm_run);
SL_CPU_KERNEL(rmsnorm_bwd, SL_OP_RMSNORM_BWD, .workspace = rmsnorm_bwd_workspace, .run = rmsnorm_bwd_run);
