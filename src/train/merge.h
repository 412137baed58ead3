/* Merging an adapter into the model that it belongs to: a complete Hugging Face folder that needs neither. */
#ifndef SL_TRAIN_MERGE_H
#define SL_TRAIN_MERGE_H

#include <stdint.h>

#include "core/status.h"

typedef struct sl_merged {
    int64_t modules, tensors; /* changed, and in all */
    int64_t rank;
    float factor;
} sl_merged;

/* Reads the folders `model` (or ORG/NAME, from the local Hugging Face cache) and `adapter` and writes `out`, which must not be there yet: the model's files under their names, with
 * W + factor * B A in the place of every adapted W, in the file's own dtype. config.json and tokenizer files are copied. */
sl_status sl_merge(const char *model, const char *adapter, const char *out, int threads, sl_merged *merged);

#endif
