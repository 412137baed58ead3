/*
 * Choices for large programs by Lagrangian relaxation. Every byte of a tier has a price per second at each time, and every
 * link a price per second of its use. Each gap then chooses independently what is cheapest:
 *
 *   keep    bytes x price of device bytes, summed over the gap
 *   evict   seconds on the links x their prices, bytes x price of host bytes, and a stall where the gap is too short
 *   drop    seconds of recomputation, once per producer, independent of the number of outputs
 *
 * Prices rise where the choices use more than there is and fall where they use less, by subgradient steps that get
 * smaller:
 *
 *   prices -> costs of each gap -> choices -> demand (demand.c) -> prices -> ...
 *
 * Then the knapsack pass fills what the prices left unused (knapsack.c).
 *
 * The alternative, cutting residencies one by one until everything fits, decides each cut without knowing the later
 * ones and cannot weigh links against recomputation; see docs/design/planner.md.
 */
#include "plan/lagrangian/lagrangian.h"

#include <math.h>
#include <string.h>

#include "plan/lagrangian/knapsack.h"

#define NUISANCE 0.02 /* smallest price of a link: prevents copies without benefit */

/* By bucket. */
typedef struct sl_lagrangian_prices {
    double byte[SL_TIER_COUNT][SL_BUCKETS]; /* per byte and second */
    double link[SL_LINK_COUNT][SL_BUCKETS]; /* per second; 0: in, 1: out */
} sl_lagrangian_prices;

struct sl_lagrangian {
    sl_region *region;
    sl_gaps gaps;
    sl_demand demand;
    sl_fill *fill;
    sl_lagrangian_prices now;
    double *integral[SL_TIER_COUNT]; /* by task, n_tasks + 1: of a byte's price over time */
};

/* ---- choosing at given prices ---------------------------------------------------------------------------------- */

static void integrate(sl_lagrangian *p)
{
    const sl_gaps *gaps = &p->gaps;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        for (int32_t t = 0; t < gaps->a->program->n_tasks; t++)
            p->integral[tier][t + 1] =
                p->integral[tier][t] + p->now.byte[tier][gaps->bucket[t]] * (gaps->start_s[t + 1] - gaps->start_s[t]);
}

/* What a byte of a tier costs in the tasks [begin, end). */
static double byte_cost(const sl_lagrangian *p, sl_tier tier, int32_t begin, int32_t end)
{
    return p->integral[tier][end] - p->integral[tier][begin];
}

static void weigh(const sl_lagrangian *p, sl_gap_info *g, bool out)
{
    const int32_t *bucket = p->gaps.bucket;
    double felt = NUISANCE + p->gaps.a->costs->copy_slowdown; /* a copy's time that compute loses */
    g->keep = g->bytes * byte_cost(p, SL_TIER_DEVICE, g->from + 1, g->to);
    g->evict = g->in_s * (p->now.link[SL_LINK_IN][bucket[g->to]] + felt) +
               g->bytes * byte_cost(p, SL_TIER_DEVICE, g->come, g->to) + g->short_s;
    if (out)
        g->evict += g->out_s * (p->now.link[SL_LINK_OUT][bucket[g->from]] + felt) +
                    g->bytes * byte_cost(p, SL_TIER_DEVICE, g->from + 1, g->gone);
    if (g->temporary)
        g->evict += g->bytes * byte_cost(p, SL_TIER_HOST, g->from + 1, g->to);
}

/* Costs of all gaps, and which groups are dropped. */
static void weigh_all(sl_lagrangian *p, const uint8_t *gap_choice)
{
    const sl_gaps *gaps = &p->gaps;
    integrate(p);
    for (int32_t i = 0; i < gaps->n_groups; i++)
        gaps->groups[i].save = 0;
    for (int32_t i = 0; i < gaps->count; i++) {
        sl_gap_info *g = &gaps->list[i];
        weigh(p, g, sl_gaps_leaves_dirty(gaps, g, gap_choice));
        if (g->group >= 0)
            gaps->groups[g->group].save += fmin(g->keep, g->evict);
    }
    for (int32_t i = 0; i < gaps->n_groups; i++) {
        sl_drop_group *group = &gaps->groups[i];
        group->drop = group->seconds * (1 + 0.2 * group->spread) < group->save;
    }
}

/* The earlier choices determine whether an eviction needs a copy to host memory. */
static void choose(sl_lagrangian *p, double lean, uint8_t *gap_choice)
{
    const sl_gaps *gaps = &p->gaps;
    weigh_all(p, gap_choice);
    for (int32_t i = 0; i < gaps->count; i++) {
        const sl_gap_info *g = &gaps->list[i];
        bool drop = g->group >= 0 && gaps->groups[g->group].drop;
        double leave = g->evict * g->spread * (g->group >= 0 ? 1 : lean);
        gap_choice[g->entry] = drop ? SL_GAP_DROP : g->keep <= leave ? SL_GAP_KEEP : SL_GAP_EVICT;
    }
}

/* ---- moving the prices ----------------------------------------------------------------------------------------- */

static double clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

/* Prices fall slowly: most buckets are not full. */
static double excess(double over)
{
    return clamp(over, -0.3, 1);
}

/* A link's price rises where its queue finds no space in device memory. `waiting`: grows by the bytes that the queue may
 * take. */
static void move_link_prices(sl_lagrangian *p, sl_link link, const sl_lagrangian_targets *targets, double step,
                             double *waiting)
{
    const sl_demand *demand = &p->demand;
    double rate = p->gaps.a->costs->link_bytes_per_s_both[link], queue_s[SL_BUCKETS];
    sl_demand_queue(demand, link, targets->link_share, queue_s);
    for (int b = 0; b < p->gaps.n_buckets; b++) {
        double *price = &p->now.link[link][b], load = demand->load_s[link][b];
        double free = targets->bytes[SL_TIER_DEVICE] - demand->peak[SL_TIER_DEVICE][b];
        double space_s = fmax(0.5 * free, targets->in_flight) / rate;
        double over = queue_s[b] > 0 ? queue_s[b] / space_s - 1
                                     : load / sl_demand_width_s(demand, link, b, targets->link_share) - 1;
        *price = clamp(*price + step * excess(over), 0, 1);
        waiting[b] += fmin(queue_s[b] * rate, targets->in_flight);
    }
}

/* `beside`: bytes in use besides the demand; NULL: none. */
static void move_byte_prices(sl_lagrangian *p, sl_tier tier, double capacity, double step, const double *beside)
{
    for (int b = 0; b < p->gaps.n_buckets; b++) {
        double *price = &p->now.byte[tier][b], bytes = p->demand.peak[tier][b] + (beside ? beside[b] : 0);
        *price = fmax(*price + step * excess(4 * (bytes / fmax(capacity, 1) - 1)), 0);
    }
}

static void move_prices(sl_lagrangian *p, const sl_lagrangian_targets *targets, double unit, double rate)
{
    double waiting[SL_BUCKETS] = {0}; /* device bytes of copies done early or late */
    for (int link = 0; link < SL_LINK_COUNT; link++)
        move_link_prices(p, link, targets, rate * 0.5, waiting);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        move_byte_prices(p, (sl_tier) tier, targets->bytes[tier], rate * unit, tier == SL_TIER_DEVICE ? waiting : NULL);
}

/* ---- both together --------------------------------------------------------------------------------------------- */

static void first_prices(sl_lagrangian *p, double unit)
{
    for (int b = 0; b < p->gaps.n_buckets; b++) {
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            p->now.byte[tier][b] = tier == SL_TIER_DEVICE ? unit * 0.5 : 0;
        for (int link = 0; link < SL_LINK_COUNT; link++)
            p->now.link[link][b] = 0.1;
    }
}

static void add_prices(sl_lagrangian_prices *sum, const sl_lagrangian_prices *prices, int n_buckets)
{
    for (int b = 0; b < n_buckets; b++) {
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            sum->byte[tier][b] += prices->byte[tier][b];
        for (int link = 0; link < SL_LINK_COUNT; link++)
            sum->link[link][b] += prices->link[link][b];
    }
}

static void average(sl_lagrangian_prices *prices, const sl_lagrangian_prices *sum, int count, int n_buckets)
{
    for (int b = 0; b < n_buckets; b++) {
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            prices->byte[tier][b] = sum->byte[tier][b] / count;
        for (int link = 0; link < SL_LINK_COUNT; link++)
            prices->link[link][b] = sum->link[link][b] / count;
    }
}

void sl_lagrangian_choose(sl_lagrangian *p, const sl_lagrangian_targets *targets, uint8_t *gap_choice)
{
    const sl_program *program = p->gaps.a->program;
    sl_lagrangian_prices sum = {0};
    int late = targets->rounds * 2 / 3;
    for (int32_t i = 0; i < p->gaps.n_groups; i++)
        p->gaps.groups[i].drop = false;
    /* The unit: what a byte's way over a link costs, spread over half a round. */
    double unit =
        2 * SL_MAX(program->n_rounds, 1) /
        (p->gaps.a->costs->link_bytes_per_s_both[SL_LINK_IN] * fmax(p->gaps.start_s[program->n_tasks], 1e-30));
    sl_gaps_time(&p->gaps);
    first_prices(p, unit);
    memset(gap_choice, SL_GAP_KEEP, (size_t) p->gaps.a->n_entries);
    for (int i = 0; i < targets->rounds; i++) {
        choose(p, targets->lean, gap_choice);
        sl_demand_of(&p->demand, gap_choice);
        move_prices(p, targets, unit, 0.2 * pow(0.02, (double) i / targets->rounds));
        if (i >= late)
            add_prices(&sum, &p->now, p->gaps.n_buckets);
    }
    /* The result uses the average of the later prices, which oscillates less. */
    average(&p->now, &sum, targets->rounds - late, p->gaps.n_buckets);
    choose(p, targets->lean, gap_choice);
}

void sl_lagrangian_fill(sl_lagrangian *p, const sl_lagrangian_targets *targets, uint8_t *gap_choice)
{
    sl_fill_choose(p->fill, targets, gap_choice);
}

sl_status sl_lagrangian_create(const sl_analysis *a, const uint8_t *on_host, const uint8_t *placement,
                               sl_lagrangian **prices)
{
    sl_region *region;
    sl_lagrangian *p;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &p, 1, sizeof *p), destroy);
    p->region = region;
    SL_TRY_GOTO(sl_gaps_list(region, a, on_host, placement, &p->gaps), destroy);
    SL_TRY_GOTO(sl_demand_create(region, &p->gaps, &p->demand), destroy);
    SL_TRY_GOTO(sl_fill_create(region, &p->gaps, &p->demand, &p->fill), destroy);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY_GOTO(sl_region_alloc(region, &p->integral[tier], a->program->n_tasks + 1, sizeof(double)), destroy);
    *prices = p;
    return SL_OK;
destroy:
    sl_region_destroy(region);
    return status;
}

void sl_lagrangian_destroy(sl_lagrangian *prices)
{
    if (prices)
        sl_region_destroy(prices->region);
}
