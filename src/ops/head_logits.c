/*
 * The logits of the last token: what generation samples from.
 *
 *   x[n, d]   W[V, d]   positions[n]   ->   logits[V] f32 = x[count - 1] W^T,   then cap * tanh(logits / cap) where there is a soft cap
 *
 * `count` rows are tokens (ops/cached_attention.h). A chunk of a prompt needs one row of logits, so that they never exist for all of its
 * tokens, and they stay in f32 whatever the weights' dtype: sampling compares them.
 */
#include "ops/head_logits.h"

#include <math.h>

#include "ops/cached_attention.h"
#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static sl_status head_logits_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    if (!(sl_head_logits_attrs(attrs)->cap >= 0))
        return sl_fail(SL_E_INTERNAL, "head_logits: the soft cap must be positive, or 0 for none, but is %g",
                       (double) sl_head_logits_attrs(attrs)->cap);
    SL_TRY(sl_expect_float("head_logits", "x", &in[0], 2));
    SL_TRY(sl_expect_float("head_logits", "W", &in[1], 2));
    SL_TRY(sl_expect("head_logits", "W", &in[1], sl_type_2d(in[0].dtype, in[1].dim[0], in[0].dim[1])));
    SL_TRY(sl_expect("head_logits", "positions", &in[2], sl_type_1d(SL_I32, in[0].dim[0])));
    out[0] = sl_type_1d(SL_F32, in[1].dim[0]);
    return SL_OK;
}

/* Of x one row is read. */
static void head_logits_work(const sl_launch *launch, sl_work *work)
{
    const sl_type *w = &launch->in[1].type;
    sl_work_flops(launch, 2 * (double) sl_type_count(w), work);
    work->read_bytes = (double) sl_type_bytes(w) + (double) w->dim[1] * (double) sl_dtype_bytes(w->dtype);
}

static void head_logits_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *w = &launch->in[1];
    const int64_t n = x->type.dim[0], d = x->type.dim[1], row = sl_cached_count(launch->in[2].data, n) - 1;
    const double cap = sl_head_logits_attrs(&launch->attrs)->cap;
    for (int64_t v = 0; v < w->type.dim[0]; v++) {
        double sum = 0;
        for (int64_t c = 0; c < d; c++)
            sum += (double) sl_get(x, row * d + c) * sl_get(w, v * d + c);
        sl_put_out(launch, 0, v, cap > 0 ? cap * tanh(sum / cap) : sum);
    }
}

/* A case's `segments` are the rows that are tokens (0: all). */
static void head_logits_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const int64_t n = launch->in[2].type.dim[0];
    const int64_t count = how->op_case && how->op_case->segments ? how->op_case->segments : n;
    for (int64_t i = 0; i < n; i++)
        ((int32_t *) launch->in[2].data)[i] = (int32_t) (11 + SL_MIN(i, count - 1));
}

#define CASE(label, t, n, d, words, tokens, ...)                                                         \
    {                                                                                                    \
        .name = label, .in = {SL_T2(t, n, d), SL_T2(t, words, d), SL_T1(SL_I32, n)}, .segments = tokens, \
        .attrs = SL_ATTRS(head_logits, __VA_ARGS__)                                                      \
    }
static const sl_op_case head_logits_cases[] = {
    CASE("f32 one token", SL_F32, 1, 64, 300, 0, .cap = 0),
    CASE("f32 odd", SL_F32, 1, 37, 131, 0, .cap = 0),
    CASE("f32 the last of many", SL_F32, 20, 96, 259, 0, .cap = 0),
    CASE("f32 the fifth of many, cap", SL_F32, 20, 96, 259, 5, .cap = 30),
    CASE("bf16 one token", SL_BF16, 1, 256, 1031, 0, .cap = 0),
    CASE("bf16 odd, cap", SL_BF16, 4, 75, 257, 3, .cap = 15),
};
#undef CASE

static sl_status head_logits_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    return sl_shapes_add(shapes, "",
                         &(const sl_op_case){.in = {sl_shapes_matrix(shapes, 1, s->d),
                                                    sl_shapes_matrix(shapes, s->v, s->d), sl_type_1d(SL_I32, 1)}});
}

const sl_op_def sl_op_head_logits = {
    SL_OP_PARTS(head_logits),
    .category = SL_CAT_DOT_PRODUCT,
    .n_in = 3,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_head_logits_attrs),
    .work = head_logits_work,
    .tolerance = {2e-6, 2e-6},
    .yields_result = true,
    .fill = head_logits_fill,
    .shapes = head_logits_shapes,
};
