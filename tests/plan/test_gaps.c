/* What the Lagrangian chooses from: gaps of random programs and what choices use of memory and links, against the definitions in
 * gaps.c and demand.c, byte by byte and task by task. */
#include "plan/lagrangian/demand.h"
#include "synthetic.h"
#include "test.h"

enum { PROGRAMS = 150 };

typedef struct fixture {
    synthetic *s;
    sl_analysis *a;
    sl_region *region;
    sl_gaps gaps;
    sl_demand demand;
    uint8_t *on_host, *placement, *choice;
    rng r;
} fixture;

static void make(fixture *f, uint64_t seed)
{
    *f = (fixture){.r = {seed * 7}};
    f->s = seed % 2 ? synthetic_random(seed, 12 + rng_below(&f->r, 30), 6 + rng_below(&f->r, 12))
                    : synthetic_sliced(seed, 3 + rng_below(&f->r, 8));
    sl_costs *c = f->s->costs;
    const double pace = 1 + 40 * rng_unit(&f->r);
    for (int i = 0; i < 2; i++) {
        c->link_bytes_per_s[i] = pace * (0.5 + rng_unit(&f->r));
        c->link_bytes_per_s_both[i] = 0.7 * c->link_bytes_per_s[i];
    }
    c->link_latency_s = seed % 3 ? 0 : 8;
    CHECK_OK(sl_analysis_create(&f->s->program, c, &f->a));
    CHECK_OK(sl_region_create(&f->region));
    const sl_program *p = &f->s->program;
    CHECK_OK(sl_region_alloc(f->region, &f->on_host, p->n_tasks, 1));
    CHECK_OK(sl_region_alloc(f->region, &f->placement, p->n_objects, 1));
    CHECK_OK(sl_region_alloc(f->region, &f->choice, f->a->n_entries + 1, 1));
    for (int32_t t = 0; t < p->n_tasks; t++)
        f->on_host[t] = p->tasks[t].host_allowed && rng_below(&f->r, 2);
    for (int32_t o = 0; o < p->n_objects; o++)
        f->placement[o] = rng_below(&f->r, 3) ? SL_TIER_HOST : SL_TIER_DEVICE;
    CHECK_OK(sl_gaps_list(f->region, f->a, f->on_host, f->placement, &f->gaps));
    CHECK_OK(sl_demand_create(f->region, &f->gaps, &f->demand));
}

static void drop(fixture *f)
{
    sl_region_destroy(f->region);
    sl_analysis_destroy(f->a);
    synthetic_free(f->s);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

/* ---- the definitions ---- */

static double task_s(const fixture *f, int32_t t)
{
    return f->on_host[t] ? 0 : f->s->costs->device_s[f->s->program.tasks[t].signature];
}

static double copy_s(const fixture *f, sl_link link, size_t bytes)
{
    return f->s->costs->link_latency_s + (double) bytes / f->s->costs->link_bytes_per_s_both[link];
}

static bool stays(const fixture *f, int32_t object)
{
    return f->s->program.objects[object].persistent && f->placement[object] == SL_TIER_DEVICE;
}

/* What task `p` takes so shortly before `at`: six recomputations deep, then everything counts as fetched. */
static double recompute_s(const fixture *f, int32_t p, int32_t at, int left)
{
    double seconds = f->s->costs->device_s[f->s->program.tasks[p].signature];
    for (int32_t e = f->a->first[p]; e < f->a->first[p + 1]; e++) {
        int32_t o = f->a->entries[e].object;
        const sl_object *object = &f->s->program.objects[o];
        if (f->a->entries[e].flags & SL_ENTRY_WRITE || sl_analysis_used_near(f->a, o, at))
            continue;
        bool kept = object->persistent || object->class == SL_CLASS_DATA;
        for (int32_t k = f->a->object_first[o]; k >= 0; k = f->a->entries[k].next)
            kept |= f->a->entries[k].task >= at;
        double fetch = (double) object->bytes / f->s->costs->link_bytes_per_s_both[SL_LINK_IN];
        if (left == 0)
            seconds += fetch;
        else if (object->producer < 0)
            seconds += kept ? fetch : INFINITY;
        else if (kept)
            seconds += fmin(fetch, recompute_s(f, object->producer, at, left - 1));
        else
            seconds += recompute_s(f, object->producer, at, left - 1);
    }
    return seconds;
}

static const sl_gap_info *listed(const fixture *f, int32_t entry)
{
    for (int32_t i = 0; i < f->gaps.count; i++)
        if (f->gaps.list[i].entry == entry)
            return &f->gaps.list[i];
    return NULL;
}

static double between_s(const fixture *f, int32_t from, int32_t to)
{
    double seconds = 0;
    for (int32_t t = from + 1; t < to; t++)
        seconds += task_s(f, t);
    return seconds;
}

/* ---- one gap ---- */

static void check_gap(const fixture *f, int32_t entry, double *kept)
{
    const sl_program *p = &f->s->program;
    const sl_entry *e = &f->a->entries[entry], *next = &f->a->entries[e->next];
    const sl_object *object = &p->objects[e->object];
    const sl_gap_info *g = listed(f, entry), *earlier = NULL;
    const size_t bytes = f->a->bytes[e->object];
    const double in_s = copy_s(f, SL_LINK_IN, bytes), out_s = copy_s(f, SL_LINK_OUT, bytes);
    const bool temporary = !object->persistent && object->class != SL_CLASS_DATA;
    const bool here = temporary || e->flags & SL_ENTRY_WRITE;
    const double length = between_s(f, e->task, next->task);
    const double lacks = fmax(0, 4 * (in_s + (here ? out_s : 0)) - length);
    const bool tiny = (double) bytes < 4 * f->s->costs->link_latency_s * f->s->costs->link_bytes_per_s_both[SL_LINK_IN];
    const bool forward = p->tasks[e->task].phase == SL_PHASE_FORWARD && p->tasks[next->task].phase == SL_PHASE_FORWARD;
    const bool may_drop = e->can_drop && !forward;
    const bool pays = may_drop && length > 4 * f->s->costs->device_s[p->tasks[object->producer].signature];
    CHECK((g != NULL) == ((!tiny && lacks <= 0) || pays));
    if (!g) {
        for (int32_t t = e->task + 1; t < next->task; t++)
            kept[t] += (double) bytes;
        return;
    }
    for (int32_t k = f->a->object_first[e->object]; k != entry; k = f->a->entries[k].next)
        earlier = f->a->entries[f->a->entries[k].next].flags & SL_ENTRY_WRITE ? NULL
                  : listed(f, k)                                              ? listed(f, k)
                                                                              : earlier;
    CHECK_I64(g->earlier, earlier ? earlier - f->gaps.list : -1);
    CHECK(g->written == (earlier ? earlier->written : here) && g->temporary == temporary);
    CHECK(g->from == e->task && g->to == next->task && g->bytes == (double) bytes);
    CHECK(near(g->in_s, in_s) && near(g->out_s, out_s) && near(g->short_s, lacks));
    CHECK((g->group >= 0) == may_drop);
}

/* The last task with which a copy back still fits, and the first that a copy out is over before. */
static void check_times(const fixture *f)
{
    for (int32_t i = 0; i < f->gaps.count; i++) {
        const sl_gap_info *g = &f->gaps.list[i];
        const double *start = f->gaps.start_s;
        int32_t gone = g->from + 1, come = g->to;
        while (gone < g->to && start[gone] - start[g->from + 1] < g->out_s)
            gone++;
        while (come > g->from + 1 && start[g->to] - start[come] < g->in_s)
            come--;
        CHECK_I64(g->gone, gone);
        CHECK_I64(g->come, come);
    }
}

TEST(gaps)
{
    int64_t count = 0, groups = 0, shared = 0, chained = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        fixture f;
        make(&f, seed);
        const sl_program *p = &f.s->program;
        double *kept;
        CHECK_OK(sl_region_alloc(f.region, &kept, p->n_tasks, sizeof *kept));
        for (int32_t t = 0; t < p->n_tasks; t++) {
            kept[t] = f.on_host[t] ? 0 : (double) f.a->need[t];
            for (int32_t e = f.a->first[t]; e < f.a->first[t + 1]; e++)
                if (!f.on_host[t] && stays(&f, f.a->entries[e].object))
                    kept[t] -= (double) f.a->bytes[f.a->entries[e].object];
        }
        for (int32_t e = 0; e < f.a->n_entries; e++) {
            const sl_entry *entry = &f.a->entries[e];
            bool gap = entry->next >= 0 && !(f.a->entries[entry->next].flags & SL_ENTRY_FRESH) &&
                       f.a->entries[entry->next].task > entry->task + 1 && !stays(&f, entry->object);
            if (gap)
                check_gap(&f, e, kept);
            else
                CHECK(!listed(&f, e));
        }
        for (int32_t t = 0; t < p->n_tasks; t++)
            CHECK(f.gaps.fixed[t] == kept[t]);
        check_times(&f);
        for (int32_t k = 0; k < f.gaps.n_groups; k++) {
            const sl_drop_group *group = &f.gaps.groups[k];
            int32_t producer = -1, first = -1, members = 0;
            for (int32_t i = 0; i < f.gaps.count; i++)
                if (f.gaps.list[i].group == k) {
                    int32_t of = p->objects[f.a->entries[f.gaps.list[i].entry].object].producer;
                    CHECK(producer < 0 || producer == of);
                    producer = of;
                    first = first < 0 ? i : first;
                    members++;
                }
            REQUIRE(first >= 0);
            for (int32_t i = group->first; i >= 0; i = f.gaps.list[i].next, members--)
                CHECK_I64(f.gaps.list[i].group, k);
            CHECK_I64(members, 0);
            CHECK(near(group->seconds, recompute_s(&f, producer, f.gaps.list[first].to, 6)));
            shared += group->first != first;
        }
        for (int32_t i = 0; i < f.gaps.count; i++)
            chained += f.gaps.list[i].earlier >= 0;
        count += f.gaps.count, groups += f.gaps.n_groups;
        drop(&f);
    }
    CHECK(count > 500 && groups > 100 && shared > 10 && chained > 30); /* else little was tested */
}

/* ---- choices ---- */

/* Which bytes a gap's choice takes of a tier in task t, strictly inside it. */
static bool takes(const fixture *f, const sl_gap_info *g, sl_tier tier, int32_t t)
{
    bool inside = t > g->from && t < g->to, out = sl_gaps_leaves_dirty(&f->gaps, g, f->choice);
    if (f->choice[g->entry] == SL_GAP_DROP || !inside)
        return false;
    if (f->choice[g->entry] == SL_GAP_KEEP)
        return tier == SL_TIER_DEVICE;
    return tier == SL_TIER_HOST ? g->temporary : (t < g->gone && out) || t >= g->come;
}

static void check_demand(const fixture *f)
{
    const int32_t n = f->s->program.n_tasks;
    static double peak[SL_TIER_COUNT][SL_BUCKETS], load[SL_LINK_COUNT][SL_BUCKETS];
    memset(peak, 0, sizeof peak);
    memset(load, 0, sizeof load);
    for (int32_t t = 0; t < n; t++)
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            double bytes = tier == SL_TIER_DEVICE ? f->gaps.fixed[t] : 0, *most = &peak[tier][f->gaps.bucket[t]];
            for (int32_t i = 0; i < f->gaps.count; i++) {
                const sl_gap_info *g = &f->gaps.list[i];
                bool both = tier == SL_TIER_DEVICE && f->choice[g->entry] == SL_GAP_EVICT && t < g->gone &&
                            t >= g->come && t > g->from && t < g->to && sl_gaps_leaves_dirty(&f->gaps, g, f->choice);
                bytes +=
                    takes(f, g, (sl_tier) tier, t) * g->bytes * (1 + both); /* leaves and comes at once: two places */
            }
            *most = fmax(*most, bytes);
        }
    for (int32_t i = 0; i < f->gaps.count; i++) {
        const sl_gap_info *g = &f->gaps.list[i];
        if (f->choice[g->entry] != SL_GAP_EVICT)
            continue;
        load[SL_LINK_IN][f->gaps.bucket[g->to]] += g->in_s;
        load[SL_LINK_OUT][f->gaps.bucket[g->from]] += sl_gaps_leaves_dirty(&f->gaps, g, f->choice) ? g->out_s : 0;
    }
    for (int b = 0; b < f->gaps.n_buckets; b++)
        for (int i = 0; i < 2; i++) {
            CHECK(near(f->demand.peak[i][b], peak[i][b]));
            CHECK(near(f->demand.load_s[i][b], load[i][b]));
        }
}

/* What a link cannot do in time it does in the next bucket, or must have done in the one before. */
static void check_queues(const fixture *f)
{
    const sl_costs *c = f->s->costs;
    static double queue[SL_BUCKETS];
    const double share = 0.9;
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        sl_demand_queue(&f->demand, (sl_link) link, share, queue);
        for (int b = 0; b < f->gaps.n_buckets; b++) {
            int before = link == SL_LINK_IN ? b + 1 : b - 1;
            double busy = fmin(1, f->demand.load_s[!link][b] / f->gaps.bucket_s);
            double faster = c->link_bytes_per_s[link] / c->link_bytes_per_s_both[link];
            double width = f->gaps.bucket_s * share * (busy + (1 - busy) * faster);
            double waits = before < 0 || before >= f->gaps.n_buckets ? 0 : queue[before];
            CHECK(near(sl_demand_width_s(&f->demand, (sl_link) link, b, share), width));
            CHECK(near(queue[b], fmax(0, waits + f->demand.load_s[link][b] - width)));
        }
    }
}

TEST(demand)
{
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        fixture f;
        make(&f, seed);
        for (int round = 0; round < 3; round++) {
            for (int32_t i = 0; i < f.gaps.count; i++) {
                const sl_gap_info *g = &f.gaps.list[i];
                f.choice[g->entry] = (uint8_t) (rng_below(&f.r, 2) ? SL_GAP_EVICT : SL_GAP_KEEP);
                if (g->group >= 0 && f.gaps.groups[g->group].drop)
                    f.choice[g->entry] = SL_GAP_DROP;
            }
            sl_demand_of(&f.demand, f.choice);
            check_demand(&f);
            check_queues(&f);
            for (int32_t k = 0; k < f.gaps.n_groups; k++)
                f.gaps.groups[k].drop = rng_below(&f.r, 2);
            double extra = 0;
            sl_gaps_time(&f.gaps);
            for (int32_t t = 0; t <= f.s->program.n_tasks; t++) { /* a dropped group runs before its first reader */
                for (int32_t k = 0; k < f.gaps.n_groups; k++) {
                    int32_t at = INT32_MAX;
                    for (int32_t i = 0; i < f.gaps.count; i++)
                        at = f.gaps.list[i].group == k ? SL_MIN(at, f.gaps.list[i].to) : at;
                    extra += f.gaps.groups[k].drop && at == t ? f.gaps.groups[k].seconds : 0;
                }
                CHECK(near(f.gaps.start_s[t], between_s(&f, -1, t) + extra));
            }
            check_times(&f);
        }
        drop(&f);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(gaps);
    RUN(demand);
    return test_end();
}
