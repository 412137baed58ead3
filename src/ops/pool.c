/*
 * Max and average pooling over windows of images (ops/window.h): x[images * height * width, c] -> y[images * windows, c].
 *
 * The maximum also leaves which place of its window was chosen, a byte per element, and the backward reads that instead of x and y: it is
 * an eighth of x where windows of 2 x 2 do not overlap, and x need not be kept. Of equal elements the first one is chosen; NaN counts
 * as larger than anything, so that it is not lost.
 *
 * The backward gathers: an element of dx adds up what the windows that cover it pass on, in order. Scattering from the windows would need
 * atomic additions, whose order changes from run to run.
 */
#include <math.h>

#include "core/rng.h"
#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"
#include "ops/window.h"

enum { CHOICE = 1 }; /* output of the forward, input of the backward */

static sl_status check(const char *op, const struct sl_window_attrs *a)
{
    if (a->mode < 0 || a->mode >= SL_POOL_MODES)
        return sl_fail(SL_E_INTERNAL, "%s: unknown mode %d", op, a->mode);
    if (a->mode == SL_POOL_MAX && (int64_t) a->kernel_h * a->kernel_w > 256)
        return sl_fail(SL_E_INTERNAL, "%s: a maximum is of at most 256 places, not %d x %d", op, a->kernel_h,
                       a->kernel_w);
    return SL_OK;
}

static sl_status pool_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_window_attrs *a = sl_window_attrs(attrs);
    SL_TRY(check("pool", a));
    SL_TRY(sl_expect_windows("pool", "x", a, &in[0], false));
    const int64_t images = in[0].dim[0] / ((int64_t) a->height * a->width);
    out[0] = sl_type_2d(in[0].dtype, images * sl_window_rows(a) * sl_window_columns(a), in[0].dim[1]);
    if (a->mode == SL_POOL_MAX)
        out[CHOICE] = sl_type_2d(SL_U8, out[0].dim[0], out[0].dim[1]);
    return SL_OK;
}

/* Element (window, channel) of an image whose rows begin at `image`. */
static void pool_window(const sl_launch *launch, int64_t image, int32_t oy, int32_t ox, int64_t channel, int64_t to)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int32_t top = oy * a->stride_h - a->pad_h, left = ox * a->stride_w - a->pad_w;
    const sl_window_span y = sl_window_inside(top, a->kernel_h, a->height);
    const sl_window_span x = sl_window_inside(left, a->kernel_w, a->width);
    double sum = 0;
    float most = 0;
    int32_t choice = -1;
    for (int32_t ky = y.first; ky < y.end; ky++)
        for (int32_t kx = x.first; kx < x.end; kx++) {
            const int64_t row = image + (int64_t) (top + ky) * a->width + left + kx;
            const float value = sl_get(&launch->in[0], row * launch->in[0].type.dim[1] + channel);
            sum += value;
            if (choice < 0 || value > most || isnan(value))
                most = value, choice = ky * a->kernel_w + kx;
        }
    sl_put_out(launch, 0, to, a->mode == SL_POOL_MAX ? most : sum / sl_window_divisor(a, y, x));
    if (sl_present(&launch->out[CHOICE]))
        ((uint8_t *) launch->out[CHOICE].data)[to] = (uint8_t) choice;
}

static void pool_reference(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int64_t channels = launch->in[0].type.dim[1], columns = sl_window_columns(a);
    const int64_t windows = columns * sl_window_rows(a), pixels = (int64_t) a->height * a->width;
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++) {
        const int64_t row = i / channels, window = row % windows;
        pool_window(launch, row / windows * pixels, (int32_t) (window / columns), (int32_t) (window % columns),
                    i % channels, i);
    }
}

static sl_status pool_gradient(sl_gradient *gradient)
{
    const bool max = sl_window_attrs(gradient->attrs)->mode == SL_POOL_MAX;
    const sl_value in[] = {gradient->d_out[0], max ? gradient->out[CHOICE] : SL_NO_VALUE};
    return sl_gradient_emit(gradient, SL_OP_POOL_BWD, gradient->attrs, in, max ? 2 : 1, 1);
}

#define W(h, w, k, s, p, pool) .attrs = SL_ATTRS(window, h, w, k, k, s, s, p, p, SL_POOL_##pool)
#define ODD .attrs = SL_ATTRS(window, 9, 6, 4, 3, 3, 2, 1, 2, SL_POOL_MEAN_INSIDE)
static const sl_op_case pool_cases[] = {
    {.name = "f32 max", .in = {SL_T2(SL_F32, 2 * 8 * 6, 16)}, W(8, 6, 2, 2, 0, MAX)},
    {.name = "f32 max, overlapping, padded, tail", .in = {SL_T2(SL_F32, 2 * 7 * 9, 5)}, W(7, 9, 3, 2, 1, MAX)},
    {.name = "f32 max, one element", .in = {SL_T2(SL_F32, 1, 1)}, W(1, 1, 1, 1, 0, MAX)},
    {.name = "f32 mean", .in = {SL_T2(SL_F32, 2 * 7 * 7, 8)}, W(7, 7, 7, 1, 0, MEAN)},
    {.name = "f32 mean, overlapping, padded, tail", .in = {SL_T2(SL_F32, 3 * 6 * 5, 37)}, W(6, 5, 3, 2, 1, MEAN)},
    {.name = "f32 mean inside, odd", .in = {SL_T2(SL_F32, 2 * 9 * 6, 3)}, ODD},
    {.name = "bf16 max, overlapping, ties", .in = {SL_T2(SL_BF16, 2 * 16 * 16, 64)}, W(16, 16, 3, 2, 1, MAX)},
    {.name = "bf16 max, tail, ties", .in = {SL_T2(SL_BF16, 10 * 5, 33)}, W(10, 5, 2, 1, 0, MAX)},
    {.name = "bf16 mean inside", .in = {SL_T2(SL_BF16, 3 * 14 * 14, 48)}, W(14, 14, 3, 1, 1, MEAN_INSIDE)},
};

/* For a maximum: f32 values an eighth apart, over which finite differences do not step from one choice to another; bf16 ones of which
 * many are equal. */
static void pool_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *x = &launch->in[0];
    const int64_t levels = x->type.dtype == SL_F32 ? 97 : 7, shift = (int64_t) (how->seed % 97);
    for (int64_t i = 0; sl_window_attrs(&launch->attrs)->mode == SL_POOL_MAX && i < sl_type_count(&x->type); i++) {
        const int64_t level = (i * 7919 + shift) % levels - levels / 2;
        sl_put(x, i, (float) level / 8);
    }
}

/* Images of 8 x 8 from as many of the benches' tokens. */
static int64_t bench_rows(const sl_op_shapes *shapes)
{
    return SL_MAX(shapes->sizes.n / 64, 1) * 64;
}

static sl_status pool_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_matrix(shapes, bench_rows(shapes), shapes->sizes.d);
    SL_TRY(sl_shapes_add(shapes, "max", &(const sl_op_case){.in = {x}, W(8, 8, 3, 2, 1, MAX)}));
    return sl_shapes_add(shapes, "mean", &(const sl_op_case){.in = {x}, W(8, 8, 8, 1, 0, MEAN)});
}

const sl_op_def sl_op_pool = {
    SL_OP_PARTS(pool),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_window_attrs),
    .optional_out = 1u << CHOICE,
    .work = sl_work_bytes,
    .gradient = pool_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .fill = pool_fill,
    .shapes = pool_shapes,
};

static sl_status pool_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_window_attrs *a = sl_window_attrs(attrs);
    SL_TRY(check("pool_bwd", a));
    SL_TRY(sl_expect_windows("pool_bwd", "dy", a, &in[0], true));
    if (a->mode == SL_POOL_MAX)
        SL_TRY(sl_expect("pool_bwd", "choice", &in[CHOICE], sl_type_2d(SL_U8, in[0].dim[0], in[0].dim[1])));
    const int64_t images = in[0].dim[0] / ((int64_t) sl_window_rows(a) * sl_window_columns(a));
    out[0] = sl_type_2d(in[0].dtype, images * a->height * a->width, in[0].dim[1]);
    return SL_OK;
}

/* What the windows that cover place (iy, ix) of an image pass on to it; the image's windows begin at row `first`. */
static double pool_slope(const sl_launch *launch, int64_t first, int32_t iy, int32_t ix, int64_t channel)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int32_t columns = sl_window_columns(a);
    const sl_window_span y = sl_window_covering(iy, a->kernel_h, a->stride_h, a->pad_h, sl_window_rows(a));
    const sl_window_span x = sl_window_covering(ix, a->kernel_w, a->stride_w, a->pad_w, columns);
    double sum = 0;
    for (int32_t oy = y.first; oy < y.end; oy++)
        for (int32_t ox = x.first; ox < x.end; ox++) {
            const int32_t top = oy * a->stride_h - a->pad_h, left = ox * a->stride_w - a->pad_w;
            const int64_t i = (first + (int64_t) oy * columns + ox) * launch->in[0].type.dim[1] + channel;
            if (a->mode != SL_POOL_MAX)
                sum += (double) sl_get(&launch->in[0], i) /
                       sl_window_divisor(a, sl_window_inside(top, a->kernel_h, a->height),
                                         sl_window_inside(left, a->kernel_w, a->width));
            else if (((const uint8_t *) launch->in[CHOICE].data)[i] == (iy - top) * a->kernel_w + ix - left)
                sum += sl_get(&launch->in[0], i);
        }
    return sum;
}

static void pool_bwd_reference(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int64_t channels = launch->in[0].type.dim[1], pixels = (int64_t) a->height * a->width;
    const int64_t windows = (int64_t) sl_window_rows(a) * sl_window_columns(a);
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++) {
        const int64_t row = i / channels, pixel = row % pixels;
        sl_put_out(launch, 0, i,
                   pool_slope(launch, row / pixels * windows, (int32_t) (pixel / a->width),
                              (int32_t) (pixel % a->width), i % channels));
    }
}

#define BWD(t, windows, channels) .in = {SL_T2(t, windows, channels), SL_T2(SL_U8, windows, channels)}
static const sl_op_case pool_bwd_cases[] = {
    {.name = "f32 max", BWD(SL_F32, 2 * 4 * 3, 16), W(8, 6, 2, 2, 0, MAX)},
    {.name = "f32 max, overlapping, padded, tail, accumulate",
     BWD(SL_F32, 2 * 4 * 5, 5),
     W(7, 9, 3, 2, 1, MAX),
     .accumulate = 1},
    {.name = "f32 mean", .in = {SL_T2(SL_F32, 2, 8)}, W(7, 7, 7, 1, 0, MEAN)},
    {.name = "f32 mean, overlapping, padded, tail", .in = {SL_T2(SL_F32, 3 * 3 * 3, 37)}, W(6, 5, 3, 2, 1, MEAN)},
    {.name = "f32 mean inside, odd, accumulate", .in = {SL_T2(SL_F32, 2 * 3 * 4, 3)}, ODD, .accumulate = 1},
    {.name = "bf16 max, overlapping", BWD(SL_BF16, 2 * 8 * 8, 64), W(16, 16, 3, 2, 1, MAX)},
    {.name = "bf16 max, tail, accumulate", BWD(SL_BF16, 9 * 4, 33), W(10, 5, 2, 1, 0, MAX), .accumulate = 1},
    {.name = "bf16 mean inside", .in = {SL_T2(SL_BF16, 3 * 14 * 14, 48)}, W(14, 14, 3, 1, 1, MEAN_INSIDE)},
};
#undef BWD
#undef ODD

/* Choices that lie within the kernel. */
static void pool_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    uint8_t *choice = launch->in[CHOICE].data;
    for (int64_t i = 0; choice && i < sl_type_count(&launch->in[CHOICE].type); i++)
        choice[i] = (uint8_t) (sl_philox(how->seed, (uint64_t) i, 1).v[0] % (uint32_t) (a->kernel_h * a->kernel_w));
}

static sl_status pool_bwd_shapes(sl_op_shapes *shapes)
{
    const int64_t images = bench_rows(shapes) / 64, d = shapes->sizes.d;
    const sl_op_case max = {.in = {sl_shapes_matrix(shapes, images * 16, d), sl_type_2d(SL_U8, images * 16, d)},
                            W(8, 8, 3, 2, 1, MAX)};
    const sl_op_case mean = {.in = {sl_shapes_matrix(shapes, images, d)}, W(8, 8, 8, 1, 0, MEAN)};
    SL_TRY(sl_shapes_add(shapes, "max", &max));
    return sl_shapes_add(shapes, "mean", &mean);
}
#undef W

const sl_op_def sl_op_pool_bwd = {
    SL_OP_PARTS(pool_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_window_attrs),
    .optional_in = 1u << CHOICE,
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .fill = pool_bwd_fill,
    .shapes = pool_bwd_shapes,
};
