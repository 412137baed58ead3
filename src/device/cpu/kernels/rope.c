/*
 * Rotary embedding. A token's sines and cosines are computed once per row, in a table of the thread, for all heads:
 *     HALF          y[j] = x[j] c[j] - x[j+h] s[j]      y[j+h] = x[j+h] c[j] + x[j] s[j]      h = r/2
 *     INTERLEAVED   y = x * C + swapped(x) * S with each c twice in C, and -s, s in S
 * for the r elements of a head that are turned; what is left of the head is copied.
 * The angle is position * frequency in double (ops/rope.h); reduced there, the rest is f32. A table over all positions
 * was not taken: at 131,072 tokens it is larger than the caches, and a row's table costs less than moving the row.
 */
#include "ops/rope.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd_math.h"

typedef struct rope_job {
    const void *from[2]; /* forward: qkv; backward: dq and dkv */
    void *to[2];         /* forward: q and kv; backward: dqkv */
    const int32_t *positions;
    double *frequencies; /* [padded] */
    float *tables;       /* of each thread: cosines and sines, [2][2 * padded] */
    int64_t rows, dim, rotary, padded, q_width, kv_width;
    int32_t style;
    float magnitude;
    bool bf16, kv_bf16; /* kv_bf16: of dkv */
} rope_job;

/* Room for rotary/2 frequencies in whole vectors. */
static int64_t rope_padded(const sl_attrs *attrs)
{
    return SL_ROUND_UP((int64_t) sl_rope_rotary(attrs) / 2, 16);
}

/* c[0..padded), s[0..padded) for the row; for INTERLEAVED expanded to pairs, the first sine of a pair negative. */
SL_INLINE void rope_table(const rope_job *job, int64_t row, double direction, float *c, float *s)
{
    const double position = direction * job->positions[row];
    const vf magnitude = vf_set1(job->magnitude);
    for (int64_t j = 0; j < job->padded; j += VF_LANES) {
        vf sine, cosine;
        vf_sin_cos(position, job->frequencies + j, &sine, &cosine);
        vf_store(c + j, vf_mul(cosine, magnitude), VF_LANES);
        vf_store(s + j, vf_mul(sine, magnitude), VF_LANES);
    }
    if (job->style == SL_ROPE_INTERLEAVED) {
        for (int64_t j = job->rotary / 2 - 1; j >= 0; j--) {
            c[2 * j + 1] = c[2 * j] = c[j];
            s[2 * j + 1] = s[j];
            s[2 * j] = -s[j];
        }
    }
}

SL_INLINE void rope_half_step(const void *x, int64_t from, bool x_bf16, void *y, int64_t to, bool y_bf16, int64_t half,
                              int64_t j, int lanes, const float *c, const float *s)
{
    vf a = vf_get(x, from + j, lanes, x_bf16), b = vf_get(x, from + half + j, lanes, x_bf16);
    vf cosine = vf_load(c + j, VF_LANES), sine = vf_load(s + j, VF_LANES);
    vf_put(y, to + j, vf_fnma(b, sine, vf_mul(a, cosine)), lanes, y_bf16);
    vf_put(y, to + half + j, vf_fma(a, sine, vf_mul(b, cosine)), lanes, y_bf16);
}

SL_INLINE void rope_pairs_step(const void *x, int64_t from, bool x_bf16, void *y, int64_t to, bool y_bf16, int64_t j,
                               int lanes, const float *c, const float *s)
{
    vf a = vf_get(x, from + j, lanes, x_bf16);
    vf turned = vf_fma(vf_swap_pairs(a), vf_load(s + j, VF_LANES), vf_mul(a, vf_load(c + j, VF_LANES)));
    vf_put(y, to + j, turned, lanes, y_bf16);
}

/* A copy, or a change of dtype. */
SL_INLINE void rope_copy(const void *x, int64_t from, bool x_bf16, void *y, int64_t to, bool y_bf16, int64_t count)
{
    if (x_bf16 == y_bf16) {
        memcpy(element(y, to, y_bf16), element_const(x, from, x_bf16), (size_t) count * (y_bf16 ? 2 : 4));
        return;
    }
    int64_t i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES)
        vf_put(y, to + i, vf_get(x, from + i, VF_LANES, x_bf16), VF_LANES, y_bf16);
    if (i < count)
        vf_put(y, to + i, vf_get(x, from + i, (int) (count - i), x_bf16), (int) (count - i), y_bf16);
}

/* `heads` heads side by side. */
SL_INLINE void rope_heads(const rope_job *job, int32_t style, const void *x, int64_t from, bool x_bf16, void *y,
                          int64_t to, bool y_bf16, int64_t heads, const float *c, const float *s)
{
    const int64_t dim = job->dim, rotary = job->rotary, half = rotary / 2;
    if (style == SL_ROPE_NONE) {
        rope_copy(x, from, x_bf16, y, to, y_bf16, heads * dim);
        return;
    }
    for (int64_t head = 0; head < heads; head++, from += dim, to += dim) {
        int64_t j = 0;
        if (style == SL_ROPE_HALF) {
            for (; j + VF_LANES <= half; j += VF_LANES)
                rope_half_step(x, from, x_bf16, y, to, y_bf16, half, j, VF_LANES, c, s);
            if (j < half)
                rope_half_step(x, from, x_bf16, y, to, y_bf16, half, j, (int) (half - j), c, s);
        } else {
            for (; j + VF_LANES <= rotary; j += VF_LANES)
                rope_pairs_step(x, from, x_bf16, y, to, y_bf16, j, VF_LANES, c, s);
            if (j < rotary)
                rope_pairs_step(x, from, x_bf16, y, to, y_bf16, j, (int) (rotary - j), c, s);
        }
        if (rotary < dim)
            rope_copy(x, from + rotary, x_bf16, y, to + rotary, y_bf16, dim - rotary);
    }
}

SL_INLINE void rope_rows(const rope_job *job, int64_t tile, int thread, bool backward, bool bf16, bool kv_bf16)
{
    const int64_t width = job->q_width + job->kv_width, per_tile = tile_rows(width);
    const int64_t end = SL_MIN((tile + 1) * per_tile, job->rows), k_width = job->kv_width / 2;
    float *c = job->tables + thread * 4 * job->padded, *s = c + 2 * job->padded;
    const int64_t q_heads = job->q_width / job->dim, kv_heads = k_width / job->dim;
    for (int64_t row = tile * per_tile; row < end; row++) {
        const int64_t all = row * width, q = row * job->q_width, kv = row * job->kv_width;
        if (job->style != SL_ROPE_NONE)
            rope_table(job, row, backward ? -1.0 : 1.0, c, s);
        if (backward) {
            rope_heads(job, job->style, job->from[0], q, bf16, job->to[0], all, bf16, q_heads, c, s);
            rope_heads(job, job->style, job->from[1], kv, kv_bf16, job->to[0], all + job->q_width, bf16, kv_heads, c,
                       s);
            rope_heads(job, SL_ROPE_NONE, job->from[1], kv + k_width, kv_bf16, job->to[0], all + job->q_width + k_width,
                       bf16, kv_heads, c, s);
        } else {
            rope_heads(job, job->style, job->from[0], all, bf16, job->to[0], q, bf16, q_heads, c, s);
            rope_heads(job, job->style, job->from[0], all + job->q_width, bf16, job->to[1], kv, bf16, kv_heads, c, s);
            rope_heads(job, SL_ROPE_NONE, job->from[0], all + job->q_width + k_width, bf16, job->to[1], kv + k_width,
                       bf16, kv_heads, c, s);
        }
    }
}

static void rope_tile(void *context, int64_t tile, int thread)
{
    const rope_job *job = context;
    if (job->bf16)
        rope_rows(job, tile, thread, false, true, true);
    else
        rope_rows(job, tile, thread, false, false, false);
}

static void rope_bwd_tile(void *context, int64_t tile, int thread)
{
    const rope_job *job = context;
    if (job->bf16 && job->kv_bf16)
        rope_rows(job, tile, thread, true, true, true);
    else if (job->bf16)
        rope_rows(job, tile, thread, true, true, false);
    else
        rope_rows(job, tile, thread, true, false, false);
}

static size_t rope_workspace(const sl_launch *launch, int threads)
{
    int64_t padded = rope_padded(&launch->attrs);
    return (size_t) padded * sizeof(double) + (size_t) (threads * 4 * padded) * sizeof(float);
}

static rope_job rope_unpack(const sl_launch *launch)
{
    rope_job job = {
        .frequencies = launch->workspace,
        .dim = sl_rope_attrs(&launch->attrs)->head_dim,
        .rotary = sl_rope_rotary(&launch->attrs),
        .padded = rope_padded(&launch->attrs),
        .style = sl_rope_attrs(&launch->attrs)->style,
        .magnitude = sl_rope_magnitude(&launch->attrs),
        .bf16 = launch->in[0].type.dtype == SL_BF16,
        .rows = launch->in[0].type.dim[0],
    };
    job.tables = (float *) (job.frequencies + job.padded);
    job.q_width = sl_rope_attrs(&launch->attrs)->heads * job.dim;
    job.kv_width = 2 * sl_rope_attrs(&launch->attrs)->kv_heads * job.dim;
    for (int64_t j = 0; j < job.padded; j++)
        job.frequencies[j] = job.style != SL_ROPE_NONE && j < job.rotary / 2
                                 ? sl_rope_frequency(&launch->attrs, launch->constants, j)
                                 : 0.0;
    return job;
}

static void rope_run(const sl_launch *launch, sl_pool *pool)
{
    rope_job job = rope_unpack(launch);
    job.from[0] = launch->in[0].data;
    job.positions = launch->in[1].data;
    job.to[0] = launch->out[0].data;
    job.to[1] = launch->out[1].data;
    sl_pool_run(pool, rope_tile, &job, tile_count(job.rows, tile_rows(job.q_width + job.kv_width)));
}

static void rope_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    rope_job job = rope_unpack(launch);
    job.from[0] = launch->in[0].data;
    job.from[1] = launch->in[1].data;
    job.kv_bf16 = launch->in[1].type.dtype == SL_BF16;
    job.positions = launch->in[2].data;
    job.to[0] = launch->out[0].data;
    sl_pool_run(pool, rope_bwd_tile, &job, tile_count(job.rows, tile_rows(job.q_width + job.kv_width)));
}

SL_CPU_KERNEL(rope, SL_OP_ROPE, .workspace = rope_workspace, .run = rope_run);
SL_CPU_KERNEL(rope_bwd, SL_OP_ROPE_BWD, .workspace = rope_workspace, .run = rope_bwd_run);
