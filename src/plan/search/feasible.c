/*
 * The feasibility check, for plans and for the smallest budgets alike. It tries extreme choices, the most frugal first, each
 * without prefetches and with all allocations at low addresses, which needs the least memory. A large program gets only a
 * few of them: those that need least of the device, and those that need least of the host.
 */
#include "plan/search/search.h"

#include <string.h>

/* The granularity of budgets in bytes. For large programs host memory has steps of .4 to .8 %, so that the smallest budget is found in
 * few steps. */
static size_t grain_of(const sl_search *s, sl_tier tier, size_t bytes)
{
    size_t grain = SL_ALIGN;
    if (tier == SL_TIER_HOST && !s->small)
        while (grain < bytes / 256)
            grain *= 2;
    return grain;
}

static size_t told_apart(const sl_search *s, sl_tier tier, size_t bytes)
{
    size_t grain = grain_of(s, tier, bytes);
    return bytes / grain * grain;
}

static sl_status fits_with(sl_search *s, const size_t budget[SL_TIER_COUNT], sl_extreme extreme, bool *feasible)
{
    sl_outcome outcome;
    sl_search_set_gaps(s, &s->best, extreme);
    SL_TRY(sl_sweep_run(s->sweep, &s->best, budget, NULL, &outcome));
    *feasible = outcome.feasible;
    memcpy(s->used, outcome.peak, sizeof s->used);
    return SL_OK;
}

/* An extreme choice: where persistent objects reside, where updates run, what happens between uses. */
typedef struct way {
    int level;
    bool on_host;
    sl_extreme extreme;
} way;

/* Small programs: all of them. */
static way small_way(int i)
{
    static const sl_extreme order[SL_EXTREME_COUNT] = {SL_EXTREME_DROP_OR_EVICT, SL_EXTREME_DROP_OR_KEEP,
                                                       SL_EXTREME_EVICT, SL_EXTREME_KEEP};
    return (way){i / (2 * SL_EXTREME_COUNT), i / SL_EXTREME_COUNT % 2 == 0, order[i % SL_EXTREME_COUNT]};
}

/* Large programs: least device memory first, then more and more of it where host memory is short. */
static const way large_ways[] = {{0, true, SL_EXTREME_DROP_OR_EVICT},
                                 {1, true, SL_EXTREME_DROP_OR_EVICT},
                                 {2, false, SL_EXTREME_DROP_OR_KEEP},
                                 {3, false, SL_EXTREME_DROP_OR_KEEP}};

sl_status sl_search_feasible(sl_search *s, bool *feasible)
{
    sl_choice *choice = &s->best;
    size_t budget[SL_TIER_COUNT];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        budget[tier] = told_apart(s, (sl_tier) tier, s->budget[tier]);
    *feasible = false;
    choice->fit = SL_FIT_LOW;
    choice->on_demand = true;
    int ways = s->small ? SL_PLACEMENT_LEVELS * 2 * SL_EXTREME_COUNT : (int) SL_COUNT(large_ways);
    for (int i = 0; i < ways && !*feasible; i++) {
        way w = s->small ? small_way(i) : large_ways[i];
        if (sl_search_set_level(s, choice, w.on_host, w.level) &&
            sl_search_largest_need(s, choice) <= s->budget[SL_TIER_DEVICE])
            SL_TRY(fits_with(s, budget, w.extreme, feasible));
    }
    return SL_OK;
}

/* ---- the smallest budgets -------------------------------------------------------------------------------------- */

static sl_status fits(sl_search *search, sl_tier tier, size_t bytes, bool *yes)
{
    search->budget[tier] = bytes;
    return sl_search_feasible(search, yes);
}

/* A lower bound for every plan: the largest task on the device, data and results in host memory. */
static size_t least_possible(const sl_search *search, sl_tier tier)
{
    const sl_program *p = search->a->program;
    size_t least = 0;
    for (int32_t t = 0; t < p->n_tasks && tier == SL_TIER_DEVICE; t++)
        if (!p->tasks[t].host_allowed)
            least = SL_MAX(least, search->a->need[t]);
    for (int32_t o = 0; o < p->n_objects && tier == SL_TIER_HOST; o++)
        if (p->objects[o].class == SL_CLASS_DATA || p->objects[o].class == SL_CLASS_RESULT)
            least += search->a->bytes[o];
    return least;
}

/* Checks `bytes`. If accepted, *high becomes that, or what the plan really used if that is accepted too; otherwise *low
 * does. */
static sl_status narrow(sl_search *search, sl_tier tier, size_t bytes, size_t *low, size_t *high)
{
    bool yes;
    SL_TRY(fits(search, tier, bytes, &yes));
    *(yes ? high : low) = bytes;
    size_t used = SL_ROUND_UP(search->used[tier], grain_of(search, tier, search->used[tier]));
    if (!yes || used >= *high || used <= *low)
        return SL_OK;
    SL_TRY(fits(search, tier, used, &yes));
    *(yes ? high : low) = used;
    return SL_OK;
}

/* Nothing guarantees that the feasibility check accepts all larger ones, but the result is a point where it accepts and
 * refuses one step below, and sl_plan_create uses the same feasibility check. Often the memory that an accepted plan really used is
 * that point already. Otherwise bisection finds it. */
sl_status sl_search_minimum(sl_search *search, sl_tier tier, size_t *bytes)
{
    size_t given = search->budget[tier], least = least_possible(search, tier), low = 0, high = 0;
    bool yes;
    SL_TRY(fits(search, tier, least, &yes));
    if (yes)
        high = least;
    else {
        low = told_apart(search, tier, least);
        SL_TRY(narrow(search, tier, told_apart(search, tier, SIZE_MAX), &low, &high));
    }
    for (bool first = true; !yes && high; first = false) {
        size_t below = told_apart(search, tier, high - 1), middle = told_apart(search, tier, low + (high - low) / 2);
        if (below <= low)
            break;
        SL_TRY(narrow(search, tier, first || middle <= low ? below : middle, &low, &high));
    }
    search->budget[tier] = given;
    *bytes = high;
    return SL_OK;
}
