/* Inside `sluice sweep`: the grid, and one of its cells. */
#ifndef SL_CLI_SWEEP_H
#define SL_CLI_SWEEP_H

#include "core/json.h"
#include "core/options.h"
#include "plan/plan.h"

typedef struct sl_sweep_cell {
    const char *model;
    int64_t seqlen;
    size_t budget[SL_TIER_COUNT]; /* SIZE_MAX: not limited */
    const char *key;              /* names it in the file, the model in full */
    bool done;
} sl_sweep_cell;

typedef struct sl_sweep_grid {
    sl_region *region; /* owns the cells */
    sl_sweep_cell *cells;
    int64_t count;
} sl_sweep_grid;

/* The options of `sluice train`, with lists where a sweep takes them, and a sweep's own. Made on first use. */
const sl_option *sl_sweep_table(int64_t *count);
/* A budget as an option takes it: bytes, or "unlimited". */
const char *sl_sweep_budget(size_t bytes, char out[32]);
/* Every combination of --model, --seqlen, --device-mem and --host-mem. */
sl_status sl_sweep_grid_create(const sl_options *options, sl_sweep_grid *grid);
/* A list of numbers or sizes: "8k,16k", "24GiB", "16GiB:80GiB:8GiB" (from:to:step). The first `most` are kept in out. */
sl_status sl_sweep_list(const char *name, const char *text, bool bytes, int64_t *out, int64_t most, int64_t *count);

/* What came out, small enough to go through a pipe in one piece. */
typedef struct sl_sweep_result {
    sl_status status; /* SL_OK, SL_E_DOES_NOT_FIT, or why there is no answer */
    sl_summary predicted, measured;
    size_t min_bytes[SL_TIER_COUNT];
    double lower_bound_s, seconds;
    int64_t rounds, chunks_per_round, parameters, tokens, steps;
    char limit[24], error[512];
} sl_sweep_result;

/* Plans a cell, or with `run` trains it for --steps. Never fails: failures are results. */
void sl_sweep_cell_run(const sl_options *options, const sl_sweep_cell *cell, bool run, sl_sweep_result *result);
/* Can the cell's job be resolved at all? Asked for each model and sequence length before anything is planned. */
sl_status sl_sweep_cell_check(const sl_options *options, const sl_sweep_cell *cell, bool *measures);
/* The file's columns and a result as members of the open object. */
void sl_sweep_put_columns(sl_json_writer *w, bool run);
void sl_sweep_put_result(sl_json_writer *w, const sl_sweep_cell *cell, const sl_sweep_result *result, bool run);

#endif
