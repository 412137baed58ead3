/*
 * AdamW with moments of 8 bits (optim/codes.h): the arithmetic of AdamW (optim/element.h) on decoded moments, which are encoded again with
 * the scale of the block's new values. It takes 2.1 bytes of states for a parameter where AdamW takes 4 (bf16) or 8 (f32).
 *
 *     m, v = decode(block)      AdamW      scale = largest of the block      block = encode(m, v)
 *
 * A block in which a gradient or its square is not finite stays as it is, with its parameters. Codes behind the last element are zeros.
 */
#include "optim/adamw.h"
#include "optim/codes.h"

static sl_status adamw8bit_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_update_infer("adamw8bit", sl_adamw_attrs(attrs)->decayed, in, out, 2));
    out[1] = out[2] = sl_codes_type(in[0].dim[0]);
    return SL_OK;
}

/* What a block becomes. */
typedef struct block {
    float p[SL_CODES_BLOCK], m[SL_CODES_BLOCK], root[SL_CODES_BLOCK];
    float m_scale, root_scale;
} block;

/* False: a gradient, or its square, is not finite. */
static bool update_block(const sl_launch *launch, const sl_adamw_scalars *s, int64_t first, int64_t count,
                         const uint8_t *m_codes, const uint8_t *v_codes, block *b)
{
    float m_scale, root_scale, m_largest = 0, root_largest = 0;
    memset(b, 0, sizeof *b); /* elements beyond the last are zeros */
    memcpy(&m_scale, m_codes, 4);
    memcpy(&root_scale, v_codes, 4);
    for (int64_t j = 0; j < count; j++) {
        const int64_t i = first + j;
        const float g = sl_get(&launch->in[0], i), root = sl_codes_second(v_codes[4 + j], root_scale);
        const float decay = i < sl_adamw_attrs(&launch->attrs)->decayed ? s->decay : 1;
        float m = sl_codes_first(m_codes[4 + j], m_scale), v = root * root;
        b->p[j] = sl_update_get_parameter(launch, &launch->out[3], i);
        sl_adamw_element(s, decay, g, &b->p[j], &m, &v);
        if (!isfinite(g * s->factor) || !isfinite(v))
            return false;
        b->m[j] = m;
        b->root[j] = sqrtf(v);
        m_largest = fmaxf(m_largest, fabsf(m));
        root_largest = fmaxf(root_largest, b->root[j]);
    }
    b->m_scale = sl_codes_scale(m_largest, SL_FIRST_LEVELS);
    b->root_scale = sl_codes_scale(root_largest, SL_SECOND_LEVELS);
    return true;
}

static void adamw8bit_reference(const sl_launch *launch)
{
    const struct sl_adamw_attrs *attrs = sl_adamw_attrs(&launch->attrs);
    const sl_step_params *step = launch->in[1].data;
    const float *gate = launch->in[2].data;
    const sl_update_rounding rounding = {attrs->stochastic != 0, attrs->stream, 0};
    const int64_t n = sl_type_count(&launch->in[0].type);
    if (sl_gate_skips(gate))
        return;
    const sl_adamw_scalars s = sl_adamw_prepare(&launch->attrs, step, gate);
    for (int64_t first = 0; first < n; first += SL_CODES_BLOCK) {
        const int64_t count = SL_MIN(n - first, (int64_t) SL_CODES_BLOCK);
        uint8_t *m_codes = (uint8_t *) launch->out[1].data + first / SL_CODES_BLOCK * SL_CODES_BYTES;
        uint8_t *v_codes = (uint8_t *) launch->out[2].data + first / SL_CODES_BLOCK * SL_CODES_BYTES;
        block b;
        if (!update_block(launch, &s, first, count, m_codes, v_codes, &b))
            continue;
        memcpy(m_codes, &b.m_scale, 4);
        memcpy(v_codes, &b.root_scale, 4);
        for (int64_t j = 0; j < SL_CODES_BLOCK; j++) {
            const uint32_t m_noise = sl_rounding_noise(step, attrs->stream, 1, first + j);
            const uint32_t v_noise = sl_rounding_noise(step, attrs->stream, 2, first + j);
            m_codes[4 + j] = sl_codes_put_first(b.m[j], b.m_scale, m_noise);
            v_codes[4 + j] = sl_codes_put_second(b.root[j], b.root_scale, v_noise);
        }
        for (int64_t j = 0; j < count; j++)
            sl_update_put_parameter(launch, rounding, &launch->out[3], first + j, b.p[j]);
    }
}

static const sl_op_case adamw8bit_cases[] = {SL_UPDATE_CASES(SL_ADAMW_CASE)};

const sl_op_def sl_op_adamw8bit = {
    SL_OP_PARTS(adamw8bit), SL_UPDATE_PARTS(2),  .attrs_bytes = sizeof(struct sl_adamw_attrs),
    .work = sl_work_bytes,  .tolerance = {0, 0}, /* bit for bit */
    SL_ADAMW_COSTS,
};

const sl_optimizer_def sl_optimizer_adamw8bit = {
    .name = "adamw8bit",
    .help = "AdamW with moments of 8 bits",
    .op = SL_OP_ADAMW8BIT,
    .n_states = 2,
    .codes = true,
    SL_ADAMW_OPTIONS,
};
