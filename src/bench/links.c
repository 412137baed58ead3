#include "bench/links.h"

#include <math.h>
#include <string.h>

#include "core/stats.h"
#include "cost/internal.h"

enum { MOST_COPIES = 64, RUNS = 5 };

sl_status sl_link_open(const char *device, int threads, size_t bytes, sl_link_rig *rig)
{
    sl_device_config config = {.threads = threads, .max_commands = 4 * MOST_COPIES, .max_events = MOST_COPIES};
    *rig = (sl_link_rig){.bytes = SL_ROUND_UP(bytes, (size_t) SL_ALIGN)};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        config.arena_bytes[tier] = rig->bytes;
    SL_TRY(sl_device_open(device, &config, &rig->device));
    rig->class = rig->device->class;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        rig->arena[tier] = rig->class->arena(rig->device, (sl_tier) tier);
    return SL_OK;
}

void sl_link_close(sl_link_rig *rig)
{
    sl_device_close(rig->device);
    *rig = (sl_link_rig){0};
}

/* As a plan's costs are measured; the best of three, because what else the machine does only ever takes away. */
sl_status sl_link_measure(sl_link_rig *r, size_t piece, sl_links *links)
{
    sl_bench bench = {.device = r->device, .class = r->class, .spread = 1};
    *links = (sl_links){0};
    memcpy(bench.arena, r->arena, sizeof bench.arena);
    for (int i = 0; i < 3; i++) {
        sl_measured m;
        SL_TRY(sl_bench_links(&bench, piece, &m));
        for (int d = 0; d < 2; d++)
            links->alone[d] = fmax(links->alone[d], m.link[d]);
        if (m.link_both[0] + m.link_both[1] > links->both[0] + links->both[1])
            memcpy(links->both, m.link_both, sizeof links->both);
        links->latency_s = i ? fmin(links->latency_s, m.latency_s) : m.latency_s;
    }
    return SL_OK;
}

sl_status sl_link_copy(sl_link_rig *r, bool out, size_t bytes, double *seconds)
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
