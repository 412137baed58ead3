/*
 * Sums over tokens (weights' and biases' gradients) by a fixed tree: PARTIAL_ROWS rows at a time into f32 partial rows
 * in the workspace, then for each column the partials, four interleaved running sums at a time. One thread or many,
 * the order is the same.
 */
#ifndef SL_DEVICE_CPU_COLUMN_SUMS_H
#define SL_DEVICE_CPU_COLUMN_SUMS_H

#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

enum { COLUMN_TILE = 256 };

typedef struct column_sums {
    const float *partials; /* [parts, stride] */
    int64_t parts, stride, width;
    void *out;
    bool bf16, accumulate;
} column_sums;

SL_INLINE void column_sums_step(const column_sums *job, int64_t c, int lanes, bool bf16)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    const float *from = job->partials + c;
    int64_t i = 0;
    for (; i + 4 <= job->parts; i += 4) {
        SL_UNROLL
        for (int k = 0; k < 4; k++)
            sum[k] = vf_add(sum[k], vf_load(from + (i + k) * job->stride, lanes));
    }
    for (int k = 0; i < job->parts; i++, k++)
        sum[k] = vf_add(sum[k], vf_load(from + i * job->stride, lanes));
    vf_put_add(job->out, c, vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])), lanes, bf16, job->accumulate);
}

static void column_sums_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const column_sums *job = context;
    int64_t c = tile * COLUMN_TILE, end = SL_MIN(c + COLUMN_TILE, job->width);
    for (; c + VF_LANES <= end; c += VF_LANES) {
        if (job->bf16)
            column_sums_step(job, c, VF_LANES, true);
        else
            column_sums_step(job, c, VF_LANES, false);
    }
    if (c < end)
        column_sums_step(job, c, (int) (end - c), job->bf16);
}

/* out[width] (+)= column sums of partials[parts][stride]; nothing if out is absent. */
static inline void column_sums_finish(sl_pool *pool, const float *partials, int64_t parts, int64_t stride,
                                      const sl_operand *out, bool accumulate)
{
    if (!out->data)
        return;
    column_sums job = {partials,  parts, stride, sl_type_count(&out->type), out->data, out->type.dtype == SL_BF16,
                       accumulate};
    sl_pool_run(pool, column_sums_tile, &job, tile_count(job.width, COLUMN_TILE));
}

#endif
