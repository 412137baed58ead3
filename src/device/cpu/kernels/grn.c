/*
 * Global response normalization (ops/grn.c) in passes over the tokens of a sample: sums of a piece of a sample's columns, in order of the
 * tokens; then what follows from them for each channel; then the elements. With s the sample, the workspace holds
 *     forward   factor[s][c]: y = x factor + beta
 *     backward  sums[s][2][c]: dy x, then n dy x, and dy; factor[s][c], slope[s][c]: dx = dy factor + x slope
 */
#include "ops/grn.h"

#include <math.h>

#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "tensor/dtype.h"

enum { COLUMNS = 128 }; /* of a tile of sums: a few samples still occupy all threads */

typedef struct grn_job {
    const void *x, *dy, *gamma, *beta; /* dy NULL: forward */
    void *to;                          /* y, or dx */
    float *lengths_out;                /* forward */
    const float *lengths;
    float *sums, *factor, *slope;
    int64_t samples, sample_rows, width;
    float eps;
    bool accumulate, bf16;
} grn_job;

/* Of a piece of a sample's columns: the lengths, or the two sums of the backward. */
SL_INLINE void sum_columns(const grn_job *job, int64_t tile, bool bf16, bool backward)
{
    const int64_t pieces = tile_count(job->width, COLUMNS), sample = tile / pieces, width = job->width;
    const int64_t first = tile % pieces * COLUMNS, end = SL_MIN(first + COLUMNS, width);
    const int64_t at = sample * job->sample_rows * width;
    for (int64_t c = first; c < end; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - c);
        vf products[2] = {vf_zero(), vf_zero()}, plain[2] = {vf_zero(), vf_zero()};
        for (int64_t row = 0; row < job->sample_rows; row++) {
            const vf x = vf_get(job->x, at + row * width + c, lanes, bf16);
            const vf dy = backward ? vf_get(job->dy, at + row * width + c, lanes, bf16) : x;
            products[row % 2] = vf_fma(dy, x, products[row % 2]);
            if (backward)
                plain[row % 2] = vf_add(plain[row % 2], dy);
        }
        const vf product = vf_add(products[0], products[1]);
        if (backward) {
            vf_store(job->sums + sample * 2 * width + c, product, lanes);
            vf_store(job->sums + (sample * 2 + 1) * width + c, vf_add(plain[0], plain[1]), lanes);
        } else {
            vf_store(job->lengths_out + sample * width + c, vf_sqrt(product), lanes);
        }
    }
}

SL_CPU_TILES(length_tile, grn_job, sum_columns(job, tile, bf16, false))

SL_CPU_TILES(sum_tile, grn_job, sum_columns(job, tile, bf16, true))

/* A few numbers for each channel, one after the other, in f64 where they are summed. */
static void channels_tile(void *context, int64_t sample, int thread)
{
    const grn_job *job = context;
    const int64_t width = job->width;
    const float *lengths = job->lengths + sample * width;
    const sl_dtype dtype = job->bf16 ? SL_BF16 : SL_F32;
    float *factor = job->factor + sample * width;
    double total = 0, mean = 0;
    (void) thread;
    for (int64_t c = 0; c < width; c++)
        total += lengths[c];
    const double r = 1 / (total / (double) width + job->eps);
    for (int64_t c = 0; c < width; c++) {
        const float weight = sl_dtype_load(dtype, job->gamma, c);
        factor[c] = (float) (1 + weight * (lengths[c] * r));
        if (job->dy)
            mean += weight * (double) job->sums[sample * 2 * width + c] * (lengths[c] * r) / (double) width;
    }
    for (int64_t c = 0; job->dy && c < width; c++) {
        float *sum = &job->sums[sample * 2 * width + c];
        const double dg = r * (sl_dtype_load(dtype, job->gamma, c) * (double) *sum - mean);
        job->slope[sample * width + c] = lengths[c] > 0 ? (float) (dg / lengths[c]) : 0;
        *sum = (float) (*sum * (lengths[c] * r));
    }
}

SL_INLINE void element_rows(const grn_job *job, int64_t tile, bool bf16, bool backward)
{
    const int64_t width = job->width, rows = tile_rows(width), all = job->samples * job->sample_rows;
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, all); row++) {
        const int64_t at = row * width, of = row / job->sample_rows * width;
        for (int64_t c = 0; c < width; c += VF_LANES) {
            const int lanes = (int) SL_MIN(VF_LANES, width - c);
            const vf x = vf_get(job->x, at + c, lanes, bf16), factor = vf_load(job->factor + of + c, lanes);
            if (backward) {
                const vf dy = vf_get(job->dy, at + c, lanes, bf16);
                const vf dx = vf_fma(x, vf_load(job->slope + of + c, lanes), vf_mul(dy, factor));
                vf_put_add(job->to, at + c, dx, lanes, bf16, job->accumulate);
            } else {
                vf_put(job->to, at + c, vf_fma(x, factor, vf_get(job->beta, c, lanes, bf16)), lanes, bf16);
            }
        }
    }
}

SL_CPU_TILES(element_tile, grn_job, element_rows(job, tile, bf16, false))

SL_CPU_TILES(element_bwd_tile, grn_job, element_rows(job, tile, bf16, true))

static grn_job unpack(const sl_launch *launch)
{
    const sl_type *x = &launch->in[0].type;
    grn_job job = {
        .to = launch->out[0].data,
        .factor = launch->workspace,
        .sample_rows = sl_grn_attrs(&launch->attrs)->sample_rows,
        .width = x->dim[1],
        .eps = sl_grn_attrs(&launch->attrs)->eps,
        .accumulate = launch->accumulate & 1u,
        .bf16 = x->dtype == SL_BF16,
    };
    job.samples = x->dim[0] / job.sample_rows;
    return job;
}

static size_t grn_workspace(const sl_launch *launch, int threads)
{
    const int64_t samples = launch->in[0].type.dim[0] / sl_grn_attrs(&launch->attrs)->sample_rows;
    (void) threads;
    return (size_t) (samples * launch->in[0].type.dim[1]) * sizeof(float) * (launch->op == SL_OP_GRN ? 1 : 4);
}

static int64_t sum_tiles(const grn_job *job)
{
    return job->samples * tile_count(job->width, COLUMNS);
}

static void run_elements(grn_job *job, sl_pool *pool)
{
    sl_pool_run(pool, job->dy ? element_bwd_tile : element_tile, job,
                tile_count(job->samples * job->sample_rows, tile_rows(job->width)));
}

static void grn_run(const sl_launch *launch, sl_pool *pool)
{
    grn_job job = unpack(launch);
    job.x = launch->in[0].data;
    job.gamma = launch->in[1].data;
    job.beta = launch->in[2].data;
    job.lengths = job.lengths_out = launch->out[1].data;
    sl_pool_run(pool, length_tile, &job, sum_tiles(&job));
    sl_pool_run(pool, channels_tile, &job, job.samples);
    run_elements(&job, pool);
}

static void grn_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    grn_job job = unpack(launch);
    const int64_t channels = job.samples * job.width;
    job.dy = launch->in[0].data;
    job.x = launch->in[1].data;
    job.gamma = launch->in[2].data;
    job.lengths = launch->in[3].data;
    job.slope = job.factor + channels;
    job.sums = job.slope + channels;
    sl_pool_run(pool, sum_tile, &job, sum_tiles(&job));
    sl_pool_run(pool, channels_tile, &job, job.samples);
    if (job.to)
        run_elements(&job, pool);
    for (int k = 1; k <= 2; k++)
        column_sums_finish(pool, job.sums + (k - 1) * job.width, job.samples, 2 * job.width, &launch->out[k],
                           launch->accumulate >> k & 1u);
}

SL_CPU_KERNEL(grn, SL_OP_GRN, .workspace = grn_workspace, .run = grn_run);
SL_CPU_KERNEL(grn_bwd, SL_OP_GRN_BWD, .workspace = grn_workspace, .run = grn_bwd_run);
