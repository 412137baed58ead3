/*
 * Inside train: where a run's weights come from. In this order: a checkpoint (--resume), --init-from, the model's folder where it
 * holds weights (unless --from-scratch), the seed. The run reports which, in its output, its log and its checkpoints.
 */
#ifndef SL_TRAIN_WEIGHTS_H
#define SL_TRAIN_WEIGHTS_H

#include "core/json.h"
#include "train/job.h"
#include "train/store.h"

typedef enum sl_weights_kind { SL_WEIGHTS_RANDOM, SL_WEIGHTS_FILES, SL_WEIGHTS_CHECKPOINT } sl_weights_kind;

enum { SL_WEIGHTS_TEXT = 1600 };

typedef struct sl_weights {
    sl_weights_kind kind;
    uint64_t seed;       /* random */
    char path[1024];     /* files: what was given; checkpoint: its folder */
    int64_t step;        /* checkpoint */
    int64_t tensors;     /* files: those taken */
    char dtypes[96];     /* "BF16, F32" */
    int64_t n_left_out;  /* tensors of the files that the model has no use for: causal masks, a copy of tied weights */
    char left_out[256];  /* their names, as many as fit */
    char adapters[1024]; /* "" (none), "new", or the folder that they came from */
    char text[SL_WEIGHTS_TEXT];  /* all that as a line for people */
    char began[SL_WEIGHTS_TEXT]; /* the line of the run's first session; "" where that is not recorded */
} sl_weights;

/* Which files the weights of a new run come from: `path` is "" for random ones, ORG/NAME a folder of the Hugging Face cache. SL_E_USAGE where the model's folder holds weights
 * in a form that cannot be read. */
sl_status sl_weights_find(const sl_setup *setup, char path[1024]);
/* Opens them and checks what can be checked without a program. */
sl_status sl_weights_open(const sl_setup *setup, const char *path, sl_tensors **tensors);
/* The file of --init-adapter. */
sl_status sl_weights_open_adapter(const sl_setup *setup, sl_tensors **tensors);
/* Fills the store of a new run, and `weights`: the model, then the adapters beside it where there are any. A run that goes on takes its
 * adapters from a checkpoint, and the model from where it came from at first. */
sl_status sl_weights_begin(const sl_setup *setup, sl_store *store, sl_weights *weights);
sl_status sl_weights_begin_adapters(const sl_setup *setup, sl_store *store, sl_weights *weights);
/* Those of a checkpoint that has been loaded; `began` is its record of the run's beginning. */
void sl_weights_resumed(const char *path, int64_t step, const char *began, sl_weights *weights);
/* The object "weights" of --json and of the event log. */
void sl_weights_put(const sl_weights *weights, sl_json_writer *w);

#endif
