/*
 * Step time over chunks per round falls while weights and gradients cross the link less often, and rises again when
 * activations no longer find space: one valley, as a rule. So the candidates are walked downhill from a guess (as many
 * chunks as memory holds activations for) instead of all being planned.
 *
 * Rounds of large steps overlap (interleave.h), unless, in the end, one after the other is faster. And where much is recomputed
 * that backwards could make on their way, the same rounds are planned with backwards that do.
 *
 * What is compared is what each candidate promises for the whole step (candidate.h), from four of its rounds where
 * there are many. The smallest budgets are evaluated in the same way, so the two agree.
 */
#include "plan/search/rounds.h"

#include <math.h>

#include "core/clock.h"
#include "core/status.h"
#include "plan/search/candidate.h"

#define MAX_CANDIDATES 64
#define MANY_TASKS 10000 /* in the step; below, there is time to plan all of them */
#define COSTLY 1.03      /* times the bound: worth trying the rounds one after the other */
#define CLOSE 1.03       /* times the best first look: may be better in the end */
#define APART 1e-3       /* of the step: enough is recomputed apart to try backwards that make it */
#define PROMISING 1.002  /* times the best, searched to the end: a first look that is worth the same */
#define AS_GOOD 1.01     /* times the best: a first look that a search to the end may better */

typedef struct sl_rounds {
    sl_step step;
    sl_candidate list[MAX_CANDIDATES];
    int count;
    bool interleaved;
    bool quick; /* candidates get a first look only */
} sl_rounds;

/* 1, 2, 3, 4, 6, 8, 12, ... and all of them; in whole sequences where these are cut into slices. */
static void list_candidates(sl_rounds *r)
{
    const sl_chunking *c = &r->step.base->config.chunking;
    int64_t unit = sl_chunking_slices(c), chunks = sl_chunking_chunks(c), fixed = r->step.config.chunks_per_round;
    r->step.chunks = chunks;
    if (fixed > 0 || r->step.base->config.forward_only) {
        r->list[r->count++].chunks = fixed > 0 ? sl_chunking_round(c, fixed) : unit;
        return;
    }
    for (int64_t n = unit, power = unit; n < chunks && r->count < MAX_CANDIDATES - 1;) {
        r->list[r->count++].chunks = n;
        if (n == power && n > unit)
            n = power / 2 * 3;
        else
            n = power = n == unit ? 2 * unit : power * 2;
    }
    r->list[r->count++].chunks = chunks;
}

/* Bytes a chunk's activations would like to keep between forward and backward, and what else there is. */
static int guess(const sl_rounds *r, const sl_program *p)
{
    double activations = 0, others = 0, space = 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        if (p->objects[o].class == SL_CLASS_ACTIVATION)
            activations += 0.55 * (double) p->objects[o].bytes; /* the rest is cheap to recompute */
        else if (p->objects[o].persistent || p->objects[o].class == SL_CLASS_GRADIENT)
            others += (double) p->objects[o].bytes;
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        space += fmin((double) r->step.config.budget[tier], 1e18);
    double chunks = fmax(space - others, 0) / fmax(activations / SL_MAX(p->n_chunks, 1), 1);
    int at = 0;
    while (at + 1 < r->count && (double) r->list[at + 1].chunks <= chunks)
        at++;
    return at;
}

/* Looks at four of the smallest rounds (or all, if there are no more): is the step large, and where to start? */
static sl_status size_up(sl_rounds *r, int *start)
{
    sl_candidate probe = {.chunks = r->list[0].chunks};
    sl_status status = sl_candidate_make(&r->step, &probe, sl_candidate_has_many(&r->step, &probe));
    if (status == SL_OK) {
        for (int32_t o = 0; o < probe.program->n_objects; o++)
            if (probe.program->objects[o].class == SL_CLASS_DATA && probe.program->objects[o].chunk >= 0)
                r->step.data_bytes += SL_ROUND_UP(probe.program->objects[o].bytes, (size_t) SL_ALIGN);
        r->step.data_bytes /= (size_t) probe.program->n_chunks;
        r->step.large = probe.program->n_tasks / SL_MAX(1, probe.program->n_chunks) * r->step.chunks >= MANY_TASKS;
        *start = guess(r, probe.program);
    }
    sl_candidate_forget(&probe);
    return status;
}

/* Of the candidates so far; 0: none. */
static double fastest_s(const sl_rounds *r)
{
    double fastest = 0;
    for (int i = 0; i < r->count; i++)
        if (r->list[i].plan && (fastest == 0 || r->list[i].step_s < fastest))
            fastest = r->list[i].step_s;
    return fastest;
}

static sl_status try_candidate(const sl_rounds *r, sl_candidate *c)
{
    if (!c->tried)
        c->interleaved = r->interleaved;
    return sl_candidate_try(&r->step, c, r->quick, fastest_s(r));
}

/* A candidate that another one beats; one as good as that is kept for the last comparison. */
static void lay_aside(const sl_rounds *r, sl_candidate *c, const sl_candidate *by)
{
    if (!r->step.large || !c->plan || c->step_s > CLOSE * by->step_s)
        sl_candidate_forget(c);
}

/* From `at` in one direction as long as it gets better; smaller rounds get a second chance, since they need less memory
 * and may suddenly fit without any copies. */
static sl_status descend(sl_rounds *r, int *at, int way)
{
    int misses = 0;
    for (int next = *at + way; next >= 0 && next < r->count; next += way) {
        SL_TRY(try_candidate(r, &r->list[next]));
        if (!sl_candidate_better(&r->step, &r->list[next], &r->list[*at])) {
            bool fits = r->list[*at].plan != NULL;
            lay_aside(r, &r->list[next], &r->list[*at]);
            if (way > 0 || (fits && misses++ > 0))
                break;
            continue;
        }
        lay_aside(r, &r->list[*at], &r->list[next]);
        *at = next;
        misses = 0;
    }
    return SL_OK;
}

/* Much memory starts the walk at large rounds, and it may end before it comes to the small ones that little memory
 * starts at: more memory must not do worse. */
static sl_status climb_from_least(sl_rounds *r, int *at)
{
    for (int i = 0; i < *at && i < (r->step.large ? 2 : 1); i++) {
        SL_TRY(try_candidate(r, &r->list[i]));
        if (!r->list[*at].plan || sl_candidate_better(&r->step, &r->list[i], &r->list[*at])) {
            lay_aside(r, &r->list[*at], &r->list[i]);
            *at = i;
        }
    }
    return SL_OK;
}

/* `other`, where it is better; the one that is not goes. */
static void replace(sl_candidate *c, sl_candidate *other, bool better)
{
    sl_candidate_forget(better ? c : other);
    if (better)
        *c = *other;
}

/* The other order of the same rounds; the better one stays. */
static sl_status try_other_order(sl_rounds *r, sl_candidate *c)
{
    if (!sl_candidate_may_interleave(&r->step, c) || sl_candidate_nothing_lost(&r->step, c))
        return SL_OK;
    sl_candidate other = {.chunks = c->chunks};
    r->interleaved = !c->interleaved;
    sl_status status = try_candidate(r, &other);
    if (status != SL_OK) {
        sl_candidate_forget(&other);
        return status;
    }
    replace(c, &other, sl_candidate_better(&r->step, &other, c));
    return SL_OK;
}

/* The second best of the candidates, if it may be the best after all; -1: none. */
static int runner_up(const sl_rounds *r, int best)
{
    int second = -1;
    for (int i = 0; i < r->count; i++)
        if (i != best && r->list[i].step_s > 0 && r->list[i].step_s <= CLOSE * r->list[best].step_s &&
            (second < 0 || r->list[i].step_s < r->list[second].step_s))
            second = i;
    return second;
}

/* Rounds of a small step were compared by a first look; the best two are searched to the end. */
static sl_status polish(sl_rounds *r, int *best)
{
    int pair[2] = {*best, runner_up(r, *best)};
    if (!r->quick || !r->list[*best].plan || sl_candidate_nothing_lost(&r->step, &r->list[*best]))
        return SL_OK;
    r->quick = false;
    for (int i = 0; i < 2 && pair[i] >= 0; i++) {
        sl_candidate *c = &r->list[pair[i]];
        sl_candidate_forget(c);
        c->tried = false;
        SL_TRY(try_candidate(r, c));
    }
    if (pair[1] >= 0 && sl_candidate_better(&r->step, &r->list[pair[1]], &r->list[pair[0]]))
        *best = pair[1];
    return SL_OK;
}

static sl_status run(sl_rounds *r, int *best)
{
    int at = 0, from;
    SL_TRY(size_up(r, &from));
    r->interleaved = r->step.large;
    r->quick = !r->step.large && r->count > 1;
    SL_TRY(try_candidate(r, &r->list[0])); /* the smallest rounds are planned fastest, and may lose nothing already */
    if (!sl_candidate_nothing_lost(&r->step, &r->list[0])) {
        at = from;
        SL_TRY(try_candidate(r, &r->list[at]));
        SL_TRY(descend(r, &at, -1));
        if (at == from)
            SL_TRY(descend(r, &at, 1));
        SL_TRY(climb_from_least(r, &at));
        sl_candidate *c = &r->list[at];
        SL_TRY(sl_candidate_refine(&r->step, c));
        if (!c->plan || c->step_s > COSTLY * sl_candidate_bound_s(&r->step, c)) {
            SL_TRY(try_other_order(r, c));
            SL_TRY(sl_candidate_refine(&r->step, c));
        }
        SL_TRY(polish(r, &at));
    }
    *best = at;
    return SL_OK;
}

/* Of the candidates whose four rounds had a first look, the most promising; NULL: there is none. */
static sl_candidate *second_look(sl_rounds *r)
{
    sl_candidate *second = NULL;
    for (int i = 0; i < r->count; i++)
        if (r->list[i].guide && (!second || r->list[i].step_s < second->step_s))
            second = &r->list[i];
    return second;
}

/* The whole step by the best candidate. It may turn out slower than promised, and a first look is not all there is to a candidate: few
 * rounds, which are planned to the end at once, and one more of the others are held against it. */
static sl_status finish(sl_rounds *r, int *best)
{
    double within = r->list[*best].cut ? AS_GOOD : CLOSE;
    if (r->list[*best].cut)
        SL_TRY(sl_candidate_unroll(&r->step, &r->list[*best]));
    for (int i = 0; i < r->count; i++)
        if (r->list[i].plan && !r->list[i].guide && r->list[i].step_s < r->list[*best].step_s)
            *best = i, within = CLOSE;
    sl_candidate *c = &r->list[*best], *other = second_look(r);
    if (!other || other->step_s > within * c->step_s || sl_candidate_nothing_lost(&r->step, c))
        return SL_OK;
    SL_TRY(sl_candidate_refine(&r->step, other));
    if (other->step_s >= c->step_s)
        return SL_OK;
    sl_status status = sl_candidate_unroll(&r->step, other);
    if (status == SL_OK && other->step_s < c->step_s)
        *best = (int) (other - r->list);
    return status == SL_E_DOES_NOT_FIT ? SL_OK : status;
}

/* Seconds of the step in which is recomputed what backwards can make on their way. */
static double made_apart_s(const sl_candidate *c)
{
    double seconds = 0;
    for (int32_t i = 0; i < c->plan->n_actions; i++) {
        const sl_action *a = &c->plan->actions[i];
        if (a->kind != SL_ACTION_TASK || !a->recompute)
            continue;
        const sl_task *task = &c->program->tasks[a->task];
        seconds += sl_op(task->op)->backward_rematerializes ? c->costs->device_s[task->signature] : 0;
    }
    return seconds;
}

/* The best, whole by now, against rounds like `like` with backwards that make it; the better one stays. */
static sl_status try_rematerialize(const sl_rounds *r, const sl_candidate *like, sl_candidate *best)
{
    sl_candidate other = {.chunks = like->chunks, .interleaved = like->interleaved, .rematerialize = true};
    sl_status status = sl_candidate_try(&r->step, &other, r->quick, best->step_s);
    if (status == SL_OK && other.cut && other.plan && other.step_s < PROMISING * best->step_s) {
        status = sl_candidate_refine(&r->step, &other);
        if (status == SL_OK)
            status = sl_candidate_unroll(&r->step, &other);
    }
    bool better = status == SL_OK && other.plan && !other.cut && other.step_s < best->step_s;
    if (better) /* the bound of both */
        other.plan->lower_bound_s = fmin(other.plan->lower_bound_s, best->plan->lower_bound_s);
    replace(best, &other, better);
    return status == SL_E_DOES_NOT_FIT ? SL_OK : status;
}

/* Where much is made apart: the best's rounds, and those that looked as good. */
static sl_status try_rounds_rematerialize(const sl_rounds *r, sl_candidate *best)
{
    if (made_apart_s(best) <= APART * best->step_s)
        return SL_OK;
    sl_candidate like[MAX_CANDIDATES];
    int count = 0;
    for (int i = 0; i < r->count; i++)
        if (r->list[i].step_s > 0 && r->list[i].step_s <= AS_GOOD * best->step_s)
            like[count++] = r->list[i];
    for (int i = 0; i < count; i++)
        SL_TRY(try_rematerialize(r, &like[i], best));
    return SL_OK;
}

/* Whatever fits. */
static sl_status plan_smallest(const sl_rounds *r, sl_candidate *c)
{
    sl_candidate_forget(c);
    *c = (sl_candidate){.chunks = r->list[0].chunks};
    SL_TRY(sl_candidate_make(&r->step, c, false));
    return sl_plan_create(c->program, c->costs, &r->step.config, &c->plan);
}

/* Of 12 GiB a tenth is well spent (8B: attention's backward on two streams instead of one, 3 % of the step); of more,
 * twice as much is worth 1 % to attention and costs as much elsewhere. */
size_t sl_plan_workspace_limit(size_t device_budget)
{
    const size_t enough = (size_t) 5 << 28;
    if (device_budget == SIZE_MAX)
        return 0;
    return SL_MAX(SL_MAX(device_budget / 20, SL_MIN(device_budget / 10, enough)), (size_t) 1);
}

sl_status sl_plan_best(const sl_program *base, sl_costs_fn costs_of, void *costs_context, const sl_plan_config *config,
                       sl_program **program, sl_costs **costs, sl_plan **plan)
{
    double start = sl_clock_s();
    sl_rounds r = {.step = {.base = base, .costs_of = costs_of, .costs_context = costs_context, .config = *config}};
    list_candidates(&r);
    int best = 0;
    sl_status status = run(&r, &best);
    sl_candidate *c = &r.list[best];
    if (status == SL_OK && !c->plan)
        status = sl_fail(SL_E_DOES_NOT_FIT, "the step does not fit its budgets, however it is cut into rounds");
    else if (status == SL_OK) {
        status = finish(&r, &best);
        c = &r.list[best];
        if (status == SL_E_DOES_NOT_FIT) /* four rounds fit, all of them did not */
            status = plan_smallest(&r, c);
        else if (status == SL_OK)
            status = try_rounds_rematerialize(&r, c);
    }
    if (status == SL_OK) {
        c->plan->plan_s = sl_clock_s() - start;
        *program = c->program;
        *costs = c->costs;
        *plan = c->plan;
        c->program = NULL;
        c->costs = NULL;
        c->plan = NULL;
    }
    for (int i = 0; i < r.count; i++)
        sl_candidate_forget(&r.list[i]);
    return status;
}

/* The smallest rounds need least, one after the other or interleaved. */
sl_status sl_plan_best_minimum(const sl_program *base, sl_costs_fn costs_of, void *costs_context,
                               const sl_plan_config *config, sl_tier tier, size_t *bytes)
{
    sl_rounds r = {.step = {.base = base, .costs_of = costs_of, .costs_context = costs_context, .config = *config}};
    list_candidates(&r);
    *bytes = 0;
    int start = 0;
    SL_TRY(size_up(&r, &start));
    sl_candidate *smallest = &r.list[0];
    sl_plan_config evaluated = sl_candidate_config(&r.step, smallest);
    sl_status status = SL_OK;
    for (int order = 0; order < (sl_candidate_may_interleave(&r.step, smallest) ? 2 : 1) && status == SL_OK; order++) {
        size_t least = 0;
        smallest->interleaved = order == 1;
        status = sl_candidate_make(&r.step, smallest, evaluated.stands_for > 0);
        if (status == SL_OK)
            status = sl_plan_minimum(smallest->program, smallest->costs, &evaluated, tier, &least);
        if (status == SL_E_DOES_NOT_FIT)
            status = SL_OK;
        else if (status == SL_OK)
            *bytes = *bytes ? SL_MIN(*bytes, least) : least; /* of the program as cut */
        sl_candidate_forget(smallest);
    }
    if (*bytes && tier == SL_TIER_HOST && evaluated.stands_for)
        *bytes += sl_candidate_missing_bytes(&r.step, smallest);
    if (status == SL_OK && !*bytes)
        status = sl_fail(SL_E_DOES_NOT_FIT, "no budget of this tier suffices with the other as given");
    return status;
}
