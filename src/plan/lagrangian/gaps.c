/*
 * The gaps that need a decision. Most gaps of a large program need none: too short for an eviction, too small for a copy,
 * or content that resides on the device anyway. Their bytes are counted once (`fixed`). The others are listed, with the
 * demand of each choice:
 *
 *   keep   bytes in every task strictly between the two uses
 *   evict  bytes until `gone` and again from `come`, seconds of both links, bytes of host memory meanwhile
 *
 *     from          gone                   come         to
 *       |-- leaving --|--- in host memory ---|-- coming --|
 *
 *   drop   seconds of recomputation. One run of a producer restores all its outputs, so their gaps form a group.
 *
 * Time is cut into buckets of equal length: prices, peaks of bytes and the links' work are by bucket.
 *
 * Corresponding objects of different layers and chunks cost nearly the same, so their choices would all change at once. A
 * small spread of the costs (evenly over neighbours, by the golden ratio) lets a price split them.
 */
#include "plan/lagrangian/gaps.h"

#include <math.h>
#include <string.h>

#define GOLDEN 0.6180339887498949
#define ROOM 4.0 /* an eviction is considered if the gap is this many times as long as both copies: links have queues */

/* Between -.5 and .5: far apart for neighbours, evenly for many. */
static double spread(int32_t i)
{
    return fmod((double) i * GOLDEN, 1.0) - 0.5;
}

/* ---- the clock ------------------------------------------------------------------------------------------------- */

/* While evicted, it is on its way until `gone` and from `come` on. */
static void time_gap(const sl_gaps *gaps, sl_gap_info *g)
{
    const double *start_s = gaps->start_s;
    g->gone = g->from + 1;
    g->come = g->to;
    while (g->come > g->from + 1 && start_s[g->to] - start_s[g->come] < g->in_s)
        g->come--;
    while (g->gone < g->to && start_s[g->gone] - start_s[g->from + 1] < g->out_s)
        g->gone++;
}

/* A dropped group is rematerialized before the first task that wants any of it. */
static void time_recomputations(sl_gaps *gaps)
{
    int32_t n = gaps->a->program->n_tasks;
    memset(gaps->extra_s, 0, (size_t) n * sizeof *gaps->extra_s);
    for (int32_t i = 0; i < gaps->n_groups; i++) {
        const sl_drop_group *group = &gaps->groups[i];
        int32_t at = n;
        for (int32_t k = group->first; k >= 0; k = gaps->list[k].next)
            at = SL_MIN(at, gaps->list[k].to);
        if (group->drop && at < n)
            gaps->extra_s[at] += group->seconds;
    }
}

void sl_gaps_time(sl_gaps *gaps)
{
    const sl_analysis *a = gaps->a;
    int32_t n = a->program->n_tasks;
    time_recomputations(gaps);
    for (int32_t t = 0; t < n; t++) /* the time before t belongs to the end of t - 1 */
        gaps->start_s[t + 1] = gaps->start_s[t] +
                               (gaps->on_host[t] ? 0 : a->costs->device_s[a->program->tasks[t].signature]) +
                               (t + 1 < n ? gaps->extra_s[t + 1] : 0);
    gaps->bucket_s = fmax(gaps->start_s[n], 1e-30) / gaps->n_buckets;
    for (int32_t t = 0; t < n; t++)
        gaps->bucket[t] = SL_MIN((int32_t) (gaps->start_s[t] / gaps->bucket_s), gaps->n_buckets - 1);
    for (int32_t i = 0; i < gaps->count; i++)
        time_gap(gaps, &gaps->list[i]);
}

/* ---- one gap --------------------------------------------------------------------------------------------------- */

/* Recomputations that need recomputations, as far as they are followed. What comes before counts as fetched. */
#define FOLLOWED 6

/* Seconds to recompute the outputs of task `p` just before task `at`, with the inputs that will not be resident. Always
 * finite: callers pass only tasks that can run a second time. */
static double again_s(const sl_analysis *a, int32_t p, int32_t at, int depth)
{
    const sl_program *program = a->program;
    double seconds = a->costs->device_s[program->tasks[p].signature];
    for (int32_t e = a->first[p]; e < a->first[p + 1]; e++) {
        int32_t o = a->entries[e].object;
        const sl_object *object = &program->objects[o];
        if (a->entries[e].flags & SL_ENTRY_WRITE || sl_analysis_used_near(a, o, at))
            continue;
        double made = INFINITY, brought = INFINITY;
        if (object->producer >= 0 && depth < FOLLOWED)
            made = again_s(a, object->producer, at, depth + 1);
        if (object->persistent || object->class == SL_CLASS_DATA || a->entries[a->object_last[o]].task >= at ||
            depth == FOLLOWED)
            brought = (double) object->bytes / a->costs->link_bytes_per_s_both[SL_LINK_IN];
        seconds += fmin(made, brought);
    }
    return seconds;
}

bool sl_gaps_leaves_dirty(const sl_gaps *gaps, const sl_gap_info *g, const uint8_t *gap_choice)
{
    return g->written && !(g->earlier >= 0 && gap_choice[gaps->list[g->earlier].entry] == SL_GAP_EVICT);
}

static double duration_s(const sl_gaps *gaps, const sl_gap_info *g)
{
    return gaps->start_s[g->to] - gaps->start_s[g->from + 1];
}

/* `earlier`: the gap before it, if the content is still the same; -1. */
static sl_gap_info describe(const sl_gaps *gaps, int32_t entry, int32_t earlier)
{
    const sl_analysis *a = gaps->a;
    const sl_costs *costs = a->costs;
    const sl_entry *e = &a->entries[entry];
    const sl_object *object = &a->program->objects[e->object];
    sl_gap_info g = {.entry = entry,
                     .from = e->task,
                     .to = a->entries[e->next].task,
                     .group = -1,
                     .earlier = earlier,
                     .bytes = (double) a->bytes[e->object]};
    g.out_s = sl_costs_copy_s(costs, SL_LINK_OUT, a->bytes[e->object], true);
    g.in_s = sl_costs_copy_s(costs, SL_LINK_IN, a->bytes[e->object], true);
    time_gap(gaps, &g);
    g.temporary = !object->persistent && object->class != SL_CLASS_DATA;
    g.written = g.temporary || e->flags & SL_ENTRY_WRITE;
    g.short_s = fmax(0, ROOM * (g.in_s + (g.written ? g.out_s : 0)) - duration_s(gaps, &g));
    if (earlier >= 0)
        g.written = gaps->list[earlier].written;
    return g;
}

/* Within the forward a value is rematerialized only if necessary: its group belongs to the backward and would pay twice. */
static bool may_drop(const sl_analysis *a, const sl_gap_info *g)
{
    const sl_task *tasks = a->program->tasks;
    bool ahead = tasks[g->from].phase == SL_PHASE_FORWARD && tasks[g->to].phase == SL_PHASE_FORWARD;
    return a->entries[g->entry].can_drop && !ahead;
}

static int32_t producer_of(const sl_analysis *a, const sl_gap_info *g)
{
    return a->program->objects[a->entries[g->entry].object].producer;
}

static bool worth_thinking(const sl_gaps *gaps, const sl_gap_info *g)
{
    const sl_costs *costs = gaps->a->costs;
    bool tiny = g->bytes < 4 * costs->link_latency_s * costs->link_bytes_per_s_both[SL_LINK_IN]; /* not worth a copy */
    if (!tiny && g->short_s <= 0)
        return true;
    return may_drop(gaps->a, g) &&
           duration_s(gaps, g) > 4 * costs->device_s[gaps->a->program->tasks[producer_of(gaps->a, g)].signature];
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

/* While they are listed: by task its group, by object the last gap of its content; -1. */
typedef struct sl_listing {
    int32_t *group_of_task, *last_gap;
} sl_listing;

static void join_group(sl_gaps *gaps, sl_gap_info *g, int32_t *group)
{
    if (*group < 0) {
        *group = gaps->n_groups++;
        gaps->groups[*group] = (sl_drop_group){
            .seconds = again_s(gaps->a, producer_of(gaps->a, g), g->to, 0), .spread = spread(*group), .first = -1};
    }
    g->group = *group;
    g->next = gaps->groups[*group].first;
    gaps->groups[*group].first = gaps->count;
}

static void add_gap(sl_gaps *gaps, int32_t entry, const sl_listing *listing)
{
    int32_t *last = &listing->last_gap[gaps->a->entries[entry].object];
    sl_gap_info g = describe(gaps, entry, *last);
    if (!worth_thinking(gaps, &g)) {
        for (int32_t t = g.from + 1; t < g.to; t++)
            gaps->fixed[t] += g.bytes;
        return;
    }
    if (may_drop(gaps->a, &g))
        join_group(gaps, &g, &listing->group_of_task[producer_of(gaps->a, &g)]);
    g.spread = 1 + 0.1 * spread(gaps->count);
    *last = gaps->count;
    gaps->list[gaps->count++] = g;
}

/* Resides on the device: takes none of the target bytes and needs no choice. */
static bool at_placement(const sl_gaps *gaps, int32_t object)
{
    return gaps->a->program->objects[object].persistent && gaps->placement[object] == SL_TIER_DEVICE;
}

static double needed_beside_placements(const sl_gaps *gaps, int32_t task)
{
    const sl_analysis *a = gaps->a;
    if (gaps->on_host[task])
        return 0;
    double bytes = (double) a->need[task];
    for (int32_t e = a->first[task]; e < a->first[task + 1]; e++)
        if (at_placement(gaps, a->entries[e].object))
            bytes -= (double) a->bytes[a->entries[e].object];
    return bytes;
}

static void list(sl_gaps *gaps, const sl_listing *listing)
{
    const sl_analysis *a = gaps->a;
    memset(listing->group_of_task, 0xff, (size_t) a->program->n_tasks * sizeof(int32_t));
    memset(listing->last_gap, 0xff, (size_t) a->program->n_objects * sizeof(int32_t));
    for (int32_t i = 0; i < a->n_entries; i++) {
        const sl_entry *e = &a->entries[i];
        if (e->flags & SL_ENTRY_WRITE)
            listing->last_gap[e->object] = -1;
        if (e->next >= 0 && !(a->entries[e->next].flags & SL_ENTRY_FRESH) && a->entries[e->next].task > e->task + 1 &&
            !at_placement(gaps, e->object))
            add_gap(gaps, i, listing);
    }
}

sl_status sl_gaps_list(sl_region *region, const sl_analysis *a, const uint8_t *on_host, const uint8_t *placement,
                       sl_gaps *gaps)
{
    int32_t n = a->program->n_tasks;
    sl_listing listing;
    *gaps =
        (sl_gaps){.a = a, .on_host = on_host, .placement = placement, .n_buckets = SL_MAX(SL_MIN(SL_BUCKETS, n), 1)};
    SL_TRY(sl_region_alloc(region, &gaps->start_s, n + 1, sizeof(double)));
    SL_TRY(sl_region_alloc(region, &gaps->extra_s, n + 1, sizeof(double)));
    SL_TRY(sl_region_alloc(region, &gaps->bucket, n + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(region, &gaps->fixed, n + 1, sizeof(double)));
    SL_TRY(sl_region_alloc(region, &gaps->list, a->n_entries + 1, sizeof *gaps->list));
    SL_TRY(sl_region_alloc(region, &gaps->groups, n + 1, sizeof *gaps->groups));
    SL_TRY(sl_region_alloc(region, &listing.group_of_task, n + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(region, &listing.last_gap, a->program->n_objects + 1, sizeof(int32_t)));
    sl_gaps_time(gaps);
    for (int32_t t = 0; t < n; t++)
        gaps->fixed[t] = needed_beside_placements(gaps, t);
    list(gaps, &listing);
    return SL_OK;
}
