/*
 * Cross-entropy with soft targets, a row at a time: the largest logit, then the sums of exponentials, targets and targets times
 * logits, then the gradient. Every row is summed in one order, and the rows' losses are kept as f64 and added in order at the end,
 * whatever thread computed them.
 */
#include <math.h>

#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"
#include "ops/soft_loss.h"

typedef struct soft_job {
    const void *logits;
    const float *targets, *weights; /* weights NULL: all are 1 */
    void *gradient;                 /* NULL: forward only */
    double *losses;
    int64_t rows, classes;
    float scale;
    bool bf16;
} soft_job;

typedef struct soft_row {
    float largest, sum, targets, products; /* products: of targets and largest - logit */
} soft_row;

/* Logits from i on; lanes beyond the row hold minus infinity. */
SL_INLINE vf logits_at(const soft_job *job, int64_t i, int lanes, bool bf16)
{
    float few[VF_LANES];
    vf x = vf_get(job->logits, i, lanes, bf16);
    if (lanes == VF_LANES)
        return x;
    for (int j = 0; j < VF_LANES; j++)
        few[j] = -INFINITY;
    vf_store(few, x, lanes);
    return vf_load(few, VF_LANES);
}

SL_INLINE soft_row sum_row(const soft_job *job, int64_t first, bool bf16)
{
    const int64_t end = first + job->classes;
    vf largest = vf_set1(-INFINITY), sum = vf_zero(), targets = vf_zero(), products = vf_zero();
    float lanes_of[VF_LANES];
    for (int64_t i = first; i < end; i += VF_LANES)
        largest = vf_max(logits_at(job, i, (int) SL_MIN(VF_LANES, end - i), bf16), largest);
    vf_store(lanes_of, largest, VF_LANES);
    soft_row row = {.largest = -INFINITY};
    for (int j = 0; j < VF_LANES; j++)
        row.largest = SL_MAX(row.largest, lanes_of[j]);
    const vf shift = vf_set1(row.largest);
    for (int64_t i = first; i < end; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - i);
        const vf t = vf_load(job->targets + i, lanes);
        sum = vf_add(sum, vf_exp(vf_sub(logits_at(job, i, lanes, bf16), shift)));
        targets = vf_add(targets, t);
        products = vf_fma(t, vf_sub(shift, vf_get(job->logits, i, lanes, bf16)), products);
    }
    row.sum = vf_sum(sum);
    row.targets = vf_sum(targets);
    row.products = vf_sum(products);
    return row;
}

SL_INLINE void gradient_row(const soft_job *job, int64_t first, soft_row row, float scale, bool bf16)
{
    const int64_t end = first + job->classes;
    const vf shift = vf_set1(row.largest), share = vf_set1(row.targets / row.sum), scales = vf_set1(scale);
    for (int64_t i = first; i < end; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - i);
        const vf e = vf_exp(vf_sub(vf_get(job->logits, i, lanes, bf16), shift)), t = vf_load(job->targets + i, lanes);
        vf_put(job->gradient, i, vf_mul(vf_sub(vf_mul(e, share), t), scales), lanes, bf16);
    }
}

SL_INLINE void run_row(const soft_job *job, int64_t at, bool bf16)
{
    const float weight = job->weights ? job->weights[at] : 1;
    const soft_row row = sum_row(job, at * job->classes, bf16);
    job->losses[at] = weight * ((double) row.targets * log((double) row.sum) + (double) row.products);
    if (job->gradient)
        gradient_row(job, at * job->classes, row, weight * job->scale, bf16);
}

static void run_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const soft_job *job = context;
    const int64_t rows = tile_rows(job->classes);
    for (int64_t at = tile * rows; at < SL_MIN((tile + 1) * rows, job->rows); at++)
        if (job->bf16)
            run_row(job, at, true);
        else
            run_row(job, at, false);
}

static size_t workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    return (size_t) launch->in[0].type.dim[0] * sizeof(double);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    const bool backward = launch->op == SL_OP_SOFT_LOSS_BWD;
    soft_job job = {
        .logits = launch->in[0].data,
        .targets = launch->in[1].data,
        .weights = launch->in[backward ? 3 : 2].data,
        .gradient = backward ? launch->out[1].data : NULL,
        .losses = launch->workspace,
        .rows = launch->in[0].type.dim[0],
        .classes = launch->in[0].type.dim[1],
        .scale = backward ? sl_loss_scale(launch->in[2].data, sl_soft_loss_attrs(&launch->attrs)->loss) : 0,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    double loss = 0;
    sl_pool_run(pool, run_tile, &job, tile_count(job.rows, tile_rows(job.classes)));
    for (int64_t i = 0; i < job.rows; i++)
        loss += job.losses[i];
    *(float *) launch->out[0].data = (float) loss;
}

SL_CPU_KERNEL(soft_loss, SL_OP_SOFT_LOSS, .workspace = workspace, .run = run);
SL_CPU_KERNEL(soft_loss_bwd, SL_OP_SOFT_LOSS_BWD, .workspace = workspace, .run = run);
