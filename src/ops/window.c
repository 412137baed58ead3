#include "ops/window.h"

#include "ops/common.h"

static bool fits(int32_t size, int32_t kernel, int32_t stride, int32_t pad)
{
    return size >= 1 && size < 1 << 16 && kernel >= 1 && stride >= 1 && pad >= 0 && pad < kernel && kernel < 1 << 12 &&
           kernel <= size + 2 * pad;
}

sl_status sl_expect_windows(const char *op, const char *operand, const struct sl_window_attrs *a, const sl_type *x,
                            bool windows)
{
    if (!fits(a->height, a->kernel_h, a->stride_h, a->pad_h) || !fits(a->width, a->kernel_w, a->stride_w, a->pad_w))
        return sl_fail(
            SL_E_INTERNAL,
            "%s: a kernel of %d x %d with strides %d, %d and padding %d, %d does not fit an image of %d x %d", op,
            a->kernel_h, a->kernel_w, a->stride_h, a->stride_w, a->pad_h, a->pad_w, a->height, a->width);
    SL_TRY(sl_expect_float(op, operand, x, 2));
    const int64_t rows = windows ? (int64_t) sl_window_rows(a) * sl_window_columns(a) : (int64_t) a->height * a->width;
    if (x->dim[0] % rows)
        return sl_fail(SL_E_INTERNAL, "%s: operand %s has %lld rows, which are no whole images of %lld", op, operand,
                       (long long) x->dim[0], (long long) rows);
    return SL_OK;
}
