#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

void sl_stats_of(double *values, int64_t n, sl_stats *stats)
{
    *stats = (sl_stats){.n = n};
    if (n <= 0)
        return;
    qsort(values, (size_t) n, sizeof *values, ascending);
    stats->min = values[0];
    stats->max = values[n - 1];
    stats->median = n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
    for (int64_t i = 0; i < n; i++)
        stats->mean += values[i] / (double) n;
    double squares = 0; /* around the mean: the difference of two large sums would cancel */
    for (int64_t i = 0; i < n; i++)
        squares += (values[i] - stats->mean) * (values[i] - stats->mean);
    stats->std = n > 1 ? sqrt(squares / (double) (n - 1)) : 0;
}
