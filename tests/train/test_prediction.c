/* The prediction's JSON holds every figure of the view under its name, and no other. So does the public struct. */
#include "run_job.h"

typedef struct figure {
    const char *key;
    double value;
} figure;

static void check_figures(const sl_prediction *prediction, const sl_prediction_view *v)
{
    sl_prediction_figures f = SL_SIZED(sl_prediction_figures);
    const sl_summary *s = &v->predicted;
    CHECK_OK(sl_prediction_get(prediction, &f));
    CHECK(f.feasible == v->feasible && f.why_not == v->why_not && f.limit == v->limit && f.costs == v->costs &&
          f.device == v->device && f.precision == v->precision);
    CHECK(f.device_budget_bytes == v->budget_bytes[SL_TIER_DEVICE] &&
          f.host_budget_bytes == v->budget_bytes[SL_TIER_HOST]);
    CHECK(f.device_min_bytes == v->min_bytes[SL_TIER_DEVICE] && f.host_min_bytes == v->min_bytes[SL_TIER_HOST]);
    CHECK(f.device_both_bytes == v->both_bytes[SL_TIER_DEVICE] && f.host_both_bytes == v->both_bytes[SL_TIER_HOST]);
    CHECK(f.device_peak_bytes == s->peak_bytes[SL_TIER_DEVICE] && f.host_peak_bytes == s->peak_bytes[SL_TIER_HOST]);
    CHECK(f.host_to_device_bytes == s->link_bytes[SL_LINK_IN] && f.device_to_host_bytes == s->link_bytes[SL_LINK_OUT]);
    CHECK(f.step_s == s->step_s && f.tokens_per_s == s->tokens_per_s && f.mfu == s->mfu);
    CHECK(f.lower_bound_s == v->lower_bound_s && f.recomputed == s->recompute_fraction);
    CHECK_NEAR(f.plan_s, v->plan_ms / 1000, 1e-12);
    CHECK(f.parameters == v->parameters && f.seqlen == v->seqlen && f.tokens_per_step == v->tokens &&
          f.chunks == v->chunks && f.rounds == v->rounds);
}

static void check_json(const char *options)
{
    sl_job *job = make_job(options);
    sl_prediction *prediction;
    sl_prediction_view v;
    sl_region *region;
    const sl_json *root;
    CHECK_OK(sl_prediction_create(job, &prediction));
    sl_prediction_view_of(prediction, &v);
    check_figures(prediction, &v);
    const char *json = sl_prediction_json(prediction);
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "prediction", json, strlen(json), &root));
    const double always[] = {(double) v.parameters,   (double) v.seqlen, (double) v.tokens,
                             (double) v.chunk_tokens, (double) v.chunks, (double) v.chunks_per_round,
                             (double) v.rounds,       (double) v.tasks,  v.plan_ms,
                             (double) v.trained};
    static const char *const always_keys[] = {
        "parameters",       "seqlen", "tokens_per_step", "chunk_tokens", "chunks",
        "chunks_per_round", "rounds", "tasks",           "plan_ms",      "trained_parameters"};
    CHECK_I64(v.trained, v.parameters);
    const sl_summary *s = &v.predicted;
    const double planned[] = {s->step_s,
                              s->tokens_per_s,
                              s->tflops,
                              s->mfu,
                              s->hfu,
                              (double) s->peak_bytes[SL_TIER_DEVICE],
                              (double) s->peak_bytes[SL_TIER_HOST],
                              s->link_bytes[SL_LINK_IN],
                              s->link_bytes[SL_LINK_OUT],
                              s->recompute_fraction,
                              v.lower_bound_s,
                              (double) v.actions};
    static const char *const planned_keys[] = {"step_s",
                                               "tokens_per_s",
                                               "tflops",
                                               "mfu",
                                               "hfu",
                                               "device_peak_bytes",
                                               "host_peak_bytes",
                                               "h2d_bytes_per_step",
                                               "d2h_bytes_per_step",
                                               "recompute_fraction",
                                               "lower_bound_s",
                                               "actions"};
    /* Bytes: `none` is written as null, and so is a key that may be absent left out. */
    static const char *const tier[SL_TIER_COUNT] = {"device", "host"};
    int64_t members = 0, expected = 0;
    for (int64_t i = 0; i < SL_COUNT(always); i++) {
        const sl_json *member = sl_json_get(root, always_keys[i]);
        CHECK_MSG(member && member->kind == SL_JSON_NUMBER && member->number == always[i], "%s: %s is not %.17g",
                  options, always_keys[i], always[i]);
        expected++;
    }
    for (int64_t i = 0; i < SL_COUNT(planned); i++) {
        const sl_json *member = sl_json_get(root, planned_keys[i]);
        CHECK_MSG(v.feasible ? member && member->number == planned[i] : !member, "%s: %s is not %.17g", options,
                  planned_keys[i], planned[i]);
        expected += v.feasible;
    }
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        char key[64];
        const sl_json *member;
        snprintf(key, sizeof key, "min_%s_bytes", tier[t]);
        member = sl_json_get(root, key);
        CHECK(member && (v.min_bytes[t] ? member->number == (double) v.min_bytes[t] : member->kind == SL_JSON_NULL));
        snprintf(key, sizeof key, "%s_budget_bytes", tier[t]);
        member = sl_json_get(root, key);
        CHECK(member && (v.budget_bytes[t] == SIZE_MAX ? member->kind == SL_JSON_NULL
                                                       : member->number == (double) v.budget_bytes[t]));
        snprintf(key, sizeof key, "%s_unlimited_bytes", tier[t]);
        member = sl_json_get(root, key);
        CHECK(v.unlimited_bytes[t] ? member && member->number == (double) v.unlimited_bytes[t] : !member);
        snprintf(key, sizeof key, "speed_with_one_gib_more_%s", tier[t]);
        member = sl_json_get(root, key);
        CHECK(v.gib_more[t] > 0 ? member && member->number == v.gib_more[t] : !member);
        expected += 2 + (v.unlimited_bytes[t] > 0) + (v.gib_more[t] > 0);
    }
    const char *text;
    CHECK_OK(sl_json_string_or("prediction", root, "model", "", &text));
    CHECK_STR(text, v.model->name);
    CHECK_OK(sl_json_string_or("prediction", root, "device", "", &text));
    CHECK_STR(text, v.device);
    CHECK_OK(sl_json_string_or("prediction", root, "precision", "", &text));
    CHECK_STR(text, v.precision);
    CHECK_OK(sl_json_string_or("prediction", root, "costs", "", &text));
    CHECK_STR(text, v.costs);
    CHECK_OK(sl_json_string_or("prediction", root, v.feasible ? "limit" : "why_not", "", &text));
    CHECK_STR(text, v.feasible ? v.limit : v.why_not);
    const sl_json *feasible = sl_json_get(root, "feasible");
    CHECK(feasible && feasible->kind == SL_JSON_BOOL && feasible->boolean == v.feasible);
    expected += 6;
    for (const sl_json *member = root->child; member; member = member->next)
        members++;
    CHECK_MSG(members == expected, "%s: %d members, not %d: %s", options, (int) members, (int) expected, json);
    sl_region_destroy(region);
    sl_prediction_destroy(prediction);
    sl_job_destroy(job);
}

TEST(json_and_view_agree)
{
    static const char *const jobs[] = {
        "precision f32",  "device-mem 3MiB", "device-mem 3MiB host-mem 64MiB", "host-mem 64MiB",
        "device-mem 60%", "host-mem 90%",    "device-mem 60% host-mem 150%",   "device-mem 1% host-mem 64MiB",
        "device-mem 1"};
    for (int64_t i = 0; i < SL_COUNT(jobs); i++)
        check_json(jobs[i]);
}

static void view_of(const char *options, sl_prediction **prediction, sl_prediction_view *view)
{
    sl_job *job = make_job(options);
    CHECK_OK(sl_prediction_create(job, prediction));
    sl_prediction_view_of(*prediction, view);
    sl_job_destroy(job);
}

static void check_trained(const char *options)
{
    sl_prediction *prediction;
    sl_prediction_view plan;
    sl_trainer *trainer;
    sl_trainer_view run;
    view_of(options, &prediction, &plan);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &trainer));
    sl_trainer_look(trainer, &run);
    const sl_summary *p = &plan.predicted, *r = &run.predicted;
    CHECK_MSG(plan.feasible && p->step_s == r->step_s && plan.lower_bound_s == run.lower_bound_s,
              "%s: a step of %.9g, the run's plan has %.9g", options, p->step_s, r->step_s);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        CHECK_MSG(p->peak_bytes[tier] == r->peak_bytes[tier], "%s, tier %d: a peak of %zu, the run's plan has %zu",
                  options, tier, p->peak_bytes[tier], r->peak_bytes[tier]);
    CHECK_I64(plan.chunks, run.chunks);
    CHECK_I64(plan.chunk_tokens, run.chunk_tokens);
    CHECK_I64(plan.rounds, run.rounds);
    CHECK(memcmp(p->link_bytes, r->link_bytes, sizeof p->link_bytes) == 0);
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    sl_prediction_destroy(prediction);
}

/* Packed documents are segments of the plan, so a plan of the data is that of the run, and one without data is another. */
TEST(plans_what_is_trained)
{
    char options[1600], records[24000] = "";
    sl_prediction *with, *without;
    sl_prediction_view a, b;
    for (int i = 0; i < 400; i++)
        snprintf(records + strlen(records), sizeof records - strlen(records),
                 "{\"prompt\": \"%d\", \"completion\": \"x\"}\n", i);
    CHECK_OK(sl_file_write_atomic(test_path("short.jsonl"), records, strlen(records)));
    const char *const more[] = {"", "device-mem 70%", "chunk-tokens 16", "val-every 2 val-share 0.3",
                                "seqlen 256 tokens-per-step 512 chunk-tokens 512"};
    for (int64_t i = 0; i < SL_COUNT(more); i++) {
        snprintf(options, sizeof options, "costs roofline data '%s' cache '%s' %s", test_path("short.jsonl"),
                 test_path("tokens"), more[i]);
        check_trained(options);
    }
    check_trained("costs roofline mask-documents true document-token 32");
    check_trained("costs roofline data-format bytes");
    snprintf(options, sizeof options, "costs roofline data '%s' cache '%s' %s", test_path("short.jsonl"),
             test_path("tokens"), more[4]);
    view_of(options, &with, &a);
    snprintf(options, sizeof options, "costs roofline %s", more[4]);
    view_of(options, &without, &b);
    CHECK(a.predicted.peak_bytes[SL_TIER_DEVICE] > b.predicted.peak_bytes[SL_TIER_DEVICE]);
    sl_prediction_destroy(with);
    sl_prediction_destroy(without);
    sl_job *job = make_job("data-format jsonl"); /* there is something wrong with it: the run would say so, too */
    CHECK_FAILS(sl_prediction_create(job, &with), SL_E_FORMAT);
    sl_job_destroy(job);
}

/* What one GiB more brings is what planning with it says. The planner asks only where that takes no time. */
TEST(one_gib_more)
{
    sl_prediction_view tight, more;
    prediction_job("device-mem 2MiB", &tight);
    prediction_job("device-mem 1026MiB", &more);
    REQUIRE(tight.feasible && more.feasible);
    CHECK(tight.gib_more[SL_TIER_HOST] == 0);
    if (tight.gib_more[SL_TIER_DEVICE] > 0)
        CHECK_NEAR(tight.gib_more[SL_TIER_DEVICE], more.predicted.tokens_per_s / tight.predicted.tokens_per_s, 1e-12);
    CHECK(more.predicted.tokens_per_s >= tight.predicted.tokens_per_s);
}

/* Which tier's budget has to grow: either, one of them, or both. */
TEST(why_it_does_not_fit)
{
    static const struct {
        const char *options, *want[2];
        bool device, host;
    } jobs[] = {{"device-mem 1", {"at least ", " of device memory would do"}, true, false},
                {"host-mem 1", {"at least ", " of host memory would do"}, false, true},
                {"device-mem 1 host-mem 1", {"neither alone is enough, ", " together would do"}, false, false}};
    for (int64_t i = 0; i < SL_COUNT(jobs); i++) {
        sl_job *job = make_job(jobs[i].options);
        sl_prediction *prediction;
        sl_prediction_view v;
        CHECK_OK(sl_prediction_create(job, &prediction));
        sl_prediction_view_of(prediction, &v);
        REQUIRE(!v.feasible);
        check_figures(prediction, &v);
        for (int k = 0; k < 2; k++)
            CHECK_CONTAINS(v.why_not, jobs[i].want[k]);
        CHECK((v.min_bytes[SL_TIER_DEVICE] > 0) == jobs[i].device && (v.min_bytes[SL_TIER_HOST] > 0) == jobs[i].host);
        const bool both = !jobs[i].device && !jobs[i].host;
        CHECK((v.both_bytes[SL_TIER_DEVICE] > 0) == both && (v.both_bytes[SL_TIER_HOST] > 0) == both);
        sl_prediction_destroy(prediction);
        sl_job_destroy(job);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(json_and_view_agree);
    RUN(plans_what_is_trained);
    RUN(one_gib_more);
    RUN(why_it_does_not_fit);
    return test_end();
}
