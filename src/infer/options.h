/*
 * Inside infer: the options of `sluice eval` and `sluice generate`. Those that `sluice train` has too mean the same, and are taken
 * from its table, so that their help and their checks exist once.
 */
#ifndef SL_INFER_OPTIONS_H
#define SL_INFER_OPTIONS_H

#include "train/job.h"

enum { SL_INFER_OPTIONS = 48 };

/* Appends the job's option of this name, under `group` (NULL: its own). `help` NULL: its own. */
void sl_infer_take(sl_option *table, int64_t *count, const char *name, const char *group, const char *help);
/* Those about device, precision and budgets, and about output. */
void sl_infer_take_machine(sl_option *table, int64_t *count);
/* A job with the values of all options that it has too, where they were given. --model may be the folder of a run: its newest
 * checkpoint. */
sl_status sl_infer_job(const sl_options *options, sl_job **job);

#endif
