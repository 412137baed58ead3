/* The gradient of a bias: column sums of dy, by partial rows (column_sums.h). */
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"

typedef struct bias_grad_job {
    const void *dy;
    float *partials;
    int64_t rows, width;
    bool bf16;
} bias_grad_job;

/* Four columns of vectors at a time stay in registers while the rows pass. */
SL_INLINE void bias_grad_step(const bias_grad_job *job, int64_t first, int64_t end, int64_t c, const int vecs,
                              int lanes, float *partial, bool bf16)
{
    vf sum[4];
    SL_UNROLL
    for (int k = 0; k < vecs; k++)
        sum[k] = vf_zero();
    for (int64_t row = first; row < end; row++) {
        SL_UNROLL
        for (int k = 0; k < vecs; k++)
            sum[k] = vf_add(sum[k], vf_get(job->dy, row * job->width + c + k * VF_LANES, lanes, bf16));
    }
    SL_UNROLL
    for (int k = 0; k < vecs; k++)
        vf_store(partial + c + k * VF_LANES, sum[k], lanes);
}

SL_INLINE void bias_grad_rows(const bias_grad_job *job, int64_t tile, bool bf16)
{
    const int64_t first = tile * PARTIAL_ROWS, end = SL_MIN(first + PARTIAL_ROWS, job->rows), width = job->width;
    float *partial = job->partials + tile * width;
    int64_t c = 0;
    for (; c + 4 * VF_LANES <= width; c += 4 * VF_LANES)
        bias_grad_step(job, first, end, c, 4, VF_LANES, partial, bf16);
    for (; c + VF_LANES <= width; c += VF_LANES)
        bias_grad_step(job, first, end, c, 1, VF_LANES, partial, bf16);
    if (c < width)
        bias_grad_step(job, first, end, c, 1, (int) (width - c), partial, bf16);
}

SL_CPU_TILES(bias_grad_tile, bias_grad_job, bias_grad_rows(job, tile, bf16))

static size_t bias_grad_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    const sl_type *dy = &launch->in[0].type;
    return (size_t) (tile_count(dy->dim[0], PARTIAL_ROWS) * dy->dim[1]) * sizeof(float);
}

static void bias_grad_run(const sl_launch *launch, sl_pool *pool)
{
    bias_grad_job job = {
        .dy = launch->in[0].data,
        .partials = launch->workspace,
        .rows = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    int64_t parts = tile_count(job.rows, PARTIAL_ROWS);
    sl_pool_run(pool, bias_grad_tile, &job, parts);
    column_sums_finish(pool, job.partials, parts, job.width, &launch->out[0], launch->accumulate & 1u);
}

SL_CPU_KERNEL(bias_grad, SL_OP_BIAS_GRAD, .workspace = bias_grad_workspace, .run = bias_grad_run);
