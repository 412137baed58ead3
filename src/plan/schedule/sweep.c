/*
 * The sweep: from a choice to a schedule. Tasks are walked in program order; before each, its operands are brought to
 * the tier it runs in, after it, the choice of each operand's gap is carried out (task.c). Everything is decided with a
 * coarse clock; exact times come from the timeline later.
 *
 *   dry walk      unlimited memory, copies take no time: which fetches, for which tasks, at which times
 *   packing       fetches are packed on the link backwards from their deadlines (prefetch.c)
 *   bounded walk  addresses, evictions where space is short, actions and dependencies
 *
 * Both walks share their code (walk.c), so the times of the dry walk hold for the bounded one as far as memory allows.
 */
#include "plan/schedule/sweep.h"

#include <math.h>
#include <string.h>

/* The dry walk: determines the fetches and when to issue them. */
static sl_status dry_walk(sl_sweep *s)
{
    s->bounded = false;
    s->actual = NULL;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        s->budget[tier] = SIZE_MAX;
    SL_TRY(sl_sweep_walk(s));
    sl_sweep_pack_fetches(s);
    return SL_OK;
}

static sl_status bounded_walk(sl_sweep *s, const size_t budget[SL_TIER_COUNT], uint8_t *actual)
{
    s->bounded = true;
    s->actual = actual;
    s->outcome->forced = false;
    memcpy(s->budget, budget, sizeof s->budget);
    SL_TRY(sl_sweep_walk(s));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        s->outcome->peak[tier] = s->base[tier] + s->arena[tier].peak;
    return SL_OK;
}

/* As long as its gaps are kept: up to the use after which it is evicted or dropped. */
static void foresee_stays(sl_sweep *s)
{
    const sl_analysis *a = s->a;
    for (int32_t e = a->n_entries - 1; e >= 0; e--) {
        int32_t next = a->entries[e].next;
        bool kept = s->choice->gap[e] == SL_GAP_KEEP && next >= 0 && !(a->entries[next].flags & SL_ENTRY_FRESH);
        s->stays[e] = kept ? s->stays[next] : e;
    }
}

/* Whether the dry walk never exceeded the device's memory. */
static bool fits_as_it_is(const sl_sweep *s, const size_t budget[SL_TIER_COUNT])
{
    double most = 0;
    for (int32_t t = 0; t < s->a->program->n_tasks; t++)
        most = fmax(most, s->committed[t]);
    return most + (double) s->base[SL_TIER_DEVICE] <= (double) budget[SL_TIER_DEVICE];
}

sl_status sl_sweep_run(sl_sweep *s, const sl_choice *choice, const size_t budget[SL_TIER_COUNT], uint8_t *actual,
                       sl_outcome *outcome)
{
    *outcome = (sl_outcome){.feasible = true};
    s->choice = choice;
    s->outcome = outcome;
    s->n_fetches = 0;
    foresee_stays(s);
    memset(s->touched, 0, (size_t) s->a->n_entries);
    if (choice->on_demand)
        memset(s->task_start_s, 0, (size_t) s->a->program->n_tasks * sizeof *s->task_start_s);
    else
        SL_TRY(dry_walk(s));
    if (outcome->feasible && choice->as_it_is && !fits_as_it_is(s, budget))
        sl_sweep_stuck(s);
    if (outcome->feasible)
        SL_TRY(bounded_walk(s, budget, actual));
    if (outcome->feasible)
        outcome->step_s = sl_timeline_run(s->a->program, s->a->costs, s->actions, s->n_actions, s->deps);
    return SL_OK;
}

sl_status sl_sweep_create(const sl_analysis *analysis, const sl_fixed_placements *fixed, sl_sweep **sweep)
{
    sl_sweep *s;
    const sl_program *p = analysis->program;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->a = analysis;
    s->fixed = fixed;
    sl_status status;
    SL_TRY_GOTO(sl_alloc(&s->objects, p->n_objects + 1, sizeof *s->objects), destroy);
    SL_TRY_GOTO(sl_alloc(&s->task_start_s, p->n_tasks + 1, sizeof *s->task_start_s), destroy);
    SL_TRY_GOTO(sl_alloc(&s->clock_s, p->n_tasks + 1, sizeof *s->clock_s), destroy);
    SL_TRY_GOTO(sl_alloc(&s->pace_s, p->n_tasks + 1, sizeof *s->pace_s), destroy);
    SL_TRY_GOTO(sl_alloc(&s->stays, analysis->n_entries + 1, sizeof *s->stays), destroy);
    SL_TRY_GOTO(sl_alloc(&s->next_large, p->n_tasks + 1, sizeof *s->next_large), destroy);
    SL_TRY_GOTO(sl_alloc(&s->committed, p->n_tasks + 1, sizeof *s->committed), destroy);
    SL_TRY_GOTO(sl_alloc(&s->placement, p->n_objects + 1, sizeof *s->placement), destroy);
    SL_TRY_GOTO(sl_alloc(&s->touched, analysis->n_entries + 1, 1), destroy);
    *sweep = s;
    return SL_OK;
destroy:
    sl_sweep_destroy(s);
    return status;
}

void sl_sweep_destroy(sl_sweep *s)
{
    if (!s)
        return;
    sl_free(s->objects);
    sl_free(s->touched);
    sl_free(s->task_start_s);
    sl_free(s->clock_s);
    sl_free(s->pace_s);
    sl_free(s->stays);
    sl_free(s->next_large);
    sl_free(s->committed);
    sl_free(s->again);
    sl_free(s->placement);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        sl_arena_free(&s->arena[tier]);
    sl_free(s->residencies);
    sl_free(s->actions);
    sl_free(s->clock);
    sl_free(s->deps);
    sl_free(s->use_allocations);
    sl_free(s->fetches);
    sl_free(s->costs);
    sl_free(s);
}

const uint8_t *sl_sweep_touched(const sl_sweep *s)
{
    return s->touched;
}

void sl_sweep_set_pace(sl_sweep *s)
{
    double *before = s->pace_s;
    s->pace_s = s->clock_s;
    s->clock_s = before;
    s->paced = true;
}

double sl_sweep_round_end_s(const sl_sweep *s, int32_t round)
{
    return sl_timeline_round_end_s(s->a->program, s->actions, s->n_actions, round);
}

sl_status sl_sweep_export(const sl_sweep *s, sl_plan **plan)
{
    const sl_program *p = s->a->program;
    sl_region *region;
    sl_plan *out;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &out, 1, sizeof *out), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->allocations, s->n_residencies + 1, sizeof *out->allocations), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->actions, s->n_actions + 1, sizeof *out->actions), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->deps, s->n_deps + 1, sizeof *out->deps), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->use_allocations, s->n_use_allocations + 1, sizeof *out->use_allocations),
                destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->placement, p->n_objects + 1, sizeof *out->placement), destroy);
    out->region = region;
    out->n_allocations = s->n_residencies;
    out->n_actions = s->n_actions;
    out->n_deps = s->n_deps;
    out->n_use_allocations = s->n_use_allocations;
    for (int32_t i = 0; i < s->n_residencies; i++) {
        out->allocations[i] = s->residencies[i].place;
        if (s->residencies[i].permanent)
            out->allocations[i].last = s->n_actions;
    }
    memcpy(out->actions, s->actions, (size_t) s->n_actions * sizeof *s->actions);
    memcpy(out->deps, s->deps, (size_t) s->n_deps * sizeof *s->deps);
    memcpy(out->use_allocations, s->use_allocations, (size_t) s->n_use_allocations * sizeof *s->use_allocations);
    memcpy(out->placement, s->placement, (size_t) p->n_objects * sizeof *s->placement);
    *plan = out;
    return SL_OK;
destroy:
    sl_region_destroy(region);
    return status;
}
