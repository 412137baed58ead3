/* A checkpoint is written while the power goes, at every call and with every loss that a disk may show: what a resume finds is
 * whole, it is the new one where writing had reported success, and never less than the one before. */
#include "checkpoint_fixture.h"
#include "crash_disk.h"

static char root[300], template[300]; /* a run's folder, and what is in it before */
static fixture job;
static int64_t before, writes; /* steps: of the newest checkpoint, and of the one being written */
static int64_t shard_bytes;

static void copy(const char *from, const char *to)
{
    char command[900];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    REQUIRE(system(command) == 0);
}

static void prepare(void *context)
{
    (void) context;
    copy(template, root);
}

static int work(void *context)
{
    (void) context;
    return write_step(&job, writes) != SL_OK;
}

static void check(void *context, bool succeeded, const char *what)
{
    sl_checkpoint found;
    (void) context;
    int failures = test_failures;
    sl_status status = sl_checkpoint_find(&job.memory.store, &job.identity, &found);
    CHECK_MSG(status == SL_OK, "%s: %s", what, sl_error_message());
    int64_t step = status == SL_OK ? found.progress.step : -1;
    CHECK_MSG(step == writes || (!succeeded && step == before), "%s: step %" PRId64 " is found", what, step);
    if (status == SL_OK && step > 0)
        expect(&job, step);
    CHECK_MSG(test_failures == failures, "%s", what);
}

/* `steps` are there before `step` is written; `keep` of them stay. */
static void try(const char *name, const int64_t *steps, int64_t step, int64_t keep)
{
    snprintf(template, sizeof template, "%.250s.%s", root, name);
    CHECK_OK(sl_dir_create(template));
    open_fixture(&job, "byte-test", SL_PRECISION_BF16_MASTER, template);
    job.setup.keep = keep;
    job.setup.shard_bytes = shard_bytes;
    before = -1;
    for (; *steps; steps++) {
        CHECK_OK(write_step(&job, *steps));
        before = *steps;
    }
    job.setup.out = root;
    writes = step;
    test_expect_warnings(TEST_ANY, "is damaged");
    test_expect_warnings(TEST_ANY, "an old checkpoint could not be removed");
    crash_everywhere(root, prepare, work, check, NULL);
    crash_failing_everywhere(root, EIO, prepare, work, check, NULL);
    close_fixture(&job);
}

TEST(the_first)
{
    try("first", (const int64_t[]){0}, 1, 1);
}

TEST(the_only_one_is_replaced)
{
    try("replaced", (const int64_t[]){1, 0}, 2, 1);
}

TEST(weights_in_several_files)
{
    shard_bytes = 20000;
    try("shards", (const int64_t[]){1, 0}, 2, 1);
    shard_bytes = 0;
}

TEST(a_step_is_written_again)
{
    bool done;
    char from[400], to[400];
    snprintf(from, sizeof from, "%s", test_path("one"));
    snprintf(to, sizeof to, "%s", test_path("other"));
    CHECK_OK(sl_dir_create(from));
    CHECK_OK(sl_dir_create(to));
    CHECK_OK(sl_exchange_durable(from, to, &done));
    if (!done) {
        printf("     this file system cannot exchange names: left out\n");
        return;
    }
    try("again", (const int64_t[]){1, 2, 0}, 2, 1);
}

int main(int argc, char **argv)
{
    char real[300];
    test_begin(argc, argv);
    REQUIRE(realpath(test_dir(), real) != NULL);
    snprintf(root, sizeof root, "%.250s/run", real);
    RUN(the_first);
    RUN(the_only_one_is_replaced);
    RUN(weights_in_several_files);
    RUN(a_step_is_written_again);
    return test_end();
}
