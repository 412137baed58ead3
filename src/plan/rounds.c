/*
 * Step time over chunks per round falls while weights and gradients cross the link less often, and rises again when activations
 * no longer find room: one valley, as a rule. So the candidates are walked downhill from a guess (as many chunks as memory
 * holds activations for) instead of all being planned.
 */
#include "plan/rounds.h"

#include <math.h>
#include <string.h>

#include "core/clock.h"
#include "core/status.h"

#define MAX_CANDIDATES 64

typedef struct sl_candidate {
    int64_t chunks; /* per round */
    sl_program *program;
    sl_costs *costs;
    sl_plan *plan; /* NULL: not tried or does not fit */
    bool tried;
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
    sl_costs_destroy(c->costs);
    sl_program_destroy(c->program);
    c->plan = NULL;
    c->costs = NULL;
    c->program = NULL;
}

static sl_status make(const sl_rounds *r, sl_candidate *c)
{
    sl_program_config config = *r->base;
    config.chunks_per_round = c->chunks;
    SL_TRY(sl_program_create(&config, r->build, r->context, &c->program));
    return r->costs_of(r->costs_context, c->program, &c->costs);
}

/* Plans a candidate; one that does not fit is no error. */
static sl_status try_candidate(sl_rounds *r, int i)
{
    sl_candidate *c = &r->list[i];
    if (c->tried)
        return SL_OK;
    c->tried = true;
    SL_TRY(make(r, c));
    sl_status status = sl_plan_create(c->program, c->costs, &r->config, &c->plan);
    if (status == SL_E_DOES_NOT_FIT) {
        forget(c);
        return SL_OK;
    }
    return status;
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

static bool better(const sl_candidate *a, const sl_candidate *b)
{
    if (!a->plan || !b->plan)
        return a->plan != NULL;
    double s = a->plan->predicted.step_s, t = b->plan->predicted.step_s;
    return s < t * (1 - 1e-6) || (s <= t * (1 + 1e-6) && a->chunks > b->chunks);
}

/* From `at` in one direction as long as it gets better. */
static sl_status descend(sl_rounds *r, int *at, int way)
{
    for (int next = *at + way; next >= 0 && next < r->count; next += way) {
        SL_TRY(try_candidate(r, next));
        if (!better(&r->list[next], &r->list[*at])) {
            bool fits = r->list[*at].plan != NULL;
            forget(&r->list[next]);
            if (fits || way > 0)
                break;
            continue; /* nothing fits yet: smaller rounds need less */
        }
        forget(&r->list[*at]);
        *at = next;
    }
    return SL_OK;
}

static sl_status run(sl_rounds *r, int *best)
{
    sl_candidate probe = {.chunks = r->list[0].chunks};
    sl_status status = make(r, &probe);
    int at = status == SL_OK ? guess(r, probe.program) : 0;
    forget(&probe);
    SL_TRY(status);
    SL_TRY(try_candidate(r, at));
    int from = at;
    SL_TRY(descend(r, &at, -1));
    if (at == from)
        SL_TRY(descend(r, &at, 1));
    *best = at;
    return SL_OK;
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
                   .config = *config};
    list_candidates(&r);
    int best = 0;
    sl_status status = run(&r, &best);
    sl_candidate *c = &r.list[best];
    if (status == SL_OK && !c->plan) { /* refused once more, for the message */
        SL_TRY(make(&r, &r.list[0]));
        status = sl_plan_create(r.list[0].program, r.list[0].costs, &r.config, &r.list[0].plan);
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

/* The smallest rounds need least. */
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
    sl_candidate *smallest = &r.list[0];
    sl_status status = make(&r, smallest);
    if (status == SL_OK)
        status = sl_plan_minimum(smallest->program, smallest->costs, config, tier, bytes);
    forget(smallest);
    return status;
}
