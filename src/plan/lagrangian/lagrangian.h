/* Gap choices by Lagrangian prices of bytes and links: see lagrangian.c. */
#ifndef SL_PLAN_PRICES_H
#define SL_PLAN_PRICES_H

#include "plan/internal.h"

typedef struct sl_lagrangian sl_lagrangian;

typedef struct sl_lagrangian_targets {
    double bytes[SL_TIER_COUNT]; /* for what is not a placement */
    double link_share;           /* of a link's time that may be planned */
    double in_flight;            /* device bytes that copies may hold by running ahead or behind */
    double lean; /* a value that cannot be recomputed is kept if that costs less than this share of its eviction */
    double kept; /* share of the device bytes filled with the most valuable gaps; 0: prices alone decide */
    int rounds;  /* of price changes */
} sl_lagrangian_targets;

/* on_host by task, placement (sl_tier) by object: both must outlive the prices and stay as they are. */
sl_status sl_lagrangian_create(const sl_analysis *analysis, const uint8_t *on_host, const uint8_t *placement,
                               sl_lagrangian **prices);
void sl_lagrangian_destroy(sl_lagrangian *prices);
void sl_lagrangian_choose(sl_lagrangian *prices, const sl_lagrangian_targets *targets, uint8_t *gap_choice);
/* Decides recomputable values again, to use all resources. It accounts for the time that recomputations give the links,
 * so a second call finds a better result. */
void sl_lagrangian_fill(sl_lagrangian *prices, const sl_lagrangian_targets *targets, uint8_t *gap_choice);

#endif
