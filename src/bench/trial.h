/*
 * A trial: a model's step, or its forward pass alone, planned and run on a device with random tokens. What `sluice
 * train` does without data, checkpoints and log: program, roofline costs, plan, device, engine, weights.
 */
#ifndef SL_BENCH_TRIAL_H
#define SL_BENCH_TRIAL_H

#include "bench/bench.h"
#include "bench/watch.h"
#include "core/stats.h"
#include "engine/engine.h"
#include "model/model.h"
#include "train/store.h"

typedef struct sl_trial_config {
    const sl_model *model;
    int64_t seqlen, batch;
    int64_t chunk_tokens; /* 0: as `sluice train` would on this device */
    sl_precision precision;
    bool forward_only;
    const char *device;
    int threads;
    uint64_t seed;
    size_t budget[SL_TIER_COUNT]; /* 0: what the machine has to give */
    int64_t most_drawn;           /* a model with more parameters has weights that repeat themselves; 0: 2^28 */
} sl_trial_config;

typedef struct sl_trial {
    sl_trial_config config;
    sl_model model;
    sl_program *program;
    sl_costs *costs;
    sl_plan *plan;
    sl_device *device;
    sl_watch watch;
    sl_engine *engine;
    sl_store store;
    sl_hardware hardware;
    int64_t steps; /* run so far */
} sl_trial;

/* The job's device and threads, without budgets. */
sl_trial_config sl_trial_of(const sl_bench_job *job, const sl_model *model, int64_t seqlen, int64_t batch,
                            sl_precision precision);

/* Program, costs and plan only: no memory is taken. SL_E_DOES_NOT_FIT is an ordinary answer. */
sl_status sl_trial_plan(const sl_trial_config *config, sl_trial *trial);
/* And the device, with weights and a batch of random tokens in it. */
sl_status sl_trial_open(const sl_trial_config *config, sl_trial *trial);
void sl_trial_close(sl_trial *trial); /* a zero trial is fine */

/* One step; host seconds from its first call to its last. */
sl_status sl_trial_step(sl_trial *trial, double *seconds);
/* Warm-up steps, then the times of `steps` more; *first_loss is that of the very first. Fewer of both, three at least,
 * when that would take longer than limit_s (0: no limit). */
sl_status sl_trial_time(sl_trial *trial, int64_t warmup, int64_t steps, double limit_s, sl_stats *stats,
                        double *first_loss);
/* Mean loss of the last step. */
sl_status sl_trial_loss(sl_trial *trial, double *loss);
#endif
