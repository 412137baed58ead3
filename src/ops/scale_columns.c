/*
 * Each column of a matrix times its own factor: y = x * w[column]. It is the LayerScale of vision transformers, where w begins near zero,
 * so that a block of the model begins as the identity.
 *
 *     dx = dy * w        dw = sum of dy * x over the rows
 *
 * dw is summed in f32 by a fixed tree, like the weights of norms. y and dx take one rounding.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"

static sl_status scale_columns_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("scale_columns", "x", &in[0], 2));
    SL_TRY(sl_expect("scale_columns", "w", &in[1], sl_type_1d(in[0].dtype, in[0].dim[1])));
    out[0] = in[0];
    return SL_OK;
}

/* out[0] = in[0] * w, or fma(in[0], w, out[0]): of forward and backward. */
static void scale(const sl_launch *launch, const sl_operand *w)
{
    const sl_operand *x = &launch->in[0], *y = &launch->out[0];
    const int64_t d = x->type.dim[1];
    for (int64_t i = 0; sl_present(y) && i < sl_type_count(&x->type); i++)
        sl_put(y, i,
               sl_accumulates(launch, 0) ? fmaf(sl_get(x, i), sl_get(w, i % d), sl_get(y, i))
                                         : sl_get(x, i) * sl_get(w, i % d));
}

static void scale_columns_reference(const sl_launch *launch)
{
    scale(launch, &launch->in[1]);
}

static sl_status scale_columns_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1]};
    return sl_gradient_emit(gradient, SL_OP_SCALE_COLUMNS_BWD, gradient->attrs, in, 3, 2);
}

#define FWD(t, n, d) .in = {SL_T2(t, n, d), SL_T1(t, d)}
static const sl_op_case scale_columns_cases[] = {
    {.name = "f32", FWD(SL_F32, 5, 64)},
    {.name = "f32 tail, accumulate", FWD(SL_F32, 7, 37), .accumulate = 1},
    {.name = "f32 one element", FWD(SL_F32, 1, 1)},
    {.name = "bf16", FWD(SL_BF16, 201, 384)},
    {.name = "bf16 tail, accumulate", FWD(SL_BF16, 7, 333), .accumulate = 1},
};
#undef FWD

static sl_status scale_columns_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), sl_type_1d(shapes->dtype, shapes->sizes.d)}};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_scale_columns = {
    SL_OP_PARTS(scale_columns),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 1,
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = scale_columns_gradient,
    .tolerance = {0, 0},
    .any_values = true,
    .shapes = scale_columns_shapes,
};

static sl_status scale_columns_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("scale_columns_bwd", "dy", &in[0], 2));
    SL_TRY(sl_expect("scale_columns_bwd", "x", &in[1], in[0]));
    SL_TRY(sl_expect("scale_columns_bwd", "w", &in[2], sl_type_1d(in[0].dtype, in[0].dim[1])));
    out[0] = in[0];
    out[1] = in[2];
    return SL_OK;
}

static void scale_columns_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1];
    const int64_t n = x->type.dim[0], d = x->type.dim[1];
    scale(launch, &launch->in[2]);
    for (int64_t c = 0; c < d; c++) {
        double sum = 0;
        for (int64_t i = c; i < n * d; i += d)
            sum += (double) sl_get(dy, i) * sl_get(x, i);
        sl_put_out(launch, 1, c, sum);
    }
}

#define BWD(t, n, d) .in = {SL_T2(t, n, d), SL_T2(t, n, d), SL_T1(t, d)}
static const sl_op_case scale_columns_bwd_cases[] = {
    {.name = "f32", BWD(SL_F32, 5, 64)},
    {.name = "f32 tail, accumulate both", BWD(SL_F32, 70, 37), .accumulate = 3},
    {.name = "f32 one element, accumulate dw", BWD(SL_F32, 1, 1), .accumulate = 2},
    {.name = "f32 many rows", BWD(SL_F32, 2100, 9)},
    {.name = "bf16, accumulate dw", BWD(SL_BF16, 1206, 384), .accumulate = 2},
    {.name = "bf16 tail, accumulate dx", BWD(SL_BF16, 33, 333), .accumulate = 1},
};
#undef BWD

static sl_status scale_columns_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_wide(shapes), w = sl_type_1d(shapes->dtype, shapes->sizes.d);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {x, x, w}});
}

const sl_op_def sl_op_scale_columns_bwd = {
    SL_OP_PARTS(scale_columns_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 2,
    .can_accumulate = 3,
    .work = sl_work_bytes,
    .estimate_workspace = sl_estimate_column_sums,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .shapes = scale_columns_bwd_shapes,
};
