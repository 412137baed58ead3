/* Rotary embedding by a table (ops/rope_table.c): a pair of vectors, half a block apart, at a time. */
#include "ops/rope_table.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

typedef struct rope_job {
    const void *from[2]; /* forward: qkv; backward: dq and dkv */
    void *to[2];         /* forward: q and kv; backward: dqkv */
    const float *table;
    int64_t rows, table_rows, dim, block, q_width, kv_width;
    bool bf16, kv_bf16; /* kv_bf16: of dkv */
} rope_job;

/* Elements j and j + half of a block whose cosines are at c and whose sines are at s. */
SL_INLINE void turn_step(const void *x, int64_t from, bool x_bf16, void *y, int64_t to, bool y_bf16, const float *c,
                         const float *s, int64_t half, int lanes, bool backward)
{
    const vf a = vf_get(x, from, lanes, x_bf16), b = vf_get(x, from + half, lanes, x_bf16);
    const vf sine_a = vf_load(s, lanes), sine_b = vf_load(s + half, lanes);
    const vf first = vf_mul(a, vf_load(c, lanes)), second = vf_mul(b, vf_load(c + half, lanes));
    vf_put(y, to, backward ? vf_fma(b, sine_b, first) : vf_fnma(b, sine_a, first), lanes, y_bf16);
    vf_put(y, to + half, backward ? vf_fnma(a, sine_a, second) : vf_fma(a, sine_b, second), lanes, y_bf16);
}

/* Heads of `width` elements in all, turned by the table's row `c`. */
SL_INLINE void turn_heads(const rope_job *job, const void *x, int64_t from, bool x_bf16, void *y, int64_t to,
                          bool y_bf16, int64_t width, const float *c, bool backward)
{
    const int64_t half = job->block / 2;
    for (int64_t first = 0; first < width; first += job->block) {
        const float *cosines = c + first % job->dim, *sines = cosines + job->dim;
        for (int64_t j = 0; j < half; j += VF_LANES)
            turn_step(x, from + first + j, x_bf16, y, to + first + j, y_bf16, cosines + j, sines + j, half,
                      (int) SL_MIN(VF_LANES, half - j), backward);
    }
}

/* V: a copy, or a change of dtype. */
SL_INLINE void copy(const void *x, int64_t from, bool x_bf16, void *y, int64_t to, bool y_bf16, int64_t count)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, count - i);
        vf_put(y, to + i, vf_get(x, from + i, lanes, x_bf16), lanes, y_bf16);
    }
}

SL_INLINE void rope_rows(const rope_job *job, int64_t tile, bool bf16, bool kv_bf16, bool backward)
{
    const int64_t q_width = job->q_width, kv_width = job->kv_width, k_width = kv_width / 2, width = q_width + kv_width;
    const int64_t rows = tile_rows(width);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++) {
        const int64_t all = row * width, q = row * q_width, kv = row * kv_width;
        const float *c = job->table + row % job->table_rows * 2 * job->dim;
        if (backward) {
            turn_heads(job, job->from[0], q, bf16, job->to[0], all, bf16, q_width, c, true);
            turn_heads(job, job->from[1], kv, kv_bf16, job->to[0], all + q_width, bf16, k_width, c, true);
            copy(job->from[1], kv + k_width, kv_bf16, job->to[0], all + q_width + k_width, bf16, k_width);
        } else {
            turn_heads(job, job->from[0], all, bf16, job->to[0], q, bf16, q_width, c, false);
            turn_heads(job, job->from[0], all + q_width, bf16, job->to[1], kv, bf16, k_width, c, false);
            copy(job->from[0], all + q_width + k_width, bf16, job->to[1], kv + k_width, bf16, k_width);
        }
    }
}

SL_CPU_TILES(rope_tile, rope_job, rope_rows(job, tile, bf16, bf16, false))

static void rope_bwd_tile(void *context, int64_t tile, int thread)
{
    const rope_job *job = context;
    (void) thread;
    if (job->bf16 && job->kv_bf16)
        rope_rows(job, tile, true, true, true);
    else if (job->bf16)
        rope_rows(job, tile, true, false, true);
    else
        rope_rows(job, tile, false, false, true);
}

static rope_job unpack(const sl_launch *launch, const sl_operand *table)
{
    const struct sl_rope_table_attrs *a = sl_rope_table_attrs(&launch->attrs);
    return (rope_job){
        .table = table->data,
        .table_rows = table->type.dim[0],
        .rows = launch->in[0].type.dim[0],
        .dim = a->head_dim,
        .block = a->block,
        .q_width = (int64_t) a->heads * a->head_dim,
        .kv_width = 2 * (int64_t) a->kv_heads * a->head_dim,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
}

static void rope_table_run(const sl_launch *launch, sl_pool *pool)
{
    rope_job job = unpack(launch, &launch->in[1]);
    job.from[0] = launch->in[0].data;
    job.to[0] = launch->out[0].data;
    job.to[1] = launch->out[1].data;
    sl_pool_run(pool, rope_tile, &job, tile_count(job.rows, tile_rows(job.q_width + job.kv_width)));
}

static void rope_table_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    rope_job job = unpack(launch, &launch->in[2]);
    job.from[0] = launch->in[0].data;
    job.from[1] = launch->in[1].data;
    job.kv_bf16 = launch->in[1].type.dtype == SL_BF16;
    job.to[0] = launch->out[0].data;
    sl_pool_run(pool, rope_bwd_tile, &job, tile_count(job.rows, tile_rows(job.q_width + job.kv_width)));
}

SL_CPU_KERNEL(rope_table, SL_OP_ROPE_TABLE, .run = rope_table_run);
SL_CPU_KERNEL(rope_table_bwd, SL_OP_ROPE_TABLE_BWD, .run = rope_table_bwd_run);
