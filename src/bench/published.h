/* Figures of others, hardware named, as tables that stand beside ours. */
#ifndef SL_BENCH_PUBLISHED_H
#define SL_BENCH_PUBLISHED_H

#include "bench/results.h"

/* The option of benches that have such figures: without it the tables hold our own figures only. */
#define SL_OPTION_PUBLISHED                                                    \
    {                                                                          \
        "published", NULL, SL_OPT_FLAG, "false", "Output",                     \
            "show beside the results what others published for other machines" \
    }

void sl_published_lm(sl_results *results);
void sl_published_attention(sl_results *results);
/* Rows of the leaderboard; `work`: floating-point operations of its shape. */
void sl_published_leaderboard(sl_table *table, double work);
void sl_published_precision(sl_results *results);

#endif
