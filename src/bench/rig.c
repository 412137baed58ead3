#include "bench/rig.h"

#include <math.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/pages.h"
#include "ops/fill.h"
#include "ops/matmul.h"

enum { SCRUB_BYTES = 24 << 20, MOST_STEPS = 10000, MOST_HEATS = 64 };
#define WARMUP_SECONDS 0.0015 /* of one product, about */
#define HEAT_SECONDS 0.006    /* of load before each run */
#define REWARM_SECONDS 0.05   /* before each series of runs: the device was idle while operands were filled */
#define WARM_UP_SECONDS 1.0   /* until the clock has settled */

static sl_status open_twin(const char *device, sl_rig *rig)
{
    sl_device_config none = {.threads = 1, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(device, &none, &rig->twin));
    rig->class = rig->twin->class;
    rig->class->hardware(rig->twin, &rig->hardware);
    return SL_OK;
}

/* A square product in bf16 that keeps the device busy for a while. */
static int64_t warmup_side(const sl_rig *rig)
{
    int64_t side = (int64_t) cbrt(rig->hardware.peak_flops[SL_BF16] * WARMUP_SECONDS / 2) / 256 * 256;
    return SL_MAX(512, SL_MIN(side, 8192));
}

static size_t warmup_bytes(const sl_rig *rig)
{
    int64_t side = warmup_side(rig);
    return 3 * (size_t) (side * side) * sizeof(uint16_t) + ((size_t) 64 << 20); /* and a workspace */
}

static sl_status open_rig(const char *device, int threads, size_t bytes, bool hot, sl_rig *rig)
{
    sl_device_config config = {.threads = threads, .max_commands = SL_RIG_COMMANDS, .max_events = 8};
    SL_TRY(open_twin(device, rig));
    hot &= !rig->hardware.shared_cores;
    if (!hot) {
        sl_device_close(rig->twin);
        rig->twin = NULL;
    }
    rig->bytes = SL_ROUND_UP(bytes, (size_t) SL_ALIGN) + (hot ? warmup_bytes(rig) : 0);
    config.arena_bytes[SL_TIER_DEVICE] = rig->bytes + SCRUB_BYTES;
    config.arena_bytes[SL_TIER_HOST] = SCRUB_BYTES;
    SL_TRY(sl_device_open(device, &config, &rig->device));
    rig->base = rig->class->arena(rig->device, SL_TIER_DEVICE);
    rig->class->hardware(rig->device, &rig->hardware); /* as many threads as it was given */
    return SL_OK;
}

sl_status sl_rig_open(const char *device, int threads, size_t bytes, sl_rig *rig)
{
    *rig = (sl_rig){0};
    sl_status status = open_rig(device, threads, bytes, false, rig);
    if (status != SL_OK)
        sl_rig_close(rig);
    return status;
}

static sl_status reheat(sl_rig *rig, double seconds)
{
    double took;
    for (double start = sl_clock_s(); sl_clock_s() - start < seconds;)
        SL_TRY(sl_rig_run(rig, &rig->warmup, 1, &took));
    return SL_OK;
}

/* The warmup's memory is cut off the front, so that `used` begins at 0 behind it. */
static sl_status heat(sl_rig *rig)
{
    double seconds;
    int64_t side = warmup_side(rig);
    SL_TRY(sl_rig_matmul(rig, SL_BF16, side, side, side, &rig->warmup));
    rig->base += rig->used;
    rig->bytes -= rig->used;
    rig->used = rig->peak = 0;
    SL_TRY(sl_rig_run(rig, &rig->warmup, 1, &seconds));
    SL_TRY(sl_rig_run(rig, &rig->warmup, 1, &seconds));
    rig->heats = SL_MAX(1, SL_MIN(MOST_HEATS, (int) (HEAT_SECONDS / SL_MAX(seconds, 1e-6))));
    return reheat(rig, WARM_UP_SECONDS);
}

sl_status sl_rig_open_warm(const char *device, int threads, size_t bytes, sl_rig *rig)
{
    *rig = (sl_rig){0};
    sl_status status = open_rig(device, threads, bytes, true, rig);
    if (status == SL_OK && rig->twin)
        status = heat(rig);
    if (status != SL_OK)
        sl_rig_close(rig);
    return status;
}

void sl_rig_close(sl_rig *rig)
{
    sl_device_close(rig->device);
    sl_device_close(rig->twin);
    *rig = (sl_rig){0};
}

sl_status sl_rig_take(sl_rig *rig, size_t bytes, void **out)
{
    size_t whole = SL_ROUND_UP(bytes, (size_t) SL_ALIGN);
    if (whole < bytes || whole > rig->bytes - rig->used)
        return sl_fail(SL_E_DOES_NOT_FIT, "%zu bytes more do not fit the %zu that are left of %zu", bytes,
                       rig->bytes - rig->used, rig->bytes);
    *out = rig->base + rig->used;
    rig->used += whole;
    rig->peak = SL_MAX(rig->peak, rig->used);
    return SL_OK;
}

sl_status sl_rig_tensor(sl_rig *rig, sl_type type, sl_operand *out)
{
    *out = (sl_operand){.type = type};
    return sl_rig_take(rig, sl_type_bytes(&type), &out->data);
}

/* As a plan asks: first a device without memory, so that the algorithm of a product is the one a run would use. */
sl_status sl_rig_workspace(sl_rig *rig, const sl_launch *launch, size_t *bytes)
{
    sl_launch asked = *launch;
    asked.workspace_bytes = rig->workspace_limit;
    if (rig->twin && sl_op(launch->op)->category == SL_CAT_DOT_PRODUCT)
        rig->class->workspace(rig->twin, &asked, SL_STREAM_COMPUTE);
    SL_TRY(rig->class->supports(rig->device, &asked));
    *bytes = rig->class->workspace(rig->device, &asked, SL_STREAM_COMPUTE);
    return SL_OK;
}

sl_status sl_rig_place(sl_rig *rig, sl_launch *launch)
{
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        sl_operand *operand = i < SL_MAX_IN ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        if (operand->type.rank && !operand->data)
            SL_TRY(sl_rig_tensor(rig, operand->type, operand));
    }
    SL_TRY(sl_rig_workspace(rig, launch, &launch->workspace_bytes));
    launch->workspace = NULL;
    return launch->workspace_bytes ? sl_rig_take(rig, launch->workspace_bytes, &launch->workspace) : SL_OK;
}

/* By way of ordinary memory: a device's own need not be addressable from here. */
sl_status sl_rig_fill(sl_rig *rig, sl_launch *launch, uint64_t seed)
{
    sl_launch staged = *launch;
    size_t bytes = 0;
    unsigned char *memory;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
            sl_operand *operand = i < SL_MAX_IN ? &staged.in[i] : &staged.out[i - SL_MAX_IN];
            if (pass && operand->type.rank)
                operand->data = memory + at;
            at += SL_ROUND_UP(sl_type_bytes(&operand->type), (size_t) SL_ALIGN);
        }
        bytes = at;
        if (!pass)
            SL_TRY(sl_pages_map(bytes, (void **) &memory));
    }
    sl_status status = sl_op_fill(&staged, seed, NULL);
    uint32_t reads_out = sl_op_reads_out(launch);
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT && status == SL_OK; i++) {
        bool in = i < SL_MAX_IN;
        const sl_operand *to = in ? &launch->in[i] : &launch->out[i - SL_MAX_IN];
        const sl_operand *from = in ? &staged.in[i] : &staged.out[i - SL_MAX_IN];
        if (to->type.rank && (in || (reads_out >> (i - SL_MAX_IN) & 1u)))
            status = sl_rig_write(rig, to, from->data);
    }
    sl_pages_unmap(memory, bytes);
    return status;
}

sl_status sl_rig_write(sl_rig *rig, const sl_operand *to, const void *from)
{
    return rig->class->write(rig->device, SL_TIER_DEVICE, to->data, from, sl_type_bytes(&to->type));
}

sl_status sl_rig_read(sl_rig *rig, const sl_operand *from, void *to)
{
    return rig->class->read(rig->device, SL_TIER_DEVICE, to, from->data, sl_type_bytes(&from->type));
}

static sl_status issue(sl_rig *rig, const sl_launch *launches, int64_t count, sl_span *first, sl_span *last)
{
    if (rig->cold) {
        void *host = rig->class->arena(rig->device, SL_TIER_HOST);
        SL_TRY(rig->class->copy(rig->device, SL_STREAM_IN, rig->base + rig->bytes, host, SCRUB_BYTES, NULL));
        SL_TRY(rig->class->record(rig->device, SL_STREAM_IN, 0));
        SL_TRY(rig->class->wait(rig->device, SL_STREAM_COMPUTE, 0));
    }
    for (int i = 0; i < rig->heats; i++)
        SL_TRY(rig->class->launch(rig->device, SL_STREAM_COMPUTE, &rig->warmup, NULL));
    for (int64_t i = 0; i < count; i++)
        SL_TRY(rig->class->launch(rig->device, SL_STREAM_COMPUTE, &launches[i],
                                  i == 0           ? first
                                  : i == count - 1 ? last
                                                   : NULL));
    return SL_OK;
}

sl_status sl_rig_run(sl_rig *rig, const sl_launch *launches, int64_t count, double *seconds)
{
    sl_span first = {0}, last = {0};
    SL_TRY(rig->class->step_begin(rig->device));
    sl_status issued = issue(rig, launches, count, &first, &last), ended = rig->class->step_end(rig->device);
    *seconds = (count > 1 ? last.end : first.end) - first.start;
    return ended != SL_OK ? ended : issued;
}

sl_status sl_rig_time(sl_rig *rig, const sl_launch *launches, int64_t count, int64_t warmup, int64_t steps,
                      double limit_s, sl_stats *stats)
{
    double *times, seconds = 0;
    int64_t n = 0, warmed = 0;
    steps = SL_MIN(steps, (int64_t) MOST_STEPS);
    if (rig->heats)
        SL_TRY(reheat(rig, REWARM_SECONDS));
    double began = sl_clock_s();
    while (warmed < warmup && !(warmed > 0 && limit_s > 0 && sl_clock_s() - began > limit_s / 2)) {
        SL_TRY(sl_rig_run(rig, launches, count, &seconds));
        warmed++;
    }
    SL_TRY(sl_alloc(&times, steps, sizeof *times));
    sl_status status = SL_OK;
    if (warmed == 1 && limit_s > 0 && seconds > limit_s) /* warming up is little of it */
        times[n++] = seconds;
    while (n < steps && status == SL_OK && !(n > 0 && limit_s > 0 && sl_clock_s() - began > limit_s))
        status = sl_rig_run(rig, launches, count, &times[n++]);
    if (status == SL_OK)
        sl_stats_of(times, n, stats);
    sl_free(times);
    return status;
}

sl_status sl_rig_matmul(sl_rig *rig, sl_dtype dtype, int64_t m, int64_t n, int64_t k, sl_launch *launch)
{
    *launch = (sl_launch){.op = SL_OP_MATMUL};
    sl_matmul_set(&launch->attrs)->trans_b = 1;
    launch->in[0].type = sl_type_2d(dtype, m, k);
    launch->in[1].type = sl_type_2d(dtype, n, k);
    launch->out[0].type = sl_type_2d(dtype, m, n);
    SL_TRY(sl_rig_place(rig, launch));
    return sl_rig_fill(rig, launch, 1);
}
