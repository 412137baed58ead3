/*
 * Over the number of chunks per round, step time falls while weights and gradients cross the link less often, and rises
 * when activations no longer fit: usually one minimum. So the search descends from a guess (as many chunks as memory holds
 * activations for) instead of planning all candidates.
 *
 * Rounds of large steps are interleaved (interleave.h), unless sequential rounds are faster in the end. Where much is recomputed that
 * backwards could rematerialize, the same rounds are planned with such backwards.
 *
 * Candidates are compared by their prediction for the whole step (candidate.h), from four of its rounds where there are
 * many. The smallest budgets are evaluated in the same way, so the two agree.
 */
#include "plan/search/rounds.h"

#include <math.h>

#include "core/clock.h"
#include "core/status.h"
#include "plan/search/candidate.h"

#define MAX_CANDIDATES 64
#define MANY_TASKS 10000 /* in the step; below, there is time to plan all of them */
#define COSTLY 1.03      /* times the bound: sequential rounds are tried */
#define FAR 1.1          /* times the bound: short searches have missed something */
#define CLOSE 1.03       /* times the best short search: may be better in the end */
#define APART 1e-3      /* of the step: share of such recomputation from which backwards that rematerialize are tried */
#define PROMISING 1.002 /* times the best of a full search: a short search that deserves one */
#define AS_GOOD 1.01    /* times the best: a short search that a full one may improve to the best */

typedef struct sl_rounds {
    sl_step step;
    sl_candidate list[MAX_CANDIDATES];
    int count;
    bool interleaved;
    bool quick; /* candidates get a short search only */
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

/* Bytes of a chunk's activations between forward and backward, and all other bytes. */
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

/* From four of the smallest rounds (or all, if there are fewer): is the step large, and where does the search start? */
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

/* Moves from `at` in one direction as long as it improves. Towards smaller rounds one failure is tolerated, since they need
 * less memory and may suddenly fit without any copies. */
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

/* With much memory the search starts at large rounds and may end before the small ones at which it starts with little
 * memory. More memory must not give a slower plan. */
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

/* Keeps the better of the two and destroys the other. */
static void replace(sl_candidate *c, sl_candidate *other, bool better)
{
    sl_candidate_forget(better ? c : other);
    if (better)
        *c = *other;
}

/* Tries the other order of the same rounds and keeps the better one. */
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

/* The second best candidate, if it may still be the best; -1: none. */
static int runner_up(const sl_rounds *r, int best)
{
    int second = -1;
    for (int i = 0; i < r->count; i++)
        if (i != best && r->list[i].step_s > 0 && r->list[i].step_s <= CLOSE * r->list[best].step_s &&
            (second < 0 || r->list[i].step_s < r->list[second].step_s))
            second = i;
    return second;
}

static bool is_far(const sl_step *step, const sl_candidate *c)
{
    return c->step_s > FAR * sl_candidate_bound_s(step, c);
}

/* Rounds of a small step were compared by a short search. The best two get a full one; all of them where the best is far from its
 * bound: with little host memory the time over the rounds has several minima, and a short search may find none of them. */
static sl_status polish(sl_rounds *r, int *best)
{
    const sl_candidate *c = &r->list[*best];
    if (!r->quick || !c->plan || sl_candidate_nothing_lost(&r->step, c))
        return SL_OK;
    const bool far = is_far(&r->step, c);
    const int first = *best, second = runner_up(r, first);
    r->quick = false;
    for (int i = -1; i < r->count; i++) {
        int at = i < 0 ? first : i; /* the best goes first: others may stop where they cannot reach it */
        if (i >= 0 && (i == first || (i != second && !far)))
            continue;
        sl_candidate_forget(&r->list[at]);
        r->list[at].tried = false;
        SL_TRY(sl_candidate_try(&r->step, &r->list[at], false, far ? 0 : fastest_s(r)));
        if (sl_candidate_better(&r->step, &r->list[at], &r->list[*best]))
            *best = at;
    }
    return SL_OK;
}

static sl_status run(sl_rounds *r, int *best)
{
    int at = 0, from;
    SL_TRY(size_up(r, &from));
    r->interleaved = r->step.large;
    r->quick = !r->step.large && r->count > 1;
    SL_TRY(try_candidate(r, &r->list[0])); /* the smallest rounds are planned fastest and may reach the bound already */
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

/* The best candidate whose four rounds had only a short search; NULL: none. */
static sl_candidate *second_look(sl_rounds *r)
{
    sl_candidate *second = NULL;
    for (int i = 0; i < r->count; i++)
        if (r->list[i].guide && (!second || r->list[i].step_s < second->step_s))
            second = &r->list[i];
    return second;
}

/* The whole step by the best candidate. It may be slower than predicted, and a short search may underrate others. Therefore it is
 * compared with few rounds, which get a full search at once, and with one more candidate. */
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

/* Seconds of the step for recomputations that backwards could do. */
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

/* Compares the best, a whole step by now, with rounds like `like` whose backwards rematerialize, and keeps the better one. */
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

/* Where such recomputation is long: tries the rounds of the best, and those that were as good; all of a small step where the best is far
 * from its bound. */
static sl_status try_rounds_rematerialize(const sl_rounds *r, sl_candidate *best)
{
    if (made_apart_s(best) <= APART * best->step_s)
        return SL_OK;
    const double within = is_far(&r->step, best) && !r->step.large ? INFINITY : AS_GOOD;
    sl_candidate like[MAX_CANDIDATES];
    int count = 0;
    for (int i = 0; i < r->count; i++)
        if (r->list[i].step_s > 0 && r->list[i].step_s <= within * best->step_s)
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

/* A tenth of 12 GiB pays (8B: attention's backward on two streams instead of one, 3 % of the step). Of larger budgets,
 * twice as much gains 1 % in attention and loses as much elsewhere. */
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
