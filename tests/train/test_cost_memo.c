/* What has been measured is not measured again: within a job by the memo, between runs by a file of the machine. */
#include "cost/cost.h"
#include "run_job.h"
#include "train/cost_memo.h"
#include "train/job_costs.h"

static sl_program *make_program(sl_model *model, int64_t seqlen, bool gated)
{
    sl_program *program;
    sl_program_config config = {.chunking = {seqlen, 2, seqlen}, .max_segments = 1, .gated = gated, .norm = true};
    CHECK_OK(sl_program_create(&config, sl_build_model, model, &program));
    return program;
}

/* Different from kind to kind and from program to program. */
static sl_costs *make_costs(const sl_program *program, int salt)
{
    sl_costs *costs;
    CHECK_OK(sl_costs_new(program->n_signatures, &costs));
    costs->peak_flops = 5e9;
    costs->link_bytes_per_s[1] = 7e9;
    snprintf(costs->source, sizeof costs->source, "measured here");
    for (int32_t kind = 0; kind < program->n_signatures; kind++) {
        costs->device_s[kind] = 1000 * salt + kind;
        costs->host_s[kind] = 1000 * salt + kind + 0.5;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            costs->workspace[tier][kind] = (size_t) (1000 * salt + 100 * kind + tier);
    }
    return costs;
}

static void check_known(const sl_cost_memo *memo, const sl_program *program, const sl_costs *want)
{
    sl_costs *got;
    CHECK_OK(sl_cost_memo_get(memo, program, &got));
    REQUIRE(got != NULL);
    CHECK_I64(got->n_signatures, program->n_signatures);
    CHECK(got->peak_flops == 5e9 && got->link_bytes_per_s[1] == 7e9);
    CHECK_STR(got->source, "measured here");
    for (int32_t kind = 0; kind < program->n_signatures; kind++) {
        CHECK(got->device_s[kind] == want->device_s[kind] && got->host_s[kind] == want->host_s[kind]);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            CHECK_U64(got->workspace[tier][kind], want->workspace[tier][kind]);
    }
    sl_costs_destroy(got);
}

static void check_unknown(const sl_cost_memo *memo, const sl_program *program)
{
    sl_costs *got;
    CHECK_OK(sl_cost_memo_get(memo, program, &got));
    CHECK(got == NULL);
}

TEST(a_job_asks_once)
{
    enum { PROGRAMS = 5 };
    sl_model model;
    sl_cost_memo memo = {0};
    sl_program *programs[PROGRAMS];
    sl_costs *costs[PROGRAMS];
    CHECK_OK(sl_model_find("byte-test", &model));
    for (int i = 0; i < PROGRAMS; i++) {
        programs[i] = make_program(&model, 8 << i, i % 2);
        costs[i] = make_costs(programs[i], i);
        check_unknown(&memo, programs[i]);
    }
    CHECK_OK(sl_cost_memo_add(&memo, programs[0], costs[0]));
    check_known(&memo, programs[0], costs[0]);
    int64_t count = memo.count;
    CHECK_OK(sl_cost_memo_add(&memo, programs[0], costs[1])); /* known already: the first figures stay */
    CHECK_I64(memo.count, count);
    check_known(&memo, programs[0], costs[0]);
    for (int i = 1; i < PROGRAMS; i++) {
        sl_costs *mixed;
        check_unknown(&memo, programs[i]);
        CHECK_OK(sl_cost_memo_add(&memo, programs[i], costs[i]));
        CHECK_OK(sl_cost_memo_get(&memo, programs[i], &mixed));
        CHECK(mixed != NULL);
        sl_costs_destroy(mixed);
    }
    CHECK(memo.count > 64); /* so that the list has grown */
    check_known(&memo, programs[0], costs[0]);
    for (int i = 0; i < PROGRAMS; i++) {
        sl_costs_destroy(costs[i]);
        sl_program_destroy(programs[i]);
    }
    sl_cost_memo_free(&memo);
    CHECK(memo.count == 0 && !memo.entries);
}

/* Two measurements never give the same time, so the same one was read from the file: in $XDG_CACHE_HOME, else in $HOME/.cache. A job
 * needs neither. */
TEST(a_machine_asks_once)
{
    sl_prediction_view first, second;
    char placement[512], *text;
    size_t length;
    snprintf(placement, sizeof placement, "%s", test_path("placement"));
    setenv("XDG_CACHE_HOME", test_path("cache"), 1);
    prediction_job("costs measured", &first);
    CHECK_OK(sl_file_read_all(test_path("cache/sluice/costs.json"), 1 << 24, &text, &length));
    prediction_job("costs measured", &second);
    CHECK(first.predicted.step_s > 0 && first.predicted.step_s == second.predicted.step_s);

    CHECK_OK(sl_dir_create(test_path("placement/.cache/sluice")));
    CHECK_OK(sl_file_write_atomic(test_path("placement/.cache/sluice/costs.json"), text, length));
    sl_free(text);
    setenv("XDG_CACHE_HOME", "", 1);
    setenv("HOME", placement, 1);
    prediction_job("costs measured", &second);
    CHECK(first.predicted.step_s == second.predicted.step_s);

    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    prediction_job("costs measured", &second);
    CHECK(second.feasible && !sl_file_exists("costs.json") && !sl_file_exists("/.cache/sluice/costs.json"));
}

/* A measurement that fails leaves no costs, and nothing in the memo. */
TEST(a_measurement_can_fail)
{
    sl_model model;
    sl_setup setup;
    sl_prepared prepared = {.budget = {SIZE_MAX, SIZE_MAX}};
    sl_costs *costs = NULL;
    sl_job *job = make_job("costs measured");
    CHECK_OK(sl_setup_resolve(job, &setup));
    CHECK_OK(sl_model_find("byte-test", &model));
    sl_program *program = make_program(&model, 16, false);
    setup.threads = 100000;
    CHECK_FAILS(sl_job_costs(&(sl_cost_source){&setup, &prepared}, program, &costs), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "100000");
    CHECK(!costs && prepared.memo.count == 0);
    sl_cost_memo_free(&prepared.memo);
    sl_program_destroy(program);
    sl_job_destroy(job);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(a_job_asks_once);
    RUN(a_machine_asks_once);
    RUN(a_measurement_can_fail);
    return test_end();
}
