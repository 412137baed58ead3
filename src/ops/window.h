/* Windows over images, shared by pooling and unfold: attributes, sizes and bounds. An image is height * width rows of channels (NHWC), one
 * image behind the other; window (oy, ox) begins at (oy * stride - pad, ox * stride - pad), and what of it lies outside is padding. */
#ifndef SL_OPS_WINDOW_H
#define SL_OPS_WINDOW_H

#include "ops/op.h"

struct SL_ATTRS_TYPE sl_window_attrs {
    int32_t height, width; /* of the image */
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t pad_h, pad_w; /* on both sides; less than the kernel */
    int32_t mode;         /* of pooling: sl_pool_mode */
};
SL_ATTRS_OF(window)

typedef enum sl_pool_mode {
    SL_POOL_MAX,
    SL_POOL_MEAN,        /* padding counts as zeros: PyTorch's count_include_pad */
    SL_POOL_MEAN_INSIDE, /* padding does not count */
    SL_POOL_MODES
} sl_pool_mode;

static inline SL_HD int32_t sl_window_rows(const struct sl_window_attrs *a)
{
    return (a->height + 2 * a->pad_h - a->kernel_h) / a->stride_h + 1;
}

static inline SL_HD int32_t sl_window_columns(const struct sl_window_attrs *a)
{
    return (a->width + 2 * a->pad_w - a->kernel_w) / a->stride_w + 1;
}

/* [first, end): of a kernel whose first place is at `start`, the part within `size`. */
typedef struct sl_window_span {
    int32_t first, end;
} sl_window_span;

static inline SL_HD sl_window_span sl_window_inside(int32_t start, int32_t kernel, int32_t size)
{
    const sl_window_span span = {start < 0 ? -start : 0, size - start < kernel ? size - start : kernel};
    return span;
}

/* The windows out of `count` that cover place i: those of which i is the place i + pad - o * stride of the kernel. */
static inline SL_HD sl_window_span sl_window_covering(int32_t i, int32_t kernel, int32_t stride, int32_t pad,
                                                      int32_t count)
{
    const int32_t least = i + pad - kernel + 1, last = (i + pad) / stride + 1;
    const sl_window_span span = {least <= 0 ? 0 : (least + stride - 1) / stride, last < count ? last : count};
    return span;
}

/* By what a mean is divided. */
static inline SL_HD int32_t sl_window_divisor(const struct sl_window_attrs *a, sl_window_span y, sl_window_span x)
{
    return a->mode == SL_POOL_MEAN ? a->kernel_h * a->kernel_w : (y.end - y.first) * (x.end - x.first);
}

#ifndef __CUDACC__
/* For infer: the attributes fit each other, and x[rows, columns] holds whole images, or (`windows`) a row for each of their windows. */
sl_status sl_expect_windows(const char *op, const char *operand, const struct sl_window_attrs *a, const sl_type *x,
                            bool windows);
#endif

#endif
