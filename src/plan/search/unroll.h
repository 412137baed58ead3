/*
 * Planning a step of many rounds by one of four. All rounds but the first and the last are alike, so choices found on four
 * rounds serve for thirty, and a search on four takes an eighth of the time. Both middle rounds make the choices of the first
 * of them, so what the search sees is what the whole step does again and again.
 */
#ifndef SL_PLAN_UNROLL_H
#define SL_PLAN_UNROLL_H

#include "plan/plan.h"

enum { SL_UNROLL_ROUNDS = 4 };

/* A finished search, kept so that a longer program of the same shape can follow its choices. Program and costs outlive it. */
typedef struct sl_guide sl_guide;
void sl_guide_destroy(sl_guide *guide);
/* As sl_plan_create, keeping the search. */
sl_status sl_guide_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                          sl_guide **guide, sl_plan **plan);

/* Searches on; *plan becomes what is found if that is better. */
sl_status sl_guide_refine(sl_guide *guide, const sl_plan_config *config, sl_plan **plan);

/* A plan for `program` by the guide's choices; SL_E_DOES_NOT_FIT when they do not carry over. */
sl_status sl_guide_follow(const sl_guide *guide, const sl_program *program, const sl_costs *costs,
                          const sl_plan_config *config, sl_plan **plan);

/* By task of `longer`: the task of `shorter` at the same place of the corresponding round (first, last, or second for any
 * between). The two may be the same program.
 * *matches false: the programs are not of one shape. */
sl_status sl_unroll_match(const sl_program *shorter, const sl_program *longer, int32_t *match, bool *matches);

#endif
