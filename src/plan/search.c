/*
 * Which choices to try. First whether anything fits (sl_search_feasible): a ladder of extremes, the frugal ones first.
 * Then good ones: extremes with fetches ahead, choices by prices (prices.c), and, as far as the bound on evaluations
 * allows, changes one at a time (climb.c). The bound counts evaluations, not seconds, so the same input gives the same
 * plan everywhere; the time limit is a safety net for machines that are much slower than expected.
 */
#include "plan/prices.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define TINY_ENTRIES 500    /* up to here, walks at random find more than any method */
#define SMALL_ENTRIES 20000 /* above, an evaluation takes too long for more than a few */

sl_status sl_choice_new(const sl_analysis *a, sl_choice *choice)
{
    SL_TRY(sl_alloc(&choice->gap, a->n_entries + 1, 1));
    SL_TRY(sl_alloc(&choice->home, a->program->n_objects + 1, 1));
    SL_TRY(sl_alloc(&choice->on_host, a->program->n_tasks + 1, 1));
    SL_TRY(sl_alloc(&choice->side, a->n_entries + 1, 1));
    SL_TRY(sl_alloc(&choice->lead, a->n_entries + 1, sizeof *choice->lead));
    memset(choice->lead, 0xff, (size_t) a->n_entries * sizeof *choice->lead);
    return SL_OK;
}

void sl_choice_free(sl_choice *choice)
{
    sl_free(choice->gap);
    sl_free(choice->home);
    sl_free(choice->on_host);
    sl_free(choice->side);
    sl_free(choice->lead);
}

void sl_choice_copy(const sl_analysis *a, sl_choice *to, const sl_choice *from)
{
    memcpy(to->gap, from->gap, (size_t) a->n_entries);
    memcpy(to->home, from->home, (size_t) a->program->n_objects);
    memcpy(to->on_host, from->on_host, (size_t) a->program->n_tasks);
    memcpy(to->side, from->side, (size_t) a->n_entries);
    memcpy(to->lead, from->lead, (size_t) a->n_entries * sizeof *to->lead);
    to->slack = from->slack;
    to->fit = from->fit;
    to->on_demand = from->on_demand;
    to->as_it_is = from->as_it_is;
}

sl_status sl_search_create(const sl_analysis *a, const sl_fixed_homes *fixed, const size_t budget[SL_TIER_COUNT],
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
    for (int i = 0; i < s->n_shortlist; i++)
        sl_choice_free(&s->shortlist[i]);
    sl_free(s->actual);
    sl_free(s->like);
    sl_sweep_destroy(s->sweep);
    sl_plan_destroy(s->plan);
    sl_free(s);
}

/* ---- building blocks ------------------------------------------------------------------------------------------- */

typedef enum sl_gaps { GAPS_EVICT, GAPS_DROP_OR_EVICT, GAPS_KEEP, GAPS_DROP_OR_KEEP, GAPS_COUNT } sl_gaps;

static void set_gaps(const sl_search *s, sl_choice *choice, sl_gaps gaps)
{
    bool small = s->small;
    for (int32_t e = 0; e < s->a->n_entries; e++) {
        const sl_entry *entry = &s->a->entries[e];
        bool drop =
            (small ? entry->can_drop : entry->drops_near) && (gaps == GAPS_DROP_OR_EVICT || gaps == GAPS_DROP_OR_KEEP);
        choice->gap[e] = drop                                             ? SL_GAP_DROP
                         : gaps == GAPS_KEEP || gaps == GAPS_DROP_OR_KEEP ? SL_GAP_KEEP
                                                                          : SL_GAP_EVICT;
    }
}

static void set_updates(const sl_search *s, sl_choice *choice, bool on_host)
{
    const sl_program *p = s->a->program;
    for (int32_t t = 0; t < p->n_tasks; t++)
        choice->on_host[t] = on_host && p->tasks[t].host_allowed && isfinite(s->a->costs->host_s[p->tasks[t].kind]);
}

static size_t largest_need(const sl_search *s, const sl_choice *choice)
{
    size_t largest = 0;
    for (int32_t t = 0; t < s->a->program->n_tasks; t++)
        if (!choice->on_host[t])
            largest = SL_MAX(largest, s->a->need[t]);
    return largest;
}

static size_t persistent_bytes(const sl_search *s)
{
    size_t total = 0;
    for (int32_t o = 0; o < s->a->program->n_objects; o++)
        total += s->a->program->objects[o].persistent ? s->a->bytes[o] : 0;
    return total;
}

/* Homes: at most `device_bytes` of persistent objects live on the device, the rest in host memory. */
static void set_homes(const sl_search *s, sl_choice *choice, size_t device_bytes)
{
    const sl_program *p = s->a->program;
    for (int32_t o = 0; o < p->n_objects; o++) {
        choice->home[o] = SL_TIER_HOST;
        if (!p->objects[o].persistent)
            continue;
        if (s->fixed)
            choice->home[o] = s->fixed->tier[o];
        else if (s->a->bytes[o] <= device_bytes) {
            choice->home[o] = SL_TIER_DEVICE;
            device_bytes -= s->a->bytes[o];
        }
    }
}

/* How many bytes of persistent objects to put on the device: step 0 none, then from what host memory lacks to all
 * that fits. */
static bool home_bytes(const sl_search *s, const sl_choice *choice, int step, size_t *bytes)
{
    const sl_program *p = s->a->program;
    size_t persistent = 0, lack = 0, room = 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        bool io = p->objects[o].class == SL_CLASS_DATA || p->objects[o].class == SL_CLASS_RESULT;
        if (p->objects[o].persistent)
            persistent += s->a->bytes[o];
        if (p->objects[o].persistent || io)
            lack += s->a->bytes[o];
    }
    size_t need = largest_need(s, choice), device = s->budget[SL_TIER_DEVICE] / SL_ALIGN * SL_ALIGN;
    room = device > need ? SL_MIN(device - need, persistent) : 0;
    lack = SL_MIN(lack - SL_MIN(lack, s->budget[SL_TIER_HOST]), persistent);
    if (lack && !s->small) /* few tries: leave some host memory for what moves */
        lack = SL_MIN(lack + s->budget[SL_TIER_HOST] / 8, persistent);
    *bytes = step == 0 ? 0 : step == 1 ? lack : step == 2 ? (lack + room) / 2 : room;
    if (step > 0 && (room == 0 || s->fixed))
        return false;
    return step == 0 ? lack == 0 || s->fixed : *bytes >= lack && (step != 1 || lack > 0);
}

/* ---- does it fit? ---------------------------------------------------------------------------------------------- */

#define HOME_STEPS 4

size_t sl_search_grain(const sl_search *s, sl_tier tier)
{
    size_t grain = SL_ALIGN, total = persistent_bytes(s);
    if (tier == SL_TIER_HOST && !s->small)
        while (grain < total / 64)
            grain *= 2;
    return grain;
}

static sl_status fits_with(sl_search *s, const size_t budget[SL_TIER_COUNT], bool *feasible)
{
    static const sl_gaps order[GAPS_COUNT] = {GAPS_DROP_OR_EVICT, GAPS_DROP_OR_KEEP, GAPS_EVICT, GAPS_KEEP};
    int n = s->small ? GAPS_COUNT : 1;
    for (int g = 0; g < n && !*feasible; g++) {
        sl_outcome outcome;
        set_gaps(s, &s->best, order[g]);
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
    for (int step = 0; step < (small ? HOME_STEPS : 2); step++)
        for (int host = 1; host >= (small ? 0 : 1); host--) {
            size_t bytes;
            set_updates(s, choice, host);
            if (!home_bytes(s, choice, step, &bytes))
                continue;
            set_homes(s, choice, bytes);
            if (largest_need(s, choice) <= s->budget[SL_TIER_DEVICE])
                SL_TRY(fits_with(s, budget, feasible));
            if (*feasible)
                return SL_OK;
        }
    return SL_OK;
}

/* ---- what is good? --------------------------------------------------------------------------------------------- */

/* This thread's own time: a busy machine must not make plans worse. */
double sl_search_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

bool sl_search_over(const sl_search *s)
{
    return s->evaluated >= s->max_evaluations ||
           (s->found && (s->best_s <= s->enough_s || sl_search_clock_s() > s->deadline_s));
}

/* Tasks of the second middle round make the choices of the first. */
static void repeat_choices(const sl_search *s, sl_choice *choice)
{
    const sl_analysis *a = s->a;
    for (int32_t t = 0; t < a->program->n_tasks; t++) {
        int32_t like = s->like[t], count = a->first[t + 1] - a->first[t];
        if (like == t || count != a->first[like + 1] - a->first[like])
            continue;
        for (int32_t i = 0; i < count; i++) {
            int32_t e = a->first[t] + i;
            sl_gap gap = (sl_gap) choice->gap[a->first[like] + i];
            choice->gap[e] = gap == SL_GAP_DROP && !a->entries[e].can_drop ? SL_GAP_KEEP : (uint8_t) gap;
        }
    }
}

/* Remembers `trial` if it is one of the fastest, and the fastest of its origin: settled twice, choices are nearly the same. */
static sl_status shortlist(sl_search *s, double step_s)
{
    int from = 0, at;
    while (from < s->n_shortlist && s->shortlist_origin[from] != s->origin)
        from++;
    if (from == s->n_shortlist && s->n_shortlist < SL_SEARCH_SHORTLIST) {
        SL_TRY(sl_choice_new(s->a, &s->shortlist[from]));
        s->shortlist_s[s->n_shortlist++] = INFINITY;
    }
    from = SL_MIN(from, s->n_shortlist - 1);
    if (step_s >= s->shortlist_s[from])
        return SL_OK;
    sl_choice mine = s->shortlist[from];
    sl_choice_copy(s->a, &mine, &s->trial);
    for (at = from; at > 0 && step_s < s->shortlist_s[at - 1]; at--) {
        s->shortlist[at] = s->shortlist[at - 1];
        s->shortlist_s[at] = s->shortlist_s[at - 1];
        s->shortlist_origin[at] = s->shortlist_origin[at - 1];
    }
    s->shortlist[at] = mine;
    s->shortlist_s[at] = step_s;
    s->shortlist_origin[at] = s->origin;
    return SL_OK;
}

sl_status sl_search_consider(sl_search *s, sl_outcome *outcome)
{
    if (s->like)
        repeat_choices(s, &s->trial);
    SL_TRY(sl_sweep_run(s->sweep, &s->trial, s->budget, s->actual, outcome));
    if (s->like && outcome->feasible)
        outcome->step_s += s->repeat * (sl_sweep_round_end_s(s->sweep, 2) - sl_sweep_round_end_s(s->sweep, 1));
    s->evaluated++;
    if (outcome->feasible)
        s->pass_s = fmin(s->pass_s, outcome->step_s);
    if (s->like && outcome->feasible)
        SL_TRY(shortlist(s, outcome->step_s));
    outcome->best = outcome->feasible && (!s->found || outcome->step_s < s->best_s * (1 - 1e-9));
    if (outcome->best) {
        s->found = true;
        s->forced = outcome->forced;
        s->best_s = outcome->step_s;
        if (s->paced)
            sl_sweep_set_pace(s->sweep);
        sl_choice_copy(s->a, &s->best, &s->trial);
        sl_plan_destroy(s->plan);
        s->plan = NULL;
        if (!s->small) /* running it again would take longer than keeping it */
            return sl_sweep_export(s->sweep, &s->plan);
    }
    return SL_OK;
}

/* Evaluates `trial`, then again with the gaps that had to give planned from the start. */
static sl_status consider_settling(sl_search *s, int times)
{
    for (int i = 0; i < times && !sl_search_over(s); i++) {
        sl_outcome outcome;
        SL_TRY(sl_search_consider(s, &outcome));
        if (!outcome.feasible || !outcome.forced || !memcmp(s->trial.gap, s->actual, (size_t) s->a->n_entries))
            break;
        memcpy(s->trial.gap, s->actual, (size_t) s->a->n_entries);
    }
    return SL_OK;
}

/* One start: updates on the host or not, a step of homes, a kind of gaps. */
static sl_status try_start(sl_search *s, bool on_host, int step, sl_gaps gaps)
{
    size_t bytes;
    set_updates(s, &s->trial, on_host);
    if (!home_bytes(s, &s->trial, step, &bytes))
        return SL_OK;
    set_homes(s, &s->trial, bytes);
    set_gaps(s, &s->trial, gaps);
    memset(s->trial.lead, 0xff, (size_t) s->a->n_entries * sizeof *s->trial.lead);
    memset(s->trial.side, SL_SIDE_AUTO, (size_t) s->a->n_entries);
    s->trial.on_demand = false;
    s->trial.slack = 0;
    s->trial.fit = s->budget[SL_TIER_DEVICE] == SIZE_MAX ? SL_FIT_LOW | SL_FIT_BEST : 0;
    return consider_settling(s, 4);
}

static sl_status try_starts(sl_search *s)
{
    for (int host = 1; host >= 0; host--)
        for (int step = HOME_STEPS - 1; step >= 0; step--)
            for (int gaps = 0; gaps < GAPS_COUNT && !sl_search_over(s); gaps++)
                SL_TRY(try_start(s, host, step, (sl_gaps) gaps));
    return SL_OK;
}

/* Bytes left in a tier beside the homes of `trial`. */
static double beside_homes(const sl_search *s, sl_tier tier)
{
    const sl_program *p = s->a->program;
    double left = (double) s->budget[tier];
    for (int32_t o = 0; o < p->n_objects; o++) {
        bool io = p->objects[o].class == SL_CLASS_DATA || p->objects[o].class == SL_CLASS_RESULT;
        if (p->objects[o].persistent ? s->trial.home[o] == tier : io && tier == SL_TIER_HOST)
            left -= (double) s->a->bytes[o];
    }
    return fmax(left, 0);
}

/* Shares of the device's bytes and of the links' time to plan for: what the layout and the order of copies really leave, and how
 * early prefetches aim to end. Best guesses first. */
#define FAR 1.03 /* times another program's step: not worth a second look */
#define LEAN 0.3 /* prices of few rounds keep weights and gradients where activations would save recomputations */

typedef struct sl_shares {
    double device, link, slack;
    double kept; /* of the device's bytes, filled with what is worth most per byte and second; 0: prices alone decide */
} sl_shares;

static const sl_shares small_shares[] = {{0.95, 0.95, 0, 0}, {0.98, 0.97, 0, 0}, {0.90, 0.92, 0, 0},
                                         {0.95, 0.93, 1, 0}, {0.85, 0.95, 0, 0}, {0.80, 0.85, 1, 0}};
static const sl_shares large_shares[] = {{0.88, 0.92, 0, 0},   {0.92, 0.90, 0, 0.9}, {0.90, 0.85, 0, 0.7},
                                         {0.97, 0.92, 0, 0.7}, {0.88, 0.92, 0, 0.8}, {0.97, 0.92, 0, 0.9}};
_Static_assert(SL_COUNT(large_shares) == SL_SEARCH_VARIANTS, "as internal.h says");

static void aim(const sl_search *s, const sl_shares *shares, sl_price_targets *targets)
{
    targets->bytes[SL_TIER_DEVICE] = shares->device * beside_homes(s, SL_TIER_DEVICE);
    targets->bytes[SL_TIER_HOST] = 0.97 * beside_homes(s, SL_TIER_HOST);
    targets->in_flight = (s->small ? 0.03 : 0.05) * beside_homes(s, SL_TIER_DEVICE);
    targets->link_share = shares->link;
    targets->kept = shares->kept;
    targets->lean = s->small ? 1 : LEAN;
}

/* Choices by prices, with the homes of `trial`: for a small step from one set of prices, for a large one from a set for each
 * share. */
static sl_status try_prices(sl_search *s, bool on_host)
{
    sl_prices *prices;
    set_updates(s, &s->trial, on_host);
    SL_TRY(sl_prices_create(s->a, s->trial.on_host, s->trial.home, &prices));
    sl_status status = SL_OK;
    sl_price_targets targets = {.rounds = 60};
    memset(s->trial.lead, 0xff, (size_t) s->a->n_entries * sizeof *s->trial.lead);
    memset(s->trial.side, SL_SIDE_AUTO, (size_t) s->a->n_entries);
    s->trial.on_demand = false;
    int first = s->small ? 0 : s->first_variant, end = s->small ? (int) SL_COUNT(small_shares) : s->end_variant;
    for (int i = first; i < end && status == SL_OK && !sl_search_over(s); i++) {
        if (i > first && !s->small && s->rival_s > 0 && s->best_s > FAR * s->rival_s)
            break;
        s->origin++;
        aim(s, s->small ? &small_shares[i] : &large_shares[i], &targets);
        if (!s->small || i == first)
            sl_prices_choose(prices, &targets, s->trial.gap);
        if (i == first)
            memcpy(s->actual, s->trial.gap, (size_t) s->a->n_entries);
        for (int again = 0; again < 2; again++)
            sl_prices_fill(prices, &targets, s->trial.gap);
        s->trial.fit = s->small ? 0 : SL_FIT_FORESEE;
        s->trial.slack = s->small ? small_shares[i].slack : large_shares[i].slack;
        status = consider_settling(s, 2);
    }
    sl_prices_destroy(prices);
    return status;
}

/* The best once more, without what its stalls can be blamed on. */
static sl_status try_blame(sl_search *s)
{
    for (double before = INFINITY; s->found && !sl_search_over(s) && s->best_s < before * (1 - 1e-3);) {
        sl_outcome outcome;
        sl_plan *plan;
        before = s->best_s;
        SL_TRY(sl_search_plan(s, &plan));
        sl_choice_copy(s->a, &s->trial, &s->best);
        int32_t blamed = sl_blame(s->a, plan->actions, plan->n_actions, plan->deps, s->trial.gap);
        s->plan = plan;
        if (!blamed)
            break;
        SL_TRY(sl_search_consider(s, &outcome));
    }
    return SL_OK;
}

static sl_status try_homes_and_prices(sl_search *s)
{
    size_t bytes;
    for (int step = 0; step < HOME_STEPS && !sl_search_over(s); step++) {
        set_updates(s, &s->trial, true);
        if (!home_bytes(s, &s->trial, step, &bytes))
            continue;
        set_homes(s, &s->trial, bytes);
        SL_TRY(try_prices(s, true));
        if (!s->small)
            break;
        set_homes(s, &s->trial, bytes);
        SL_TRY(try_prices(s, false));
    }
    if (s->small)
        return SL_OK;
    size_t persistent = persistent_bytes(s);
    bool room = !s->fixed && persistent / 10 <= s->budget[SL_TIER_DEVICE] / 11;
    bool hopeless = s->first_variant > 0 && s->at_home_s > 1.05 * s->best_s;
    if (room && !hopeless && !sl_search_over(s)) { /* all live on the device, updates too */
        set_homes(s, &s->trial, persistent);
        s->pass_s = INFINITY;
        SL_TRY(try_prices(s, false));
        s->at_home_s = s->pass_s;
    }
    return try_blame(s);
}

/* Everything lives on the device and stays there: no choice of gaps or homes is faster. */
static bool all_stay(const sl_search *s)
{
    bool stay = s->found && !s->forced;
    for (int32_t o = 0; o < s->a->program->n_objects && stay; o++)
        stay = !s->a->program->objects[o].persistent || s->best.home[o] == SL_TIER_DEVICE;
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
    set_homes(s, choice, SIZE_MAX);
    set_updates(s, choice, true);
    for (int32_t t = 0; t < p->n_tasks; t++)
        all += choice->on_host[t] ? a->costs->device_s[p->tasks[t].kind] : 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        if (!choice->on_host[t])
            continue;
        double seconds = a->costs->device_s[p->tasks[t].kind];
        choice->on_host[t] = moved + seconds <= share * all;
        moved += choice->on_host[t] ? seconds : 0;
        for (int32_t e = a->first[t]; e < a->first[t + 1] && choice->on_host[t]; e++)
            choice->home[a->entries[e].object] = SL_TIER_HOST;
    }
    return moved > 0 && all > 0.01 * s->best_s;
}

/* Nothing but updates is left to move: some of them, while the device does the others? */
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

static sl_status improve(sl_search *s, bool small)
{
    if (persistent_bytes(s) <=
        s->budget[SL_TIER_DEVICE]) { /* all at home on the device: where it fits nothing is faster */
        s->trial.as_it_is = !small;  /* making it fit by force takes long and leads nowhere */
        for (int host = 1; host >= 0 && !sl_search_over(s); host--)
            SL_TRY(try_start(s, host, HOME_STEPS - 1, GAPS_KEEP));
        s->trial.as_it_is = false;
    }
    if (all_stay(s)) {
        SL_TRY(try_host_shares(s));
        s->settled = all_stay(s);
    }
    if (s->settled)
        return SL_OK;
    SL_TRY(try_homes_and_prices(s));
    if (!small)
        return SL_OK;
    if (s->a->n_entries > TINY_ENTRIES)
        SL_TRY(try_blame(s));
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
    bool small = s->small;
    sl_status status = sl_choice_new(s->a, &frugal);
    if (status == SL_OK) {
        sl_choice_copy(s->a, &frugal, &s->best);
        status = improve(s, small);
    }
    if (status == SL_OK && !s->settled && (small || !s->found)) { /* what is known to fit, should nothing else */
        sl_outcome outcome;
        sl_choice_copy(s->a, &s->trial, &frugal);
        status = sl_search_consider(s, &outcome);
        SL_ASSERT(status != SL_OK || s->found);
    }
    sl_choice_free(&frugal);
    return status == SL_OK && small && !s->settled && !s->quick ? sl_search_climb(s) : status;
}

sl_status sl_search_plan(sl_search *s, sl_plan **plan)
{
    sl_outcome outcome;
    if (!s->plan) {
        SL_TRY(sl_sweep_run(s->sweep, &s->best, s->budget, NULL, &outcome));
        SL_ASSERT(outcome.feasible);
        SL_TRY(sl_sweep_export(s->sweep, &s->plan));
    }
    *plan = s->plan;
    s->plan = NULL;
    return SL_OK;
}
