/*
 * LayerNorm, rowwise:  mean = mean(x),  rstd = 1 / sqrt(mean((x - mean)^2) + eps),  y = (x - mean) * rstd * w + b.
 *
 * Backward, with u = dy * w and xhat = (x - mean) * rstd:
 *     dx = rstd * (u - mean(u) - xhat * mean(u * xhat))        dw = sum of dy * xhat        db = sum of dy
 * Where dx accumulates, the sums of what its columns held before are another result: the gradient of an earlier bias.
 * The variance is taken around the mean in a second pass; E[x^2] - mean^2 cancels where the mean is large.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/norm.h"
#include "ops/shapes.h"

static sl_status layernorm_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    if (sl_norm_attrs(attrs)->offset != 0)
        return sl_fail(SL_E_INTERNAL, "layernorm: its weights take no offset, but the attribute is %g",
                       (double) sl_norm_attrs(attrs)->offset);
    SL_TRY(sl_expect_float("layernorm", "x", &in[0], 2));
    SL_TRY(sl_expect("layernorm", "w", &in[1], sl_type_1d(in[0].dtype, in[0].dim[1])));
    SL_TRY(sl_expect("layernorm", "b", &in[2], in[1]));
    out[0] = in[0];
    out[1] = out[2] = sl_type_1d(SL_F32, in[0].dim[0]);
    return SL_OK;
}

static void layernorm_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *w = &launch->in[1], *b = &launch->in[2];
    int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t i = 0; i < n; i++) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < d; c++)
            mean += sl_get(x, i * d + c) / (double) d;
        for (int64_t c = 0; c < d; c++)
            variance += (sl_get(x, i * d + c) - mean) * (sl_get(x, i * d + c) - mean) / (double) d;
        double rstd = 1 / sqrt(variance + sl_norm_attrs(&launch->attrs)->eps);
        for (int64_t c = 0; c < d; c++)
            sl_put_out(launch, 0, i * d + c, (sl_get(x, i * d + c) - mean) * rstd * sl_get(w, c) + sl_get(b, c));
        sl_put_out(launch, 1, i, mean);
        sl_put_out(launch, 2, i, rstd);
    }
}

static sl_status layernorm_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1], gradient->out[1], gradient->out[2]};
    return sl_gradient_emit(gradient, SL_OP_LAYERNORM_BWD, gradient->attrs, in, 5, 3);
}

#define EPS .attrs = SL_ATTRS(norm, .eps = 1e-5f)
#define FWD(dtype, n, d)                                     \
    {                                                        \
        SL_T2(dtype, n, d), SL_T1(dtype, d), SL_T1(dtype, d) \
    }
static const sl_op_case layernorm_cases[] = {
    {.name = "f32", .in = FWD(SL_F32, 5, 64), EPS},        {.name = "f32 tail", .in = FWD(SL_F32, 7, 101), EPS},
    {.name = "f32 one row", .in = FWD(SL_F32, 1, 3), EPS}, {.name = "bf16", .in = FWD(SL_BF16, 33, 256), EPS},
    {.name = "bf16 tail", .in = FWD(SL_BF16, 7, 77), EPS}, {.name = "bf16 wide", .in = FWD(SL_BF16, 3, 4096), EPS},
};
#undef FWD

static sl_status layernorm_shapes(sl_op_shapes *shapes)
{
    const sl_type w = sl_type_1d(shapes->dtype, shapes->sizes.d);
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), w, w}, EPS};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_layernorm = {
    SL_OP_PARTS(layernorm),
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 3,
    .attrs_bytes = sizeof(struct sl_norm_attrs),
    .work = sl_work_bytes,
    .gradient = layernorm_gradient,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = layernorm_shapes,
};

static sl_status layernorm_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("layernorm_bwd", "dy", &in[0], 2));
    SL_TRY(sl_expect("layernorm_bwd", "x", &in[1], in[0]));
    SL_TRY(sl_expect("layernorm_bwd", "w", &in[2], sl_type_1d(in[0].dtype, in[0].dim[1])));
    SL_TRY(sl_expect("layernorm_bwd", "mean", &in[3], sl_type_1d(SL_F32, in[0].dim[0])));
    SL_TRY(sl_expect("layernorm_bwd", "rstd", &in[4], in[3]));
    out[0] = in[0];
    out[1] = out[2] = in[2];
    return SL_OK;
}

static void layernorm_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *w = &launch->in[2];
    const sl_operand *mean = &launch->in[3], *rstd = &launch->in[4];
    int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t c = 0; c < d; c++) {
        double before = 0;
        for (int64_t i = 0; sl_accumulates(launch, 0) && sl_present(&launch->out[0]) && i < n; i++)
            before += sl_get(&launch->out[0], i * d + c);
        sl_put_out(launch, 3, c, before);
    }
    for (int64_t i = 0; i < n; i++) {
        double center = sl_get(mean, i), r = sl_get(rstd, i), mean_u = 0, mean_ux = 0;
        for (int64_t c = 0; c < d; c++) {
            double u = (double) sl_get(dy, i * d + c) * sl_get(w, c), xhat = (sl_get(x, i * d + c) - center) * r;
            mean_u += u / (double) d;
            mean_ux += u * xhat / (double) d;
        }
        for (int64_t c = 0; c < d; c++) {
            double u = (double) sl_get(dy, i * d + c) * sl_get(w, c), xhat = (sl_get(x, i * d + c) - center) * r;
            sl_put_out(launch, 0, i * d + c, r * (u - mean_u - xhat * mean_ux));
        }
    }
    for (int64_t c = 0; c < d; c++) {
        double dw = 0, db = 0;
        for (int64_t i = 0; i < n; i++) {
            dw += sl_get(dy, i * d + c) * ((double) sl_get(x, i * d + c) - sl_get(mean, i)) * sl_get(rstd, i);
            db += sl_get(dy, i * d + c);
        }
        sl_put_out(launch, 1, c, dw);
        sl_put_out(launch, 2, c, db);
    }
}

#define BWD(dtype, n, d)                                                                            \
    {                                                                                               \
        SL_T2(dtype, n, d), SL_T2(dtype, n, d), SL_T1(dtype, d), SL_T1(SL_F32, n), SL_T1(SL_F32, n) \
    }
static const sl_op_case layernorm_bwd_cases[] = {
    {.name = "f32", .in = BWD(SL_F32, 5, 64), EPS},
    {.name = "f32 tail, accumulate all", .in = BWD(SL_F32, 70, 101), EPS, .accumulate = 7},
    {.name = "f32 one row, accumulate dw", .in = BWD(SL_F32, 1, 3), EPS, .accumulate = 2},
    {.name = "bf16, accumulate dw and db", .in = BWD(SL_BF16, 300, 256), EPS, .accumulate = 6},
    {.name = "bf16 tail, accumulate dx", .in = BWD(SL_BF16, 7, 77), EPS, .accumulate = 1},
    {.name = "bf16 wide", .in = BWD(SL_BF16, 3, 4096), EPS},
    {.name = "bf16 many rows, accumulate all", .in = BWD(SL_BF16, 6500, 72), EPS, .accumulate = 7},
    {.name = "f32 tail, sums", .in = BWD(SL_F32, 70, 101), EPS, .optional_out = true, .accumulate = 1},
    {.name = "f32 sums, accumulate all", .in = BWD(SL_F32, 530, 64), EPS, .optional_out = true, .accumulate = 15},
    {.name = "f32 sums of nothing", .in = BWD(SL_F32, 5, 64), EPS, .optional_out = true},
    {.name = "bf16 sums, accumulated", .in = BWD(SL_BF16, 3300, 768), EPS, .optional_out = true, .accumulate = 15},
    {.name = "bf16 tail, sums", .in = BWD(SL_BF16, 70, 77), EPS, .optional_out = true, .accumulate = 9},
    {.name = "bf16 teams, sums", .in = BWD(SL_BF16, 300, 1536), EPS, .optional_out = true, .accumulate = 1},
    {.name = "bf16 wide, sums", .in = BWD(SL_BF16, 40, 8192), EPS, .optional_out = true, .accumulate = 1},
};
#undef BWD

static void layernorm_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    (void) how;
    sl_fill_statistics(&launch->in[1], &launch->in[3], &launch->in[4], sl_norm_attrs(&launch->attrs)->eps);
}

static sl_status layernorm_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_type x = sl_shapes_wide(shapes), w = sl_type_1d(shapes->dtype, s->d), row = sl_type_1d(SL_F32, s->n);
    sl_op_case op_case = {.in = {x, x, w, row, row}, EPS};
    SL_TRY(sl_shapes_add(shapes, "", &op_case));
    op_case.optional_out = true;
    op_case.accumulate = 1;
    return sl_shapes_add(shapes, "added, with sums", &op_case);
}

#undef EPS

const sl_op_def sl_op_layernorm_bwd = {
    SL_OP_PARTS(layernorm_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 5,
    .n_out = 4,
    .attrs_bytes = sizeof(struct sl_norm_attrs),
    .optional_out = 1u << 3,
    .can_accumulate = 15,
    .sums_before = 3,
    .work = sl_work_bytes,
    .estimate_workspace = sl_estimate_column_sums,
    .tolerance = {5e-6, SL_BF16_ULP},
    .any_values = true,
    .fill = layernorm_bwd_fill,
    .shapes = layernorm_bwd_shapes,
};
