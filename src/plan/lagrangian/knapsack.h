/* The final decision about recomputable values: see knapsack.c. */
#ifndef SL_PLAN_FILL_H
#define SL_PLAN_FILL_H

#include "plan/lagrangian/demand.h"
#include "plan/lagrangian/lagrangian.h"

typedef struct sl_fill sl_fill;

/* All memory is the region's; gaps and demand must outlive it. */
sl_status sl_fill_create(sl_region *region, sl_gaps *gaps, sl_demand *demand, sl_fill **fill);
/* Input: the costs of the gaps and the choices of the prices. Output: `drop` and the clock as filled. */
void sl_fill_choose(sl_fill *fill, const sl_lagrangian_targets *targets, uint8_t *gap_choice);

#endif
