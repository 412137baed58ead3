/*
 * Lagrangian prices leave some of every resource unused, since equal gaps choose alike. Therefore recomputable values are
 * decided again, one producer at a time, most expensive per byte first: saved if there is space, in the way that the
 * prices prefer, otherwise dropped. This is a greedy knapsack over several resources (device bytes, host bytes, both
 * links), each by bucket.
 *
 * A copy may run in another bucket than its own, as long as the waiting bytes fit in device memory. So a copy is added by
 * extending its queue from bucket to bucket, first as a trial and then permanently.
 *
 * With few rounds the prices are unreliable for what stays (`kept`) and serve only as costs of evictions: a share of the
 * device's bytes is filled first with the weights, gradients and activations that save most per byte and second.
 */
#include "plan/lagrangian/knapsack.h"

#include <math.h>
#include <stdlib.h>

struct sl_fill {
    sl_gaps *gaps;
    sl_demand *demand;
    double queue[SL_LINK_COUNT][SL_BUCKETS]; /* device bytes that wait for a link or came before their time */
    sl_drop_group **order;                   /* most expensive per byte first */
    sl_gap_info **by_density;                /* gaps, most expensive per byte and second first */
};

/* ---- space in each bucket --------------------------------------------------------------------------------------- */

static double queued(const sl_fill *f, int b)
{
    return f->queue[SL_LINK_IN][b] + f->queue[SL_LINK_OUT][b];
}

/* Adds seconds to a link's work in bucket b, or removes them. False, and nothing changed: the queue does not fit. */
static bool add_copy(sl_fill *f, sl_link link, int b, double seconds, double share, double capacity)
{
    sl_demand *d = f->demand;
    double rate = f->gaps->a->costs->link_bytes_per_s_both[link];
    int way = link == SL_LINK_IN ? -1 : 1, n = f->gaps->n_buckets;
    for (int pass = seconds < 0 ? 1 : 0; pass < 2; pass++) { /* trial, then commit */
        double before = b - way >= 0 && b - way < n ? f->queue[link][b - way] : 0;
        for (int i = b; i >= 0 && i < n; i += way) {
            double load = d->load_s[link][i] + (i == b ? seconds : 0);
            double width = sl_demand_width_s(d, link, i, share);
            double queue = fmax(0, before / rate + load - width) * rate, was = f->queue[link][i];
            if (pass == 0 && queue > was && d->peak[SL_TIER_DEVICE][i] + queued(f, i) - was + queue > capacity)
                return false;
            if (pass == 1) {
                f->queue[link][i] = queue;
                d->load_s[link][i] = load;
            }
            before = queue;
            if (queue == was && i != b)
                break;
        }
    }
    return true;
}

/* Adds bytes in the tasks [from, to), or removes them. False, and nothing changed: they do not fit. */
static bool add_bytes(sl_fill *f, sl_tier tier, int32_t from, int32_t to, double bytes, double capacity)
{
    if (from >= to)
        return true;
    double *peak = f->demand->peak[tier];
    int first = f->gaps->bucket[from], last = f->gaps->bucket[to - 1];
    for (int b = first; b <= last && bytes > 0; b++)
        if (peak[b] + bytes + (tier == SL_TIER_DEVICE ? queued(f, b) : 0) > capacity)
            return false;
    for (int b = first; b <= last; b++)
        peak[b] += bytes;
    return true;
}

/* What the choices so far use. */
static void begin(sl_fill *f, double link_share, const uint8_t *gap_choice)
{
    sl_demand_of(f->demand, gap_choice);
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        double rate = f->gaps->a->costs->link_bytes_per_s_both[link];
        sl_demand_queue(f->demand, link, link_share, f->queue[link]);
        for (int b = 0; b < f->gaps->n_buckets; b++)
            f->queue[link][b] *= rate;
    }
}

/* ---- saving a gap, or a group ---------------------------------------------------------------------------------- */

/* sign -1: no longer. */
static bool keep(sl_fill *f, const sl_lagrangian_targets *targets, const sl_gap_info *g, double sign)
{
    return add_bytes(f, SL_TIER_DEVICE, g->from + 1, g->to, sign * g->bytes, targets->bytes[SL_TIER_DEVICE]);
}

/* All of an eviction's needs, or none. */
static bool evict(sl_fill *f, const sl_lagrangian_targets *targets, const sl_gap_info *g, double sign)
{
    double device = targets->bytes[SL_TIER_DEVICE], host = targets->bytes[SL_TIER_HOST], bytes = sign * g->bytes;
    double share = targets->link_share;
    int from = f->gaps->bucket[g->from], to = f->gaps->bucket[g->to];
    if (!add_bytes(f, SL_TIER_HOST, g->from + 1, g->to, bytes, host))
        return false;
    if (!add_bytes(f, SL_TIER_DEVICE, g->from + 1, g->gone, bytes, device))
        goto not_in_host;
    if (!add_bytes(f, SL_TIER_DEVICE, g->come, g->to, bytes, device))
        goto not_leaving;
    if (!add_copy(f, SL_LINK_OUT, from, sign * g->out_s, share, device))
        goto not_coming;
    if (add_copy(f, SL_LINK_IN, to, sign * g->in_s, share, device))
        return true;
    add_copy(f, SL_LINK_OUT, from, -g->out_s, share, device);
not_coming:
    add_bytes(f, SL_TIER_DEVICE, g->come, g->to, -bytes, device);
not_leaving:
    add_bytes(f, SL_TIER_DEVICE, g->from + 1, g->gone, -bytes, device);
not_in_host:
    add_bytes(f, SL_TIER_HOST, g->from + 1, g->to, -bytes, host);
    return false;
}

/* In the way that the prices prefer, otherwise in the other. */
static bool save(sl_fill *f, const sl_lagrangian_targets *targets, const sl_gap_info *g, uint8_t *gap_choice)
{
    bool prefer_keep = g->keep <= g->evict * g->spread;
    if (prefer_keep && keep(f, targets, g, 1))
        gap_choice[g->entry] = SL_GAP_KEEP;
    else if (g->short_s <= 0 && evict(f, targets, g, 1))
        gap_choice[g->entry] = SL_GAP_EVICT;
    else if (!prefer_keep && keep(f, targets, g, 1))
        gap_choice[g->entry] = SL_GAP_KEEP;
    else
        return false;
    return true;
}

/* Gaps of the group before `end` were saved for nothing. */
static void drop_before(sl_fill *f, const sl_lagrangian_targets *targets, const sl_drop_group *group, int32_t end,
                        uint8_t *gap_choice)
{
    for (int32_t k = group->first; k != end; k = f->gaps->list[k].next) {
        const sl_gap_info *g = &f->gaps->list[k];
        if (gap_choice[g->entry] == SL_GAP_KEEP)
            keep(f, targets, g, -1);
        else
            evict(f, targets, g, -1);
        gap_choice[g->entry] = SL_GAP_DROP;
    }
}

/* The whole group is saved, or, where there is no space for one of them, none of it. */
static bool save_group(sl_fill *f, const sl_lagrangian_targets *targets, const sl_drop_group *group,
                       uint8_t *gap_choice)
{
    for (int32_t i = group->first; i >= 0; i = f->gaps->list[i].next)
        if (!save(f, targets, &f->gaps->list[i], gap_choice)) {
            drop_before(f, targets, group, i, gap_choice);
            return false;
        }
    return true;
}

/* The same on the device alone. */
static void keep_group(sl_fill *f, const sl_lagrangian_targets *targets, const sl_drop_group *group,
                       uint8_t *gap_choice)
{
    for (int32_t i = group->first; i >= 0; i = f->gaps->list[i].next) {
        const sl_gap_info *g = &f->gaps->list[i];
        if (!keep(f, targets, g, 1)) {
            drop_before(f, targets, group, i, gap_choice);
            return;
        }
        gap_choice[g->entry] = SL_GAP_KEEP;
    }
}

/* ---- the most valuable gaps stay ---------------------------------------------------------------------------------- */

/* Seconds on the links (and prices of what it takes meanwhile) that keeping saves, per byte and second of device
 * memory. */
static void find_densities(sl_fill *f)
{
    const sl_gaps *gaps = f->gaps;
    for (int32_t i = 0; i < gaps->count; i++) {
        sl_gap_info *g = &gaps->list[i];
        double seconds = gaps->start_s[g->to] - gaps->start_s[g->from + 1];
        g->density = (g->evict - g->short_s) * g->spread / fmax(g->bytes * seconds, 1e-30);
    }
    for (int32_t i = 0; i < gaps->n_groups; i++) {
        double saved = 0, space = 0;
        for (int32_t k = gaps->groups[i].first; k >= 0; k = gaps->list[k].next) {
            const sl_gap_info *g = &gaps->list[k];
            saved += g->evict * g->spread;
            space += g->bytes * (gaps->start_s[g->to] - gaps->start_s[g->from + 1]);
        }
        double density = fmin(saved, gaps->groups[i].seconds) / fmax(space, 1e-30);
        for (int32_t k = gaps->groups[i].first; k >= 0; k = gaps->list[k].next)
            gaps->list[k].density = density;
    }
}

static int compare_density(const void *a, const void *b)
{
    const sl_gap_info *x = *(const sl_gap_info *const *) a, *y = *(const sl_gap_info *const *) b;
    return x->density != y->density ? (x->density > y->density ? -1 : 1) : (x < y ? -1 : x > y);
}

/* sign -1: removes the copies of an eviction and their space; 1: adds them, even without space. */
static void move_copies(sl_fill *f, double share, const sl_gap_info *g, bool out, double sign)
{
    const int32_t *bucket = f->gaps->bucket;
    add_bytes(f, SL_TIER_DEVICE, g->come, g->to, sign * g->bytes, INFINITY);
    add_copy(f, SL_LINK_IN, bucket[g->to], sign * g->in_s, share, INFINITY);
    if (out) {
        add_bytes(f, SL_TIER_DEVICE, g->from + 1, g->gone, sign * g->bytes, INFINITY);
        add_copy(f, SL_LINK_OUT, bucket[g->from], sign * g->out_s, share, INFINITY);
    }
}

/* Keeps gaps up to the share `kept` of the bytes. The others are evicted, or dropped where possible. */
static void keep_most_expensive(sl_fill *f, const sl_lagrangian_targets *targets, uint8_t *gap_choice)
{
    const sl_gaps *gaps = f->gaps;
    sl_lagrangian_targets part = *targets;
    part.bytes[SL_TIER_DEVICE] *= targets->kept;
    find_densities(f);
    for (int32_t i = 0; i < gaps->count; i++) {
        f->by_density[i] = &gaps->list[i];
        gap_choice[gaps->list[i].entry] = gaps->list[i].group >= 0 ? SL_GAP_DROP : SL_GAP_EVICT;
    }
    qsort(f->by_density, (size_t) gaps->count, sizeof *f->by_density, compare_density);
    begin(f, targets->link_share, gap_choice);
    for (int32_t i = 0; i < gaps->count; i++) {
        const sl_gap_info *g = f->by_density[i];
        if (g->group >= 0) {
            if (gap_choice[g->entry] == SL_GAP_DROP)
                keep_group(f, &part, &gaps->groups[g->group], gap_choice);
            continue;
        }
        bool out = sl_gaps_leaves_dirty(gaps, g, gap_choice);
        move_copies(f, part.link_share, g, out, -1);
        if (keep(f, &part, g, 1))
            gap_choice[g->entry] = SL_GAP_KEEP;
        else
            move_copies(f, part.link_share, g, out, 1);
    }
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

void sl_fill_choose(sl_fill *f, const sl_lagrangian_targets *targets, uint8_t *gap_choice)
{
    const sl_gaps *gaps = f->gaps;
    for (int32_t i = 0; i < gaps->count; i++)
        if (gaps->list[i].group >= 0)
            gap_choice[gaps->list[i].entry] = SL_GAP_DROP;
    if (targets->kept > 0)
        keep_most_expensive(f, targets, gap_choice);
    begin(f, targets->link_share, gap_choice);
    for (int32_t i = 0; i < gaps->n_groups; i++) {
        sl_drop_group *group = f->order[i];
        bool kept = gap_choice[gaps->list[group->first].entry] == SL_GAP_KEEP;
        group->drop = !kept && !save_group(f, targets, group, gap_choice);
    }
    sl_gaps_time(f->gaps);
}

static int by_value(const void *a, const void *b)
{
    const sl_drop_group *x = *(const sl_drop_group *const *) a, *y = *(const sl_drop_group *const *) b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->spread != y->spread ? (x->spread > y->spread ? -1 : 1) : (x < y ? -1 : x > y);
}

static void rank_groups(sl_fill *f)
{
    const sl_gaps *gaps = f->gaps;
    for (int32_t i = 0; i < gaps->n_groups; i++) {
        double bytes = 0;
        for (int32_t k = gaps->groups[i].first; k >= 0; k = gaps->list[k].next)
            bytes += gaps->list[k].bytes;
        /* steps of a tenth: near equals are spread */
        gaps->groups[i].value = round(10 * log(gaps->groups[i].seconds / bytes));
        f->order[i] = &gaps->groups[i];
    }
    qsort(f->order, (size_t) gaps->n_groups, sizeof *f->order, by_value);
}

sl_status sl_fill_create(sl_region *region, sl_gaps *gaps, sl_demand *demand, sl_fill **fill)
{
    sl_fill *f;
    SL_TRY(sl_region_alloc(region, &f, 1, sizeof *f));
    f->gaps = gaps;
    f->demand = demand;
    SL_TRY(sl_region_alloc(region, &f->order, gaps->n_groups + 1, sizeof *f->order));
    SL_TRY(sl_region_alloc(region, &f->by_density, gaps->count + 1, sizeof *f->by_density));
    rank_groups(f);
    *fill = f;
    return SL_OK;
}
