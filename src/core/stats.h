/* A few numbers in place of many. The standard deviation is the sample's (n - 1). */
#ifndef SL_CORE_STATS_H
#define SL_CORE_STATS_H

#include <stdint.h>

typedef struct sl_stats {
    int64_t n;
    double mean, std, median, min, max;
} sl_stats;

/* Sorts `values`. All figures are 0 for n = 0, std for n < 2. */
void sl_stats_of(double *values, int64_t n, sl_stats *stats);
double sl_median(double *values, int64_t n);    /* sorts them; NaN for n = 0 */
int sl_ascending(const void *a, const void *b); /* compares doubles, for qsort */

#endif
