/* A summary's figures as members of a JSON object: the same names in plans, event logs, reports and sweeps. */
#ifndef SL_TRAIN_SUMMARY_H
#define SL_TRAIN_SUMMARY_H

#include "core/json.h"
#include "plan/plan.h"

/* Without budgets: the caller knows which were requested. */
void sl_summary_put(const sl_summary *summary, sl_json_writer *w);

#endif
