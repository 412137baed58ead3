/*
 * RMSNorm, rowwise:  rstd = 1 / sqrt(mean(x^2) + eps),  y = x * rstd * (w + offset).
 *
 * The offset is 0, or 1 where weights are kept as what they differ from 1 (Gemma): the sum is formed in f32, which holds what bf16
 * weights near 1 would lose. Backward, with u = dy * (w + offset) and xhat = x * rstd:
 *     dx = rstd * (u - xhat * mean(u * xhat))        dw = sum over rows of dy * xhat
 * rstd is an output of the forward, kept in f32, so that a recomputed forward and the backward agree to the bit.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/norm.h"
#include "ops/shapes.h"

/* A weight as the formula has it. */
static float weight_of(const sl_launch *launch, const sl_operand *w, int64_t c)
{
    return sl_get(w, c) + sl_norm_attrs(&launch->attrs)->offset;
}

static sl_status rmsnorm_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("rmsnorm", "x", &in[0], 2));
    SL_TRY(sl_expect("rmsnorm", "w", &in[1], sl_type_1d(in[0].dtype, in[0].dim[1])));
    out[0] = in[0];
    out[1] = sl_type_1d(SL_F32, in[0].dim[0]);
    return SL_OK;
}

static void rmsnorm_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *w = &launch->in[1];
    int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t i = 0; i < n; i++) {
        double squares = 0;
        for (int64_t c = 0; c < d; c++)
            squares += (double) sl_get(x, i * d + c) * sl_get(x, i * d + c);
        float rstd = (float) (1 / sqrt(squares / (double) d + sl_norm_attrs(&launch->attrs)->eps));
        for (int64_t c = 0; c < d; c++)
            sl_put_out(launch, 0, i * d + c, sl_get(x, i * d + c) * rstd * weight_of(launch, w, c));
        sl_put_out(launch, 1, i, rstd);
    }
}

static sl_status rmsnorm_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1], gradient->out[1]};
    return sl_gradient_emit(gradient, SL_OP_RMSNORM_BWD, gradient->attrs, in, 4, 2);
}

#define EPS .attrs = SL_ATTRS(norm, .eps = 1e-5f)
#define OFFSET .attrs = SL_ATTRS(norm, .eps = 1e-6f, .offset = 1)
static const sl_op_case rmsnorm_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64), SL_T1(SL_F32, 64)}, EPS},
    {.name = "f32 tail", .in = {SL_T2(SL_F32, 7, 101), SL_T1(SL_F32, 101)}, .attrs = SL_ATTRS(norm, .eps = 1e-6f)},
    {.name = "f32 one row", .in = {SL_T2(SL_F32, 1, 3), SL_T1(SL_F32, 3)}, EPS},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 33, 256), SL_T1(SL_BF16, 256)}, EPS},
    {.name = "bf16 tail", .in = {SL_T2(SL_BF16, 7, 77), SL_T1(SL_BF16, 77)}, EPS},
    {.name = "bf16 wide", .in = {SL_T2(SL_BF16, 3, 4096), SL_T1(SL_BF16, 4096)}, EPS},
    {.name = "f32 tail, offset", .in = {SL_T2(SL_F32, 7, 101), SL_T1(SL_F32, 101)}, OFFSET},
    {.name = "bf16 offset", .in = {SL_T2(SL_BF16, 33, 256), SL_T1(SL_BF16, 256)}, OFFSET},
};

static sl_status rmsnorm_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), sl_type_1d(shapes->dtype, shapes->sizes.d)}, EPS};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_rmsnorm = {
    SL_OP_PARTS(rmsnorm),
    .category = SL_CAT_REDUCTION,
    .n_in = 2,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_norm_attrs),
    .work = sl_work_bytes,
    .gradient = rmsnorm_gradient,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = rmsnorm_shapes,
};

static sl_status rmsnorm_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("rmsnorm_bwd", "dy", &in[0], 2));
    SL_TRY(sl_expect("rmsnorm_bwd", "x", &in[1], in[0]));
    SL_TRY(sl_expect("rmsnorm_bwd", "w", &in[2], sl_type_1d(in[0].dtype, in[0].dim[1])));
    SL_TRY(sl_expect("rmsnorm_bwd", "rstd", &in[3], sl_type_1d(SL_F32, in[0].dim[0])));
    out[0] = in[0];
    out[1] = in[2];
    return SL_OK;
}

static void rmsnorm_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *w = &launch->in[2], *rstd = &launch->in[3];
    int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t i = 0; i < n; i++) {
        double r = sl_get(rstd, i), mean = 0;
        for (int64_t c = 0; c < d; c++)
            mean += (double) sl_get(dy, i * d + c) * weight_of(launch, w, c) * sl_get(x, i * d + c) * r / (double) d;
        for (int64_t c = 0; c < d; c++) {
            double u = (double) sl_get(dy, i * d + c) * weight_of(launch, w, c), xhat = sl_get(x, i * d + c) * r;
            sl_put_out(launch, 0, i * d + c, r * (u - xhat * mean));
        }
    }
    for (int64_t c = 0; c < d; c++) {
        double dw = 0;
        for (int64_t i = 0; i < n; i++)
            dw += (double) sl_get(dy, i * d + c) * sl_get(x, i * d + c) * sl_get(rstd, i);
        sl_put_out(launch, 1, c, dw);
    }
}

#define BWD(dtype, n, d)                                                          \
    {                                                                             \
        SL_T2(dtype, n, d), SL_T2(dtype, n, d), SL_T1(dtype, d), SL_T1(SL_F32, n) \
    }
static const sl_op_case rmsnorm_bwd_cases[] = {
    {.name = "f32", .in = BWD(SL_F32, 5, 64), EPS},
    {.name = "f32 tail, accumulate both", .in = BWD(SL_F32, 70, 101), EPS, .accumulate = 3},
    {.name = "f32 one row, accumulate dw", .in = BWD(SL_F32, 1, 3), EPS, .accumulate = 2},
    {.name = "bf16, accumulate dw", .in = BWD(SL_BF16, 300, 256), EPS, .accumulate = 2},
    {.name = "bf16 tail, accumulate dx", .in = BWD(SL_BF16, 7, 77), EPS, .accumulate = 1},
    {.name = "bf16 wide", .in = BWD(SL_BF16, 3, 4096), EPS},
    {.name = "f32 many rows, accumulate both", .in = BWD(SL_F32, 3500, 64), EPS, .accumulate = 3},
    {.name = "f32 many long rows", .in = BWD(SL_F32, 1700, 1040), EPS},
    {.name = "f32 tail, offset, accumulate both", .in = BWD(SL_F32, 70, 101), OFFSET, .accumulate = 3},
    {.name = "bf16 offset", .in = BWD(SL_BF16, 300, 256), OFFSET},
};
#undef BWD

static void rmsnorm_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    (void) how;
    sl_fill_statistics(&launch->in[1], NULL, &launch->in[3], sl_norm_attrs(&launch->attrs)->eps);
}

static sl_status rmsnorm_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_type x = sl_shapes_wide(shapes), w = sl_type_1d(shapes->dtype, s->d), row = sl_type_1d(SL_F32, s->n);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {x, x, w, row}, EPS});
}

#undef EPS
#undef OFFSET

const sl_op_def sl_op_rmsnorm_bwd = {
    SL_OP_PARTS(rmsnorm_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 4,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_norm_attrs),
    .can_accumulate = 3,
    .work = sl_work_bytes,
    .estimate_workspace = sl_estimate_column_sums,
    .tolerance = {5e-6, SL_BF16_ULP},
    .any_values = true,
    .fill = rmsnorm_bwd_fill,
    .shapes = rmsnorm_bwd_shapes,
};
