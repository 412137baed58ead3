/* The answer before the run. "Does not fit" is an answer too: the prediction then holds the smallest budgets that would do. */
#include "train/prediction.h"

#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/log.h"
#include "train/open_data.h"
#include "train/prepare.h"
#include "train/summary.h"

struct sl_prediction {
    sl_options *options; /* a copy: the job may go away */
    sl_setup setup;
    sl_prepared prepared;
    char why_not[1024];
    size_t min_bytes[SL_TIER_COUNT];
    double gib_more[SL_TIER_COUNT];
    sl_json_writer json;
};

void sl_prediction_view_of(const sl_prediction *f, sl_prediction_view *v)
{
    const sl_prepared *p = &f->prepared;
    const sl_chunking *c = &f->setup.program.chunking;
    *v = (sl_prediction_view){
        .feasible = p->plan != NULL,
        .why_not = p->plan ? NULL : f->why_not,
        .costs = p->costs->source,
        .device = f->setup.device,
        .precision = sl_precision_name(f->setup.program.precision),
        .model = &f->setup.model,
        .parameters = sl_model_parameters(&f->setup.model),
        .trained = sl_prepared_trained(p),
        .seqlen = c->seqlen,
        .sequences = c->sequences,
        .tokens = c->seqlen * c->sequences,
        .chunk_tokens = c->chunk_tokens,
        .chunks = p->program->n_chunks,
        .chunks_per_round = p->program->config.chunks_per_round,
        .rounds = p->program->n_rounds,
        .tasks = p->program->n_tasks,
        .plan_ms = 1e3 * p->plan_s,
    };
    memcpy(v->min_bytes, f->min_bytes, sizeof v->min_bytes);
    memcpy(v->both_bytes, f->prepared.both_bytes, sizeof v->both_bytes);
    memcpy(v->budget_bytes, f->prepared.budget, sizeof v->budget_bytes);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        v->unlimited_bytes[tier] = f->setup.share[tier] > 0 ? f->prepared.unlimited_bytes[tier] : 0;
    memcpy(v->gib_more, f->gib_more, sizeof v->gib_more);
    if (!p->plan)
        return;
    v->predicted = p->plan->predicted;
    sl_prepared_peaks(p, v->predicted.peak_bytes);
    memcpy(v->predicted.budget_bytes, f->prepared.budget, sizeof v->budget_bytes);
    v->lower_bound_s = p->plan->lower_bound_s;
    v->limit = sl_limit_name(p->plan->limit);
    v->actions = p->plan->n_actions;
}

/* 0 stands for "no budget of this tier would do". */
static void put_least(sl_json_writer *w, const char *key, size_t bytes)
{
    sl_json_put_bytes(w, key, bytes ? bytes : SIZE_MAX);
}

static void put_figures(sl_json_writer *w, const sl_prediction_view *v)
{
    sl_summary_put(&v->predicted, w);
    sl_json_put_f64(w, "lower_bound_s", v->lower_bound_s);
    sl_json_put_string(w, "limit", v->limit);
    sl_json_put_i64(w, "actions", v->actions);
}

static sl_status write_json(sl_prediction *f)
{
    sl_json_writer *w = &f->json;
    sl_prediction_view v;
    sl_prediction_view_of(f, &v);
    sl_json_begin_object(w, NULL);
    sl_json_put_bool(w, "feasible", v.feasible);
    put_least(w, "min_device_bytes", v.min_bytes[SL_TIER_DEVICE]);
    put_least(w, "min_host_bytes", v.min_bytes[SL_TIER_HOST]);
    sl_json_put_bytes(w, "device_budget_bytes", v.budget_bytes[SL_TIER_DEVICE]);
    sl_json_put_bytes(w, "host_budget_bytes", v.budget_bytes[SL_TIER_HOST]);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (v.unlimited_bytes[tier])
            sl_json_put_bytes(w, tier == SL_TIER_DEVICE ? "device_unlimited_bytes" : "host_unlimited_bytes",
                              v.unlimited_bytes[tier]);
    if (v.feasible)
        put_figures(w, &v);
    else
        sl_json_put_string(w, "why_not", v.why_not);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (v.gib_more[tier] > 0)
            sl_json_put_f64(w,
                            tier == SL_TIER_DEVICE ? "speed_with_one_gib_more_device" : "speed_with_one_gib_more_host",
                            v.gib_more[tier]);
    sl_json_put_f64(w, "plan_ms", v.plan_ms);
    sl_json_put_string(w, "costs", v.costs);
    sl_json_put_string(w, "model", v.model->name);
    sl_json_put_string(w, "device", v.device);
    sl_json_put_string(w, "precision", v.precision);
    sl_json_put_i64(w, "parameters", v.parameters);
    sl_json_put_i64(w, "trained_parameters", v.trained);
    sl_json_put_i64(w, "seqlen", v.seqlen);
    sl_json_put_i64(w, "tokens_per_step", v.tokens);
    sl_json_put_i64(w, "chunk_tokens", v.chunk_tokens);
    sl_json_put_i64(w, "chunks", v.chunks);
    sl_json_put_i64(w, "chunks_per_round", v.chunks_per_round);
    sl_json_put_i64(w, "rounds", v.rounds);
    sl_json_put_i64(w, "tasks", v.tasks);
    sl_json_end_object(w);
    return sl_text_status(&w->text);
}

/* What one GiB more would bring: planned again, where that takes no time worth mentioning. */
static void ask_for_more(sl_prediction *f, sl_tier tier)
{
    enum { GIB = 1 << 30 };
    const double quick_s = 0.3;
    sl_setup setup = f->setup;
    sl_prepared more = {0};
    if (setup.budget[tier] == SIZE_MAX && setup.share[tier] == 0)
        return;
    if (f->prepared.plan_s > quick_s)
        return;
    for (int i = 0; i < SL_TIER_COUNT; i++)
        if (setup.share[i] > 0)
            setup.budget[i] = f->prepared.budget[i], setup.share[i] = 0;
    setup.budget[tier] += GIB;
    setup.val_every = setup.sample_every = 0;
    setup.hooks.progress = NULL;
    more.memo = f->prepared.memo; /* lent */
    if (sl_prepare(&setup, &more) == SL_OK)
        f->gib_more[tier] = more.plan->predicted.tokens_per_s / f->prepared.plan->predicted.tokens_per_s;
    f->prepared.memo = more.memo;
    more.memo = (sl_cost_memo){0};
    sl_prepared_destroy(&more);
}

/* Data decides how many segments a plan has, and how much of the heap it takes. A plan is made elsewhere, too. */
static sl_status look_at_data(sl_setup *setup)
{
    sl_source *source;
    if (!sl_data_given(setup))
        return SL_OK;
    sl_status status = sl_data_open(setup, &source);
    if (status == SL_E_IO && setup->data) {
        sl_warn("%s; this plan takes sequences as whole, without the documents of the data", sl_error_message());
        return SL_OK;
    }
    SL_TRY(status);
    sl_data_close(setup, source);
    return SL_OK;
}

static sl_status prediction(sl_prediction *f)
{
    SL_TRY(look_at_data(&f->setup));
    sl_status status = sl_prepare(&f->setup, &f->prepared);
    if (status == SL_E_DOES_NOT_FIT && f->prepared.costs) { /* an answer too */
        snprintf(f->why_not, sizeof f->why_not, "%s", sl_error_message());
        memcpy(f->min_bytes, f->prepared.min_bytes, sizeof f->min_bytes);
        return write_json(f);
    }
    SL_TRY(status);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        SL_TRY(sl_prepared_minimum(&f->setup, &f->prepared, (sl_tier) tier, &f->min_bytes[tier]));
        ask_for_more(f, (sl_tier) tier);
    }
    return write_json(f);
}

sl_status sl_prediction_create(const sl_job *job, sl_prediction **out)
{
    sl_prediction *f;
    sl_status status;
    SL_TRY(sl_alloc(&f, 1, sizeof *f));
    SL_TRY_GOTO(sl_options_copy(job->options, &f->options), fail);
    SL_TRY_GOTO(sl_setup_resolve(&(sl_job){f->options, job->hooks}, &f->setup), fail);
    SL_TRY_GOTO(prediction(f), fail);
    *out = f;
    return SL_OK;
fail:
    sl_prediction_destroy(f);
    return status;
}

void sl_prediction_destroy(sl_prediction *f)
{
    if (!f)
        return;
    sl_prepared_destroy(&f->prepared);
    sl_options_destroy(f->options);
    sl_text_free(&f->json.text);
    sl_free(f);
}

const char *sl_prediction_json(const sl_prediction *f)
{
    return f->json.text.data;
}
