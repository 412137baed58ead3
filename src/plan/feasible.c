/*
 * Does it fit? The one judge, for plans and for the smallest budgets alike (create.c): a ladder of extremes, the frugal
 * ones first, each swept without fetching ahead and with all places at low addresses, which needs least. For a large
 * program the most frugal stands for all: updates on the host, gaps dropped or evicted.
 */
#include "plan/search.h"

#include <string.h>

size_t sl_search_grain(const sl_search *s, sl_tier tier)
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
        budget[tier] = s->budget[tier] / sl_search_grain(s, (sl_tier) tier) * sl_search_grain(s, (sl_tier) tier);
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
