/* Budgets as shares of what a job takes without budgets, budgets larger than that, and the example's budget on every device. */
#include "run_job.h"
#include "train/prepare.h"

TEST(a_share_is_of_the_plan_without_budgets)
{
    sl_prediction_view free, view;
    static const char *const jobs[] = {"seed 1", "val-every 1 val-share 0.3 val-steps 2", "costs measured"};
    for (int64_t i = 0; i < SL_COUNT(jobs); i++) {
        char options[256];
        snprintf(options, sizeof options, "%s costs roofline", jobs[i]);
        prediction_job(options, &free);
        CHECK(free.feasible && free.unlimited_bytes[SL_TIER_DEVICE] == 0);
        const size_t *takes = free.predicted.peak_bytes;
        snprintf(options, sizeof options, "%s device-mem 50%% host-mem 1000%%", jobs[i]);
        prediction_job(options, &view);
        CHECK_MSG(view.feasible, "%s: %s", jobs[i], view.why_not);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            CHECK_U64(view.unlimited_bytes[tier], takes[tier]);
        CHECK_U64(view.budget_bytes[SL_TIER_DEVICE], takes[SL_TIER_DEVICE] / 2);
        CHECK_U64(view.budget_bytes[SL_TIER_HOST], 10 * takes[SL_TIER_HOST]);
        CHECK(view.predicted.peak_bytes[SL_TIER_DEVICE] <= view.budget_bytes[SL_TIER_DEVICE]);
    }
}

TEST(too_small_a_share_names_one_that_fits)
{
    sl_prediction_view view;
    char options[128], percent[32];
    prediction_job("device-mem 1%", &view);
    CHECK(!view.feasible && view.min_bytes[SL_TIER_DEVICE] > 0);
    size_t least = view.min_bytes[SL_TIER_DEVICE], whole = view.unlimited_bytes[SL_TIER_DEVICE];
    snprintf(percent, sizeof percent, "%.1f%%", sl_percent_up(least, whole));
    snprintf(options, sizeof options, "device-mem %s", percent);
    prediction_job(options, &view);
    CHECK_MSG(view.feasible, "%s: %s", percent, view.why_not);
    snprintf(options, sizeof options, "device-mem %.1f%%", sl_percent_up(least, whole) - 0.1);
    prediction_job(options, &view);
    CHECK_MSG(!view.feasible, "%s are said to be the least, and a tenth less fits", percent);
    sl_job *job = make_job("device-mem 1%");
    sl_trainer *trainer;
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_DOES_NOT_FIT);
    CHECK_CONTAINS(sl_error_message(), percent);
    sl_job_destroy(job);
}

/* More than the job takes changes nothing: no byte more is mapped, whatever the budget says. */
TEST(large_budgets_are_not_used)
{
    static const char *const budgets[] = {
        "device-mem 1000%", "device-mem 100TiB", "device-mem 100TiB host-mem 100TiB",
        "host-mem 100TiB",  "device-mem 100%",   "device-mem 100TiB val-every 2 val-share 0.3 val-steps 2"};
    outcome free, run;
    run_job("seed 1", 100, &free);
    const size_t *takes = free.view.predicted.peak_bytes;
    for (int64_t i = 0; i < SL_COUNT(budgets); i++) {
        run_job(budgets[i], 100, &run);
        bool same = i < 5;
        CHECK_MSG(!same || same_run(&free, &run), "%s: other bits", budgets[i]);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            CHECK_MSG(!same || run.view.predicted.peak_bytes[tier] == takes[tier], "%s: tier %d takes %zu, not %zu",
                      budgets[i], tier, run.view.predicted.peak_bytes[tier], takes[tier]);
        CHECK_MSG(run.view.measured.peak_bytes[SL_TIER_DEVICE] <= takes[SL_TIER_DEVICE] * 11 / 10, "%s: %zu of %zu",
                  budgets[i], run.view.measured.peak_bytes[SL_TIER_DEVICE], takes[SL_TIER_DEVICE]);
    }
}

TEST(a_run_goes_on_in_another_share)
{
    outcome whole, part;
    char options[512];
    run_job("device-mem 70%", 100, &whole);
    snprintf(options, sizeof options, "device-mem 60%% out '%s' checkpoint-every 1", test_path("run"));
    run_job(options, 2, &part);
    snprintf(options, sizeof options, "device-mem 50%% out '%s' resume true", test_path("run"));
    run_job(options, 100, &part);
    CHECK_STR(part.hash, whole.hash);
    CHECK(part.view.unlimited_bytes[SL_TIER_DEVICE] > 0 &&
          part.view.budget_bytes[SL_TIER_DEVICE] == part.view.unlimited_bytes[SL_TIER_DEVICE] / 2);
}

/* `make run` is the first command anybody gives: its budget fits everywhere, and is one. */
TEST(the_example_fits_every_device)
{
    static const char *const devices[][2] = {
        {"hw", "h200"},    {"hw", "h100"}, {"hw", "a100"},   {"hw", "rtx5090"}, {"hw", "rtx4090"}, {"hw", "rtx3090"},
        {"device", "cpu"}, {"hw", "this"}, {"threads", "1"}, {"threads", "2"},  {"threads", "8"},  {"threads", "16"}};
    for (int64_t i = 0; i < SL_COUNT(devices); i++) {
        sl_job *job;
        sl_prediction *prediction;
        sl_prediction_view v;
        CHECK_OK(sl_job_create(&job));
        CHECK_OK(sl_job_set(job, "costs", "roofline"));
        CHECK_OK(sl_job_set(job, devices[i][0], devices[i][1]));
        CHECK_OK(sl_job_set(job, "config", SL_SOURCE_DIR "/examples/first-run.json"));
        CHECK_OK(sl_job_set(job, "data", SL_SOURCE_DIR "/README.md"));
        CHECK_OK(sl_prediction_create(job, &prediction));
        sl_prediction_view_of(prediction, &v);
        CHECK_MSG(v.feasible, "%s: %s", devices[i][1], v.why_not);
        CHECK_MSG(v.budget_bytes[SL_TIER_DEVICE] < 7 * (v.unlimited_bytes[SL_TIER_DEVICE] / 10),
                  "%s: a budget of %zu of %zu bytes", devices[i][1], v.budget_bytes[SL_TIER_DEVICE],
                  v.unlimited_bytes[SL_TIER_DEVICE]);
        CHECK_MSG(v.predicted.peak_bytes[SL_TIER_DEVICE] <= v.budget_bytes[SL_TIER_DEVICE], "%s: %zu bytes",
                  devices[i][1], v.predicted.peak_bytes[SL_TIER_DEVICE]);
        /* Some margin: libraries may take more than a profile says. */
        CHECK_MSG(v.min_bytes[SL_TIER_DEVICE] <= v.budget_bytes[SL_TIER_DEVICE] / 10 * 8, "%s: the least is %zu of %zu",
                  devices[i][1], v.min_bytes[SL_TIER_DEVICE], v.budget_bytes[SL_TIER_DEVICE]);
        sl_prediction_destroy(prediction);
        sl_job_destroy(job);
    }
}

/* With little host memory the step time over the chunks in a round has several minima, and short searches miss them: 8 GiB once gave 96 % of
 * the speed of 7 GiB. */
TEST(more_host_memory_is_not_slower)
{
    static const char *const options[][2] = {
        {"model", "llama3.2-1b"}, {"hw", "rtx3090"},         {"precision", "bf16"},    {"optimizer", "adamw8bit"},
        {"seqlen", "2048"},       {"tokens-per-step", "8k"}, {"chunk-tokens", "2048"}, {"device-mem", "3GiB"}};
    static const char *const host[] = {"7GiB", "8GiB"};
    double step_s[2] = {0};
    for (int64_t i = 0; i < SL_COUNT(host); i++) {
        sl_job *job;
        sl_prediction *prediction;
        sl_prediction_view v;
        CHECK_OK(sl_job_create(&job));
        for (int64_t k = 0; k < SL_COUNT(options); k++)
            CHECK_OK(sl_job_set(job, options[k][0], options[k][1]));
        CHECK_OK(sl_job_set(job, "host-mem", host[i]));
        CHECK_OK(sl_prediction_create(job, &prediction));
        sl_prediction_view_of(prediction, &v);
        CHECK_MSG(v.feasible, "%s: %s", host[i], v.why_not);
        step_s[i] = v.predicted.step_s;
        sl_prediction_destroy(prediction);
        sl_job_destroy(job);
    }
    CHECK_MSG(step_s[1] <= step_s[0], "%.3f s with 7 GiB, %.3f s with 8 GiB", step_s[0], step_s[1]);
}

/* A fault of the planner ends as an error, before a byte is mapped. */
TEST(a_plan_that_breaks_a_rule_is_refused)
{
    sl_job *job = make_job("device-mem 60% val-every 1 val-share 0.3 val-steps 2 costs roofline");
    sl_setup setup;
    sl_prepared prepared = {.plan = NULL};
    CHECK_OK(sl_setup_resolve(job, &setup));
    CHECK_OK(sl_prepare(&setup, &prepared));
    REQUIRE(prepared.val_plan != NULL);
    CHECK_OK(sl_prepared_check(&prepared));
    sl_plan *plans[] = {prepared.plan, prepared.val_plan};
    for (int64_t i = 0; i < SL_COUNT(plans); i++) {
        sl_allocation *last = &plans[i]->allocations[plans[i]->n_allocations - 1];
        const size_t address = last->address;
        last->address = prepared.plan_budget[last->tier];
        CHECK_FAILS(sl_prepared_check(&prepared), SL_E_INTERNAL);
        last->address = address;
        CHECK_OK(sl_prepared_check(&prepared));
    }
    sl_prepared_destroy(&prepared);
    sl_job_destroy(job);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(a_share_is_of_the_plan_without_budgets);
    RUN(too_small_a_share_names_one_that_fits);
    RUN(large_budgets_are_not_used);
    RUN(a_run_goes_on_in_another_share);
    RUN(the_example_fits_every_device);
    RUN(more_host_memory_is_not_slower);
    RUN(a_plan_that_breaks_a_rule_is_refused);
    return test_end();
}
