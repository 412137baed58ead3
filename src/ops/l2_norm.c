/*
 * Rows divided by their length, as F.normalize of PyTorch does:  y = x * r,  r = 1 / max(|x|, eps).
 *
 * Backward, with xhat = x r:   dx = r (dy - xhat (xhat . dy)),   and dx = r dy where |x| < eps, since r is constant there. A head of a
 * row is normed by way of reshape, which makes it a row of its own.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/norm.h"
#include "ops/shapes.h"

static sl_status check(const char *op, const sl_attrs *attrs)
{
    if (!(sl_norm_attrs(attrs)->eps > 0) || sl_norm_attrs(attrs)->offset != 0)
        return sl_fail(SL_E_INTERNAL, "%s: eps must be positive and offset 0 but they are %g and %g", op,
                       (double) sl_norm_attrs(attrs)->eps, (double) sl_norm_attrs(attrs)->offset);
    return SL_OK;
}

static sl_status l2_norm_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("l2_norm", attrs));
    SL_TRY(sl_expect_float("l2_norm", "x", &in[0], 2));
    out[0] = in[0];
    out[1] = sl_type_1d(SL_F32, in[0].dim[0]);
    return SL_OK;
}

/* r of a row. A short row's is exactly 1 / eps, by which the backward knows it. */
static double factor_of(const sl_operand *x, int64_t row, float eps)
{
    const int64_t d = x->type.dim[1];
    double squares = 0;
    for (int64_t i = row * d; i < (row + 1) * d; i++)
        squares += (double) sl_get(x, i) * sl_get(x, i);
    return sqrt(squares) < eps ? (double) (1 / eps) : 1 / sqrt(squares);
}

static void l2_norm_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0];
    const int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t row = 0; row < n; row++) {
        double r = factor_of(x, row, sl_norm_attrs(&launch->attrs)->eps);
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            sl_put_out(launch, 0, i, sl_get(x, i) * r);
        sl_put_out(launch, 1, row, r);
    }
}

static sl_status l2_norm_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->out[1]};
    return sl_gradient_emit(gradient, SL_OP_L2_NORM_BWD, gradient->attrs, in, 3, 1);
}

#define EPS .attrs = SL_ATTRS(norm, .eps = 1e-12f)
#define SHORT .attrs = SL_ATTRS(norm, .eps = 64) /* longer than any row of the case */
static const sl_op_case l2_norm_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64)}, EPS},
    {.name = "f32 tail", .in = {SL_T2(SL_F32, 70, 101)}, EPS},
    {.name = "f32 one row", .in = {SL_T2(SL_F32, 1, 3)}, EPS},
    {.name = "f32 short rows", .in = {SL_T2(SL_F32, 5, 37)}, SHORT},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 603, 64)}, EPS},
    {.name = "bf16 tail", .in = {SL_T2(SL_BF16, 7, 333)}, EPS},
    {.name = "bf16 wide", .in = {SL_T2(SL_BF16, 3, 4096)}, EPS},
    {.name = "bf16 one element", .in = {SL_T2(SL_BF16, 1, 1)}, EPS},
};

static sl_status l2_norm_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes)}, EPS};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_l2_norm = {
    SL_OP_PARTS(l2_norm),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_norm_attrs),
    .work = sl_work_bytes,
    .gradient = l2_norm_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = l2_norm_shapes,
};

static sl_status l2_norm_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("l2_norm_bwd", attrs));
    SL_TRY(sl_expect_float("l2_norm_bwd", "dy", &in[0], 2));
    SL_TRY(sl_expect("l2_norm_bwd", "x", &in[1], in[0]));
    SL_TRY(sl_expect("l2_norm_bwd", "r", &in[2], sl_type_1d(SL_F32, in[0].dim[0])));
    out[0] = in[0];
    return SL_OK;
}

static void l2_norm_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1];
    const int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t row = 0; row < n; row++) {
        const float r = sl_get(&launch->in[2], row);
        double along = 0;
        for (int64_t i = row * d; i < (row + 1) * d && r < 1 / sl_norm_attrs(&launch->attrs)->eps; i++)
            along += (double) sl_get(x, i) * r * sl_get(dy, i);
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            sl_put_out(launch, 0, i, r * (sl_get(dy, i) - (double) sl_get(x, i) * r * along));
    }
}

#define BWD(t, n, d) .in = {SL_T2(t, n, d), SL_T2(t, n, d), SL_T1(SL_F32, n)}
static const sl_op_case l2_norm_bwd_cases[] = {
    {.name = "f32", BWD(SL_F32, 5, 64), EPS},
    {.name = "f32 tail, accumulate", BWD(SL_F32, 70, 101), EPS, .accumulate = 1},
    {.name = "f32 short rows", BWD(SL_F32, 5, 37), SHORT},
    {.name = "bf16", BWD(SL_BF16, 603, 64), EPS},
    {.name = "bf16 tail, accumulate", BWD(SL_BF16, 7, 333), EPS, .accumulate = 1},
    {.name = "bf16 wide", BWD(SL_BF16, 3, 4096), EPS},
};
#undef BWD
#undef SHORT

static void l2_norm_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *r = &launch->in[2];
    (void) how;
    for (int64_t row = 0; row < r->type.dim[0]; row++)
        sl_put(r, row, (float) factor_of(&launch->in[1], row, sl_norm_attrs(&launch->attrs)->eps));
}

static sl_status l2_norm_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_wide(shapes);
    const sl_op_case op_case = {.in = {x, x, sl_type_1d(SL_F32, shapes->sizes.n)}, EPS};
    return sl_shapes_add(shapes, "", &op_case);
}
#undef EPS

const sl_op_def sl_op_l2_norm_bwd = {
    SL_OP_PARTS(l2_norm_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_norm_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .fill = l2_norm_bwd_fill,
    .shapes = l2_norm_bwd_shapes,
};
