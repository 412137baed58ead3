/* Inside train: what a job asks its machine, before there is a plan: what it has, what each kind of task costs there. */
#ifndef SL_TRAIN_JOB_COSTS_H
#define SL_TRAIN_JOB_COSTS_H

#include "train/prepare.h"

/* The costs of a program for sl_plan_best: measured, or from a profile's roofline. `context` is an sl_cost_source. */
typedef struct sl_cost_source {
    const sl_setup *setup;
    sl_prepared *prepared; /* gets the time it took, what was measured, and perhaps a host arena touched ahead */
} sl_cost_source;
sl_status sl_job_costs(void *context, const sl_program *program, sl_costs **costs);
/* The profile of the machine that the plan is for. */
sl_status sl_job_hardware(const sl_setup *setup, sl_hardware *hardware);
/* A device whose libraries offer a choice of algorithms keeps its choices with the run: to be called before it is opened. */
void sl_job_remember(const sl_setup *setup);

#endif
