/* Figures of others, hardware named, as tables that stand beside ours. */
#ifndef SL_BENCH_PUBLISHED_H
#define SL_BENCH_PUBLISHED_H

#include "bench/results.h"

void sl_published_lm(sl_results *results);
void sl_published_attention(sl_results *results);
void sl_published_precision(sl_results *results);

#endif
