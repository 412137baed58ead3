/* Today's results against a file of earlier ones (--baseline): what was computed must be the same, how fast may differ
 * (S13). */
#ifndef SL_BENCH_BASELINE_H
#define SL_BENCH_BASELINE_H

#include "bench/results.h"

/* `path` is what --out wrote, of the same bench. A row whose computed values differ loses its times and is counted as
 * refused; the times of the others are set beside the earlier ones in a table of their own. */
sl_status sl_baseline_compare(sl_results *results, const char *path);

#endif
