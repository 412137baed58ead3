#include "bench/guard.h"

#include <math.h>

#include "tensor/dtype.h"

double sl_guard_error(const sl_operand *got, const sl_operand *want)
{
    double largest = 0, error = 0;
    int64_t count = sl_type_count(&want->type);
    if (sl_type_count(&got->type) != count)
        return INFINITY;
    for (int64_t i = 0; i < count; i++) {
        double g = (double) sl_dtype_load(got->type.dtype, got->data, i);
        double w = (double) sl_dtype_load(want->type.dtype, want->data, i);
        if (!isfinite(g) || !isfinite(w)) {
            if (!(g == w || (isnan(g) && isnan(w))))
                return INFINITY;
            continue;
        }
        largest = fmax(largest, fabs(w));
        error = fmax(error, fabs(g - w));
    }
    return largest > 0 ? error / largest : error;
}

double sl_guard_error_f32(const float *got, const float *want, int64_t count)
{
    union {
        const float *from;
        void *data;
    } g = {got}, w = {want}; /* operands have no const */
    sl_operand a = {g.data, sl_type_1d(SL_F32, count)}, b = {w.data, sl_type_1d(SL_F32, count)};
    return sl_guard_error(&a, &b);
}

bool sl_guard(sl_results *results, const char *what, double error, double tolerance)
{
    if (error <= tolerance)
        return true;
    sl_results_refuse(results,
                      "%s: no speed is reported, because its output differs from the baseline's by %.3g of the largest "
                      "value (allowed %.3g)",
                      what, error, tolerance);
    return false;
}
