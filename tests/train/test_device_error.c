/* A device that fails in the middle of a run: the message names step, task, tensors and call; nothing more is written; the last
 * checkpoint goes on to the bits of a run that never failed.
 *
 * On any machine the CPU's launches and step ends are made to fail. Where there is a GPU, a task gets an address that nothing is
 * mapped at; a GPU's error takes the process's context with it, so each such run has a process of its own. */
#include <sys/wait.h>

#include "device/cuda_expected.h"
#include "engine/internal.h"
#include "run_job.h"
#include "train/run.h"

static struct {
    int64_t launch, step_end; /* the how-manyth from now on fails; 0: none */
} fails;
static const sl_device_class *inner;
static sl_device_class failing;

static sl_status on_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    if (fails.launch > 0 && --fails.launch == 0)
        return sl_fail(SL_E_DEVICE, "libraryCall: injected");
    return inner->launch(device, stream, launch, span);
}

static sl_status on_step_end(sl_device *device)
{
    SL_TRY(inner->step_end(device));
    if (fails.step_end > 0 && --fails.step_end == 0)
        return sl_fail(SL_E_DEVICE, "libraryCall: injected");
    return SL_OK;
}

static void make_fail(sl_trainer *t)
{
    inner = t->device->class;
    failing = *inner;
    failing.launch = on_launch;
    failing.step_end = on_step_end;
    t->device->class = &failing;
}

static sl_trainer *begin(const char *options)
{
    sl_job *job = make_job(options);
    sl_trainer *t;
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    return t;
}

static void check_stays_failed(sl_trainer *t, const char *folder)
{
    sl_step_result result = SL_SIZED(sl_step_result);
    char path[600];
    char *text;
    size_t length;
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_DEVICE);
    CHECK_CONTAINS(sl_error_message(), "has failed");
    CHECK_FAILS(sl_trainer_checkpoint(t), SL_E_DEVICE);
    snprintf(path, sizeof path, "%s/events.jsonl", folder);
    CHECK_OK(sl_file_read_all(path, (size_t) 1 << 30, &text, &length));
    CHECK(memmem(text, length, "device error", 12) != NULL);
    sl_free(text);
}

TEST(the_last_checkpoint_stands)
{
    outcome whole, rest;
    run_job("", 100, &whole);
    static const struct {
        int64_t launch, step_end;
    } cases[] = {{1, 0}, {40, 0}, {-1, 0}, {0, 1}}; /* -1: the last launch, when most parameters are updated */
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        char folder[512], options[1024];
        sl_step_result result = SL_SIZED(sl_step_result);
        snprintf(folder, sizeof folder, "%s%" PRId64, test_path("failed"), i);
        snprintf(options, sizeof options, "out '%s' checkpoint-every 1", folder);
        sl_trainer *t = begin(options);
        for (int step = 0; step < 2; step++)
            CHECK_OK(sl_trainer_step(t, &result));
        make_fail(t);
        fails.step_end = cases[i].step_end;
        fails.launch = cases[i].launch;
        for (int32_t a = 0; cases[i].launch < 0 && a < t->prepared.plan->n_actions; a++)
            fails.launch = SL_MAX(fails.launch, 0) + (t->prepared.plan->actions[a].kind == SL_ACTION_TASK);
        CHECK_FAILS(sl_trainer_step(t, &result), SL_E_DEVICE);
        CHECK_CONTAINS(sl_error_message(), "step 3");
        CHECK_CONTAINS(sl_error_message(), "libraryCall: injected");
        CHECK_CONTAINS(sl_error_message(), "checkpoints/step-00000002");
        if (cases[i].launch) {
            CHECK_CONTAINS(sl_error_message(), ": task ");
            CHECK_CONTAINS(sl_error_message(), ", which reads ");
        }
        check_stays_failed(t, folder);
        t->device->class = inner;
        sl_trainer_destroy(t);
        snprintf(options, sizeof options, "out '%s' resume true", folder);
        run_job(options, 100, &rest);
        CHECK_I64(rest.view.first_step, 2);
        CHECK_STR(rest.hash, whole.hash);
    }
}

/* ---- on a GPU ---- */

enum { LOOK_FOR_GPU = -1, NO_GPU = 10 };

/* Step 3 writes somewhere nobody has mapped. */
static void fail_on_gpu(const char *folder, bool sync)
{
    char options[1024], tensor[160];
    sl_step_result result = SL_SIZED(sl_step_result);
    setenv("SLUICE_CUDA_SYNC", sync ? "1" : "0", 1);
    snprintf(options, sizeof options, "device cuda precision bf16 out '%s' checkpoint-every 1", folder);
    sl_trainer *t = begin(options);
    for (int step = 0; step < 2; step++)
        CHECK_OK(sl_trainer_step(t, &result));
    sl_engine *engine = t->train.engine;
    int32_t bad = 0;
    while (bad < engine->plan->n_actions &&
           (!engine->items[bad].launch || engine->items[bad].launch->op != SL_OP_RMSNORM))
        bad++;
    REQUIRE(bad < engine->plan->n_actions);
    const sl_task *task = &engine->program->tasks[engine->plan->actions[bad].task];
    engine->launches[engine->items[bad].launch - engine->launches].out[0].data = (void *) (uintptr_t) 0x100000;
    snprintf(tensor, sizeof tensor, "%s", engine->program->objects[task->out[0].object].name);
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_DEVICE);
    printf("%s\n", sl_error_message());
    CHECK_CONTAINS(sl_error_message(), "step 3");
    CHECK_CONTAINS(sl_error_message(), "checkpoints/step-00000002");
    if (sync) {
        CHECK_CONTAINS(sl_error_message(), task->name);
        CHECK_CONTAINS(sl_error_message(), tensor);
        CHECK_CONTAINS(sl_error_message(), "rmsnorm bf16[");
        CHECK_CONTAINS(sl_error_message(), ": cuda"); /* the call that showed it */
    } else
        CHECK_CONTAINS(sl_error_message(), "SLUICE_CUDA_SYNC=1");
    check_stays_failed(t, folder);
    sl_trainer_destroy(t);
}

static void resume_on_gpu(const char *folder)
{
    char options[1024];
    outcome whole, rest;
    run_job("device cuda precision bf16", 100, &whole);
    snprintf(options, sizeof options, "device cuda precision bf16 out '%s' resume true", folder);
    run_job(options, 100, &rest);
    CHECK_I64(rest.view.first_step, 2);
    CHECK_STR(rest.hash, whole.hash);
}

/* Runs one of the above in a process of its own; what it found counts here. */
static int apart(int part, const char *folder)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        test_failures = 0;
        if (part == LOOK_FOR_GPU) {
            bool found = test_cuda();
            fflush(stdout);
            _exit(found ? 0 : test_failures ? 1 : NO_GPU);
        }
        if (part < 2)
            fail_on_gpu(folder, part == 1);
        else
            resume_on_gpu(folder);
        fflush(stdout);
        _exit(test_failures != 0);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_MSG(WIFEXITED(status), "part %d ended by signal %d", part, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST(on_a_gpu_too)
{
    corpus_path(); /* made here: the parts only read it */
    int looked = apart(LOOK_FOR_GPU, NULL);
    CHECK(looked == 0 || looked == NO_GPU);
    if (looked != 0)
        return;
    char folder[2][512];
    for (int sync = 0; sync <= 1; sync++) {
        snprintf(folder[sync], sizeof folder[sync], "%s%d", test_path("gpu"), sync);
        CHECK_I64(apart(sync, folder[sync]), 0);
        CHECK_I64(apart(2, folder[sync]), 0);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(on_a_gpu_too); /* first: its processes must not inherit threads */
    RUN(the_last_checkpoint_stands);
    return test_end();
}
