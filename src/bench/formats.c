/*
 * Rounding by scaling: a value between 2^e and 2^(e+1) has steps of 2^(e - mantissa bits), below the smallest normal
 * number the steps stay as they are there. A double divided by a step is exact (steps are powers of two), rint() rounds
 * it to nearest, ties to even. Double rounding cannot occur: sums and products of these formats are exact in a double,
 * except sums of f32, where one addition of two f32 in double rounds to f32 correctly all the same (53 >= 2*24 + 2).
 */
#include "bench/formats.h"

#include <math.h>
#include <stddef.h>

static const sl_format formats[SL_FORMAT_COUNT] = {
#define X(ID, name, e, m, bits, largest, infinity) {name, e, m, bits, largest, infinity},
    SL_FORMAT_LIST(X)
#undef X
};

const sl_format *sl_format_of(sl_format_id id)
{
    return &formats[id];
}

static int least_exponent(const sl_format *f)
{
    return 2 - (1 << (f->exponent_bits - 1));
}

double sl_format_smallest(const sl_format *f, bool subnormal)
{
    return ldexp(1, least_exponent(f) - (subnormal ? f->mantissa_bits : 0));
}

double sl_format_epsilon(const sl_format *f)
{
    return ldexp(1, -f->mantissa_bits);
}

double sl_format_round(const sl_format *f, double x)
{
    if (!isfinite(x) || x == 0)
        return f->has_infinity || !isinf(x) ? x : (double) NAN;
    int exponent = ilogb(x), least = least_exponent(f);
    double step = ldexp(1, (exponent > least ? exponent : least) - f->mantissa_bits);
    double rounded = rint(x / step) * step;
    if (fabs(rounded) <= f->largest)
        return rounded;
    return f->has_infinity ? copysign(INFINITY, x) : (double) NAN;
}

double sl_format_sum(const sl_format *of, const sl_format *sum, double value, int64_t times)
{
    double total = 0, one = sl_format_round(of, value);
    for (int64_t i = 0; i < times; i++)
        total = sl_format_round(sum, total + one);
    return total;
}

double sl_format_dot(const sl_format *of, const sl_format *sum, int64_t run, const float *x, const float *y, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i += run) {
        double part = 0;
        for (int64_t j = i; j < n && j < i + run; j++)
            part += sl_format_round(of, (double) x[j]) * sl_format_round(of, (double) y[j]);
        total = sl_format_round(sum, total + part);
    }
    return total;
}
