/*
 * What limited a run. A step's time is split without remainder by what the machine was doing, or waiting for:
 *
 *   compute           arithmetic of ops above the ridge (peak FLOP/s over memory bandwidth)
 *   memory bandwidth  ops below the ridge, and the optimizer beside host memory while the device waited for it
 *   memory size       arithmetic recomputed because its results could not be kept
 *   I/O               reading data before the step, and writing checkpoints, per step
 *   communication     waiting for copies between the memories
 *   overhead          the rest: gaps between launches, reading results
 *
 * The largest part is the limit.
 */
#ifndef SL_REPORT_LIMITS_H
#define SL_REPORT_LIMITS_H

#include "report/input.h"

typedef enum sl_bound {
    SL_BOUND_COMPUTE,
    SL_BOUND_BANDWIDTH,
    SL_BOUND_SIZE,
    SL_BOUND_IO,
    SL_BOUND_COMMUNICATION,
    SL_BOUND_OVERHEAD,
    SL_BOUND_COUNT
} sl_bound;
extern const char *const sl_bound_names[SL_BOUND_COUNT];
extern const char *const sl_bound_colors[SL_BOUND_COUNT];

typedef struct sl_verdict {
    double seconds[SL_BOUND_COUNT]; /* of a step */
    double step_s;                  /* their sum */
    sl_bound limit;
    bool measured;      /* otherwise from the plan alone */
    char sentence[256]; /* "Limited by compute: 83 % of a step ..." */
    char advice[384];
} sl_verdict;

/* false: the log does not tell enough. */
bool sl_limits(const sl_run_log *log, sl_verdict *verdict);
/* An op's side of the ridge; without a known ridge, above. */
bool sl_below_ridge(const sl_log_hardware *hardware, double flops, double bytes);
/* The planner's word for a limit, as one of these; COUNT: unknown. */
sl_bound sl_bound_of_plan(const char *limit);

#endif
