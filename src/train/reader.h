/*
 * A program that generates (its graph has a cache of K/V and ends in logits), and the engine that runs it: reads a few tokens of a text.
 * Used by sessions (infer/session.h) and by samples during training (samples.c).
 */
#ifndef SL_TRAIN_READER_H
#define SL_TRAIN_READER_H

#include "engine/engine.h"

typedef struct sl_reader {
    const sl_program *program;
    const sl_plan *plan;
    sl_engine *engine;
    int64_t rows;     /* tokens that a step reads */
    int64_t words;    /* of the vocabulary */
    int64_t capacity; /* tokens of a text whose K/V there is space for */
} sl_reader;

/* Refuses ids that are no tokens, and texts that are too long. `at`: tokens read before. */
sl_status sl_reader_check(const sl_reader *reader, const char *model, const int32_t *tokens, int64_t count, int64_t at);
/* One step, of whose rows `count` are tokens. `staging` has space for two per row, `logits` for the vocabulary. No allocation. */
sl_status sl_reader_step(const sl_reader *reader, const int32_t *tokens, int64_t count, int64_t at, int32_t *staging,
                         float *logits);

#endif
