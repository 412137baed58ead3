/* Functions of one element, each compiled into loops of its own: `function` is a constant there. */
#include "ops/unary.h"

#include <math.h>

#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd_math.h"

typedef struct unary_job {
    const void *x, *dy; /* dy NULL: forward */
    void *out;
    int64_t count;
    int32_t function;
    bool accumulate, bf16;
} unary_job;

/* Sine and cosine of any x. vf_sin_cos reduces an angle in f64. From 2^22 on neighbouring floats are half a radian apart and more, so
 * the one rounding of a remainder by the f64 nearest to 2 pi is enough. */
SL_INLINE void sine_of(vf x, vf *sine, vf *cosine)
{
    float few[VF_LANES];
    double angle[VF_LANES];
    vf_store(few, x, VF_LANES);
    for (int j = 0; j < VF_LANES; j++)
        angle[j] = fabsf(few[j]) < 0x1p22f ? (double) few[j] : remainder((double) few[j], 0x1.921fb54442d18p+2);
    vf_sin_cos(1.0, angle, sine, cosine);
}

SL_INLINE vf value_of(vf x, int32_t function)
{
    vf other;
    switch (function) {
    case SL_UNARY_SINE: {
        vf sine;
        sine_of(x, &sine, &other);
        return sine;
    }
    case SL_UNARY_SIGMOID:
        return vf_sigmoid(x, NULL);
    case SL_UNARY_SILU:
        return vf_mul(x, vf_sigmoid(x, NULL));
    case SL_UNARY_TANH:
        return vf_tanh(x, &other);
    default: /* ReLU; max returns its second operand if either is NaN */
        return vf_max(vf_zero(), x);
    }
}

SL_INLINE vf slope_of(vf x, int32_t function)
{
    vf other, slope;
    switch (function) {
    case SL_UNARY_SINE:
        sine_of(x, &other, &slope);
        return slope;
    case SL_UNARY_SIGMOID:
    case SL_UNARY_SILU: {
        const vf sigma = vf_sigmoid(x, &other);
        return function == SL_UNARY_SILU ? vf_fma(vf_mul(x, sigma), other, sigma) : vf_mul(sigma, other);
    }
    case SL_UNARY_TANH:
        vf_tanh(x, &slope);
        return slope;
    default:
        return vf_select(vf_gt(x, vf_zero()), vf_set1(1.0f), vf_zero());
    }
}

SL_INLINE void unary_elements(const unary_job *job, int64_t tile, bool bf16, int32_t function, bool backward)
{
    const int64_t end = SL_MIN((tile + 1) * TILE_ELEMENTS, job->count);
    for (int64_t i = tile * TILE_ELEMENTS; i < end; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - i);
        const vf x = vf_get(job->x, i, lanes, bf16);
        if (backward)
            vf_put_add(job->out, i, vf_mul(vf_get(job->dy, i, lanes, bf16), slope_of(x, function)), lanes, bf16,
                       job->accumulate);
        else
            vf_put(job->out, i, value_of(x, function), lanes, bf16);
    }
}

SL_INLINE void unary_any(const unary_job *job, int64_t tile, bool bf16, bool backward)
{
    switch (job->function) {
    case SL_UNARY_SINE:
        unary_elements(job, tile, bf16, SL_UNARY_SINE, backward);
        break;
    case SL_UNARY_SIGMOID:
        unary_elements(job, tile, bf16, SL_UNARY_SIGMOID, backward);
        break;
    case SL_UNARY_SILU:
        unary_elements(job, tile, bf16, SL_UNARY_SILU, backward);
        break;
    case SL_UNARY_TANH:
        unary_elements(job, tile, bf16, SL_UNARY_TANH, backward);
        break;
    default:
        unary_elements(job, tile, bf16, SL_UNARY_RELU, backward);
        break;
    }
}

SL_CPU_TILES(unary_tile, unary_job, unary_any(job, tile, bf16, false))

SL_CPU_TILES(unary_bwd_tile, unary_job, unary_any(job, tile, bf16, true))

static void unary_run(const sl_launch *launch, sl_pool *pool)
{
    const bool backward = launch->op == SL_OP_UNARY_BWD;
    unary_job job = {
        .x = launch->in[backward ? 1 : 0].data,
        .dy = backward ? launch->in[0].data : NULL,
        .out = launch->out[0].data,
        .count = sl_type_count(&launch->out[0].type),
        .function = sl_unary_attrs(&launch->attrs)->function,
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->out[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, backward ? unary_bwd_tile : unary_tile, &job, tile_count(job.count, TILE_ELEMENTS));
}

SL_CPU_KERNEL(unary, SL_OP_UNARY, .run = unary_run);
SL_CPU_KERNEL(unary_bwd, SL_OP_UNARY_BWD, .run = unary_run);
