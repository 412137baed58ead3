/*
 * Means over the tokens of a sample, the readout of a classifier without a class token: row m of y is the mean of the rows [first, first +
 * count) of the m-th sample, of which each has `sample_rows`. The others, such as a class token and registers, do not count.
 *
 *     backward: dx = dy / count in the rows that count, 0 in the others
 */
#include "ops/mean_rows.h"

#include "ops/common.h"
#include "ops/shapes.h"

static sl_status check(const char *op, const struct sl_mean_rows_attrs *a)
{
    if (a->first >= 0 && a->count >= 1 && a->count <= a->sample_rows - a->first)
        return SL_OK;
    return sl_fail(SL_E_INTERNAL, "%s: %lld rows from %lld do not lie within a sample of %lld", op,
                   (long long) a->count, (long long) a->first, (long long) a->sample_rows);
}

static sl_status mean_rows_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_mean_rows_attrs *a = sl_mean_rows_attrs(attrs);
    SL_TRY(check("mean_rows", a));
    SL_TRY(sl_expect_float("mean_rows", "x", &in[0], 2));
    if (in[0].dim[0] % a->sample_rows)
        return sl_fail(SL_E_INTERNAL, "mean_rows: %lld rows are no whole samples of %lld", (long long) in[0].dim[0],
                       (long long) a->sample_rows);
    out[0] = sl_type_2d(in[0].dtype, in[0].dim[0] / a->sample_rows, in[0].dim[1]);
    return SL_OK;
}

static void mean_rows_reference(const sl_launch *launch)
{
    const struct sl_mean_rows_attrs *a = sl_mean_rows_attrs(&launch->attrs);
    const sl_operand *x = &launch->in[0];
    const int64_t d = x->type.dim[1];
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++) {
        double sum = 0;
        for (int64_t row = a->first; row < a->first + a->count; row++)
            sum += sl_get(x, (i / d * a->sample_rows + row) * d + i % d);
        sl_put_out(launch, 0, i, sum / (double) a->count);
    }
}

static sl_status mean_rows_gradient(sl_gradient *gradient)
{
    return sl_gradient_emit(gradient, SL_OP_MEAN_ROWS_BWD, gradient->attrs, gradient->d_out, 1, 1);
}

#define ATTRS(...) .attrs = SL_ATTRS(mean_rows, __VA_ARGS__)
static const sl_op_case mean_rows_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 15, 64)}, ATTRS(5, 0, 5)},
    {.name = "f32 some rows, tail", .in = {SL_T2(SL_F32, 33, 37)}, ATTRS(11, 2, 7)},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 1)}, ATTRS(1, 0, 1)},
    {.name = "f32 many rows", .in = {SL_T2(SL_F32, 4098, 19)}, ATTRS(2049, 1, 2048)},
    {.name = "bf16 some rows", .in = {SL_T2(SL_BF16, 603, 384)}, ATTRS(201, 0, 196)},
    {.name = "bf16 tail", .in = {SL_T2(SL_BF16, 28, 333)}, ATTRS(7, 6, 1)},
};

/* A sample for each sequence. */
static int64_t rows_of(const sl_op_sizes *s)
{
    return s->sequence > 0 && s->n % s->sequence == 0 ? s->sequence : s->n;
}

static sl_status mean_rows_shapes(sl_op_shapes *shapes)
{
    const int64_t rows = rows_of(&shapes->sizes);
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes)}, ATTRS(rows, 0, rows)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_mean_rows = {
    SL_OP_PARTS(mean_rows),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_mean_rows_attrs),
    .work = sl_work_bytes,
    .gradient = mean_rows_gradient,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = mean_rows_shapes,
};

static sl_status mean_rows_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("mean_rows_bwd", sl_mean_rows_attrs(attrs)));
    SL_TRY(sl_expect_float("mean_rows_bwd", "dy", &in[0], 2));
    out[0] = sl_type_2d(in[0].dtype, in[0].dim[0] * sl_mean_rows_attrs(attrs)->sample_rows, in[0].dim[1]);
    return SL_OK;
}

static void mean_rows_bwd_reference(const sl_launch *launch)
{
    const struct sl_mean_rows_attrs *a = sl_mean_rows_attrs(&launch->attrs);
    const sl_operand *dx = &launch->out[0];
    const int64_t d = dx->type.dim[1];
    for (int64_t i = 0; i < sl_type_count(&dx->type); i++) {
        const int64_t sample = i / d / a->sample_rows, row = i / d % a->sample_rows - a->first;
        bool counts = row >= 0 && row < a->count;
        sl_put_out(launch, 0, i, counts ? sl_get(&launch->in[0], sample * d + i % d) / (double) a->count : 0);
    }
}

static const sl_op_case mean_rows_bwd_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 3, 64)}, ATTRS(5, 0, 5)},
    {.name = "f32 some rows, tail, accumulate", .in = {SL_T2(SL_F32, 3, 37)}, ATTRS(11, 2, 7), .accumulate = 1},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 1)}, ATTRS(1, 0, 1)},
    {.name = "bf16 some rows", .in = {SL_T2(SL_BF16, 3, 384)}, ATTRS(201, 0, 196)},
    {.name = "bf16 tail, accumulate", .in = {SL_T2(SL_BF16, 4, 333)}, ATTRS(7, 6, 1), .accumulate = 1},
};

static sl_status mean_rows_bwd_shapes(sl_op_shapes *shapes)
{
    const int64_t rows = rows_of(&shapes->sizes);
    const sl_type dy = sl_shapes_matrix(shapes, shapes->sizes.n / rows, shapes->sizes.d);
    const sl_op_case op_case = {.in = {dy}, ATTRS(rows, 0, rows)};
    return sl_shapes_add(shapes, "", &op_case);
}
#undef ATTRS

const sl_op_def sl_op_mean_rows_bwd = {
    SL_OP_PARTS(mean_rows_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_mean_rows_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .shapes = mean_rows_bwd_shapes,
};
