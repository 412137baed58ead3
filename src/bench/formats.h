/* Number formats, emulated: what a value becomes in f16, TF32, fp8, and what sums become when every partial sum is
 * rounded. */
#ifndef SL_BENCH_FORMATS_H
#define SL_BENCH_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sl_format {
    const char *name;
    int exponent_bits, mantissa_bits, bits;
    double largest;    /* finite */
    bool has_infinity; /* E4M3 has none: what is too large is not a number */
} sl_format;

#define SL_FORMAT_LIST(X)                                   \
    X(F32, "f32", 8, 23, 32, 3.4028234663852886e38, true)   \
    X(TF32, "tf32", 8, 10, 19, 3.4011621342146535e38, true) \
    X(BF16, "bf16", 8, 7, 16, 3.3895313892515355e38, true)  \
    X(F16, "f16", 5, 10, 16, 65504, true)                   \
    X(E4M3, "fp8 e4m3", 4, 3, 8, 448, false)                \
    X(E5M2, "fp8 e5m2", 5, 2, 8, 57344, true)

typedef enum sl_format_id {
#define X(ID, name, e, m, bits, largest, infinity) SL_FORMAT_##ID,
    SL_FORMAT_LIST(X)
#undef X
        SL_FORMAT_COUNT
} sl_format_id;
const sl_format *sl_format_of(sl_format_id id);

/* Nearest value of the format, ties to even, subnormals included. */
double sl_format_round(const sl_format *format, double x);
double sl_format_smallest(const sl_format *format, bool subnormal);
double sl_format_epsilon(const sl_format *format); /* next after 1, minus 1 */

/* `value`, rounded to `of`, added `times` times with every sum rounded to `sum`. */
double sl_format_sum(const sl_format *of, const sl_format *sum, double value, int64_t times);
/* A dot product: inputs rounded to `of`, exact products, sums rounded to `sum` after every `run` products (1: each
 * one). */
double sl_format_dot(const sl_format *of, const sl_format *sum, int64_t run, const float *x, const float *y, int64_t n);

#endif
