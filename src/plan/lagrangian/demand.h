/* What gap choices use of bytes and links: see demand.c. */
#ifndef SL_PLAN_DEMAND_H
#define SL_PLAN_DEMAND_H

#include "plan/lagrangian/gaps.h"

typedef struct sl_demand {
    const sl_gaps *gaps;
    double *usage[SL_TIER_COUNT]; /* bytes by task, n_tasks + 1, while they are summed up */
    /* by bucket: */
    double peak[SL_TIER_COUNT][SL_BUCKETS]; /* most bytes of a tier at once, placements not counted */
    double load_s[SL_LINK_COUNT]
                 [SL_BUCKETS]; /* seconds of copies in (0) and out (1), at the rate both reach together */
} sl_demand;

sl_status sl_demand_create(sl_region *region, const sl_gaps *gaps, sl_demand *demand);
void sl_demand_of(sl_demand *demand, const uint8_t *gap_choice);
/* Seconds of copies that a link can do in bucket b, `share` of its time planned. */
double sl_demand_width_s(const sl_demand *demand, sl_link link, int b, double share);
/* Seconds of copies that each bucket leaves to the next (out) or finds done by the one before (in). */
void sl_demand_queue(const sl_demand *demand, sl_link link, double share, double queue_s[SL_BUCKETS]);

#endif
