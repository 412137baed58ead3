/* AdamW with 8-bit moments: the vector form of optim/adamw8bit.c, operation by operation, so the bits are the reference's. A block is
 * updated in registers, then its largest magnitudes are known and it is encoded. */
#include "core/pool.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/optimizer_job.h"
#include "optim/codes.h"

enum { BLOCK_VECTORS = SL_CODES_BLOCK / VF_LANES };

typedef struct codes_job {
    optimizer_job all;
    uint8_t *codes[2]; /* of the first and second moment */
} codes_job;

typedef struct code_block {
    vf p[BLOCK_VECTORS], m[BLOCK_VECTORS], root[BLOCK_VECTORS];
    float m_scale, root_scale;
} code_block;

SL_INLINE float largest_lane(vf x)
{
    float lanes[VF_LANES], largest = 0;
    vf_store(lanes, x, VF_LANES);
    for (int i = 0; i < VF_LANES; i++)
        largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

SL_INLINE float scale_of(const uint8_t *block)
{
    float scale;
    memcpy(&scale, block, sizeof scale);
    return scale;
}

SL_INLINE vf square_of(vf level, vf scale)
{
    return vf_mul(vf_mul(level, level), scale);
}

SL_INLINE vf decode_first(vi code, vf scale)
{
    const vf magnitude = square_of(vi_to_vf(vi_and(code, vi_set1(127))), scale);
    return vi_as_vf(vi_xor(vf_bits(magnitude), vi_shl(vi_and(code, vi_set1(128)), 24)));
}

/* Elements [first, first + count) of a block that lies inside one block of noise. False: something is not finite. */
SL_INLINE bool update_block(const codes_job *job, optimizer_kind kind, int64_t first, int count, const uint8_t *m_codes,
                            const uint8_t *v_codes, code_block *b)
{
    const optimizer_job *all = &job->all;
    const sl_adamw_scalars *s = &all->adamw;
    const vf m_scale = vf_set1(scale_of(m_codes)), root_scale = vf_set1(scale_of(v_codes));
    const vi limit = optimizer_limit(all, first);
    vf m_largest = vf_zero(), root_largest = vf_zero(), nothing = vf_zero(); /* NaN where a factor is not finite */
    SL_UNROLL
    for (int k = 0; k < BLOCK_VECTORS; k++) {
        const int j = k * VF_LANES, lanes = count - j < VF_LANES ? count - j : VF_LANES;
        b->p[k] = b->m[k] = b->root[k] = vf_zero();
        if (lanes <= 0)
            continue;
        const int64_t i = first + j;
        const vf g = vf_mul(vf_get(all->g, i, lanes, kind.g_bf16), vf_set1(s->factor));
        const vf p = kind.master ? vf_load(all->master + i, lanes) : vf_get(all->p, i, lanes, kind.p_bf16);
        const vf root = square_of(vi_to_vf(vi_load_u8(v_codes + 4 + j)), root_scale);
        vf m = decode_first(vi_load_u8(m_codes + 4 + j), m_scale), v = vf_mul(root, root);
        m = vf_fma(vf_set1(s->beta1), m, vf_mul(vf_set1(s->rest1), g));
        v = vf_fma(vf_set1(s->beta2), v, vf_mul(vf_set1(s->rest2), vf_mul(g, g)));
        const vf ratio = vf_div(m, vf_fma(vf_sqrt(v), vf_set1(s->inv_sqrt_bias2), vf_set1(s->eps)));
        b->p[k] = vf_fnma(vf_set1(s->step_size), ratio, vf_mul(p, optimizer_decay(j, limit, s->decay, 1.0f)));
        if (lanes < VF_LANES) { /* codes behind the last element are zeros */
            const vm inside = vi_gt(vi_set1(lanes), vi_iota());
            m = vf_select(inside, m, vf_zero());
            v = vf_select(inside, v, vf_zero());
        }
        b->m[k] = m;
        b->root[k] = vf_sqrt(v);
        m_largest = vf_max(m_largest, vf_abs(m));
        root_largest = vf_max(root_largest, b->root[k]);
        nothing = vf_fma(g, vf_zero(), vf_fma(v, vf_zero(), nothing));
    }
    b->m_scale = sl_codes_scale(largest_lane(m_largest), SL_FIRST_LEVELS);
    b->root_scale = sl_codes_scale(largest_lane(root_largest), SL_SECOND_LEVELS);
    return vf_sum(nothing) == 0;
}

/* sl_codes_level of a block whose scale is not zero. */
SL_INLINE vi level_of(vf magnitude, vf scale, int levels, bool squared, vi noise)
{
    const vf one = vf_set1(1.0f);
    const vf whole = vi_to_vf(vf_truncate(vf_sqrt(vf_div(magnitude, scale))));
    const vf below = vf_min(whole, vf_set1((float) (levels - 1)));
    vf low = square_of(below, scale), high = square_of(vf_add(below, one), scale), x = magnitude;
    if (squared)
        low = vf_mul(low, low), high = vf_mul(high, high), x = vf_mul(x, x);
    const vm up = vf_lt(vf_mul(vi_to_vf(noise), vf_set1(0x1p-16f)), vf_div(vf_sub(x, low), vf_sub(high, low)));
    vf level = vf_add(below, vf_select(up, one, vf_zero()));
    if (squared)
        level = vf_select(vf_gt(magnitude, vf_zero()), vf_max(level, one), level);
    return vf_truncate(level);
}

SL_INLINE void encode(uint8_t *block, const vf *values, float scale, bool second, noise_words words, int64_t j0)
{
    memcpy(block, &scale, sizeof scale);
    SL_UNROLL
    for (int k = 0; k < BLOCK_VECTORS; k++) {
        const vi noise = rounding_noise(words, j0 + k * VF_LANES);
        vi code = vi_set1(0);
        if (scale > 0)
            code =
                level_of(vf_abs(values[k]), vf_set1(scale), second ? SL_SECOND_LEVELS : SL_FIRST_LEVELS, second, noise);
        if (!second)
            code = vi_or(code, vi_select(vf_lt(values[k], vf_zero()), vi_set1(128), vi_set1(0)));
        vi_store_u8(block + 4 + k * VF_LANES, code);
    }
}

/* Half a block of noise. */
SL_INLINE void run_block(const codes_job *job, optimizer_kind kind, int64_t first, noise_words *words, int64_t j0)
{
    const optimizer_job *all = &job->all;
    const int count = (int) SL_MIN((int64_t) SL_CODES_BLOCK, all->count - first);
    uint8_t *m_codes = job->codes[0] + first / SL_CODES_BLOCK * SL_CODES_BYTES;
    uint8_t *v_codes = job->codes[1] + first / SL_CODES_BLOCK * SL_CODES_BYTES;
    code_block b;
    if (!update_block(job, kind, first, count, m_codes, v_codes, &b))
        return;
    encode(m_codes, b.m, b.m_scale, false, words[1], j0);
    encode(v_codes, b.root, b.root_scale, true, words[2], j0);
    for (int k = 0; k < BLOCK_VECTORS && k * VF_LANES < count; k++) {
        const int64_t j = k * VF_LANES;
        const int lanes = (int) SL_MIN((int64_t) VF_LANES, count - j);
        if (kind.master)
            vf_store(all->master + first + j, b.p[k], lanes);
        optimizer_put(all->p, first + j, b.p[k], lanes, kind.p_bf16, kind.stochastic && !kind.master, words[0], j0 + j);
    }
}

SL_INLINE void run_tile(const codes_job *job, int64_t tile, optimizer_kind kind)
{
    const int64_t end = SL_MIN((tile + 1) * OPTIMIZER_TILE, job->all.count);
    for (int64_t i0 = tile * OPTIMIZER_TILE; i0 < end; i0 += SL_NOISE_BLOCK) {
        noise_words words[SL_NOISE_TENSORS];
        rounding_words(job->all.step, job->all.stream, i0 / SL_NOISE_BLOCK, words, SL_NOISE_TENSORS);
        for (int64_t j0 = 0; j0 < SL_NOISE_BLOCK && i0 + j0 < end; j0 += SL_CODES_BLOCK)
            run_block(job, kind, i0 + j0, words, j0);
    }
}

static void adamw8bit_tile(void *context, int64_t tile, int thread)
{
    const codes_job *job = context;
    const bool bf16 = job->all.g_bf16, master = job->all.master != NULL, stochastic = job->all.stochastic;
    (void) thread;
    if (!bf16)
        run_tile(job, tile, (optimizer_kind){false, false, false, false, false});
    else if (master)
        run_tile(job, tile, (optimizer_kind){true, true, false, true, false});
    else
        run_tile(job, tile, (optimizer_kind){true, true, false, false, stochastic});
}

static void adamw8bit_run(const sl_launch *launch, sl_pool *pool)
{
    const float *gate = launch->in[2].data;
    if (sl_gate_skips(gate))
        return;
    const struct sl_adamw_attrs *attrs = sl_adamw_attrs(&launch->attrs);
    codes_job job = {
        .all = optimizer_job_of(launch, 2, 0, sl_type_count(&launch->in[0].type), attrs->stream, attrs->stochastic),
        .codes = {launch->out[1].data, launch->out[2].data}};
    job.all.adamw = sl_adamw_prepare(&launch->attrs, launch->in[1].data, gate);
    job.all.decayed = attrs->decayed;
    sl_pool_run(pool, adamw8bit_tile, &job, (job.all.count + OPTIMIZER_TILE - 1) / OPTIMIZER_TILE);
}

SL_CPU_KERNEL(adamw8bit, SL_OP_ADAMW8BIT, .run = adamw8bit_run);
