/*
 * Checkpoints. <out>/checkpoints/step-00000100/ holds
 *
 *     config.json, model.safetensors    the weights, loadable by Hugging Face (above SL_SHARD_BYTES model-0000X-of-0000N.safetensors
 *                                       and model.safetensors.index.json)
 *     optimizer.safetensors             moments and master weights, by the same names behind a prefix
 *     tokenizer.json, ...               copies of what lies beside the model or the first weights (companions.h)
 *     state.json                        where the run stands, what it is, size and hash of the other files, hash of itself
 *
 * A run that trains adapters has adapter_config.json and adapter_model.safetensors in place of the first two, as PEFT reads them: the
 * model below them is where it was, and a resumed run reads it from there.
 *
 * It is written as step-00000100.tmp, every file fsynced, and renamed when all of it is on disk: a folder with the final name
 * is whole, whatever happened to the process or the machine. Old ones go only after that.
 */
#ifndef SL_TRAIN_CHECKPOINT_H
#define SL_TRAIN_CHECKPOINT_H

#include "core/options.h"
#include "train/job.h"
#include "train/store.h"

/* Weights beyond so many bytes are written to several files: 5 GB. */
#define SL_SHARD_BYTES INT64_C(5000000000)

/* Where a run stands. */
typedef struct sl_progress {
    int64_t step;     /* done */
    int64_t position; /* sequences consumed */
    int64_t updates;  /* steps that changed the weights: what Adam's bias corrections count */
} sl_progress;

/* What must not change from one part of a run to the next, and what changes its bits if it does. */
typedef struct sl_identity {
    const sl_setup *setup;
    const char *data;     /* the source's identity */
    const char *sample;   /* and what is known of its content; NULL or "": nothing */
    const char *numerics; /* of the device */
    const char *weights;  /* what the run began with: recorded, not compared */
    const char *base;     /* of the model below adapters: its hash; NULL or "": there are none */
} sl_identity;

typedef struct sl_checkpoint {
    sl_progress progress;
    char path[1024];
    char weights[1600]; /* what the run began with; "" where that is not recorded */
} sl_checkpoint;

/* Writes <out>/checkpoints/step-... and then removes all but the newest `keep` up to it. On failure nothing with a final name is
 * left half-written and the earlier checkpoints are as they were. `path` (1024 bytes) gets the folder; <out> has at most 900. */
sl_status sl_checkpoint_write(sl_store *store, const sl_identity *identity, const sl_options *options,
                              const sl_progress *progress, char path[1024]);

/* The newest checkpoint of the run whose files are all there and intact; damaged ones are reported in the log and passed over.
 * found->progress.step is -1 when the run has none at all; SL_E_FORMAT when it has some and none is intact; SL_E_USAGE when the
 * one found belongs to another model, data, precision, ... Leftovers of writers that were killed are removed. */
sl_status sl_checkpoint_find(sl_store *store, const sl_identity *identity, sl_checkpoint *found);
/* All of the store's state from a checkpoint that sl_checkpoint_find gave; with adapters all but the model below them, which the store
 * holds. */
sl_status sl_checkpoint_load(sl_store *store, const sl_checkpoint *checkpoint);

/* Reads and checks a state.json by itself: form, version, its own hash. For sl_checkpoint_find and the fuzzer. */
typedef struct sl_checkpoint_state sl_checkpoint_state;
sl_status sl_checkpoint_state_read(const char *path, sl_checkpoint_state **state);
void sl_checkpoint_state_destroy(sl_checkpoint_state *state);
/* Removes what writers that were killed left in <out>, for a run that begins anew there. */
sl_status sl_checkpoint_tidy(const char *out);
/* Whether <out> has any checkpoint folder with a final name, intact or not; the newest one's step, or -1. */
sl_status sl_checkpoint_newest(const char *out, int64_t *step);

#endif
