/* One program with its budgets, from analysis to plan: what sl_plan_create (create.c) and sl_guide (guide.c) share. */
#ifndef SL_PLAN_PLANNING_H
#define SL_PLAN_PLANNING_H

#include "plan/search/search.h"

typedef struct sl_planning {
    sl_analysis *a;
    sl_fixed_placements fixed;
    sl_search *search;
} sl_planning;

/* After an error sl_planning_end must not be called. */
sl_status sl_planning_begin(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                            sl_planning *planning);
void sl_planning_end(sl_planning *planning);
/* The whole search, and its plan. */
sl_status sl_planning_search(const sl_planning *planning, const sl_plan_config *config, sl_plan **plan);
/* The best so far as a plan, with the figures beside the schedule. */
sl_status sl_planning_finish(const sl_planning *planning, const sl_plan_config *config, double start, sl_plan **plan);
/* When a search that begins now ends at the latest. */
double sl_planning_deadline_s(const sl_plan_config *config);

#endif
