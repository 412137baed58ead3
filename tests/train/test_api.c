/* The public interface as a program outside the tree uses it: typed figures, struct sizes, options, progress. */
#include <math.h>

#include "run_job.h"

/* ---- struct sizes ---- */

/* A step result as a later header may have it. */
typedef struct later_result {
    sl_step_result known;
    int64_t later[3];
} later_result;

TEST(struct_sizes)
{
    sl_job *job = make_job("");
    sl_trainer *t;
    later_result larger;
    sl_step_result result, guard;
    CHECK_OK(sl_trainer_create(job, &t));
    /* Zero or nonsense is refused before the step is run. */
    memset(&result, 0, sizeof result);
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_USAGE);
    CHECK(strstr(sl_error_message(), "SL_SIZED(sl_step_result)") != NULL);
    memset(&result, 0xff, sizeof result);
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_USAGE);
    CHECK_FAILS(sl_trainer_step(t, NULL), SL_E_USAGE);
    /* An older program: nothing beyond what it knows is written. */
    memset(&result, 0x55, sizeof result);
    guard = result;
    result.struct_size = guard.struct_size = offsetof(sl_step_result, learning_rate);
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_I64(result.step, 1);
    CHECK(isfinite(result.loss) && result.grad_norm > 0);
    CHECK_I64(result.struct_size, offsetof(sl_step_result, learning_rate));
    CHECK(memcmp((char *) &result + result.struct_size, (char *) &guard + result.struct_size,
                 sizeof result - result.struct_size) == 0);
    /* A newer one: what we do not know is zero. */
    memset(&larger, 0x55, sizeof larger);
    larger.known.struct_size = sizeof larger;
    CHECK_OK(sl_trainer_step(t, &larger.known));
    CHECK_I64(larger.known.step, 2);
    CHECK_I64(larger.known.struct_size, sizeof larger);
    CHECK(larger.later[0] == 0 && larger.later[1] == 0 && larger.later[2] == 0);
    sl_trainer_destroy(t);
    sl_job_destroy(job);
}

/* ---- figures ---- */

TEST(prediction_figures)
{
    sl_prediction_figures f = SL_SIZED(sl_prediction_figures), tight = SL_SIZED(sl_prediction_figures);
    sl_prediction *p;
    char text[200];
    sl_job *job = make_job("device-mem 64MiB host-mem 256MiB");
    CHECK_OK(sl_prediction_create(job, &p));
    CHECK_OK(sl_prediction_get(p, &f));
    CHECK(f.feasible && !f.why_not && f.device_budget_bytes == 64 << 20 && f.host_budget_bytes == 256 << 20);
    CHECK(f.device_peak_bytes > 0 && f.device_peak_bytes <= f.device_budget_bytes);
    CHECK(f.host_peak_bytes > 0 && f.host_peak_bytes <= f.host_budget_bytes);
    CHECK(f.device_min_bytes > 0 && f.device_min_bytes <= f.device_peak_bytes && f.host_min_bytes > 0);
    CHECK(f.step_s > 0 && f.lower_bound_s > 0 && f.lower_bound_s <= f.step_s && f.mfu > 0 && f.plan_s > 0);
    CHECK_NEAR(f.tokens_per_s, 192 / f.step_s, 1e-6 * f.tokens_per_s);
    CHECK(f.seqlen == 32 && f.tokens_per_step == 192 && f.chunks == 3 && f.parameters > 0);
    CHECK(f.limit && strstr(f.costs, "roofline") && strcmp(f.device, "cpu") == 0 && strcmp(f.precision, "f32") == 0);
    sl_prediction_destroy(p);
    /* One byte below the smallest budget is an answer that names it. */
    snprintf(text, sizeof text, "%zu", f.device_min_bytes - 1);
    CHECK_OK(sl_job_set(job, "device-mem", text));
    CHECK_OK(sl_prediction_create(job, &p));
    CHECK_OK(sl_prediction_get(p, &tight));
    CHECK(!tight.feasible && tight.why_not && strstr(tight.why_not, "does not fit"));
    CHECK(tight.device_min_bytes == f.device_min_bytes && tight.step_s == 0 && !tight.limit);
    f.struct_size = 0;
    CHECK_FAILS(sl_prediction_get(p, &f), SL_E_USAGE);
    sl_prediction_destroy(p);
    sl_job_destroy(job);
}

TEST(trainer_figures)
{
    sl_trainer_figures f = SL_SIZED(sl_trainer_figures);
    sl_step_result result = SL_SIZED(sl_step_result);
    sl_trainer *t;
    double loss;
    char options[300];
    snprintf(options, sizeof options, "steps 4 val-every 4 val-steps 2 checkpoint-every 2 device-mem 64MiB out '%s'",
             test_path("figures"));
    sl_job *job = make_job(options);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    CHECK_OK(sl_trainer_get(t, &f));
    CHECK(f.step == 0 && f.steps == 4 && isnan(f.loss) && isnan(f.val_loss) && f.val_step == -1);
    CHECK(f.checkpoint_step == -1 && !f.checkpoint && f.tokens_per_s == 0);
    CHECK(f.predicted_step_s > 0 && f.parameters > 0 && f.device_budget_bytes == 64 << 20);
    CHECK_STR(f.weights, "random, seed 1");
    CHECK_OK(sl_trainer_validate(t, &loss));
    for (int i = 0; i < 3; i++)
        CHECK_OK(sl_trainer_step(t, &result));
    CHECK_OK(sl_trainer_get(t, &f));
    CHECK(f.step == 3 && f.loss == result.loss && f.val_loss == loss && f.val_step == 0 && f.checkpoint_step == 2);
    CHECK(f.checkpoint && strstr(f.checkpoint, "step-00000002") && f.step_s > 0 && f.tokens_per_s > 0 && f.mfu > 0);
    CHECK(f.device_peak_bytes > 0 && f.device_peak_bytes <= f.device_budget_bytes && f.host_peak_bytes > 0);
    CHECK(!f.interrupted && f.epoch > 0 && f.seconds_left > 0);
    sl_trainer_request_stop(t);
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_INTERRUPTED);
    CHECK_OK(sl_trainer_get(t, &f));
    CHECK(f.interrupted && f.step == 3 && f.checkpoint_step == 3);
    sl_trainer_destroy(t);
}

/* ---- progress ---- */

typedef struct progress {
    double last[16];
    int begun[16], ended[16], calls;
    bool falls;
} progress;

static void on_progress(void *user, sl_stage stage, double fraction)
{
    progress *p = user;
    p->calls++;
    p->begun[stage] += fraction == 0;
    p->ended[stage] += fraction == 1;
    p->falls |= fraction != 0 && fraction < p->last[stage];
    p->last[stage] = fraction;
}

TEST(progress_callback)
{
    static const sl_stage once[] = {SL_STAGE_PLAN, SL_STAGE_MEASURE, SL_STAGE_MEMORY, SL_STAGE_WEIGHTS};
    progress seen = {0};
    sl_trainer *t;
    double loss;
    char options[300];
    snprintf(options, sizeof options, "costs measured val-every 5 val-steps 2 out '%s'", test_path("progress"));
    sl_job *job = make_job(options);
    CHECK_OK(sl_job_set_progress(job, on_progress, &seen));
    CHECK_OK(sl_trainer_create(job, &t));
    for (int i = 0; i < SL_COUNT(once); i++)
        CHECK(seen.begun[once[i]] >= 1 && seen.ended[once[i]] >= 1 && seen.last[once[i]] == 1);
    CHECK(seen.begun[SL_STAGE_PLAN] == 1 && seen.begun[SL_STAGE_MEMORY] == 1);
    CHECK(!seen.falls && seen.calls > 12); /* weights: one call per parameter */
    CHECK_I64(seen.begun[SL_STAGE_VALIDATION], 0);
    CHECK_OK(sl_trainer_validate(t, &loss));
    CHECK(seen.begun[SL_STAGE_VALIDATION] == 1 && seen.ended[SL_STAGE_VALIDATION] == 1);
    CHECK_OK(sl_trainer_checkpoint(t));
    CHECK(seen.begun[SL_STAGE_CHECKPOINT] == 1 && seen.ended[SL_STAGE_CHECKPOINT] == 1);
    sl_trainer_destroy(t);
    /* A plan that does not fit does not end. */
    memset(&seen, 0, sizeof seen);
    CHECK_OK(sl_job_set(job, "device-mem", "1"));
    CHECK_OK(sl_job_set(job, "out", test_path("progress2")));
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_DOES_NOT_FIT);
    CHECK(seen.begun[SL_STAGE_PLAN] == 1 && seen.ended[SL_STAGE_PLAN] == 0 && seen.begun[SL_STAGE_MEMORY] == 0);
    memset(&seen, 0, sizeof seen);
    CHECK_OK(sl_job_set_progress(job, NULL, NULL));
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_DOES_NOT_FIT);
    CHECK_I64(seen.calls, 0);
    CHECK_STR(sl_stage_name(SL_STAGE_CHECKPOINT), "writing a checkpoint");
    CHECK_STR(sl_stage_name((sl_stage) 99), "unknown stage");
    sl_job_destroy(job);
}

/* ---- options ---- */

TEST(options)
{
    sl_option_info o = SL_SIZED(sl_option_info);
    sl_job *job;
    const char *value = "untouched";
    int precision = 0;
    CHECK_OK(sl_job_create(&job));
    CHECK(sl_option_count() > 30);
    for (int64_t i = 0; i < sl_option_count(); i++) {
        CHECK_OK(sl_option_get(i, &o));
        CHECK(o.name[0] && o.group[0] && strlen(o.help) > 10);
        CHECK_OK(sl_job_get(job, o.name, &value));
        CHECK(o.default_value ? value && strcmp(value, o.default_value) == 0 : !value || o.type == SL_OPTION_FLAG);
        if (strcmp(o.name, "precision") == 0) {
            CHECK(o.type == SL_OPTION_CHOICE && strstr(o.values, "bf16-master"));
            precision++;
        }
        if (strcmp(o.name, "device-mem") == 0)
            CHECK_I64(o.type, SL_OPTION_BUDGET);
        if (strcmp(o.name, "steps") == 0)
            CHECK_I64(o.type, SL_OPTION_INTEGER);
    }
    CHECK_I64(precision, 1);
    CHECK_FAILS(sl_option_get(-1, &o), SL_E_USAGE);
    CHECK_FAILS(sl_option_get(sl_option_count(), &o), SL_E_USAGE);
    o.struct_size = 0;
    CHECK_FAILS(sl_option_get(0, &o), SL_E_USAGE);
    CHECK_OK(sl_job_set(job, "seed", "17"));
    CHECK_OK(sl_job_get(job, "seed", &value));
    CHECK_STR(value, "17");
    CHECK_FAILS(sl_job_get(job, "sead", &value), SL_E_USAGE);
    CHECK(strstr(sl_error_message(), "seed") && strcmp(value, "17") == 0);
    CHECK_FAILS(sl_job_get(job, NULL, &value), SL_E_USAGE);
    CHECK_FAILS(sl_job_get(job, "seed", NULL), SL_E_USAGE);
    CHECK_FAILS(sl_job_set(job, NULL, "1"), SL_E_USAGE);
    CHECK_FAILS(sl_job_set(job, "seed", NULL), SL_E_USAGE);
    sl_job_destroy(job);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(struct_sizes);
    RUN(prediction_figures);
    RUN(trainer_figures);
    RUN(progress_callback);
    RUN(options);
    return test_end();
}
