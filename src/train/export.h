/*
 * A clean Hugging Face folder of a trained model: config.json, weights, tokenizer and generation files, nothing else. From a run, one of
 * its checkpoints, or any Hugging Face folder (which also turns 8-bit weights into ordinary ones).
 */
#ifndef SL_TRAIN_EXPORT_H
#define SL_TRAIN_EXPORT_H

#include "model/safetensors.h"

typedef struct sl_export_config {
    const char *from; /* a run's folder (its newest checkpoint), a checkpoint, a Hugging Face folder, or ORG/NAME */
    const char *out;  /* must not exist, or be empty */
    bool converts;    /* to `dtype`: F32, BF16 or F16. Else as they are, and 8-bit weights to BF16 */
    sl_file_dtype dtype;
    int64_t shard_bytes; /* of weights in a file; 0: SL_SHARD_BYTES */
} sl_export_config;

typedef struct sl_exported {
    char from[1024];                        /* the folder that was read */
    int64_t tensors, masters, files, bytes; /* masters: tensors taken from the f32 master weights */
    sl_file_dtype dtype;                    /* of the first tensor */
} sl_exported;

/* Appears under its name when it is complete. Streams through buffers of a few MiB. SL_E_NOT_FINITE: a weight is not finite, or too
 * large for the dtype. */
sl_status sl_export(const sl_export_config *config, sl_exported *exported);

#endif
