#include "bench/links.h"

#include <math.h>
#include <string.h>

#include "core/stats.h"

enum { RUNS = 5 };

sl_status sl_link_open(const char *device, int threads, size_t bytes, sl_timer *timer)
{
    sl_device_config config = {.threads = threads, .max_commands = SL_TIMER_COMMANDS, .max_events = SL_TIMER_EVENTS};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        config.arena_bytes[tier] = SL_ROUND_UP(bytes, (size_t) SL_ALIGN);
    return sl_timer_open(device, &config, timer);
}

/* As a plan's costs are measured; the best of three, because what else the machine does only ever takes away. */
sl_status sl_link_measure(sl_timer *r, size_t piece, sl_link_rates *links)
{
    *links = (sl_link_rates){0};
    for (int i = 0; i < 3; i++) {
        sl_measured m;
        SL_TRY(sl_timer_links(r, piece, &m));
        for (int d = 0; d < 2; d++)
            links->alone[d] = fmax(links->alone[d], m.link[d]);
        if (m.link_both[0] + m.link_both[1] > links->both[0] + links->both[1])
            memcpy(links->both, m.link_both, sizeof links->both);
        links->latency_s = i ? fmin(links->latency_s, m.latency_s) : m.latency_s;
    }
    return SL_OK;
}

sl_status sl_link_copy(sl_timer *r, bool out, size_t bytes, double *seconds)
{
    double times[RUNS];
    sl_stats stats;
    unsigned char *dev = r->arena[SL_TIER_DEVICE], *host = r->arena[SL_TIER_HOST];
    for (int i = -1; i < RUNS; i++) {
        sl_span span = {0};
        SL_TRY(r->class->step_begin(r->device));
        sl_status issued = r->class->copy(r->device, out ? SL_STREAM_OUT : SL_STREAM_IN, out ? host : dev,
                                          out ? dev : host, bytes, &span);
        sl_status ended = r->class->step_end(r->device);
        SL_TRY(ended != SL_OK ? ended : issued);
        if (i >= 0)
            times[i] = span.end - span.start;
    }
    sl_stats_of(times, RUNS, &stats);
    *seconds = stats.median;
    return SL_OK;
}
