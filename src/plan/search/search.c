/*
 * Which choices to try. First everything resident on the device: where that fits, only updates on the host may be faster.
 * Then choices by Lagrangian prices (lagrangian.c) for several sets of placements, and stall repair of the best one
 * (stall_repair.c). Small programs, where an evaluation is cheap, get all extremes and changes one at a time
 * (local_search.c) too, as far as the bound on evaluations allows. The bound counts evaluations, not seconds, so the same
 * input gives the same plan everywhere; the time limit is a safety net for machines that are much slower than expected.
 */
#include "plan/search/search.h"

#include <math.h>
#include <string.h>

#include "plan/lagrangian/lagrangian.h"

#define TINY_ENTRIES 500    /* up to here, random walks find more than any other method */
#define SMALL_ENTRIES 20000 /* above, an evaluation takes too long for more than a few */
#define FAR 1.15            /* times another program's step: not worth a further search */
#define LEAN 0.3            /* few rounds of prices keep weights and gradients where activations would save more */

sl_status sl_search_create(const sl_analysis *a, const sl_fixed_placements *fixed, const size_t budget[SL_TIER_COUNT],
                           sl_search **search)
{
    sl_search *s;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->a = a;
    s->fixed = fixed;
    s->small = a->n_entries < SMALL_ENTRIES;
    s->end_variant = SL_SEARCH_QUICK;
    memcpy(s->budget, budget, sizeof s->budget);
    sl_status status;
    SL_TRY_GOTO(sl_choice_new(a, &s->best), destroy);
    SL_TRY_GOTO(sl_choice_new(a, &s->trial), destroy);
    SL_TRY_GOTO(sl_alloc(&s->actual, a->n_entries + 1, 1), destroy);
    SL_TRY_GOTO(sl_sweep_create(a, fixed, &s->sweep), destroy);
    *search = s;
    return SL_OK;
destroy:
    sl_search_destroy(s);
    return status;
}

void sl_search_destroy(sl_search *s)
{
    if (!s)
        return;
    sl_choice_free(&s->best);
    sl_choice_free(&s->trial);
    for (int i = 0; i < SL_SEARCH_SHORTLIST; i++) /* one may be partly built */
        sl_choice_free(&s->shortlist[i]);
    sl_free(s->actual);
    sl_free(s->like);
    sl_sweep_destroy(s->sweep);
    sl_plan_destroy(s->plan);
    sl_free(s);
}

/* Fetches just in time, places wherever they fit. */
static void forget_wishes(sl_search *s)
{
    memset(s->trial.lead, 0xff, (size_t) s->a->n_entries * sizeof *s->trial.lead);
    memset(s->trial.side, SL_SIDE_AUTO, (size_t) s->a->n_entries);
    s->trial.on_demand = false;
}

/* ---- extremes -------------------------------------------------------------------------------------------------- */

static sl_status try_start(sl_search *s, bool on_host, int level, sl_extreme extreme)
{
    if (!sl_search_set_level(s, &s->trial, on_host, level))
        return SL_OK;
    sl_search_set_gaps(s, &s->trial, extreme);
    forget_wishes(s);
    s->trial.slack = 0;
    s->trial.fit = s->budget[SL_TIER_DEVICE] == SIZE_MAX ? SL_FIT_LOW | SL_FIT_BEST : 0;
    return sl_search_settle(s, 4);
}

static sl_status try_starts(sl_search *s)
{
    for (int host = 1; host >= 0; host--)
        for (int level = SL_PLACEMENT_LEVELS - 1; level >= 0; level--)
            for (int extreme = 0; extreme < SL_EXTREME_COUNT && !sl_search_over(s); extreme++)
                SL_TRY(try_start(s, host, level, (sl_extreme) extreme));
    return SL_OK;
}

/* ---- prices ---------------------------------------------------------------------------------------------------- */

/* Bytes of a tier that the placements of `trial` leave free. */
static double beside_placements(const sl_search *s, sl_tier tier)
{
    const sl_program *p = s->a->program;
    double left = (double) s->budget[tier];
    for (int32_t o = 0; o < p->n_objects; o++) {
        bool io = p->objects[o].class == SL_CLASS_DATA || p->objects[o].class == SL_CLASS_RESULT;
        if (p->objects[o].persistent ? s->trial.placement[o] == tier : io && tier == SL_TIER_HOST)
            left -= (double) s->a->bytes[o];
    }
    return fmax(left, 0);
}

/* Shares of the device's bytes and of the links' time to plan for: what the layout and the order of copies really
 * leave, and how early prefetches aim to end. Best guesses first. */
typedef struct sl_shares {
    double device, link, slack;
    double
        kept; /* of the device's bytes, filled with the gaps of the highest value per byte and second; 0: prices alone decide */
} sl_shares;

static const sl_shares small_shares[] = {{0.95, 0.95, 0, 0}, {0.98, 0.97, 0, 0}, {0.90, 0.92, 0, 0},
                                         {0.95, 0.93, 1, 0}, {0.85, 0.95, 0, 0}, {0.80, 0.85, 1, 0}};
static const sl_shares large_shares[] = {{0.88, 0.92, 0, 0},   {0.92, 0.90, 0, 0.9}, {0.90, 0.85, 0, 0.7},
                                         {0.97, 0.92, 0, 0.7}, {0.88, 0.92, 0, 0.8}, {0.97, 0.92, 0, 0.9}};
_Static_assert(SL_COUNT(large_shares) == SL_SEARCH_VARIANTS, "as search.h says");

static void aim(const sl_search *s, const sl_shares *shares, sl_lagrangian_targets *targets)
{
    targets->bytes[SL_TIER_DEVICE] = shares->device * beside_placements(s, SL_TIER_DEVICE);
    targets->bytes[SL_TIER_HOST] = 0.97 * beside_placements(s, SL_TIER_HOST);
    targets->in_flight = (s->small ? 0.03 : 0.05) * beside_placements(s, SL_TIER_DEVICE);
    targets->link_share = shares->link;
    targets->kept = shares->kept;
    targets->lean = s->small ? 1 : LEAN;
}

/* Choices by prices, with the placements of `trial`: for a small step from one set of prices, for a large one from a set for
 * each share. */
static sl_status try_prices(sl_search *s, bool on_host)
{
    sl_lagrangian *prices;
    sl_search_set_updates(s, &s->trial, on_host);
    SL_TRY(sl_lagrangian_create(s->a, s->trial.on_host, s->trial.placement, &prices));
    sl_status status = SL_OK;
    sl_lagrangian_targets targets = {.rounds = 60};
    forget_wishes(s);
    int first = s->small ? 0 : s->first_variant, end = s->small ? (int) SL_COUNT(small_shares) : s->end_variant;
    for (int i = first; i < end && status == SL_OK && !sl_search_over(s); i++) {
        if (i > first && !s->small && s->rival_s > 0 && s->best_s > FAR * s->rival_s)
            break;
        s->origin++;
        const sl_shares *shares = s->small ? &small_shares[i] : &large_shares[i];
        aim(s, shares, &targets);
        if (!s->small || i == first)
            sl_lagrangian_choose(prices, &targets, s->trial.gap);
        for (int again = 0; again < 2; again++)
            sl_lagrangian_fill(prices, &targets, s->trial.gap);
        s->trial.fit = s->small ? 0 : SL_FIT_FORESEE;
        s->trial.slack = shares->slack;
        status = sl_search_settle(s, 2);
    }
    sl_lagrangian_destroy(prices);
    return status;
}

/* Evaluates the best choice again without the copies that cause its stalls. */
static sl_status try_stall_repair(sl_search *s)
{
    for (double before = INFINITY; s->found && !sl_search_over(s) && s->best_s < before * (1 - 1e-3);) {
        sl_outcome outcome;
        sl_plan *plan;
        before = s->best_s;
        SL_TRY(sl_search_plan(s, &plan));
        sl_choice_copy(s->a, &s->trial, &s->best);
        int32_t attributed = sl_stall_repair(s->a, plan->actions, plan->n_actions, plan->deps, s->trial.gap);
        s->plan = plan;
        if (!attributed)
            break;
        SL_TRY(sl_search_consider(s, &outcome));
    }
    return SL_OK;
}

static sl_status try_homes_and_prices(sl_search *s)
{
    for (int level = 0; level < SL_PLACEMENT_LEVELS && !sl_search_over(s); level++) {
        if (!sl_search_set_level(s, &s->trial, true, level))
            continue;
        SL_TRY(try_prices(s, true));
        if (!s->small)
            break;
        SL_TRY(try_prices(s, false));
    }
    if (s->small)
        return SL_OK;
    size_t persistent = sl_search_persistent_bytes(s);
    bool space = !s->fixed && persistent / 10 <= s->budget[SL_TIER_DEVICE] / 11;
    bool hopeless = s->first_variant > 0 && s->resident_s > 1.05 * s->best_s;
    if (space && !hopeless && !sl_search_over(s)) { /* everything resident on the device, updates too */
        sl_search_set_placements(s, &s->trial, persistent);
        s->pass_s = INFINITY;
        SL_TRY(try_prices(s, false));
        s->resident_s = s->pass_s;
    }
    return try_stall_repair(s);
}

/* ---- updates on the host --------------------------------------------------------------------------------------- */

/* Everything is resident on the device: no choice of gaps or placements is faster. */
static bool all_stay(const sl_search *s)
{
    bool stay = s->found && !s->forced;
    for (int32_t o = 0; o < s->a->program->n_objects && stay; o++)
        stay = !s->a->program->objects[o].persistent || s->best.placement[o] == SL_TIER_DEVICE;
    for (int32_t e = 0; e < s->a->n_entries && stay; e++)
        stay = s->best.gap[e] == SL_GAP_KEEP;
    return stay;
}

/* The earliest updates, by `share` of all updates' time, on the host with what they work on; all else on the device. */
static bool set_host_share(const sl_search *s, sl_choice *choice, double share)
{
    const sl_analysis *a = s->a;
    const sl_program *p = a->program;
    double all = 0, moved = 0;
    sl_search_set_placements(s, choice, SIZE_MAX);
    sl_search_set_updates(s, choice, true);
    for (int32_t t = 0; t < p->n_tasks; t++)
        all += choice->on_host[t] ? a->costs->device_s[p->tasks[t].signature] : 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        if (!choice->on_host[t])
            continue;
        double seconds = a->costs->device_s[p->tasks[t].signature];
        choice->on_host[t] = moved + seconds <= share * all;
        moved += choice->on_host[t] ? seconds : 0;
        for (int32_t e = a->first[t]; e < a->first[t + 1] && choice->on_host[t]; e++)
            choice->placement[a->entries[e].object] = SL_TIER_HOST;
    }
    return moved > 0 && all > 0.01 * s->best_s;
}

/* Only updates are left to move: tries some of them on the host while the device does the others. */
static sl_status try_host_shares(sl_search *s)
{
    static const double shares[] = {0.1, 0.25, 0.5};
    for (int i = 0; i < (int) SL_COUNT(shares) && !s->fixed && !sl_search_over(s); i++) {
        sl_outcome outcome;
        sl_choice_copy(s->a, &s->trial, &s->best);
        if (set_host_share(s, &s->trial, shares[i]))
            SL_TRY(sl_search_consider(s, &outcome));
    }
    return SL_OK;
}

/* ---- in which order -------------------------------------------------------------------------------------------- */

static sl_status improve(sl_search *s)
{
    /* Everything resident on the device: where that fits, nothing is faster. */
    if (sl_search_persistent_bytes(s) <= s->budget[SL_TIER_DEVICE]) {
        s->trial.as_it_is = !s->small; /* evictions to make it fit take long and do not help */
        for (int host = 1; host >= 0 && !sl_search_over(s); host--)
            SL_TRY(try_start(s, host, SL_PLACEMENT_LEVELS - 1, SL_EXTREME_KEEP));
        s->trial.as_it_is = false;
    }
    if (all_stay(s)) {
        SL_TRY(try_host_shares(s));
        s->settled = all_stay(s);
    }
    if (s->settled)
        return SL_OK;
    SL_TRY(try_homes_and_prices(s));
    if (!s->small)
        return SL_OK;
    if (s->a->n_entries > TINY_ENTRIES)
        SL_TRY(try_stall_repair(s));
    return s->quick && s->a->n_entries > TINY_ENTRIES ? SL_OK : try_starts(s);
}

sl_status sl_search_refine(sl_search *s, bool *better)
{
    double before = s->best_s;
    s->first_variant = s->end_variant;
    s->end_variant = SL_SEARCH_VARIANTS;
    if (!s->small && s->first_variant < s->end_variant)
        SL_TRY(try_homes_and_prices(s));
    *better = s->best_s < before;
    return SL_OK;
}

sl_status sl_search_improve(sl_search *s)
{
    sl_choice frugal = {0};
    sl_status status = sl_choice_new(s->a, &frugal);
    if (status == SL_OK) {
        sl_choice_copy(s->a, &frugal, &s->best);
        status = improve(s);
    }
    if (status == SL_OK && !s->settled &&
        (s->small || !s->found)) { /* the choice of the feasibility check, should nothing else fit */
        sl_outcome outcome;
        sl_choice_copy(s->a, &s->trial, &frugal);
        status = sl_search_consider(s, &outcome);
        SL_ASSERT(status != SL_OK || s->found);
    }
    sl_choice_free(&frugal);
    return status == SL_OK && s->small && !s->settled && !s->quick ? sl_search_local(s) : status;
}
