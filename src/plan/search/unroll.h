/*
 * Plans a step of many rounds by a step of four. All rounds but the first and the last are alike, so choices found on four
 * rounds apply to thirty, and a search on four takes an eighth of the time. Both middle rounds make the choices of the first
 * of them, so the search evaluates what the whole step repeats.
 */
#ifndef SL_PLAN_UNROLL_H
#define SL_PLAN_UNROLL_H

#include "plan/plan.h"

enum { SL_UNROLL_ROUNDS = 4 };

/* A finished search, kept so that its choices can be transferred to a longer program of the same shape. Program and costs outlive it. */
typedef struct sl_guide sl_guide;
void sl_guide_destroy(sl_guide *guide);
/* As sl_plan_create, keeping the search. */
sl_status sl_guide_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                          sl_guide **guide, sl_plan **plan);

/* Continues the search; *plan becomes the result if that is better. */
sl_status sl_guide_refine(sl_guide *guide, const sl_plan_config *config, sl_plan **plan);

/* A plan for `program` by the guide's choices; SL_E_DOES_NOT_FIT when they do not transfer. */
sl_status sl_guide_follow(const sl_guide *guide, const sl_program *program, const sl_costs *costs,
                          const sl_plan_config *config, sl_plan **plan);

/* By task of `longer`: the task of `shorter` at the same place of the corresponding round (first, last, or second for any
 * between). The two may be the same program.
 * *matches false: the programs are not of one shape. */
sl_status sl_unroll_match(const sl_program *shorter, const sl_program *longer, int32_t *match, bool *matches);

#endif
