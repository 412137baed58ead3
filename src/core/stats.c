#include "core/stats.h"

#include <math.h>
#include <stdlib.h>

int sl_ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

double sl_median(double *values, int64_t n)
{
    qsort(values, (size_t) n, sizeof *values, sl_ascending);
    return n > 0 ? 0.5 * (values[(n - 1) / 2] + values[n / 2]) : (double) NAN;
}

void sl_stats_of(double *values, int64_t n, sl_stats *stats)
{
    *stats = (sl_stats){.n = n};
    if (n <= 0)
        return;
    stats->median = sl_median(values, n);
    stats->min = values[0];
    stats->max = values[n - 1];
    for (int64_t i = 0; i < n; i++)
        stats->mean += values[i] / (double) n;
    double squares = 0; /* around the mean: the difference of two large sums would cancel */
    for (int64_t i = 0; i < n; i++)
        squares += (values[i] - stats->mean) * (values[i] - stats->mean);
    stats->std = n > 1 ? sqrt(squares / (double) (n - 1)) : 0;
}
