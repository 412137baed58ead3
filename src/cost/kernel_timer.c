#include "cost/kernel_timer.h"

#include <math.h>
#include <string.h>

#include "core/clock.h"
#include "core/stats.h"
#include "ops/fill.h"

enum { MOST_RUNS = 6, LEAST_RUNS = 3, MOST_TIMES = 64, MOST_LOAD = 960 };
#define LOAD_SECONDS 0.006  /* before each timed launch */
#define REWARM_SECONDS 0.1  /* before each series of runs */
#define SETTLE_SECONDS 1.5  /* until the clock has settled */
#define SAMPLE_RATE 3e8     /* bytes of operands sampled in a second, until some have been timed */
#define STEADY 0.01         /* runs that agree this well need no repetition */
#define LAUNCH_SECONDS 0.06 /* spent on one launch, unless it takes longer to run LEAST_RUNS times */
#define LONG_SECONDS 0.2    /* a launch that takes this long is timed just once */

#define WARM_INPUT ((size_t) 8 << 20) /* a first input of at most this is still in the cache */
#define TAIL 1.5                      /* of the median: longer times count as this */

sl_status sl_timer_open(const char *device, const sl_device_config *config, sl_timer *t)
{
    *t = (sl_timer){.spread = 1, .sample_rate = SAMPLE_RATE};
    SL_TRY(sl_device_open(device, config, &t->device));
    t->class = t->device->class;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        t->arena[tier] = t->class->arena(t->device, (sl_tier) tier);
    return SL_OK;
}

void sl_timer_close(sl_timer *t)
{
    sl_device_close(t->device);
    t->device = NULL;
}

/* ---- operands ---- */

void sl_launch_place(sl_launch *launch, unsigned char *base, size_t workspace)
{
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        sl_operand *operand = i < SL_MAX_IN ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        operand->data = operand->type.rank ? base : NULL;
        base += SL_ROUND_UP(sl_type_bytes(&operand->type), (size_t) SL_ALIGN);
    }
    launch->workspace = workspace ? base : NULL;
    launch->workspace_bytes = workspace;
}

size_t sl_launch_bytes(const sl_launch *launch)
{
    size_t bytes = 0;
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        const sl_operand *operand = i < SL_MAX_IN ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        bytes += SL_ROUND_UP(sl_type_bytes(&operand->type), (size_t) SL_ALIGN);
    }
    return bytes;
}

/* The first `bytes` from `base` on become normal bf16 numbers, repeated with an odd period. */
static void prefill(sl_timer *t, unsigned char *base, size_t bytes)
{
    enum { NUMBERS = (1 << 20) + 520 };
    size_t period = NUMBERS * sl_dtype_bytes(SL_BF16), first = SL_MIN(bytes, period);
    if (t->prefilled != base || t->prefilled_bytes < first) {
        sl_operand numbers = {.type = sl_type_1d(SL_BF16, (int64_t) (first / 2)), .data = base};
        sl_fill_normal(&numbers, 1, 0, 1);
        uint16_t *words = (uint16_t *) (void *) base;
        for (size_t i = 0; i < first / 2; i++) /* a zero before another number would be a denormal f32: slow on CPUs */
            words[i] = words[i] & 0x7fff ? words[i] : 0x3f80;
        t->prefilled = base;
        t->prefilled_bytes = first;
    }
    for (; t->prefilled_bytes < bytes; t->prefilled_bytes += SL_MIN(bytes - t->prefilled_bytes, period))
        memcpy(base + t->prefilled_bytes, base + t->prefilled_bytes - period,
               SL_MIN(bytes - t->prefilled_bytes, period));
}

/* Runs the load for about this many seconds. */
static sl_status issue_load(sl_timer *t, double seconds)
{
    int launches = 0;
    for (int i = 0; i < t->n_warmups; i++)
        launches += t->warmups[i].times;
    const int rounds = SL_MIN((int) ceil(SL_MIN(seconds / LOAD_SECONDS, MOST_LOAD)), MOST_LOAD / SL_MAX(launches, 1));
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < t->n_warmups; i++)
            for (int n = 0; n < t->warmups[i].times; n++)
                SL_TRY(t->class->launch(t->device, SL_STREAM_COMPUTE, &t->warmups[i].launch, NULL));
    return SL_OK;
}

/* Attention's operands are large and the kernel is short. An accelerator that idles while they are sampled runs at its highest clock for
 * longer than REWARM_SECONDS afterwards, so the load continues meanwhile. */
static sl_status sample(sl_timer *t, sl_launch *staged, int64_t sequences)
{
    double bytes = 0;
    for (int i = 0; i < SL_MAX_IN && sl_op(staged->op)->category == SL_CAT_ATTENTION; i++)
        bytes += (double) sl_type_bytes(&staged->in[i].type);
    SL_TRY(t->class->step_begin(t->device));
    double start = sl_clock_s();
    sl_status loaded = issue_load(t, bytes / t->sample_rate), filled = sl_op_fill_timed(staged, sequences);
    if (bytes > 0)
        t->sample_rate = bytes / SL_MAX(sl_clock_s() - start, 1e-9);
    sl_status ended = t->class->step_end(t->device);
    return filled != SL_OK ? filled : loaded != SL_OK ? loaded : ended;
}

sl_status sl_timer_fill(sl_timer *t, const sl_launch *launch, unsigned char *staging, int64_t sequences)
{
    sl_launch staged = *launch;
    const uint32_t read = sl_op_reads_out(launch) << SL_MAX_IN | ((1u << SL_MAX_IN) - 1);
    sl_launch_place(&staged, staging, 0);
    if (sl_op(launch->op)->any_values)
        prefill(t, staging, sl_launch_bytes(launch));
    else {
        t->prefilled = NULL;
        SL_TRY(sample(t, &staged, sequences));
    }
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        const sl_operand *to = i < SL_MAX_IN ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        const sl_operand *from = i < SL_MAX_IN ? &staged.in[i] : &staged.out[i - SL_MAX_IN];
        if (to->type.rank && (read >> i & 1u))
            SL_TRY(t->class->write(t->device, SL_TIER_DEVICE, to->data, from->data, sl_type_bytes(&to->type)));
    }
    return SL_OK;
}

/* ---- runs ---- */

/* Copies through the caches, then the first input. */
static sl_status clear_caches(sl_timer *t, const sl_launch *launch)
{
    unsigned char *device = t->arena[SL_TIER_DEVICE] + t->space, *host = t->arena[SL_TIER_HOST] + t->space;
    const sl_operand *first = &launch->in[0];
    size_t bytes = sl_type_bytes(&first->type);
    SL_TRY(t->class->copy(t->device, SL_STREAM_IN, device, host, t->clear_bytes, NULL));
    if (t->warm_input && first->data && bytes <= WARM_INPUT)
        SL_TRY(t->class->copy(t->device, SL_STREAM_IN, device, first->data, bytes, NULL));
    return t->class->record(t->device, SL_STREAM_IN, 0);
}

static sl_status issue(sl_timer *t, const sl_launch *launches, int64_t count, sl_stream stream, sl_span ends[2])
{
    if (t->clear_bytes)
        SL_TRY(clear_caches(t, launches));
    if (stream == SL_STREAM_COMPUTE)
        SL_TRY(issue_load(t, LOAD_SECONDS));
    if (t->clear_bytes)
        SL_TRY(t->class->wait(t->device, stream, 0));
    for (int64_t i = 0; i < count; i++) {
        sl_span *span = i == 0 ? &ends[0] : i == count - 1 ? &ends[1] : NULL;
        SL_TRY(t->class->launch(t->device, stream, &launches[i], span));
    }
    return SL_OK;
}

sl_status sl_timer_run(sl_timer *t, const sl_launch *launches, int64_t count, sl_stream stream, double *seconds)
{
    sl_span ends[2] = {{0}};
    SL_TRY(t->class->step_begin(t->device));
    sl_status issued = issue(t, launches, count, stream, ends), ended = t->class->step_end(t->device);
    *seconds = ends[count > 1].end - ends[0].start;
    return ended != SL_OK ? ended : issued;
}

static sl_status run_load(sl_timer *t, double seconds)
{
    double start = sl_clock_s(), unused;
    while (t->n_warmups && sl_clock_s() - start < seconds)
        SL_TRY(sl_timer_run(t, &t->warmups[0].launch, 1, SL_STREAM_COMPUTE, &unused));
    return SL_OK;
}

sl_status sl_timer_settle(sl_timer *t)
{
    return run_load(t, SETTLE_SECONDS);
}

sl_status sl_timer_rewarm(sl_timer *t)
{
    return run_load(t, REWARM_SECONDS);
}

/* Its time is measured behind the launches added before it, so that each gets its share of the load. */
sl_status sl_timer_add_warmup(sl_timer *t, const sl_warmup *warmup)
{
    double seconds;
    SL_TRY(sl_timer_time(t, &warmup->launch, SL_STREAM_COMPUTE, &seconds));
    sl_warmup *own = &t->warmups[t->n_warmups++];
    *own = *warmup;
    own->times = SL_MAX(1, SL_MIN(MOST_TIMES, (int) (warmup->share * LOAD_SECONDS / SL_MAX(seconds, 1e-6))));
    return SL_OK;
}

/* The mean, because a step adds up all its times, with outliers clipped. */
static double mean_of(double *values, int n)
{
    double sum = 0, most = TAIL * sl_median(values, n);
    for (int i = 0; i < n; i++)
        sum += SL_MIN(values[i], most);
    return sum / n;
}

static bool steady(const double *runs, int n)
{
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        least = SL_MIN(least, runs[i]);
        most = SL_MAX(most, runs[i]);
    }
    return most - least <= STEADY * least;
}

sl_status sl_timer_time(sl_timer *t, const sl_launch *launch, sl_stream stream, double *seconds)
{
    double runs[MOST_RUNS], total = 0;
    int n = 0;
    SL_TRY(sl_timer_rewarm(t));
    /* First touch of memory, waking threads, loading of a kernel's code: negligible for a long run. */
    SL_TRY(sl_timer_run(t, launch, 1, stream, &runs[0]));
    bool is_long = runs[0] > LONG_SECONDS;
    if (is_long && !t->n_warmups)
        n = 1, total = runs[0];
    int least = is_long ? 1 : LEAST_RUNS;
    while (n < least || (n < MOST_RUNS && total < LAUNCH_SECONDS && !(t->n_warmups && steady(runs, n)))) {
        SL_TRY(sl_timer_run(t, launch, 1, stream, &runs[n]));
        total += runs[n++];
    }
    *seconds = mean_of(runs, n);
    return SL_OK;
}
