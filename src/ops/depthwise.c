/*
 * Depthwise convolution over images (ops/window.h): every channel has a kernel of its own.
 *
 *     y[window, c] = sum over places of  x[place, c] w[place, c]             w[kernel_h * kernel_w, c], padding counts as zeros
 *     dx = what the windows that cover an element pass on, in order         dw = sum over all windows of  dy x
 *
 * w has a row for each place, so that a vector of channels meets a vector of weights; PyTorch has the channel first. As a matmul (unfold)
 * it would multiply by a matrix that is zero but for its diagonals, so it has kernels of its own. dw is summed by a fixed tree.
 */
#include "ops/common.h"
#include "ops/shapes.h"
#include "ops/window.h"

static int64_t places_of(const struct sl_window_attrs *a)
{
    return (int64_t) a->kernel_h * a->kernel_w;
}

static sl_status depthwise_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_window_attrs *a = sl_window_attrs(attrs);
    SL_TRY(sl_expect_windows("depthwise", "x", a, &in[0], false));
    SL_TRY(sl_expect("depthwise", "w", &in[1], sl_type_2d(in[0].dtype, places_of(a), in[0].dim[1])));
    const int64_t images = in[0].dim[0] / ((int64_t) a->height * a->width);
    out[0] = sl_type_2d(in[0].dtype, images * sl_window_rows(a) * sl_window_columns(a), in[0].dim[1]);
    return SL_OK;
}

/* The image's row at place (ky, kx) of window `row`; -1: padding. */
static int64_t row_at(const struct sl_window_attrs *a, int64_t row, int64_t ky, int64_t kx)
{
    const int64_t columns = sl_window_columns(a), windows = columns * sl_window_rows(a), window = row % windows;
    const int64_t y = window / columns * a->stride_h - a->pad_h + ky,
                  x = window % columns * a->stride_w - a->pad_w + kx;
    if (y < 0 || y >= a->height || x < 0 || x >= a->width)
        return -1;
    return (row / windows * a->height + y) * a->width + x;
}

static void depthwise_reference(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const sl_operand *x = &launch->in[0], *w = &launch->in[1];
    const int64_t channels = x->type.dim[1];
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++) {
        double sum = 0;
        for (int64_t place = 0; place < places_of(a); place++) {
            const int64_t row = row_at(a, i / channels, place / a->kernel_w, place % a->kernel_w);
            if (row >= 0)
                sum += (double) sl_get(x, row * channels + i % channels) * sl_get(w, place * channels + i % channels);
        }
        sl_put_out(launch, 0, i, sum);
    }
}

static void depthwise_work(const sl_launch *launch, sl_work *work)
{
    const double places = (double) places_of(sl_window_attrs(&launch->attrs));
    sl_work_flops(launch, 2 * places * (double) sl_type_count(&launch->out[0].type), work);
}

static sl_status depthwise_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1]};
    return sl_gradient_emit(gradient, SL_OP_DEPTHWISE_BWD, gradient->attrs, in, 3, 2);
}

#define W(h, w, k, s, p) .attrs = SL_ATTRS(window, h, w, k, k, s, s, p, p, 0)
#define ODD .attrs = SL_ATTRS(window, 9, 6, 4, 3, 3, 2, 1, 2, 0)
#define FWD(t, rows, places, c) .in = {SL_T2(t, rows, c), SL_T2(t, places, c)}
static const sl_op_case depthwise_cases[] = {
    {.name = "f32", FWD(SL_F32, 2 * 6 * 5, 9, 16), W(6, 5, 3, 1, 1)},
    {.name = "f32 tail", FWD(SL_F32, 7 * 9, 9, 37), W(7, 9, 3, 1, 1)},
    {.name = "f32 strided", FWD(SL_F32, 2 * 8 * 8, 25, 8), W(8, 8, 5, 2, 2)},
    {.name = "f32 odd", FWD(SL_F32, 2 * 9 * 6, 12, 3), ODD},
    {.name = "f32 one element", FWD(SL_F32, 1, 1, 1), W(1, 1, 1, 1, 0)},
    {.name = "bf16", FWD(SL_BF16, 2 * 14 * 14, 9, 96), W(14, 14, 3, 1, 1)},
    {.name = "bf16 tail, seven", FWD(SL_BF16, 10 * 8, 49, 33), W(10, 8, 7, 1, 3)},
};

/* Images of 8 x 8 from as many of the benches' tokens. */
static int64_t rows_of(const sl_op_shapes *shapes)
{
    return SL_MAX(shapes->sizes.n / 64, 1) * 64;
}

static sl_status depthwise_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_matrix(shapes, rows_of(shapes), shapes->sizes.d);
    const sl_type w = sl_shapes_matrix(shapes, 9, shapes->sizes.d);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {x, w}, W(8, 8, 3, 1, 1)});
}

const sl_op_def sl_op_depthwise = {
    SL_OP_PARTS(depthwise),
    .category = SL_CAT_REDUCTION,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_window_attrs),
    .work = depthwise_work,
    .gradient = depthwise_gradient,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = depthwise_shapes,
};

static sl_status depthwise_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_window_attrs *a = sl_window_attrs(attrs);
    SL_TRY(sl_expect_windows("depthwise_bwd", "dy", a, &in[0], true));
    const int64_t images = in[0].dim[0] / ((int64_t) sl_window_rows(a) * sl_window_columns(a)), c = in[0].dim[1];
    SL_TRY(sl_expect("depthwise_bwd", "x", &in[1], sl_type_2d(in[0].dtype, images * a->height * a->width, c)));
    SL_TRY(sl_expect("depthwise_bwd", "w", &in[2], sl_type_2d(in[0].dtype, places_of(a), c)));
    out[0] = in[1];
    out[1] = in[2];
    return SL_OK;
}

static double slope_of_x(const sl_launch *launch, int64_t row, int64_t channel)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int64_t channels = launch->in[0].type.dim[1], pixels = (int64_t) a->height * a->width;
    const int32_t iy = (int32_t) (row % pixels / a->width), ix = (int32_t) (row % pixels % a->width);
    const sl_window_span y = sl_window_covering(iy, a->kernel_h, a->stride_h, a->pad_h, sl_window_rows(a));
    const sl_window_span x = sl_window_covering(ix, a->kernel_w, a->stride_w, a->pad_w, sl_window_columns(a));
    const int64_t first = row / pixels * sl_window_rows(a);
    double sum = 0;
    for (int32_t oy = y.first; oy < y.end; oy++)
        for (int32_t ox = x.first; ox < x.end; ox++) {
            const int64_t window = (first + oy) * sl_window_columns(a) + ox;
            const int64_t place =
                (int64_t) (iy + a->pad_h - oy * a->stride_h) * a->kernel_w + ix + a->pad_w - (int64_t) ox * a->stride_w;
            sum += (double) sl_get(&launch->in[0], window * channels + channel) *
                   sl_get(&launch->in[2], place * channels + channel);
        }
    return sum;
}

static void depthwise_bwd_reference(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *w = &launch->in[2];
    const int64_t channels = dy->type.dim[1];
    for (int64_t i = 0; sl_present(&launch->out[0]) && i < sl_type_count(&x->type); i++)
        sl_put_out(launch, 0, i, slope_of_x(launch, i / channels, i % channels));
    for (int64_t i = 0; sl_present(&launch->out[1]) && i < sl_type_count(&w->type); i++) {
        const int64_t place = i / channels, channel = i % channels;
        double sum = 0;
        for (int64_t row = 0; row < dy->type.dim[0]; row++) {
            const int64_t from = row_at(a, row, place / a->kernel_w, place % a->kernel_w);
            if (from >= 0)
                sum += (double) sl_get(dy, row * channels + channel) * sl_get(x, from * channels + channel);
        }
        sl_put_out(launch, 1, i, sum);
    }
}

static void depthwise_bwd_work(const sl_launch *launch, sl_work *work)
{
    const double places = (double) places_of(sl_window_attrs(&launch->attrs));
    const int gradients = (launch->out[0].type.rank != 0) + (launch->out[1].type.rank != 0);
    sl_work_flops(launch, 2 * gradients * places * (double) sl_type_count(&launch->in[0].type), work);
}

/* As the sums of columns, for each place. */
static size_t depthwise_bwd_estimate(const sl_launch *launch)
{
    return sl_estimate_column_sums(launch) * (size_t) places_of(sl_window_attrs(&launch->attrs));
}

#define BWD(t, windows, rows, places, c) .in = {SL_T2(t, windows, c), SL_T2(t, rows, c), SL_T2(t, places, c)}
static const sl_op_case depthwise_bwd_cases[] = {
    {.name = "f32", BWD(SL_F32, 2 * 6 * 5, 2 * 6 * 5, 9, 16), W(6, 5, 3, 1, 1)},
    {.name = "f32 tail, accumulate both", BWD(SL_F32, 7 * 9, 7 * 9, 9, 37), W(7, 9, 3, 1, 1), .accumulate = 3},
    {.name = "f32 strided, accumulate dw", BWD(SL_F32, 2 * 4 * 4, 2 * 8 * 8, 25, 8), W(8, 8, 5, 2, 2), .accumulate = 2},
    {.name = "f32 odd", BWD(SL_F32, 2 * 3 * 4, 2 * 9 * 6, 12, 3), ODD},
    {.name = "f32 one element", BWD(SL_F32, 1, 1, 1, 1), W(1, 1, 1, 1, 0)},
    {.name = "bf16", BWD(SL_BF16, 6 * 14 * 14, 6 * 14 * 14, 9, 96), W(14, 14, 3, 1, 1)},
    {.name = "bf16 tail, seven, accumulate dx",
     BWD(SL_BF16, 10 * 8, 10 * 8, 49, 33),
     W(10, 8, 7, 1, 3),
     .accumulate = 1},
};
#undef BWD
#undef FWD
#undef ODD

static sl_status depthwise_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_matrix(shapes, rows_of(shapes), shapes->sizes.d);
    const sl_type w = sl_shapes_matrix(shapes, 9, shapes->sizes.d);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {x, x, w}, W(8, 8, 3, 1, 1)});
}
#undef W

const sl_op_def sl_op_depthwise_bwd = {
    SL_OP_PARTS(depthwise_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_window_attrs),
    .can_accumulate = 3,
    .work = depthwise_bwd_work,
    .estimate_workspace = depthwise_bwd_estimate,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .shapes = depthwise_bwd_shapes,
};
