/*
 * How many chunks make a round: a placement decision, so the planner makes it. More chunks per round carry weights and
 * gradients across the link less often, but need space for more activations at once.
 */
#ifndef SL_PLAN_ROUNDS_H
#define SL_PLAN_ROUNDS_H

#include "plan/plan.h"

typedef sl_status (*sl_costs_fn)(void *context, const sl_program *program, sl_costs **costs);

/* The fastest plan over the forms of a step's program: ways to cut it into rounds, rounds one after the other or interleaved, values
 * recomputed on the way or apart. With the program of that form and its costs. `base` is the step's program in any form.
 * config->chunks_per_round > 0 is fixed by the user and kept. config's limits hold for each form. */
sl_status sl_plan_best(const sl_program *base, sl_costs_fn costs_of, void *costs_context, const sl_plan_config *config,
                       sl_program **program, sl_costs **costs, sl_plan **plan);

/* For a program's workspace_limit: the most that a kernel may take of a device budget (SIZE_MAX: 0, no limit). A limit of 1 gives a
 * plan for every budget for which one exists. */
size_t sl_plan_workspace_limit(size_t device_budget);

/* The smallest budget of `tier` for which sl_plan_best succeeds, the other as given. 0 and SL_E_DOES_NOT_FIT if none
 * does. */
sl_status sl_plan_best_minimum(const sl_program *base, sl_costs_fn costs_of, void *costs_context,
                               const sl_plan_config *config, sl_tier tier, size_t *bytes);

#endif
