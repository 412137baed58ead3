/* The list of benches and what they have in common. */
#include "bench/bench.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/baseline.h"
#include "bench/internal.h"
#include "bench/machine.h"
#include "core/pool.h"

#define SL_BENCH(name) extern const sl_bench_def sl_bench_##name;
#include "bench/benches.def"
#undef SL_BENCH

static const sl_bench_def *const defs[] = {
#define SL_BENCH(name) &sl_bench_##name,
#include "bench/benches.def"
#undef SL_BENCH
};

static const sl_option common[] = {
    {"quick", NULL, SL_OPT_FLAG, "false", "Run", "small shapes: ends within a minute on two cores"},
    {"device", "auto|cpu|cuda", SL_OPT_STRING, "auto", "Run", "where to compute; auto takes the best device present"},
    {"threads", "N", SL_OPT_I64, "0", "Run", "CPU threads; 0: one per core"},
    {"warmup", "N", SL_OPT_I64, NULL, "Run", "runs before the clock starts; a bench knows how many it needs"},
    {"steps", "N", SL_OPT_I64, NULL, "Run", "runs that are timed"},
    {"baseline", "FILE", SL_OPT_STRING, NULL, "Run",
     "hold the results against those --out wrote earlier: other values are refused, times are compared"},
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "print one JSON object instead of tables"},
    {"out", "FILE", SL_OPT_STRING, NULL, "Output", "write the JSON object to a file as well"},
};

const sl_bench_def *const *sl_bench_defs(int64_t *count)
{
    *count = SL_COUNT(defs);
    return defs;
}

const sl_bench_def *sl_bench_find(const char *name)
{
    for (int64_t i = 0; i < SL_COUNT(defs); i++)
        if (strcmp(defs[i]->name, name) == 0)
            return defs[i];
    return NULL;
}

sl_status sl_bench_options(const sl_bench_def *def, sl_option **table, int64_t *count)
{
    SL_TRY(sl_alloc(table, SL_COUNT(common) + def->n_options, sizeof **table));
    memcpy(*table, common, sizeof common);
    if (def->n_options)
        memcpy(*table + SL_COUNT(common), def->options, (size_t) def->n_options * sizeof *def->options);
    *count = SL_COUNT(common) + def->n_options;
    return SL_OK;
}

static sl_status count_option(const sl_options *options, const char *name, int64_t least, int64_t most,
                              int64_t otherwise, int64_t *out)
{
    *out = sl_options_i64_or(options, name, otherwise);
    if (*out < least || *out > most)
        return sl_fail(SL_E_USAGE, "--%s %" PRId64 " is out of range: give a number from %" PRId64 " to %" PRId64, name,
                       *out, least, most);
    return SL_OK;
}

/* A device that fails on the way does not take the rows before it along: they are shown, and the command fails. */
static sl_status keep_rows(sl_status status, sl_results *results)
{
    bool found = false;
    for (const sl_table *t = results->first; t; t = t->next)
        found |= t->n_rows > 0;
    if (status == SL_OK || status == SL_E_USAGE || !found)
        return status;
    sl_results_end_early(results);
    return SL_OK;
}

sl_status sl_bench_run(const sl_bench_def *def, const sl_options *options, void (*progress)(const char *what),
                       sl_results **out)
{
    const sl_device_class *class = NULL;
    sl_results *results = NULL;
    sl_bench_job job = {.options = options, .progress = progress, .quick = sl_options_flag(options, "quick")};
    SL_TRY(sl_pool_check_threads(sl_options_i64(options, "threads")));
    SL_TRY(count_option(options, "warmup", 0, 1000000, job.quick ? def->quick_warmup : def->warmup, &job.warmup));
    SL_TRY(count_option(options, "steps", 1, 1000000, job.quick ? def->quick_steps : def->steps, &job.steps));
    job.threads = (int) sl_options_i64(options, "threads");
    if (!def->no_device)
        SL_TRY(sl_device_find(sl_options_string(options, "device"), &class));
    job.device = class ? class->name : "none";
    SL_TRY(sl_results_create("bench", def->name, &results));
    sl_status status = sl_machine_facts(class ? class->name : NULL, job.threads, results);
    if (status == SL_OK)
        status = keep_rows(def->run(&job, results), results);
    if (status == SL_OK && sl_options_is_set(options, "baseline"))
        status = sl_baseline_compare(results, sl_options_string(options, "baseline"));
    if (status == SL_OK)
        status = sl_results_status(results);
    if (status != SL_OK) {
        sl_results_destroy(results);
        return status;
    }
    *out = results;
    return SL_OK;
}

bool sl_list_next(const char **list, char item[64])
{
    return sl_next_item(list, item, 64);
}

sl_status sl_list_i64(const char *option, const char *list, int64_t least, int64_t most, int64_t *out, int64_t *count)
{
    char item[64];
    int64_t n = 0, value;
    while (sl_list_next(&list, item)) {
        if (sl_parse_i64(item, &value) != SL_OK || value < least)
            return sl_fail(SL_E_USAGE, "--%s: \"%s\" is no whole number of at least %" PRId64, option, item, least);
        if (n == most)
            return sl_fail(SL_E_USAGE, "--%s lists more than %" PRId64 " numbers", option, most);
        out[n++] = value;
    }
    if (n == 0)
        return sl_fail(SL_E_USAGE, "--%s is empty: give numbers with commas between them", option);
    *count = n;
    return SL_OK;
}

bool sl_list_has(const char *list, const char *name)
{
    char item[64];
    while (sl_list_next(&list, item))
        if (strcmp(item, name) == 0)
            return true;
    return false;
}

sl_status sl_list_check(const char *option, const char *list, const char *known)
{
    char item[64], names[256] = "";
    const char *first = list, *at = known;
    while (sl_list_next(&at, item)) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", item);
    }
    if (!sl_list_next(&first, item))
        return sl_fail(SL_E_USAGE, "--%s is empty: use %s", option, names);
    while (sl_list_next(&list, item))
        if (!sl_list_has(known, item))
            return sl_fail(SL_E_USAGE, "--%s: there is no \"%s\"; use %s", option, item, names);
    return SL_OK;
}

void sl_bench_progress(const sl_bench_job *job, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (!job->progress)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    job->progress(text);
}
