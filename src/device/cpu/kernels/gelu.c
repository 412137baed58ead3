/*
 * GELU, exact and in its tanh form: y = x c(x) with c the normal distribution or, since (1 + tanh u)/2 = sigmoid(2u),
 * c = sigmoid(2u), u = sqrt(2/pi) (x + .044715 x^3). Backward: dx = dy (c + x c'), c' = density or 2 c (1-c) u'; where the sums
 * of dx's columns are wanted, its tiles are PARTIAL_ROWS rows, and each adds them up in a partial row (column_sums.h).
 */
#include "ops/gelu.h"
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/simd/simd_math.h"

typedef struct gelu_job {
    const void *x, *dy;
    void *out;
    float *partials; /* [parts][width], NULL: no sums */
    int64_t count, width;
    bool accumulate, bf16, tanh;
} gelu_job;

#define GELU_2K 1.5957691216057308f /* 2 sqrt(2/pi) */

SL_INLINE vf gelu_weight(vf x, bool tanh_form, vf *slope)
{
    if (!tanh_form)
        return vf_normal_cdf(x, slope);
    vf square = vf_mul(x, x), inner = vf_fma(square, vf_set1(0.044715f), vf_set1(1.0f));
    vf rest, c = vf_sigmoid(vf_mul(vf_mul(x, inner), vf_set1(GELU_2K)), &rest);
    if (slope) {
        vf du = vf_fma(square, vf_set1(3 * 0.044715f), vf_set1(1.0f));
        *slope = vf_mul(vf_mul(vf_mul(c, rest), du), vf_set1(GELU_2K));
    }
    return c;
}

/* Returns what it wrote, before rounding; 0 in lanes past the last one, where dy is. */
SL_INLINE vf gelu_step(const gelu_job *job, int64_t i, int lanes, bool backward, bool bf16, bool tanh_form)
{
    vf y, x = vf_get(job->x, i, lanes, bf16);
    if (!backward) {
        y = vf_mul(x, gelu_weight(x, tanh_form, NULL));
    } else {
        vf slope, c = gelu_weight(x, tanh_form, &slope);
        /* Where the slope is 0, x may be infinite: 0 rather than NaN. */
        vf rest = vf_select(vf_gt(slope, vf_zero()), vf_mul(x, slope), vf_zero());
        y = vf_mul(vf_get(job->dy, i, lanes, bf16), vf_add(c, rest));
        if (job->accumulate)
            y = vf_add(vf_get(job->out, i, lanes, bf16), y);
    }
    vf_put(job->out, i, y, lanes, bf16);
    return y;
}

SL_INLINE void gelu_elements(const gelu_job *job, int64_t tile, bool backward, bool bf16, bool tanh_form)
{
    int64_t i = tile * TILE_ELEMENTS, end = SL_MIN(i + TILE_ELEMENTS, job->count);
    for (; i + VF_LANES <= end; i += VF_LANES)
        gelu_step(job, i, VF_LANES, backward, bf16, tanh_form);
    if (i < end)
        gelu_step(job, i, (int) (end - i), backward, bf16, tanh_form);
}

SL_INLINE void gelu_sums_step(const gelu_job *job, int64_t i, float *sum, int lanes, bool bf16, bool tanh_form)
{
    vf_store(sum, vf_add(vf_load(sum, lanes), gelu_step(job, i, lanes, true, bf16, tanh_form)), lanes);
}

SL_INLINE void gelu_rows(const gelu_job *job, int64_t tile, bool bf16, bool tanh_form)
{
    const int64_t width = job->width, first = tile * PARTIAL_ROWS * width;
    const int64_t end = SL_MIN(first + PARTIAL_ROWS * width, job->count);
    float *sum = job->partials + tile * width;
    memset(sum, 0, (size_t) width * sizeof *sum);
    for (int64_t at = first; at < end; at += width) {
        int64_t c = 0;
        for (; c + VF_LANES <= width; c += VF_LANES)
            gelu_sums_step(job, at + c, sum + c, VF_LANES, bf16, tanh_form);
        if (c < width)
            gelu_sums_step(job, at + c, sum + c, (int) (width - c), bf16, tanh_form);
    }
}

/* What a tile is: elements, or rows that are summed too. */
SL_INLINE void gelu_any(const gelu_job *job, int64_t tile, bool backward, bool bf16, bool tanh_form)
{
    if (backward && job->partials)
        gelu_rows(job, tile, bf16, tanh_form);
    else
        gelu_elements(job, tile, backward, bf16, tanh_form);
}

SL_INLINE void gelu_typed(const gelu_job *job, int64_t tile, bool backward)
{
    if (job->bf16 && job->tanh)
        gelu_any(job, tile, backward, true, true);
    else if (job->bf16)
        gelu_any(job, tile, backward, true, false);
    else if (job->tanh)
        gelu_any(job, tile, backward, false, true);
    else
        gelu_any(job, tile, backward, false, false);
}

static void gelu_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    gelu_typed(context, tile, false);
}

static void gelu_bwd_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    gelu_typed(context, tile, true);
}

static gelu_job gelu_unpack(const sl_launch *launch)
{
    gelu_job job = {
        .out = launch->out[0].data,
        .count = sl_type_count(&launch->out[0].type),
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->out[0].type.dtype == SL_BF16,
        .tanh = sl_gelu_attrs(&launch->attrs)->tanh != 0,
    };
    return job;
}

static void gelu_run(const sl_launch *launch, sl_pool *pool)
{
    gelu_job job = gelu_unpack(launch);
    job.x = launch->in[0].data;
    sl_pool_run(pool, gelu_tile, &job, tile_count(job.count, TILE_ELEMENTS));
}

static size_t gelu_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    int64_t count = sl_type_count(&launch->in[0].type), width = sl_type_count(&launch->out[1].type);
    return width ? (size_t) (tile_count(count / width, PARTIAL_ROWS) * width) * sizeof(float) : 0;
}

static void gelu_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    gelu_job job = gelu_unpack(launch);
    job.dy = launch->in[0].data;
    job.x = launch->in[1].data;
    int64_t tiles = tile_count(job.count, TILE_ELEMENTS);
    if (launch->out[1].data) {
        job.partials = launch->workspace;
        job.width = sl_type_count(&launch->out[1].type);
        tiles = tile_count(job.count / job.width, PARTIAL_ROWS);
    }
    sl_pool_run(pool, gelu_bwd_tile, &job, tiles);
    column_sums_finish(pool, job.partials, tiles, job.width, &launch->out[1], launch->accumulate >> 1 & 1u);
}

SL_CPU_KERNEL(gelu, SL_OP_GELU, .run = gelu_run);
SL_CPU_KERNEL(gelu_bwd, SL_OP_GELU_BWD, .workspace = gelu_bwd_workspace, .run = gelu_bwd_run);
