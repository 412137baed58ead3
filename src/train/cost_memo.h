/*
 * Inside train: measured costs of one job, remembered by signature of task. Choosing rounds and finding least budgets asks for the
 * costs of many programs that are made of the same kinds; measuring (or probing what is on file) once per job is enough, and all
 * of a job's plans are then compared by the same numbers.
 */
#ifndef SL_TRAIN_COST_MEMO_H
#define SL_TRAIN_COST_MEMO_H

#include "plan/plan.h"

typedef struct sl_cost_memo {
    struct sl_cost_entry *entries;
    int64_t count, capacity;
    sl_costs machine; /* figures that belong to no kind, of the first program measured; its arrays are not used */
} sl_cost_memo;

/* Costs of a program all of whose kinds are known; *costs is NULL when one is not. */
sl_status sl_cost_memo_get(const sl_cost_memo *memo, const sl_program *program, sl_costs **costs);
sl_status sl_cost_memo_add(sl_cost_memo *memo, const sl_program *program, const sl_costs *costs);
void sl_cost_memo_free(sl_cost_memo *memo);

#endif
