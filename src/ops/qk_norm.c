/*
 * RMSNorm of queries and keys in the rows of a fused projection; v passes through. Two weights, one for queries and one for keys:
 *
 *   qkv row:  [ q: heads * e | k: kv_heads * e | v: kv_heads * e ]   ->   [ q_a rstd_a wq | k_b rstd_b wk | v ]
 *
 * where a and b count heads, and the weights have e elements (Qwen3, Gemma 3); or, with attrs.whole, all query heads are normed as one
 * row and all key heads as another, by weights as long as these (OLMo2). attrs.offset is added to the weights.
 *
 * rstd[n, parts] = 1 / sqrt(mean of the part's squares + eps) is an output, in f32. The backward is RMSNorm's for each
 * part (ops/rmsnorm.c), with dwq and dwk summed over tokens and heads.
 */
#include "ops/qk_norm.h"

#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"

static int64_t normed_parts(const sl_qk_parts *parts)
{
    return parts->count[0] + parts->count[1];
}

static sl_status check(const char *op, const sl_attrs *attrs, const sl_type *qkv, const sl_type *w)
{
    int heads = sl_qk_norm_attrs(attrs)->heads, kv_heads = sl_qk_norm_attrs(attrs)->kv_heads,
        e = sl_qk_norm_attrs(attrs)->head_dim;
    if (heads < 1 || kv_heads < 1 || e < 1)
        return sl_fail(SL_E_INTERNAL, "%s: heads, kv_heads and head_dim must be positive but are %d, %d, %d", op, heads,
                       kv_heads, e);
    const sl_qk_parts parts = sl_qk_norm_parts(attrs);
    SL_TRY(sl_expect_float(op, "qkv", qkv, 2));
    SL_TRY(sl_expect(op, "qkv", qkv, sl_type_2d(qkv->dtype, qkv->dim[0], parts.width)));
    SL_TRY(sl_expect(op, "wq", &w[0], sl_type_1d(qkv->dtype, parts.dim[0])));
    return sl_expect(op, "wk", &w[1], sl_type_1d(qkv->dtype, parts.dim[1]));
}

static sl_status qk_norm_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("qk_norm", attrs, &in[0], &in[1]));
    const sl_qk_parts parts = sl_qk_norm_parts(attrs);
    out[0] = in[0];
    out[1] = sl_type_2d(SL_F32, in[0].dim[0], normed_parts(&parts));
    return SL_OK;
}

/* One part of a row as the formulas have it. */
typedef struct normed_part {
    int64_t at, rstd_at, dim; /* where it begins in qkv and its rstd in rstd */
    const sl_operand *w;
    float offset;
} normed_part;

/* `w`: the operands wq and wk. */
static normed_part part_of(const sl_launch *launch, const sl_operand *w, int64_t row, int side, int64_t part)
{
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    const int64_t before = side ? parts.count[0] : 0;
    return (normed_part){row * parts.width + before * parts.dim[0] + part * parts.dim[side],
                         row * normed_parts(&parts) + before + part, parts.dim[side], &w[side],
                         sl_qk_norm_attrs(&launch->attrs)->offset};
}

static float weight_of(const normed_part *p, int64_t c)
{
    return sl_get(p->w, c) + p->offset;
}

static void part_reference(const sl_launch *launch, normed_part p)
{
    const sl_operand *x = &launch->in[0];
    double squares = 0;
    for (int64_t c = 0; c < p.dim; c++)
        squares += (double) sl_get(x, p.at + c) * sl_get(x, p.at + c);
    float rstd = (float) (1 / sqrt(squares / (double) p.dim + sl_qk_norm_attrs(&launch->attrs)->eps));
    for (int64_t c = 0; c < p.dim; c++)
        sl_put_out(launch, 0, p.at + c, sl_get(x, p.at + c) * rstd * weight_of(&p, c));
    sl_put_out(launch, 1, p.rstd_at, rstd);
}

/* v of a row of `x`, into out[0]. */
static void copy_v(const sl_launch *launch, const sl_operand *x, int64_t row)
{
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    for (int64_t c = parts.normed; c < parts.width; c++)
        sl_put_out(launch, 0, row * parts.width + c, sl_get(x, row * parts.width + c));
}

static void qk_norm_reference(const sl_launch *launch)
{
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    for (int64_t i = 0; i < launch->in[0].type.dim[0]; i++) {
        for (int side = 0; side < 2; side++)
            for (int64_t k = 0; k < parts.count[side]; k++)
                part_reference(launch, part_of(launch, &launch->in[1], i, side, k));
        copy_v(launch, &launch->in[0], i);
    }
}

static sl_status qk_norm_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1], gradient->in[2], gradient->out[1]};
    return sl_gradient_emit(gradient, SL_OP_QK_NORM_BWD, gradient->attrs, in, 5, 3);
}

/* Forward and backward: X(name, dtype, n, heads, kv_heads, head_dim, offset, whole, accumulate). */
#define CASES(X)                                                    \
    X("f32", SL_F32, 5, 4, 2, 16, 0, 0, 0)                          \
    X("f32 tail, accumulate", SL_F32, 7, 3, 1, 21, 0, 0, 6)         \
    X("f32 one row", SL_F32, 1, 1, 1, 3, 0, 0, 2)                   \
    X("f32 many rows", SL_F32, 300, 6, 2, 32, 0, 0, 6)              \
    X("f32 wide head", SL_F32, 9, 2, 1, 256, 0, 0, 0)               \
    X("bf16", SL_BF16, 33, 8, 2, 64, 0, 0, 0)                       \
    X("bf16, accumulate", SL_BF16, 300, 4, 4, 128, 0, 0, 6)         \
    X("bf16 tail", SL_BF16, 7, 5, 5, 19, 0, 0, 4)                   \
    X("f32 tail, offset", SL_F32, 7, 3, 1, 21, 1, 0, 0)             \
    X("bf16 offset, accumulate", SL_BF16, 33, 8, 2, 64, 1, 0, 6)    \
    X("f32 whole", SL_F32, 5, 4, 2, 16, 0, 1, 0)                    \
    X("f32 whole, tail, accumulate", SL_F32, 70, 3, 1, 21, 0, 1, 6) \
    X("f32 whole, one row", SL_F32, 1, 1, 1, 3, 0, 1, 2)            \
    X("f32 whole, wide, offset", SL_F32, 9, 20, 4, 128, 1, 1, 0)    \
    X("bf16 whole", SL_BF16, 33, 8, 8, 64, 0, 1, 4)                 \
    X("bf16 whole, wide, accumulate", SL_BF16, 300, 33, 3, 130, 0, 1, 6)

#define WIDTH(whole, heads, e) ((whole) ? (heads) * (e) : (e))
#define ATTRS(h, g, e, add, all) \
    .attrs = SL_ATTRS(qk_norm, .heads = h, .kv_heads = g, .head_dim = e, .eps = 1e-5f, .offset = add, .whole = all)
static const sl_op_case qk_norm_cases[] = {
#define X(label, t, n, h, g, e, add, all, acc)                                                           \
    {.name = label,                                                                                      \
     .in = {SL_T2(t, n, ((h) + 2 * (g)) * (e)), SL_T1(t, WIDTH(all, h, e)), SL_T1(t, WIDTH(all, g, e))}, \
     ATTRS(h, g, e, add, all)},
    CASES(X)
#undef X
};

/* Adds the case at a model's sizes, forward or backward. */
static sl_status add_shape(sl_op_shapes *shapes, const char *label, int32_t whole)
{
    const sl_op_sizes *s = &shapes->sizes;
    sl_attrs attrs = {{0}};
    *sl_qk_norm_set(&attrs) = *SL_ATTRS(qk_norm, .heads = (int32_t) s->h, .kv_heads = (int32_t) s->g,
                                        .head_dim = (int32_t) s->e, .eps = 1e-5f, .whole = whole);
    const sl_qk_parts parts = sl_qk_norm_parts(&attrs);
    const sl_type qkv = sl_type_2d(shapes->dtype, s->n, parts.width), wq = sl_type_1d(shapes->dtype, parts.dim[0]),
                  wk = sl_type_1d(shapes->dtype, parts.dim[1]);
    const sl_type rstd = sl_type_2d(SL_F32, s->n, normed_parts(&parts));
    if (shapes->op == SL_OP_QK_NORM)
        return sl_shapes_add(shapes, label, &(const sl_op_case){.in = {qkv, wq, wk}, .attrs = &attrs});
    return sl_shapes_add(shapes, label, &(const sl_op_case){.in = {qkv, qkv, wq, wk, rstd}, .attrs = &attrs});
}

static sl_status qk_norm_shapes(sl_op_shapes *shapes)
{
    SL_TRY(add_shape(shapes, "", 0));
    return add_shape(shapes, "whole", 1);
}

const sl_op_def sl_op_qk_norm = {
    SL_OP_PARTS(qk_norm),
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_qk_norm_attrs),
    .work = sl_work_bytes,
    .gradient = qk_norm_gradient,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = qk_norm_shapes,
};

static sl_status qk_norm_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("qk_norm_bwd", attrs, &in[1], &in[2]));
    const sl_qk_parts parts = sl_qk_norm_parts(attrs);
    SL_TRY(sl_expect("qk_norm_bwd", "dy", &in[0], in[1]));
    SL_TRY(sl_expect("qk_norm_bwd", "rstd", &in[4], sl_type_2d(SL_F32, in[1].dim[0], normed_parts(&parts))));
    out[0] = in[1];
    out[1] = in[2];
    out[2] = in[3];
    return SL_OK;
}

static void part_bwd_reference(const sl_launch *launch, normed_part p)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *rstd = &launch->in[4];
    double r = sl_get(rstd, p.rstd_at), mean = 0;
    for (int64_t c = 0; c < p.dim; c++)
        mean += (double) sl_get(dy, p.at + c) * weight_of(&p, c) * sl_get(x, p.at + c) * r / (double) p.dim;
    for (int64_t c = 0; c < p.dim; c++)
        sl_put_out(launch, 0, p.at + c,
                   r * ((double) sl_get(dy, p.at + c) * weight_of(&p, c) - sl_get(x, p.at + c) * r * mean));
}

/* Element c of the gradient of a side's weight. */
static double weight_gradient(const sl_launch *launch, int side, int64_t c)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *rstd = &launch->in[4];
    double dw = 0;
    for (int64_t i = 0; i < x->type.dim[0]; i++)
        for (int64_t k = 0; k < sl_qk_norm_parts(&launch->attrs).count[side]; k++) {
            const normed_part p = part_of(launch, &launch->in[2], i, side, k);
            dw += (double) sl_get(dy, p.at + c) * sl_get(x, p.at + c) * sl_get(rstd, p.rstd_at);
        }
    return dw;
}

static void qk_norm_bwd_reference(const sl_launch *launch)
{
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    for (int64_t i = 0; i < launch->in[1].type.dim[0]; i++) {
        for (int side = 0; side < 2; side++)
            for (int64_t k = 0; k < parts.count[side]; k++)
                part_bwd_reference(launch, part_of(launch, &launch->in[2], i, side, k));
        copy_v(launch, &launch->in[0], i);
    }
    for (int side = 0; side < 2; side++)
        for (int64_t c = 0; c < parts.dim[side]; c++)
            sl_put_out(launch, 1 + side, c, weight_gradient(launch, side, c));
}

static const sl_op_case qk_norm_bwd_cases[] = {
#define X(label, t, n, h, g, e, add, all, acc)                                                                  \
    {.name = label,                                                                                             \
     .in = {SL_T2(t, n, ((h) + 2 * (g)) * (e)), SL_T2(t, n, ((h) + 2 * (g)) * (e)), SL_T1(t, WIDTH(all, h, e)), \
            SL_T1(t, WIDTH(all, g, e)), SL_T2(SL_F32, n, (all) ? 2 : (h) + (g))},                               \
     .accumulate = acc,                                                                                         \
     ATTRS(h, g, e, add, all)},
    CASES(X)
#undef X
};
#undef CASES
#undef ATTRS
#undef WIDTH

/* rstd of the forward. */
static void qk_norm_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    (void) how;
    sl_launch forward = {.op = SL_OP_QK_NORM,
                         .attrs = launch->attrs,
                         .in = {launch->in[1], launch->in[2], launch->in[3]},
                         .out = {{0}, launch->in[4]}};
    qk_norm_reference(&forward);
}

/* The partial sums of weights as long as rows; those of heads are too few to count. */
static size_t qk_norm_bwd_estimate(const sl_launch *launch)
{
    return sl_qk_norm_attrs(&launch->attrs)->whole ? sl_estimate_column_sums(launch) : 0;
}

const sl_op_def sl_op_qk_norm_bwd = {
    SL_OP_PARTS(qk_norm_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 5,
    .n_out = 3,
    .attrs_bytes = sizeof(struct sl_qk_norm_attrs),
    .can_accumulate = 6,
    .work = sl_work_bytes,
    .estimate_workspace = qk_norm_bwd_estimate,
    .tolerance = {5e-6, SL_BF16_ULP},
    .any_values = true,
    .fill = qk_norm_bwd_fill,
    .shapes = qk_norm_shapes,
};
