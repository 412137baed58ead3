/* Correct plans by dice: a planner without sense, to try the engine and the devices with everything a plan may contain, and
 * with dependencies of which each one is a real conflict.
 *
 * Tasks are taken in order. What a task reads is fetched or recomputed, space is made by writing out, dropping or forgetting
 * random objects, addresses are random. An action depends on whoever wrote what it reads, on whoever used what it overwrites, and
 * on whoever used the memory its new places lie on. */
#ifndef SL_TESTS_RANDOM_PLAN_H
#define SL_TESTS_RANDOM_PLAN_H

#include "plan/plan.h"
#include "random_program.h"

enum { TEST_PLACES = 4000, TEST_ACTIONS = 6000, TEST_DEPS = 200000 };

typedef struct test_place {
    int32_t writer;     /* action that filled it last; -1: it was there before the step */
    int32_t users[200]; /* every action that touched it */
    int32_t n_users;
    bool live, valid, placement;
    int32_t pins;
} test_place;

typedef struct test_planner {
    const sl_program *p;
    sl_plan *plan;
    test_place *info; /* by place */
    test_rng rng;
    size_t arena[SL_TIER_COUNT];
    sl_device *device;
    bool failed;
} test_planner;

static inline void test_depend(test_planner *q, int32_t action, int32_t on)
{
    sl_plan *plan = q->plan;
    sl_action *a = &plan->actions[action];
    if (on < 0 || on == action || plan->actions[on].stream == a->stream)
        return;
    for (int32_t d = 0; d < a->n_deps; d++)
        if (plan->deps[a->first_dep + d] == on)
            return;
    REQUIRE(plan->n_deps < TEST_DEPS);
    plan->deps[plan->n_deps++] = on;
    a->n_deps++;
}

static inline void test_used_by(test_planner *q, int32_t place, int32_t action)
{
    test_place *info = &q->info[place];
    REQUIRE(info->n_users < (int32_t) SL_COUNT(info->users));
    info->users[info->n_users++] = action;
    q->plan->allocations[place].last = SL_MAX(q->plan->allocations[place].last, action);
}

static inline bool test_overlap(const sl_allocation *a, const sl_allocation *b)
{
    return a->tier == b->tier && a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

static inline bool test_fits(const test_planner *q, const sl_allocation *place)
{
    if (place->address + place->bytes > q->arena[place->tier])
        return false;
    for (int32_t i = 0; i < q->plan->n_allocations; i++)
        if (q->info[i].live && test_overlap(place, &q->plan->allocations[i]))
            return false;
    return true;
}

static inline int32_t test_find(const test_planner *q, int32_t object, sl_tier tier)
{
    for (int32_t i = 0; i < q->plan->n_allocations; i++)
        if (q->info[i].live && q->plan->allocations[i].object == object && q->plan->allocations[i].tier == tier)
            return i;
    return -1;
}

static inline void test_release(test_planner *q, int32_t place)
{
    q->info[place].live = q->info[place].valid = false;
}

static inline int32_t test_new_action(test_planner *q, sl_action_kind kind, sl_stream stream)
{
    sl_plan *plan = q->plan;
    REQUIRE(plan->n_actions < TEST_ACTIONS);
    plan->actions[plan->n_actions] = (sl_action){.kind = kind,
                                                 .stream = stream,
                                                 .task = -1,
                                                 .object = -1,
                                                 .from = -1,
                                                 .to = -1,
                                                 .workspace = -1,
                                                 .first_dep = plan->n_deps};
    return plan->n_actions++;
}

static inline void test_make_space(test_planner *q, sl_tier tier);

/* New memory; no action has it yet. */
static inline int32_t test_allocate(test_planner *q, int32_t object, sl_tier tier, size_t bytes)
{
    sl_plan *plan = q->plan;
    REQUIRE(plan->n_allocations < TEST_PLACES);
    for (int tries = 0; tries < 500 && !q->failed; tries++) {
        sl_allocation place = {.object = object, .tier = tier, .bytes = bytes, .first = -1, .last = -1};
        size_t slots = q->arena[tier] / SL_ALIGN;
        place.address = (size_t) test_draw(&q->rng, (int32_t) slots) * SL_ALIGN;
        if (test_draw(&q->rng, 2)) /* behind some other place, to pack tighter */
            place.address =
                plan->n_allocations == 0 ? 0 : plan->allocations[test_draw(&q->rng, plan->n_allocations)].address;
        if (tries > 20)
            place.address = (size_t) (tries - 20) % slots * SL_ALIGN;
        if (test_fits(q, &place)) {
            plan->allocations[plan->n_allocations] = place;
            q->info[plan->n_allocations] = (test_place){.writer = -1, .live = true};
            return plan->n_allocations++;
        }
        if (tries % 40 == 39)
            test_make_space(q, tier);
    }
    q->failed = true;
    return -1;
}

/* `action` writes into `place` for the first time: after everyone who ever used the memory below it. */
static inline void test_fill(test_planner *q, int32_t place, int32_t action)
{
    for (int32_t i = 0; i < q->plan->n_allocations; i++)
        if (i != place && test_overlap(&q->plan->allocations[i], &q->plan->allocations[place]))
            for (int32_t u = 0; u < q->info[i].n_users; u++)
                test_depend(q, action, q->info[i].users[u]);
    q->plan->allocations[place].first = action;
}

static inline void test_read(test_planner *q, int32_t place, int32_t action)
{
    test_depend(q, action, q->info[place].writer);
    test_used_by(q, place, action);
}

/* `action` overwrites what `place` holds. */
static inline void test_overwrite(test_planner *q, int32_t place, int32_t action)
{
    for (int32_t u = 0; u < q->info[place].n_users; u++)
        test_depend(q, action, q->info[place].users[u]);
    if (q->info[place].n_users == 0 && !q->info[place].placement)
        test_fill(q, place, action);
    test_used_by(q, place, action);
    q->info[place].writer = action;
    q->info[place].valid = true;
}

static inline void test_copy(test_planner *q, int32_t from, int32_t to)
{
    sl_tier tier = q->plan->allocations[to].tier;
    int32_t action = test_new_action(q, SL_ACTION_COPY, tier == SL_TIER_DEVICE ? SL_STREAM_IN : SL_STREAM_OUT);
    sl_action *a = &q->plan->actions[action];
    a->object = q->plan->allocations[from].object;
    a->from = from, a->to = to;
    test_read(q, from, action);
    test_overwrite(q, to, action);
}

/* Can the object be rematerialized from things that do not change? */
static inline bool test_can_recompute(const test_planner *q, int32_t object)
{
    const sl_object *o = &q->p->objects[object];
    if (o->class != SL_CLASS_ACTIVATION || o->producer < 0)
        return false;
    for (int i = 0; i < SL_MAX_IN; i++) {
        int32_t in = q->p->tasks[o->producer].in[i].object;
        if (in >= 0 && q->p->objects[in].class != SL_CLASS_DATA && !test_can_recompute(q, in))
            return false;
    }
    return true;
}

/* Frees one random place of the tier that nothing pins, if there is one. */
static inline void test_make_space(test_planner *q, sl_tier tier)
{
    for (int tries = 0; tries < 50; tries++) {
        int32_t place = test_draw(&q->rng, q->plan->n_allocations);
        test_place *info = &q->info[place];
        const sl_allocation *at = &q->plan->allocations[place];
        if (!info->live || info->placement || info->pins || at->tier != tier || at->object < 0)
            continue;
        sl_tier other = tier == SL_TIER_DEVICE ? SL_TIER_HOST : SL_TIER_DEVICE;
        int32_t copy = test_find(q, at->object, other);
        bool only = info->valid && !(copy >= 0 && q->info[copy].valid);
        if (only && !(test_can_recompute(q, at->object) && test_draw(&q->rng, 2))) {
            if (tier == SL_TIER_HOST)
                continue; /* the host does not push back */
            info->pins++;
            if (copy < 0)
                copy = test_allocate(q, at->object, other, at->bytes);
            if (copy < 0)
                return;
            test_copy(q, place, copy);
            q->info[place].pins--;
        }
        test_release(q, place);
        return;
    }
}

static inline void test_plan_task(test_planner *q, int32_t task, sl_stream stream, bool recompute);

/* Makes `object` valid in `tier` and returns its place. */
static inline int32_t test_ensure(test_planner *q, int32_t object, sl_tier tier)
{
    int32_t place = test_find(q, object, tier);
    if (q->failed || (place >= 0 && q->info[place].valid))
        return place;
    sl_tier other = tier == SL_TIER_DEVICE ? SL_TIER_HOST : SL_TIER_DEVICE;
    int32_t source = test_find(q, object, other);
    if (source < 0 || !q->info[source].valid) { /* dropped */
        REQUIRE(q->p->objects[object].producer >= 0);
        test_plan_task(q, q->p->objects[object].producer, SL_STREAM_COMPUTE, true);
        return q->failed ? -1 : test_ensure(q, object, tier);
    }
    q->info[source].pins++;
    if (place < 0)
        place = test_allocate(q, object, tier, q->p->objects[object].bytes);
    if (place >= 0)
        test_copy(q, source, place);
    q->info[source].pins--;
    return place;
}

static inline void test_plan_task(test_planner *q, int32_t t, sl_stream stream, bool recompute)
{
    const sl_task *task = &q->p->tasks[t];
    sl_tier tier = stream == SL_STREAM_HOST ? SL_TIER_HOST : SL_TIER_DEVICE;
    int32_t places[SL_MAX_IN + SL_MAX_OUT], workspace = -1;
    sl_launch launch = {.op = task->op, .accumulate = task->accumulate, .attrs = task->attrs};
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT && !q->failed; i++) {
        const sl_use *use = i < SL_MAX_IN ? &task->in[i] : &task->out[i - SL_MAX_IN];
        *(i < SL_MAX_IN ? &launch.in[i].type : &launch.out[i - SL_MAX_IN].type) = use->type;
        places[i] = -1;
        if (use->object < 0)
            continue;
        const sl_object *object = &q->p->objects[use->object];
        bool anywhere = test_find(q, use->object, SL_TIER_DEVICE) >= 0 || test_find(q, use->object, SL_TIER_HOST) >= 0;
        bool exists = anywhere && !(object->producer == t); /* its only writer replaces it whole */
        if (i < SL_MAX_IN || exists)
            places[i] = test_ensure(q, use->object, tier);
        else if ((places[i] = test_find(q, use->object, tier)) < 0)
            places[i] = test_allocate(q, use->object, tier, object->bytes);
        if (places[i] >= 0)
            q->info[places[i]].pins++;
    }
    size_t bytes = q->device->class->workspace(q->device, &launch, stream);
    if (bytes && !q->failed)
        workspace = test_allocate(q, -1, tier, bytes);
    if (q->failed)
        return;
    int32_t action = test_new_action(q, SL_ACTION_TASK, stream);
    sl_action *a = &q->plan->actions[action];
    a->task = t, a->recompute = recompute, a->workspace = workspace, a->first_use = q->plan->n_use_allocations;
    for (int i = 0; i < SL_MAX_IN + SL_MAX_OUT; i++) {
        q->plan->use_allocations[q->plan->n_use_allocations++] = places[i];
        if (places[i] < 0)
            continue;
        if (i < SL_MAX_IN) {
            test_read(q, places[i], action);
        } else {
            test_overwrite(q, places[i], action);
            sl_tier other = tier == SL_TIER_DEVICE ? SL_TIER_HOST : SL_TIER_DEVICE;
            int32_t stale = test_find(q, task->out[i - SL_MAX_IN].object, other);
            if (stale >= 0 && q->info[stale].placement)
                q->info[stale].valid = false;
            else if (stale >= 0)
                test_release(q, stale);
        }
        q->info[places[i]].pins--;
    }
    if (workspace >= 0) {
        test_fill(q, workspace, action);
        test_used_by(q, workspace, action);
        test_release(q, workspace);
    }
}

/* Not every object is needed to the end. */
static inline void test_forget(test_planner *q, int32_t done)
{
    for (int32_t i = 0; i < q->plan->n_allocations; i++) {
        const sl_allocation *place = &q->plan->allocations[i];
        if (!q->info[i].live || q->info[i].placement || place->object < 0 || q->p->objects[place->object].persistent)
            continue;
        bool needed = q->p->objects[place->object].class == SL_CLASS_RESULT;
        for (int32_t t = done + 1; t < q->p->n_tasks && !needed; t++)
            for (int k = 0; k < SL_MAX_IN; k++)
                needed |= q->p->tasks[t].in[k].object == place->object;
        for (int32_t t = done + 1; t < q->p->n_tasks && !needed; t++)
            needed |= q->p->tasks[t].out[0].object == place->object;
        if (!needed)
            test_release(q, i);
    }
}

static inline void test_plan_placements(test_planner *q)
{
    for (int32_t o = 0; o < q->p->n_objects; o++) {
        const sl_object *object = &q->p->objects[o];
        bool fixed = object->class == SL_CLASS_DATA || object->class == SL_CLASS_RESULT;
        q->plan->placement[o] = -1;
        if (!object->persistent && !fixed)
            continue;
        int32_t place =
            test_allocate(q, o, !fixed && test_draw(&q->rng, 3) == 0 ? SL_TIER_DEVICE : SL_TIER_HOST, object->bytes);
        if (place < 0)
            return;
        q->info[place].placement = true;
        q->info[place].valid = object->class != SL_CLASS_RESULT;
        q->plan->placement[o] = place;
    }
}

/* NULL: the dice found no space; try more. */
static inline sl_plan *test_random_plan(const sl_program *p, sl_device *device, uint64_t seed,
                                        const size_t arena[SL_TIER_COUNT])
{
    sl_region *region;
    sl_plan *plan;
    test_planner q = {.p = p, .rng = {.key = seed}, .device = device, .arena = {arena[0], arena[1]}};
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_region_alloc(region, &plan, 1, sizeof *plan));
    plan->region = region;
    CHECK_OK(sl_region_alloc(region, &plan->allocations, TEST_PLACES, sizeof *plan->allocations));
    CHECK_OK(sl_region_alloc(region, &plan->actions, TEST_ACTIONS, sizeof *plan->actions));
    CHECK_OK(sl_region_alloc(region, &plan->deps, TEST_DEPS, sizeof *plan->deps));
    CHECK_OK(sl_region_alloc(region, &plan->use_allocations, TEST_ACTIONS * (SL_MAX_IN + SL_MAX_OUT),
                             sizeof *plan->use_allocations));
    CHECK_OK(sl_region_alloc(region, &plan->placement, p->n_objects, sizeof *plan->placement));
    CHECK_OK(sl_alloc(&q.info, TEST_PLACES, sizeof *q.info));
    q.plan = plan;
    test_plan_placements(&q);
    for (int32_t t = 0; t < p->n_tasks && !q.failed; t++) {
        bool on_host = p->tasks[t].host_allowed && test_draw(&q.rng, 2);
        test_plan_task(&q, t, on_host ? SL_STREAM_HOST : SL_STREAM_COMPUTE, false);
        test_forget(&q, t);
        if (test_draw(&q.rng, 4) == 0)
            test_make_space(&q, SL_TIER_DEVICE);
    }
    for (int32_t o = 0; o < p->n_objects && !q.failed; o++)
        if (plan->placement[o] >= 0 && !q.info[plan->placement[o]].valid)
            test_ensure(&q, o, plan->allocations[plan->placement[o]].tier);
    sl_free(q.info);
    for (int32_t o = 0; o < p->n_objects; o++)
        if (!q.failed && plan->placement[o] >= 0)
            plan->allocations[plan->placement[o]].last = plan->n_actions;
    if (!q.failed)
        return plan;
    sl_region_destroy(region);
    return NULL;
}

static inline void test_plan_destroy(sl_plan *plan)
{
    sl_region_destroy(plan->region);
}

#endif
