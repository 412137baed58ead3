/*
 * RMSNorm of the query and key heads in the rows of qkv, head by head (rms_row.h). dwq and dwk are summed over tokens and heads by
 * partial rows that hold both (column_sums.h).
 */
#include "ops/qk_norm.h"
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/rms_row.h"

typedef struct qk_norm_job {
    const void *x, *w[2], *dy; /* w: of q, of k */
    const float *rstd;
    void *y, *dx;
    float *rstd_out, *partials; /* partials [parts][2][dim] */
    int64_t rows, width, heads, normed, dim;
    float eps;
    bool bf16;
} qk_norm_job;

SL_INLINE void qk_norm_copy_v(const qk_norm_job *job, const void *from, void *to, int64_t row, bool bf16)
{
    const int64_t at = row * job->width + job->normed * job->dim, count = job->width - job->normed * job->dim;
    memcpy(element(to, at, bf16), element_const(from, at, bf16), (size_t) count * (bf16 ? 2 : 4));
}

SL_INLINE void qk_norm_rows(const qk_norm_job *job, int64_t tile, bool bf16)
{
    const int64_t per_tile = tile_rows(job->width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        for (int64_t h = 0; h < job->normed; h++)
            job->rstd_out[row * job->normed + h] = rms_row(job->x, job->w[h >= job->heads], 0, job->y,
                                                           row * job->width + h * job->dim, job->dim, job->eps, bf16);
        qk_norm_copy_v(job, job->x, job->y, row, bf16);
    }
}

SL_CPU_TILES(qk_norm_tile, qk_norm_job, qk_norm_rows(job, tile, bf16))

SL_INLINE void qk_norm_bwd_rows(const qk_norm_job *job, int64_t tile, bool bf16)
{
    const int64_t end = SL_MIN((tile + 1) * PARTIAL_ROWS, job->rows);
    float *partial = job->partials + tile * 2 * job->dim;
    memset(partial, 0, (size_t) (2 * job->dim) * sizeof *partial);
    for (int64_t row = tile * PARTIAL_ROWS; row < end; row++) {
        for (int64_t h = 0; h < job->normed; h++) {
            const bool key = h >= job->heads;
            const rms_bwd head = {job->x, job->w[key], job->dy, 0, job->dx, partial + key * job->dim, false};
            rms_bwd_row(&head, row * job->width + h * job->dim, job->dim, job->rstd[row * job->normed + h], bf16);
        }
        if (job->dx)
            qk_norm_copy_v(job, job->dy, job->dx, row, bf16);
    }
}

SL_CPU_TILES(qk_norm_bwd_tile, qk_norm_job, qk_norm_bwd_rows(job, tile, bf16))

/* `x`: the operand qkv, in front of both weights. */
static qk_norm_job qk_norm_unpack(const sl_launch *launch, const sl_operand *x)
{
    const struct sl_qk_norm_attrs *attrs = sl_qk_norm_attrs(&launch->attrs);
    return (qk_norm_job){.x = x[0].data,
                         .w = {x[1].data, x[2].data},
                         .rows = x[0].type.dim[0],
                         .width = x[0].type.dim[1],
                         .heads = attrs->heads,
                         .normed = attrs->heads + attrs->kv_heads,
                         .dim = attrs->head_dim,
                         .eps = attrs->eps,
                         .bf16 = x[0].type.dtype == SL_BF16};
}

static void qk_norm_run(const sl_launch *launch, sl_pool *pool)
{
    qk_norm_job job = qk_norm_unpack(launch, &launch->in[0]);
    job.y = launch->out[0].data;
    job.rstd_out = launch->out[1].data;
    sl_pool_run(pool, qk_norm_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

static size_t qk_norm_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    return (size_t) (tile_count(launch->in[1].type.dim[0], PARTIAL_ROWS) * 2 * launch->in[2].type.dim[0]) *
           sizeof(float);
}

static void qk_norm_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    qk_norm_job job = qk_norm_unpack(launch, &launch->in[1]);
    job.dy = launch->in[0].data;
    job.rstd = launch->in[4].data;
    job.dx = launch->out[0].data;
    job.partials = launch->workspace;
    const int64_t parts = tile_count(job.rows, PARTIAL_ROWS);
    sl_pool_run(pool, qk_norm_bwd_tile, &job, parts);
    column_sums_finish(pool, job.partials, parts, 2 * job.dim, &launch->out[1], launch->accumulate & 2u);
    column_sums_finish(pool, job.partials + job.dim, parts, 2 * job.dim, &launch->out[2], launch->accumulate & 4u);
}

SL_CPU_KERNEL(qk_norm, SL_OP_QK_NORM, .run = qk_norm_run);
SL_CPU_KERNEL(qk_norm_bwd, SL_OP_QK_NORM_BWD, .workspace = qk_norm_bwd_workspace, .run = qk_norm_bwd_run);
