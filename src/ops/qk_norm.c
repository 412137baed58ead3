/*
 * RMSNorm of each query head and each key head in the rows of a fused projection; v passes through. Two weights of head_dim
 * elements, one for all query heads and one for all key heads (Qwen3, before the rotation):
 *
 *   qkv row:  [ q: heads * e | k: kv_heads * e | v: kv_heads * e ]   ->   [ q_a rstd_a wq | k_b rstd_b wk | v ]
 *
 * rstd[n, heads + kv_heads] = 1 / sqrt(mean of the head's squares + eps) is an output, in f32. The backward is RMSNorm's for each
 * head (ops/rmsnorm.c), with dwq and dwk summed over tokens and heads.
 */
#include "ops/qk_norm.h"

#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"

static int64_t normed_heads(const sl_attrs *attrs)
{
    return sl_qk_norm_attrs(attrs)->heads + sl_qk_norm_attrs(attrs)->kv_heads;
}

static sl_type qkv_type(const sl_attrs *attrs, sl_dtype dtype, int64_t n)
{
    return sl_type_2d(dtype, n,
                      (normed_heads(attrs) + sl_qk_norm_attrs(attrs)->kv_heads) * sl_qk_norm_attrs(attrs)->head_dim);
}

static sl_status check(const char *op, const sl_attrs *attrs, const sl_type *qkv, const sl_type *wq, const sl_type *wk)
{
    int heads = sl_qk_norm_attrs(attrs)->heads, kv_heads = sl_qk_norm_attrs(attrs)->kv_heads,
        e = sl_qk_norm_attrs(attrs)->head_dim;
    if (heads < 1 || kv_heads < 1 || e < 1)
        return sl_fail(SL_E_INTERNAL, "%s: heads, kv_heads and head_dim must be positive but are %d, %d, %d", op, heads,
                       kv_heads, e);
    SL_TRY(sl_expect_float(op, "qkv", qkv, 2));
    SL_TRY(sl_expect(op, "qkv", qkv, qkv_type(attrs, qkv->dtype, qkv->dim[0])));
    SL_TRY(sl_expect(op, "wq", wq, sl_type_1d(qkv->dtype, e)));
    return sl_expect(op, "wk", wk, sl_type_1d(qkv->dtype, e));
}

static sl_status qk_norm_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("qk_norm", attrs, &in[0], &in[1], &in[2]));
    out[0] = in[0];
    out[1] = sl_type_2d(SL_F32, in[0].dim[0], normed_heads(attrs));
    return SL_OK;
}

static void qk_norm_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0];
    int64_t n = x->type.dim[0], width = x->type.dim[1], e = sl_qk_norm_attrs(&launch->attrs)->head_dim,
            normed = normed_heads(&launch->attrs);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t h = 0; h < normed; h++) {
            const sl_operand *w = &launch->in[h < sl_qk_norm_attrs(&launch->attrs)->heads ? 1 : 2];
            int64_t at = i * width + h * e;
            double squares = 0;
            for (int64_t c = 0; c < e; c++)
                squares += (double) sl_get(x, at + c) * sl_get(x, at + c);
            float rstd = (float) (1 / sqrt(squares / (double) e + sl_qk_norm_attrs(&launch->attrs)->eps));
            for (int64_t c = 0; c < e; c++)
                sl_put_out(launch, 0, at + c, sl_get(x, at + c) * rstd * sl_get(w, c));
            sl_put_out(launch, 1, i * normed + h, rstd);
        }
        for (int64_t c = normed * e; c < width; c++)
            sl_put_out(launch, 0, i * width + c, sl_get(x, i * width + c));
    }
}

static sl_status qk_norm_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1], gradient->in[2], gradient->out[1]};
    return sl_gradient_emit(gradient, SL_OP_QK_NORM_BWD, gradient->attrs, in, 5, 3);
}

/* Forward and backward: X(name, dtype, n, heads, kv_heads, head_dim, accumulate). */
#define CASES(X)                                      \
    X("f32", SL_F32, 5, 4, 2, 16, 0)                  \
    X("f32 tail, accumulate", SL_F32, 7, 3, 1, 21, 6) \
    X("f32 one row", SL_F32, 1, 1, 1, 3, 2)           \
    X("f32 many rows", SL_F32, 300, 6, 2, 32, 6)      \
    X("f32 wide head", SL_F32, 9, 2, 1, 256, 0)       \
    X("bf16", SL_BF16, 33, 8, 2, 64, 0)               \
    X("bf16, accumulate", SL_BF16, 300, 4, 4, 128, 6) \
    X("bf16 tail", SL_BF16, 7, 5, 5, 19, 4)

#define ATTRS(h, g, e) .attrs = SL_ATTRS(qk_norm, .heads = h, .kv_heads = g, .head_dim = e, .eps = 1e-5f)
static const sl_op_case qk_norm_cases[] = {
#define X(label, t, n, h, g, e, acc) \
    {.name = label, .in = {SL_T2(t, n, ((h) + 2 * (g)) * (e)), SL_T1(t, e), SL_T1(t, e)}, ATTRS(h, g, e)},
    CASES(X)
#undef X
};

/* Attributes at a model's sizes. */
static sl_attrs attrs_of(const sl_op_sizes *s)
{
    sl_attrs attrs = {{0}};
    *sl_qk_norm_set(&attrs) = *SL_ATTRS(qk_norm, .heads = (int32_t) s->h, .kv_heads = (int32_t) s->g,
                                        .head_dim = (int32_t) s->e, .eps = 1e-5f);
    return attrs;
}

static sl_status qk_norm_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_attrs attrs = attrs_of(s);
    const sl_type qkv = qkv_type(&attrs, shapes->dtype, s->n), w = sl_type_1d(shapes->dtype, s->e);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {qkv, w, w}, .attrs = &attrs});
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
    SL_TRY(check("qk_norm_bwd", attrs, &in[1], &in[2], &in[3]));
    SL_TRY(sl_expect("qk_norm_bwd", "dy", &in[0], in[1]));
    SL_TRY(sl_expect("qk_norm_bwd", "rstd", &in[4], sl_type_2d(SL_F32, in[1].dim[0], normed_heads(attrs))));
    out[0] = in[1];
    out[1] = in[2];
    out[2] = in[3];
    return SL_OK;
}

static void qk_norm_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *rstd = &launch->in[4];
    int64_t n = x->type.dim[0], width = x->type.dim[1], e = sl_qk_norm_attrs(&launch->attrs)->head_dim,
            heads = sl_qk_norm_attrs(&launch->attrs)->heads, normed = normed_heads(&launch->attrs);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t h = 0; h < normed; h++) {
            const sl_operand *w = &launch->in[h < heads ? 2 : 3];
            int64_t at = i * width + h * e;
            double r = sl_get(rstd, i * normed + h), mean = 0;
            for (int64_t c = 0; c < e; c++)
                mean += (double) sl_get(dy, at + c) * sl_get(w, c) * sl_get(x, at + c) * r / (double) e;
            for (int64_t c = 0; c < e; c++)
                sl_put_out(launch, 0, at + c,
                           r * ((double) sl_get(dy, at + c) * sl_get(w, c) - sl_get(x, at + c) * r * mean));
        }
        for (int64_t c = normed * e; c < width; c++)
            sl_put_out(launch, 0, i * width + c, sl_get(dy, i * width + c));
    }
    for (int64_t c = 0; c < e; c++) {
        double dw[2] = {0, 0};
        for (int64_t i = 0; i < n; i++)
            for (int64_t h = 0; h < normed; h++)
                dw[h >= heads] += (double) sl_get(dy, i * width + h * e + c) * sl_get(x, i * width + h * e + c) *
                                  sl_get(rstd, i * normed + h);
        sl_put_out(launch, 1, c, dw[0]);
        sl_put_out(launch, 2, c, dw[1]);
    }
}

static const sl_op_case qk_norm_bwd_cases[] = {
#define X(label, t, n, h, g, e, acc)                                                                          \
    {.name = label,                                                                                           \
     .in = {SL_T2(t, n, ((h) + 2 * (g)) * (e)), SL_T2(t, n, ((h) + 2 * (g)) * (e)), SL_T1(t, e), SL_T1(t, e), \
            SL_T2(SL_F32, n, (h) + (g))},                                                                     \
     .accumulate = acc,                                                                                       \
     ATTRS(h, g, e)},
    CASES(X)
#undef X
};
#undef CASES
#undef ATTRS

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

static sl_status qk_norm_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_attrs attrs = attrs_of(s);
    const sl_type qkv = qkv_type(&attrs, shapes->dtype, s->n), w = sl_type_1d(shapes->dtype, s->e);
    const sl_type rstd = sl_type_2d(SL_F32, s->n, s->h + s->g);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {qkv, qkv, w, w, rstd}, .attrs = &attrs});
}

const sl_op_def sl_op_qk_norm_bwd = {
    SL_OP_PARTS(qk_norm_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 5,
    .n_out = 3,
    .attrs_bytes = sizeof(struct sl_qk_norm_attrs),
    .can_accumulate = 6,
    .work = sl_work_bytes,
    .tolerance = {5e-6, SL_BF16_ULP},
    .any_values = true,
    .fill = qk_norm_bwd_fill,
    .shapes = qk_norm_bwd_shapes,
};
