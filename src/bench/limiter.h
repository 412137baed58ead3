/* What limits an operation: arithmetic or memory, by its intensity (FLOP per byte) against a machine's ridge point
 * (S6). */
#ifndef SL_BENCH_LIMITER_H
#define SL_BENCH_LIMITER_H

#include "bench/results.h"

typedef struct sl_intensity {
    const char *operation;
    double flops, bytes;
    double published; /* FLOP/B as the slides have it; 0: "less than 10" */
} sl_intensity;

/* The five operations of the published table, f16 operands. */
const sl_intensity *sl_intensities(int64_t *count);
const char *sl_limiter(double intensity, double ridge); /* "arithmetic" or "memory" */
/* Rows with the verdict for a machine whose ridge point this is; and, for comparison, the V100's. */
void sl_limiter_table(double ridge, const char *machine, sl_results *results);
void sl_ridge_table(const char *const *names, const double *flops, const double *bytes_per_s, int64_t count,
                    sl_results *results);

#endif
