/*
 * Step time over chunks per round falls while weights and gradients cross the link less often, and rises again when activations
 * no longer find room: one valley, as a rule. So the candidates are walked downhill from a guess (as many chunks as memory
 * holds activations for) instead of all being planned.
 *
 * Rounds of large steps overlap (interleave.h), unless, in the end, one after the other is faster.
 *
 * Where a step has many rounds, candidates are planned on four of them, the second standing for all that are left out; the
 * winner's choices are then carried over to the whole step (unroll.h). What fits is judged on the four rounds too, here and in
 * the search for the smallest budgets, so the two agree.
 */
#include "plan/rounds.h"

#include <math.h>
#include <string.h>

#include "core/clock.h"
#include "core/status.h"
#include "plan/interleave.h"
#include "plan/unroll.h"

#define MAX_CANDIDATES 64
#define MANY_ROUNDS 6    /* from here on four may stand for all */
#define MANY_TASKS 10000 /* in the step; below, there is time to plan all of them */
#define COSTLY 1.08      /* times the bound: worth trying the rounds one after the other */
#define CLOSE 1.03       /* times the best first look: may be better in the end */
#define AS_GOOD 1.01     /* times the best: a first look that a search to the end may better */
#define TOLERANCE 0.03   /* by how much the whole step may be slower than four rounds promise */

typedef struct sl_candidate {
    int64_t chunks;      /* per round */
    sl_program *program; /* of the whole step, or cut to four rounds */
    sl_costs *costs;
    sl_plan *plan; /* NULL: not tried or does not fit */
    sl_guide *guide;
    double step_s; /* of the whole step */
    bool tried, cut;
    bool interleaved, refined;
} sl_candidate;

typedef struct sl_rounds {
    const sl_program_config *base;
    sl_graph_builder build;
    void *context;
    sl_costs_fn costs_of;
    void *costs_context;
    sl_plan_config config;
    sl_candidate list[MAX_CANDIDATES];
    int count;
    int64_t chunks; /* of the step */
    bool large;     /* a step of many tasks */
    bool interleaved;
    bool quick;        /* candidates get a first look only */
    int second;        /* nearly as good as the best, as far as one can tell; -1: none */
    size_t data_bytes; /* of a chunk */
} sl_rounds;

/* 1, 2, 3, 4, 6, 8, 12, ... and all of them; in whole sequences where these are cut into slices. */
static void list_candidates(sl_rounds *r)
{
    const sl_chunking *c = &r->base->chunking;
    int64_t unit = 1, chunks = SL_DIV_UP(c->seqlen * c->sequences, c->chunk_tokens);
    if (c->chunk_tokens < c->seqlen) {
        unit = SL_DIV_UP(c->seqlen, c->chunk_tokens);
        chunks = unit * c->sequences;
    }
    r->chunks = chunks;
    if (r->base->chunks_per_round > 0 || r->base->forward_only) {
        r->list[r->count++].chunks = r->base->chunks_per_round > 0 ? r->base->chunks_per_round : unit;
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

static void forget(sl_candidate *c)
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

/* The step's program with the candidate's rounds, cut to four of them if `cut`. */
static sl_status make(const sl_rounds *r, sl_candidate *c, bool cut)
{
    sl_program_config config = *r->base;
    config.chunks_per_round = c->chunks;
    if (cut) {
        const sl_chunking *k = &config.chunking;
        config.chunking.sequences = k->chunk_tokens < k->seqlen
                                        ? SL_UNROLL_ROUNDS * c->chunks / SL_DIV_UP(k->seqlen, k->chunk_tokens)
                                        : SL_UNROLL_ROUNDS * c->chunks * (k->chunk_tokens / k->seqlen);
    }
    SL_TRY(sl_program_create(&config, r->build, r->context, &c->program));
    if (cut) { /* what grows with the step has its full size */
        sl_object *losses = &c->program->objects[c->program->losses_object];
        losses->bytes = losses->bytes / (size_t) c->program->n_chunks * (size_t) r->chunks;
    }
    if (c->interleaved)
        SL_TRY(sl_interleave(c->program, &c->interleaved));
    return r->costs_of(r->costs_context, c->program, &c->costs);
}

static int64_t rounds_of(const sl_rounds *r, const sl_candidate *c)
{
    return SL_DIV_UP(r->chunks, c->chunks);
}

static bool is_cut(const sl_rounds *r, const sl_candidate *c)
{
    return r->large && rounds_of(r, c) >= MANY_ROUNDS;
}

/* Only for large steps: for others, planning twice as much takes longer than it saves. */
static bool may_interleave(const sl_rounds *r, const sl_candidate *c)
{
    return r->large && rounds_of(r, c) >= 2 && !r->base->forward_only;
}

/* Data in host memory of the chunks that a cut program lacks. */
static size_t missing_bytes(const sl_rounds *r, const sl_candidate *c)
{
    return (size_t) SL_MAX(r->chunks - SL_UNROLL_ROUNDS * c->chunks, 0) * r->data_bytes;
}

/* The configuration for a candidate: four rounds are judged as the whole step would be. */
static sl_plan_config config_for(const sl_rounds *r, const sl_candidate *c)
{
    sl_plan_config config = r->config;
    config.no_advice = true;
    config.stands_for = is_cut(r, c) ? (int32_t) rounds_of(r, c) : 0;
    if (is_cut(r, c) && config.budget[SL_TIER_HOST] != SIZE_MAX)
        config.budget[SL_TIER_HOST] -= SL_MIN(config.budget[SL_TIER_HOST], missing_bytes(r, c));
    return config;
}

/* When the compute stream ends a round. */
static double round_end(const sl_candidate *c, int32_t round)
{
    double end = 0;
    for (int32_t i = 0; i < c->plan->n_actions; i++) {
        const sl_action *a = &c->plan->actions[i];
        if (a->kind == SL_ACTION_TASK && a->stream == SL_STREAM_COMPUTE && c->program->tasks[a->task].round == round)
            end = fmax(end, a->end_s);
    }
    return end;
}

static void estimate(const sl_rounds *r, sl_candidate *c)
{
    c->step_s = c->plan->predicted.step_s;
    if (c->cut)
        c->step_s += (double) (rounds_of(r, c) - SL_UNROLL_ROUNDS) * (round_end(c, 2) - round_end(c, 1));
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

/* Plans a candidate; one that does not fit is no error. */
static sl_status try_candidate(sl_rounds *r, sl_candidate *c)
{
    if (c->tried)
        return SL_OK;
    c->tried = true;
    c->interleaved = r->interleaved;
    c->cut = is_cut(r, c);
    sl_plan_config config = config_for(r, c);
    config.quick = r->quick;
    config.rival_s = fastest_s(r);
    SL_TRY(make(r, c, c->cut));
    sl_status status = c->cut ? sl_guide_create(c->program, c->costs, &config, &c->guide, &c->plan)
                              : sl_plan_create(c->program, c->costs, &config, &c->plan);
    if (status == SL_E_DOES_NOT_FIT) {
        forget(c);
        return SL_OK;
    }
    SL_TRY(status);
    estimate(r, c);
    return SL_OK;
}

/* The whole step for a candidate that was planned on four rounds: by its choices, or, where these lead astray, by a search of
 * its own if that is better. */
static sl_status unroll(sl_rounds *r, sl_candidate *c)
{
    sl_candidate whole = {.chunks = c->chunks, .interleaved = c->interleaved};
    sl_plan_config quiet = r->config;
    quiet.no_advice = true;
    sl_plan *own = NULL;
    sl_status status = make(r, &whole, false);
    if (status == SL_OK)
        status = sl_guide_follow(c->guide, whole.program, whole.costs, &r->config, &whole.plan);
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
        forget(&whole);
        return status;
    }
    whole.step_s = whole.plan->predicted.step_s;
    forget(c);
    *c = whole;
    return SL_OK;
}

/* Bytes a chunk's activations would like to keep between forward and backward, and what else there is. */
static int guess(sl_rounds *r, const sl_program *p)
{
    double activations = 0, others = 0, room = 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        if (p->objects[o].class == SL_CLASS_ACTIVATION)
            activations += 0.55 * (double) p->objects[o].bytes; /* the rest is cheap to recompute */
        else if (p->objects[o].persistent || p->objects[o].class == SL_CLASS_GRADIENT)
            others += (double) p->objects[o].bytes;
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        room += fmin((double) r->config.budget[tier], 1e18);
    double chunks = fmax(room - others, 0) / fmax(activations / SL_MAX(p->n_chunks, 1), 1);
    int at = 0;
    while (at + 1 < r->count && (double) r->list[at + 1].chunks <= chunks)
        at++;
    return at;
}

/* Looks at four of the smallest rounds (or all, if there are no more): is the step large, and where to start? */
static sl_status size_up(sl_rounds *r, int *start)
{
    sl_candidate probe = {.chunks = r->list[0].chunks};
    sl_status status = make(r, &probe, rounds_of(r, &probe) >= MANY_ROUNDS);
    if (status == SL_OK) {
        for (int32_t o = 0; o < probe.program->n_objects; o++)
            if (probe.program->objects[o].class == SL_CLASS_DATA && probe.program->objects[o].chunk >= 0)
                r->data_bytes += SL_ROUND_UP(probe.program->objects[o].bytes, (size_t) SL_ALIGN);
        r->data_bytes /= (size_t) probe.program->n_chunks;
        r->large = probe.program->n_tasks / SL_MAX(1, probe.program->n_chunks) * r->chunks >= MANY_TASKS;
        *start = guess(r, probe.program);
    }
    forget(&probe);
    return status;
}

/* Bytes over the links in the whole step. */
static double traffic(const sl_rounds *r, const sl_candidate *c)
{
    double bytes = c->plan->predicted.h2d_bytes + c->plan->predicted.d2h_bytes;
    return c->cut ? bytes / SL_UNROLL_ROUNDS * (double) rounds_of(r, c) : bytes;
}

/* Faster; among equals (to what four rounds can tell) the one that leans less on the links, then fewer rounds. */
static bool better(const sl_rounds *r, const sl_candidate *a, const sl_candidate *b)
{
    if (!a->plan || !b->plan)
        return a->plan != NULL;
    double margin = a->cut || b->cut ? 5e-3 : 1e-6, s = a->step_s, t = b->step_s;
    if (fabs(s - t) > margin * t)
        return s < t;
    double x = traffic(r, a), y = traffic(r, b);
    return fabs(x - y) > 0.01 * y ? x < y : a->chunks > b->chunks;
}

/* A candidate that another one beats; one as good as that is kept for the last comparison. */
static void lay_aside(const sl_rounds *r, sl_candidate *c, const sl_candidate *by)
{
    if (!r->large || !c->plan || c->step_s > CLOSE * by->step_s)
        forget(c);
}

/* From `at` in one direction as long as it gets better; smaller rounds get a second chance, since they need less memory and
 * may suddenly fit without any copies. */
static sl_status descend(sl_rounds *r, int *at, int way)
{
    int misses = 0;
    for (int next = *at + way; next >= 0 && next < r->count; next += way) {
        SL_TRY(try_candidate(r, &r->list[next]));
        if (!better(r, &r->list[next], &r->list[*at])) {
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

/* Much memory starts the walk at large rounds, and it may end before it comes to the small ones that little memory starts at: more
 * memory must not do worse. */
static sl_status climb_from_least(sl_rounds *r, int *at)
{
    for (int i = 0; i < *at && i < (r->large ? 2 : 1); i++) {
        SL_TRY(try_candidate(r, &r->list[i]));
        if (!r->list[*at].plan || better(r, &r->list[i], &r->list[*at])) {
            lay_aside(r, &r->list[*at], &r->list[i]);
            *at = i;
        }
    }
    return SL_OK;
}

/* No plan of the whole step is faster. */
static double bound_s(const sl_rounds *r, const sl_candidate *c)
{
    return c->plan->lower_bound_s * (c->cut ? (double) rounds_of(r, c) / SL_UNROLL_ROUNDS : 1);
}

/* Within half a percent of the bound: not worth looking further. */
static bool nothing_lost(const sl_rounds *r, const sl_candidate *c)
{
    return c->plan && c->step_s <= bound_s(r, c) * 1.005;
}

/* The other order of the same rounds; the better one stays. */
static sl_status try_other_order(sl_rounds *r, sl_candidate *c)
{
    if (!may_interleave(r, c) || nothing_lost(r, c))
        return SL_OK;
    sl_candidate other = {.chunks = c->chunks};
    r->interleaved = !c->interleaved;
    sl_status status = try_candidate(r, &other);
    if (status != SL_OK) {
        forget(&other);
        return status;
    }
    bool change = better(r, &other, c);
    forget(change ? c : &other);
    if (change)
        *c = other;
    return SL_OK;
}

static sl_status refine(const sl_rounds *r, sl_candidate *c)
{
    if (!c->guide || c->refined || nothing_lost(r, c))
        return SL_OK;
    c->refined = true;
    sl_plan_config config = config_for(r, c);
    SL_TRY(sl_guide_refine(c->guide, &config, &c->plan));
    estimate(r, c);
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
    if (!r->quick || !r->list[*best].plan || nothing_lost(r, &r->list[*best]))
        return SL_OK;
    r->quick = false;
    for (int i = 0; i < 2 && pair[i] >= 0; i++) {
        sl_candidate *c = &r->list[pair[i]];
        forget(c);
        c->tried = false;
        SL_TRY(try_candidate(r, c));
    }
    if (pair[1] >= 0 && better(r, &r->list[pair[1]], &r->list[pair[0]]))
        *best = pair[1];
    return SL_OK;
}

static sl_status run(sl_rounds *r, int *best)
{
    int at = 0, from;
    SL_TRY(size_up(r, &from));
    r->interleaved = r->large;
    r->quick = !r->large && r->count > 1;
    SL_TRY(try_candidate(r, &r->list[0])); /* the smallest rounds are planned fastest, and may lose nothing already */
    if (!nothing_lost(r, &r->list[0])) {
        at = from;
        SL_TRY(try_candidate(r, &r->list[at]));
        SL_TRY(descend(r, &at, -1));
        if (at == from)
            SL_TRY(descend(r, &at, 1));
        SL_TRY(climb_from_least(r, &at));
        sl_candidate *c = &r->list[at];
        r->second = r->large && c->plan ? runner_up(r, at) : -1;
        SL_TRY(refine(r, c));
        if (!c->plan || c->step_s > COSTLY * bound_s(r, c)) {
            SL_TRY(try_other_order(r, c));
            SL_TRY(refine(r, c));
        }
        SL_TRY(polish(r, &at));
    }
    *best = at;
    return SL_OK;
}

/* The whole step by the best candidate; by the second too, if that promised as much: its first look was short. */
static sl_status unroll_best(sl_rounds *r, int *best)
{
    sl_candidate *c = &r->list[*best], *other = r->second >= 0 ? &r->list[r->second] : NULL;
    SL_TRY(unroll(r, c));
    if (!other || !other->guide || other->step_s > AS_GOOD * c->step_s || nothing_lost(r, c))
        return SL_OK;
    SL_TRY(refine(r, other));
    if (other->step_s >= c->step_s)
        return SL_OK;
    sl_status status = unroll(r, other);
    if (status == SL_OK && other->step_s < c->step_s)
        *best = r->second;
    return status == SL_E_DOES_NOT_FIT ? SL_OK : status;
}

/* Whatever fits. */
static sl_status plan_smallest(const sl_rounds *r, sl_candidate *c)
{
    forget(c);
    *c = (sl_candidate){.chunks = r->list[0].chunks};
    SL_TRY(make(r, c, false));
    return sl_plan_create(c->program, c->costs, &r->config, &c->plan);
}

/* Of 12 GiB a tenth is well spent (8B: attention's backward on two streams instead of one, 3 % of the step); of more, twice as much
 * is worth 1 % to attention and costs as much elsewhere. */
size_t sl_plan_workspace_limit(size_t device_budget)
{
    const size_t enough = (size_t) 5 << 28;
    if (device_budget == SIZE_MAX)
        return 0;
    return SL_MAX(SL_MAX(device_budget / 20, SL_MIN(device_budget / 10, enough)), (size_t) 1);
}

sl_status sl_plan_best(const sl_program_config *base, sl_graph_builder build, void *context, sl_costs_fn costs_of,
                       void *costs_context, const sl_plan_config *config, sl_program **program, sl_costs **costs,
                       sl_plan **plan)
{
    double start = sl_clock_s();
    sl_rounds r = {.base = base,
                   .build = build,
                   .context = context,
                   .costs_of = costs_of,
                   .costs_context = costs_context,
                   .config = *config,
                   .second = -1};
    list_candidates(&r);
    int best = 0;
    sl_status status = run(&r, &best);
    sl_candidate *c = &r.list[best];
    if (status == SL_OK && !c->plan)
        status = sl_fail(SL_E_DOES_NOT_FIT, "the step does not fit its budgets, however it is cut into rounds");
    else if (status == SL_OK && c->cut) {
        status = unroll_best(&r, &best);
        c = &r.list[best];
        if (status == SL_E_DOES_NOT_FIT) /* four rounds fit, all of them did not */
            status = plan_smallest(&r, c);
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
        forget(&r.list[i]);
    return status;
}

/* The smallest rounds need least, one after the other or interleaved. */
sl_status sl_plan_best_minimum(const sl_program_config *base, sl_graph_builder build, void *context,
                               sl_costs_fn costs_of, void *costs_context, const sl_plan_config *config, sl_tier tier,
                               size_t *bytes)
{
    sl_rounds r = {.base = base,
                   .build = build,
                   .context = context,
                   .costs_of = costs_of,
                   .costs_context = costs_context,
                   .config = *config};
    list_candidates(&r);
    *bytes = 0;
    int start = 0;
    SL_TRY(size_up(&r, &start));
    sl_candidate *smallest = &r.list[0];
    sl_plan_config judged = config_for(&r, smallest);
    sl_status status = SL_OK;
    for (int order = 0; order < (may_interleave(&r, smallest) ? 2 : 1) && status == SL_OK; order++) {
        size_t least = 0;
        smallest->interleaved = order == 1;
        status = make(&r, smallest, judged.stands_for > 0);
        if (status == SL_OK)
            status = sl_plan_minimum(smallest->program, smallest->costs, &judged, tier, &least);
        if (status == SL_E_DOES_NOT_FIT)
            status = SL_OK;
        else if (status == SL_OK)
            *bytes = *bytes ? SL_MIN(*bytes, least) : least; /* of the program as cut */
        forget(smallest);
    }
    if (*bytes && tier == SL_TIER_HOST && judged.stands_for)
        *bytes += missing_bytes(&r, smallest);
    if (status == SL_OK && !*bytes)
        status = sl_fail(SL_E_DOES_NOT_FIT, "no budget of this tier suffices with the other as given");
    return status;
}
