/*
 * `sluice bench memory`: what a step keeps in memory, when, and why. Every byte is in the plan before the step runs,
 * with the name of its tensor and of the task that makes it: so the timeline needs no allocator hooks and holds for
 * models that do not fit here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/guard.h"
#include "bench/trial.h"

enum { MOST_CONTEXTS = 16, TIMELINE_ROWS = 48, MOST_TOP = 100 };

static const sl_option options[] = {
    {"model", "NAME|PATH", SL_OPT_STRING, NULL, "Memory", "default: 2.7b"},
    {"contexts", "N,N,...", SL_OPT_STRING, NULL, "Memory", "sequence lengths; default: 128,256,512"},
    {"batch", "N", SL_OPT_I64, "4", "Memory", "sequences per step"},
    {"precisions", "NAME,...", SL_OPT_STRING, "f32,bf16-master", "Memory", "f32, bf16, bf16-master"},
    {"top", "N", SL_OPT_I64, "15", "Memory", "how many of the largest allocations to name"},
    {"run", NULL, SL_OPT_FLAG, "false", "Memory", "run each of them too and hold what was touched against the plan"},
};

/* ---- residuals, exactly ---- */

/* The tensor between two layers: what the first task of the first layer reads. */
static size_t residual_bytes(const sl_program *p)
{
    for (int32_t i = 0; i < p->n_tasks; i++)
        if (p->tasks[i].op == SL_OP_EMBEDDING)
            return p->objects[p->tasks[i].out[0].object].bytes;
    return 0;
}

static sl_status residual_table(sl_results *results)
{
    sl_table *t = sl_results_table(
        results, "residual",
        "One residual tensor of 2.7b, 4 sequences, f32 (2.5 MiB is sometimes quoted: that is one sequence)",
        "context mib:MiB.3* formula_mib:MiB.3 tensor");
    static const int64_t contexts[] = {128, 256, 512};
    sl_model model;
    SL_TRY(sl_model_find("2.7b", &model));
    for (int64_t i = 0; i < SL_COUNT(contexts); i++) {
        sl_program *program;
        sl_program_config config = {
            .chunking = {contexts[i], 4, 4 * contexts[i]}, .max_segments = 4, .forward_only = true};
        config.chunks_per_round = 1;
        SL_TRY(sl_program_create(&config, sl_build_model, &model, &program));
        double bytes = (double) residual_bytes(program), formula = 4.0 * (double) contexts[i] * (double) model.dim * 4;
        SL_ROW(t, contexts[i], bytes / (1 << 20), formula / (1 << 20), "embedding's output, and every layer's");
        sl_program_destroy(program);
    }
    return SL_OK;
}

/* ---- what is alive when ---- */

static sl_object_class class_of(const sl_trial *t, const sl_allocation *place)
{
    return place->object < 0 ? SL_CLASS_WORKSPACE : t->program->objects[place->object].class;
}

/* Bytes of each class on a tier while action i runs. */
typedef struct live {
    double bytes[SL_CLASS_COUNT], all;
} live;

/* One sweep over the actions: places begin and end at actions. */
static sl_status sweep(const sl_trial *t, sl_tier tier, live **out)
{
    const sl_plan *plan = t->plan;
    int32_t n = plan->n_actions;
    live *l;
    SL_TRY(sl_alloc(&l, n + 2, sizeof *l));
    for (int32_t p = 0; p < plan->n_allocations; p++) {
        const sl_allocation *place = &plan->allocations[p];
        if (place->tier != tier)
            continue;
        int32_t first = SL_MAX(place->first, 0), last = SL_MIN(place->last, n - 1);
        sl_object_class class = class_of(t, place);
        l[first].bytes[class] += (double) place->bytes; /* differences first, sums below */
        l[last + 1].bytes[class] -= (double) place->bytes;
    }
    for (int32_t i = 0; i < n; i++)
        for (int c = 0; c < SL_CLASS_COUNT; c++) {
            l[i].bytes[c] += i ? l[i - 1].bytes[c] : 0;
            l[i].all += l[i].bytes[c];
        }
    *out = l;
    return SL_OK;
}

static int32_t peak_of(const live *l, int32_t n)
{
    int32_t at = 0;
    for (int32_t i = 1; i < n; i++)
        if (l[i].all > l[at].all)
            at = i;
    return at;
}

static sl_cell mib(double bytes)
{
    return sl_cell_number(bytes / (1 << 20));
}

static double class_bytes(const live *l, sl_object_class class)
{
    return l->bytes[class];
}

/* ---- peaks per context ---- */

static const char peak_columns[] =
    "context precision pass device_mib:MiB.1* host_mib:MiB.1 alive_mib:MiB.1 parameters_mib:MiB.1 gradients_mib:MiB.1 "
    "optimizer_mib:MiB.1 activations_mib:MiB.1 workspace_mib:MiB.1 measured_mib:MiB.1 verdict";
typedef struct memory {
    const sl_bench_job *job;
    sl_results *results;
    sl_model model;
    int64_t contexts[MOST_CONTEXTS], n_contexts, batch;
    bool run;
} memory;

static sl_status measure(sl_trial *t, double *bytes)
{
    double seconds;
    SL_TRY(sl_trial_step(t, &seconds));
    *bytes = (double) sl_engine_peak_bytes(t->engine, SL_TIER_DEVICE);
    return SL_OK;
}

static sl_status peak_row(memory *m, sl_table *t, const char *precision, bool forward, const sl_trial *trial,
                          double measured)
{
    live *l;
    SL_TRY(sweep(trial, SL_TIER_DEVICE, &l));
    const live *at = &l[peak_of(l, trial->plan->n_actions)];
    double device = (double) trial->plan->predicted.peak_bytes[SL_TIER_DEVICE];
    const char *verdict = !isfinite(measured) ? "planned" : measured <= device ? "as planned" : "more than planned";
    if (isfinite(measured) && measured > device)
        sl_results_refuse(m->results, "%lld tokens, %s: %.1f MiB were touched, %.1f planned",
                          (long long) trial->config.seqlen, precision, measured / (1 << 20), device / (1 << 20));
    SL_ROW(t, trial->config.seqlen, precision, forward ? "forward" : "step", mib(device),
           mib((double) trial->plan->predicted.peak_bytes[SL_TIER_HOST]), mib(at->all),
           mib(class_bytes(at, SL_CLASS_PARAMETER)), mib(class_bytes(at, SL_CLASS_GRADIENT)),
           mib(class_bytes(at, SL_CLASS_OPTIMIZER)),
           mib(class_bytes(at, SL_CLASS_ACTIVATION) + class_bytes(at, SL_CLASS_CONTEXT) +
               class_bytes(at, SL_CLASS_HIDDEN)),
           mib(class_bytes(at, SL_CLASS_WORKSPACE)), isfinite(measured) ? mib(measured) : sl_cell_none(), verdict);
    sl_free(l);
    return SL_OK;
}

/* ---- one step in full ---- */

static sl_status timeline_table(memory *m, const sl_trial *trial, const char *title)
{
    const sl_plan *plan = trial->plan;
    live *l;
    char name[160];
    SL_TRY(sweep(trial, SL_TIER_DEVICE, &l));
    int32_t peak = peak_of(l, plan->n_actions), step = SL_MAX(plan->n_actions / TIMELINE_ROWS, 1);
    sl_table *t = sl_results_table(m->results, "timeline", title,
                                   "action time_ms:ms.3 task alive_mib:MiB.2* parameters_mib:MiB.2 gradients_mib:MiB.2 "
                                   "optimizer_mib:MiB.2 activations_mib:MiB.2 workspace_mib:MiB.2 is_peak");
    for (int32_t i = 0; i < plan->n_actions; i++) {
        if (i % step && i != peak && i != plan->n_actions - 1)
            continue;
        const sl_action *action = &plan->actions[i];
        if (action->kind == SL_ACTION_TASK)
            sl_task_describe(trial->program, action->task, name);
        else
            snprintf(name, sizeof name, "copy of %s", trial->program->objects[action->object].name);
        SL_ROW(t, i, 1e3 * action->end_s, name, mib(l[i].all), mib(class_bytes(&l[i], SL_CLASS_PARAMETER)),
               mib(class_bytes(&l[i], SL_CLASS_GRADIENT)), mib(class_bytes(&l[i], SL_CLASS_OPTIMIZER)),
               mib(class_bytes(&l[i], SL_CLASS_ACTIVATION) + class_bytes(&l[i], SL_CLASS_CONTEXT) +
                   class_bytes(&l[i], SL_CLASS_HIDDEN)),
               mib(class_bytes(&l[i], SL_CLASS_WORKSPACE)), sl_cell_flag(i == peak));
    }
    sl_free(l);
    return SL_OK;
}

static const sl_allocation *allocations_to_sort;

static int larger_first(const void *a, const void *b)
{
    const sl_allocation *x = &allocations_to_sort[*(const int32_t *) a],
                        *y = &allocations_to_sort[*(const int32_t *) b];
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->first > y->first) - (x->first < y->first);
}

/* Who makes an object: its one producer, or the first task that writes into it. */
static void origin_of(const sl_program *p, int32_t object, char out[160])
{
    if (p->objects[object].producer >= 0) {
        sl_task_describe(p, p->objects[object].producer, out);
        return;
    }
    snprintf(out, 160, "%s", p->objects[object].persistent ? "kept from step to step" : "written before the step");
    for (int32_t i = 0; i < p->n_tasks && !p->objects[object].persistent; i++)
        for (int k = 0; k < SL_MAX_OUT; k++)
            if (p->tasks[i].out[k].object == object) {
                char task[160];
                sl_task_describe(p, i, task);
                snprintf(out, 160, "%.130s, and others", task);
                return;
            }
}

static sl_status largest_table(memory *m, const sl_trial *trial, const char *title)
{
    const sl_plan *plan = trial->plan;
    int64_t top = SL_MIN(sl_options_i64(m->job->options, "top"), (int64_t) MOST_TOP);
    int32_t *order;
    char name[200], origin[160];
    SL_TRY(sl_alloc(&order, plan->n_allocations + 1, sizeof *order));
    for (int32_t i = 0; i < plan->n_allocations; i++)
        order[i] = i;
    allocations_to_sort = plan->allocations;
    qsort(order, (size_t) plan->n_allocations, sizeof *order, larger_first);
    sl_table *t =
        sl_results_table(m->results, "largest", title, "tensor class tier mib:MiB.3* from_action to_action origin");
    for (int64_t i = 0; i < SL_MIN(top, (int64_t) plan->n_allocations); i++) {
        const sl_allocation *place = &plan->allocations[order[i]];
        if (place->object >= 0) {
            const sl_object *object = &trial->program->objects[place->object];
            snprintf(name, sizeof name, "%.120s%s", object->name, object->chunk > 0 ? " (a further chunk)" : "");
            origin_of(trial->program, place->object, origin);
        } else {
            snprintf(name, sizeof name, "workspace");
            sl_task_describe(trial->program, plan->actions[place->first].task, origin);
        }
        SL_ROW(t, name, sl_object_class_name(class_of(trial, place)), place->tier == SL_TIER_DEVICE ? "device" : "host",
               mib((double) place->bytes), place->first, place->last, origin);
    }
    sl_free(order);
    return SL_OK;
}

/* ---- */

static sl_status one_trial(memory *m, sl_table *t, int64_t context, const char *precision_name, sl_precision precision,
                           bool forward, bool detailed)
{
    sl_trial trial;
    char title[160];
    double measured = (double) NAN;
    sl_trial_config config = sl_trial_of(m->job, &m->model, context, m->batch, precision);
    config.forward_only = forward;
    config.budget[0] = config.budget[1] = m->run ? 0 : SIZE_MAX;
    sl_bench_progress(m->job, "%s, context %lld, %s, %s", m->model.name, (long long) context, precision_name,
                      forward ? "forward" : "step");
    sl_status status = m->run ? sl_trial_open(&config, &trial) : sl_trial_plan(&config, &trial);
    if (status == SL_E_DOES_NOT_FIT || status == SL_E_MEMORY) {
        SL_ROW(t, context, precision_name, forward ? "forward" : "step", sl_cell_none(), sl_cell_none(), sl_cell_none(),
               sl_cell_none(), sl_cell_none(), sl_cell_none(), sl_cell_none(), sl_cell_none(), sl_cell_none(),
               "out of memory");
        return SL_OK;
    }
    SL_TRY(status);
    if (m->run)
        status = measure(&trial, &measured);
    if (status == SL_OK)
        status = peak_row(m, t, precision_name, forward, &trial, measured);
    if (status == SL_OK && detailed) {
        snprintf(title, sizeof title, "Device memory over a step of %s at context %lld, %s", m->model.name,
                 (long long) context, precision_name);
        status = timeline_table(m, &trial, title);
        snprintf(title, sizeof title, "Its largest allocations");
        if (status == SL_OK)
            status = largest_table(m, &trial, title);
    }
    sl_trial_close(&trial);
    return status;
}

static sl_status peak_table(memory *m)
{
    char title[160], precision[64];
    snprintf(title, sizeof title, "Peak memory of %s, %lld sequences, as planned without budgets", m->model.name,
             (long long) m->batch);
    sl_table *t = sl_results_table(m->results, "peaks", title, peak_columns);
    bool detailed = true;
    for (int64_t c = m->n_contexts - 1; c >= 0; c--) {
        const char *list = sl_options_string(m->job->options, "precisions");
        while (sl_list_next(&list, precision)) {
            int p = 0;
            while (p < 3 && strcmp(sl_precision_name((sl_precision) p), precision) != 0)
                p++;
            if (p == 3)
                return sl_fail(SL_E_USAGE, "--precisions: \"%s\" is none; use f32, bf16 or bf16-master", precision);
            SL_TRY(one_trial(m, t, m->contexts[c], precision, (sl_precision) p, true, false));
            SL_TRY(one_trial(m, t, m->contexts[c], precision, (sl_precision) p, false, detailed));
            detailed = false;
        }
    }
    return SL_OK;
}

static sl_status run(const sl_bench_job *job, sl_results *results)
{
    memory m = {.job = job, .results = results, .run = job->quick || sl_options_flag(job->options, "run")};
    const sl_options *o = job->options;
    const char *model = sl_options_string_or(o, "model", job->quick ? "byte-nano" : "2.7b");
    const char *contexts = sl_options_string_or(o, "contexts", job->quick ? "32,64,128" : "128,256,512");
    m.batch = sl_options_i64(o, "batch");
    if (m.batch < 1 || sl_options_i64(o, "top") < 1)
        return sl_fail(SL_E_USAGE, "--batch and --top must be at least 1");
    SL_TRY(sl_model_find(model, &m.model));
    SL_TRY(sl_list_i64("contexts", contexts, 1, MOST_CONTEXTS, m.contexts, &m.n_contexts));
    SL_TRY(residual_table(results));
    SL_TRY(peak_table(&m));
    if (strcmp(m.model.name, "2.7b") == 0)
        sl_results_note(results, "Published for 2.7b at context 256 (A100, 80 GB): forward 37 GB and step 67 GB in "
                                 "f32, 43 and 70 GB mixed.");
    return SL_OK;
}

const sl_bench_def sl_bench_memory = {
    .name = "memory",
    .question = "what is in memory during a step, and which tensors are largest",
    .options = options,
    .n_options = SL_COUNT(options),
    .steps = 1,
    .quick_steps = 1,
    .run = run,
};
