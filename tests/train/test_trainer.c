/* Whole runs: budgets, threads and interruptions change no bit; budgets hold; steps allocate nothing; failures speak. */
#include "core/log.h"
#include "run_job.h"

static const char *const programs[] = {
    "precision f32",
    "precision bf16",
    "precision bf16-master",
    "precision f32 chunk-tokens 16 tokens-per-step 96", /* sliced sequences */
    "precision bf16 chunk-tokens 12 tokens-per-step 64",
    "precision f32 optimizer sgd clip 0 mask-documents true",
};

/* The least, half way to the unlimited peak, and unlimited. */
TEST(budgets_change_no_bit)
{
    for (int64_t p = 0; p < SL_COUNT(programs); p++) {
        outcome free, tight;
        sl_prediction_view view;
        char options[512];
        run_job(programs[p], 100, &free);
        CHECK_MSG(free.loss[4] < free.loss[0], "%s: loss went from %g to %g", programs[p], free.loss[0], free.loss[4]);
        prediction_job(programs[p], &view);
        REQUIRE(view.feasible && view.min_bytes[SL_TIER_DEVICE] > 0);
        size_t low = view.min_bytes[SL_TIER_DEVICE], high = view.predicted.peak_bytes[SL_TIER_DEVICE];
        for (int i = 0; i <= 1; i++) {
            size_t budget = low + (high - low) * (size_t) i / 2;
            snprintf(options, sizeof options, "%s device-mem %zu threads %d", programs[p], budget, 1 + i % 2);
            run_job(options, 100, &tight);
            CHECK_MSG(same_run(&free, &tight), "%s: other bits with %zu bytes of %zu", programs[p], budget, high);
            CHECK_MSG(tight.view.measured.peak_bytes[SL_TIER_DEVICE] <= budget, "%s: %zu bytes used of %zu",
                      programs[p], tight.view.measured.peak_bytes[SL_TIER_DEVICE], budget);
        }
        sl_job *job;
        sl_trainer *trainer;
        snprintf(options, sizeof options, "%s device-mem %zu", programs[p], low - SL_ALIGN);
        job = make_job(options);
        CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_DOES_NOT_FIT);
        sl_job_destroy(job);
    }
}

/* Without budgets: what the plan likes if the machine has it, else the best within what there is. */
static void prediction_on(size_t device, size_t host, const char *device_budget, sl_prediction_view *view)
{
    sl_hardware machine;
    sl_job *job;
    sl_prediction *prediction;
    CHECK_OK(sl_hardware_find("rtx3090", &machine));
    machine.memory_bytes[SL_TIER_DEVICE] = device, machine.memory_bytes[SL_TIER_HOST] = host;
    CHECK_OK(sl_hardware_write(&machine, test_path("machine.json")));
    CHECK_OK(sl_job_create(&job));
    CHECK_OK(sl_job_set(job, "model", "tiny"));
    CHECK_OK(sl_job_set(job, "seqlen", "256"));
    CHECK_OK(sl_job_set(job, "hw", test_path("machine.json")));
    if (device_budget)
        CHECK_OK(sl_job_set(job, "device-mem", device_budget));
    CHECK_OK(sl_prediction_create(job, &prediction));
    sl_prediction_view_of(prediction, view);
    sl_prediction_destroy(prediction);
    sl_job_destroy(job);
}

TEST(the_machine_is_the_limit)
{
    const size_t gib = (size_t) 1 << 30;
    sl_prediction_view view;
    prediction_on(64 * gib, 64 * gib, NULL, &view);
    CHECK(view.feasible && view.budget_bytes[SL_TIER_DEVICE] == SIZE_MAX &&
          view.budget_bytes[SL_TIER_HOST] == SIZE_MAX);
    size_t likes = view.predicted.peak_bytes[SL_TIER_DEVICE];
    prediction_on(likes / 2, 64 * gib, NULL, &view);
    CHECK(view.feasible && view.predicted.peak_bytes[SL_TIER_DEVICE] <= likes / 2);
    CHECK(view.budget_bytes[SL_TIER_DEVICE] < likes / 2 && view.budget_bytes[SL_TIER_HOST] < 64 * gib);
    CHECK(view.predicted.peak_bytes[SL_TIER_HOST] > likes / 4); /* the rest is there */
    prediction_on(likes / 2, 64 * gib, "unlimited", &view);     /* somebody who says so is believed */
    CHECK(view.feasible && view.predicted.peak_bytes[SL_TIER_DEVICE] == likes);
    prediction_on(likes / 2, likes / 100, NULL, &view);
    CHECK(!view.feasible && view.budget_bytes[SL_TIER_DEVICE] < likes / 2);
}

/* The host's budget counts the heap too: the least that the prediction names works and is not exceeded. */
TEST(host_budget_holds)
{
    sl_prediction_view view;
    outcome free, tight;
    char options[512];
    run_job("val-every 2", 100, &free);
    prediction_job("val-every 2", &view);
    size_t least = view.min_bytes[SL_TIER_HOST];
    REQUIRE(least > 0);
    snprintf(options, sizeof options, "val-every 2 host-mem %zu out '%s' checkpoint-every 2", least, test_path("host"));
    run_job(options, 100, &tight);
    CHECK(same_run(&free, &tight));
    CHECK_MSG(tight.view.measured.peak_bytes[SL_TIER_HOST] <= least, "%zu bytes used of %zu (%zu of them heap)",
              tight.view.measured.peak_bytes[SL_TIER_HOST], least, tight.view.heap_bytes);
    sl_job *job;
    sl_trainer *trainer;
    snprintf(options, sizeof options, "val-every 2 host-mem %zu", least - SL_ALIGN);
    job = make_job(options);
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_DOES_NOT_FIT);
    sl_job_destroy(job);
}

/* The names of the data's files are part of the heap: counted once the data is open. */
TEST(host_budget_holds_with_many_files)
{
    enum { FILES = 8000 };
    sl_prediction_view view;
    outcome run;
    char name[64], options[1200];
    sl_job *job;
    sl_trainer *trainer;
    CHECK_OK(sl_dir_create(test_path("files")));
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "files/a-name-of-a-good-length-as-many-files-have-%05d", i);
        FILE *file = fopen(test_path(name), "w");
        REQUIRE(file && fputs("water runs down the hill", file) >= 0 && fclose(file) == 0);
    }
    prediction_job("", &view);
    snprintf(options, sizeof options, "data '%s' host-mem %zu", test_path("files"), view.min_bytes[SL_TIER_HOST]);
    job = make_job(options);
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_DOES_NOT_FIT);
    sl_job_destroy(job);
    size_t least = 0;
    const char *said = strstr(sl_error_message(), "at least "), *bytes = said ? strchr(said, '(') : NULL;
    REQUIRE(bytes && sscanf(bytes, "(%zu bytes)", &least) == 1);
    CHECK(least > view.min_bytes[SL_TIER_HOST]);
    snprintf(options, sizeof options, "data '%s' host-mem %zu", test_path("files"), least);
    sl_heap_peak_reset();
    run_job(options, 100, &run);
    CHECK_MSG(run.view.measured.peak_bytes[SL_TIER_HOST] <= least, "%zu bytes used of %zu",
              run.view.measured.peak_bytes[SL_TIER_HOST], least);
}

TEST(resume_continues_to_the_same_bits)
{
    for (int64_t p = 1; p < SL_COUNT(programs); p += 2) {
        outcome whole, part, rest;
        char out[512], options[1024];
        run_job(programs[p], 100, &whole);
        snprintf(out, sizeof out, "%s%" PRId64, test_path("resume"), p);
        snprintf(options, sizeof options, "%s out '%s' checkpoint-every 1 resume true", programs[p], out);
        run_job(options, 2, &part); /* nothing to resume yet: begins */
        CHECK_I64(part.view.first_step, 0);
        sl_prediction_view view;
        prediction_job(programs[p], &view);
        size_t budget = view.min_bytes[SL_TIER_DEVICE];
        snprintf(options, sizeof options, "%s out '%s' checkpoint-every 2 resume true threads 1 device-mem %zu",
                 programs[p], out, budget);
        run_job(options, 100, &rest);
        CHECK_I64(rest.view.first_step, 2);
        CHECK_STR(rest.hash, whole.hash);
        CHECK(memcmp(rest.loss, whole.loss + 2, 3 * sizeof(double)) == 0);
    }
}

/* What a run writes is no data of its next start, wherever its folder lies. */
TEST(resume_inside_the_data)
{
    outcome part, rest;
    char options[1400], *text;
    size_t length;
    CHECK_OK(sl_file_read_all(corpus_path(), 1 << 20, &text, &length));
    CHECK_OK(sl_dir_create(test_path("around")));
    CHECK_OK(sl_file_write_atomic(test_path("around/text"), text, length));
    sl_free(text);
    snprintf(options, sizeof options, "data '%s' out '%s' resume true checkpoint-every 2", test_path("around"),
             test_path("around/run"));
    run_job(options, 2, &part);
    run_job(options, 100, &rest);
    CHECK_I64(rest.view.first_step, 2);
    CHECK_I64(rest.view.sequences, part.view.sequences);
}

/* Also where nothing is resumed: a writer was killed before its first checkpoint. */
TEST(leftovers_of_a_killed_run_are_removed)
{
    outcome run;
    char options[600];
    snprintf(options, sizeof options, "steps 2 out '%s'", test_path("killed"));
    CHECK_OK(sl_dir_create(test_path("killed/checkpoints/step-00000001.tmp")));
    run_job(options, 1, &run);
    CHECK(!sl_dir_exists(test_path("killed/checkpoints/step-00000001.tmp")));
}

/* Steps 2..N with events, but without checkpoints and validation: those write files. */
TEST(steps_allocate_nothing)
{
    char options[512];
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    snprintf(options, sizeof options, "steps 8 out '%s'", test_path("quiet"));
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &trainer));
    CHECK_OK(sl_trainer_step(trainer, &result));
    uint64_t calls = sl_heap_calls();
    for (int i = 0; i < 6; i++) {
        sl_trainer_view view;
        CHECK_OK(sl_trainer_step(trainer, &result));
        sl_trainer_look(trainer, &view);
        CHECK_I64(view.step, result.step);
    }
    CHECK_I64(sl_heap_calls() - calls, 0);
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
}

TEST(validation_changes_nothing)
{
    outcome with, without;
    run_job("val-every 2 val-steps 3", 100, &with);
    CHECK_I64(with.view.val_step, 5);
    CHECK(with.view.val_loss > 0.5 && with.view.val_loss < 6);
    CHECK(with.view.val_sequences > 0);
    char options[600];
    snprintf(options, sizeof options, "val-every 3 val-data '%s'", corpus_path());
    run_job(options, 100, &with);
    run_job("", 100, &without);
    CHECK(same_run(&with, &without));
}

static double first_validation(const char *options)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    double loss;
    CHECK_OK(sl_trainer_create(job, &trainer));
    CHECK_OK(sl_trainer_validate(trainer, &loss));
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    return loss;
}

/* Ten sequences, the first unlike the rest: five batches of two, one of six and one of four, or less than one of twenty. */
TEST(validation_counts_each_sequence_once)
{
    char text[320], options[600];
    memset(text, 'e', sizeof text);
    for (int i = 0; i < 64; i++)
        text[i] = (char) (33 + i);
    CHECK_OK(sl_file_write_atomic(test_path("ten.txt"), text, sizeof text));
    double want = 0;
    static const char *const batches[] = {"tokens-per-step 64", "tokens-per-step 192", "tokens-per-step 640",
                                          "tokens-per-step 192 chunk-tokens 12"};
    for (int64_t i = 0; i < SL_COUNT(batches); i++) {
        snprintf(options, sizeof options, "val-every 1 val-data '%s' %s", test_path("ten.txt"), batches[i]);
        double loss = first_validation(options);
        want = i == 0 ? loss : want;
        CHECK_NEAR(loss, want, 1e-5 * want);
    }
}

/* Runs until a step is not finite, which must be the second. */
static void fail_at_second_step(const char *options, const char *why)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    sl_status status = SL_OK;
    CHECK_OK(sl_trainer_create(job, &trainer));
    while (status == SL_OK && !result.done)
        status = sl_trainer_step(trainer, &result);
    CHECK(status == SL_E_NOT_FINITE);
    CHECK_CONTAINS(sl_error_message(), "step 2 is not finite");
    CHECK_CONTAINS(sl_error_message(), why);
    CHECK_FAILS(sl_trainer_step(trainer, &result), SL_E_NOT_FINITE); /* it stays failed */
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
}

TEST(not_finite)
{
    /* The weights are still what they were, so the task that began it is found, with updates that wait and with those that do not. */
    fail_at_second_step("lr 1e10 warmup 0 schedule constant", "task layers.0.attention forward");
    fail_at_second_step("lr 1e10 warmup 0 schedule constant clip 1e30", "task layers.0.attention forward");
    fail_at_second_step("lr 1e30 warmup 0 schedule constant", "embedding itself is");

    outcome skipped;
    test_expect_warnings(4, "was left out: loss ");
    run_job("lr 1e30 warmup 0 schedule constant on-nan skip", 100, &skipped);
    CHECK_I64(skipped.view.skipped, 4);
}

TEST(stop_request)
{
    char options[600];
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    outcome whole, rest;
    snprintf(options, sizeof options, "out '%s'", test_path("stop"));
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &trainer));
    CHECK_OK(sl_trainer_step(trainer, &result));
    sl_trainer_request_stop(trainer);
    CHECK_FAILS(sl_trainer_step(trainer, &result), SL_E_INTERRUPTED);
    sl_trainer_destroy(trainer);
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_USAGE); /* a run's folder is only ever continued */
    CHECK_CONTAINS(sl_error_message(), "--resume");
    sl_job_destroy(job);
    snprintf(options, sizeof options, "out '%s' resume true", test_path("stop"));
    run_job(options, 100, &rest);
    CHECK_I64(rest.view.first_step, 1);
    run_job("", 100, &whole);
    CHECK_STR(rest.hash, whole.hash);
}

/* A checkpoint's weights as the beginning of another run, by Hugging Face's names. */
TEST(init_from_checkpoint)
{
    outcome first, second;
    char options[1200], path[600];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005", test_path("origin"));
    snprintf(options, sizeof options, "precision bf16-master out '%s'", test_path("origin"));
    run_job(options, 100, &first);
    snprintf(options, sizeof options, "precision bf16-master init-from '%s'", path);
    run_job(options, 0, &second);
    CHECK_STR(second.hash, first.hash);
    snprintf(options, sizeof options, "precision f32 init-from '%s'", path);
    run_job(options, 1, &second);
    CHECK(second.loss[0] < first.loss[0] - 0.5);
    sl_trainer *trainer;
    snprintf(options, sizeof options, "model byte-nano init-from '%s'", path);
    sl_job *job = make_job(options);
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_FORMAT);
    sl_job_destroy(job);
}

/* Counts warnings that contain `text`, for the tests that expect one. */
static int64_t little_data_warnings;
static void count_little_data(void *user, sl_log_level level, const char *message)
{
    (void) user;
    little_data_warnings += level == SL_LOG_WARN && strstr(message, "repeats the same ones about 8 times") &&
                            strstr(message, "--tokens-per-step of at most 256");
}

/* Eight sequences: enough for a step of eight, not for one of 64. */
TEST(little_data)
{
    char text[256], options[600];
    outcome run;
    memset(text, 'x', sizeof text);
    CHECK_OK(sl_file_write_atomic(test_path("eight.txt"), text, sizeof text));
    snprintf(options, sizeof options, "data '%s' steps 4 tokens-per-step 256", test_path("eight.txt"));
    run_job(options, 4, &run);
    CHECK_I64(run.view.sequences, 8);
    CHECK_NEAR(run.view.epochs, 4, 0);
    snprintf(options, sizeof options, "data '%s' steps 1 tokens-per-step 2048", test_path("eight.txt"));
    sl_log_set(count_little_data, NULL, SL_LOG_WARN);
    run_job(options, 1, &run);
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
    CHECK_I64(little_data_warnings, 1);
    CHECK_NEAR(run.view.epochs, 8, 0);
}

static sl_status resume_over(const char *text, size_t length)
{
    char options[1200];
    sl_trainer *trainer;
    CHECK_OK(sl_file_write_atomic(test_path("text.txt"), text, length));
    snprintf(options, sizeof options, "data '%s' out '%s' steps 4 resume true", test_path("text.txt"),
             test_path("changed"));
    sl_job *job = make_job(options);
    sl_status status = sl_trainer_create(job, &trainer);
    if (status == SL_OK)
        sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    return status;
}

/* Data files that are others than the checkpoint's: by size, and by content of the same size. */
TEST(resume_over_changed_data)
{
    char options[1200];
    static char text[10001];
    outcome first;
    memset(text, 'e', sizeof text);
    CHECK_OK(sl_file_write_atomic(test_path("text.txt"), text, 10000));
    snprintf(options, sizeof options, "data '%s' out '%s' steps 2", test_path("text.txt"), test_path("changed"));
    run_job(options, 100, &first);
    CHECK_OK(resume_over(text, 10000)); /* written anew: other times, another inode */
    CHECK_FAILS(resume_over(text, 10001), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "names and sizes");
    text[9000] = 'f';
    CHECK_FAILS(resume_over(text, 10000), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "have changed since");
    text[9000] = 'e';
    CHECK_OK(resume_over(text, 10000));
}

TEST(refuses)
{
    static const struct {
        const char *options;
        sl_status status;
        const char *part;
    } cases[] = {
        {"tokens-per-step 100", SL_E_USAGE, "multiple of --seqlen"},
        {"chunk-tokens 40", SL_E_USAGE, "--chunk-tokens 40"},
        {"seqlen 0", SL_E_USAGE, "--seqlen"},
        {"mask-documents true document-token 70000", SL_E_USAGE, "vocabulary has 256 tokens"},
        {"val-every 2 val-share 0", SL_E_USAGE, "nothing to validate on"},
        {"val-data /nowhere", SL_E_USAGE, "without --val-every"},
        {"data /nowhere/at/all", SL_E_IO, "/nowhere/at/all"},
        {"resume true", SL_E_USAGE, "--out"},
        {"beta1 1.5", SL_E_USAGE, "--beta1"},
        {"device abacus", SL_E_USAGE, "abacus"},
        {"model nothing-like-it", SL_E_USAGE, "nothing-like-it"},
        {"out /proc/nope", SL_E_IO, "/proc/nope"},
        {"device-mem 4096", SL_E_DOES_NOT_FIT, ""},
        {"init-from /nowhere/weights device-mem 4096", SL_E_IO, "/nowhere/weights"}, /* before anything is planned */
        {"host-mem 4096", SL_E_DOES_NOT_FIT, ""},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_trainer *trainer;
        sl_job *job = make_job(cases[i].options);
        sl_status status = sl_trainer_create(job, &trainer);
        CHECK_MSG(status == cases[i].status, "%s gave %s: %s", cases[i].options, sl_status_name(status),
                  sl_error_message());
        CHECK_CONTAINS(sl_error_message(), cases[i].part);
        sl_job_destroy(job);
    }
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    CHECK_FAILS(sl_job_set(job, "modle", "x"), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "model");
    sl_job_destroy(job);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(budgets_change_no_bit);
    RUN(host_budget_holds);
    RUN(host_budget_holds_with_many_files);
    RUN(the_machine_is_the_limit);
    RUN(resume_continues_to_the_same_bits);
    RUN(resume_inside_the_data);
    RUN(leftovers_of_a_killed_run_are_removed);
    RUN(steps_allocate_nothing);
    RUN(validation_changes_nothing);
    RUN(validation_counts_each_sequence_once);
    RUN(not_finite);
    RUN(stop_request);
    RUN(init_from_checkpoint);
    RUN(little_data);
    RUN(resume_over_changed_data);
    RUN(refuses);
    return test_end();
}
