/*
 * What a graph may read beside its parameters. inputs.def describes every kind of input; program, engine and trainer iterate over the
 * kinds and read the descriptor. Only the data source that fills an input knows what it means.
 */
#ifndef SL_GRAPH_INPUTS_H
#define SL_GRAPH_INPUTS_H

#include <stdbool.h>

#include "tensor/type.h"

typedef enum sl_input_kind {
#define SL_INPUT(ID, name, dtype, rows, least, most, scope, target) SL_INPUT_##ID,
#include "graph/inputs.def"
#undef SL_INPUT
    SL_INPUT_COUNT
} sl_input_kind;

/* What an input has a row for. */
typedef enum sl_input_rows {
    SL_ROWS_TOKENS,  /* every token of the chunk */
    SL_ROWS_SAMPLES, /* every sequence of the chunk; one where the chunk is a slice */
    SL_ROWS_BOUNDS,  /* every segment that may be kept apart, and the end of the last one */
    SL_ROWS_STEP,    /* every word of the step parameters */
} sl_input_rows;

typedef enum sl_input_scope {
    SL_PER_CHUNK,
    SL_PER_SEQUENCE, /* the slices of a sequence share it; written with the first one */
    SL_PER_STEP,     /* all chunks share it; written by the trainer and not by its data source */
} sl_input_scope;

typedef struct sl_input_def {
    const char *name;
    sl_dtype dtype;
    sl_input_rows rows;
    int least_extents, most_extents; /* dimensions of a row, which the model gives */
    sl_input_scope scope;
    bool target; /* what a loss compares with: rows that do not count hold SL_TARGET_IGNORED (i32) or zeros (f32) */
} sl_input_def;

const sl_input_def *sl_input_of(sl_input_kind kind);

#endif
