/*
 * Finds space for an allocation. Its expected lifetime decides the address, since short-lived allocations would fragment
 * the space of long-lived ones. When a task needs space that is not free, the sweep clears the cheapest window of
 * addresses: free segments cost the wait until their last users end, others the cost to restore their object later. Thus
 * a choice that needs too much memory still becomes a plan. The search then sees which gaps were changed and plans their
 * copies ahead.
 */
#include "plan/schedule/sweep.h"

#include <math.h>

static double link_s(const sl_sweep *s, size_t bytes, sl_link link)
{
    return sl_costs_copy_s(s->a->costs, link, bytes, true);
}

/* ---- how long an allocation lives ------------------------------------------------------------------------------ */

void sl_sweep_foresee(sl_sweep *s, int32_t entry)
{
    const sl_analysis *a = s->a;
    int32_t last = s->stays[entry];
    s->until = a->entries[last].task;
    s->gone_s = s->task_start_s[SL_MIN(s->until + 1, a->program->n_tasks - 1)];
    if (s->choice->gap[last] == SL_GAP_EVICT && a->entries[last].next >= 0) /* its copy may wait for another */
        s->gone_s += 2 * link_s(s, a->bytes[a->entries[last].object], SL_LINK_OUT);
}

bool sl_sweep_goes_low(sl_sweep *s, int32_t entry)
{
    const sl_analysis *a = s->a;
    int32_t stay = SL_MIN(48, SL_MAX(1, a->program->n_tasks / 8));
    s->until = s->task;
    s->gone_s = s->task_start_s[s->task];
    if (entry < 0)
        return false;
    s->touched[entry] |= SL_TOUCHED_SIDE;
    sl_sweep_foresee(s, entry);
    if (s->choice->side[entry] != SL_SIDE_AUTO)
        return s->choice->side[entry] == SL_SIDE_LOW;
    return s->until - s->task > stay;
}

/* The task up to which a new allocation lives: for an object as expected, for a workspace (-1) the current task. */
static int32_t stay_of(const sl_sweep *s, int32_t object)
{
    return object >= 0 ? s->until : s->task;
}

/* ---- evicting others ------------------------------------------------------------------------------------------- */

/* Seconds to recompute it for its next use; INFINITY: cannot. */
static double again_s(const sl_sweep *s, int32_t object)
{
    const sl_program *p = s->a->program;
    if (!sl_sweep_can_drop(s, object))
        return INFINITY;
    return s->a->costs->device_s[p->tasks[p->objects[object].producer].signature];
}

/* Estimated cost of evicting an object now, in seconds of the step. */
static double leave_cost(const sl_sweep *s, int32_t object, size_t host_space)
{
    const sl_object_state *state = &s->objects[object];
    size_t bytes = s->a->bytes[object];
    double back = link_s(s, bytes, SL_LINK_IN), ahead = 0;
    if (state->cursor >= 0)
        ahead = s->task_start_s[s->a->entries[state->cursor].task] - s->task_start_s[s->task];
    bool space = sl_state_backed(state) || state->residency[SL_TIER_HOST] >= 0 || bytes <= host_space;
    double cost = INFINITY;
    if (space) {
        if (s->choice->fit & SL_FIT_FORESEE) /* it returns behind the copies in flight */
            back += fmax(0, s->stream_free_s[sl_links[SL_LINK_IN].stream] - s->now_s);
        double out = sl_state_backed(state) ? 0 : link_s(s, bytes, SL_LINK_OUT);
        cost = out + fmax(0, back - ahead) + 0.2 * (out + back) * (1 + back / (ahead + back));
    }
    cost = fmin(cost, again_s(s, object) * (1 + back / (ahead + back)));
    return state->wanted ? cost * 100 : cost;
}

/* The cheapest run of segments that can be made to hold `bytes`; -1: none. */
static int32_t cheapest_window(const sl_sweep *s, const sl_arena *arena, size_t bytes, const double *cost)
{
    int32_t best = -1;
    double best_cost = INFINITY;
    for (int32_t i = 0; i < arena->count; i++) {
        double sum = 0, wait = 0;
        size_t have = 0;
        for (int32_t k = i; k < arena->count && have < bytes && sum + wait < best_cost; k++) {
            const sl_segment *segment = &arena->segments[k];
            if (segment->place < 0)
                wait = fmax(wait, segment->ready_s - s->now_s);
            else
                sum += cost[k];
            have += segment->bytes;
        }
        if (have >= bytes && sum + wait < best_cost) {
            best = i;
            best_cost = sum + wait;
        }
    }
    return best;
}

/* The next object in *at..end, the rest of a window; *at moves on behind its place. -1: none. */
static int32_t next_in_window(const sl_sweep *s, const sl_arena *arena, size_t *at, size_t end)
{
    while (*at < end) {
        const sl_segment *segment = &arena->segments[sl_arena_index(arena, *at)];
        *at = segment->address + segment->bytes;
        if (segment->place >= 0)
            return s->residencies[segment->place].place.object;
    }
    return -1;
}

/* Evicts everything in the window. *stayed: an object that cannot be evicted; -1: none. */
static sl_status clear_window(sl_sweep *s, size_t address, size_t bytes, int32_t *stayed)
{
    const sl_arena *arena = &s->arena[SL_TIER_DEVICE];
    size_t at = address, end = address + bytes;
    *stayed = -1;
    for (int32_t object; (object = next_in_window(s, arena, &at, end)) >= 0;) {
        bool done;
        SL_TRY(sl_sweep_reserve(s));
        SL_TRY(sl_sweep_evict(s, object, again_s(s, object) < link_s(s, s->a->bytes[object], SL_LINK_OUT), &done));
        s->outcome->forced = true;
        if (!done) {
            *stayed = object;
            return SL_OK;
        }
        SL_TRY(sl_sweep_note_again(s, object));
    }
    return SL_OK;
}

/* Grows the array of costs per segment. */
static sl_status reserve_costs(sl_sweep *s, const sl_arena *arena)
{
    if (arena->capacity > s->capacity_costs) {
        SL_TRY(sl_grow(&s->costs, s->capacity_costs, arena->capacity, sizeof *s->costs));
        s->capacity_costs = arena->capacity;
    }
    return SL_OK;
}

/* The cost of releasing an object's copy in host memory. */
static double give_up_cost(const sl_sweep *s, int32_t object)
{
    const sl_object_state *state = &s->objects[object];
    if (state->pins || state->wanted || s->placement[object] >= 0)
        return INFINITY;
    return sl_state_resident(state) ? link_s(s, s->a->bytes[object], SL_LINK_OUT) : again_s(s, object);
}

/* Host memory is full: releases copies of objects that are also on the device or can be recomputed. */
static sl_status force_host_space(sl_sweep *s, size_t bytes, int32_t *at)
{
    sl_arena *arena = &s->arena[SL_TIER_HOST];
    SL_TRY(reserve_costs(s, arena));
    for (int32_t k = 0; k < arena->count; k++) {
        int32_t residency = arena->segments[k].place,
                object = residency >= 0 ? s->residencies[residency].place.object : -1;
        s->costs[k] = object < 0 ? INFINITY : give_up_cost(s, object);
    }
    int32_t window = cheapest_window(s, arena, bytes, s->costs);
    if (window < 0)
        return SL_OK;
    size_t address = arena->segments[window].address, next = address, end = address + bytes;
    for (int32_t object; (object = next_in_window(s, arena, &next, end)) >= 0;) {
        if (s->actual && !sl_state_resident(&s->objects[object]))
            s->actual[s->objects[object].gap] = SL_GAP_DROP;
        sl_sweep_forget(s, object, SL_TIER_HOST);
        s->outcome->forced = true;
    }
    *at = sl_arena_index(arena, address);
    return SL_OK;
}

/* Clears the cheapest window. If an object in it cannot be evicted, clears the cheapest window without it. */
static sl_status force_space(sl_sweep *s, size_t bytes, int32_t *at)
{
    sl_arena *arena = &s->arena[SL_TIER_DEVICE];
    int32_t stuck[64];
    int n_stuck = 0;
    *at = -1;
    while (n_stuck < 64) {
        SL_TRY(reserve_costs(s, arena));
        double *cost = s->costs;
        size_t host_space = sl_arena_largest(&s->arena[SL_TIER_HOST]);
        for (int32_t k = 0; k < arena->count; k++) {
            int32_t residency = arena->segments[k].place;
            if (residency < 0)
                continue;
            int32_t object = s->residencies[residency].place.object;
            cost[k] = object < 0 || s->objects[object].pins ? INFINITY : leave_cost(s, object, host_space);
        }
        int32_t window = cheapest_window(s, arena, bytes, cost);
        if (window < 0)
            break;
        size_t address = arena->segments[window].address;
        int32_t stayed;
        SL_TRY(clear_window(s, address, bytes, &stayed));
        if (stayed < 0) {
            *at = sl_arena_index(arena, address);
            break;
        }
        s->objects[stayed].pins++;
        stuck[n_stuck++] = stayed;
    }
    for (int i = 0; i < n_stuck; i++)
        s->objects[stuck[i]].pins--;
    return SL_OK;
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

/* The address for `bytes`; -1: none. *low: at the lower end of the free run found there. */
static sl_status find_space(sl_sweep *s, int32_t object, size_t bytes, sl_tier tier, bool force, bool *low, int32_t *at)
{
    sl_arena *arena = &s->arena[tier];
    bool device = tier == SL_TIER_DEVICE, endless = s->budget[tier] == SIZE_MAX;
    bool best = s->choice->fit & SL_FIT_BEST, beside = s->choice->fit & SL_FIT_FORESEE && device && !endless;
    bool tiny =
        beside && (double) bytes < 4 * s->a->costs->link_latency_s * s->a->costs->link_bytes_per_s_both[SL_LINK_IN];
    int32_t until = stay_of(s, object), large = s->next_large[s->task];
    double by = s->now_s;
    if (!force || !device)
        by = SL_MAX(by, s->stream_free_s[sl_links[device ? SL_LINK_IN : SL_LINK_OUT].stream]);
    if (s->choice->fit & SL_FIT_LOW || endless || tiny) /* an unlimited arena has no upper end */
        *low = true;
    bool stays = beside && object >= 0 &&
                 (tiny || until >= large || (large < s->a->program->n_tasks && s->gone_s > s->task_start_s[large]));
    size_t end = stays ? arena->fence : SIZE_MAX;
    *at = beside && !tiny
              ? sl_arena_find_beside(arena, bytes, by, end, s->task, until, low)
              : sl_arena_find(arena, bytes, by, end, *low, best || tiny); /* small allocations fill fragments */
    if (*at < 0 && (!device || s->choice->on_demand))
        *at = sl_arena_find(arena, bytes, INFINITY, SIZE_MAX, *low, best);
    if (*at >= 0)
        return SL_OK;
    *low = true;
    if (stays && force)
        *at = sl_arena_find(arena, bytes, by, SIZE_MAX, true, false);
    if (*at < 0 && device && force)
        return force_space(s, bytes, at);
    if (!device && !(object >= 0 && sl_sweep_can_drop(s, object)))
        return force_host_space(s, bytes, at);
    return SL_OK;
}

sl_status sl_sweep_make_space(sl_sweep *s, int32_t object, size_t bytes, sl_tier tier, bool force, bool low,
                              int32_t *residency)
{
    int32_t at;
    SL_TRY(sl_sweep_reserve(s));
    *residency = -1;
    size_t rounded = SL_ROUND_UP(SL_MAX(bytes, (size_t) 1), (size_t) SL_ALIGN);
    if (!s->bounded) {
        *residency = sl_sweep_new_residency(s, object, tier, bytes);
        if (tier == SL_TIER_DEVICE) {
            s->live += (double) rounded;
            s->committed[s->task] = fmax(s->committed[s->task], s->live);
        }
        return SL_OK;
    }
    SL_TRY(find_space(s, object, rounded, tier, force, &low, &at));
    if (at < 0)
        return SL_OK;
    SL_TRY(sl_sweep_reserve(s));
    int32_t index = sl_sweep_new_residency(s, object, tier, bytes);
    sl_residency *taken = &s->residencies[index];
    SL_TRY(sl_arena_take(&s->arena[tier], at, rounded, low, index, stay_of(s, object), taken->last,
                         &taken->place.address));
    taken->place.address += s->base[tier];
    *residency = index;
    return SL_OK;
}
