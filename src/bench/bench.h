/*
 * Benchmarks: one per question, each a line in benches.def and a `const sl_bench_def sl_bench_<name>` in this folder.
 * They see devices through device/device.h alone, so the same bench measures the CPU and a GPU. They print nothing:
 * they fill results.
 */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

#include "bench/results.h"
#include "core/options.h"
#include "device/device.h"

typedef struct sl_bench_job {
    const sl_options *options;
    const char *device; /* the class's name: "auto" is resolved */
    int threads;        /* 0: one per core */
    int64_t warmup, steps;
    bool quick;                         /* small shapes that end within a minute on two cores */
    void (*progress)(const char *what); /* NULL, or called with what comes next */
} sl_bench_job;

typedef struct sl_bench_def {
    const char *name, *question;
    const sl_option *options; /* beside the common ones */
    int64_t n_options;
    int64_t warmup, steps, quick_warmup, quick_steps; /* unless the user says */
    bool no_device;                                   /* arithmetic alone: runs anywhere */
    sl_status (*run)(const sl_bench_job *job, sl_results *results);
} sl_bench_def;

const sl_bench_def *const *sl_bench_defs(int64_t *count);
const sl_bench_def *sl_bench_find(const char *name); /* NULL: none */
/* Common options, then the bench's own. The array is the caller's (sl_free). */
sl_status sl_bench_options(const sl_bench_def *def, sl_option **table, int64_t *count);
/* Resolves the common options, notes the machine's facts and runs. */
sl_status sl_bench_run(const sl_bench_def *def, const sl_options *options, void (*progress)(const char *what),
                       sl_results **results);

/* The next item of a comma-separated list into `item`; false at its end. *list moves on. */
bool sl_list_next(const char **list, char item[64]);
bool sl_list_has(const char *list, const char *name);
/* All items as whole numbers of at least `least`; the message names the option. */
sl_status sl_list_i64(const char *option, const char *list, int64_t least, int64_t most, int64_t *out, int64_t *count);
/* Refuses an empty list and, with those there are, an item that is not among `known`, a list too. */
sl_status sl_list_check(const char *option, const char *list, const char *known);
void sl_bench_progress(const sl_bench_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
