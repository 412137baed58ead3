/*
 * One way to cut the step into rounds: its program, its plan, and the predicted time of the whole step. Where a step
 * has many rounds, four of them are planned, the second standing for all that are left out:
 *
 *   step time = time of four + (rounds - 4) x time from the end of the second to the end of the third
 *
 * The choices of the best candidate are then transferred to all rounds (unroll.h). Feasibility is checked on the four rounds
 * too, so objects that grow with the number of rounds (data in host memory, losses) count in full there.
 */
#include "plan/search/candidate.h"

#include <math.h>

#include "plan/internal.h"
#include "program/interleave.h"

#define MANY_ROUNDS 6   /* from here on four may represent all */
#define TOLERANCE 0.015 /* by how much the whole step may be slower than four rounds predict */

/* ---- its program ----------------------------------------------------------------------------------------------- */

void sl_candidate_forget(sl_candidate *c)
{
    sl_plan_destroy(c->plan);
    sl_guide_destroy(c->guide);
    sl_costs_destroy(c->costs);
    sl_program_destroy(c->program);
    c->plan = NULL;
    c->guide = NULL;
    c->costs = NULL;
    c->program = NULL;
}

sl_status sl_candidate_make(const sl_step *step, sl_candidate *c, bool cut)
{
    const sl_program_form form = {.chunks_per_round = c->chunks,
                                  .rounds = cut ? SL_UNROLL_ROUNDS : 0,
                                  .rematerialize = c->rematerialize,
                                  .workspace_limit = step->config.workspace_limit};
    SL_TRY(sl_program_derive(step->base, &form, &c->program));
    if (c->interleaved)
        SL_TRY(sl_interleave(c->program, &c->interleaved));
    return step->costs_of(step->costs_context, c->program, &c->costs);
}

static int64_t rounds_of(const sl_step *step, const sl_candidate *c)
{
    return SL_DIV_UP(step->chunks, c->chunks);
}

bool sl_candidate_has_many(const sl_step *step, const sl_candidate *c)
{
    return rounds_of(step, c) >= MANY_ROUNDS;
}

static bool is_cut(const sl_step *step, const sl_candidate *c)
{
    return step->large && sl_candidate_has_many(step, c);
}

bool sl_candidate_may_interleave(const sl_step *step, const sl_candidate *c)
{
    return step->large && rounds_of(step, c) >= 2 && !step->base->config.forward_only;
}

size_t sl_candidate_missing_bytes(const sl_step *step, const sl_candidate *c)
{
    return (size_t) SL_MAX(step->chunks - SL_UNROLL_ROUNDS * c->chunks, 0) * step->data_bytes;
}

sl_plan_config sl_candidate_config(const sl_step *step, const sl_candidate *c)
{
    sl_plan_config config = step->config;
    config.no_advice = true;
    config.stands_for = 0;
    if (!is_cut(step, c))
        return config;
    config.stands_for = (int32_t) rounds_of(step, c);
    if (config.budget[SL_TIER_HOST] != SIZE_MAX)
        config.budget[SL_TIER_HOST] -= SL_MIN(config.budget[SL_TIER_HOST], sl_candidate_missing_bytes(step, c));
    return config;
}

/* ---- predicted times ------------------------------------------------------------------------------------------ */

static double round_end_s(const sl_candidate *c, int32_t round)
{
    return sl_timeline_round_end_s(c->program, c->plan->actions, c->plan->n_actions, round);
}

static void estimate(const sl_step *step, sl_candidate *c)
{
    c->step_s = c->plan->predicted.step_s;
    if (c->cut)
        c->step_s += (double) (rounds_of(step, c) - SL_UNROLL_ROUNDS) * (round_end_s(c, 2) - round_end_s(c, 1));
}

double sl_candidate_bound_s(const sl_step *step, const sl_candidate *c)
{
    return c->plan->lower_bound_s * (c->cut ? (double) rounds_of(step, c) / SL_UNROLL_ROUNDS : 1);
}

/* Within half a percent of the bound: not worth looking further. */
bool sl_candidate_nothing_lost(const sl_step *step, const sl_candidate *c)
{
    return c->plan && c->step_s <= sl_candidate_bound_s(step, c) * 1.005;
}

/* Bytes over the links in the whole step. */
static double traffic(const sl_step *step, const sl_candidate *c)
{
    double bytes = 0;
    for (int link = 0; link < SL_LINK_COUNT; link++)
        bytes += c->plan->predicted.link_bytes[link];
    return c->cut ? bytes / SL_UNROLL_ROUNDS * (double) rounds_of(step, c) : bytes;
}

bool sl_candidate_better(const sl_step *step, const sl_candidate *a, const sl_candidate *b)
{
    if (!a->plan || !b->plan)
        return a->plan != NULL;
    double margin = a->cut || b->cut ? 5e-3 : 1e-6, s = a->step_s, t = b->step_s;
    if (fabs(s - t) > margin * t)
        return s < t;
    double x = traffic(step, a), y = traffic(step, b);
    return fabs(x - y) > 0.01 * y ? x < y : a->chunks > b->chunks;
}

/* ---- its plan -------------------------------------------------------------------------------------------------- */

sl_status sl_candidate_try(const sl_step *step, sl_candidate *c, bool quick, double rival_s)
{
    if (c->tried)
        return SL_OK;
    c->tried = true;
    c->cut = is_cut(step, c);
    sl_plan_config config = sl_candidate_config(step, c);
    config.quick = quick;
    config.rival_s = rival_s;
    SL_TRY(sl_candidate_make(step, c, c->cut));
    sl_status status = c->cut ? sl_guide_create(c->program, c->costs, &config, &c->guide, &c->plan)
                              : sl_plan_create(c->program, c->costs, &config, &c->plan);
    if (status == SL_E_DOES_NOT_FIT) {
        sl_candidate_forget(c);
        return SL_OK;
    }
    SL_TRY(status);
    estimate(step, c);
    return SL_OK;
}

sl_status sl_candidate_refine(const sl_step *step, sl_candidate *c)
{
    if (!c->guide || c->refined || sl_candidate_nothing_lost(step, c))
        return SL_OK;
    c->refined = true;
    sl_plan_config config = sl_candidate_config(step, c);
    SL_TRY(sl_guide_refine(c->guide, &config, &c->plan));
    estimate(step, c);
    return SL_OK;
}

sl_status sl_candidate_unroll(const sl_step *step, sl_candidate *c)
{
    sl_candidate whole = {.chunks = c->chunks, .interleaved = c->interleaved, .rematerialize = c->rematerialize};
    sl_plan_config quiet = step->config;
    quiet.no_advice = true;
    sl_plan *own = NULL;
    sl_status status = sl_candidate_make(step, &whole, false);
    if (status == SL_OK)
        status = sl_guide_follow(c->guide, whole.program, whole.costs, &step->config, &whole.plan);
    bool astray =
        status == SL_E_DOES_NOT_FIT || (status == SL_OK && whole.plan->predicted.step_s > c->step_s * (1 + TOLERANCE));
    if (astray)
        status = sl_plan_create(whole.program, whole.costs, &quiet, &own);
    if (status == SL_E_DOES_NOT_FIT && whole.plan)
        status = SL_OK;
    if (own && (!whole.plan || own->predicted.step_s < whole.plan->predicted.step_s)) {
        sl_plan_destroy(whole.plan);
        whole.plan = own;
    } else
        sl_plan_destroy(own);
    if (status != SL_OK) {
        sl_candidate_forget(&whole);
        return status;
    }
    whole.step_s = whole.plan->predicted.step_s;
    sl_candidate_forget(c);
    *c = whole;
    return SL_OK;
}
