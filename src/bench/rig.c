#include "bench/rig.h"

#include <math.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/pages.h"
#include "ops/matmul.h"

enum { MOST_STEPS = 10000 };
#define WARMUP_SECONDS 0.0015 /* of one GEMM, about */

static sl_status open_twin(const char *device, sl_rig *rig)
{
    sl_device_config none = {.threads = 1, .max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open(device, &none, &rig->twin));
    rig->twin->class->hardware(rig->twin, &rig->hardware);
    return SL_OK;
}

/* A square GEMM in bf16 that keeps the device busy for a while. */
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

static sl_status open_rig(const char *device, int threads, size_t bytes, bool warm, sl_rig *rig)
{
    sl_device_config config = {.threads = threads, .max_commands = SL_RIG_COMMANDS, .max_events = 8};
    SL_TRY(open_twin(device, rig));
    warm &= !rig->hardware.shared_cores;
    if (!warm) {
        sl_device_close(rig->twin);
        rig->twin = NULL;
    }
    rig->bytes = SL_ROUND_UP(bytes, (size_t) SL_ALIGN) + (warm ? warmup_bytes(rig) : 0);
    config.arena_bytes[SL_TIER_DEVICE] = rig->bytes;
    SL_TRY(sl_timer_open(device, &config, &rig->timer));
    rig->base = rig->timer.arena[SL_TIER_DEVICE];
    rig->timer.class->hardware(rig->timer.device, &rig->hardware); /* as many threads as it was given */
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

/* The warmup's memory is cut off the front, so that `used` begins at 0 behind it. */
static sl_status warm_up(sl_rig *rig)
{
    sl_warmup warmup = {.share = 1};
    int64_t side = warmup_side(rig);
    SL_TRY(sl_rig_matmul(rig, SL_BF16, side, side, side, &warmup.launch));
    rig->base += rig->used;
    rig->bytes -= rig->used;
    rig->used = rig->peak = 0;
    SL_TRY(sl_timer_add_warmup(&rig->timer, &warmup));
    return sl_timer_settle(&rig->timer);
}

sl_status sl_rig_open_warm(const char *device, int threads, size_t bytes, sl_rig *rig)
{
    *rig = (sl_rig){0};
    sl_status status = open_rig(device, threads, bytes, true, rig);
    if (status == SL_OK && rig->twin)
        status = warm_up(rig);
    if (status != SL_OK)
        sl_rig_close(rig);
    return status;
}

void sl_rig_close(sl_rig *rig)
{
    sl_timer_close(&rig->timer);
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

/* As a plan asks: first a device without memory, so that the algorithm of a GEMM is the one a run would use. */
sl_status sl_rig_workspace(sl_rig *rig, const sl_launch *launch, size_t *bytes)
{
    sl_launch asked = *launch;
    asked.workspace_bytes = rig->workspace_limit;
    if (rig->twin && sl_op(launch->op)->category == SL_CAT_DOT_PRODUCT)
        rig->timer.class->workspace(rig->twin, &asked, SL_STREAM_COMPUTE);
    SL_TRY(rig->timer.class->supports(rig->timer.device, &asked));
    *bytes = rig->timer.class->workspace(rig->timer.device, &asked, SL_STREAM_COMPUTE);
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

sl_status sl_rig_fill(sl_rig *rig, const sl_launch *launch)
{
    const size_t bytes = sl_launch_bytes(launch);
    unsigned char *staging;
    SL_TRY(sl_pages_map(bytes, (void **) &staging));
    rig->timer.prefilled = NULL; /* where memory was that is gone */
    sl_status status = sl_timer_fill(&rig->timer, launch, staging, 0);
    sl_pages_unmap(staging, bytes);
    return status;
}

sl_status sl_rig_write(sl_rig *rig, const sl_operand *to, const void *from)
{
    return rig->timer.class->write(rig->timer.device, SL_TIER_DEVICE, to->data, from, sl_type_bytes(&to->type));
}

sl_status sl_rig_read(sl_rig *rig, const sl_operand *from, void *to)
{
    return rig->timer.class->read(rig->timer.device, SL_TIER_DEVICE, to, from->data, sl_type_bytes(&from->type));
}

sl_status sl_rig_run(sl_rig *rig, const sl_launch *launches, int64_t count, double *seconds)
{
    return sl_timer_run(&rig->timer, launches, count, SL_STREAM_COMPUTE, seconds);
}

sl_status sl_rig_time(sl_rig *rig, const sl_launch *launches, int64_t count, int64_t warmup, int64_t steps,
                      double limit_s, sl_stats *stats)
{
    double *times, seconds = 0;
    int64_t n = 0, warmed = 0;
    steps = SL_MIN(steps, (int64_t) MOST_STEPS);
    SL_TRY(sl_timer_rewarm(&rig->timer));
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
    return sl_rig_fill(rig, launch);
}
