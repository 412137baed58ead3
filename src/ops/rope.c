/*
 * Rotary position embedding, and the split of the fused projection into queries and context.
 *
 *   qkv row:  [ q: heads * e | k: kv_heads * e | v: kv_heads * e ]   ->   q row: [ q rotated ]   kv row: [ k rotated | v ]
 *
 * Pair j of a head turns by position * theta^(-2j/r), where r = e, or fewer (`rotary`): elements from r on stay as they are. The two
 * styles differ in which elements are a pair:
 *   HALF         (x[j], x[j + r/2])    Hugging Face's Llama
 *   INTERLEAVED  (x[2j], x[2j + 1])    Meta's original
 *   NONE         no rotation, only the split (GPT-2)
 * What models do to the frequencies for long sequences is in ops/rope.h. YaRN and LongRoPE also multiply what is turned by a
 * magnitude: scores then grow by its square.
 *
 * K and V of a token lie in one row, so that the context of a long sequence is one object that is moved in whole rows.
 * The backward is the transpose: the same rotation by the negative angle, with the same magnitude.
 */
#include "ops/rope.h"

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static sl_status check_scaling(const char *op, const struct sl_rope_attrs *a, int rotary)
{
    const int32_t s = a->scaling;
    bool scaled = a->factor != 0 && a->factor != 1, blends = s == SL_ROPE_LLAMA3 || s == SL_ROPE_YARN;
    if (s < SL_ROPE_LLAMA3 || s > SL_ROPE_LONG || !(a->magnitude >= 0 && isfinite(a->magnitude)))
        return sl_fail(SL_E_INTERNAL, "%s: unknown scaling %d, or a magnitude of %g", op, s, (double) a->magnitude);
    if (scaled && blends && !(a->factor > 0 && a->high_freq_factor > a->low_freq_factor && a->original_context > 0))
        return sl_fail(SL_E_INTERNAL,
                       "%s: scaling needs factor > 0, high_freq_factor > low_freq_factor and original_context > 0", op);
    if (scaled && s == SL_ROPE_YARN && !(a->low_freq_factor > 0 && a->theta > 1))
        return sl_fail(SL_E_INTERNAL, "%s: yarn needs low_freq_factor > 0 and theta > 1", op);
    if ((s == SL_ROPE_DYNAMIC && scaled && rotary < 4) || (s >= SL_ROPE_LINEAR && scaled && !(a->factor > 0)) ||
        ((s == SL_ROPE_DYNAMIC || s == SL_ROPE_LONG) && a->original_context < 1))
        return sl_fail(SL_E_INTERNAL, "%s: scaling needs factor > 0, original_context > 0 and several pairs", op);
    return SL_OK;
}

static sl_status check_attrs(const char *op, const sl_attrs *attrs)
{
    const struct sl_rope_attrs *a = sl_rope_attrs(attrs);
    const int rotary = sl_rope_rotary(attrs);
    if (a->heads < 1 || a->kv_heads < 1 || a->head_dim < 1)
        return sl_fail(SL_E_INTERNAL, "%s: heads, kv_heads and head_dim must be positive but are %d, %d, %d", op,
                       a->heads, a->kv_heads, a->head_dim);
    if (a->style != SL_ROPE_NONE && a->style != SL_ROPE_HALF && a->style != SL_ROPE_INTERLEAVED)
        return sl_fail(SL_E_INTERNAL, "%s: unknown style %d", op, a->style);
    if (a->style != SL_ROPE_NONE && (rotary % 2 || rotary < 0 || rotary > a->head_dim || !(a->theta > 0)))
        return sl_fail(
            SL_E_INTERNAL,
            "%s: needs an even number of elements to turn, at most head_dim %d, and a positive theta but has "
            "%d and %g",
            op, a->head_dim, rotary, (double) a->theta);
    return check_scaling(op, a, rotary);
}

static sl_status rope_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check_attrs("rope", attrs));
    SL_TRY(sl_expect_float("rope", "qkv", &in[0], 2));
    int64_t e = sl_rope_attrs(attrs)->head_dim, n = in[0].dim[0];
    int64_t q = sl_rope_attrs(attrs)->heads * e, kv = 2 * sl_rope_attrs(attrs)->kv_heads * e;
    SL_TRY(sl_expect("rope", "qkv", &in[0], sl_type_2d(in[0].dtype, n, q + kv)));
    SL_TRY(sl_expect("rope", "positions", &in[1], sl_type_1d(SL_I32, n)));
    out[0] = sl_type_2d(in[0].dtype, n, q);
    out[1] = sl_type_2d(in[0].dtype, n, kv);
    return SL_OK;
}

/* One head of one token: y[0..e) = x[0..e) turned by direction * position. */
static void rotate(const sl_launch *launch, const sl_operand *x, int64_t from, const sl_operand *y, int64_t to,
                   int32_t position, double direction)
{
    const sl_attrs *attrs = &launch->attrs;
    const double magnitude = sl_rope_magnitude(attrs);
    int64_t turned = sl_rope_attrs(attrs)->style == SL_ROPE_NONE ? 0 : sl_rope_rotary(attrs);
    bool half = sl_rope_attrs(attrs)->style == SL_ROPE_HALF;
    for (int64_t c = turned; c < sl_rope_attrs(attrs)->head_dim; c++)
        sl_put(y, to + c, sl_get(x, from + c));
    for (int64_t j = 0; j < turned / 2; j++) {
        int64_t first = half ? j : 2 * j, second = half ? j + turned / 2 : 2 * j + 1;
        double angle = direction * position * sl_rope_frequency(attrs, launch->constants, j);
        double a = magnitude * sl_get(x, from + first), b = magnitude * sl_get(x, from + second);
        sl_put(y, to + first, (float) (a * cos(angle) - b * sin(angle)));
        sl_put(y, to + second, (float) (b * cos(angle) + a * sin(angle)));
    }
}

static void rope_reference(const sl_launch *launch)
{
    const sl_operand *qkv = &launch->in[0], *q = &launch->out[0], *kv = &launch->out[1];
    int64_t n = qkv->type.dim[0], heads = sl_rope_attrs(&launch->attrs)->heads,
            kv_heads = sl_rope_attrs(&launch->attrs)->kv_heads;
    int64_t e = sl_rope_attrs(&launch->attrs)->head_dim, q_width = heads * e, kv_width = 2 * kv_heads * e;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i * (q_width + kv_width);
        int32_t position = sl_get_i32(&launch->in[1], i);
        for (int64_t h = 0; h < heads; h++)
            rotate(launch, qkv, row + h * e, q, i * q_width + h * e, position, 1);
        for (int64_t h = 0; h < kv_heads; h++)
            rotate(launch, qkv, row + q_width + h * e, kv, i * kv_width + h * e, position, 1);
        for (int64_t c = kv_width / 2; c < kv_width; c++)
            sl_put(kv, i * kv_width + c, sl_get(qkv, row + q_width + c));
    }
}

static sl_status rope_gradient(sl_gradient *gradient)
{
    if (!gradient->need[0] || (gradient->d_out[0] == SL_NO_VALUE && gradient->d_out[1] == SL_NO_VALUE))
        return SL_OK;
    if (gradient->d_out[0] == SL_NO_VALUE || gradient->d_out[1] == SL_NO_VALUE)
        return sl_fail(SL_E_INTERNAL, "rope: its gradient needs those of both q and kv; use both outputs in the model");
    sl_value in[] = {gradient->d_out[0], gradient->d_out[1], gradient->in[1]};
    return gradient->emit(gradient, SL_OP_ROPE_BWD, gradient->attrs, in, 3, (const int[]){0}, 1);
}

/* Which frequencies a model takes depends on the length of its sequences, not on that of a chunk. */
static void rope_place(sl_attrs *attrs, const sl_chunk_position *place)
{
    const int32_t scaling = sl_rope_attrs(attrs)->scaling;
    if (scaling == SL_ROPE_DYNAMIC || scaling == SL_ROPE_LONG)
        sl_rope_set(attrs)->seqlen = place->seqlen;
}

static bool rope_splits(const sl_attrs *attrs)
{
    return sl_rope_attrs(attrs)->style == SL_ROPE_NONE;
}

#define LLAMA3 .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192
#define YARN \
    .scaling = SL_ROPE_YARN, .factor = 4, .low_freq_factor = 1, .high_freq_factor = 32, .original_context = 8192
/* Of 8 pairs: short and long. */
static const float long_factors[16] = {1, 1.01f, 1.1f, 1.2f, 1.5f, 2, 3, 4, 1, 1.5f, 2, 4, 8, 16, 30, 64};
#define LONG(length) .scaling = SL_ROPE_LONG, .original_context = 4096, .seqlen = length, .magnitude = 1.19f
#define ATTRS(h, g, e, pairs, ...) \
    .attrs = SL_ATTRS(rope, .heads = h, .kv_heads = g, .head_dim = e, .style = SL_ROPE_##pairs, .theta = __VA_ARGS__)
#define CASE(label, operands, range, ...)                                       \
    {                                                                           \
        .name = label, .in = operands, .index_range = range, ATTRS(__VA_ARGS__) \
    }
#define LONG_CASE(label, operands, range, ...)                                                             \
    {                                                                                                      \
        .name = label, .in = operands, .index_range = range, .constants = long_factors, ATTRS(__VA_ARGS__) \
    }
#define FWD(t, n, h, g, e)                             \
    {                                                  \
        SL_T2(t, n, (h + 2 * g) * e), SL_T1(SL_I32, n) \
    }
static const sl_op_case rope_cases[] = {
    CASE("f32 half", FWD(SL_F32, 7, 4, 2, 16), 100, 4, 2, 16, HALF, 10000),
    CASE("f32 interleaved", FWD(SL_F32, 7, 4, 2, 16), 100, 4, 2, 16, INTERLEAVED, 10000),
    CASE("f32 none, odd head", FWD(SL_F32, 5, 3, 1, 7), 100, 3, 1, 7, NONE, 0),
    CASE("f32 half, tail", FWD(SL_F32, 3, 3, 3, 22), 5000, 3, 3, 22, HALF, 10000),
    CASE("f32 interleaved, tail", FWD(SL_F32, 1, 3, 3, 22), 5000, 3, 3, 22, INTERLEAVED, 10000),
    CASE("f32 half, llama3, a million positions", FWD(SL_F32, 40, 2, 1, 128), 1048576, 2, 1, 128, HALF, 500000, LLAMA3),
    CASE("bf16 half, llama3", FWD(SL_BF16, 40, 8, 2, 64), 131072, 8, 2, 64, HALF, 500000, LLAMA3),
    CASE("bf16 interleaved", FWD(SL_BF16, 40, 8, 2, 64), 8192, 8, 2, 64, INTERLEAVED, 500000),
    CASE("bf16 none", FWD(SL_BF16, 9, 2, 2, 24), 100, 2, 2, 24, NONE, 0),
    CASE("f32 half, a quarter", FWD(SL_F32, 9, 4, 2, 32), 100, 4, 2, 32, HALF, 10000, .rotary = 8),
    CASE("f32 interleaved, part of an odd head", FWD(SL_F32, 7, 3, 1, 21), 100, 3, 1, 21, INTERLEAVED, 10000,
         .rotary = 6),
    CASE("bf16 half, half of it", FWD(SL_BF16, 40, 4, 2, 64), 8192, 4, 2, 64, HALF, 10000, .rotary = 32),
    CASE("bf16 half, tail of it", FWD(SL_BF16, 5, 2, 1, 80), 8192, 2, 1, 80, HALF, 10000, .rotary = 20),
    CASE("f32 half, linear", FWD(SL_F32, 9, 4, 2, 16), 8192, 4, 2, 16, HALF, 10000, .scaling = SL_ROPE_LINEAR,
         .factor = 8),
    CASE("bf16 half, dynamic", FWD(SL_BF16, 9, 4, 2, 32), 8192, 4, 2, 32, HALF, 10000, .scaling = SL_ROPE_DYNAMIC,
         .factor = 2, .original_context = 2048, .seqlen = 8192),
    CASE("f32 half, yarn", FWD(SL_F32, 9, 4, 2, 128), 32768, 4, 2, 128, HALF, 10000, YARN, .magnitude = 1.139f),
    CASE("bf16 interleaved, yarn", FWD(SL_BF16, 9, 2, 1, 64), 32768, 2, 1, 64, INTERLEAVED, 10000, YARN,
         .exact_ramp = 1, .magnitude = 1.139f),
    LONG_CASE("f32 half, long, short sequences", FWD(SL_F32, 9, 4, 2, 16), 4096, 4, 2, 16, HALF, 10000, LONG(4096)),
    LONG_CASE("bf16 half, long", FWD(SL_BF16, 9, 4, 2, 24), 131072, 4, 2, 24, HALF, 10000, .rotary = 16, LONG(131072)),
};
#undef FWD

/* Random positions where a case gives a range; else those of one sequence, as in training. */
static void fill_positions(const sl_operand *x, const sl_fill_rule *how, int operand)
{
    if (how->op_case && how->op_case->index_range > 0)
        sl_fill_index(x, how->seed, operand, how->op_case->index_range);
    else
        for (int64_t i = 0; i < x->type.dim[0]; i++)
            ((int32_t *) x->data)[i] = (int32_t) i;
}

static void rope_fill(sl_launch *launch, const sl_fill_rule *how)
{
    fill_positions(&launch->in[1], how, 1);
}

/* Attributes at a model's sizes. */
static sl_attrs attrs_of(const sl_op_sizes *s)
{
    sl_attrs attrs = {{0}};
    *sl_rope_set(&attrs) = *SL_ATTRS(rope, .heads = (int32_t) s->h, .kv_heads = (int32_t) s->g,
                                     .head_dim = (int32_t) s->e, .style = SL_ROPE_HALF, .theta = 10000);
    return attrs;
}

static sl_status rope_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_attrs attrs = attrs_of(s);
    const sl_type qkv = sl_shapes_matrix(shapes, s->n, (s->h + 2 * s->g) * s->e);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {qkv, sl_type_1d(SL_I32, s->n)}, .attrs = &attrs});
}

const sl_op_def sl_op_rope = {
    SL_OP_PARTS(rope),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_rope_attrs),
    .work = sl_work_bytes,
    .gradient = rope_gradient,
    .splits = rope_splits,
    .tolerance = {1e-6, SL_BF16_ULP},
    .makes_context = 1u << 1,
    .place = rope_place,
    .fill = rope_fill,
    .shapes = rope_shapes,
};

static sl_status rope_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check_attrs("rope_bwd", attrs));
    SL_TRY(sl_expect_float("rope_bwd", "dq", &in[0], 2));
    int64_t e = sl_rope_attrs(attrs)->head_dim, n = in[0].dim[0];
    int64_t q = sl_rope_attrs(attrs)->heads * e, kv = 2 * sl_rope_attrs(attrs)->kv_heads * e;
    SL_TRY(sl_expect("rope_bwd", "dq", &in[0], sl_type_2d(in[0].dtype, n, q)));
    SL_TRY(sl_expect("rope_bwd", "dkv", &in[1], sl_type_2d(in[1].dtype == SL_F32 ? SL_F32 : in[0].dtype, n, kv)));
    SL_TRY(sl_expect("rope_bwd", "positions", &in[2], sl_type_1d(SL_I32, n)));
    out[0] = sl_type_2d(in[0].dtype, n, q + kv);
    return SL_OK;
}

static void rope_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dq = &launch->in[0], *dkv = &launch->in[1], *dqkv = &launch->out[0];
    int64_t n = dq->type.dim[0], heads = sl_rope_attrs(&launch->attrs)->heads,
            kv_heads = sl_rope_attrs(&launch->attrs)->kv_heads;
    int64_t e = sl_rope_attrs(&launch->attrs)->head_dim, q_width = heads * e, kv_width = 2 * kv_heads * e;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i * (q_width + kv_width);
        int32_t position = sl_get_i32(&launch->in[2], i);
        for (int64_t h = 0; h < heads; h++)
            rotate(launch, dq, i * q_width + h * e, dqkv, row + h * e, position, -1);
        for (int64_t h = 0; h < kv_heads; h++)
            rotate(launch, dkv, i * kv_width + h * e, dqkv, row + q_width + h * e, position, -1);
        for (int64_t c = kv_width / 2; c < kv_width; c++)
            sl_put(dqkv, row + q_width + c, sl_get(dkv, i * kv_width + c));
    }
}

#define BWD(t, tkv, n, h, g, e)                                                \
    {                                                                          \
        SL_T2(t, n, (h) * (e)), SL_T2(tkv, n, 2 * (g) * (e)), SL_T1(SL_I32, n) \
    }
static const sl_op_case rope_bwd_cases[] = {
    CASE("f32 half", BWD(SL_F32, SL_F32, 7, 4, 2, 16), 100, 4, 2, 16, HALF, 10000),
    CASE("f32 interleaved, tail", BWD(SL_F32, SL_F32, 3, 3, 3, 22), 5000, 3, 3, 22, INTERLEAVED, 10000),
    CASE("f32 none, odd head", BWD(SL_F32, SL_F32, 5, 3, 1, 7), 100, 3, 1, 7, NONE, 0),
    CASE("bf16 half, llama3", BWD(SL_BF16, SL_BF16, 40, 8, 2, 64), 131072, 8, 2, 64, HALF, 500000, LLAMA3),
    CASE("bf16 half, dkv f32", BWD(SL_BF16, SL_F32, 33, 4, 2, 32), 131072, 4, 2, 32, HALF, 10000),
    CASE("bf16 interleaved, dkv f32, tail", BWD(SL_BF16, SL_F32, 5, 4, 2, 18), 8192, 4, 2, 18, INTERLEAVED, 10000),
    CASE("bf16 none, dkv f32", BWD(SL_BF16, SL_F32, 9, 2, 2, 24), 100, 2, 2, 24, NONE, 0),
    CASE("f32 half, a quarter", BWD(SL_F32, SL_F32, 9, 4, 2, 32), 100, 4, 2, 32, HALF, 10000, .rotary = 8),
    CASE("f32 interleaved, part of an odd head", BWD(SL_F32, SL_F32, 7, 3, 1, 21), 100, 3, 1, 21, INTERLEAVED, 10000,
         .rotary = 6),
    CASE("bf16 half, half of it, dkv f32", BWD(SL_BF16, SL_F32, 40, 4, 2, 64), 8192, 4, 2, 64, HALF, 10000,
         .rotary = 32),
    CASE("bf16 half, tail of it", BWD(SL_BF16, SL_BF16, 5, 2, 1, 80), 8192, 2, 1, 80, HALF, 10000, .rotary = 20),
    CASE("f32 half, yarn", BWD(SL_F32, SL_F32, 9, 4, 2, 128), 32768, 4, 2, 128, HALF, 10000, YARN, .magnitude = 1.139f),
    LONG_CASE("f32 half, long, short sequences", BWD(SL_F32, SL_F32, 9, 4, 2, 16), 4096, 4, 2, 16, HALF, 10000,
              LONG(4096)),
    LONG_CASE("bf16 half, long, dkv f32", BWD(SL_BF16, SL_F32, 9, 4, 2, 24), 131072, 4, 2, 24, HALF, 10000,
              .rotary = 16, LONG(131072)),
};
#undef BWD
#undef CASE
#undef LONG_CASE
#undef ATTRS
#undef LLAMA3
#undef YARN
#undef LONG

static void rope_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    fill_positions(&launch->in[2], how, 2);
}

static sl_status rope_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_attrs attrs = attrs_of(s);
    const sl_type q = sl_shapes_matrix(shapes, s->n, s->h * s->e), kv = sl_shapes_matrix(shapes, s->n, 2 * s->g * s->e);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {q, kv, sl_type_1d(SL_I32, s->n)}, .attrs = &attrs});
}

const sl_op_def sl_op_rope_bwd = {
    SL_OP_PARTS(rope_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 3,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_rope_attrs),
    .work = sl_work_bytes,
    .tolerance = {1e-6, SL_BF16_ULP},
    .place = rope_place,
    .fill = rope_bwd_fill,
    .shapes = rope_bwd_shapes,
};
