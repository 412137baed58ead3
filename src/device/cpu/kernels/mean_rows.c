/* Means over the rows of a sample. A tile is a piece of one sample's columns, whose rows are added in order, four running sums at a
 * time. Backward, a tile is some rows. */
#include "ops/mean_rows.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

enum { COLUMNS = 128 }; /* of a tile: a few samples still occupy all threads */

typedef struct mean_job {
    const void *from;
    void *to;
    const struct sl_mean_rows_attrs *attrs;
    int64_t rows, width; /* rows: backward, of dx */
    bool accumulate, bf16;
} mean_job;

SL_INLINE void mean_columns(const mean_job *job, int64_t tile, bool bf16)
{
    const int64_t pieces = tile_count(job->width, COLUMNS), sample = tile / pieces, width = job->width;
    const int64_t first = tile % pieces * COLUMNS, end = SL_MIN(first + COLUMNS, width);
    const int64_t at = (sample * job->attrs->sample_rows + job->attrs->first) * width, count = job->attrs->count;
    for (int64_t c = first; c < end; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - c);
        vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        int64_t row = 0;
        for (; row + 4 <= count; row += 4) {
            SL_UNROLL
            for (int k = 0; k < 4; k++)
                sum[k] = vf_add(sum[k], vf_get(job->from, at + (row + k) * width + c, lanes, bf16));
        }
        for (; row < count; row++)
            sum[row % 4] = vf_add(sum[row % 4], vf_get(job->from, at + row * width + c, lanes, bf16));
        const vf all = vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]));
        vf_put(job->to, sample * width + c, vf_div(all, vf_set1((float) count)), lanes, bf16);
    }
}

SL_CPU_TILES(mean_tile, mean_job, mean_columns(job, tile, bf16))

SL_INLINE void spread_row(const mean_job *job, int64_t row, bool bf16)
{
    const struct sl_mean_rows_attrs *a = job->attrs;
    const int64_t width = job->width, of = row % a->sample_rows - a->first, from = row / a->sample_rows * width;
    if (of < 0 || of >= a->count) {
        if (!job->accumulate)
            memset(element(job->to, row * width, bf16), 0, (size_t) width * (bf16 ? 2 : 4));
        return;
    }
    for (int64_t c = 0; c < width; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, width - c);
        const vf share = vf_div(vf_get(job->from, from + c, lanes, bf16), vf_set1((float) a->count));
        vf_put_add(job->to, row * width + c, share, lanes, bf16, job->accumulate);
    }
}

SL_INLINE void spread_rows(const mean_job *job, int64_t tile, bool bf16)
{
    const int64_t rows = tile_rows(job->width);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++)
        spread_row(job, row, bf16);
}

SL_CPU_TILES(spread_tile, mean_job, spread_rows(job, tile, bf16))

static mean_job unpack(const sl_launch *launch)
{
    return (mean_job){
        .from = launch->in[0].data,
        .to = launch->out[0].data,
        .attrs = sl_mean_rows_attrs(&launch->attrs),
        .rows = launch->out[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
}

static void mean_rows_run(const sl_launch *launch, sl_pool *pool)
{
    mean_job job = unpack(launch);
    sl_pool_run(pool, mean_tile, &job, job.rows * tile_count(job.width, COLUMNS));
}

static void mean_rows_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    mean_job job = unpack(launch);
    sl_pool_run(pool, spread_tile, &job, tile_count(job.rows, tile_rows(job.width)));
}

SL_CPU_KERNEL(mean_rows, SL_OP_MEAN_ROWS, .run = mean_rows_run);
SL_CPU_KERNEL(mean_rows_bwd, SL_OP_MEAN_ROWS_BWD, .run = mean_rows_bwd_run);
