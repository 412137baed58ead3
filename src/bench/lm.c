/*
 * `sluice bench lm`: language models step by step. Forward pass alone, and whole steps with forward, backward and
 * optimizer apart; what warming up changes; where the time goes; what profiling costs; whether anything makes the host
 * wait.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/guard.h"
#include "bench/machine.h"
#include "bench/numerics.h"
#include "bench/profile.h"
#include "bench/published.h"
#include "core/mem.h"
#include "core/stats.h"

enum { MOST_CONTEXTS = 16 };
#define PARTS "sizes,times,warmup,profile"
#define SAME_LOSS 1e-4 /* forward pass alone and inside a step, relative */
#define NEAR_LOSS 2e-3 /* other precisions against f32 */

static const sl_option options[] = {
    {"sizes", "NAME,NAME,...", SL_OPT_STRING, NULL, "LM",
     "models; default: small on a CPU, tiny,small,medium,large,xl,2.7b on a GPU"},
    {"contexts", "N,N,...", SL_OPT_STRING, NULL, "LM",
     "sequence lengths; default: 128,256 on a CPU, 128,256,512,1024 on a GPU"},
    {"batch", "N", SL_OPT_I64, "4", "LM", "sequences"},
    {"precisions", "NAME,...", SL_OPT_STRING, "f32,bf16", "LM",
     "f32, tf32 (f32 with the device's TF32 matmuls), bf16, bf16-master"},
    {"cell-seconds", "S", SL_OPT_F64, "0", "LM",
     "most seconds for a row's steps, three of them at least (0: no limit); the row says how many there were"},
    {"device-mem", "BYTES", SL_OPT_BYTES, NULL, "LM", "budget of device memory; default: what there is"},
    {"host-mem", "BYTES", SL_OPT_BYTES, NULL, "LM", "budget of host memory; default: what there is"},
    {"parts", "NAME,...", SL_OPT_STRING, PARTS, "LM", "which tables to make"},
    SL_OPTION_PUBLISHED,
};

typedef struct lm {
    const sl_bench_job *job;
    sl_results *results;
    const char *sizes, *precisions;
    int64_t contexts[MOST_CONTEXTS], n_contexts, batch;
    size_t budget[SL_TIER_COUNT]; /* 0: none given */
    double cell_s;
    bool gpu, has_tf32;
} lm;

static bool has_part(const lm *l, const char *part)
{
    return sl_list_has(sl_options_string(l->job->options, "parts"), part);
}

typedef struct policy {
    const char *name;
    sl_precision precision;
    bool tf32; /* a switch of the device */
} policy;

static sl_status find_policy(const char *name, policy *out)
{
    static const policy known[] = {{"f32", SL_PRECISION_F32, false},
                                   {"tf32", SL_PRECISION_F32, true},
                                   {"bf16", SL_PRECISION_BF16, false},
                                   {"bf16-master", SL_PRECISION_BF16_MASTER, false}};
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i];
            return SL_OK;
        }
    return sl_fail(SL_E_USAGE, "--precisions: \"%s\" is none; use f32, tf32, bf16 or bf16-master", name);
}

static sl_trial_config trial_config(const lm *l, const sl_model *model, int64_t context, sl_precision precision,
                                    bool forward)
{
    sl_trial_config config = sl_trial_of(l->job, model, context, l->batch, precision);
    config.forward_only = forward;
    memcpy(config.budget, l->budget, sizeof config.budget);
    return config;
}

/* ---- B3: sizes ---- */

static sl_status size_table(const lm *l)
{
    static const char *const known[] = {"tiny", "small", "medium", "large", "xl", "2.7b"};
    sl_table *t = sl_results_table(l->results, "sizes",
                                   "Sizes, and the forward pass of 4 sequences (whole square of attention counted)",
                                   "size parameters millions:M.1 state_f32_gb:GB.2 t128_tflop:TFLOP.3 "
                                   "t256_tflop:TFLOP.3 t512_tflop:TFLOP.3 t1024_tflop:TFLOP.3");
    for (int64_t i = 0; i < SL_COUNT(known); i++) {
        sl_model m;
        double forward[4];
        SL_TRY(sl_model_find(known[i], &m));
        for (int c = 0; c < 4; c++) {
            int64_t tokens = 128 << c;
            double half =
                2.0 * 4 * (double) tokens * (double) tokens * (double) (m.heads * m.head_dim) * (double) m.layers;
            forward[c] = sl_model_step_flops(&m, tokens, 4) / 3 + half;
        }
        int64_t parameters = sl_model_parameters(&m);
        SL_ROW(t, known[i], parameters, 1e-6 * (double) parameters, 16e-9 * (double) parameters, 1e-12 * forward[0],
               1e-12 * forward[1], 1e-12 * forward[2], 1e-12 * forward[3]);
    }
    return SL_OK;
}

/* ---- B1, B8: times ---- */

typedef struct timing {
    sl_stats wall;
    double loss; /* of the first step */
    double flops, peak_flops;
    int64_t tokens;
    size_t peak_bytes;
    double phase_s[3];
} timing;

static sl_status time_trial(const lm *l, const sl_trial_config *config, timing *out)
{
    const sl_bench_job *job = l->job;
    sl_trial trial;
    sl_profile profile = {0};
    SL_TRY(sl_trial_open(config, &trial));
    trial.watch.hide_spans = true;
    sl_status status = sl_trial_time(&trial, job->warmup, job->steps, l->cell_s, &out->wall, &out->loss);
    if (status == SL_OK && !config->forward_only)
        status = sl_profile_run(&trial, SL_MIN(job->steps, 3), &profile);
    if (status == SL_OK) {
        memcpy(out->phase_s, profile.phase_s, sizeof out->phase_s);
        out->flops = trial.program->flops;
        out->tokens = trial.program->tokens;
        out->peak_flops = trial.costs->peak_flops;
        out->peak_bytes = sl_engine_peak_bytes(trial.engine, SL_TIER_DEVICE);
    }
    sl_trial_close(&trial);
    return status;
}

static bool is_out_of_memory(sl_status status)
{
    return status == SL_E_DOES_NOT_FIT || status == SL_E_MEMORY;
}

/* A row without times; `loss` 0: none either. */
static void empty_row(sl_table *t, const char *size, int64_t context, const char *policy_name, double loss,
                      const char *why)
{
    sl_cell none = sl_cell_none();
    SL_ROW(t, size, context, policy_name, none, none, none, none, none, none, none, none, none, none, none,
           loss > 0 ? sl_cell_number(loss) : none, why);
}

/* Both losses are right: the step's is the forward pass's, and near f32's. */
static bool check_losses(const lm *l, const char *size, int64_t context, const policy *p, double forward, double step,
                         double *base_loss)
{
    char what[160];
    snprintf(what, sizeof what, "%s, context %lld, %s: loss of the step against the forward pass's", size,
             (long long) context, p->name);
    bool good = sl_guard(l->results, what, fabs(step / forward - 1), SAME_LOSS);
    if (p->precision == SL_PRECISION_F32 && !p->tf32)
        *base_loss = step;
    else if (*base_loss > 0) {
        snprintf(what, sizeof what, "%s, context %lld, %s: loss against f32's", size, (long long) context, p->name);
        good &= sl_guard(l->results, what, fabs(step / *base_loss - 1), NEAR_LOSS);
    }
    return good;
}

static sl_status time_both(const lm *l, const sl_trial_config *config, bool tf32, timing *forward, timing *step)
{
    sl_trial_config c = *config;
    if (tf32)
        sl_tf32_switch(true);
    c.forward_only = true;
    sl_status status = time_trial(l, &c, forward);
    c.forward_only = false;
    if (status == SL_OK)
        status = time_trial(l, &c, step);
    if (tf32)
        sl_tf32_switch(false);
    return status;
}

static sl_status time_row(const lm *l, const char *size, int64_t context, const policy *p, double *base_loss,
                          sl_table *t)
{
    sl_model model;
    timing forward = {0}, step = {0};
    char memory[32];
    SL_TRY(sl_model_find(size, &model));
    if (p->tf32 && !l->has_tf32) {
        empty_row(t, size, context, p->name, 0, "not offered by this device");
        return SL_OK;
    }
    sl_bench_progress(l->job, "%s, context %lld, %s", size, (long long) context, p->name);
    sl_trial_config config = trial_config(l, &model, context, p->precision, true);
    sl_status status = time_both(l, &config, p->tf32, &forward, &step);
    if (is_out_of_memory(status)) {
        empty_row(t, size, context, p->name, 0, "out of memory");
        return SL_OK;
    }
    SL_TRY(status);
    if (!check_losses(l, size, context, p, forward.loss, step.loss, base_loss)) {
        empty_row(t, size, context, p->name, step.loss, "other loss");
        return SL_OK;
    }
    SL_ROW(t, size, context, p->name, 1e3 * forward.wall.mean, 1e3 * forward.wall.std,
           1e3 * step.phase_s[SL_PHASE_FORWARD], 1e3 * step.phase_s[SL_PHASE_BACKWARD],
           1e3 * step.phase_s[SL_PHASE_OPTIMIZER], 1e3 * step.wall.mean, 1e3 * step.wall.std, step.wall.n,
           (double) step.tokens / step.wall.mean, 1e-12 * step.flops / step.wall.mean,
           100 * step.flops / step.wall.mean / step.peak_flops, step.loss, sl_format_bytes(step.peak_bytes, memory));
    return SL_OK;
}

static sl_status time_table(const lm *l)
{
    sl_table *t = sl_results_table(l->results, "times",
                                   "Forward pass alone; whole steps, and their parts as the device timed them",
                                   "size context precision forward_ms:ms.3 forward_std_ms:ms.3 in_step_forward_ms:ms.3 "
                                   "in_step_backward_ms:ms.3 in_step_optimizer_ms:ms.3 step_ms:ms.3 step_std_ms:ms.3 "
                                   "steps tokens_per_s* tflops:TFLOP/s.3 mfu_percent:%.1 loss:.5 device_memory");
    const char *sizes = l->sizes;
    char size[64], precision[64];
    while (sl_list_next(&sizes, size))
        for (int64_t c = 0; c < l->n_contexts; c++) {
            const char *precisions = l->precisions;
            double base_loss = 0;
            while (sl_list_next(&precisions, precision)) {
                policy p = {0};
                SL_TRY(find_policy(precision, &p));
                SL_TRY(time_row(l, size, l->contexts[c], &p, &base_loss, t));
            }
        }
    if (sl_options_flag(l->job->options, "published"))
        sl_published_lm(l->results);
    return SL_OK;
}

/* ---- B2: warming up ---- */

static sl_status warmup_table(const lm *l)
{
    static const int64_t warmups[] = {0, 1, 2, 5};
    char title[160], size[64];
    const char *sizes = l->sizes;
    sl_model model;
    SL_ASSERT(sl_list_next(&sizes, size));
    SL_TRY(sl_model_find(size, &model));
    snprintf(title, sizeof title, "Warming up: steps of %s at context %lld, each row from a fresh start", size,
             (long long) l->contexts[0]);
    sl_table *t = sl_results_table(l->results, "warmup", title,
                                   "warmup mean_ms:ms.3 std_ms:ms.3* first_ms:ms.3 last_ms:ms.3 loss:.6");
    int64_t steps = l->job->steps;
    double *times;
    SL_TRY(sl_alloc(&times, steps, sizeof *times));
    sl_status status = SL_OK;
    for (int64_t i = 0; i < SL_COUNT(warmups) && status == SL_OK; i++) {
        sl_trial trial;
        double seconds, loss = 0, first, last;
        sl_trial_config config = trial_config(l, &model, l->contexts[0], SL_PRECISION_F32, false);
        sl_bench_progress(l->job, "%lld warm-up steps", (long long) warmups[i]);
        status = sl_trial_open(&config, &trial);
        if (status != SL_OK)
            break;
        trial.watch.hide_spans = true;
        for (int64_t w = 0; w < warmups[i] && status == SL_OK; w++)
            status = sl_trial_step(&trial, &seconds);
        for (int64_t s = 0; s < steps && status == SL_OK; s++) {
            status = sl_trial_step(&trial, &times[s]);
            if (status == SL_OK && s + warmups[i] == 0)
                status = sl_trial_loss(&trial, &loss);
        }
        sl_stats stats;
        first = times[0], last = times[steps - 1];
        sl_stats_of(times, steps, &stats);
        if (status == SL_OK)
            SL_ROW(t, warmups[i], 1e3 * stats.mean, 1e3 * stats.std, 1e3 * first, 1e3 * last, sl_cell_if(i == 0, loss));
        sl_trial_close(&trial);
    }
    sl_free(times);
    return status;
}

/* ---- B4, B5, S10, S11: profile ---- */

typedef struct profiled {
    sl_profile profile;
    sl_stats plain, traced; /* host seconds per step without and with every task timed */
    int64_t implicit_syncs, explicit_syncs, allocations, steps, launches, replays;
} profiled;

static sl_status time_steps(sl_trial *trial, int64_t steps, double *times, sl_stats *stats)
{
    for (int64_t i = 0; i < steps; i++)
        SL_TRY(sl_trial_step(trial, &times[i]));
    sl_stats_of(times, steps, stats);
    return SL_OK;
}

static sl_status profile_steps(const lm *l, sl_trial *trial, double *times, profiled *out)
{
    int64_t steps = l->job->steps;
    double seconds;
    trial->watch.hide_spans = true;
    for (int64_t i = 0; i < SL_MAX(l->job->warmup, 2); i++)
        SL_TRY(sl_trial_step(trial, &seconds));
    sl_watch_reset(&trial->watch);
    uint64_t allocations = sl_heap_calls();
    SL_TRY(time_steps(trial, steps, times, &out->plain));
    out->allocations = (int64_t) (sl_heap_calls() - allocations);
    out->implicit_syncs = trial->watch.implicit_syncs;
    out->explicit_syncs = trial->watch.explicit_syncs;
    out->steps = trial->watch.steps;
    out->replays = trial->watch.replays;
    trial->watch.hide_spans = false;
    trial->watch.hide_replay = true;
    sl_watch_reset(&trial->watch);
    SL_TRY(time_steps(trial, steps, times, &out->traced));
    out->launches = trial->watch.launches / SL_MAX(trial->watch.steps, 1);
    return sl_profile_run(trial, steps, &out->profile);
}

static sl_status profile_trial(const lm *l, const sl_model *model, bool forward, profiled *out)
{
    sl_trial trial;
    double *times;
    sl_trial_config config = trial_config(l, model, l->contexts[l->n_contexts - 1],
                                          l->gpu ? SL_PRECISION_BF16_MASTER : SL_PRECISION_F32, forward);
    SL_TRY(sl_trial_open(&config, &trial));
    sl_status status = sl_alloc(&times, l->job->steps, sizeof *times);
    if (status == SL_OK)
        status = profile_steps(l, &trial, times, out);
    sl_free(times);
    sl_trial_close(&trial);
    return status;
}

static void profile_summary(const lm *l, const profiled *forward, const profiled *step)
{
    sl_table *t =
        sl_results_table(l->results, "profile_summary", "The profile held against the clock, and what it costs",
                         "question forward:.4 step:.4 unit");
    const profiled *both[] = {forward, step};
    double v[2][10];
    for (int i = 0; i < 2; i++) {
        const profiled *p = both[i];
        v[i][0] = 1e3 * p->traced.mean;
        v[i][1] = 1e3 * p->profile.end_s;
        v[i][2] = 100 * (p->profile.end_s / p->profile.wall_s);
        v[i][3] = 100 * sl_profile_matmul_share(&p->profile);
        v[i][4] = 1e3 * p->plain.mean;
        v[i][5] = 100 * (p->traced.median / p->plain.median - 1);
        v[i][6] = (double) p->implicit_syncs / (double) SL_MAX(p->steps, 1);
        v[i][7] = (double) p->explicit_syncs / (double) SL_MAX(p->steps, 1);
        v[i][8] = (double) p->allocations / (double) SL_MAX(p->steps, 1);
        v[i][9] = (double) p->launches;
    }
    static const char *const questions[][2] = {
        {"host's clock, profiled", "ms"},          {"device's clock, first task to last", "ms"},
        {"device's clock over host's", "%"},       {"share of matrix products", "%"},
        {"host's clock, not profiled", "ms"},      {"profiling costs (medians)", "%"},
        {"implicit synchronisations", "per step"}, {"explicit ones (the step's end)", "per step"},
        {"heap allocations", "per step"},          {"launches", "per step"}};
    for (int q = 0; q < 10; q++)
        SL_ROW(t, questions[q][0], v[0][q], v[1][q], questions[q][1]);
}

static sl_status profile_tables(const lm *l)
{
    const char *sizes = l->sizes;
    char size[64], title[160];
    sl_model model;
    profiled forward = {0}, step = {0};
    SL_ASSERT(sl_list_next(&sizes, size));
    SL_TRY(sl_model_find(size, &model));
    sl_bench_progress(l->job, "profile of %s", size);
    SL_TRY(profile_trial(l, &model, true, &forward));
    SL_TRY(profile_trial(l, &model, false, &step));
    snprintf(title, sizeof title, "Where a step of %s at context %lld spends its time", size,
             (long long) l->contexts[l->n_contexts - 1]);
    sl_profile_table(&step.profile, "profile_step", title, l->results);
    snprintf(title, sizeof title, "Where its forward pass alone does");
    sl_profile_table(&forward.profile, "profile_forward", title, l->results);
    profile_summary(l, &forward, &step);
    return SL_OK;
}

static sl_status resolve(const sl_bench_job *job, lm *l)
{
    sl_hardware hardware;
    SL_TRY(sl_machine_hardware(job->device, job->threads, &hardware));
    l->gpu = !hardware.shared_cores;
    l->batch = sl_options_i64(job->options, "batch");
    if (l->batch < 1)
        return sl_fail(SL_E_USAGE, "--batch must be at least 1");
    if (sl_options_is_set(job->options, "device-mem"))
        l->budget[SL_TIER_DEVICE] = sl_options_bytes(job->options, "device-mem");
    if (sl_options_is_set(job->options, "host-mem"))
        l->budget[SL_TIER_HOST] = sl_options_bytes(job->options, "host-mem");
    const char *contexts = sl_options_string_or(job->options, "contexts",
                                                job->quick ? "32,64"
                                                : l->gpu   ? "128,256,512,1024"
                                                           : "128,256");
    l->sizes = sl_options_string_or(job->options, "sizes",
                                    job->quick ? "byte-nano"
                                    : l->gpu   ? "tiny,small,medium,large,xl,2.7b"
                                               : "small");
    l->precisions = sl_options_string(job->options, "precisions");
    l->cell_s = sl_options_f64(job->options, "cell-seconds");
    SL_TRY(sl_tf32_offered(job->device, &l->has_tf32));
    char item[64];
    const char *list = l->sizes;
    if (!sl_list_next(&list, item))
        return sl_fail(SL_E_USAGE, "--sizes is empty: give names from `sluice models`");
    return sl_list_i64("contexts", contexts, 1, MOST_CONTEXTS, l->contexts, &l->n_contexts);
}

static sl_status run(const sl_bench_job *job, sl_results *results)
{
    lm l = {.job = job, .results = results};
    SL_TRY(sl_list_check("parts", sl_options_string(job->options, "parts"), PARTS));
    SL_TRY(resolve(job, &l));
    if (has_part(&l, "sizes"))
        SL_TRY(size_table(&l));
    if (has_part(&l, "times"))
        SL_TRY(time_table(&l));
    if (has_part(&l, "warmup"))
        SL_TRY(warmup_table(&l));
    if (has_part(&l, "profile"))
        SL_TRY(profile_tables(&l));
    return SL_OK;
}

const sl_bench_def sl_bench_lm = {
    .name = "lm",
    .question = "how fast does a language model train, and where does the time go",
    .options = options,
    .n_options = SL_COUNT(options),
    .warmup = 5,
    .steps = 10,
    .quick_warmup = 1,
    .quick_steps = 3,
    .run = run,
};
