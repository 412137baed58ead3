/* One cell: a job of its own, planned or run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep.h"
#include "core/clock.h"
#include "train/prepare.h"
#include "train/summary.h"
#include "train/trainer.h"

/* ---- the job ---- */

static sl_status make_job(const sl_options *options, const sl_sweep_cell *cell, sl_job **out)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    char seqlen[32], budgets[SL_TIER_COUNT][32];
    sl_job *job;
    sl_status status = SL_OK;
    SL_TRY(sl_job_create(&job));
    snprintf(seqlen, sizeof seqlen, "%lld", (long long) cell->seqlen);
    const char *const own[][2] = {
        {"model", cell->model},
        {"seqlen", seqlen},
        {"device-mem", sl_sweep_budget(cell->budget[SL_TIER_DEVICE], budgets[SL_TIER_DEVICE])},
        {"host-mem", sl_sweep_budget(cell->budget[SL_TIER_HOST], budgets[SL_TIER_HOST])}};
    int64_t known;
    const sl_option *sweep = sl_sweep_table(&known);
    for (int64_t i = 0; i < count && status == SL_OK; i++) {
        const char *name = table[i].name, *value = NULL;
        for (int64_t k = 0; k < known; k++) /* what both have, if it was given */
            if (strcmp(sweep[k].name, name) == 0 && sl_options_is_set(options, name))
                value = sl_options_string(options, name);
        if (strcmp(name, "out") == 0 || strcmp(name, "config") == 0)
            value = NULL;
        for (int64_t k = 0; k < SL_COUNT(own); k++)
            if (strcmp(own[k][0], name) == 0)
                value = own[k][1];
        if (value)
            status = sl_job_set(job, name, value);
    }
    if (status != SL_OK) {
        sl_job_destroy(job);
        return status;
    }
    *out = job;
    return SL_OK;
}

sl_status sl_sweep_cell_check(const sl_options *options, const sl_sweep_cell *cell, bool *measures)
{
    sl_job *job;
    sl_setup setup;
    SL_TRY(make_job(options, cell, &job));
    sl_status status = sl_setup_resolve(job, &setup);
    if (status == SL_OK)
        *measures = setup.measured;
    sl_job_destroy(job);
    return status;
}

/* ---- planned ---- */

static sl_status plan_cell(const sl_job *job, sl_sweep_result *r)
{
    sl_setup setup;
    sl_prepared p = {0};
    SL_TRY(sl_setup_resolve(job, &setup));
    setup.val_every = 0;
    sl_status status = sl_prepare(&setup, &p);
    if (p.program)
        r->tokens = p.program->tokens;
    r->parameters = sl_model_parameters(&setup.model);
    if (status == SL_OK) {
        r->predicted = p.plan->predicted;
        sl_prepared_peaks(&p, r->predicted.peak_bytes);
        r->lower_bound_s = p.plan->lower_bound_s;
        r->rounds = p.program->n_rounds;
        r->chunks_per_round = p.program->config.chunks_per_round;
        snprintf(r->limit, sizeof r->limit, "%s", sl_limit_name(p.plan->limit));
    }
    memcpy(r->min_bytes, p.min_bytes, sizeof r->min_bytes);
    sl_prepared_destroy(&p);
    return status;
}

/* ---- run ---- */

static sl_status train_cell(const sl_job *job, sl_sweep_result *r)
{
    sl_trainer *trainer;
    sl_trainer_view view;
    sl_step_result step = SL_SIZED(sl_step_result);
    sl_status status = sl_trainer_create(job, &trainer);
    if (status == SL_E_DOES_NOT_FIT) { /* again, for the budgets that would do */
        SL_TRY(plan_cell(job, r));
        return sl_fail(SL_E_INTERNAL, "the plan fits but the run does not");
    }
    SL_TRY(status);
    while (status == SL_OK && !step.done)
        status = sl_trainer_step(trainer, &step);
    if (status == SL_OK) {
        sl_trainer_look(trainer, &view);
        r->predicted = view.predicted;
        r->measured = view.measured;
        r->lower_bound_s = view.lower_bound_s;
        r->rounds = view.rounds;
        r->chunks_per_round = SL_DIV_UP(view.chunks, SL_MAX(view.rounds, 1));
        r->parameters = view.parameters;
        r->tokens = view.tokens;
        r->steps = view.step;
        snprintf(r->limit, sizeof r->limit, "%s", view.limit);
    }
    sl_trainer_destroy(trainer);
    return status;
}

void sl_sweep_cell_run(const sl_options *options, const sl_sweep_cell *cell, bool run, sl_sweep_result *r)
{
    sl_job *job;
    double start = sl_clock_s();
    *r = (sl_sweep_result){0};
    r->status = make_job(options, cell, &job);
    if (r->status == SL_OK) {
        r->status = run ? train_cell(job, r) : plan_cell(job, r);
        sl_job_destroy(job);
    }
    if (r->status != SL_OK)
        snprintf(r->error, sizeof r->error, "%s", sl_error_message());
    r->seconds = sl_clock_s() - start;
}

/* ---- the file ---- */

typedef struct column {
    const char *name, *unit;
} column;

void sl_sweep_put_columns(sl_json_writer *w, bool run)
{
    static const column columns[] = {{"cell", ""},
                                     {"model", ""},
                                     {"seqlen", "tokens"},
                                     {"device_budget_bytes", "B"},
                                     {"host_budget_bytes", "B"},
                                     {"feasible", ""},
                                     {"tokens_per_s", "tok/s"},
                                     {"step_s", "s"},
                                     {"tflops", "TFLOP/s"},
                                     {"mfu", "share"},
                                     {"hfu", "share"},
                                     {"device_peak_bytes", "B"},
                                     {"host_peak_bytes", "B"},
                                     {"h2d_bytes_per_step", "B"},
                                     {"d2h_bytes_per_step", "B"},
                                     {"recompute_fraction", "share"},
                                     {"limit", ""},
                                     {"lower_bound_s", "s"},
                                     {"rounds", ""},
                                     {"chunks_per_round", ""},
                                     {"tokens_per_step", "tokens"},
                                     {"min_device_bytes", "B"},
                                     {"min_host_bytes", "B"},
                                     {"seconds", "s"},
                                     {"error", ""}};
    static const column measured[] = {{"predicted_step_s", "s"}, {"steps", ""}};
    sl_json_begin_array(w, "columns");
    for (int64_t i = 0; i < SL_COUNT(columns) + (run ? SL_COUNT(measured) : 0); i++) {
        const column *c = i < SL_COUNT(columns) ? &columns[i] : &measured[i - SL_COUNT(columns)];
        sl_json_begin_object(w, NULL);
        sl_json_put_string(w, "name", c->name);
        sl_json_put_string(w, "unit", c->unit);
        sl_json_end_object(w);
    }
    sl_json_end_array(w);
}

/* 0 stands for none, SIZE_MAX for no limit: both are null. */
static void put_bytes(sl_json_writer *w, const char *key, size_t bytes)
{
    if (bytes == 0 || bytes == SIZE_MAX)
        sl_json_put_null(w, key);
    else
        sl_json_put_i64(w, key, (int64_t) bytes);
}

static void put_figures(sl_json_writer *w, const sl_sweep_result *r, bool run)
{
    const sl_summary *s = run ? &r->measured : &r->predicted;
    sl_summary_put(s, w);
    sl_json_put_string(w, "limit", r->limit);
    sl_json_put_f64(w, "lower_bound_s", r->lower_bound_s);
    sl_json_put_i64(w, "rounds", r->rounds);
    sl_json_put_i64(w, "chunks_per_round", r->chunks_per_round);
    sl_json_put_i64(w, "tokens_per_step", r->tokens);
    if (run) {
        sl_json_put_f64(w, "predicted_step_s", r->predicted.step_s);
        sl_json_put_i64(w, "steps", r->steps);
    }
}

void sl_sweep_put_result(sl_json_writer *w, const sl_sweep_cell *cell, const sl_sweep_result *r, bool run)
{
    bool fits = r->status == SL_OK;
    sl_json_put_string(w, "cell", cell->key);
    sl_json_put_string(w, "model", cell->model);
    sl_json_put_i64(w, "seqlen", cell->seqlen);
    put_bytes(w, "device_budget_bytes", cell->budget[SL_TIER_DEVICE]);
    put_bytes(w, "host_budget_bytes", cell->budget[SL_TIER_HOST]);
    sl_json_put_bool(w, "feasible", fits);
    if (fits)
        put_figures(w, r, run);
    else if (r->status == SL_E_DOES_NOT_FIT) {
        sl_json_put_i64(w, "tokens_per_step", r->tokens);
        put_bytes(w, "min_device_bytes", r->min_bytes[SL_TIER_DEVICE]);
        put_bytes(w, "min_host_bytes", r->min_bytes[SL_TIER_HOST]);
    }
    sl_json_put_f64(w, "seconds", r->seconds);
    if (!fits)
        sl_json_put_string(w, "error", r->error);
}
