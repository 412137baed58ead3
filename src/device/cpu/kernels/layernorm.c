/*
 * LayerNorm. Mean and then variance around it, as in the reference: a row is in the first cache after the first pass,
 * so the second costs little, and E[x^2] - mean^2 would cancel. Backward, with u = dy w and xhat = (x - mean) rstd:
 *     dx = rstd (u - mean(u) - xhat mean(u xhat))     dw = sum of dy xhat     db = sum of dy, both by partial rows, as the sums of
 * what dx held before, where they are wanted.
 */
#include <math.h>

#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/norm.h"

typedef struct layernorm_job {
    const void *x, *w, *b, *dy;
    const float *mean, *rstd;
    void *y, *dx;
    float *mean_out, *rstd_out, *partials; /* partials: [parts][dw | db | before] */
    int64_t rows, width;
    float eps;
    bool bf16, accumulate, before;
} layernorm_job;

/* Sum of x - center, or of its square, over a row. */
SL_INLINE float row_moment(const void *data, int64_t at, int64_t width, float center, bool square, bool bf16)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, c = vf_set1(center);
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= width; i += 4 * VF_LANES) {
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            vf x = vf_sub(vf_get(data, at + i + k * VF_LANES, VF_LANES, bf16), c);
            sum[k] = square ? vf_fma(x, x, sum[k]) : vf_add(sum[k], x);
        }
    }
    for (; i < width; i += VF_LANES) {
        int lanes = (int) SL_MIN(width - i, VF_LANES);
        vf x = vf_sub(vf_get(data, at + i, lanes, bf16), c);
        if (lanes < VF_LANES) /* lanes past the row hold 0 - center */
            x = vf_select(vi_gt(vi_set1(lanes), vi_iota()), x, vf_zero());
        sum[0] = square ? vf_fma(x, x, sum[0]) : vf_add(sum[0], x);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

SL_INLINE void layernorm_step(const layernorm_job *job, int64_t at, int64_t i, int lanes, vf mean, vf rstd, bool bf16)
{
    vf x = vf_mul(vf_sub(vf_get(job->x, at + i, lanes, bf16), mean), rstd);
    vf_put(job->y, at + i, vf_fma(x, vf_get(job->w, i, lanes, bf16), vf_get(job->b, i, lanes, bf16)), lanes, bf16);
}

SL_INLINE void layernorm_rows(const layernorm_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, per_tile = tile_rows(width), end = SL_MIN((tile + 1) * per_tile, job->rows);
    for (int64_t row = tile * per_tile; row < end; row++) {
        const int64_t at = row * width;
        float mean = row_moment(job->x, at, width, 0.0f, false, bf16) / (float) width;
        mean += row_moment(job->x, at, width, mean, false, bf16) / (float) width; /* what rounding left over */
        float rstd = 1.0f / sqrtf(row_moment(job->x, at, width, mean, true, bf16) / (float) width + job->eps);
        if (job->mean_out)
            job->mean_out[row] = mean;
        if (job->rstd_out)
            job->rstd_out[row] = rstd;
        int64_t i = 0;
        for (; i + VF_LANES <= width; i += VF_LANES)
            layernorm_step(job, at, i, VF_LANES, vf_set1(mean), vf_set1(rstd), bf16);
        if (i < width)
            layernorm_step(job, at, i, (int) (width - i), vf_set1(mean), vf_set1(rstd), bf16);
    }
}

SL_CPU_TILES(layernorm_tile, layernorm_job, layernorm_rows(job, tile, bf16))

static void layernorm_run(const sl_launch *launch, sl_pool *pool)
{
    layernorm_job job = {
        .x = launch->in[0].data,
        .w = launch->in[1].data,
        .b = launch->in[2].data,
        .y = launch->out[0].data,
        .mean_out = launch->out[1].data,
        .rstd_out = launch->out[2].data,
        .rows = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .eps = sl_norm_attrs(&launch->attrs)->eps,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, layernorm_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

/* The row's sums of u and of u xhat. */
SL_INLINE void layernorm_bwd_sums(const layernorm_job *job, int64_t at, vf mean, vf rstd, float *sum_u, float *sum_ux,
                                  bool bf16)
{
    const int64_t width = job->width;
    vf a[2] = {vf_zero(), vf_zero()}, b[2] = {vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= width; i += 2 * VF_LANES) {
        SL_UNROLL
        for (int k = 0; k < 2; k++) {
            int64_t j = i + k * VF_LANES;
            vf u = vf_mul(vf_get(job->dy, at + j, VF_LANES, bf16), vf_get(job->w, j, VF_LANES, bf16));
            vf x = vf_mul(vf_sub(vf_get(job->x, at + j, VF_LANES, bf16), mean), rstd);
            a[k] = vf_add(a[k], u);
            b[k] = vf_fma(u, x, b[k]);
        }
    }
    for (; i < width; i += VF_LANES) { /* u is 0 in lanes past the row */
        int lanes = (int) SL_MIN(width - i, VF_LANES);
        vf u = vf_mul(vf_get(job->dy, at + i, lanes, bf16), vf_get(job->w, i, lanes, bf16));
        vf x = vf_mul(vf_sub(vf_get(job->x, at + i, lanes, bf16), mean), rstd);
        a[0] = vf_add(a[0], u);
        b[0] = vf_fma(u, x, b[0]);
    }
    *sum_u = vf_sum(vf_add(a[0], a[1]));
    *sum_ux = vf_sum(vf_add(b[0], b[1]));
}

static inline int64_t layernorm_sums(bool before)
{
    return before ? 3 : 2;
}

SL_INLINE void layernorm_bwd_step(const layernorm_job *job, int64_t at, int64_t i, int lanes, const vf row[4],
                                  float *partial, bool bf16)
{
    vf mean = row[0], rstd = row[1], mean_u = row[2], mean_ux = row[3];
    vf dy = vf_get(job->dy, at + i, lanes, bf16);
    vf xhat = vf_mul(vf_sub(vf_get(job->x, at + i, lanes, bf16), mean), rstd);
    if (partial) {
        float *dw = partial + i, *db = partial + job->width + i;
        vf_store(dw, vf_fma(dy, xhat, vf_load(dw, lanes)), lanes);
        vf_store(db, vf_add(dy, vf_load(db, lanes)), lanes);
    }
    if (job->dx) {
        vf u = vf_sub(vf_mul(dy, vf_get(job->w, i, lanes, bf16)), mean_u);
        vf dx = vf_mul(rstd, vf_fnma(xhat, mean_ux, u));
        if (job->accumulate) {
            vf old = vf_get(job->dx, at + i, lanes, bf16);
            if (job->before) {
                float *before = partial + 2 * job->width + i;
                vf_store(before, vf_add(old, vf_load(before, lanes)), lanes);
            }
            dx = vf_add(old, dx);
        }
        vf_put(job->dx, at + i, dx, lanes, bf16);
    }
}

SL_INLINE void layernorm_bwd_rows(const layernorm_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, end = SL_MIN((tile + 1) * PARTIAL_ROWS, job->rows);
    const int64_t stride = layernorm_sums(job->before) * width;
    float *partial = job->partials ? job->partials + tile * stride : NULL;
    if (partial)
        memset(partial, 0, (size_t) stride * sizeof *partial);
    for (int64_t row = tile * PARTIAL_ROWS; row < end; row++) {
        const int64_t at = row * width;
        vf mean = vf_set1(job->mean[row]), rstd = vf_set1(job->rstd[row]);
        float u, ux;
        layernorm_bwd_sums(job, at, mean, rstd, &u, &ux, bf16);
        const vf values[4] = {mean, rstd, vf_set1(u / (float) width), vf_set1(ux / (float) width)};
        int64_t i = 0;
        for (; i + VF_LANES <= width; i += VF_LANES)
            layernorm_bwd_step(job, at, i, VF_LANES, values, partial, bf16);
        if (i < width)
            layernorm_bwd_step(job, at, i, (int) (width - i), values, partial, bf16);
    }
}

SL_CPU_TILES(layernorm_bwd_tile, layernorm_job, layernorm_bwd_rows(job, tile, bf16))

static size_t layernorm_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    const sl_type *x = &launch->in[1].type;
    int64_t sums = layernorm_sums(launch->out[3].type.rank > 0);
    return (size_t) (tile_count(x->dim[0], PARTIAL_ROWS) * sums * x->dim[1]) * sizeof(float);
}

static void layernorm_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    layernorm_job job = {
        .dy = launch->in[0].data,
        .x = launch->in[1].data,
        .w = launch->in[2].data,
        .mean = launch->in[3].data,
        .rstd = launch->in[4].data,
        .dx = launch->out[0].data,
        .partials = launch->out[1].data || launch->out[2].data || launch->out[3].data ? launch->workspace : NULL,
        .rows = launch->in[1].type.dim[0],
        .width = launch->in[1].type.dim[1],
        .bf16 = launch->in[1].type.dtype == SL_BF16,
        .accumulate = launch->accumulate & 1u,
        .before = launch->out[3].data != NULL,
    };
    int64_t parts = tile_count(job.rows, PARTIAL_ROWS);
    sl_pool_run(pool, layernorm_bwd_tile, &job, parts);
    for (int k = 1; k <= 3; k++)
        if (launch->out[k].data)
            column_sums_finish(pool, job.partials + (k - 1) * job.width, parts, layernorm_sums(job.before) * job.width,
                               &launch->out[k], launch->accumulate >> k & 1u);
}

SL_CPU_KERNEL(layernorm, SL_OP_LAYERNORM, .run = layernorm_run);
SL_CPU_KERNEL(layernorm_bwd, SL_OP_LAYERNORM_BWD, .workspace = layernorm_bwd_workspace, .run = layernorm_bwd_run);
