/* Where a step's time went, op by op (S10): from the times the device gave every task. */
#ifndef SL_BENCH_PROFILE_H
#define SL_BENCH_PROFILE_H

#include "bench/results.h"
#include "bench/trial.h"

typedef struct sl_profile_row {
    int64_t calls; /* per step */
    double self_s; /* per step */
} sl_profile_row;

enum { SL_PROFILE_COPY_IN = SL_OP_COUNT, SL_PROFILE_COPY_OUT, SL_PROFILE_ROWS };

typedef struct sl_profile {
    sl_profile_row rows[SL_PROFILE_ROWS]; /* by op, then copies */
    double phase_s[3];
    double busy_s;    /* all rows */
    double compute_s; /* compute stream only */
    double wall_s;    /* host time per step while profiling */
    double end_s;     /* the device's own: end of the last task */
    int64_t steps;
} sl_profile;

/* Runs `steps` steps with every task timed and adds them up, per step. */
sl_status sl_profile_run(sl_trial *trial, int64_t steps, sl_profile *profile);
/* Share of all busy time taken by GEMMs (attention and the head's included or not). */
double sl_profile_matmul_share(const sl_profile *profile);
void sl_profile_table(const sl_profile *profile, const char *name, const char *title, sl_results *results);

#endif
