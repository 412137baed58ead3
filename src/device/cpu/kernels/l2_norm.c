/* Rows divided by their length (ops/l2_norm.c). A row is in the first cache when it is read again. */
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/rms_row.h"
#include "ops/norm.h"

typedef struct l2_job {
    const void *x, *dy; /* dy NULL: forward */
    void *out;
    float *r_out;   /* forward; NULL: not wanted */
    const float *r; /* backward */
    int64_t rows, width;
    float eps;
    bool accumulate, bf16;
} l2_job;

/* out = a from + b x, b = 0 forward. */
SL_INLINE void l2_row(const l2_job *job, const void *from, int64_t at, float a, float b, bool bf16, bool backward)
{
    for (int64_t i = at; i < at + job->width; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, at + job->width - i);
        vf y = vf_mul(vf_get(from, i, lanes, bf16), vf_set1(a));
        if (backward) {
            y = vf_fma(vf_get(job->x, i, lanes, bf16), vf_set1(b), y);
            vf_put_add(job->out, i, y, lanes, bf16, job->accumulate);
        } else {
            vf_put(job->out, i, y, lanes, bf16);
        }
    }
}

SL_INLINE void l2_rows(const l2_job *job, int64_t tile, bool bf16, bool backward)
{
    const int64_t rows = tile_rows(job->width);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++) {
        const int64_t at = row * job->width;
        if (backward) {
            const float r = job->r[row];
            const float along = r < 1 / job->eps ? r * row_dot(job->dy, job->x, NULL, 0, at, job->width, bf16) : 0;
            l2_row(job, job->dy, at, r, -(r * along) * r, bf16, true);
        } else {
            const float length = sqrtf(row_dot(job->x, job->x, NULL, 0, at, job->width, bf16));
            const float r = 1 / (length < job->eps ? job->eps : length);
            l2_row(job, job->x, at, r, 0, bf16, false);
            if (job->r_out)
                job->r_out[row] = r;
        }
    }
}

SL_CPU_TILES(l2_tile, l2_job, l2_rows(job, tile, bf16, false))

SL_CPU_TILES(l2_bwd_tile, l2_job, l2_rows(job, tile, bf16, true))

static void l2_norm_run(const sl_launch *launch, sl_pool *pool)
{
    const bool backward = launch->op == SL_OP_L2_NORM_BWD;
    l2_job job = {
        .x = launch->in[backward ? 1 : 0].data,
        .dy = backward ? launch->in[0].data : NULL,
        .out = launch->out[0].data,
        .r_out = backward ? NULL : launch->out[1].data,
        .r = backward ? launch->in[2].data : NULL,
        .rows = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .eps = sl_norm_attrs(&launch->attrs)->eps,
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, backward ? l2_bwd_tile : l2_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

SL_CPU_KERNEL(l2_norm, SL_OP_L2_NORM, .run = l2_norm_run);
SL_CPU_KERNEL(l2_norm_bwd, SL_OP_L2_NORM_BWD, .run = l2_norm_run);
