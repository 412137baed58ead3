/* Lower bounds on the step time, and what limits a given plan. */
#ifndef SL_PLAN_BOUNDS_H
#define SL_PLAN_BOUNDS_H

#include "plan/internal.h"

/* No plan within the device budget is faster. */
sl_status sl_bound_s(const sl_analysis *analysis, size_t device_budget, double *seconds);
/* What limits a finished, simulated plan most. */
sl_limit sl_find_limit(const sl_program *program, const sl_costs *costs, const sl_plan *plan);

#endif
