/*
 * `sluice bench precision`: what number formats cost and bring. The exact parts (sums, facts, audit, reduced
 * accumulation) are computed here by emulation; the device's own part (which bits reach a product, speed, loss) is
 * measured.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/formats.h"
#include "bench/guard.h"
#include "bench/numerics.h"
#include "bench/published.h"
#include "bench/trial.h"
#include "core/rng.h"

enum { TERMS = 1000, DOT_LENGTH = 4096, DOTS = 16 };
#define MOST_LOSS_DIFFERENCE 2e-3 /* relative to f32's loss of the same first step */

static const sl_option options[] = {
    {"models", "NAME,NAME,...", SL_OPT_STRING, NULL, "Precision",
     "models to train a few steps of; default: small,medium,large"},
    {"seqlen", "TOKENS", SL_OPT_I64, NULL, "Precision", "sequence length; default: 256"},
    {"batch", "N", SL_OPT_I64, "4", "Precision", "sequences per step"},
    SL_OPTION_PUBLISHED,
};

/* ---- B6 ---- */

static void sum_table(sl_results *results)
{
    static const struct {
        sl_format_id of, sum;
        const char *label;
    } rows[] = {{SL_FORMAT_F32, SL_FORMAT_F32, "f32"},    {SL_FORMAT_F16, SL_FORMAT_F16, "f16"},
                {SL_FORMAT_F16, SL_FORMAT_F32, "f32"},    {SL_FORMAT_F16, SL_FORMAT_F32, "f32, terms widened first"},
                {SL_FORMAT_BF16, SL_FORMAT_BF16, "bf16"}, {SL_FORMAT_BF16, SL_FORMAT_F32, "f32"}};
    sl_table *t = sl_results_table(results, "sums", "1000 times 0.01, every partial sum rounded (10 would be right)",
                                   "terms sum_in value:.6 error:.6");
    for (int64_t i = 0; i < SL_COUNT(rows); i++) {
        double sum = sl_format_sum(sl_format_of(rows[i].of), sl_format_of(rows[i].sum), 0.01, TERMS);
        SL_ROW(t, sl_format_of(rows[i].of)->name, rows[i].label, sum, sum - 10);
    }
}

/* ---- B9 ---- */

static void fact_table(sl_results *results)
{
    sl_table *t = sl_results_table(
        results, "formats", "Number formats",
        "format bits largest:.g smallest_normal:.g smallest:.g epsilon:.g of_1e-8:.g underflows_at_1e-8 loss_scaling");
    for (int id = 0; id < SL_FORMAT_COUNT; id++) {
        const sl_format *f = sl_format_of((sl_format_id) id);
        double small = sl_format_round(f, 1e-8);
        SL_ROW(t, f->name, f->bits, f->largest, sl_format_smallest(f, false), sl_format_smallest(f, true),
               sl_format_epsilon(f), small, sl_cell_flag(small == 0), f->exponent_bits < 8 ? "needed" : "not needed");
    }
    sl_results_note(results, "GPT-3's feed-forward matrix, 49152 x 12288 in f32, takes %lld MiB.",
                    (long long) (((int64_t) 4 * 12288 * 12288 * 4) >> 20));
}

/* ---- B7 ---- */

/* Mixed precision by category: products in the short format, reductions in f32, elementwise as their input. */
static const char *cast_by_category(sl_op_id op, const char *input, const char *narrow)
{
    switch (sl_op(op)->category) {
    case SL_CAT_DOT_PRODUCT:
    case SL_CAT_ATTENTION:
        return narrow;
    case SL_CAT_REDUCTION:
        return "f32";
    default:
        return input;
    }
}

static void audit_toy(sl_table *t)
{
    const char *parameters = "f32", *input = "f32", *narrow = "f16";
    const char *fc1 = cast_by_category(SL_OP_MATMUL, input, narrow);
    const char *act = cast_by_category(SL_OP_GELU, fc1, narrow);
    const char *norm = cast_by_category(SL_OP_LAYERNORM, act, narrow);
    const char *logits = cast_by_category(SL_OP_MATMUL, norm, narrow);
    const char *loss = cast_by_category(SL_OP_SUM, logits, narrow);
    SL_ROW(t, "f16 autocast, emulated", parameters, fc1, norm, logits, loss, parameters, sl_cell_none(),
           sl_cell_none());
}

static const char *name_of(sl_dtype dtype)
{
    return sl_dtype_name(dtype);
}

/* From the types of a real program's tasks. */
static void audit_program(sl_table *t, const char *policy, const sl_program *p)
{
    sl_cell linear = sl_cell_none(), norm = linear, loss = linear, gradient = linear, moments = linear, master = linear;
    for (int32_t i = 0; i < p->n_tasks; i++) {
        const sl_task *task = &p->tasks[i];
        sl_cell out = sl_cell_text(name_of(task->out[0].type.dtype));
        if (task->op == SL_OP_MATMUL && task->phase == SL_PHASE_FORWARD)
            linear = out;
        else if (task->op == SL_OP_RMSNORM)
            norm = out;
        else if (task->op == SL_OP_HEAD_LOSS || task->op == SL_OP_HEAD_LOSS_BWD)
            loss = out;
        else if (task->op == SL_OP_ADAMW) {
            gradient = sl_cell_text(name_of(task->in[0].type.dtype));
            moments = sl_cell_text(name_of(task->out[1].type.dtype));
            if (task->out[3].object >= 0)
                master = sl_cell_text(name_of(task->out[3].type.dtype));
        }
    }
    SL_ROW(t, policy, name_of(p->params[0].type.dtype), linear, norm, "f32 (workspace)", loss, gradient, moments,
           master);
}

static const struct {
    const char *name;
    sl_precision precision;
    bool tf32; /* a switch of the device, where it has one */
} policies[] = {{"f32", SL_PRECISION_F32, false},
                {"f32, TF32 products", SL_PRECISION_F32, true},
                {"bf16", SL_PRECISION_BF16, false},
                {"bf16-master", SL_PRECISION_BF16_MASTER, false}};

static sl_status audit_table(const sl_bench_job *job, sl_results *results)
{
    sl_table *t = sl_results_table(results, "audit", "Which dtype everything has",
                                   "policy parameters linear norm logits loss gradients moments master");
    sl_model model;
    audit_toy(t);
    SL_TRY(sl_model_find("byte-test", &model));
    for (int64_t i = 0; i < SL_COUNT(policies); i++) {
        sl_trial trial;
        if (policies[i].tf32)
            continue; /* the same dtypes */
        sl_trial_config config = sl_trial_of(job, &model, 16, 1, policies[i].precision);
        SL_TRY(sl_trial_plan(&config, &trial));
        audit_program(t, policies[i].name, trial.program);
        sl_trial_close(&trial);
    }
    return SL_OK;
}

/* ---- S9: reduced accumulation ---- */

/* Dot products of positive numbers, as after a softmax or a gate: partial sums grow, which is where short sums lose. */
static void accumulation_table(sl_results *results)
{
    static const struct {
        sl_format_id of, sum;
        int64_t run;
    } rows[] = {{SL_FORMAT_F32, SL_FORMAT_F32, 1},   {SL_FORMAT_TF32, SL_FORMAT_F32, 1},
                {SL_FORMAT_BF16, SL_FORMAT_F32, 1},  {SL_FORMAT_BF16, SL_FORMAT_BF16, 16},
                {SL_FORMAT_BF16, SL_FORMAT_BF16, 1}, {SL_FORMAT_F16, SL_FORMAT_F32, 1},
                {SL_FORMAT_F16, SL_FORMAT_F16, 16},  {SL_FORMAT_F16, SL_FORMAT_F16, 1},
                {SL_FORMAT_E4M3, SL_FORMAT_F32, 1},  {SL_FORMAT_E5M2, SL_FORMAT_F32, 1}};
    static float x[DOTS][DOT_LENGTH], y[DOTS][DOT_LENGTH];
    sl_table *t = sl_results_table(results, "accumulation",
                                   "Dot products of 4096 positive numbers against f64, by what sums are kept in",
                                   "inputs sums rounded_every mean_relative_error:.g verdict");
    for (int d = 0; d < DOTS; d++)
        for (int i = 0; i < DOT_LENGTH; i++) {
            sl_rng4 words = sl_philox(11, (uint64_t) i, (uint64_t) d);
            x[d][i] = sl_rng_uniform(words.v[0]);
            y[d][i] = sl_rng_uniform(words.v[1]);
        }
    for (int64_t r = 0; r < SL_COUNT(rows); r++) {
        double error = 0;
        for (int d = 0; d < DOTS; d++) {
            double exact = 0, got;
            for (int i = 0; i < DOT_LENGTH; i++)
                exact += (double) x[d][i] * (double) y[d][i];
            got =
                sl_format_dot(sl_format_of(rows[r].of), sl_format_of(rows[r].sum), rows[r].run, x[d], y[d], DOT_LENGTH);
            error += fabs(got - exact) / exact / DOTS;
        }
        bool reduced = rows[r].sum != SL_FORMAT_F32;
        SL_ROW(t, sl_format_of(rows[r].of)->name, sl_format_of(rows[r].sum)->name, rows[r].run, error,
               reduced ? "reduced accumulation" : "full accumulation");
    }
}

static sl_status device_table(const sl_bench_job *job, sl_results *results)
{
    sl_table *t = sl_results_table(results, "device", "What the device's matrix multiply does with numbers",
                                   "switch numerics f32_bits_used f32_products bf16_sum_of_ones bf16_sums");
    bool offered;
    SL_TRY(sl_tf32_offered(job->device, &offered));
    for (int tf32 = 0; tf32 < (offered ? 2 : 1); tf32++) {
        sl_rig rig;
        sl_numerics n;
        if (tf32)
            sl_tf32_switch(true);
        sl_status status = sl_rig_open(job->device, job->threads, (size_t) 128 << 20, &rig);
        if (status == SL_OK) {
            status = sl_numerics_probe(&rig, &n);
            if (status == SL_OK)
                SL_ROW(t, tf32 ? "SLUICE_TF32=1" : "default", rig.timer.class->numerics(rig.timer.device), n.f32_bits,
                       sl_numerics_f32(&n), n.bf16_ones, sl_numerics_sums(&n));
            sl_rig_close(&rig);
        }
        if (tf32)
            sl_tf32_switch(false);
        SL_TRY(status);
    }
    if (!offered)
        sl_results_note(results, "This device offers no TF32; f16, f64, int8 and fp8 are no dtypes of Sluice, so they "
                                 "are emulated above and not timed.");
    return SL_OK;
}

/* ---- S8: speed-up and first loss ---- */

typedef struct precision_run {
    double first_loss;
    sl_stats step;
    size_t peak;
} precision_run;

static sl_status run_policy(const sl_bench_job *job, const sl_model *model, int64_t seqlen, sl_precision precision,
                            precision_run *run)
{
    sl_trial trial;
    sl_trial_config config = sl_trial_of(job, model, seqlen, sl_options_i64(job->options, "batch"), precision);
    SL_TRY(sl_trial_open(&config, &trial));
    trial.watch.hide_spans = true;
    sl_status status = sl_trial_time(&trial, job->warmup, job->steps, 0, &run->step, &run->first_loss);
    if (status == SL_OK)
        run->peak = sl_engine_peak_bytes(trial.engine, SL_TIER_DEVICE);
    sl_trial_close(&trial);
    return status;
}

static sl_status speed_rows(const sl_bench_job *job, const char *name, int64_t seqlen, bool has_tf32, sl_table *t,
                            sl_results *results)
{
    sl_model model;
    precision_run base = {0};
    bool have_base = false;
    SL_TRY(sl_model_find(name, &model));
    for (int64_t i = 0; i < SL_COUNT(policies); i++) {
        precision_run run = {0};
        char what[160], memory[32];
        if (policies[i].tf32 && !has_tf32)
            continue;
        sl_bench_progress(job, "%s in %s", name, policies[i].name);
        if (policies[i].tf32)
            sl_tf32_switch(true);
        sl_status status = run_policy(job, &model, seqlen, policies[i].precision, &run);
        if (policies[i].tf32)
            sl_tf32_switch(false);
        if (status == SL_E_DOES_NOT_FIT || status == SL_E_MEMORY) {
            SL_ROW(t, name, policies[i].name, sl_cell_none(), sl_cell_none(), sl_cell_none(), sl_cell_none(),
                   sl_cell_none(), sl_cell_none(), "out of memory");
            continue;
        }
        SL_TRY(status);
        if (i == 0)
            base = run, have_base = true;
        double difference = have_base ? run.first_loss - base.first_loss : (double) NAN;
        snprintf(what, sizeof what, "%s in %s", name, policies[i].name);
        bool good = !have_base || sl_guard(results, what, fabs(difference) / base.first_loss, MOST_LOSS_DIFFERENCE);
        SL_ROW(t, name, policies[i].name, sl_cell_if(good, 1e3 * run.step.mean), 1e3 * run.step.std,
               sl_cell_if(good && have_base, base.step.mean / run.step.mean), run.first_loss, difference,
               sl_format_bytes(run.peak, memory), good ? "same loss" : "other loss");
    }
    return SL_OK;
}

static sl_status speed_table(const sl_bench_job *job, sl_results *results)
{
    bool quick = job->quick;
    const char *models = sl_options_string_or(job->options, "models", quick ? "byte-tiny" : "small,medium,large");
    int64_t seqlen = sl_options_i64_or(job->options, "seqlen", quick ? 64 : 256);
    char name[64];
    if (seqlen < 1 || sl_options_i64(job->options, "batch") < 1)
        return sl_fail(SL_E_USAGE, "--seqlen and --batch must be at least 1");
    sl_table *t = sl_results_table(
        results, "speed", "A training step by precision policy, weights and tokens alike",
        "model policy step_ms:ms.2 std_ms:ms.2 speed_up:.2* first_loss:.6 loss_difference:.6 device_peak verdict");
    bool has_tf32;
    SL_TRY(sl_tf32_offered(job->device, &has_tf32));
    while (sl_list_next(&models, name))
        SL_TRY(speed_rows(job, name, seqlen, has_tf32, t, results));
    if (sl_options_flag(job->options, "published"))
        sl_published_precision(results);
    return SL_OK;
}

static sl_status run(const sl_bench_job *job, sl_results *results)
{
    sum_table(results);
    fact_table(results);
    SL_TRY(audit_table(job, results));
    accumulation_table(results);
    SL_TRY(device_table(job, results));
    return speed_table(job, results);
}

const sl_bench_def sl_bench_precision = {
    .name = "precision",
    .question = "what do number formats cost and bring: sums, ranges, speed, loss",
    .options = options,
    .n_options = SL_COUNT(options),
    .warmup = 5,
    .steps = 10,
    .quick_warmup = 1,
    .quick_steps = 3,
    .run = run,
};
