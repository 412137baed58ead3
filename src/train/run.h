/* Inside train: the trainer's parts, shared by its files. */
#ifndef SL_TRAIN_RUN_H
#define SL_TRAIN_RUN_H

#include <math.h>
#include <stdatomic.h>

#include "core/events.h"
#include "data/source.h"
#include "engine/engine.h"
#include "train/checkpoint.h"
#include "train/prepare.h"
#include "train/trainer.h"
#include "train/weights.h"

enum { SL_TIMES_KEPT = 4096 }; /* of which the median is taken */

/* A program that is being run: training or validation. */
typedef struct sl_run_side {
    const sl_program *program;
    const sl_plan *plan;
    sl_engine *engine;
} sl_run_side;

struct sl_trainer {
    sl_options *options; /* a copy: the job may go away */
    sl_job job;          /* of `options`, which `setup` points into */
    sl_setup setup;
    sl_prepared prepared;
    sl_source *source; /* the job's, or its own loader */
    sl_device *device;
    sl_run_side train, validation; /* validation.engine NULL: none */
    sl_run_samples samples;
    sl_store store;
    sl_identity identity;
    sl_weights weights;
    char base[17]; /* hash of the model below adapters; "" without */
    sl_events *events;
    sl_progress progress;
    int64_t first_step, skipped;
    unsigned char *staging;            /* a chunk's inputs, each aligned */
    float *losses;                     /* of the chunks of a step, loss by loss */
    int64_t text_bytes;                /* that the targets of the last step or batch stand for; -1: not known */
    double bits_per_byte;              /* of the last step or validation; NAN: not known */
    double counted[SL_MAX_LOSSES];     /* what the targets of the last step or validation batch come to */
    double step_losses[SL_MAX_LOSSES]; /* means of the last step or validation, without their weights */
    double *loss;                      /* of every step of this run */
    double *times;                     /* ring of the last steps' seconds; the first step is not among them */
    double *sorted;
    int64_t n_times;
    double first_time;
    double memory_s, weights_s; /* setting up: mapping both tiers, drawing or loading the state */
    double data_s;              /* of the last step: reading and writing its data */
    int64_t val_step, checkpoint_step;
    double val_loss;
    char checkpoint[1024];
    bool altered;     /* parameters were written since that checkpoint */
    sl_status failed; /* why the run cannot go on: its state is no step's; SL_OK: it can */
    bool interrupted;
    size_t arena_bytes[SL_TIER_COUNT]; /* mapped */
    size_t base_bytes;                 /* anonymous memory beside heap and arenas, once both are there */
    size_t heap_before_peak;           /* heap's peak while planning, before there were arenas */
    atomic_bool stop;
    sl_text report;
};

/* Of losses in nats over the bytes of the text that their targets stand for; NAN: these are not known, or there are none. */
static inline double sl_run_bits_per_byte(double nats, int64_t bytes)
{
    return bytes > 0 ? nats / log(2) / (double) bytes : (double) NAN;
}

/* Of a chunk's inputs, on their way from the source to the engine. */
size_t sl_run_staging_bytes(const sl_program *program);
/* Writes a step's data for one side: sequences from `position` of the split on. No allocation. */
sl_status sl_run_fill(sl_trainer *trainer, const sl_run_side *side, sl_split split, int64_t position);
/* Adds what each loss of the step that `side` has just run comes to, and what its targets count. */
sl_status sl_run_losses(sl_trainer *trainer, const sl_run_side *side, double sums[SL_MAX_LOSSES],
                        double counts[SL_MAX_LOSSES]);
/* The losses' means, which go to `step_losses`, and their weighted sum. */
double sl_run_mean_losses(sl_trainer *trainer, const sl_program *program, const double sums[SL_MAX_LOSSES],
                          const double counts[SL_MAX_LOSSES]);
/* Why there are no bytes of text of a split's targets; NULL: there are. */
const char *sl_run_text_unknown(const sl_trainer *trainer, sl_split split);
/* One step of a side on its device. A failure ends the run. */
sl_status sl_run_engine(sl_trainer *trainer, const sl_run_side *side);
double sl_run_median(const sl_trainer *trainer);
void sl_run_measured(const sl_trainer *trainer, sl_summary *summary);

sl_status sl_run_event_start(sl_trainer *trainer);
sl_status sl_run_event_step(sl_trainer *trainer, const sl_step_result *result);
sl_status sl_run_event_validation(sl_trainer *trainer, double seconds);
sl_status sl_run_event_sample(sl_trainer *trainer);
sl_status sl_run_event_checkpoint(sl_trainer *trainer, double seconds);
/* The last step's actions and memory (timeline.c). */
sl_status sl_run_event_timeline(sl_trainer *trainer);
sl_status sl_run_event_end(sl_trainer *trainer, const char *reason);

#endif
