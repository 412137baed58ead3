/*
 * Does it fit, and with how little? The one judge, for plans and for the smallest budgets alike: a ladder of extremes,
 * the frugal ones first, each swept without fetching ahead and with all places at low addresses, which needs least. For
 * a large program the most frugal stands for all: updates on the host, gaps dropped or evicted.
 */
#include "plan/search.h"

#include <string.h>

/* Budgets count in steps of this many bytes: for large programs host memory in coarse ones, so that the smallest budget
 * is found in few. */
static size_t grain_of(const sl_search *s, sl_tier tier)
{
    size_t grain = SL_ALIGN, total = sl_search_persistent_bytes(s);
    if (tier == SL_TIER_HOST && !s->small)
        while (grain < total / 64)
            grain *= 2;
    return grain;
}

static sl_status fits_with(sl_search *s, const size_t budget[SL_TIER_COUNT], bool *feasible)
{
    static const sl_extreme order[SL_EXTREME_COUNT] = {SL_EXTREME_DROP_OR_EVICT, SL_EXTREME_DROP_OR_KEEP,
                                                       SL_EXTREME_EVICT, SL_EXTREME_KEEP};
    int n = s->small ? SL_EXTREME_COUNT : 1;
    for (int g = 0; g < n && !*feasible; g++) {
        sl_outcome outcome;
        sl_search_set_gaps(s, &s->best, order[g]);
        SL_TRY(sl_sweep_run(s->sweep, &s->best, budget, NULL, &outcome));
        *feasible = outcome.feasible;
        memcpy(s->used, outcome.peak, sizeof s->used);
    }
    return SL_OK;
}

sl_status sl_search_feasible(sl_search *s, bool *feasible)
{
    sl_choice *choice = &s->best;
    bool small = s->small;
    size_t budget[SL_TIER_COUNT];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        budget[tier] = s->budget[tier] / grain_of(s, (sl_tier) tier) * grain_of(s, (sl_tier) tier);
    *feasible = false;
    choice->fit = SL_FIT_LOW;
    choice->on_demand = true;
    for (int rung = 0; rung < (small ? SL_HOME_RUNGS : 2) && !*feasible; rung++)
        for (int host = 1; host >= (small ? 0 : 1) && !*feasible; host--)
            if (sl_search_set_rung(s, choice, host, rung) &&
                sl_search_largest_need(s, choice) <= s->budget[SL_TIER_DEVICE])
                SL_TRY(fits_with(s, budget, feasible));
    return SL_OK;
}

/* ---- the smallest budgets -------------------------------------------------------------------------------------- */

static sl_status fits(sl_search *search, sl_tier tier, size_t bytes, bool *yes)
{
    search->budget[tier] = bytes;
    return sl_search_feasible(search, yes);
}

/* No plan can do with less: the largest task on the device, data and results in host memory. */
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

/* Asks for `bytes`; if accepted, *high becomes that, or what the plan really used if that is accepted too; else *low
 * does. */
static sl_status narrow(sl_search *search, sl_tier tier, size_t bytes, size_t *low, size_t *high)
{
    bool yes;
    size_t grain = grain_of(search, tier);
    SL_TRY(fits(search, tier, bytes, &yes));
    *(yes ? high : low) = bytes;
    size_t used = SL_ROUND_UP(search->used[tier], grain);
    if (!yes || used >= *high || used <= *low)
        return SL_OK;
    SL_TRY(fits(search, tier, used, &yes));
    *(yes ? high : low) = used;
    return SL_OK;
}

/* Nothing guarantees that the judge accepts all larger ones, but the answer is a point where it accepts and one step
 * below refuses, and sl_plan_create asks the same judge. What an accepted plan really used often is that point already;
 * else the interval is halved. */
sl_status sl_search_minimum(sl_search *search, sl_tier tier, size_t *bytes)
{
    size_t given = search->budget[tier], least = least_possible(search, tier), low = 0, high = 0;
    size_t grain = grain_of(search, tier);
    bool yes;
    SL_TRY(fits(search, tier, least, &yes));
    if (yes)
        high = least;
    else {
        low = least / grain * grain;
        SL_TRY(narrow(search, tier, SIZE_MAX / grain * grain, &low, &high));
    }
    for (bool first = true; !yes && high && high - low > grain; first = false) {
        size_t middle = (low + (high - low) / 2) / grain * grain;
        SL_TRY(narrow(search, tier, first ? high - grain : SL_MAX(middle, low + grain), &low, &high));
    }
    search->budget[tier] = given;
    *bytes = high;
    return SL_OK;
}
