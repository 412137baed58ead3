/*
 * What a report is made from: files that other commands wrote, read strictly and kept as plain arrays.
 *
 *   event log   JSON lines of `sluice train --out DIR` (the folder or its events.jsonl): becomes one sl_run_log
 *   sweep       JSON lines of `sluice sweep`: a table, one row for each cell
 *   bench       JSON of `sluice bench` and `sluice system`: {"kind", "name", "machine": {...}, "columns", "rows", "notes"}, or
 *               with several tables "tables": [{"name", "title", "columns", "rows"}]
 *
 * A last line without its end is left out (the writer was killed, or is still writing); every other flaw is an error that names
 * file, line and column. Unknown events and members are passed over, so newer files can be read.
 */
#ifndef SL_REPORT_INPUT_H
#define SL_REPORT_INPUT_H

#include "core/json.h"
#include "core/mem.h"

/* ---- tables ---- */

typedef enum sl_value_kind { SL_VALUE_NONE, SL_VALUE_NUMBER, SL_VALUE_TEXT } sl_value_kind;
typedef struct sl_cell_value {
    sl_value_kind kind;
    double number;
    const char *text; /* set for TEXT; flags read "yes" and "no" */
} sl_cell_value;

typedef struct sl_table_column {
    const char *name, *unit; /* unit "" for none */
    bool numeric;            /* no cell is a text, at least one a number */
} sl_table_column;

typedef struct sl_grid sl_grid; /* a table */
struct sl_grid {
    const char *name, *title;
    sl_table_column *columns;
    sl_cell_value *cells; /* row by row */
    int64_t n_columns, n_rows;
    sl_grid *next;
};

typedef struct sl_fact {
    const char *key;
    sl_cell_value value;
} sl_fact;

typedef struct sl_tables {
    const char *kind, *name; /* "bench", "attention" */
    sl_fact *facts;          /* members of "machine", and scalars of the file */
    const char **notes;
    int64_t n_facts, n_notes;
    sl_grid *grids;
} sl_tables;

const sl_cell_value *sl_grid_cell(const sl_grid *grid, int64_t row, int64_t column);
/* -1: there is none of that name. */
int64_t sl_grid_find(const sl_grid *grid, const char *column);
/* The number in a row, NaN where there is none. column -1 has none. */
double sl_grid_number(const sl_grid *grid, int64_t row, int64_t column);
/* The text in a row, "" where there is none. */
const char *sl_grid_text(const sl_grid *grid, int64_t row, int64_t column);
/* A fact's number by key, NaN where there is none. */
double sl_tables_fact(const sl_tables *tables, const char *key);

/* ---- event logs ---- */

enum { SL_LOG_STREAMS = 4, SL_LOG_PHASES = 5, SL_LOG_CLASSES = 9, SL_LOG_TIERS = 2 };
extern const char *const sl_log_stream_names[SL_LOG_STREAMS]; /* compute, in, out, host */
extern const char *const sl_log_lane_names[SL_LOG_STREAMS];   /* the same for people */
extern const char *const sl_log_phase_names[SL_LOG_PHASES];   /* forward, backward, recompute, optimizer, copy */
extern const char *const sl_log_class_names[SL_LOG_CLASSES];
extern const char *const sl_log_tier_names[SL_LOG_TIERS];

/* Predicted or measured; NaN where the log does not tell. A budget that is not limited is infinite. */
typedef struct sl_figures {
    double step_s, tokens_per_s, tflops, mfu, hfu;
    double peak_bytes[SL_LOG_TIERS], budget_bytes[SL_LOG_TIERS];
    double in_bytes, out_bytes, recompute_fraction;
    double busy_s[SL_LOG_STREAMS];
    double wait_s[SL_LOG_STREAMS]; /* compute stream idle, by the stream it waited for */
} sl_figures;

typedef struct sl_log_step {
    int64_t step;
    double loss, grad_norm, learning_rate, seconds, data_s, tokens_per_s;
} sl_log_step;

typedef struct sl_log_validation {
    int64_t step;
    double loss;
} sl_log_validation;

typedef struct sl_log_sample {
    int64_t step;
    const char *prompt, *text, *stop; /* "": not in the log */
} sl_log_sample;

typedef struct sl_log_op {
    const char *name;
    int stream;
    int64_t count;
    double predicted_s, measured_s, recomputed_s, flops, bytes;
} sl_log_op;

typedef struct sl_log_span {
    int64_t start, end; /* ns since the step began */
} sl_log_span;

typedef struct sl_log_action {
    const char *op, *name;
    uint8_t stream, phase;
    int64_t chunk, bytes;
    sl_log_span predicted, measured;
} sl_log_action;

typedef struct sl_log_place {
    uint8_t tier, class;
    int64_t bytes, first, last; /* actions between which the bytes are taken */
} sl_log_place;

/* From one start or resume to the next. */
typedef struct sl_log_session {
    int64_t first_step; /* the step it went on from; 0 for the first */
    double budget_bytes[SL_LOG_TIERS];
    double predicted_tokens_per_s;
} sl_log_session;

typedef struct sl_log_hardware {
    const char *name;
    double peak_flops, memory_bandwidth;
} sl_log_hardware;

typedef struct sl_run_log {
    const char *model, *device, *numerics, *precision, *time, *costs, *limit, *reason; /* NULL: not in the log */
    const char *data[2]; /* what it was trained and validated on */
    int64_t parameters, tokens_per_step, seqlen, steps_wanted;
    sl_log_hardware hardware;
    sl_figures predicted, measured;
    double checkpoint_s; /* in all */
    int64_t n_checkpoints, timeline_step;
    sl_log_step *steps;
    sl_log_validation *validations;
    sl_log_sample *samples;
    sl_log_op *ops;    /* longest first */
    double op_seconds; /* of all of them */
    sl_log_action *actions;
    sl_log_place *places;
    sl_log_session *sessions; /* those of which steps are left; the last one is the plan's */
    int64_t n_steps, n_validations, n_samples, n_ops, n_actions, n_allocations, n_sessions;
    int64_t resumed_at; /* steps before it are of runs that ended, with other plans perhaps */
    double clip;        /* the gradient norm is limited to it; 0: it is not */
} sl_run_log;

/* ---- both ---- */

typedef struct sl_input {
    sl_region *region; /* owns everything below but the arrays of a log */
    const char *path;
    sl_run_log *log; /* one of the two */
    sl_tables *tables;
    bool cut; /* the last line had no end and was left out */
} sl_input;

/* `path` may be a run's folder. */
sl_status sl_input_read(const char *path, sl_input **input);
/* `path` is for messages. */
sl_status sl_input_parse(const char *path, const char *text, size_t length, sl_input **input);
void sl_input_destroy(sl_input *input);

/* Seconds of a step, as the run's own figures count it: the median since the last resume without its first, of what there is where
 * there is no other. */
double sl_log_median_step(const sl_run_log *log);

#endif
