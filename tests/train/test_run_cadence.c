/* When a run validates and writes checkpoints, what --keep leaves of them, what an orderly stop writes, and where it stands in its data. */
#include "run_log.h"
#include "train/run.h"

/* The steps after which something is due, as "2 4 5", of a run of five. */
static void check_cadence(const char *more, const char *validated, const char *saved)
{
    static event_log log;
    outcome run;
    static int runs;
    snprintf(out, sizeof out, "%s%d", test_path("cadence"), runs++);
    snprintf(options, sizeof options, "%s out '%s'", more, out);
    run_job(options, 100, &run);
    CHECK_OK(sl_region_create(&region));
    read_log(&log);
    CHECK_STR(steps_of(&log, "validation"), validated);
    CHECK_STR(steps_of(&log, "checkpoint"), saved);
    sl_region_destroy(region);
}

TEST(what_is_due)
{
    check_cadence("", "", "5");
    check_cadence("checkpoint-every 1 val-every 1", "1 2 3 4 5", "1 2 3 4 5");
    check_cadence("checkpoint-every 2 val-every 5", "5", "2 4 5");
    check_cadence("checkpoint-every 5 val-every 4", "4 5", "5");
    check_cadence("checkpoint-every 9 val-every 9", "5", "5");
    check_cadence("checkpoint-every -1 val-every 3", "3 5", "");
}

/* keep N, and what an orderly stop writes. */
TEST(kept_and_stopped)
{
    outcome run;
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    sl_trainer_view view;
    static event_log log;
    for (int keep = 1; keep <= 3; keep++) {
        snprintf(out, sizeof out, "%s%d", test_path("keep"), keep);
        snprintf(options, sizeof options, "out '%s' checkpoint-every 1 keep %d", out, keep);
        run_job(options, 100, &run);
        for (int step = 1; step <= 5; step++) {
            char path[700];
            snprintf(path, sizeof path, "%s/checkpoints/step-%08d", out, step);
            CHECK_MSG(sl_dir_exists(path) == (step > 5 - keep), "keep %d: step %d", keep, step);
        }
    }
    snprintf(out, sizeof out, "%s", test_path("stopped"));
    snprintf(options, sizeof options, "out '%s' val-every 1", out);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    CHECK_OK(sl_trainer_step(t, &result));
    sl_trainer_request_stop(t);
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_INTERRUPTED);
    CHECK_CONTAINS(sl_error_message(), "after step 1; go on with --resume");
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_INTERRUPTED);
    sl_trainer_look(t, &view);
    CHECK(view.interrupted);
    CHECK_I64(view.checkpoint_step, 1);
    sl_trainer_destroy(t);
    CHECK_OK(sl_region_create(&region));
    read_log(&log);
    CHECK_STR(steps_of(&log, "checkpoint"), "1");
    CHECK_STR(steps_of(&log, "end"), "1"); /* once */
    CHECK_STR(string(event(&log, "end", 0), "reason"), "interrupted");
    sl_region_destroy(region);
}

static sl_trainer *asked_to_stop;
static const sl_device_class *inner;

static sl_status stop_at_step_end(sl_device *device)
{
    sl_trainer_request_stop(asked_to_stop);
    return inner->step_end(device);
}

/* The request comes while step `at` runs: the step is finished, kept and told of as the last. */
static void check_stop_within(int at, bool interrupted)
{
    static sl_device_class stopping;
    static event_log log;
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    sl_trainer_view view;
    snprintf(out, sizeof out, "%s%d", test_path("within"), at);
    snprintf(options, sizeof options, "steps 3 out '%s' val-every 1", out);
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    for (int step = 1; step < at; step++) {
        CHECK_OK(sl_trainer_step(t, &result));
        CHECK(!result.done);
    }
    inner = t->device->class;
    stopping = *inner;
    stopping.step_end = stop_at_step_end;
    asked_to_stop = t;
    t->device->class = &stopping;
    CHECK_OK(sl_trainer_step(t, &result));
    t->device->class = inner;
    CHECK(result.done && result.step == at);
    sl_trainer_look(t, &view);
    CHECK(view.interrupted == interrupted);
    CHECK_I64(view.checkpoint_step, at);
    CHECK_FAILS(sl_trainer_step(t, &result), interrupted ? SL_E_INTERRUPTED : SL_E_USAGE);
    sl_trainer_destroy(t);
    CHECK_OK(sl_region_create(&region));
    read_log(&log);
    CHECK_STR(steps_of(&log, "validation"), at == 2 ? "1" : "1 2"); /* none once it is to stop */
    char want[8];
    snprintf(want, sizeof want, "%d", at);
    CHECK_STR(steps_of(&log, "checkpoint"), want);
    CHECK_STR(steps_of(&log, "end"), want);
    CHECK_STR(string(event(&log, "end", 0), "reason"), interrupted ? "interrupted" : "done");
    sl_region_destroy(region);
}

TEST(stopped_within_a_step)
{
    check_stop_within(2, true);
    check_stop_within(3, false); /* the last one anyway */
}

TEST(calls_without_their_options)
{
    static event_log log;
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    double loss;
    sl_trainer_destroy(NULL);
    sl_prediction_destroy(NULL);
    sl_job_destroy(NULL);
    sl_job *job = make_job("steps 2");
    CHECK_OK(sl_trainer_create(job, &t));
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_FAILS(sl_trainer_checkpoint(t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "give --out");
    CHECK_FAILS(sl_trainer_validate(t, &loss), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "give --val-every");
    sl_trainer_destroy(t);
    sl_job_destroy(job);
    job = make_job("checkpoint-every 2");
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "--checkpoint-every needs --out");
    sl_job_destroy(job);
    char path[1000];
    memset(path, 'x', sizeof path);
    for (int length = 900; length <= 901; length++) {
        path[0] = '/', path[length] = 0;
        job = make_job("");
        CHECK_OK(sl_job_set(job, "out", path));
        CHECK(sl_trainer_create(job, &t) != SL_OK);
        CHECK((strstr(sl_error_message(), "at most 900") != NULL) == (length > 900));
        sl_job_destroy(job);
        path[length] = 'x';
    }

    snprintf(out, sizeof out, "%s", test_path("calls"));
    snprintf(options, sizeof options, "steps 2 out '%s'", out);
    job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_OK(sl_trainer_checkpoint(t));
    CHECK_OK(sl_trainer_checkpoint(t)); /* it is there already */
    CHECK_OK(sl_trainer_step(t, &result));
    sl_trainer_destroy(t);
    CHECK_OK(sl_region_create(&region));
    read_log(&log);
    CHECK_STR(steps_of(&log, "checkpoint"), "1 2");
    sl_region_destroy(region);
}

/* Position p of the data is sequence p mod n of epoch p / n: also where an epoch ends within a step. */
TEST(epochs)
{
    char text[353], data[600];
    outcome run;
    for (int i = 0; i < (int) sizeof text - 1; i++)
        text[i] = (char) ('a' + i % 23);
    CHECK_OK(sl_file_write_atomic(test_path("short.txt"), text, sizeof text - 1));
    snprintf(data, sizeof data, "data '%s'", test_path("short.txt"));
    run_job(data, 100, &run);
    CHECK_I64(run.view.sequences, 11);
    CHECK_NEAR(run.view.epoch, 30.0 / 11, 1e-12);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(what_is_due);
    RUN(kept_and_stopped);
    RUN(stopped_within_a_step);
    RUN(calls_without_their_options);
    RUN(epochs);
    return test_end();
}
