/* From options to cells. Where a job takes one value a sweep takes a list; all other options are the job's own. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep.h"
#include "train/job.h"

enum { MOST_OPTIONS = 96, MOST_VALUES = 4096, MOST_CELLS = 1 << 20 };

/* Replaces or adds to the job's options. */
static const sl_option own[] = {
    {"model", "NAME|PATH[,...]", SL_OPT_STRING, NULL, "Grid",
     "Models: presets (`sluice models`), config.json files or folders."},
    {"seqlen", "TOKENS[,...]", SL_OPT_STRING, "256", "Grid", "Sequence lengths: 4k,8k,16k."},
    {"device-mem", "BYTES[,...]", SL_OPT_STRING, "unlimited", "Grid",
     "Budgets of device memory: 24GiB,40GiB, or from:to:step as in 16GiB:80GiB:8GiB."},
    {"host-mem", "BYTES[,...]", SL_OPT_STRING, "unlimited", "Grid", "Budgets of host memory, likewise."},
    {"run", NULL, SL_OPT_FLAG, "false", "Grid",
     "Train each cell for --steps on --data instead of only planning it; one after the other, on this machine."},
    {"jobs", "N", SL_OPT_I64, "0", "Grid",
     "Cells planned at the same time; 0: one per core. Runs and measured costs take one."},
    {"out", "FILE", SL_OPT_STRING, "sweep.jsonl", "Files",
     "A line for each finished cell. A sweep that was stopped continues; the same file takes a larger grid too."},
    {"csv", "FILE", SL_OPT_STRING, NULL, "Files", "Write all cells of the file as CSV at the end."},
    {"force", NULL, SL_OPT_FLAG, "false", "Files", "Start --out over."},
};

/* A sweep writes no run folders. */
static bool left_out(const char *name)
{
    static const char *const names[] = {"checkpoint-every", "keep", "resume", "json"};
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    for (int64_t i = 0; i < SL_COUNT(own); i++)
        if (strcmp(own[i].name, name) == 0)
            return true;
    return false;
}

const sl_option *sl_sweep_table(int64_t *count)
{
    static sl_option table[MOST_OPTIONS];
    static int64_t filled;
    int64_t jobs;
    const sl_option *job = sl_job_table(&jobs);
    if (!filled) {
        for (int64_t i = 0; i < SL_COUNT(own); i++)
            table[filled++] = own[i];
        for (int64_t i = 0; i < jobs && filled < MOST_OPTIONS; i++)
            if (!left_out(job[i].name))
                table[filled++] = job[i];
    }
    *count = filled;
    return table;
}

/* ---- lists ---- */

static sl_status parse_value(const char *name, const char *text, bool bytes, int64_t *out)
{
    size_t size = 0;
    sl_status status = bytes ? sl_parse_bytes(text, &size) : sl_parse_i64(text, out);
    if (status == SL_OK && bytes)
        *out = size > INT64_MAX ? INT64_MAX : (int64_t) size;
    return status == SL_OK ? SL_OK : sl_fail_at(status, "--%s", name);
}

static sl_status append(const char *name, int64_t value, int64_t *out, int64_t most, int64_t *count)
{
    if (value <= 0)
        return sl_fail(SL_E_USAGE, "--%s %" PRId64 " is too small: give at least 1", name, value);
    if (*count == most)
        return sl_fail(SL_E_USAGE, "--%s has more than %" PRId64 " values: sweep a coarser grid", name, most);
    for (int64_t i = 0; i < *count; i++)
        if (out[i] == value)
            return SL_OK; /* twice the same is once */
    out[(*count)++] = value;
    return SL_OK;
}

/* from:to:step, `to` included where it is met. */
static sl_status append_range(const char *name, char *text, bool bytes, int64_t *out, int64_t most, int64_t *count)
{
    char *parts[3] = {text, strchr(text, ':'), NULL};
    int64_t from, to, step;
    *parts[1]++ = 0;
    parts[2] = strchr(parts[1], ':');
    if (!parts[2])
        return sl_fail(SL_E_USAGE, "--%s %s:%s: a range is from:to:step, such as 16GiB:80GiB:8GiB", name, text,
                       parts[1]);
    *parts[2]++ = 0;
    SL_TRY(parse_value(name, parts[0], bytes, &from));
    SL_TRY(parse_value(name, parts[1], bytes, &to));
    SL_TRY(parse_value(name, parts[2], bytes, &step));
    if (step <= 0 || to < from || to == INT64_MAX)
        return sl_fail(SL_E_USAGE, "--%s %s:%s:%s: a range goes up, in steps greater than 0, to an end", name, parts[0],
                       parts[1], parts[2]);
    for (int64_t value = from;; value += step) {
        SL_TRY(append(name, value, out, most, count));
        if (value > to - step)
            return SL_OK;
    }
}

sl_status sl_sweep_list(const char *name, const char *text, bool bytes, int64_t *out, int64_t most, int64_t *count)
{
    char item[128];
    *count = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof item)
            return sl_fail(SL_E_USAGE, "--%s %s: a value is missing or too long; give a list such as %s", name, text,
                           bytes ? "24GiB,40GiB" : "4096,8192");
        memcpy(item, at, length);
        item[length] = 0;
        int64_t value;
        if (strchr(item, ':'))
            SL_TRY(append_range(name, item, bytes, out, most, count));
        else {
            SL_TRY(parse_value(name, item, bytes, &value));
            SL_TRY(append(name, value, out, most, count));
        }
        at += length;
        if (!*at)
            return SL_OK;
    }
}

/* ---- the grid ---- */

const char *sl_sweep_budget(size_t bytes, char out[32])
{
    if (bytes == SIZE_MAX)
        return "unlimited";
    snprintf(out, 32, "%zu", bytes);
    return out;
}

static sl_status name_cell(sl_region *region, sl_sweep_cell *cell)
{
    char device[32], host[32];
    return sl_region_printf(region, &cell->key, "%s seqlen=%" PRId64 " device=%s host=%s", cell->model, cell->seqlen,
                            sl_sweep_budget(cell->budget[SL_TIER_DEVICE], device),
                            sl_sweep_budget(cell->budget[SL_TIER_HOST], host));
}

typedef struct lists {
    const char *models[64];
    int64_t seqlens[MOST_VALUES], budgets[SL_TIER_COUNT][MOST_VALUES];
    int64_t n_models, n_seqlens, n_budgets[SL_TIER_COUNT];
} lists;

static sl_status read_models(const sl_options *options, sl_region *region, lists *l)
{
    const char *text = sl_options_string(options, "model");
    if (!text)
        return sl_fail(
            SL_E_USAGE,
            "sweep needs --model: sluice sweep --model llama3-8b --seqlen 8k --hw h100 --device-mem 24GiB,40GiB");
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (length == 0)
            return sl_fail(SL_E_USAGE, "--model %s: a name is missing", text);
        if (l->n_models == SL_COUNT(l->models))
            return sl_fail(SL_E_USAGE, "--model names more than %d models", (int) SL_COUNT(l->models));
        SL_TRY(sl_region_printf(region, &l->models[l->n_models++], "%.*s", (int) length, at));
        at += length;
        if (!*at)
            return SL_OK;
    }
}

static size_t as_budget(int64_t value)
{
    return value == INT64_MAX ? SIZE_MAX : (size_t) value;
}

static sl_status fill_grid(const lists *l, sl_sweep_grid *grid)
{
    double all = (double) l->n_models * (double) l->n_seqlens * (double) l->n_budgets[0] * (double) l->n_budgets[1];
    if (all > MOST_CELLS)
        return sl_fail(SL_E_USAGE, "the grid has %.0f cells: at most %d, sweep a coarser one", all, MOST_CELLS);
    SL_TRY(sl_region_alloc(grid->region, &grid->cells, (int64_t) all, sizeof *grid->cells));
    for (int64_t m = 0; m < l->n_models; m++)
        for (int64_t s = 0; s < l->n_seqlens; s++)
            for (int64_t h = 0; h < l->n_budgets[SL_TIER_HOST]; h++)
                for (int64_t d = 0; d < l->n_budgets[SL_TIER_DEVICE]; d++) {
                    sl_sweep_cell *cell = &grid->cells[grid->count++];
                    cell->model = l->models[m];
                    cell->seqlen = l->seqlens[s];
                    cell->budget[SL_TIER_DEVICE] = as_budget(l->budgets[SL_TIER_DEVICE][d]);
                    cell->budget[SL_TIER_HOST] = as_budget(l->budgets[SL_TIER_HOST][h]);
                    SL_TRY(name_cell(grid->region, cell));
                }
    return SL_OK;
}

sl_status sl_sweep_grid_create(const sl_options *options, sl_sweep_grid *grid)
{
    static const char *const memories[SL_TIER_COUNT] = {"device-mem", "host-mem"};
    lists *l;
    *grid = (sl_sweep_grid){0};
    SL_TRY(sl_region_create(&grid->region));
    sl_status status = sl_region_alloc(grid->region, &l, 1, sizeof *l);
    if (status == SL_OK)
        status = read_models(options, grid->region, l);
    if (status == SL_OK)
        status = sl_sweep_list("seqlen", sl_options_string(options, "seqlen"), false, l->seqlens, MOST_VALUES,
                               &l->n_seqlens);
    for (int tier = 0; tier < SL_TIER_COUNT && status == SL_OK; tier++)
        status = sl_sweep_list(memories[tier], sl_options_string(options, memories[tier]), true, l->budgets[tier],
                               MOST_VALUES, &l->n_budgets[tier]);
    if (status == SL_OK)
        status = fill_grid(l, grid);
    if (status != SL_OK)
        sl_region_destroy(grid->region);
    return status;
}
