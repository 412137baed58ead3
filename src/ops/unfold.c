/*
 * Windows of images as rows of a matrix, and back: what turns a convolution into a matmul.
 *
 *     unfold  x[images * height * width, c] -> y[images * windows, kernel_h * kernel_w * c], each row the window's places one after the
 *             other, zeros where they are padding
 *     fold    the transpose: an element of the image adds up its places in all windows that cover it, in order
 *
 * Each is the other's gradient. A convolution with weights W[out, kernel_h * kernel_w * c] is  unfold(x) W^T, its backward two matmuls and
 * a fold, at the speed of the matrix units on every device; the planner sees the windows as an activation that it may recompute. Where
 * windows do not overlap, as in a patch embedding, they are as large as the image. Depthwise convolutions have an op of their own
 * (depthwise.c). unfold only copies, so its bits are the reference's.
 */
#include "ops/common.h"
#include "ops/shapes.h"
#include "ops/window.h"

static sl_status expect_row(const char *op, const char *operand, const struct sl_window_attrs *a, int64_t columns)
{
    if (columns % ((int64_t) a->kernel_h * a->kernel_w) == 0)
        return SL_OK;
    return sl_fail(SL_E_INTERNAL, "%s: operand %s has %lld columns, which are no whole windows of %d x %d", op, operand,
                   (long long) columns, a->kernel_h, a->kernel_w);
}

static sl_status unfold_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_window_attrs *a = sl_window_attrs(attrs);
    SL_TRY(sl_expect_windows("unfold", "x", a, &in[0], false));
    const int64_t images = in[0].dim[0] / ((int64_t) a->height * a->width);
    out[0] = sl_type_2d(in[0].dtype, images * sl_window_rows(a) * sl_window_columns(a),
                        in[0].dim[1] * a->kernel_h * a->kernel_w);
    return SL_OK;
}

static sl_status fold_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_window_attrs *a = sl_window_attrs(attrs);
    SL_TRY(sl_expect_windows("fold", "y", a, &in[0], true));
    SL_TRY(expect_row("fold", "y", a, in[0].dim[1]));
    const int64_t images = in[0].dim[0] / ((int64_t) sl_window_rows(a) * sl_window_columns(a));
    out[0] = sl_type_2d(in[0].dtype, images * a->height * a->width, in[0].dim[1] / (a->kernel_h * a->kernel_w));
    return SL_OK;
}

/* The row of place `place` of window `row`, among the rows of all images; -1: padding. */
static int64_t row_of(const struct sl_window_attrs *a, int64_t row, int64_t place)
{
    const int64_t columns = sl_window_columns(a), windows = columns * sl_window_rows(a), window = row % windows;
    const int64_t y = window / columns * a->stride_h - a->pad_h + place / a->kernel_w;
    const int64_t x = window % columns * a->stride_w - a->pad_w + place % a->kernel_w;
    if (y < 0 || y >= a->height || x < 0 || x >= a->width)
        return -1;
    return (row / windows * a->height + y) * a->width + x;
}

static void unfold_reference(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const sl_operand *x = &launch->in[0], *y = &launch->out[0];
    const int64_t channels = x->type.dim[1], width = y->type.dim[1];
    for (int64_t i = 0; i < sl_type_count(&y->type); i++) {
        const int64_t row = row_of(a, i / width, i % width / channels);
        sl_put_out(launch, 0, i, row < 0 ? 0 : sl_get(x, row * channels + i % channels));
    }
}

static void fold_reference(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const sl_operand *y = &launch->in[0], *x = &launch->out[0];
    const int64_t channels = x->type.dim[1], width = y->type.dim[1], places = (int64_t) a->kernel_h * a->kernel_w;
    const int64_t windows = (int64_t) sl_window_rows(a) * sl_window_columns(a), pixels = (int64_t) a->height * a->width;
    for (int64_t i = 0; i < sl_type_count(&x->type); i++) {
        const int64_t pixel = i / channels, first = pixel / pixels * windows;
        double sum = 0;
        for (int64_t row = first; row < first + windows; row++)
            for (int64_t place = 0; place < places; place++)
                if (row_of(a, row, place) == pixel)
                    sum += sl_get(y, row * width + place * channels + i % channels);
        sl_put_out(launch, 0, i, sum);
    }
}

static sl_status unfold_gradient(sl_gradient *gradient)
{
    return sl_gradient_emit(gradient, SL_OP_FOLD, gradient->attrs, gradient->d_out, 1, 1);
}

static sl_status fold_gradient(sl_gradient *gradient)
{
    return sl_gradient_emit(gradient, SL_OP_UNFOLD, gradient->attrs, gradient->d_out, 1, 1);
}

#define W(h, w, k, s, p) .attrs = SL_ATTRS(window, h, w, k, k, s, s, p, p, 0)
#define ODD .attrs = SL_ATTRS(window, 9, 6, 4, 3, 3, 2, 1, 2, 0)
static const sl_op_case unfold_cases[] = {
    {.name = "f32 patches", .in = {SL_T2(SL_F32, 2 * 8 * 8, 4)}, W(8, 8, 4, 4, 0)},
    {.name = "f32 overlapping, padded, tail", .in = {SL_T2(SL_F32, 2 * 6 * 5, 3)}, W(6, 5, 3, 1, 1)},
    {.name = "f32 strided, accumulate", .in = {SL_T2(SL_F32, 7 * 9, 16)}, W(7, 9, 3, 2, 1), .accumulate = 1},
    {.name = "f32 odd", .in = {SL_T2(SL_F32, 2 * 9 * 6, 5)}, ODD},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 1)}, W(1, 1, 1, 1, 0)},
    {.name = "bf16 patches", .in = {SL_T2(SL_BF16, 2 * 32 * 32, 3)}, W(32, 32, 16, 16, 0)},
    {.name = "bf16 overlapping, padded", .in = {SL_T2(SL_BF16, 2 * 7 * 7, 64)}, W(7, 7, 3, 1, 1)},
};

/* Images of 8 x 8 from as many of the benches' tokens. */
static int64_t images_of(const sl_op_shapes *shapes)
{
    return SL_MAX(shapes->sizes.n / 64, 1);
}

static sl_status unfold_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_matrix(shapes, images_of(shapes) * 64, shapes->sizes.d / 8);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {x}, W(8, 8, 3, 1, 1)});
}

const sl_op_def sl_op_unfold = {
    SL_OP_PARTS(unfold),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_window_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = unfold_gradient,
    .tolerance = {0, 0},
    .any_values = true,
    .shapes = unfold_shapes,
};

static const sl_op_case fold_cases[] = {
    {.name = "f32 patches", .in = {SL_T2(SL_F32, 2 * 2 * 2, 64)}, W(8, 8, 4, 4, 0)},
    {.name = "f32 overlapping, padded, tail", .in = {SL_T2(SL_F32, 2 * 6 * 5, 27)}, W(6, 5, 3, 1, 1)},
    {.name = "f32 strided, accumulate", .in = {SL_T2(SL_F32, 4 * 5, 144)}, W(7, 9, 3, 2, 1), .accumulate = 1},
    {.name = "f32 odd", .in = {SL_T2(SL_F32, 2 * 3 * 4, 60)}, ODD},
    {.name = "bf16 patches", .in = {SL_T2(SL_BF16, 2 * 2 * 2, 768)}, W(32, 32, 16, 16, 0)},
    {.name = "bf16 overlapping, padded, accumulate",
     .in = {SL_T2(SL_BF16, 2 * 7 * 7, 576)},
     W(7, 7, 3, 1, 1),
     .accumulate = 1},
};
#undef ODD

static sl_status fold_shapes(sl_op_shapes *shapes)
{
    const sl_type y = sl_shapes_matrix(shapes, images_of(shapes) * 64, shapes->sizes.d / 8 * 9);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {y}, W(8, 8, 3, 1, 1)});
}
#undef W

const sl_op_def sl_op_fold = {
    SL_OP_PARTS(fold),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_window_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = fold_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = fold_shapes,
};
