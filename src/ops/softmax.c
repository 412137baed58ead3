/*
 * Softmax over rows, the middle of attention written out plainly:  y_ij = exp(s x_ij - max) / sum_j exp(s x_ij - max).
 * Causal: row i of a square sees columns 0..i, the others are 0. Training never uses it (attention keeps no square
 * matrix); it is the baseline that attention is measured against.
 *
 * Backward, with the forward's own y:  dx_ij = s y_ij (dy_ij - sum_k y_ik dy_ik).
 */
#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"
#include "ops/softmax.h"

static sl_status check(const char *op, const char *operand, const sl_attrs *attrs, const sl_type *x)
{
    SL_TRY(sl_expect_float(op, operand, x, 2));
    if (sl_softmax_attrs(attrs)->causal && x->dim[0] != x->dim[1])
        return sl_fail(SL_E_INTERNAL, "%s: a causal one needs a square matrix but has %lld x %lld", op,
                       (long long) x->dim[0], (long long) x->dim[1]);
    return SL_OK;
}

static sl_status softmax_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("softmax", "x", attrs, &in[0]));
    out[0] = in[0];
    return SL_OK;
}

static int64_t seen(const sl_launch *launch, int64_t row)
{
    return sl_softmax_attrs(&launch->attrs)->causal ? row + 1 : launch->out[0].type.dim[1];
}

static void softmax_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0];
    int64_t rows = x->type.dim[0], columns = x->type.dim[1];
    double scale = sl_softmax_attrs(&launch->attrs)->scale;
    for (int64_t i = 0; i < rows; i++) {
        int64_t end = seen(launch, i);
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < end; j++)
            largest = fmax(largest, scale * sl_get(x, i * columns + j));
        for (int64_t j = 0; j < end; j++)
            sum += exp(scale * sl_get(x, i * columns + j) - largest);
        for (int64_t j = 0; j < columns; j++)
            sl_put_out(launch, 0, i * columns + j,
                       j < end ? exp(scale * sl_get(x, i * columns + j) - largest) / sum : 0);
    }
}

static sl_status softmax_gradient(sl_gradient *gradient)
{
    return sl_gradient_emit(gradient, SL_OP_SOFTMAX_BWD, gradient->attrs,
                            (const sl_value[]){gradient->d_out[0], gradient->out[0]}, 2, 1);
}

static const sl_op_case softmax_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64)}, .attrs = SL_ATTRS(softmax, 1, 0)},
    {.name = "f32 tail, scaled", .in = {SL_T2(SL_F32, 7, 37)}, .attrs = SL_ATTRS(softmax, 0.125f, 0)},
    {.name = "f32 causal", .in = {SL_T2(SL_F32, 33, 33)}, .attrs = SL_ATTRS(softmax, 0.5f, 1)},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 1)}, .attrs = SL_ATTRS(softmax, 1, 1)},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 33, 512)}, .attrs = SL_ATTRS(softmax, 1, 0)},
    {.name = "bf16 causal, tail", .in = {SL_T2(SL_BF16, 75, 75)}, .attrs = SL_ATTRS(softmax, 0.125f, 1)},
};

static sl_status softmax_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_matrix(shapes, shapes->sizes.sequence, shapes->sizes.sequence);
    const sl_op_case op_case = {.in = {x, sl_op(shapes->op)->n_in > 1 ? x : (sl_type){0}},
                                .attrs = SL_ATTRS(softmax, .scale = 0.125f, .causal = 1)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_softmax = {
    SL_OP_PARTS(softmax),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_softmax_attrs),
    .work = sl_work_bytes,
    .gradient = softmax_gradient,
    .tolerance = {2e-6, SL_BF16_ULP},
    .shapes = softmax_shapes,
};

static sl_status softmax_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("softmax_bwd", "dy", attrs, &in[0]));
    SL_TRY(sl_expect("softmax_bwd", "y", &in[1], in[0]));
    out[0] = in[0];
    return SL_OK;
}

static void softmax_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *y = &launch->in[1];
    int64_t rows = y->type.dim[0], columns = y->type.dim[1];
    for (int64_t i = 0; i < rows; i++) {
        int64_t end = seen(launch, i);
        double dot = 0;
        for (int64_t j = i * columns; j < i * columns + end; j++)
            dot += (double) sl_get(y, j) * sl_get(dy, j);
        for (int64_t j = i * columns; j < (i + 1) * columns; j++) {
            double slope = sl_softmax_attrs(&launch->attrs)->scale * (double) sl_get(y, j) * (sl_get(dy, j) - dot);
            sl_put_out(launch, 0, j, j < i * columns + end ? slope : 0);
        }
    }
}

static const sl_op_case softmax_bwd_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 64)}, .attrs = SL_ATTRS(softmax, 1, 0)},
    {.name = "f32 causal, accumulate",
     .in = {SL_T2(SL_F32, 37, 37), SL_T2(SL_F32, 37, 37)},
     .attrs = SL_ATTRS(softmax, 0.5f, 1),
     .accumulate = 1},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 33, 333), SL_T2(SL_BF16, 33, 333)}, .attrs = SL_ATTRS(softmax, 1, 0)},
    {.name = "bf16 causal",
     .in = {SL_T2(SL_BF16, 64, 64), SL_T2(SL_BF16, 64, 64)},
     .attrs = SL_ATTRS(softmax, 0.125f, 1)},
};

const sl_op_def sl_op_softmax_bwd = {
    SL_OP_PARTS(softmax_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_softmax_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .tolerance = {4e-6, SL_BF16_ULP},
    .shapes = softmax_shapes,
};
