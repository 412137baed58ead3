/*
 * What is wrong with a plan, found by running it, byte by byte, and by comparing all pairs of actions. Slow, and by the
 * letter of plan.h: it shares nothing with src/plan/check.c, which it is the measure of.
 *
 *   truth    the program's tasks one after the other on one copy of each object. What a task writes depends on all
 *            bytes it reads, so bytes that differ anywhere differ from there on.
 *   replay   the plan's actions on two arenas. A place that is filled anew begins with bytes nobody ever wrote; every run of a
 *            task must read what it read in the truth, and the placements must end with what the objects end with.
 *   races    two actions on the same bytes, one of them a write, must be ordered by streams and dependencies; then
 *            the order of the list is as good as any.
 */
#ifndef SL_TESTS_PLAN_REPLAY_H
#define SL_TESTS_PLAN_REPLAY_H

#include "synthetic.h"

enum { REPLAY_OPERANDS = SL_MAX_IN + SL_MAX_OUT };

typedef struct replay {
    const sl_program *program;
    uint8_t **objects; /* the truth, at the end of the step */
    uint8_t **written; /* by object and byte: a task wrote it */
    uint64_t *read;    /* by task and operand: hash of what it reads */
} replay;

static inline uint64_t replay_mix(uint64_t h, uint64_t value)
{
    rng r = {h ^ value * 0xD6E8FEB86659FD93u};
    return rng_next(&r);
}

static inline uint64_t replay_hash(const uint8_t *bytes, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, SL_MIN(n - i, 8));
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

static inline void replay_fill(uint8_t *bytes, size_t n, uint64_t seed)
{
    rng r = {seed};
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t) (rng_next(&r) >> 56);
}

static inline const sl_use *replay_use(const sl_task *task, int i)
{
    return i < SL_MAX_IN ? &task->in[i] : &task->out[i - SL_MAX_IN];
}

/* Whether the operand's old bytes matter to the task. */
static inline bool replay_reads(const sl_task *task, int i)
{
    return i < SL_MAX_IN || (task->accumulate | sl_op(task->op)->updates) >> (i - SL_MAX_IN) & 1;
}

static inline bool replay_lives_on(const sl_object *object)
{
    return object->persistent || object->class == SL_CLASS_DATA || object->class == SL_CLASS_RESULT;
}

/* Runs a task on its operands' bytes; `read` (by operand): what it is to read, filled or compared. */
static inline bool replay_task(const sl_program *p, int32_t t, uint8_t *const at[REPLAY_OPERANDS], uint64_t *read,
                               bool compare)
{
    const sl_task *task = &p->tasks[t];
    uint64_t h = (uint64_t) t;
    for (int i = 0; i < REPLAY_OPERANDS; i++) {
        const sl_use *use = replay_use(task, i);
        if (use->object < 0 || !replay_reads(task, i))
            continue;
        uint64_t seen = replay_hash(at[i] + use->offset, sl_type_bytes(&use->type));
        if (compare && seen != read[i])
            return false;
        read[i] = seen;
        h = replay_mix(h, seen);
    }
    for (int i = SL_MAX_IN; i < REPLAY_OPERANDS; i++) {
        const sl_use *use = replay_use(task, i);
        if (use->object >= 0)
            replay_fill(at[i] + use->offset, sl_type_bytes(&use->type), replay_mix(h, (uint64_t) i));
    }
    return true;
}

static inline replay replay_new(const sl_program *p)
{
    replay r = {.program = p};
    r.objects = calloc((size_t) p->n_objects, sizeof *r.objects);
    r.written = calloc((size_t) p->n_objects, sizeof *r.written);
    r.read = calloc((size_t) p->n_tasks * REPLAY_OPERANDS, sizeof *r.read);
    for (int32_t o = 0; o < p->n_objects; o++) {
        r.objects[o] = malloc(p->objects[o].bytes);
        r.written[o] = calloc(1, p->objects[o].bytes);
        replay_fill(r.objects[o], p->objects[o].bytes, (uint64_t) o);
    }
    for (int32_t t = 0; t < p->n_tasks; t++) {
        uint8_t *at[REPLAY_OPERANDS] = {0};
        for (int i = 0; i < REPLAY_OPERANDS; i++) {
            const sl_use *use = replay_use(&p->tasks[t], i);
            if (use->object < 0)
                continue;
            at[i] = r.objects[use->object];
            if (i >= SL_MAX_IN)
                memset(r.written[use->object] + use->offset, 1, sl_type_bytes(&use->type));
        }
        replay_task(p, t, at, r.read + (int64_t) t * REPLAY_OPERANDS, false);
    }
    return r;
}

static inline void replay_free(replay *r)
{
    for (int32_t o = 0; o < r->program->n_objects; o++) {
        free(r->objects[o]);
        free(r->written[o]);
    }
    free(r->objects);
    free(r->written);
    free(r->read);
}

/* ---- races ------------------------------------------------------------------------------------------------------- */

/* The latest action of each stream that is surely over when an action starts. */
static inline void fill_clocks(const sl_plan *plan, int32_t (*clock)[SL_STREAM_COUNT])
{
    int32_t before[SL_STREAM_COUNT];
    memset(before, 0xff, sizeof before);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        for (int r = 0; r < SL_STREAM_COUNT; r++)
            clock[i][r] = before[a->stream] >= 0 ? clock[before[a->stream]][r] : -1;
        clock[i][a->stream] = before[a->stream];
        for (int32_t k = 0; k < a->n_deps; k++) {
            int32_t dep = plan->deps[a->first_dep + k], stream = (int32_t) plan->actions[dep].stream;
            for (int r = 0; r < SL_STREAM_COUNT; r++)
                clock[i][r] = SL_MAX(clock[i][r], clock[dep][r]);
            clock[i][stream] = SL_MAX(clock[i][stream], dep);
        }
        before[a->stream] = i;
    }
}

enum { TOUCH_WRITES = 1 << 30 };

/* The places an action touches, with TOUCH_WRITES where it writes. */
static inline int touches(const sl_plan *plan, int32_t action, int32_t out[REPLAY_OPERANDS + 1])
{
    const sl_action *a = &plan->actions[action];
    int n = 0;
    if (a->kind == SL_ACTION_COPY) {
        out[n++] = a->from;
        out[n++] = a->to | TOUCH_WRITES;
        return n;
    }
    for (int i = 0; i < REPLAY_OPERANDS; i++)
        if (plan->use_allocations[a->first_use + i] >= 0)
            out[n++] = plan->use_allocations[a->first_use + i] | (i < SL_MAX_IN ? 0 : TOUCH_WRITES);
    if (a->workspace >= 0)
        out[n++] = a->workspace | TOUCH_WRITES;
    return n;
}

static inline bool places_overlap(const sl_allocation *p, const sl_allocation *q)
{
    return p->tier == q->tier && p->address < q->address + q->bytes && q->address < p->address + p->bytes;
}

/* Whether two actions of different streams touch the same bytes, one of them writing, without an order. */
static inline bool races(const sl_plan *plan, int32_t (*clock)[SL_STREAM_COUNT])
{
    fill_clocks(plan, clock);
    for (int32_t j = 0; j < plan->n_actions; j++) {
        int32_t later[REPLAY_OPERANDS + 1], earlier[REPLAY_OPERANDS + 1];
        int n_later = touches(plan, j, later);
        for (int32_t i = 0; i < j; i++) {
            if (clock[j][plan->actions[i].stream] >= i)
                continue;
            int n_earlier = touches(plan, i, earlier);
            for (int x = 0; x < n_later; x++)
                for (int y = 0; y < n_earlier; y++)
                    if ((later[x] | earlier[y]) & TOUCH_WRITES &&
                        places_overlap(&plan->allocations[later[x] & ~TOUCH_WRITES],
                                       &plan->allocations[earlier[y] & ~TOUCH_WRITES]))
                        return true;
        }
    }
    return false;
}

/* ---- form -------------------------------------------------------------------------------------------------------- */

static inline bool is_place(const sl_plan *plan, int32_t place)
{
    return place >= 0 && place < plan->n_allocations;
}

/* Whether `place` can hold `object` in the tier. */
static inline bool holds(const sl_program *p, const sl_plan *plan, int32_t place, int32_t object, sl_tier tier)
{
    return is_place(plan, place) && plan->allocations[place].object == object &&
           plan->allocations[place].tier == tier && plan->allocations[place].bytes >= p->objects[object].bytes;
}

static inline const char *places_fault(const sl_program *p, const sl_plan *plan, const size_t budget[SL_TIER_COUNT])
{
    for (int32_t i = 0; i < plan->n_allocations; i++) {
        const sl_allocation *place = &plan->allocations[i];
        if (((int) place->tier != SL_TIER_DEVICE && (int) place->tier != SL_TIER_HOST) || place->address % SL_ALIGN ||
            place->bytes == 0)
            return "a place has no tier, no bytes or a crooked address";
        if (place->object < -1 || place->object >= p->n_objects ||
            (place->object >= 0 && place->bytes < p->objects[place->object].bytes))
            return "a place is too small for its object";
        if (place->address > budget[place->tier] || place->bytes > budget[place->tier] - place->address)
            return "beyond the budget";
    }
    for (int32_t o = 0; o < p->n_objects; o++) {
        int32_t placement = plan->placement[o];
        if (!replay_lives_on(&p->objects[o])) {
            if (placement >= 0)
                return "an object of the step has a placement";
            continue;
        }
        if (!is_place(plan, placement) || plan->allocations[placement].object != o ||
            plan->allocations[placement].first != -1 || plan->allocations[placement].last != plan->n_actions)
            return "an object that outlives the step has no placement";
        if (!p->objects[o].persistent && plan->allocations[placement].tier != SL_TIER_HOST)
            return "data or results live on the device";
    }
    return NULL;
}

static inline const char *task_fault(const sl_program *p, const sl_plan *plan, int32_t index, uint8_t *ran)
{
    const sl_action *a = &plan->actions[index];
    if (a->task < 0 || a->task >= p->n_tasks)
        return "no such task";
    const sl_task *task = &p->tasks[a->task];
    sl_tier tier = a->stream == SL_STREAM_HOST ? SL_TIER_HOST : SL_TIER_DEVICE;
    if (a->stream != SL_STREAM_COMPUTE && !(a->stream == SL_STREAM_HOST && task->host_allowed))
        return "a task on a stream where it cannot run";
    if (ran[a->task] != a->recompute)
        return "a task runs twice, or is recomputed before it ran";
    ran[a->task] = 1;
    if (a->first_use < 0 || a->first_use > plan->n_use_allocations - REPLAY_OPERANDS)
        return "operands outside the list";
    for (int i = 0; i < REPLAY_OPERANDS; i++) {
        int32_t object = replay_use(task, i)->object, place = plan->use_allocations[a->first_use + i];
        if (object < 0 ? place >= 0 : !holds(p, plan, place, object, tier))
            return "an operand's place is of another object or tier";
        if (a->recompute && i >= SL_MAX_IN && object >= 0 && replay_reads(task, i))
            return "what accumulates is recomputed";
    }
    if (a->workspace >= 0) {
        if (!is_place(plan, a->workspace))
            return "no such workspace";
        const sl_allocation *w = &plan->allocations[a->workspace];
        if (w->object != -1 || w->tier != tier || w->first != index || w->last != index)
            return "not the action's workspace";
    }
    return NULL;
}

static inline const char *copy_fault(const sl_program *p, const sl_plan *plan, const sl_action *a)
{
    if ((a->stream != SL_STREAM_IN && a->stream != SL_STREAM_OUT) || a->object < 0 || a->object >= p->n_objects)
        return "a copy on a stream of tasks, or of nothing";
    bool in = a->stream == SL_STREAM_IN;
    if (!holds(p, plan, a->from, a->object, in ? SL_TIER_HOST : SL_TIER_DEVICE) ||
        !holds(p, plan, a->to, a->object, in ? SL_TIER_DEVICE : SL_TIER_HOST))
        return "a copy between wrong places";
    return NULL;
}

static inline const char *action_fault(const sl_program *p, const sl_plan *plan, int32_t index, uint8_t *ran)
{
    const sl_action *a = &plan->actions[index];
    if ((int) a->stream < 0 || a->stream >= SL_STREAM_COUNT)
        return "no stream";
    if (a->n_deps < 0 || a->first_dep < 0 || a->n_deps > plan->n_deps - a->first_dep)
        return "dependencies outside the list";
    for (int32_t k = 0; k < a->n_deps; k++) {
        int32_t dep = plan->deps[a->first_dep + k];
        if (dep < 0 || dep >= index || plan->actions[dep].stream == a->stream)
            return "depends on what is not an earlier action of another stream";
    }
    const char *fault = a->kind == SL_ACTION_COPY ? copy_fault(p, plan, a) : task_fault(p, plan, index, ran);
    if (fault)
        return fault;
    int32_t touched[REPLAY_OPERANDS + 1];
    int n = touches(plan, index, touched);
    for (int x = 0; x < n; x++) {
        const sl_allocation *place = &plan->allocations[touched[x] & ~TOUCH_WRITES];
        if (index < place->first || index > place->last)
            return "a place is used outside its life";
        for (int y = 0; y < x; y++)
            if ((touched[x] & ~TOUCH_WRITES) != (touched[y] & ~TOUCH_WRITES) &&
                places_overlap(place, &plan->allocations[touched[y] & ~TOUCH_WRITES]))
                return "operands overlap";
    }
    return NULL;
}

/* No other place that anything uses shares bytes with a placement, and a place's life begins with its first use. */
static inline const char *lives_fault(const sl_program *p, const sl_plan *plan)
{
    int32_t *first = malloc(((size_t) plan->n_allocations + 1) * sizeof *first); /* use; n_actions: none */
    const char *fault = NULL;
    for (int32_t i = 0; i < plan->n_allocations; i++)
        first[i] = plan->n_actions;
    for (int32_t o = 0; o < p->n_objects; o++)
        if (plan->placement[o] >= 0)
            first[plan->placement[o]] = -1;
    for (int32_t i = plan->n_actions - 1; i >= 0; i--) {
        int32_t touched[REPLAY_OPERANDS + 1];
        int n = touches(plan, i, touched);
        for (int x = 0; x < n; x++)
            first[touched[x] & ~TOUCH_WRITES] = SL_MIN(first[touched[x] & ~TOUCH_WRITES], i);
    }
    for (int32_t i = 0; i < plan->n_allocations; i++) {
        if (first[i] < plan->n_actions && plan->allocations[i].first != first[i])
            fault = "a place's life does not begin with its first use";
        for (int32_t k = 0; k < plan->n_allocations; k++)
            if (k != i && first[i] < 0 && first[k] < plan->n_actions &&
                places_overlap(&plan->allocations[i], &plan->allocations[k]))
                fault = "a placement is overwritten";
    }
    free(first);
    return fault;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

static inline const char *contents_fault(const replay *r, const sl_plan *plan, uint8_t *const arena[SL_TIER_COUNT])
{
    const sl_program *p = r->program;
    for (int32_t o = 0; o < p->n_objects; o++)
        if (plan->placement[o] >= 0)
            replay_fill(arena[plan->allocations[plan->placement[o]].tier] +
                            plan->allocations[plan->placement[o]].address,
                        p->objects[o].bytes, (uint64_t) o);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *a = &plan->actions[i];
        int32_t touched[REPLAY_OPERANDS + 1];
        int n = touches(plan, i, touched);
        for (int x = 0; x < n; x++) {
            const sl_allocation *place = &plan->allocations[touched[x] & ~TOUCH_WRITES];
            if (place->first == i)
                replay_fill(arena[place->tier] + place->address, place->bytes, replay_mix(0xBAD, (uint64_t) i));
        }
        if (a->kind == SL_ACTION_COPY) {
            const sl_allocation *from = &plan->allocations[a->from], *to = &plan->allocations[a->to];
            if (from->first == i)
                return "a copy of what was never there";
            memcpy(arena[to->tier] + to->address, arena[from->tier] + from->address, p->objects[a->object].bytes);
            continue;
        }
        uint8_t *at[REPLAY_OPERANDS] = {0};
        for (int k = 0; k < REPLAY_OPERANDS; k++) {
            int32_t place = plan->use_allocations[a->first_use + k];
            if (place >= 0)
                at[k] = arena[plan->allocations[place].tier] + plan->allocations[place].address;
        }
        if (!replay_task(p, a->task, at, r->read + (int64_t) a->task * REPLAY_OPERANDS, true))
            return "a task reads other bytes than it should";
    }
    for (int32_t o = 0; o < p->n_objects; o++) {
        if (plan->placement[o] < 0)
            continue;
        const uint8_t *placement =
            arena[plan->allocations[plan->placement[o]].tier] + plan->allocations[plan->placement[o]].address;
        for (size_t i = 0; i < p->objects[o].bytes; i++) /* of a result, only what was written means anything */
            if (placement[i] != r->objects[o][i] && (p->objects[o].class != SL_CLASS_RESULT || r->written[o][i]))
                return "an object does not end the step at placement";
    }
    return NULL;
}

/* What is wrong with the plan; NULL: nothing. */
static inline const char *replay_fault(const replay *r, const sl_plan *plan, const size_t budget[SL_TIER_COUNT])
{
    const sl_program *p = r->program;
    const char *fault = places_fault(p, plan, budget);
    if (fault)
        return fault;
    uint8_t *ran = calloc((size_t) p->n_tasks + 1, 1), *arena[SL_TIER_COUNT];
    int32_t(*clock)[SL_STREAM_COUNT] = malloc(((size_t) plan->n_actions + 1) * sizeof *clock);
    size_t extent[SL_TIER_COUNT] = {1, 1};
    for (int32_t i = 0; i < plan->n_allocations; i++)
        extent[plan->allocations[i].tier] =
            SL_MAX(extent[plan->allocations[i].tier], plan->allocations[i].address + plan->allocations[i].bytes);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        arena[tier] = calloc(1, extent[tier]);
    for (int32_t i = 0; i < plan->n_actions && !fault; i++)
        fault = action_fault(p, plan, i, ran);
    for (int32_t t = 0; t < p->n_tasks && !fault; t++)
        fault = ran[t] ? NULL : "a task never runs";
    if (!fault)
        fault = lives_fault(p, plan);
    if (!fault && races(plan, clock))
        fault = "a race";
    if (!fault)
        fault = contents_fault(r, plan, arena);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(arena[tier]);
    free(clock);
    free(ran);
    return fault;
}

#endif
