/*
 * RMSNorm of queries and keys in the rows of qkv, head by head or over each side's whole width (rms_row.h). dwq and dwk are summed
 * over tokens and heads by partial rows that hold both (column_sums.h).
 */
#include "ops/qk_norm.h"
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/rms_row.h"

typedef struct qk_norm_job {
    const void *x, *w[2], *dy; /* w: of q, of k */
    const float *rstd;
    void *y, *dx;
    float *rstd_out, *partials; /* partials [tiles][dim of q, dim of k] */
    int64_t rows;
    sl_qk_parts parts;
    float eps, offset;
    bool bf16;
} qk_norm_job;

SL_INLINE void qk_norm_copy_v(const qk_norm_job *job, const void *from, void *to, int64_t row, bool bf16)
{
    const int64_t at = row * job->parts.width + job->parts.normed, count = job->parts.width - job->parts.normed;
    memcpy(element(to, at, bf16), element_const(from, at, bf16), (size_t) count * (bf16 ? 2 : 4));
}

SL_INLINE void qk_norm_rows(const qk_norm_job *job, int64_t tile, bool bf16)
{
    const sl_qk_parts *parts = &job->parts;
    const int64_t per_tile = tile_rows(parts->width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        float *rstd = job->rstd_out + row * (parts->count[0] + parts->count[1]);
        int64_t at = row * parts->width;
        for (int side = 0; side < 2; side++)
            for (int64_t k = 0; k < parts->count[side]; k++, at += parts->dim[side])
                *rstd++ = rms_row(job->x, job->w[side], job->offset, job->y, at, parts->dim[side], job->eps, bf16);
        qk_norm_copy_v(job, job->x, job->y, row, bf16);
    }
}

SL_CPU_TILES(qk_norm_tile, qk_norm_job, qk_norm_rows(job, tile, bf16))

SL_INLINE void qk_norm_bwd_rows(const qk_norm_job *job, int64_t tile, bool bf16)
{
    const sl_qk_parts *parts = &job->parts;
    const int64_t end = SL_MIN((tile + 1) * PARTIAL_ROWS, job->rows), sums = parts->dim[0] + parts->dim[1];
    float *partial[2] = {job->partials + tile * sums, job->partials + tile * sums + parts->dim[0]};
    memset(partial[0], 0, (size_t) sums * sizeof *partial[0]);
    for (int64_t row = tile * PARTIAL_ROWS; row < end; row++) {
        const float *rstd = job->rstd + row * (parts->count[0] + parts->count[1]);
        int64_t at = row * parts->width;
        for (int side = 0; side < 2; side++) {
            const rms_bwd part = {job->x, job->w[side], job->dy, job->offset, job->dx, partial[side], false};
            for (int64_t k = 0; k < parts->count[side]; k++, at += parts->dim[side])
                rms_bwd_row(&part, at, parts->dim[side], *rstd++, bf16);
        }
        if (job->dx)
            qk_norm_copy_v(job, job->dy, job->dx, row, bf16);
    }
}

SL_CPU_TILES(qk_norm_bwd_tile, qk_norm_job, qk_norm_bwd_rows(job, tile, bf16))

/* `x`: the operand qkv, in front of both weights. */
static qk_norm_job qk_norm_unpack(const sl_launch *launch, const sl_operand *x)
{
    return (qk_norm_job){.x = x[0].data,
                         .w = {x[1].data, x[2].data},
                         .rows = x[0].type.dim[0],
                         .parts = sl_qk_norm_parts(&launch->attrs),
                         .eps = sl_qk_norm_attrs(&launch->attrs)->eps,
                         .offset = sl_qk_norm_attrs(&launch->attrs)->offset,
                         .bf16 = x[0].type.dtype == SL_BF16};
}

static void qk_norm_run(const sl_launch *launch, sl_pool *pool)
{
    qk_norm_job job = qk_norm_unpack(launch, &launch->in[0]);
    job.y = launch->out[0].data;
    job.rstd_out = launch->out[1].data;
    sl_pool_run(pool, qk_norm_tile, &job, tile_count(job.rows, tile_rows(job.parts.width)));
}

static size_t qk_norm_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    return (size_t) (tile_count(launch->in[1].type.dim[0], PARTIAL_ROWS) * (parts.dim[0] + parts.dim[1])) *
           sizeof(float);
}

static void qk_norm_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    qk_norm_job job = qk_norm_unpack(launch, &launch->in[1]);
    job.dy = launch->in[0].data;
    job.rstd = launch->in[4].data;
    job.dx = launch->out[0].data;
    job.partials = launch->workspace;
    const int64_t tiles = tile_count(job.rows, PARTIAL_ROWS), *dim = job.parts.dim, sums = dim[0] + dim[1];
    sl_pool_run(pool, qk_norm_bwd_tile, &job, tiles);
    column_sums_finish(pool, job.partials, tiles, sums, &launch->out[1], launch->accumulate & 2u);
    column_sums_finish(pool, job.partials + dim[0], tiles, sums, &launch->out[2], launch->accumulate & 4u);
}

SL_CPU_KERNEL(qk_norm, SL_OP_QK_NORM, .run = qk_norm_run);
SL_CPU_KERNEL(qk_norm_bwd, SL_OP_QK_NORM_BWD, .workspace = qk_norm_bwd_workspace, .run = qk_norm_bwd_run);
