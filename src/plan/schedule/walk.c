/*
 * One walk over the tasks, from placements to placements. Objects that survive the step (persistent objects, data, results) have a
 * fixed placement below the arena of their tier. All others are allocated in the arena:
 *
 *   0        placements        base                  arena                       fence        budget
 *   |--- a ---|-- b --|-c-|.................................................|.............|
 *
 * A workspace of a gigabyte finds no contiguous range among long-lived allocations. Therefore the addresses above the
 * fence are reserved for the largest workspaces, and for allocations that end before the next task with a large one.
 *
 * A walk of a large step that is slower than the best one so far is abandoned.
 */
#include "plan/schedule/sweep.h"

#include <string.h>

#define LARGE(space) ((space) / 32) /* workspaces above are large */

bool sl_sweep_on_host(const sl_sweep *s, int32_t task)
{
    return s->choice->on_host[task] && s->a->program->tasks[task].host_allowed;
}

void sl_sweep_stuck(sl_sweep *s)
{
    s->outcome->feasible = false;
}

/* ---- placements ----------------------------------------------------------------------------------------------------- */

/* Data and results are exchanged in host memory. */
static bool is_io(const sl_object *object)
{
    return object->class == SL_CLASS_DATA || object->class == SL_CLASS_RESULT;
}

static sl_status make_placement(sl_sweep *s, int32_t o)
{
    const sl_object *object = &s->a->program->objects[o];
    sl_tier tier = is_io(object) ? SL_TIER_HOST : (sl_tier) s->choice->placement[o];
    SL_TRY(sl_sweep_reserve(s));
    int32_t residency = sl_sweep_new_residency(s, o, tier, object->bytes);
    s->residencies[residency].permanent = true;
    if (object->persistent && s->fixed)
        s->residencies[residency].place.address = s->fixed->address[o];
    else {
        s->residencies[residency].place.address = s->base[tier];
        s->base[tier] += s->a->bytes[o];
    }
    s->placement[o] = s->objects[o].residency[tier] = residency;
    s->objects[o].valid[tier] = s->objects[o].defined = object->class != SL_CLASS_RESULT;
    return SL_OK;
}

/* What survives the step first, then data and results: a plan that shares the memory has the same placements below. */
static sl_status make_placements(sl_sweep *s)
{
    const sl_program *p = s->a->program;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        s->base[tier] = s->fixed ? s->fixed->end[tier] : 0;
    for (int32_t o = 0; o < p->n_objects; o++) {
        s->objects[o] = (sl_object_state){.residency = {-1, -1}, .gap = -1, .cursor = s->a->object_first[o]};
        s->placement[o] = -1;
    }
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent)
            SL_TRY(make_placement(s, o));
    for (int32_t o = 0; o < p->n_objects; o++)
        if (is_io(&p->objects[o]) && !p->objects[o].persistent)
            SL_TRY(make_placement(s, o));
    return SL_OK;
}

/* Persistent objects and results end at their placement. */
static sl_status go_placement(sl_sweep *s)
{
    for (int32_t o = 0; o < s->a->program->n_objects; o++) {
        if (s->placement[o] < 0 || !s->objects[o].defined)
            continue;
        bool done = true;
        SL_TRY(sl_sweep_reserve(s));
        sl_tier tier = s->residencies[s->placement[o]].place.tier;
        if (s->objects[o].valid[tier])
            continue;
        if (tier == SL_TIER_DEVICE)
            SL_TRY(sl_sweep_fetch(s, o, true, &done));
        else
            SL_TRY(sl_sweep_write_back(s, o, tier, &done));
        SL_ASSERT(done);
    }
    return SL_OK;
}

/* ---- the arenas ------------------------------------------------------------------------------------------------ */

/* Where the fence goes; SIZE_MAX: no workspace is large. Also finds the next task with a large one, for each task. */
static size_t fence_off(sl_sweep *s, size_t space)
{
    const sl_program *p = s->a->program;
    const size_t *workspace = s->a->costs->workspace[SL_TIER_DEVICE];
    size_t largest = 0, large = LARGE(space);
    int32_t next = p->n_tasks;
    for (int32_t t = p->n_tasks - 1; t >= 0; t--) {
        size_t bytes = sl_sweep_on_host(s, t) ? 0 : workspace[p->tasks[t].signature];
        if (bytes > large)
            next = t;
        largest = SL_MAX(largest, bytes);
        s->next_large[t] = next;
    }
    return largest > large ? space - SL_MIN(space, SL_ROUND_UP(largest, (size_t) SL_ALIGN)) : SIZE_MAX;
}

static sl_status empty_arenas(sl_sweep *s)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (s->base[tier] > s->budget[tier])
            sl_sweep_stuck(s);
        size_t space = s->budget[tier] - SL_MIN(s->base[tier], s->budget[tier]), fence = SIZE_MAX;
        if (tier == SL_TIER_DEVICE && s->bounded && s->choice->fit & SL_FIT_FORESEE && space != SIZE_MAX)
            fence = fence_off(s, space / SL_ALIGN * SL_ALIGN);
        SL_TRY(sl_arena_reset(&s->arena[tier], space, fence));
    }
    return SL_OK;
}

/* ---- the walk -------------------------------------------------------------------------------------------------- */

static sl_status begin(sl_sweep *s)
{
    s->n_clones = 0;
    s->n_residencies = s->n_actions = s->n_deps = s->n_use_allocations = s->next_fetch = s->n_again = 0;
    s->now_s = s->live = 0;
    memset(s->need, 0xff, sizeof s->need);
    memset(s->stream_last, 0xff, sizeof s->stream_last);
    memset(s->stream_free_s, 0, sizeof s->stream_free_s);
    SL_TRY(make_placements(s));
    return empty_arenas(s);
}

/* Rounds are alike: a walk that is slower after a few rounds stays slower. */
static void keep_pace(sl_sweep *s)
{
    const double behind = 1.004;
    s->clock_s[s->task] = s->now_s;
    if (s->paced && s->task > s->a->program->n_tasks / 4 && s->now_s > behind * s->pace_s[s->task]) {
        sl_sweep_stuck(s);
        s->outcome->behind = true;
    }
}

sl_status sl_sweep_walk(sl_sweep *s)
{
    SL_TRY(begin(s));
    for (s->task = 0; s->task < s->a->program->n_tasks && s->outcome->feasible; s->task++) {
        if (s->bounded) {
            keep_pace(s);
            SL_TRY(sl_sweep_fetch_ahead(s));
        } else {
            s->task_start_s[s->task] = s->now_s;
            s->committed[s->task] = s->live;
        }
        SL_TRY(sl_sweep_reserve(s));
        SL_TRY(sl_sweep_run_task(s, s->task));
    }
    return s->outcome->feasible ? go_placement(s) : SL_OK;
}
