/*
 * Transfers the choices that a search found on four rounds to the corresponding tasks and objects of the whole step
 * (unroll.h). The whole step differs by a percent from the prediction of four rounds, since addresses differ from round
 * to round. Therefore several of the best choices are tried, and one that becomes slower than the best is abandoned.
 */
#include "plan/search/unroll.h"

#include <string.h>

#include "core/clock.h"
#include "plan/search/planning.h"

struct sl_guide {
    sl_planning planning;
};

void sl_guide_destroy(sl_guide *guide)
{
    if (!guide)
        return;
    sl_planning_end(&guide->planning);
    sl_free(guide);
}

sl_status sl_guide_create(const sl_program *program, const sl_costs *costs, const sl_plan_config *config,
                          sl_guide **guide, sl_plan **plan)
{
    sl_guide *g;
    SL_TRY(sl_alloc(&g, 1, sizeof *g));
    sl_status status = sl_planning_begin(program, costs, config, &g->planning);
    if (status != SL_OK) {
        sl_free(g);
        return status;
    }
    status = sl_planning_search(&g->planning, config, plan);
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
    sl_search *search = guide->planning.search;
    search->deadline_s = sl_planning_deadline_s(config);
    search->rival_s = 0;
    SL_TRY(sl_search_refine(search, &better));
    if (!better)
        return SL_OK;
    SL_TRY(sl_planning_finish(&guide->planning, config, start, &refined));
    sl_plan_destroy(*plan);
    *plan = refined;
    return SL_OK;
}

/* A choice of the guide, transferred to the tasks and persistent objects of the longer program. False: they do not
 * correspond. */
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
        choice->placement[o] = best->placement[i++];
    }
    choice->slack = best->slack;
    choice->fit = best->fit;
    choice->on_demand = best->on_demand;
    return true;
}

/* Evaluates `trial`; if it is infeasible, a second time with the resulting gaps. */
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

/* So close to the bound that no other choice needs a trial. */
static bool lost_little(const sl_search *search)
{
    return search->found && search->best_s <= 1.002 * search->bound_s;
}

sl_status sl_guide_follow(const sl_guide *guide, const sl_program *program, const sl_costs *costs,
                          const sl_plan_config *config, sl_plan **plan)
{
    double start = sl_clock_s();
    const sl_search *promising = guide->planning.search;
    sl_planning planning;
    int32_t *match;
    bool follows;
    SL_TRY(sl_planning_begin(program, costs, config, &planning));
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
        status = sl_planning_finish(&planning, config, start, plan);
    else
        status = sl_fail(SL_E_DOES_NOT_FIT, "choices made for a few rounds do not fit all of them");
end:
    sl_planning_end(&planning);
    return status;
}
