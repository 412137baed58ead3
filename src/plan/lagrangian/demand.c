/*
 * What choices use: the most bytes of each tier at once and the work of each link, by bucket.
 *
 * Bytes are kept as differences: a gap adds its bytes at its begin and subtracts them at its end, and one pass over the
 * tasks computes prefix sums. The cost is the number of gaps and tasks, not the gaps' lengths.
 *
 * Copies that exceed a bucket's capacity move to later buckets (copies out) or to earlier ones (copies in, where time runs
 * backwards). Either way their bytes occupy device memory meanwhile: the queue.
 */
#include "plan/lagrangian/demand.h"

#include <math.h>
#include <string.h>

sl_status sl_demand_create(sl_region *region, const sl_gaps *gaps, sl_demand *demand)
{
    demand->gaps = gaps;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY(sl_region_alloc(region, &demand->usage[tier], gaps->a->program->n_tasks + 1, sizeof(double)));
    return SL_OK;
}

/* In the tasks [begin, end). */
static void use_bytes(sl_demand *d, sl_tier tier, const sl_gap_info *g, int32_t begin, int32_t end)
{
    d->usage[tier][begin] += g->bytes;
    d->usage[tier][end] -= g->bytes;
}

static void evict(sl_demand *d, const sl_gap_info *g, bool out)
{
    const int32_t *bucket = d->gaps->bucket;
    d->load_s[SL_LINK_IN][bucket[g->to]] += g->in_s;
    use_bytes(d, SL_TIER_DEVICE, g, g->come, g->to);
    if (out) {
        d->load_s[SL_LINK_OUT][bucket[g->from]] += g->out_s;
        use_bytes(d, SL_TIER_DEVICE, g, g->from + 1, g->gone);
    }
    if (g->temporary)
        use_bytes(d, SL_TIER_HOST, g, g->from + 1, g->to);
}

static void find_peaks(sl_demand *d)
{
    const sl_gaps *gaps = d->gaps;
    memset(d->peak, 0, sizeof d->peak);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        double bytes = 0;
        for (int32_t t = 0; t < gaps->a->program->n_tasks; t++) {
            double *peak = &d->peak[tier][gaps->bucket[t]];
            bytes += d->usage[tier][t];
            *peak = fmax(*peak, bytes + (tier == SL_TIER_DEVICE ? gaps->fixed[t] : 0));
        }
    }
}

void sl_demand_of(sl_demand *d, const uint8_t *gap_choice)
{
    const sl_gaps *gaps = d->gaps;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        memset(d->usage[tier], 0, (size_t) (gaps->a->program->n_tasks + 1) * sizeof(double));
    memset(d->load_s, 0, sizeof d->load_s);
    for (int32_t i = 0; i < gaps->count; i++) {
        const sl_gap_info *g = &gaps->list[i];
        if (gap_choice[g->entry] == SL_GAP_KEEP)
            use_bytes(d, SL_TIER_DEVICE, g, g->from + 1, g->to);
        else if (gap_choice[g->entry] == SL_GAP_EVICT)
            evict(d, g, sl_gaps_leaves_dirty(gaps, g, gap_choice));
    }
    find_peaks(d);
}

/* A link is faster while the other one is idle. */
double sl_demand_width_s(const sl_demand *d, sl_link link, int b, double share)
{
    const sl_costs *costs = d->gaps->a->costs;
    double bucket_s = d->gaps->bucket_s;
    double idle = 1 - fmin(1, d->load_s[sl_links[link].opposite][b] / bucket_s);
    double gain = costs->link_bytes_per_s[link] / costs->link_bytes_per_s_both[link] - 1;
    return bucket_s * share * (1 + gain * idle);
}

void sl_demand_queue(const sl_demand *d, sl_link link, double share, double queue_s[SL_BUCKETS])
{
    double queue = 0;
    for (int i = 0; i < d->gaps->n_buckets; i++) {
        int b = link == SL_LINK_IN ? d->gaps->n_buckets - 1 - i : i;
        queue = fmax(0, queue + d->load_s[link][b] - sl_demand_width_s(d, link, b, share));
        queue_s[b] = queue;
    }
}
