/*
 * Choices for large programs, by prices (Lagrangian relaxation). Every byte of a tier has a price per second at each
 * time, every link a price per second of its use; then each gap can choose for itself what is cheapest:
 *
 *   keep    bytes x price of device bytes, summed over the gap
 *   evict   seconds on the links x their prices, bytes x price of host bytes, and a stall where the gap is too short
 *   drop    seconds of recomputation, once per producer however many outputs it brings back
 *
 * Prices rise where the choices use more than there is and fall where they use less. Corresponding objects of different
 * layers and chunks cost nearly the same and would all change their mind at once; a small spread of the costs (evenly
 * over neighbours, by the golden ratio) lets a price split them.
 *
 * The alternative, cutting residencies one by one until everything fits, decides each cut without knowing the later
 * ones and cannot weigh links against recomputation; see docs/planner.md.
 */
#include "plan/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024 /* at most */
#define GOLDEN 0.6180339887498949
#define ROOM 4.0      /* a gap is worth leaving in if it is this many times as long as both copies: links have queues */
#define NUISANCE 0.02 /* least price of a link: what could as well stay does not come and go */

/* A gap worth thinking about: long enough to leave in, or droppable. */
typedef struct sl_gap_info {
    int32_t entry, from, to; /* tasks strictly between hold it when kept */
    int32_t gone, come;      /* when evicted: it has left before task `gone`, comes back from task `come` on */
    int32_t group;           /* droppable: by producer; -1 */
    int32_t earlier;         /* gap of the same content before it; -1 */
    int32_t next;            /* gap of the same group; -1 */
    double bytes, out_s, in_s;
    double short_s;     /* by how much the gap is too short for leaving and coming back */
    double keep, evict; /* costs at the current prices */
    double density;     /* worth of keeping it, per byte and second */
    double spread;      /* factor that lets equal gaps choose differently */
    bool written;       /* content was written in this step: no copy in host memory yet */
    bool temporary;     /* leaving takes host memory */
} sl_gap_info;

typedef struct sl_drop_group {
    double seconds;       /* to recompute */
    double save;          /* cheapest way to save all of it, at the current prices */
    double spread, value; /* value: seconds per byte saved, coarsely */
    int32_t first;        /* gap */
    bool drop;
} sl_drop_group;

struct sl_prices {
    sl_region *region;
    const sl_analysis *a;
    sl_gap_info *gaps;
    sl_drop_group *groups;
    int32_t n_gaps, n_groups;
    const uint8_t *on_host; /* by task */
    const uint8_t *home;    /* by object: sl_tier of persistent ones */
    double *start_s;        /* by task, n_tasks + 1 */
    double *extra_s;        /* by task: recomputations before it */
    int32_t *bucket;        /* by task */
    int n_buckets;
    double bucket_s;
    double *fixed;                 /* by task: device bytes of operands, workspace and gaps that are always kept */
    double *usage[SL_TIER_COUNT];  /* by task */
    double *prefix[SL_TIER_COUNT]; /* by task, n_tasks + 1: integral of the price */
    double byte_price[SL_TIER_COUNT][BUCKETS];
    double link_price[2][BUCKETS], link_load[2][BUCKETS];
    double peak[BUCKETS];                         /* device bytes in use */
    double host_peak[BUCKETS], queue[2][BUCKETS]; /* bytes, while filling */
    sl_drop_group **order;
    sl_gap_info **dearest;
    double waiting[BUCKETS]; /* device bytes of copies done early or late */
};

/* ---- what there is to choose ----------------------------------------------------------------------------------- */

/* Seconds to have the outputs of task `p` again just before task `at`: its own, and those of inputs that will not be
 * there. */
static double again_s(const sl_analysis *a, int32_t p, int32_t at, int depth)
{
    const sl_program *program = a->program;
    double seconds = a->costs->device_s[program->tasks[p].kind];
    for (int32_t e = a->first[p]; e < a->first[p + 1]; e++) {
        int32_t o = a->entries[e].object;
        const sl_object *object = &program->objects[o];
        if (a->entries[e].flags & SL_ENTRY_WRITE || sl_analysis_used_near(a, o, at))
            continue;
        double made = INFINITY, brought = INFINITY;
        if (object->producer >= 0 && depth < 6)
            made = again_s(a, object->producer, at, depth + 1);
        if (object->persistent || object->class == SL_CLASS_DATA || a->entries[a->object_last[o]].task >= at)
            brought = (double) object->bytes / a->costs->link_bytes_per_s_both[0];
        seconds += fmin(made, brought);
    }
    return seconds;
}

/* While evicted, it is on its way until `gone` and from `come` on. */
static void time_gap(const sl_prices *p, sl_gap_info *g)
{
    g->gone = g->from + 1;
    g->come = g->to;
    while (g->come > g->from + 1 && p->start_s[g->to] - p->start_s[g->come] < g->in_s)
        g->come--;
    while (g->gone < g->to && p->start_s[g->gone] - p->start_s[g->from + 1] < g->out_s)
        g->gone++;
}

/* When tasks start, recomputations included as chosen so far: they give the links time. */
static void time_tasks(sl_prices *p)
{
    const sl_analysis *a = p->a;
    int32_t n = a->program->n_tasks;
    memset(p->extra_s, 0, (size_t) n * sizeof *p->extra_s);
    for (int32_t i = 0; i < p->n_groups; i++) {
        int32_t at = n;
        for (int32_t k = p->groups[i].first; k >= 0; k = p->gaps[k].next)
            at = SL_MIN(at, p->gaps[k].to);
        if (p->groups[i].drop && at < n)
            p->extra_s[at] += p->groups[i].seconds;
    }
    for (int32_t t = 0; t < n; t++) /* the time before t belongs to the end of t - 1 */
        p->start_s[t + 1] = p->start_s[t] + (p->on_host[t] ? 0 : a->costs->device_s[a->program->tasks[t].kind]) +
                            (t + 1 < n ? p->extra_s[t + 1] : 0);
    p->bucket_s = fmax(p->start_s[n], 1e-30) / p->n_buckets;
    for (int32_t t = 0; t < n; t++)
        p->bucket[t] = SL_MIN((int32_t) (p->start_s[t] / p->bucket_s), p->n_buckets - 1);
    for (int32_t i = 0; i < p->n_gaps; i++)
        time_gap(p, &p->gaps[i]);
}

static void add_gap(sl_prices *p, int32_t entry, int32_t *group_of_task, int32_t *last_gap)
{
    const sl_analysis *a = p->a;
    const sl_costs *costs = a->costs;
    const sl_entry *e = &a->entries[entry], *next = &a->entries[e->next];
    const sl_object *object = &a->program->objects[e->object];
    sl_gap_info *g = &p->gaps[p->n_gaps];
    double duration = p->start_s[next->task] - p->start_s[e->task + 1];
    *g = (sl_gap_info){.entry = entry,
                       .from = e->task,
                       .to = next->task,
                       .group = -1,
                       .earlier = -1,
                       .bytes = (double) a->bytes[e->object]};
    g->out_s = costs->link_latency_s + g->bytes / costs->link_bytes_per_s_both[1];
    g->in_s = costs->link_latency_s + g->bytes / costs->link_bytes_per_s_both[0];
    time_gap(p, g);
    g->temporary = !object->persistent && object->class != SL_CLASS_DATA;
    g->written = g->temporary || e->flags & SL_ENTRY_WRITE;
    g->short_s = fmax(0, ROOM * (g->in_s + (g->written ? g->out_s : 0)) - duration);
    if (!(e->flags & SL_ENTRY_WRITE) && last_gap[e->object] >= 0) {
        g->earlier = last_gap[e->object];
        g->written = p->gaps[g->earlier].written;
    }
    /* Within the forward a value is made again only if it must: its group is for the way back, and would pay twice. */
    bool ahead =
        a->program->tasks[e->task].phase == SL_PHASE_FORWARD && a->program->tasks[next->task].phase == SL_PHASE_FORWARD;
    bool can_drop = e->can_drop && !ahead;
    bool tiny = g->bytes < 4 * costs->link_latency_s * costs->link_bytes_per_s_both[0]; /* not worth a copy */
    if ((tiny || g->short_s > 0) &&
        !(can_drop && duration > 4 * costs->device_s[a->program->tasks[object->producer].kind])) {
        for (int32_t t = g->from + 1; t < g->to; t++)
            p->fixed[t] += g->bytes;
        return;
    }
    if (can_drop) {
        int32_t *group = &group_of_task[object->producer];
        if (*group < 0) {
            *group = p->n_groups++;
            double spread = fmod((double) *group * GOLDEN, 1.0) - 0.5;
            p->groups[*group] =
                (sl_drop_group){.seconds = again_s(a, object->producer, next->task, 0), .spread = spread, .first = -1};
        }
        g->group = *group;
        g->next = p->groups[*group].first;
        p->groups[*group].first = p->n_gaps;
    }
    g->spread = 1 + 0.1 * (fmod((double) p->n_gaps * GOLDEN, 1.0) - 0.5);
    last_gap[e->object] = p->n_gaps++;
}

/* Lives on the device: no bytes of the targets, nothing to choose. */
static bool at_home(const sl_prices *p, int32_t object)
{
    return p->a->program->objects[object].persistent && p->home[object] == SL_TIER_DEVICE;
}

static double needed_beside_homes(const sl_prices *p, int32_t task)
{
    const sl_analysis *a = p->a;
    if (p->on_host[task])
        return 0;
    double bytes = (double) sl_analysis_need(a, task, SL_TIER_DEVICE);
    for (int32_t e = a->first[task]; e < a->first[task + 1]; e++)
        if (at_home(p, a->entries[e].object))
            bytes -= (double) a->bytes[a->entries[e].object];
    return bytes;
}

static sl_status list_gaps(sl_prices *p)
{
    const sl_analysis *a = p->a;
    int32_t *group_of_task, *last_gap;
    SL_TRY(sl_region_alloc(p->region, &p->gaps, a->n_entries + 1, sizeof *p->gaps));
    SL_TRY(sl_region_alloc(p->region, &p->dearest, a->n_entries + 1, sizeof *p->dearest));
    SL_TRY(sl_region_alloc(p->region, &p->groups, a->program->n_tasks + 1, sizeof *p->groups));
    SL_TRY(sl_region_alloc(p->region, &group_of_task, a->program->n_tasks + 1, sizeof(int32_t)));
    SL_TRY(sl_region_alloc(p->region, &last_gap, a->program->n_objects + 1, sizeof(int32_t)));
    memset(group_of_task, 0xff, (size_t) a->program->n_tasks * sizeof(int32_t));
    memset(last_gap, 0xff, (size_t) a->program->n_objects * sizeof(int32_t));
    for (int32_t e = 0; e < a->n_entries; e++) {
        const sl_entry *entry = &a->entries[e];
        if (entry->flags & SL_ENTRY_WRITE)
            last_gap[entry->object] = -1;
        if (entry->next >= 0 && !(a->entries[entry->next].flags & SL_ENTRY_FRESH) &&
            a->entries[entry->next].task > entry->task + 1 && !at_home(p, entry->object))
            add_gap(p, e, group_of_task, last_gap);
    }
    SL_TRY(sl_region_alloc(p->region, &p->order, p->n_groups + 1, sizeof *p->order));
    for (int32_t i = 0; i < p->n_groups; i++) {
        double bytes = 0;
        for (int32_t k = p->groups[i].first; k >= 0; k = p->gaps[k].next)
            bytes += p->gaps[k].bytes;
        p->groups[i].value =
            round(10 * log(p->groups[i].seconds / bytes)); /* steps of a tenth: near equals are spread */
        p->order[i] = &p->groups[i];
    }
    return SL_OK;
}

sl_status sl_prices_create(const sl_analysis *a, const uint8_t *on_host, const uint8_t *home, sl_prices **prices)
{
    sl_region *region;
    sl_prices *p;
    int32_t n = a->program->n_tasks;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &p, 1, sizeof *p), destroy);
    p->region = region;
    p->a = a;
    SL_TRY_GOTO(sl_region_alloc(region, &p->start_s, n + 2, sizeof(double)), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &p->bucket, n + 1, sizeof(int32_t)), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &p->fixed, n + 1, sizeof(double)), destroy);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        SL_TRY_GOTO(sl_region_alloc(region, &p->usage[tier], n + 2, sizeof(double)), destroy);
        SL_TRY_GOTO(sl_region_alloc(region, &p->prefix[tier], n + 2, sizeof(double)), destroy);
    }
    SL_TRY_GOTO(sl_region_alloc(region, &p->extra_s, n + 1, sizeof(double)), destroy);
    p->on_host = on_host;
    p->home = home;
    p->n_buckets = SL_MAX(SL_MIN(BUCKETS, n), 1);
    time_tasks(p);
    for (int32_t t = 0; t < n; t++)
        p->fixed[t] = needed_beside_homes(p, t);
    SL_TRY_GOTO(list_gaps(p), destroy);
    *prices = p;
    return SL_OK;
destroy:
    sl_region_destroy(region);
    return status;
}

void sl_prices_destroy(sl_prices *prices)
{
    if (prices)
        sl_region_destroy(prices->region);
}

/* ---- one round of choosing ------------------------------------------------------------------------------------- */

static void integrate(sl_prices *p)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        for (int32_t t = 0; t < p->a->program->n_tasks; t++)
            p->prefix[tier][t + 1] =
                p->prefix[tier][t] + p->byte_price[tier][p->bucket[t]] * (p->start_s[t + 1] - p->start_s[t]);
}

static double over_gap(const sl_prices *p, const sl_gap_info *g, int tier)
{
    return p->prefix[tier][g->to] - p->prefix[tier][g->from + 1];
}

static bool leaves_dirty(const sl_prices *p, const sl_gap_info *g, const uint8_t *gap_choice)
{
    return g->written && !(g->earlier >= 0 && gap_choice[p->gaps[g->earlier].entry] == SL_GAP_EVICT);
}

static void weigh(sl_prices *p, const uint8_t *gap_choice)
{
    double felt = NUISANCE + p->a->costs->copy_slowdown; /* a copy's time that compute loses */
    for (int32_t i = 0; i < p->n_groups; i++)
        p->groups[i].save = 0;
    for (int32_t i = 0; i < p->n_gaps; i++) {
        sl_gap_info *g = &p->gaps[i];
        int from = p->bucket[g->from], to = p->bucket[g->to];
        const double *prefix = p->prefix[SL_TIER_DEVICE];
        bool out = leaves_dirty(p, g, gap_choice);
        g->keep = g->bytes * over_gap(p, g, SL_TIER_DEVICE);
        g->evict = g->in_s * (p->link_price[0][to] + felt) + g->bytes * (prefix[g->to] - prefix[g->come]) + g->short_s;
        if (out)
            g->evict += g->out_s * (p->link_price[1][from] + felt) + g->bytes * (prefix[g->gone] - prefix[g->from + 1]);
        if (g->temporary)
            g->evict += g->bytes * over_gap(p, g, SL_TIER_HOST);
        if (g->group >= 0)
            p->groups[g->group].save += fmin(g->keep, g->evict);
    }
    for (int32_t i = 0; i < p->n_groups; i++)
        p->groups[i].drop = p->groups[i].seconds * (1 + 0.2 * p->groups[i].spread) < p->groups[i].save;
}

static void use_links(sl_prices *p, const sl_gap_info *g, bool out)
{
    p->link_load[0][p->bucket[g->to]] += g->in_s;
    if (out)
        p->link_load[1][p->bucket[g->from]] += g->out_s;
}

static void use_bytes(sl_prices *p, int tier, const sl_gap_info *g, int32_t begin, int32_t end)
{
    p->usage[tier][begin] += g->bytes;
    p->usage[tier][end] -= g->bytes;
}

static void choose(sl_prices *p, double lean, uint8_t *gap_choice)
{
    for (int32_t i = 0; i < p->n_gaps; i++) {
        const sl_gap_info *g = &p->gaps[i];
        bool drop = g->group >= 0 && p->groups[g->group].drop;
        double leave = g->evict * g->spread * (g->group >= 0 ? 1 : lean);
        gap_choice[g->entry] = drop ? SL_GAP_DROP : g->keep <= leave ? SL_GAP_KEEP : SL_GAP_EVICT;
    }
}

/* What the choices use, by task and by bucket. */
static void account(sl_prices *p, const uint8_t *gap_choice)
{
    int32_t n = p->a->program->n_tasks;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        memset(p->usage[tier], 0, (size_t) (n + 1) * sizeof(double));
    memset(p->link_load, 0, sizeof p->link_load);
    for (int32_t i = 0; i < p->n_gaps; i++) {
        const sl_gap_info *g = &p->gaps[i];
        if (gap_choice[g->entry] == SL_GAP_KEEP)
            use_bytes(p, SL_TIER_DEVICE, g, g->from + 1, g->to);
        if (gap_choice[g->entry] != SL_GAP_EVICT)
            continue;
        bool out = leaves_dirty(p, g, gap_choice);
        use_links(p, g, out);
        use_bytes(p, SL_TIER_DEVICE, g, g->come, g->to);
        if (out)
            use_bytes(p, SL_TIER_DEVICE, g, g->from + 1, g->gone);
        if (g->temporary)
            use_bytes(p, SL_TIER_HOST, g, g->from + 1, g->to);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        for (int32_t t = 0; t < n; t++)
            p->usage[tier][t + 1] += p->usage[tier][t];
    for (int32_t t = 0; t < n; t++)
        p->usage[SL_TIER_DEVICE][t] += p->fixed[t];
}

/* ---- prices ---------------------------------------------------------------------------------------------------- */

static double clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

static void move_byte_prices(sl_prices *p, int tier, double capacity, double step)
{
    double peak[BUCKETS] = {0};
    for (int32_t t = 0; t < p->a->program->n_tasks; t++)
        peak[p->bucket[t]] = fmax(peak[p->bucket[t]], p->usage[tier][t]);
    for (int b = 0; b < p->n_buckets; b++) {
        double over =
            clamp(4 * (peak[b] / fmax(capacity, 1) - 1), -0.3, 1); /* falls slowly: most buckets are not full */
        p->byte_price[tier][b] = fmax(p->byte_price[tier][b] + step * over, 0);
    }
}

/* Seconds of work (at the rate both links reach together) that a link can do in a bucket: more while the other is
 * idle. */
static double link_width(const sl_prices *p, int direction, int b, double share)
{
    const sl_costs *costs = p->a->costs;
    double idle = 1 - fmin(1, p->link_load[1 - direction][b] / p->bucket_s);
    double gain = costs->link_bytes_per_s[direction] / costs->link_bytes_per_s_both[direction] - 1;
    return p->bucket_s * share * (1 + gain * idle);
}

static void find_peaks(sl_prices *p)
{
    memset(p->peak, 0, sizeof p->peak);
    for (int32_t t = 0; t < p->a->program->n_tasks; t++)
        p->peak[p->bucket[t]] = fmax(p->peak[p->bucket[t]], p->usage[SL_TIER_DEVICE][t]);
}

/* A link that cannot do all of a bucket's copies at once does them later (copies out) or must have done them earlier
 * (copies in: time runs backwards). Either way they sit in device memory meanwhile; where there is no room for that
 * the link's price rises. */
static void move_link_prices(sl_prices *p, int direction, const sl_price_targets *targets, double step)
{
    double rate = p->a->costs->link_bytes_per_s_both[direction], queue = 0;
    for (int i = 0; i < p->n_buckets; i++) {
        int b = direction == 0 ? p->n_buckets - 1 - i : i;
        double load = p->link_load[direction][b], width = link_width(p, direction, b, targets->link_share);
        queue = fmax(0, queue + load - width);
        double room = fmax(0.5 * (targets->bytes[SL_TIER_DEVICE] - p->peak[b]), targets->in_flight) / rate;
        p->waiting[b] += fmin(queue * rate, targets->in_flight);
        double over = queue > 0 ? queue / room - 1 : load / width - 1;
        p->link_price[direction][b] = clamp(p->link_price[direction][b] + step * clamp(over, -0.3, 1), 0, 1);
    }
}

/* ---- filling --------------------------------------------------------------------------------------------------- */

/* Prices leave some of every resource unused, since equal gaps choose alike. So what could be recomputed is decided
 * once more, one producer at a time, dearest per byte first: saved if there is room for it, by the way the prices
 * prefer, else dropped. */

static double queued(const sl_prices *p, int b)
{
    return p->queue[0][b] + p->queue[1][b];
}

/* Adds seconds (or takes them back) to a link's work in bucket b. False, and nothing changed: the queue would not
 * fit. */
static bool add_copy(sl_prices *p, int direction, int b, double seconds, double share, double capacity)
{
    double rate = p->a->costs->link_bytes_per_s_both[direction];
    int way = direction == 0 ? -1 : 1;
    for (int pass = seconds < 0 ? 1 : 0; pass < 2; pass++) { /* look, then do */
        double before = b - way >= 0 && b - way < p->n_buckets ? p->queue[direction][b - way] : 0;
        for (int i = b; i >= 0 && i < p->n_buckets; i += way) {
            double load = p->link_load[direction][i] + (i == b ? seconds : 0);
            double width = link_width(p, direction, i, share);
            double queue = fmax(0, before / rate + load - width) * rate, was = p->queue[direction][i];
            if (pass == 0 && queue > was && p->peak[i] + queued(p, i) - was + queue > capacity)
                return false;
            if (pass == 1) {
                p->queue[direction][i] = queue;
                p->link_load[direction][i] = load;
            }
            before = queue;
            if (queue == was && i != b)
                break;
        }
    }
    return true;
}

static bool add_bytes(double *peak, const sl_prices *p, int32_t from, int32_t to, double bytes, double capacity,
                      bool device)
{
    if (from >= to)
        return true;
    int first = p->bucket[from], last = p->bucket[to - 1];
    for (int b = first; b <= last && bytes > 0; b++)
        if (peak[b] + bytes + (device ? queued(p, b) : 0) > capacity)
            return false;
    for (int b = first; b <= last; b++)
        peak[b] += bytes;
    return true;
}

static bool keep_gap(sl_prices *p, const sl_price_targets *targets, const sl_gap_info *g, double sign)
{
    return add_bytes(p->peak, p, g->from + 1, g->to, sign * g->bytes, targets->bytes[SL_TIER_DEVICE], true);
}

/* All of an eviction's needs, or none. */
static bool evict_gap(sl_prices *p, const sl_price_targets *targets, const sl_gap_info *g, double sign)
{
    double device = targets->bytes[SL_TIER_DEVICE], host = targets->bytes[SL_TIER_HOST], bytes = sign * g->bytes;
    double width = targets->link_share;
    int from = p->bucket[g->from], to = p->bucket[g->to];
    int done = 0;
    if (add_bytes(p->host_peak, p, g->from + 1, g->to, bytes, host, false) && ++done &&
        add_bytes(p->peak, p, g->from + 1, g->gone, bytes, device, true) && ++done &&
        add_bytes(p->peak, p, g->come, g->to, bytes, device, true) && ++done &&
        add_copy(p, 1, from, sign * g->out_s, width, device) && ++done &&
        add_copy(p, 0, to, sign * g->in_s, width, device))
        return true;
    if (done > 3)
        add_copy(p, 1, from, -g->out_s, width, device);
    if (done > 2)
        add_bytes(p->peak, p, g->come, g->to, -bytes, device, true);
    if (done > 1)
        add_bytes(p->peak, p, g->from + 1, g->gone, -bytes, device, true);
    if (done > 0)
        add_bytes(p->host_peak, p, g->from + 1, g->to, -bytes, host, false);
    return false;
}

static void begin_fill(sl_prices *p, const sl_price_targets *targets)
{
    memset(p->host_peak, 0, sizeof p->host_peak);
    find_peaks(p);
    for (int32_t t = 0; t < p->a->program->n_tasks; t++)
        p->host_peak[p->bucket[t]] = fmax(p->host_peak[p->bucket[t]], p->usage[SL_TIER_HOST][t]);
    for (int direction = 0; direction < 2; direction++) {
        double queue = 0;
        for (int i = 0; i < p->n_buckets; i++) {
            int b = direction == 0 ? p->n_buckets - 1 - i : i;
            queue = fmax(0, queue + p->link_load[direction][b] - link_width(p, direction, b, targets->link_share));
            p->queue[direction][b] = queue * p->a->costs->link_bytes_per_s_both[direction];
        }
    }
}

static bool save_group(sl_prices *p, const sl_price_targets *targets, int32_t group, uint8_t *gap_choice)
{
    for (int32_t i = p->groups[group].first; i >= 0; i = p->gaps[i].next) {
        const sl_gap_info *g = &p->gaps[i];
        bool prefer_keep = g->keep <= g->evict * g->spread;
        if (prefer_keep && keep_gap(p, targets, g, 1))
            gap_choice[g->entry] = SL_GAP_KEEP;
        else if (g->short_s <= 0 && evict_gap(p, targets, g, 1))
            gap_choice[g->entry] = SL_GAP_EVICT;
        else if (!prefer_keep && keep_gap(p, targets, g, 1))
            gap_choice[g->entry] = SL_GAP_KEEP;
        else {
            for (int32_t k = p->groups[group].first; k != i; k = p->gaps[k].next) {
                if (gap_choice[p->gaps[k].entry] == SL_GAP_KEEP)
                    keep_gap(p, targets, &p->gaps[k], -1);
                else
                    evict_gap(p, targets, &p->gaps[k], -1);
                gap_choice[p->gaps[k].entry] = SL_GAP_DROP;
            }
            return false;
        }
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    const sl_drop_group *x = *(const sl_drop_group *const *) a, *y = *(const sl_drop_group *const *) b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->spread != y->spread ? (x->spread > y->spread ? -1 : 1) : (x < y ? -1 : x > y);
}

/* Seconds on the links (and prices of what it takes meanwhile) that keeping saves, per byte and second of device memory. */
static void find_densities(sl_prices *p)
{
    for (int32_t i = 0; i < p->n_gaps; i++) {
        sl_gap_info *g = &p->gaps[i];
        double seconds = p->start_s[g->to] - p->start_s[g->from + 1];
        g->density = (g->evict - g->short_s) * g->spread / fmax(g->bytes * seconds, 1e-30);
    }
    for (int32_t i = 0; i < p->n_groups; i++) {
        double save = 0, room = 0;
        for (int32_t k = p->groups[i].first; k >= 0; k = p->gaps[k].next) {
            const sl_gap_info *g = &p->gaps[k];
            save += g->evict * g->spread;
            room += g->bytes * (p->start_s[g->to] - p->start_s[g->from + 1]);
        }
        double density = fmin(save, p->groups[i].seconds) / fmax(room, 1e-30);
        for (int32_t k = p->groups[i].first; k >= 0; k = p->gaps[k].next)
            p->gaps[k].density = density;
    }
}

static int by_density(const void *a, const void *b)
{
    const sl_gap_info *x = *(const sl_gap_info *const *) a, *y = *(const sl_gap_info *const *) b;
    return x->density != y->density ? (x->density > y->density ? -1 : 1) : (x < y ? -1 : x > y);
}

/* The whole group stays, or, where there is no room for one of them, none of it. */
static void keep_all(sl_prices *p, const sl_price_targets *targets, int32_t group, uint8_t *gap_choice)
{
    for (int32_t i = p->groups[group].first; i >= 0; i = p->gaps[i].next) {
        if (keep_gap(p, targets, &p->gaps[i], 1)) {
            gap_choice[p->gaps[i].entry] = SL_GAP_KEEP;
            continue;
        }
        for (int32_t k = p->groups[group].first; k != i; k = p->gaps[k].next) {
            keep_gap(p, targets, &p->gaps[k], -1);
            gap_choice[p->gaps[k].entry] = SL_GAP_DROP;
        }
        return;
    }
}

/* The copies of an eviction are not made, nor the room they take. */
static void take_back(sl_prices *p, const sl_price_targets *targets, const sl_gap_info *g, bool out, double sign)
{
    double width = targets->link_share;
    add_bytes(p->peak, p, g->come, g->to, sign * g->bytes, INFINITY, true);
    add_copy(p, 0, p->bucket[g->to], sign * g->in_s, width, INFINITY);
    if (out) {
        add_bytes(p->peak, p, g->from + 1, g->gone, sign * g->bytes, INFINITY, true);
        add_copy(p, 1, p->bucket[g->from], sign * g->out_s, width, INFINITY);
    }
}

/* What is worth most per byte and second stays, as far as the share `kept` of the bytes lasts. */
static void keep_dearest(sl_prices *p, const sl_price_targets *targets, uint8_t *gap_choice)
{
    sl_price_targets part = *targets;
    part.bytes[SL_TIER_DEVICE] *= targets->kept;
    find_densities(p);
    for (int32_t i = 0; i < p->n_gaps; i++) {
        p->dearest[i] = &p->gaps[i];
        gap_choice[p->gaps[i].entry] = p->gaps[i].group >= 0 ? SL_GAP_DROP : SL_GAP_EVICT;
    }
    account(p, gap_choice);
    begin_fill(p, targets);
    qsort(p->dearest, (size_t) p->n_gaps, sizeof *p->dearest, by_density);
    for (int32_t i = 0; i < p->n_gaps; i++) {
        const sl_gap_info *g = p->dearest[i];
        if (g->group >= 0) {
            if (gap_choice[g->entry] == SL_GAP_DROP)
                keep_all(p, &part, g->group, gap_choice);
            continue;
        }
        bool out = leaves_dirty(p, g, gap_choice);
        take_back(p, &part, g, out, -1);
        if (keep_gap(p, &part, g, 1))
            gap_choice[g->entry] = SL_GAP_KEEP;
        else
            take_back(p, &part, g, out, 1);
    }
}

void sl_prices_fill(sl_prices *p, const sl_price_targets *targets, uint8_t *gap_choice)
{
    for (int32_t i = 0; i < p->n_gaps; i++)
        if (p->gaps[i].group >= 0)
            gap_choice[p->gaps[i].entry] = SL_GAP_DROP;
    if (targets->kept > 0)
        keep_dearest(p, targets, gap_choice);
    account(p, gap_choice);
    begin_fill(p, targets);
    qsort(p->order, (size_t) p->n_groups, sizeof *p->order, by_value);
    for (int32_t i = 0; i < p->n_groups; i++) {
        int32_t group = (int32_t) (p->order[i] - p->groups);
        bool kept = targets->kept > 0 && gap_choice[p->gaps[p->groups[group].first].entry] == SL_GAP_KEEP;
        p->groups[group].drop = !kept && !save_group(p, targets, group, gap_choice);
    }
    time_tasks(p);
}

/* ---- both together --------------------------------------------------------------------------------------------- */

static void first_prices(sl_prices *p, double unit)
{
    for (int b = 0; b < p->n_buckets; b++) {
        p->byte_price[SL_TIER_DEVICE][b] = unit * 0.5;
        p->byte_price[SL_TIER_HOST][b] = 0;
        p->link_price[0][b] = p->link_price[1][b] = 0.1;
    }
}

static void move_prices(sl_prices *p, const sl_price_targets *targets, double unit, double rate)
{
    memset(p->waiting, 0, sizeof p->waiting);
    find_peaks(p);
    for (int direction = 0; direction < 2; direction++)
        move_link_prices(p, direction, targets, rate * 0.5);
    for (int32_t t = 0; t < p->a->program->n_tasks; t++)
        p->usage[SL_TIER_DEVICE][t] += p->waiting[p->bucket[t]];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        move_byte_prices(p, tier, targets->bytes[tier], rate * unit);
}

static void add_to(double *sum, const double *value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += value[i];
}

void sl_prices_choose(sl_prices *p, const sl_price_targets *targets, uint8_t *gap_choice)
{
    const sl_program *program = p->a->program;
    double byte_sum[SL_TIER_COUNT][BUCKETS] = {{0}}, link_sum[2][BUCKETS] = {{0}};
    /* The unit: what a byte's way over a link costs, spread over half a round. */
    double unit = 2 * SL_MAX(program->n_rounds, 1) /
                  (p->a->costs->link_bytes_per_s_both[0] * fmax(p->start_s[program->n_tasks], 1e-30));
    int late = targets->rounds * 2 / 3, averaged = targets->rounds - late;
    for (int32_t i = 0; i < p->n_groups; i++)
        p->groups[i].drop = false;
    time_tasks(p);
    first_prices(p, unit);
    memset(gap_choice, SL_GAP_KEEP, (size_t) p->a->n_entries);
    for (int i = 0; i < targets->rounds; i++) {
        integrate(p);
        weigh(p, gap_choice);
        choose(p, targets->lean, gap_choice);
        account(p, gap_choice);
        move_prices(p, targets, unit, 0.2 * pow(0.02, (double) i / targets->rounds));
        if (i >= late) {
            add_to(byte_sum[0], p->byte_price[0], SL_TIER_COUNT * BUCKETS);
            add_to(link_sum[0], p->link_price[0], 2 * BUCKETS);
        }
    }
    /* The last word is the average of the later prices: it swings less. */
    for (int b = 0; b < p->n_buckets; b++)
        for (int k = 0; k < 2; k++) {
            p->byte_price[k][b] = byte_sum[k][b] / averaged;
            p->link_price[k][b] = link_sum[k][b] / averaged;
        }
    integrate(p);
    weigh(p, gap_choice);
    choose(p, targets->lean, gap_choice);
}
