/*
 * Rectangles of a matrix: slice takes one out, slice_bwd puts one back.
 *
 *     slice       y = x[first_row : first_row + rows, first_column : first_column + columns]
 *     slice_bwd   dx = zeros[rows, columns] with dy from (first_row, first_column) on; accumulating, it adds dy there and leaves
 *                 the rest alone
 *
 * Each is the other's gradient. So the first contribution to a gradient of which slices are known writes all of it, and the sum does
 * not depend on what the memory held. Nothing is rounded but an accumulation, once.
 */
#include "ops/slice.h"
#include "ops/common.h"
#include "ops/shapes.h"

static sl_status expect_inside(const char *op, const sl_type *whole, const sl_type *part,
                               const struct sl_slice_attrs *a)
{
    bool inside = a->first_row >= 0 && a->first_column >= 0 && part->dim[0] >= 1 && part->dim[1] >= 1 &&
                  part->dim[0] <= whole->dim[0] - a->first_row && part->dim[1] <= whole->dim[1] - a->first_column;
    return inside ? SL_OK
                  : sl_fail(
                        SL_E_INTERNAL,
                        "%s: %lld rows from %lld and %lld columns from %lld do not lie within a matrix of [%lld, %lld]",
                        op, (long long) part->dim[0], (long long) a->first_row, (long long) part->dim[1],
                        (long long) a->first_column, (long long) whole->dim[0], (long long) whole->dim[1]);
}

static sl_status slice_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_slice_attrs *a = sl_slice_attrs(attrs);
    SL_TRY(sl_expect_float("slice", "x", &in[0], 2));
    out[0] = sl_type_2d(in[0].dtype, a->rows, a->columns);
    return expect_inside("slice", &in[0], &out[0], a);
}

static sl_status slice_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_slice_attrs *a = sl_slice_attrs(attrs);
    SL_TRY(sl_expect_float("slice_bwd", "dy", &in[0], 2));
    out[0] = sl_type_2d(in[0].dtype, a->rows, a->columns);
    return expect_inside("slice_bwd", &out[0], &in[0], a);
}

/* The index in the whole of element i of the part. */
static int64_t place_of(const struct sl_slice_attrs *a, const sl_type *part, const sl_type *whole, int64_t i)
{
    return (a->first_row + i / part->dim[1]) * whole->dim[1] + a->first_column + i % part->dim[1];
}

static void slice_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *y = &launch->out[0];
    for (int64_t i = 0; i < sl_type_count(&y->type); i++)
        sl_put_out(launch, 0, i, sl_get(x, place_of(sl_slice_attrs(&launch->attrs), &y->type, &x->type, i)));
}

static void slice_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *dx = &launch->out[0];
    for (int64_t i = 0; i < sl_type_count(&dx->type) && !sl_accumulates(launch, 0); i++)
        sl_put(dx, i, 0);
    for (int64_t i = 0; i < sl_type_count(&dy->type); i++)
        sl_put_out(launch, 0, place_of(sl_slice_attrs(&launch->attrs), &dy->type, &dx->type, i), sl_get(dy, i));
}

/* Only the slice is read. */
static void slice_work(const sl_launch *launch, sl_work *work)
{
    sl_work_bytes(launch, work);
    work->read_bytes += (double) sl_type_bytes(&launch->out[0].type) - (double) sl_type_bytes(&launch->in[0].type);
}

/* Accumulating, only the slice is touched. */
static void slice_bwd_work(const sl_launch *launch, sl_work *work)
{
    const double part = (double) sl_type_bytes(&launch->in[0].type);
    sl_work_bytes(launch, work);
    if (sl_accumulates(launch, 0)) {
        work->read_bytes = 2 * part;
        work->write_bytes = part;
    }
}

static sl_status emit_other(sl_gradient *gradient, sl_op_id other)
{
    sl_attrs attrs = *gradient->attrs;
    sl_slice_set(&attrs)->rows = gradient->in_type[0].dim[0];
    sl_slice_set(&attrs)->columns = gradient->in_type[0].dim[1];
    return sl_gradient_emit(gradient, other, &attrs, gradient->d_out, 1, 1);
}

static sl_status slice_gradient(sl_gradient *gradient)
{
    return emit_other(gradient, SL_OP_SLICE_BWD);
}

static sl_status slice_bwd_gradient(sl_gradient *gradient)
{
    return emit_other(gradient, SL_OP_SLICE);
}

/* Whole rows follow each other in memory; columns do not. */
static int64_t slice_view(const sl_attrs *attrs, const sl_type *in)
{
    const struct sl_slice_attrs *a = sl_slice_attrs(attrs);
    return a->columns == in->dim[1] ? a->first_row * a->columns * (int64_t) sl_dtype_bytes(in->dtype) : -1;
}

static const sl_op_case slice_cases[] = {
    {.name = "f32 columns", .in = {SL_T2(SL_F32, 5, 96)}, .attrs = SL_ATTRS(slice, 0, 32, 5, 64)},
    {.name = "f32 odd columns, accumulate",
     .in = {SL_T2(SL_F32, 7, 41)},
     .attrs = SL_ATTRS(slice, 0, 3, 7, 37),
     .accumulate = 1},
    {.name = "f32 rows and columns", .in = {SL_T2(SL_F32, 9, 20)}, .attrs = SL_ATTRS(slice, 2, 8, 5, 12)},
    {.name = "f32 all", .in = {SL_T2(SL_F32, 3, 8)}, .attrs = SL_ATTRS(slice, 0, 0, 3, 8)},
    {.name = "bf16 columns", .in = {SL_T2(SL_BF16, 100, 1024)}, .attrs = SL_ATTRS(slice, 0, 512, 100, 512)},
    {.name = "bf16 odd, accumulate",
     .in = {SL_T2(SL_BF16, 12, 345)},
     .attrs = SL_ATTRS(slice, 5, 11, 7, 333),
     .accumulate = 1},
};

static sl_status slice_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_op_case op_case = {.in = {sl_shapes_matrix(shapes, s->n, 2 * s->f)},
                                .attrs = SL_ATTRS(slice, 0, s->f, s->n, s->f)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_slice = {
    SL_OP_PARTS(slice),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_slice_attrs),
    .can_accumulate = 1,
    .work = slice_work,
    .gradient = slice_gradient,
    .view = slice_view,
    .tolerance = {0, 0},
    .any_values = true,
    .shapes = slice_shapes,
};

static const sl_op_case slice_bwd_cases[] = {
    {.name = "f32 columns", .in = {SL_T2(SL_F32, 5, 64)}, .attrs = SL_ATTRS(slice, 0, 32, 5, 96)},
    {.name = "f32 odd columns, accumulate",
     .in = {SL_T2(SL_F32, 7, 37)},
     .attrs = SL_ATTRS(slice, 0, 3, 7, 41),
     .accumulate = 1},
    {.name = "f32 rows and columns", .in = {SL_T2(SL_F32, 5, 12)}, .attrs = SL_ATTRS(slice, 2, 4, 9, 20)},
    {.name = "f32 all", .in = {SL_T2(SL_F32, 3, 8)}, .attrs = SL_ATTRS(slice, 0, 0, 3, 8)},
    {.name = "bf16 columns", .in = {SL_T2(SL_BF16, 100, 512)}, .attrs = SL_ATTRS(slice, 0, 512, 100, 1024)},
    {.name = "bf16 odd", .in = {SL_T2(SL_BF16, 7, 333)}, .attrs = SL_ATTRS(slice, 5, 11, 14, 345)},
    {.name = "bf16 rows, accumulate",
     .in = {SL_T2(SL_BF16, 7, 64)},
     .attrs = SL_ATTRS(slice, 3, 0, 10, 64),
     .accumulate = 1},
};

static sl_status slice_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_op_case op_case = {.in = {sl_shapes_hidden(shapes)}, .attrs = SL_ATTRS(slice, 0, s->f, s->n, 2 * s->f)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_slice_bwd = {
    SL_OP_PARTS(slice_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_slice_attrs),
    .can_accumulate = 1,
    .work = slice_bwd_work,
    .gradient = slice_bwd_gradient,
    .tolerance = {0, 0},
    .backward = true,
    .any_values = true,
    .shapes = slice_bwd_shapes,
};
