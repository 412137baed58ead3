/* Add, multiply, scale, cast and dropout: one operation and one rounding per element, so the bits are the reference's. */
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd_noise.h"
#include "ops/dropout.h"
#include "ops/scale.h"

typedef struct elementwise_job {
    const void *a, *b;
    void *out;
    int64_t count;
    float value; /* scale; dropout: 1 / (1 - p) */
    bool accumulate, in_bf16, bf16;
    /* dropout */
    const sl_step_params *step;
    uint32_t stream;
    float probability;
    int64_t first; /* element 0's place in the whole batch */
} elementwise_job;

typedef enum elementwise_op { EW_ADD, EW_MUL, EW_SCALE, EW_CAST } elementwise_op;

SL_INLINE void elementwise_step(const elementwise_job *job, int64_t i, int lanes, elementwise_op op, bool in_bf16,
                                bool bf16)
{
    vf x = vf_get(job->a, i, lanes, in_bf16), y = x;
    if (op == EW_ADD)
        y = vf_add(x, vf_get(job->b, i, lanes, in_bf16));
    if (op == EW_MUL || op == EW_SCALE) {
        vf factor = op == EW_MUL ? vf_get(job->b, i, lanes, in_bf16) : vf_set1(job->value);
        y = job->accumulate ? vf_fma(x, factor, vf_get(job->out, i, lanes, bf16)) : vf_mul(x, factor);
    }
    vf_put(job->out, i, y, lanes, bf16);
}

SL_INLINE void elementwise_elements(const elementwise_job *job, int64_t tile, elementwise_op op, bool in_bf16,
                                    bool bf16)
{
    int64_t i = tile * TILE_ELEMENTS, end = SL_MIN(i + TILE_ELEMENTS, job->count);
    for (; i + VF_LANES <= end; i += VF_LANES)
        elementwise_step(job, i, VF_LANES, op, in_bf16, bf16);
    if (i < end)
        elementwise_step(job, i, (int) (end - i), op, in_bf16, bf16);
}

SL_CPU_TILES(add_tile, elementwise_job, elementwise_elements(job, tile, EW_ADD, bf16, bf16))

SL_CPU_TILES(mul_tile, elementwise_job, elementwise_elements(job, tile, EW_MUL, bf16, bf16))

SL_CPU_TILES(scale_tile, elementwise_job, elementwise_elements(job, tile, EW_SCALE, bf16, bf16))

static void cast_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const elementwise_job *job = context;
    if (job->in_bf16 == job->bf16) {
        size_t size = job->bf16 ? 2 : 4;
        int64_t i = tile * TILE_ELEMENTS, end = SL_MIN(i + TILE_ELEMENTS, job->count);
        memcpy(element(job->out, i, job->bf16), element_const(job->a, i, job->bf16), (size_t) (end - i) * size);
    } else if (job->bf16) {
        elementwise_elements(job, tile, EW_CAST, false, true);
    } else {
        elementwise_elements(job, tile, EW_CAST, true, false);
    }
}

/* VF_LANES elements whose noise is `bits`. */
SL_INLINE void dropout_step(const elementwise_job *job, int64_t i, int lanes, vi bits, bool bf16)
{
    vf uniform = vf_mul(vi_to_vf(vi_shr(bits, 8)), vf_set1(1.0f / 16777216.0f));
    vm dropped = vf_lt(uniform, vf_set1(job->probability));
    vf x = vf_get(job->a, i, lanes, bf16), factor = vf_set1(job->value);
    if (job->accumulate) {
        vf y = vf_get(job->out, i, lanes, bf16);
        vf_put(job->out, i, vf_select(dropped, y, vf_fma(x, factor, y)), lanes, bf16);
    } else {
        vf_put(job->out, i, vf_select(dropped, vf_zero(), vf_mul(x, factor)), lanes, bf16);
    }
}

/* Tiles are whole blocks of noise in the batch, so the first and the last may be cut by the launch's ends, at any
 * element. */
SL_INLINE void dropout_elements(const elementwise_job *job, int64_t tile, bool bf16)
{
    const int64_t base = job->first / SL_DROPOUT_BLOCK * SL_DROPOUT_BLOCK + tile * TILE_ELEMENTS,
                  end = job->first + job->count;
    const uint64_t seed = ~sl_noise_seed(job->step), high = sl_noise_counter_hi(job->stream, job->step->step);
    for (int64_t at = base; at < SL_MIN(base + TILE_ELEMENTS, end); at += SL_DROPOUT_BLOCK) {
        uint32_t words[4][SL_NOISE_LANES];
        philox_16(seed, (uint64_t) (at / SL_DROPOUT_BLOCK * SL_NOISE_LANES), high, 10, words);
        const int32_t *flat = (const int32_t *) &words[0][0];
        int64_t j = SL_MAX(job->first - at, 0), stop = SL_MIN(end - at, SL_DROPOUT_BLOCK);
        for (; j + VF_LANES <= stop; j += VF_LANES)
            dropout_step(job, at + j - job->first, VF_LANES, vi_load(flat + j), bf16);
        if (j < stop) {
            int32_t rest[VF_LANES] = {0};
            memcpy(rest, flat + j, (size_t) (stop - j) * sizeof *rest);
            dropout_step(job, at + j - job->first, (int) (stop - j), vi_load(rest), bf16);
        }
    }
}

SL_CPU_TILES(dropout_tile, elementwise_job, dropout_elements(job, tile, bf16))

static elementwise_job elementwise_unpack(const sl_launch *launch)
{
    elementwise_job job = {
        .a = launch->in[0].data,
        .b = launch->in[1].data,
        .out = launch->out[0].data,
        .count = sl_type_count(&launch->out[0].type),
        .accumulate = launch->accumulate & 1u,
        .in_bf16 = launch->in[0].type.dtype == SL_BF16,
        .bf16 = launch->out[0].type.dtype == SL_BF16,
    };
    return job;
}

static void add_run(const sl_launch *launch, sl_pool *pool)
{
    elementwise_job job = elementwise_unpack(launch);
    sl_pool_run(pool, add_tile, &job, tile_count(job.count, TILE_ELEMENTS));
}

static void mul_run(const sl_launch *launch, sl_pool *pool)
{
    elementwise_job job = elementwise_unpack(launch);
    sl_pool_run(pool, mul_tile, &job, tile_count(job.count, TILE_ELEMENTS));
}

static void scale_run(const sl_launch *launch, sl_pool *pool)
{
    elementwise_job job = elementwise_unpack(launch);
    job.value = sl_scale_attrs(&launch->attrs)->value;
    sl_pool_run(pool, scale_tile, &job, tile_count(job.count, TILE_ELEMENTS));
}

static void cast_run(const sl_launch *launch, sl_pool *pool)
{
    elementwise_job job = elementwise_unpack(launch);
    sl_pool_run(pool, cast_tile, &job, tile_count(job.count, TILE_ELEMENTS));
}

static void dropout_run(const sl_launch *launch, sl_pool *pool)
{
    elementwise_job job = elementwise_unpack(launch);
    job.probability = sl_dropout_attrs(&launch->attrs)->probability;
    job.value = 1 / (1 - job.probability);
    job.step = launch->in[1].data;
    job.stream = sl_dropout_attrs(&launch->attrs)->stream;
    job.first = sl_dropout_attrs(&launch->attrs)->first_row * launch->in[0].type.dim[1];
    int64_t lead = job.first % SL_DROPOUT_BLOCK;
    sl_pool_run(pool, dropout_tile, &job, tile_count(job.count + lead, TILE_ELEMENTS));
}

SL_CPU_KERNEL(add, SL_OP_ADD, .run = add_run);
SL_CPU_KERNEL(mul, SL_OP_MUL, .run = mul_run);
SL_CPU_KERNEL(scale, SL_OP_SCALE, .run = scale_run);
SL_CPU_KERNEL(cast, SL_OP_CAST, .run = cast_run);
SL_CPU_KERNEL(dropout, SL_OP_DROPOUT, .run = dropout_run);
