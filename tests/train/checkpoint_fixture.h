/* Checkpoints of a store in plain memory whose content follows from the step. */
#ifndef SL_TESTS_CHECKPOINT_FIXTURE_H
#define SL_TESTS_CHECKPOINT_FIXTURE_H

#include "core/file.h"
#include "core/log.h"
#include "memory_store.h"
#include "train/checkpoint.h"

typedef struct fixture {
    memory_store memory;
    sl_job *job;
    sl_setup setup;
    sl_identity identity;
    const char *name; /* of the model */
} fixture;

static inline void open_fixture(fixture *f, const char *model, sl_precision precision, const char *out)
{
    memset(f, 0, sizeof *f);
    memory_open(&f->memory, model, precision, SL_OPTIMIZER_ADAMW);
    CHECK_OK(sl_job_create(&f->job));
    f->name = model;
    f->setup.model = f->memory.model;
    f->setup.program = f->memory.program->config;
    f->setup.out = out;
    f->setup.keep = 2;
    f->setup.seed = 11;
    f->identity = (sl_identity){
        .setup = &f->setup, .data = "1234", .sample = "5678", .numerics = "test kernels", .weights = "random, seed 11"};
}

static inline void close_fixture(fixture *f)
{
    sl_job_destroy(f->job);
    memory_close(&f->memory);
}

static inline sl_status write_step(fixture *f, int64_t step)
{
    char path[1024];
    memory_scramble(&f->memory, (uint64_t) step);
    sl_progress progress = {step, 4 * step, step - 1};
    return sl_checkpoint_write(&f->memory.store, &f->identity, f->job->options, &progress, path);
}

/* Finds, loads and compares with what step `want` wrote. -1: there must be none. */
static inline void expect(fixture *f, int64_t want)
{
    sl_checkpoint found;
    CHECK_OK(sl_checkpoint_find(&f->memory.store, &f->identity, &found));
    CHECK_I64(found.progress.step, want);
    if (want < 0 || found.progress.step != want)
        return;
    CHECK_I64(found.progress.position, 4 * want);
    CHECK_I64(found.progress.updates, want - 1);
    fixture original;
    open_fixture(&original, f->name, f->setup.program.precision, f->setup.out);
    memory_scramble(&original.memory, (uint64_t) want);
    memory_scramble(&f->memory, 987654321);
    CHECK_OK(sl_checkpoint_load(&f->memory.store, &found));
    CHECK(memory_equal(&f->memory, &original.memory));
    close_fixture(&original);
}

static inline void put_file(const char *path, const char *bytes, size_t length)
{
    FILE *file = fopen(path, "w");
    REQUIRE(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

static char heard[4096]; /* what the log said since it was last emptied */

/* For sl_log_set. */
static inline void hear(void *user, sl_log_level level, const char *message)
{
    (void) user;
    size_t length = strlen(heard);
    snprintf(heard + length, sizeof heard - length, "%s%s\n", level >= SL_LOG_WARN ? "warning: " : "", message);
}

#endif
