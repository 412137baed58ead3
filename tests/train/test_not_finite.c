/* A step that is not finite: which tensor, which element and which value the message names, wherever they lie, in every precision. */
#include "core/bf16.h"
#include "run_job.h"
#include "train/run.h"

static int32_t find_param(const sl_program *p, const char *name)
{
    for (int32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->params[i].name, name) == 0)
            return i;
    REQUIRE(!"there is no such parameter");
    return -1;
}

static void put_weight(sl_trainer *t, const char *name, int64_t element, float value)
{
    sl_store_part at = {&t->store, find_param(t->prepared.program, name), SL_PART_WEIGHT};
    sl_store_part master = {&t->store, at.param, SL_PART_MASTER};
    sl_bf16 half = sl_f32_to_bf16(value);
    if (sl_store_dtype(&t->store, SL_PART_WEIGHT) == SL_BF16)
        CHECK_OK(sl_store_write_part(&at, (size_t) element * 2, &half, 2));
    else
        CHECK_OK(sl_store_write_part(&at, (size_t) element * 4, &value, 4));
    if (sl_store_has(&t->store, SL_PART_MASTER, 0)) /* from which an update takes the weight */
        CHECK_OK(sl_store_write_part(&master, (size_t) element * 4, &value, 4));
}

static void check_named(const char *options, const char *name, int64_t element, float value, const char *want)
{
    char part[200];
    sl_job *job = make_job(options);
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    put_weight(t, name, element, value);
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_NOT_FINITE);
    snprintf(part, sizeof part, "%s itself is %s at element %" PRId64 ",", name, want, element);
    CHECK_CONTAINS(sl_error_message(), "step 1 is not finite (loss nan, gradient norm nan): "); /* never -nan */
    CHECK_CONTAINS(sl_error_message(), part);
    CHECK_CONTAINS(sl_error_message(), "there is no checkpoint; try a lower --lr, --clip, or --on-nan skip");
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_NOT_FINITE);
    CHECK_CONTAINS(sl_error_message(), "the run has failed at step 1");
    sl_trainer_destroy(t);
}

/* Elements on both sides of the pieces in which the tensors are looked through (64 KiB). */
TEST(weights)
{
    static const struct {
        const char *precision;
        int64_t piece; /* elements */
    } of[] = {{"precision f32", 16384}, {"precision bf16", 32768}, {"precision bf16-master", 32768}};
    for (int64_t i = 0; i < SL_COUNT(of); i++) {
        char options[200];
        snprintf(options, sizeof options, "model byte-nano %s", of[i].precision);
        check_named(options, "layers.1.gate_up", 0, NAN, "NaN");
        check_named(options, "layers.1.gate_up", of[i].piece - 1, INFINITY, "infinity");
        check_named(options, "layers.0.gate_up", of[i].piece, -INFINITY, "-infinity");
        check_named(options, "layers.0.gate_up", of[i].piece + 5, NAN, "NaN");
        check_named(options, "norm", 3, INFINITY, "infinity");
    }
    check_named("model byte-nano clip 1", "head", 77, NAN, "NaN");
}

/* Weights that are finite, but make a value that is not: the task and the tensor, and the same under any budget. */
TEST(tasks)
{
    static const char *const options[] = {"", "device-mem", "chunk-tokens 16", "clip 1"};
    for (int i = 0; i < 4; i++) {
        char text[200];
        sl_prediction_view view;
        sl_trainer *t;
        sl_step_result result = SL_SIZED(sl_step_result);
        prediction_job("", &view);
        snprintf(text, sizeof text, i == 1 ? "%s %zu" : "%s", options[i], view.min_bytes[SL_TIER_DEVICE]);
        sl_job *job = make_job(text);
        CHECK_OK(sl_trainer_create(job, &t));
        sl_job_destroy(job);
        for (int64_t e = 0; e < 64 * 4; e++)
            put_weight(t, "layers.1.down", e, 3e38f);
        for (int64_t e = 0; e < 64 * 4; e++)
            put_weight(t, "layers.1.gate_up", e, 3e38f);
        CHECK_FAILS(sl_trainer_step(t, &result), SL_E_NOT_FINITE);
        CHECK_CONTAINS(sl_error_message(), "task layers.1.gate_up forward");
        CHECK_CONTAINS(sl_error_message(), "infinity in layers.1.gate_up at element ");
        sl_trainer_destroy(t);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(weights);
    RUN(tasks);
    return test_end();
}
