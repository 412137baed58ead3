/*
 * The training run, for the command line: beside the public functions, the figures that a progress line and a page of results show.
 *
 * A run's folder (--out):
 *     events.jsonl                     run, plan, step, validation, sample, checkpoint, end
 *     checkpoints/step-00000100/       config.json model.safetensors optimizer.safetensors state.json
 */
#ifndef SL_TRAIN_TRAINER_H
#define SL_TRAIN_TRAINER_H

#include "data/corpus.h"
#include "plan/plan.h"
#include "train/job.h"

typedef struct sl_trainer_view {
    const sl_setup *setup;
    int64_t first_step, step,
        steps;      /* the run began after `first_step` (0: from scratch), stands after `step` of `steps` */
    int64_t tokens; /* per step */
    int64_t parameters, trained;               /* of the model; of it or of its adapters */
    int64_t sequences, val_sequences;          /* that the data holds */
    const sl_corpus_contents *data, *val_data; /* val_data NULL: none, or a share of `data` */
    double epoch, epochs;                      /* passes over the data: so far, and after all steps */
    sl_summary predicted;                      /* the plan's; peak_bytes[HOST] with the heap's share */
    sl_summary measured;                       /* median step time of this run, last step's traffic, peaks so far */
    size_t budget_bytes[SL_TIER_COUNT];        /* SIZE_MAX: not limited */
    size_t unlimited_bytes[SL_TIER_COUNT]; /* what the job takes without budgets, where one is a share of it; else 0 */
    size_t host_arena_bytes, heap_bytes;   /* the two parts of the host's peak */
    double lower_bound_s, plan_s;
    const char *limit, *costs, *numerics, *device;
    const char *weights; /* where they came from, in words */
    int64_t chunk_tokens, chunks, rounds;
    int64_t val_step; /* step after which the last validation ran; -1: none yet */
    double val_loss;
    int64_t sample_step; /* step after which the last sample was made; -1: none yet */
    const char *sample;
    int64_t checkpoint_step; /* of the newest durable checkpoint; -1: none */
    const char *out;         /* run folder or NULL */
    const char *checkpoint;  /* folder of the newest durable checkpoint or NULL */
    double seconds_left;     /* at the median pace */
    int64_t skipped;         /* steps that were not finite */
    bool interrupted;        /* sl_trainer_request_stop ended the run */
} sl_trainer_view;

/* A job without updates (`forward_only` of its hooks): the loss over all of its data, once and in order. */
typedef struct sl_evaluation {
    double loss;              /* mean over what the targets count */
    double nats;              /* their sum */
    double targets;           /* that count; sequences are whole, so the rest of the last one is left out */
    int64_t bytes;            /* of text that these stand for; -1: not known */
    const char *text_unknown; /* why; NULL: they are known */
    int64_t sequences, steps;
    double seconds;
} sl_evaluation;
sl_status sl_trainer_evaluate(sl_trainer *trainer, sl_evaluation *result);

/* Host memory of the process itself, beside what the budgets count: code, libraries and what they allocate, stacks. */
size_t sl_trainer_process_bytes(const sl_trainer *trainer);
/* Is there anything wrong with the job but perhaps its plan: options, device, data, --out, weights? Writes nothing. */
sl_status sl_trainer_check(const sl_job *job);

/* Points into the trainer; valid until its next call. No allocation. */
void sl_trainer_look(const sl_trainer *trainer, sl_trainer_view *view);

#endif
