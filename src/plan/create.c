/*
 * From budgets to a plan, and the smallest budgets. Both ask the same judge (sl_search_feasible), so that a plan is found at the
 * minimum and refused one step below it, whatever the judge's limits are.
 */
#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/text.h"
#include "plan/bounds.h"
#include "plan/unroll.h"

#define DEFAULT_TIME_S 3.0 /* a safety net; evaluations end the search first */
#define DEFAULT_WORK 1.2e6 /* evaluations x entries */
#define MOST_EVALUATIONS 15000

const char *sl_limit_name(sl_limit limit)
{
    static const char *const names[] = {"compute",      "recompute",    "link in",   "link out",
                                        "host compute", "device bytes", "host bytes"};
    return names[limit];
}

void sl_plan_destroy(sl_plan *plan)
{
    if (plan)
        sl_region_destroy(plan->region);
}

/* ---- homes shared with another plan --------------------------------------------------------------------------------- */

static sl_status match_homes(const sl_analysis *a, const sl_plan *other, sl_fixed_homes *fixed)
{
    const sl_program *p = a->program;
    SL_TRY(sl_region_alloc(a->region, &fixed->address, p->n_objects + 1, sizeof *fixed->address));
    SL_TRY(sl_region_alloc(a->region, &fixed->tier, p->n_objects + 1, 1));
    uint8_t *taken;
    SL_TRY(sl_region_alloc(a->region, &taken, other->n_persistent + 1, 1));
    for (int32_t o = 0; o < p->n_objects; o++) {
        const sl_object *object = &p->objects[o];
        if (!object->persistent)
            continue;
        int32_t i = 0;
        while (i < other->n_persistent &&
               (taken[i] || other->persistent[i].class != object->class || other->persistent[i].group != object->group))
            i++;
        if (i == other->n_persistent || other->persistent[i].bytes != object->bytes)
            return sl_fail(SL_E_INTERNAL, "%s has no home in the plan whose memory is to be shared", object->name);
        taken[i] = 1;
        fixed->address[o] = other->persistent[i].address;
        fixed->tier[o] = (uint8_t) other->persistent[i].tier;
    }
    for (int32_t i = 0; i < other->n_persistent; i++) {
        const sl_plan_home *home = &other->persistent[i];
        size_t end = home->address + SL_ROUND_UP(home->bytes, (size_t) SL_ALIGN);
        fixed->end[home->tier] = SL_MAX(fixed->end[home->tier], end);
    }
    return SL_OK;
}

static sl_status list_homes(const sl_program *p, sl_plan *plan)
{
    for (int32_t o = 0; o < p->n_objects; o++)
        plan->n_persistent += p->objects[o].persistent;
    SL_TRY(sl_region_alloc(plan->region, &plan->persistent, plan->n_persistent + 1, sizeof *plan->persistent));
    int32_t n = 0;
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent) {
            const sl_place *place = &plan->places[plan->home[o]];
            plan->persistent[n++] = (sl_plan_home){p->objects[o].class, p->objects[o].group, place->tier,
                                                   place->address, p->objects[o].bytes};
        }
    return SL_OK;
}

/* ---- entry points --------------------------------------------------------------------------------------------------- */

typedef struct sl_planning {
    sl_analysis *a;
    sl_fixed_homes fixed;
    sl_search *search;
} sl_planning;

static void end_planning(sl_planning *planning)
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

static sl_status begin_planning(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                                sl_planning *planning)
{
    memset(planning, 0, sizeof *planning);
    SL_TRY(sl_analysis_create(program, costs, &planning->a));
    sl_status status = SL_OK;
    if (config->homes)
        status = match_homes(planning->a, config->homes, &planning->fixed);
    if (status == SL_OK)
        status =
            sl_search_create(planning->a, config->homes ? &planning->fixed : NULL, config->budget, &planning->search);
    if (status == SL_OK)
        status = sl_bound_s(planning->a, config->budget[SL_TIER_DEVICE], &planning->search->bound_s);
    if (status == SL_OK && config->stands_for)
        status = stand_for(planning->search, config->stands_for);
    if (status != SL_OK)
        end_planning(planning);
    return status;
}

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

/* Asks for `bytes`; if accepted, *high becomes that, or what the plan really used if that is accepted too; else *low does. */
static sl_status narrow(sl_search *search, sl_tier tier, size_t bytes, size_t *low, size_t *high)
{
    bool yes;
    size_t grain = sl_search_grain(search, tier);
    SL_TRY(fits(search, tier, bytes, &yes));
    *(yes ? high : low) = bytes;
    size_t used = SL_ROUND_UP(search->used[tier], grain);
    if (!yes || used >= *high || used <= *low)
        return SL_OK;
    SL_TRY(fits(search, tier, used, &yes));
    *(yes ? high : low) = used;
    return SL_OK;
}

/* The smallest budget of `tier` that the judge accepts. Nothing guarantees that it accepts all larger ones, but the answer is a
 * point where it accepts and one step below refuses, and sl_plan_create asks the same judge. What an accepted plan really used
 * often is that point already; else the interval is halved. */
static sl_status find_minimum(sl_search *search, sl_tier tier, size_t *bytes)
{
    size_t given = search->budget[tier], least = least_possible(search, tier), low = 0, high = 0;
    size_t grain = sl_search_grain(search, tier);
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

sl_status sl_plan_minimum(const sl_program *program, const sl_costs *costs, const sl_plan_config *config, sl_tier tier,
                          size_t *bytes)
{
    sl_planning planning;
    SL_TRY(begin_planning(program, costs, config, &planning));
    size_t found = 0;
    sl_status status = find_minimum(planning.search, tier, &found);
    end_planning(&planning);
    SL_TRY(status);
    *bytes = found;
    if (!found) {
        char given[32];
        sl_format_bytes(config->budget[tier == SL_TIER_DEVICE ? SL_TIER_HOST : SL_TIER_DEVICE], given);
        return sl_fail(SL_E_DOES_NOT_FIT, "no %s budget suffices with %s of %s memory",
                       tier == SL_TIER_DEVICE ? "device" : "host", given, tier == SL_TIER_DEVICE ? "host" : "device");
    }
    return SL_OK;
}

static sl_status refuse(sl_search *search)
{
    char text[4][32], part[2][96];
    size_t minimum[SL_TIER_COUNT];
    static const char *const names[SL_TIER_COUNT] = {"device", "host"};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        SL_TRY(find_minimum(search, (sl_tier) tier, &minimum[tier]));
        sl_format_bytes(search->budget[tier], text[tier]);
        sl_format_bytes(minimum[tier], text[2 + tier]);
        if (minimum[tier])
            snprintf(part[tier], sizeof part[tier], "%s (%zu bytes) of %s memory", text[2 + tier], minimum[tier],
                     names[tier]);
        else
            snprintf(part[tier], sizeof part[tier], "no %s memory alone", names[tier]);
    }
    return sl_fail(
        SL_E_DOES_NOT_FIT,
        "the step does not fit %s of device and %s of host memory; with the other as given, %s or %s would do: "
        "raise one of them, or use fewer tokens per chunk",
        text[0], text[1], part[0], part[1]);
}

/* What a finished search leaves in a plan beside the schedule. */
static sl_status finish(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                        sl_search *search, double start, sl_plan **plan)
{
    sl_plan *out = NULL;
    SL_TRY(sl_search_plan(search, &out));
    sl_status status = list_homes(program, out);
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

static sl_status search_plan(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                             sl_planning *planning, sl_plan **plan)
{
    double start = sl_clock_s();
    sl_search *search = planning->search;
    bool feasible;
    SL_TRY(sl_search_feasible(search, &feasible));
    if (!feasible && config->no_advice)
        return sl_fail(SL_E_DOES_NOT_FIT, "the step does not fit its budgets");
    if (!feasible)
        return refuse(search);
    search->deadline_s = sl_search_clock_s() + (config->time_limit_s > 0 ? config->time_limit_s : DEFAULT_TIME_S);
    search->quick = config->quick;
    search->rival_s = config->rival_s;
    search->max_evaluations = config->max_evaluations;
    if (!search->max_evaluations)
        search->max_evaluations =
            (int64_t) SL_MIN(MOST_EVALUATIONS, SL_MAX(3, DEFAULT_WORK / SL_MAX(1, planning->a->n_entries)));
    search->enough_s = search->bound_s * (1 + (double) search->repeat / SL_MAX(program->n_rounds, 1)) * (1 + 5e-4);
    SL_TRY(sl_search_improve(search));
    return finish(program, costs, config, search, start, plan);
}

sl_status sl_plan_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config, sl_plan **plan)
{
    sl_planning planning;
    SL_TRY(begin_planning(program, costs, config, &planning));
    sl_status status = search_plan(program, costs, config, &planning, plan);
    end_planning(&planning);
    return status;
}

/* ---- following the choices of a shorter program ------------------------------------------------------------------------ */

struct sl_guide {
    sl_planning planning;
};

void sl_guide_destroy(sl_guide *guide)
{
    if (!guide)
        return;
    end_planning(&guide->planning);
    sl_free(guide);
}

sl_status sl_guide_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                          sl_guide **guide, sl_plan **plan)
{
    sl_guide *g;
    SL_TRY(sl_alloc(&g, 1, sizeof *g));
    sl_status status = begin_planning(program, costs, config, &g->planning);
    if (status != SL_OK) {
        sl_free(g);
        return status;
    }
    status = search_plan(program, costs, config, &g->planning, plan);
    if (status != SL_OK) {
        sl_guide_destroy(g);
        return status;
    }
    *guide = g;
    return SL_OK;
}

sl_status sl_guide_refine(sl_guide *guide, const sl_plan_config *config, sl_plan **plan)
{
    double start = sl_clock_s();
    bool better;
    sl_plan *refined;
    const sl_analysis *a = guide->planning.a;
    guide->planning.search->deadline_s =
        sl_search_clock_s() + (config->time_limit_s > 0 ? config->time_limit_s : DEFAULT_TIME_S);
    guide->planning.search->rival_s = 0;
    SL_TRY(sl_search_refine(guide->planning.search, &better));
    if (!better)
        return SL_OK;
    SL_TRY(finish(a->program, a->costs, config, guide->planning.search, start, &refined));
    sl_plan_destroy(*plan);
    *plan = refined;
    return SL_OK;
}

/* A choice of the guide's, spread over the tasks and persistent objects of the longer program. False: they do not correspond. */
static bool spread(const sl_guide *guide, const sl_choice *best, sl_search *search, const int32_t *match)
{
    const sl_analysis *from = guide->planning.a, *to = search->a;
    sl_choice *choice = &search->trial;
    for (int32_t t = 0; t < to->program->n_tasks; t++) {
        int32_t like = match[t], count = to->first[t + 1] - to->first[t];
        if (count != from->first[like + 1] - from->first[like])
            return false;
        memcpy(choice->gap + to->first[t], best->gap + from->first[like], (size_t) count);
        memcpy(choice->side + to->first[t], best->side + from->first[like], (size_t) count);
        choice->on_host[t] = best->on_host[like];
    }
    for (int32_t o = 0, i = 0; o < to->program->n_objects; o++) {
        if (!to->program->objects[o].persistent)
            continue;
        while (i < from->program->n_objects && !from->program->objects[i].persistent)
            i++;
        if (i == from->program->n_objects || from->program->objects[i].bytes != to->program->objects[o].bytes)
            return false;
        choice->home[o] = best->home[i++];
    }
    choice->slack = best->slack;
    choice->fit = best->fit;
    choice->on_demand = best->on_demand;
    return true;
}

/* Evaluates `trial`; if it is stuck, once more with the gaps as they turned out. */
static sl_status consider_twice(sl_search *search)
{
    bool again = true;
    for (int i = 0; i < 2 && again; i++) {
        sl_outcome outcome;
        SL_TRY(sl_search_consider(search, &outcome));
        again = !outcome.feasible && outcome.forced && !outcome.behind;
        if (again)
            memcpy(search->trial.gap, search->actual, (size_t) search->a->n_entries);
    }
    return SL_OK;
}

/* So near to the bound that another choice is not worth trying. */
static bool lost_little(const sl_search *search)
{
    return search->found && search->best_s <= 1.002 * search->bound_s;
}

/* The whole step differs by a percent from what four rounds promise, since addresses differ from round to round: the most promising
 * choices are tried, not the best one alone. */
sl_status sl_guide_follow(const sl_guide *guide, const sl_program *program, const sl_costs *costs,
                          const sl_plan_config *config, sl_plan **plan)
{
    double start = sl_clock_s();
    const sl_search *promising = guide->planning.search;
    sl_planning planning;
    int32_t *match;
    bool follows;
    SL_TRY(begin_planning(program, costs, config, &planning));
    sl_search *search = planning.search;
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(planning.a->region, &match, program->n_tasks + 1, sizeof *match), end);
    SL_TRY_GOTO(sl_unroll_match(guide->planning.a->program, program, match, &follows), end);
    search->max_evaluations = INT64_MAX;
    search->paced = true;
    for (int i = 0; i < promising->n_shortlist && follows && !lost_little(search); i++)
        if (spread(guide, &promising->shortlist[i], search, match))
            SL_TRY_GOTO(consider_twice(search), end);
    if (search->found)
        status = finish(program, costs, config, search, start, plan);
    else
        status = sl_fail(SL_E_DOES_NOT_FIT, "choices made for a few rounds do not fit all of them");
end:
    end_planning(&planning);
    return status;
}
