/*
 * From budgets to a plan, and the smallest budgets. Both use the same feasibility check (sl_search_feasible). Therefore a plan
 * is found at the minimum and refused one step below it, even though the check is incomplete.
 */
#include "plan/search/planning.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"
#include "plan/bounds.h"
#include "plan/search/unroll.h"

#define DEFAULT_TIME_S 3.0 /* a safety net; evaluations end the search first */
#define DEFAULT_WORK 1.2e6 /* evaluations x entries */
#define MOST_EVALUATIONS 15000

const char *sl_limit_name(sl_limit limit)
{
    static const char *const names[] = {"compute", "link in", "link out", "host compute", "device bytes", "host bytes"};
    return names[limit];
}

void sl_plan_destroy(sl_plan *plan)
{
    if (plan)
        sl_region_destroy(plan->region);
}

/* ---- placements shared with another plan ---------------------------------------------------------------------------- */

/* Of an object in the other plan; its number of placements: there is none. */
static int32_t find_placement(const sl_plan *other, const uint8_t *taken, const sl_object *object)
{
    int32_t i = 0;
    while (i < other->n_persistent &&
           (taken[i] || other->persistent[i].class != object->class || other->persistent[i].group != object->group))
        i++;
    return i;
}

static void place_further(const sl_analysis *a, sl_tier tier, sl_fixed_placements *fixed, int32_t o)
{
    fixed->address[o] = fixed->end[tier];
    fixed->tier[o] = (uint8_t) tier;
    fixed->end[tier] += a->bytes[o];
}

static sl_status match_placements(const sl_analysis *a, const sl_plan_config *config, sl_fixed_placements *fixed)
{
    const sl_program *p = a->program;
    const sl_plan *other = config->placements;
    for (int32_t i = 0; i < other->n_persistent; i++) {
        const sl_plan_placement *placement = &other->persistent[i];
        size_t end = placement->address + SL_ROUND_UP(placement->bytes, (size_t) SL_ALIGN);
        fixed->end[placement->tier] = SL_MAX(fixed->end[placement->tier], end);
    }
    SL_TRY(sl_region_alloc(a->region, &fixed->address, p->n_objects + 1, sizeof *fixed->address));
    SL_TRY(sl_region_alloc(a->region, &fixed->tier, p->n_objects + 1, 1));
    uint8_t *taken;
    SL_TRY(sl_region_alloc(a->region, &taken, other->n_persistent + 1, 1));
    for (int32_t o = 0; o < p->n_objects; o++) {
        const sl_object *object = &p->objects[o];
        if (!object->persistent)
            continue;
        const int32_t i = find_placement(other, taken, object);
        if (i == other->n_persistent && object->class == SL_CLASS_CONTEXT) {
            place_further(a, config->further_tier, fixed, o);
            continue;
        }
        if (i == other->n_persistent || other->persistent[i].bytes != object->bytes)
            return sl_fail(SL_E_INTERNAL, "%s has no placement in the plan whose memory is to be shared", object->name);
        taken[i] = 1;
        fixed->address[o] = other->persistent[i].address;
        fixed->tier[o] = (uint8_t) other->persistent[i].tier;
    }
    return SL_OK;
}

static sl_status list_placements(const sl_program *p, sl_plan *plan)
{
    for (int32_t o = 0; o < p->n_objects; o++)
        plan->n_persistent += p->objects[o].persistent;
    SL_TRY(sl_region_alloc(plan->region, &plan->persistent, plan->n_persistent + 1, sizeof *plan->persistent));
    int32_t n = 0;
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent) {
            const sl_allocation *place = &plan->allocations[plan->placement[o]];
            plan->persistent[n++] = (sl_plan_placement){p->objects[o].class, p->objects[o].group, place->tier,
                                                        place->address, p->objects[o].bytes};
        }
    return SL_OK;
}

/* ---- entry points ---------------------------------------------------------------------------------------------- */

void sl_planning_end(sl_planning *planning)
{
    sl_search_destroy(planning->search);
    sl_analysis_destroy(planning->a);
}

/* The program is a part of a step of so many rounds. */
static sl_status stand_for(sl_search *search, int32_t rounds)
{
    const sl_program *p = search->a->program;
    bool matches;
    search->small = false;
    if (p->n_rounds != SL_UNROLL_ROUNDS)
        return SL_OK;
    SL_TRY(sl_alloc(&search->like, p->n_tasks + 1, sizeof *search->like));
    SL_TRY(sl_unroll_match(p, p, search->like, &matches));
    search->repeat = SL_MAX(rounds - p->n_rounds, 0);
    if (!matches) {
        sl_free(search->like);
        search->like = NULL;
    }
    return SL_OK;
}

sl_status sl_planning_begin(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                            sl_planning *planning)
{
    memset(planning, 0, sizeof *planning);
    SL_TRY(sl_analysis_create(program, costs, &planning->a));
    sl_status status = SL_OK;
    if (config->placements)
        status = match_placements(planning->a, config, &planning->fixed);
    if (status == SL_OK)
        status = sl_search_create(planning->a, config->placements ? &planning->fixed : NULL, config->budget,
                                  &planning->search);
    if (status == SL_OK)
        status = sl_bound_s(planning->a, config->budget[SL_TIER_DEVICE], &planning->search->bound_s);
    if (status == SL_OK && config->stands_for)
        status = stand_for(planning->search, config->stands_for);
    if (status != SL_OK)
        sl_planning_end(planning);
    return status;
}

sl_status sl_plan_minimum(const sl_program *program, const sl_costs *costs, const sl_plan_config *config, sl_tier tier,
                          size_t *bytes)
{
    sl_planning planning;
    SL_TRY(sl_planning_begin(program, costs, config, &planning));
    size_t found = 0;
    sl_status status = sl_search_minimum(planning.search, tier, &found);
    sl_planning_end(&planning);
    SL_TRY(status);
    *bytes = found;
    if (!found) {
        char given[256] = "";
        for (int other = 0, at = 0; other < SL_TIER_COUNT; other++) {
            char text[32];
            if (other != (int) tier)
                at += snprintf(given + at, sizeof given - (size_t) at, "%s%s of %s memory", at ? " and " : "",
                               sl_format_bytes(config->budget[other], text), sl_tier_name((sl_tier) other));
        }
        return sl_fail(SL_E_DOES_NOT_FIT, "no %s budget suffices with %s", sl_tier_name(tier), given);
    }
    return SL_OK;
}

static sl_status refuse(sl_search *search)
{
    char given[256] = "", least[512] = "";
    for (int tier = 0, at = 0, end = 0; tier < SL_TIER_COUNT; tier++) {
        char text[2][32];
        const char *name = sl_tier_name((sl_tier) tier);
        size_t minimum;
        SL_TRY(sl_search_minimum(search, (sl_tier) tier, &minimum));
        sl_format_bytes(search->budget[tier], text[0]);
        sl_format_bytes(minimum, text[1]);
        at += snprintf(given + at, sizeof given - (size_t) at, "%s%s of %s", tier ? " and " : "", text[0], name);
        if (minimum)
            end += snprintf(least + end, sizeof least - (size_t) end, "%s%s (%zu bytes) of %s memory",
                            tier ? " or " : "", text[1], minimum, name);
        else
            end += snprintf(least + end, sizeof least - (size_t) end, "%sno %s memory alone", tier ? " or " : "", name);
    }
    return sl_fail(SL_E_DOES_NOT_FIT,
                   "the step does not fit %s memory; with the other as given, %s would do: "
                   "raise one of them, or use fewer tokens per chunk",
                   given, least);
}

sl_status sl_planning_finish(const sl_planning *planning, const sl_plan_config *config, double start, sl_plan **plan)
{
    sl_search *search = planning->search;
    const sl_program *program = planning->a->program;
    const sl_costs *costs = planning->a->costs;
    sl_plan *out = NULL;
    SL_TRY(sl_search_plan(search, &out));
    sl_status status = sl_plan_compact(out, planning->fixed.end);
    if (status == SL_OK)
        status = list_placements(program, out);
    if (status != SL_OK) {
        sl_plan_destroy(out);
        return status;
    }
    memcpy(out->predicted.budget_bytes, config->budget, sizeof out->predicted.budget_bytes);
    sl_plan_simulate(program, costs, out);
    out->lower_bound_s = search->bound_s;
    out->limit = sl_find_limit(program, costs, out);
    out->evaluated = search->evaluated;
    out->plan_s = sl_clock_s() - start;
    *plan = out;
    return SL_OK;
}

double sl_planning_deadline_s(const sl_plan_config *config)
{
    return sl_search_clock_s() + (config->time_limit_s > 0 ? config->time_limit_s : DEFAULT_TIME_S);
}

sl_status sl_planning_search(const sl_planning *planning, const sl_plan_config *config, sl_plan **plan)
{
    double start = sl_clock_s();
    sl_search *search = planning->search;
    int32_t n_rounds = planning->a->program->n_rounds;
    bool feasible;
    SL_TRY(sl_search_feasible(search, &feasible));
    if (!feasible && config->no_advice)
        return sl_fail(SL_E_DOES_NOT_FIT, "the step does not fit its budgets");
    if (!feasible)
        return refuse(search);
    search->deadline_s = sl_planning_deadline_s(config);
    search->quick = config->quick;
    search->rival_s = config->rival_s;
    search->max_evaluations = config->max_evaluations;
    if (!search->max_evaluations)
        search->max_evaluations =
            (int64_t) SL_MIN(MOST_EVALUATIONS, SL_MAX(3, DEFAULT_WORK / SL_MAX(1, planning->a->n_entries)));
    search->enough_s = search->bound_s * (1 + (double) search->repeat / SL_MAX(n_rounds, 1)) * (1 + 5e-4);
    SL_TRY(sl_search_improve(search));
    return sl_planning_finish(planning, config, start, plan);
}

sl_status sl_plan_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config, sl_plan **plan)
{
    sl_planning planning;
    SL_TRY(sl_planning_begin(program, costs, config, &planning));
    sl_status status = sl_planning_search(&planning, config, plan);
    sl_planning_end(&planning);
    return status;
}
