/* Costs are made in two ways (costs.c: roofline, measure.c: measured); both start from here. */
#ifndef SL_PLAN_COSTS_H
#define SL_PLAN_COSTS_H

#include "plan/plan.h"

/* Room for `n_kinds` kinds; host_s is infinite, everything else zero. */
sl_status sl_costs_new(int32_t n_kinds, sl_costs **costs);
/* A kind's launch as devices are asked about it: types and attributes, no data. */
void sl_costs_launch(const sl_program *program, int32_t kind, sl_launch *launch);
/* What a kind's workspaces would be on a device that is not here. */
size_t sl_costs_workspace_estimate(const sl_launch *launch, sl_stream stream, const sl_hardware *hardware);

#endif
