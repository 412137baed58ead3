/*
 * From a setup to plans: program, costs and plan of the training step, and of validation and samples beside it. Everything
 * `sluice plan` tells is here; a trainer adds a device and data.
 *
 * The host budget is split before planning: what Sluice allocates from the heap (the program, the plan, the engine's commands, the
 * I/O buffers) is estimated from the program's size and taken off, the plan gets the rest for the host arena.
 */
#ifndef SL_TRAIN_PREPARE_H
#define SL_TRAIN_PREPARE_H

#include "plan/plan.h"
#include "train/cost_memo.h"
#include "train/job.h"
#include "train/samples.h"

typedef struct sl_prepared {
    sl_program *program;
    sl_costs *costs;
    sl_plan *plan;           /* NULL when it does not fit */
    sl_program *val_program; /* NULL without validation */
    sl_costs *val_costs;
    sl_plan *val_plan;
    sl_samples *samples; /* what samples begin with; NULL: none are made */
    sl_program *sample_program;
    sl_costs *sample_costs;
    sl_plan *sample_plan;
    size_t budget[SL_TIER_COUNT];          /* those given, or the machine's memory; SIZE_MAX: not limited */
    size_t unlimited_bytes[SL_TIER_COUNT]; /* what the job takes without budgets; 0: not determined */
    size_t reserve_bytes;                  /* of the host budget, for the heap */
    size_t plan_budget[SL_TIER_COUNT];     /* what the planner was given */
    size_t val_budget[SL_TIER_COUNT];      /* likewise, for the second program */
    size_t min_bytes[SL_TIER_COUNT];       /* set when it does not fit; see sl_prepared_minimum */
    size_t both_bytes[SL_TIER_COUNT];      /* set when neither of these would do: what does together */
    sl_cost_memo memo;                     /* costs measured so far */
    sl_pages_ahead *ahead;                 /* the host arena, touched while costs are measured; NULL: not begun */
    double plan_s;                         /* building and planning */
    double measure_s;                      /* finding costs */
} sl_prepared;

/* `prepared` is zero, or holds nothing but a memo to go on with.
 * SL_E_DOES_NOT_FIT with the smallest budgets in the message when no plan does; `prepared` then still holds a program, costs
 * and those budgets. */
sl_status sl_prepare(const sl_setup *setup, sl_prepared *prepared);
void sl_prepared_destroy(sl_prepared *prepared);
/* The plans, verified without the planner's code (sl_plan_check). sl_prepare ends with it. */
sl_status sl_prepared_check(const sl_prepared *prepared);
/* How many parameters are trained: without those that are frozen, with adapters. */
int64_t sl_prepared_trained(const sl_prepared *prepared);
/* What the run takes of each tier, as planned: validation and the heap included. */
void sl_prepared_peaks(const sl_prepared *prepared, size_t peak[SL_TIER_COUNT]);
/* The smallest budget of a tier with the other as given, heap included; 0 if none does. */
sl_status sl_prepared_minimum(const sl_setup *setup, sl_prepared *prepared, sl_tier tier, size_t *bytes);

/* Within sl_prepare: programs beside the training step, whose plan is there (prepare_beside.c). */
sl_status sl_prepare_validation(const sl_setup *setup, sl_prepared *prepared);
sl_status sl_prepare_samples(const sl_setup *setup, sl_prepared *prepared);

#endif
