#include "bench/links.h"

#include <math.h>

#include "bench/stats.h"

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

/* Copies in the lower half go in, those in the upper half out. */
static sl_status issue(sl_link_rig *r, size_t piece, const int counts[2], sl_span spans[2][MOST_COPIES])
{
    unsigned char *dev = r->arena[SL_TIER_DEVICE], *host = r->arena[SL_TIER_HOST];
    size_t half = r->bytes / 2;
    for (int i = 0; i < SL_MAX(counts[0], counts[1]); i++) {
        if (i < counts[0])
            SL_TRY(r->class->copy(r->device, SL_STREAM_IN, dev, host, piece, &spans[0][i]));
        if (i < counts[1])
            SL_TRY(r->class->copy(r->device, SL_STREAM_OUT, host + half, dev + half, piece, &spans[1][i]));
    }
    return SL_OK;
}

/* Rate of one direction while both were under way: its copies up to the moment the other one ended. */
static double rate_until(const sl_span *spans, int count, size_t piece, double from, double until)
{
    double done = 0;
    for (int i = 0; i < count; i++) {
        double length = spans[i].end - spans[i].start;
        double inside = fmin(spans[i].end, until) - fmax(spans[i].start, from);
        done += length > 0 && inside > 0 ? inside / length : 0;
    }
    return until > from ? done * (double) piece / (until - from) : 0;
}

static sl_status run(sl_link_rig *r, size_t piece, const int counts[2], double rates[2])
{
    sl_span spans[2][MOST_COPIES];
    double from = 0, until = INFINITY;
    SL_TRY(r->class->step_begin(r->device));
    sl_status issued = issue(r, piece, counts, spans), ended = r->class->step_end(r->device);
    SL_TRY(ended != SL_OK ? ended : issued);
    for (int d = 0; d < 2; d++)
        if (counts[d]) {
            from = fmax(from, spans[d][0].start);
            until = fmin(until, spans[d][counts[d] - 1].end);
        }
    for (int d = 0; d < 2; d++)
        rates[d] = counts[d] ? rate_until(spans[d], counts[d], piece, from, until) : 0;
    return SL_OK;
}

/* A chain of small copies through both streams, each waiting for the one before. */
static sl_status chain(sl_link_rig *r, double *seconds)
{
    enum { LENGTH = 16 };
    sl_span spans[LENGTH];
    unsigned char *dev = r->arena[SL_TIER_DEVICE], *host = r->arena[SL_TIER_HOST];
    sl_status status = SL_OK;
    SL_TRY(r->class->step_begin(r->device));
    for (int i = 0; i < LENGTH && status == SL_OK; i++) {
        sl_stream stream = i % 2 ? SL_STREAM_OUT : SL_STREAM_IN;
        if (i > 0)
            status = r->class->wait(r->device, stream, i - 1);
        if (status == SL_OK)
            status = r->class->copy(r->device, stream, i % 2 ? host : dev, i % 2 ? dev : host, SL_ALIGN, &spans[i]);
        if (status == SL_OK)
            status = r->class->record(r->device, stream, i);
    }
    sl_status ended = r->class->step_end(r->device);
    SL_TRY(ended != SL_OK ? ended : status);
    *seconds = fmax(0, (spans[LENGTH - 1].start - spans[0].start) / (LENGTH - 1));
    return SL_OK;
}

static int about(double seconds)
{
    return SL_MAX(3, SL_MIN(MOST_COPIES, (int) (0.1 / fmax(seconds, 1e-9))));
}

sl_status sl_link_measure(sl_link_rig *r, size_t piece, sl_links *links)
{
    double rates[2], seconds;
    *links = (sl_links){0};
    SL_TRY(run(r, piece, (const int[]){2, 2}, rates)); /* touches the memory */
    SL_TRY(sl_link_copy(r, false, piece, &seconds));
    int n = about(seconds);
    for (int i = 0; i < 3; i++) { /* the best of three: what else the machine does only ever takes away */
        SL_TRY(run(r, piece, (const int[]){n, 0}, rates));
        links->alone[0] = fmax(links->alone[0], rates[0]);
        SL_TRY(run(r, piece, (const int[]){0, n}, rates));
        links->alone[1] = fmax(links->alone[1], rates[1]);
        SL_TRY(run(r, piece, (const int[]){n, n}, rates));
        if (rates[0] + rates[1] > links->both[0] + links->both[1])
            links->both[0] = rates[0], links->both[1] = rates[1];
        SL_TRY(chain(r, &seconds));
        links->latency_s = i ? fmin(links->latency_s, seconds) : seconds;
    }
    for (int d = 0; d < 2; d++)
        links->both[d] = fmin(links->both[d], links->alone[d]);
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
