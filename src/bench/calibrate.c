#include "bench/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/links.h"
#include "bench/machine.h"
#include "bench/trial.h"
#include "core/clock.h"
#include "ops/fill.h"
#include "optim/element.h"

enum { STEPS = 4, LAUNCH_STEPS = 20 };
#define WARM_UP_SECONDS 1.5 /* until an accelerator's clock has settled */

typedef struct totals {
    double matmul_flops, matmul_s, attention_flops[2], attention_s[2], device_bytes, device_s;
    double gap_s;
    int64_t gaps;
} totals;

static void add_task(const sl_trial *t, const sl_action *action, double seconds, totals *sum)
{
    const sl_task *task = &t->program->tasks[action->task];
    const sl_work *work = &t->program->signatures[task->signature].work;
    double bytes = work->read_bytes + work->write_bytes;
    if (action->stream == SL_STREAM_HOST)
        return; /* measured apart */
    switch (sl_op(task->op)->category) {
    case SL_CAT_DOT_PRODUCT:
        sum->matmul_flops += work->hardware_flops;
        sum->matmul_s += seconds;
        break;
    case SL_CAT_ATTENTION: {
        int backward = task->op == SL_OP_ATTENTION_BWD;
        sum->attention_flops[backward] += work->hardware_flops;
        sum->attention_s[backward] += seconds;
        break;
    }
    default:
        sum->device_bytes += bytes;
        sum->device_s += seconds;
    }
}

/* Times of the tasks over the steps: `start` serves as the gap before the task, `end` as its time. On a CPU the
 * shortest counts: whatever else the machine did meanwhile only ever adds. An accelerator has nothing else to do, and
 * its shortest times are those before its clock came down: there it is the mean. */
static void keep_times(const sl_trial *t, sl_span *kept, bool first, bool mean)
{
    const sl_span *spans = sl_engine_spans(t->engine);
    int32_t before = -1;
    for (int32_t i = 0; i < t->plan->n_actions; i++) {
        double gap = before >= 0 ? SL_MAX(0, spans[i].start - spans[before].end) : 0,
               seconds = spans[i].end - spans[i].start;
        if (mean) {
            kept[i].start += gap / STEPS;
            kept[i].end += seconds / STEPS;
        } else {
            kept[i].start = first ? gap : SL_MIN(gap, kept[i].start);
            kept[i].end = first ? seconds : SL_MIN(seconds, kept[i].end);
        }
        if (t->plan->actions[i].kind == SL_ACTION_TASK && t->plan->actions[i].stream == SL_STREAM_COMPUTE)
            before = i;
    }
}

/* Gaps count only between tasks where nothing had to be waited for. */
static void add_up(const sl_trial *t, const sl_span *kept, totals *sum)
{
    bool behind = false;
    for (int32_t i = 0; i < t->plan->n_actions; i++) {
        const sl_action *action = &t->plan->actions[i];
        if (action->kind != SL_ACTION_TASK)
            continue;
        add_task(t, action, kept[i].end, sum);
        if (action->stream != SL_STREAM_COMPUTE)
            continue;
        if (behind && action->n_deps == 0) {
            sum->gap_s += kept[i].start;
            sum->gaps++;
        }
        behind = true;
    }
}

static double rate(double work, double seconds)
{
    return seconds > 0 ? work / seconds : 0;
}

static sl_status warm_up(sl_trial *trial)
{
    double seconds, began = sl_clock_s();
    SL_TRY(sl_trial_step(trial, &seconds));
    while (!trial->hardware.shared_cores && sl_clock_s() - began < WARM_UP_SECONDS)
        SL_TRY(sl_trial_step(trial, &seconds));
    return SL_OK;
}

static sl_status run_model(const sl_trial_config *config, sl_rates *rates)
{
    sl_trial trial;
    totals sum = {0};
    sl_span *kept = NULL;
    double seconds;
    SL_TRY(sl_trial_open(config, &trial));
    trial.watch.hide_replay = true; /* every task with a time of its own */
    sl_status status = sl_alloc(&kept, trial.plan->n_actions, sizeof *kept);
    if (status == SL_OK)
        status = warm_up(&trial);
    for (int i = 0; i < STEPS && status == SL_OK; i++) {
        status = sl_trial_step(&trial, &seconds);
        if (status == SL_OK)
            keep_times(&trial, kept, i == 0, !trial.hardware.shared_cores);
    }
    if (status == SL_OK)
        add_up(&trial, kept, &sum);
    sl_free(kept);
    sl_trial_close(&trial);
    *rates = (sl_rates){
        .matmul_flops = rate(sum.matmul_flops, sum.matmul_s),
        .attention_flops = {rate(sum.attention_flops[0], sum.attention_s[0]),
                            rate(sum.attention_flops[1], sum.attention_s[1])},
        .device_bytes = rate(sum.device_bytes, sum.device_s),
        .launch_s = sum.gaps ? sum.gap_s / (double) sum.gaps : 0,
    };
    return status;
}

static sl_status time_on_host(sl_timer *timer, size_t bytes, sl_launch *launch, double *seconds)
{
    size_t workspace = timer->class->workspace(timer->device, launch, SL_STREAM_HOST);
    if (sl_launch_bytes(launch) + workspace > bytes)
        return sl_fail(SL_E_INTERNAL, "an update's workspace of %zu bytes does not fit", workspace);
    sl_launch_place(launch, timer->arena[SL_TIER_HOST], workspace);
    SL_TRY(sl_op_fill(launch, 1, NULL)); /* host memory is addressable from here on every device */
    *seconds = INFINITY;
    for (int i = 0; i <= STEPS; i++) {
        double once;
        SL_TRY(sl_timer_run(timer, launch, 1, SL_STREAM_HOST, &once));
        if (i > 0)
            *seconds = fmin(*seconds, once);
    }
    return SL_OK;
}

/* Updates beside host memory, on state that no cache holds: a plan may put them there though the steps did not. */
static sl_status host_update(const char *device, int threads, bool quick, sl_dtype dtype, double *bytes_per_s)
{
    int64_t n = quick ? 4 << 20 : 16 << 20;
    sl_launch launch = {.op = SL_OP_ADAMW};
    sl_work work;
    sl_timer timer;
    double seconds = 0;
    sl_adamw_set(&launch.attrs)->beta1 = 0.9f, sl_adamw_set(&launch.attrs)->beta2 = 0.95f,
    sl_adamw_set(&launch.attrs)->eps = 1e-8f;
    sl_adamw_set(&launch.attrs)->decayed = n;
    launch.in[0].type = launch.out[0].type = sl_type_1d(dtype, n);
    launch.in[1].type = sl_type_1d(SL_I32, SL_STEP_WORDS);
    for (int k = 1; k < (dtype == SL_BF16 ? 4 : 3); k++)
        launch.out[k].type = sl_type_1d(SL_F32, n);
    const size_t bytes = sl_launch_bytes(&launch) + ((size_t) 1 << 20);
    SL_TRY(sl_link_open(device, threads, bytes, &timer));
    sl_status status = time_on_host(&timer, bytes, &launch, &seconds);
    sl_timer_close(&timer);
    sl_op(SL_OP_ADAMW)->work(&launch, &work);
    *bytes_per_s = rate(work.read_bytes + work.write_bytes, seconds);
    return status;
}

/* A few layers of a model as wide as what such a machine trains. */
static sl_status pick_model(bool gpu, bool quick, sl_model *model, sl_trial_config *config)
{
    SL_TRY(sl_model_find(gpu ? "llama3-8b" : quick ? "byte-small" : "small", model));
    model->layers = gpu ? 2 : quick ? 2 : 3;
    if (gpu)
        model->vocab = quick ? 16384 : 65536; /* the head as a part of the whole that it has in a full model */
    else if (!quick)
        model->vocab = 4096;
    config->model = model;
    config->seqlen = gpu ? 8192 : 256;
    config->batch = gpu ? 2 : 4;
    return SL_OK;
}

sl_status sl_calibrate(const char *device, int threads, bool quick, sl_calibration *calibration)
{
    sl_hardware hardware;
    sl_model model;
    SL_TRY(sl_machine_hardware(device, threads, &hardware));
    sl_trial_config config = {.device = device, .threads = threads, .seed = 1};
    SL_TRY(pick_model(!hardware.shared_cores, quick, &model, &config));
    *calibration = (sl_calibration){0};
    snprintf(calibration->model, sizeof calibration->model, "%s, %lld layers, %lld sequences of %lld", model.name,
             (long long) model.layers, (long long) config.batch, (long long) config.seqlen);
    config.precision = SL_PRECISION_BF16_MASTER;
    SL_TRY(run_model(&config, &calibration->rates[SL_BF16]));
    if (!hardware.shared_cores)
        config.seqlen = 1024; /* an accelerator takes long for attention in f32 */
    config.precision = SL_PRECISION_F32;
    SL_TRY(run_model(&config, &calibration->rates[SL_F32]));
    for (int dtype = SL_F32; dtype <= SL_BF16; dtype++)
        SL_TRY(host_update(device, threads, quick, (sl_dtype) dtype, &calibration->rates[dtype].host_bytes));
    return SL_OK;
}

static double share(double part, double whole)
{
    return whole > 0 && part > 0 ? SL_MIN(part / whole, 1) : 0.5;
}

void sl_calibrate_profile(const sl_calibration *c, const double best[SL_DTYPE_COUNT], sl_hardware *hw)
{
    bool gpu = !hw->shared_cores;
    const sl_rates *r = &c->rates[gpu ? SL_BF16 : SL_F32]; /* what such a machine computes in */
    for (int dtype = SL_F32; dtype <= SL_BF16; dtype++) {
        const sl_rates *own = &c->rates[dtype];
        if (!gpu)
            hw->peak_flops[dtype] = SL_MAX(best[dtype], own->matmul_flops);
        hw->matmul_efficiency[dtype] = share(own->matmul_flops, hw->peak_flops[dtype]);
        for (int d = 0; d < 2; d++)
            hw->attention_efficiency[dtype][d] = share(own->attention_flops[d], hw->peak_flops[dtype]);
    }
    if (r->device_bytes > 0)
        hw->memory_bandwidth[SL_TIER_DEVICE] = r->device_bytes;
    hw->host_optimizer_bandwidth = r->host_bytes > 0 ? r->host_bytes : hw->memory_bandwidth[SL_TIER_HOST];
    if (r->launch_s > 0)
        hw->launch_latency_s = SL_MIN(r->launch_s, 1e-3);
}

/* Seconds of a step's launches by the profile, each without its latency. */
static double work_seconds(const sl_trial *t, const sl_costs *costs, int64_t *launches)
{
    double seconds = 0;
    *launches = 0;
    for (int32_t i = 0; i < t->plan->n_actions; i++) {
        const sl_action *action = &t->plan->actions[i];
        if (action->kind != SL_ACTION_TASK || action->stream != SL_STREAM_COMPUTE)
            continue;
        seconds += costs->device_s[t->program->tasks[action->task].signature];
        ++*launches;
    }
    return seconds;
}

sl_status sl_calibrate_launch(const char *device, int threads, sl_hardware *hw)
{
    sl_model model;
    sl_trial trial;
    sl_stats step;
    sl_costs *costs = NULL;
    double loss;
    int64_t launches;
    sl_hardware bare = *hw;
    sl_trial_config config = {
        .model = &model, .device = device, .threads = threads, .seed = 1, .precision = SL_PRECISION_BF16};
    SL_TRY(sl_model_find(hw->shared_cores ? "byte-nano" : "small", &model));
    model.layers = 4;
    config.seqlen = hw->shared_cores ? 64 : 256;
    config.batch = 4;
    SL_TRY(sl_trial_open(&config, &trial));
    trial.watch.hide_spans = true; /* as in a run: a device may replay what it recorded */
    sl_status status = sl_trial_time(&trial, 5, LAUNCH_STEPS, 0, &step, &loss);
    bare.launch_latency_s = 0;
    if (status == SL_OK)
        status = sl_costs_roofline(trial.program, &bare, trial.device, &costs);
    if (status == SL_OK) {
        double left = step.median - work_seconds(&trial, costs, &launches);
        hw->launch_latency_s = SL_MAX(0, SL_MIN(left / (double) SL_MAX(launches, 1), 1e-3));
    }
    sl_costs_destroy(costs);
    sl_trial_close(&trial);
    return status;
}
