/*
 * The device on which costs are measured. It takes as little memory as the largest signature, its copies and the load need.
 *
 *     device   | operands, workspace | copies, clearing caches | operands of the load |
 *     host     | operands, workspace | copies, clearing caches |
 */
#include <unistd.h>

#include "cost/internal.h"

enum { SPREAD = 16 };
#define LEAST_CLEAR ((size_t) 24 << 20)
#define MOST_CLEAR ((size_t) 192 << 20)

/* More than the last cache, where compute runs on the host's cores; an accelerator's is not known here. */
static size_t clear_bytes(const char *device)
{
    long cache = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (sl_device_def_find(device)->shared_cores)
        cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    const size_t wanted = cache > 0 ? (size_t) cache + (size_t) cache / 4 : 0;
    return SL_ROUND_UP(SL_MIN(SL_MAX(wanted, LEAST_CLEAR), MOST_CLEAR), (size_t) SL_ALIGN);
}

/* Bytes that each tier may take beside `taken`. */
static size_t space_beside(const size_t *most, const size_t taken[SL_TIER_COUNT])
{
    size_t space = SIZE_MAX;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (most[tier])
            space = SL_MIN(space, most[tier] - SL_MIN(taken[tier], most[tier]));
    return space / SL_ALIGN * SL_ALIGN;
}

static sl_status open_timer(const sl_scratch_config *c, size_t load_bytes, size_t *load, sl_timer *timer)
{
    sl_device_config config = {.threads = c->threads, .max_commands = SL_TIMER_COMMANDS, .max_events = SL_TIMER_EVENTS};
    const size_t operands = SL_ROUND_UP(SL_MAX(c->signature_bytes, load_bytes), (size_t) SL_ALIGN);
    const size_t taken[SL_TIER_COUNT] = {[SL_TIER_DEVICE] = operands + load_bytes, [SL_TIER_HOST] = operands};
    const size_t space = space_beside(c->most, taken), pair = SL_MAX(2 * c->piece, (size_t) SL_ALIGN);
    const size_t clear = SL_MIN(clear_bytes(c->device), SL_MAX(space, pair));
    const int spread = load_bytes ? (int) SL_MAX(1, SL_MIN((size_t) SPREAD, space / pair)) : 1;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        config.arena_bytes[tier] = operands + SL_MAX(2 * (size_t) spread * c->piece, clear);
    *load = config.arena_bytes[SL_TIER_DEVICE];
    config.arena_bytes[SL_TIER_DEVICE] += load_bytes;
    SL_TRY(sl_timer_open(c->device, &config, timer));
    timer->space = operands;
    timer->clear_bytes = clear;
    timer->warm_input = clear > LEAST_CLEAR;
    timer->spread = spread;
    return SL_OK;
}

static size_t warmup_bytes(const sl_warmup *warmup)
{
    return sl_launch_bytes(&warmup->launch) + SL_ROUND_UP(warmup->launch.workspace_bytes, (size_t) SL_ALIGN);
}

sl_status sl_scratch_open(const sl_scratch_config *c, sl_timer *timer)
{
    size_t bytes = 0, at;
    int n = c->n_warmups;
    for (int i = 0; i < n; i++)
        bytes += warmup_bytes(&c->warmups[i]);
    for (; n > 1 && c->most[SL_TIER_DEVICE] && c->signature_bytes + bytes > c->most[SL_TIER_DEVICE]; n--)
        bytes -= warmup_bytes(&c->warmups[n - 1]);
    SL_TRY(open_timer(c, bytes, &at, timer));
    for (int i = 0; i < n; i++) {
        sl_warmup warmup = c->warmups[i];
        sl_launch_place(&warmup.launch, timer->arena[SL_TIER_DEVICE] + at, warmup.launch.workspace_bytes);
        SL_TRY(sl_timer_fill(timer, &warmup.launch, timer->arena[SL_TIER_HOST], warmup.sequences));
        SL_TRY(sl_timer_add_warmup(timer, &warmup));
        at += warmup_bytes(&warmup);
    }
    return sl_timer_settle(timer);
}
