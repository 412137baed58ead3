/* DropPath: rows of samples that are kept times one factor, and zeros. One rounding per element, so the bits are the reference's. */
#include "ops/drop_path.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

typedef struct drop_job {
    const void *x;
    void *y;
    const sl_step_params *step;
    const struct sl_drop_path_attrs *attrs;
    int64_t rows, width;
    bool accumulate, bf16;
} drop_job;

SL_INLINE void scale_row(const drop_job *job, int64_t row, float factor, bool bf16)
{
    const int64_t end = (row + 1) * job->width;
    const vf factors = vf_set1(factor);
    for (int64_t i = row * job->width; i < end; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - i);
        const vf x = vf_get(job->x, i, lanes, bf16);
        vf_put(job->y, i, job->accumulate ? vf_fma(x, factors, vf_get(job->y, i, lanes, bf16)) : vf_mul(x, factors),
               lanes, bf16);
    }
}

SL_INLINE void drop_rows(const drop_job *job, int64_t tile, bool bf16)
{
    const int64_t rows = tile_rows(job->width);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++) {
        const float factor = sl_drop_path_factor(job->attrs, job->step, row);
        if (factor != 0)
            scale_row(job, row, factor, bf16);
        else if (!job->accumulate)
            memset(element(job->y, row * job->width, bf16), 0, (size_t) job->width * (bf16 ? 2 : 4));
    }
}

SL_CPU_TILES(drop_tile, drop_job, drop_rows(job, tile, bf16))

static void drop_path_run(const sl_launch *launch, sl_pool *pool)
{
    drop_job job = {
        .x = launch->in[0].data,
        .y = launch->out[0].data,
        .step = launch->in[1].data,
        .attrs = sl_drop_path_attrs(&launch->attrs),
        .rows = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, drop_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

SL_CPU_KERNEL(drop_path, SL_OP_DROP_PATH, .run = drop_path_run);
