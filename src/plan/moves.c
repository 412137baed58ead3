/*
 * Places come and go. When a task needs room that is not free, the sweep clears the cheapest window of addresses: free
 * segments cost the wait until they are really free, others what it takes to bring their object back later. That is how
 * a plan that wants too much still becomes a plan; the search then sees which gaps had to give and plans their copies
 * ahead.
 */
#include "plan/sweep.h"

#include <math.h>
#include <string.h>

int32_t sl_sweep_new_spot(sl_sweep *s, int32_t object, sl_tier tier, size_t bytes)
{
    int32_t index = s->n_spots++;
    sl_spot *spot = &s->spots[index];
    memset(spot, 0xff, sizeof *spot); /* -1 for every action */
    spot->place = (sl_place){.object = object, .tier = tier, .bytes = bytes, .first = -1, .last = -1};
    spot->permanent = false;
    return index;
}

static double link_s(const sl_sweep *s, size_t bytes, int direction)
{
    return s->a->costs->link_latency_s + (double) bytes / s->a->costs->link_bytes_per_s_both[direction];
}

static bool can_drop(const sl_sweep *s, int32_t object)
{
    const sl_object_state *state = &s->objects[object];
    return state->gap >= 0 && !state->wanted && s->a->entries[state->gap].can_drop;
}

/* What it costs to let an object leave now, in seconds of the step as far as one can tell. */
static double leave_cost(const sl_sweep *s, int32_t object, size_t host_room)
{
    const sl_object_state *state = &s->objects[object];
    size_t bytes = s->a->bytes[object];
    double back = link_s(s, bytes, 0), ahead = 0;
    if (state->cursor >= 0)
        ahead = s->task_start_s[s->a->entries[state->cursor].task] - s->task_start_s[s->task];
    bool room = state->valid[SL_TIER_HOST] || state->spot[SL_TIER_HOST] >= 0 || bytes <= host_room;
    double cost = INFINITY;
    if (room) {
        if (s->choice->fit & SL_FIT_FORESEE) /* it comes back behind what is under way */
            back += fmax(0, s->stream_free_s[SL_STREAM_IN] - s->now_s);
        double out = state->valid[SL_TIER_HOST] ? 0 : link_s(s, bytes, 1);
        cost = out + fmax(0, back - ahead) + 0.2 * (out + back) * (1 + back / (ahead + back));
    }
    if (can_drop(s, object)) {
        const sl_program *p = s->a->program;
        double again = s->a->costs->device_s[p->tasks[p->objects[object].producer].kind];
        cost = fmin(cost, again * (1 + back / (ahead + back)));
    }
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

/* It will be fetched again ahead of its next use (fetch_again). */
static sl_status note_again(sl_sweep *s, int32_t object)
{
    const sl_object_state *state = &s->objects[object];
    if (!(s->choice->fit & SL_FIT_FORESEE) || !state->valid[SL_TIER_HOST] || state->cursor < 0)
        return SL_OK;
    if (s->n_again == s->capacity_again) {
        int32_t capacity = s->capacity_again * 2 + 64;
        SL_TRY(sl_grow(&s->again, s->capacity_again, capacity, sizeof *s->again));
        s->capacity_again = capacity;
    }
    s->again[s->n_again++] = (sl_fetch){.object = object, .task = s->a->entries[state->cursor].task};
    return SL_OK;
}

/* Clears the window's places from segment `at` on. *done false: one of them could not leave (and is pinned by the
 * caller). */
static sl_status clear_window(sl_sweep *s, size_t address, size_t bytes, int32_t *stayed)
{
    const sl_arena *arena = &s->arena[SL_TIER_DEVICE];
    size_t end = address + bytes;
    *stayed = -1;
    for (size_t at = address; at < end;) {
        const sl_segment *segment = &arena->segments[sl_arena_index(arena, at)];
        at = segment->address + segment->bytes;
        if (segment->place < 0)
            continue;
        int32_t object = s->spots[segment->place].place.object;
        bool done;
        SL_TRY(sl_sweep_reserve(s));
        double again = INFINITY;
        const sl_program *p = s->a->program;
        if (can_drop(s, object))
            again = s->a->costs->device_s[p->tasks[p->objects[object].producer].kind];
        SL_TRY(sl_sweep_evict(s, object, again < link_s(s, s->a->bytes[object], 1), &done));
        s->outcome->forced = true;
        if (!done) {
            *stayed = object;
            return SL_OK;
        }
        SL_TRY(note_again(s, object));
    }
    return SL_OK;
}

/* Room for a cost per segment. */
static sl_status reserve_costs(sl_sweep *s, const sl_arena *arena)
{
    if (arena->capacity > s->capacity_costs) {
        SL_TRY(sl_grow(&s->costs, s->capacity_costs, arena->capacity, sizeof *s->costs));
        s->capacity_costs = arena->capacity;
    }
    return SL_OK;
}

/* What it costs to give up an object's copy in host memory. */
static double give_up_cost(const sl_sweep *s, int32_t object)
{
    const sl_program *p = s->a->program;
    const sl_object_state *state = &s->objects[object];
    if (state->pins || state->wanted || s->home[object] >= 0)
        return INFINITY;
    if (state->valid[SL_TIER_DEVICE])
        return link_s(s, s->a->bytes[object], 1);
    return can_drop(s, object) ? s->a->costs->device_s[p->tasks[p->objects[object].producer].kind] : INFINITY;
}

/* Host memory is full: copies of what is on the device too, or can be recomputed, make room. */
static sl_status force_host_room(sl_sweep *s, size_t bytes, int32_t *at)
{
    sl_arena *arena = &s->arena[SL_TIER_HOST];
    SL_TRY(reserve_costs(s, arena));
    for (int32_t k = 0; k < arena->count; k++) {
        int32_t spot = arena->segments[k].place, object = spot >= 0 ? s->spots[spot].place.object : -1;
        s->costs[k] = object < 0 ? INFINITY : give_up_cost(s, object);
    }
    int32_t window = cheapest_window(s, arena, bytes, s->costs);
    if (window < 0)
        return SL_OK;
    size_t address = arena->segments[window].address, end = address + bytes;
    for (size_t next = address; next < end;) {
        const sl_segment *segment = &arena->segments[sl_arena_index(arena, next)];
        next = segment->address + segment->bytes;
        if (segment->place < 0)
            continue;
        int32_t object = s->spots[segment->place].place.object;
        if (s->actual && !s->objects[object].valid[SL_TIER_DEVICE])
            s->actual[s->objects[object].gap] = SL_GAP_DROP;
        sl_sweep_forget(s, object, SL_TIER_HOST);
        s->outcome->forced = true;
    }
    *at = sl_arena_index(arena, address);
    return SL_OK;
}

static sl_status force_room(sl_sweep *s, size_t bytes, int32_t *at)
{
    sl_arena *arena = &s->arena[SL_TIER_DEVICE];
    int32_t stuck[64];
    int n_stuck = 0;
    *at = -1;
    while (n_stuck < 64) {
        SL_TRY(reserve_costs(s, arena));
        double *cost = s->costs;
        size_t host_room = sl_arena_largest(&s->arena[SL_TIER_HOST]);
        for (int32_t k = 0; k < arena->count; k++) {
            int32_t spot = arena->segments[k].place, object = spot >= 0 ? s->spots[spot].place.object : -1;
            if (spot < 0)
                continue;
            cost[k] = object < 0 || s->objects[object].pins ? INFINITY : leave_cost(s, object, host_room);
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

sl_status sl_sweep_make_room(sl_sweep *s, int32_t object, size_t bytes, sl_tier tier, bool force, bool low,
                             int32_t *spot)
{
    SL_TRY(sl_sweep_reserve(s));
    *spot = -1;
    size_t rounded = SL_ROUND_UP(SL_MAX(bytes, (size_t) 1), (size_t) SL_ALIGN);
    if (!s->bounded) {
        *spot = sl_sweep_new_spot(s, object, tier, bytes);
        if (tier == SL_TIER_DEVICE) {
            s->live += (double) rounded;
            s->committed[s->task] = fmax(s->committed[s->task], s->live);
        }
        return SL_OK;
    }
    sl_arena *arena = &s->arena[tier];
    bool best = s->choice->fit & SL_FIT_BEST,
         beside = s->choice->fit & SL_FIT_FORESEE && tier == SL_TIER_DEVICE && s->budget[tier] != SIZE_MAX;
    int32_t until = object >= 0 ? s->until : s->task;
    if (s->choice->fit & SL_FIT_LOW || s->budget[tier] == SIZE_MAX) /* an arena without end has no upper end to fill */
        low = true;
    double by = s->now_s;
    if (!force || tier != SL_TIER_DEVICE)
        by = SL_MAX(by, s->stream_free_s[tier == SL_TIER_DEVICE ? SL_STREAM_IN : SL_STREAM_OUT]);
    bool tiny = beside && (double) rounded < 4 * s->a->costs->link_latency_s * s->a->costs->link_bytes_per_s_both[0];
    low = low || tiny;
    int32_t large = s->next_large[s->task];
    bool stays = beside && object >= 0 &&
                 (tiny || until >= large || (large < s->a->program->n_tasks && s->gone_s > s->task_start_s[large]));
    size_t end = stays ? arena->fence : SIZE_MAX;
    int32_t at = beside && !tiny ? sl_arena_find_beside(arena, rounded, by, end, s->task, until, &low)
                                 : sl_arena_find(arena, rounded, by, end, low, best || tiny); /* crumbs into crannies */
    if (at < 0 && (tier != SL_TIER_DEVICE || s->choice->on_demand))
        at = sl_arena_find(arena, rounded, INFINITY, SIZE_MAX, low, best);
    if (at < 0 && stays && force)
        at = sl_arena_find(arena, rounded, by, SIZE_MAX, low = true, false);
    if (at < 0 && tier == SL_TIER_DEVICE && force) {
        SL_TRY(force_room(s, rounded, &at));
        low = true;
    }
    if (at < 0 && tier == SL_TIER_HOST && !(object >= 0 && can_drop(s, object))) {
        SL_TRY(force_host_room(s, rounded, &at));
        low = true;
    }
    if (at < 0)
        return SL_OK;
    SL_TRY(sl_sweep_reserve(s));
    int32_t index = sl_sweep_new_spot(s, object, tier, bytes);
    sl_spot *taken = &s->spots[index];
    SL_TRY(sl_arena_take(arena, at, rounded, low, index, until, taken->last, &taken->place.address));
    taken->place.address += s->base[tier];
    *spot = index;
    return SL_OK;
}

void sl_sweep_release(sl_sweep *s, int32_t index)
{
    sl_spot *spot = &s->spots[index];
    size_t rounded = SL_ROUND_UP(SL_MAX(spot->place.bytes, (size_t) 1), (size_t) SL_ALIGN);
    if (!s->bounded && !spot->permanent && spot->place.tier == SL_TIER_DEVICE)
        s->live -= (double) rounded;
    if (spot->permanent || !s->bounded)
        return;
    double ready = 0;
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        if (spot->last[r] >= 0)
            ready = SL_MAX(ready, s->actions[spot->last[r]].end_s);
    sl_arena_release(&s->arena[spot->place.tier], spot->place.address - s->base[spot->place.tier], spot->last, ready,
                     s->now_s);
}

void sl_sweep_forget(sl_sweep *s, int32_t object, sl_tier tier)
{
    sl_object_state *state = &s->objects[object];
    state->valid[tier] = false;
    if (state->spot[tier] < 0 || s->spots[state->spot[tier]].permanent)
        return;
    sl_sweep_release(s, state->spot[tier]);
    state->spot[tier] = -1;
}

sl_status sl_sweep_write_back(sl_sweep *s, int32_t object, bool *done)
{
    sl_object_state *state = &s->objects[object];
    *done = true;
    if (state->valid[SL_TIER_HOST])
        return SL_OK;
    if (state->spot[SL_TIER_HOST] < 0)
        SL_TRY(sl_sweep_make_room(s, object, s->a->program->objects[object].bytes, SL_TIER_HOST, false, true,
                                  &state->spot[SL_TIER_HOST]));
    *done = state->spot[SL_TIER_HOST] >= 0;
    if (*done) {
        SL_TRY(sl_sweep_reserve(s));
        sl_sweep_copy(s, object, SL_TIER_DEVICE, SL_TIER_HOST);
        state->valid[SL_TIER_HOST] = true;
    }
    return SL_OK;
}

sl_status sl_sweep_evict(sl_sweep *s, int32_t object, bool prefer_drop, bool *done)
{
    sl_object_state *state = &s->objects[object];
    bool droppable = can_drop(s, object), dropped = false;
    *done = false;
    if (s->spots[state->spot[SL_TIER_DEVICE]].permanent)
        return SL_OK;
    *done = true;
    if (!state->valid[SL_TIER_HOST]) {
        dropped = prefer_drop && droppable;
        if (!dropped)
            SL_TRY(sl_sweep_write_back(s, object, done));
        if (!*done && droppable)
            *done = dropped = true;
    }
    if (!*done)
        return SL_OK;
    if (state->gap >= 0 && s->actual)
        s->actual[state->gap] = dropped ? SL_GAP_DROP : SL_GAP_EVICT;
    sl_sweep_forget(s, object, SL_TIER_DEVICE);
    state->transient = false;
    return SL_OK;
}

void sl_sweep_foresee(sl_sweep *s, int32_t entry)
{
    const sl_analysis *a = s->a;
    int32_t last = s->stays[entry];
    s->until = a->entries[last].task;
    s->gone_s = s->task_start_s[SL_MIN(s->until + 1, a->program->n_tasks - 1)];
    if (s->choice->gap[last] == SL_GAP_EVICT && a->entries[last].next >= 0) /* its copy may have to wait for another */
        s->gone_s += 2 * link_s(s, a->bytes[a->entries[last].object], 1);
}

/* How long a place made for the use `entry` will stay decides at which end of the arena it is put: short stays would
 * cut up the long ones' space. */
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

sl_status sl_sweep_fetch(sl_sweep *s, int32_t object, bool force, bool *done)
{
    sl_object_state *state = &s->objects[object];
    SL_ASSERT(state->valid[SL_TIER_HOST] && !state->valid[SL_TIER_DEVICE]);
    if (state->spot[SL_TIER_DEVICE] < 0)
        SL_TRY(sl_sweep_make_room(s, object, s->a->program->objects[object].bytes, SL_TIER_DEVICE, force,
                                  sl_sweep_goes_low(s, state->cursor), &state->spot[SL_TIER_DEVICE]));
    *done = state->spot[SL_TIER_DEVICE] >= 0;
    if (*done) {
        SL_TRY(sl_sweep_reserve(s));
        sl_sweep_copy(s, object, SL_TIER_HOST, SL_TIER_DEVICE);
        state->valid[SL_TIER_DEVICE] = true;
    }
    return SL_OK;
}

sl_status sl_sweep_clear(sl_sweep *s, bool *done)
{
    sl_arena *arena = &s->arena[SL_TIER_DEVICE];
    *done = true;
    for (int32_t i = 0; i < arena->count; i++) {
        int32_t spot = arena->segments[i].place;
        if (spot < 0)
            continue;
        SL_ASSERT(s->spots[spot].place.object >= 0);
        SL_TRY(sl_sweep_reserve(s));
        SL_TRY(sl_sweep_evict(s, s->spots[spot].place.object, false, done));
        if (!*done)
            return SL_OK;
        i = -1; /* segments may have been merged */
    }
    for (int32_t i = 1; i < arena->count; i++) {
        sl_segment *first = &arena->segments[0], *segment = &arena->segments[i];
        first->bytes += segment->bytes;
        first->ready_s = SL_MAX(first->ready_s, segment->ready_s);
        for (int r = 0; r < SL_STREAM_COUNT; r++)
            first->last[r] = SL_MAX(first->last[r], segment->last[r]);
    }
    arena->count = 1;
    arena->fence = SIZE_MAX;
    /* Whoever comes next waits for all of it: the point is one whole free range. */
    s->now_s = SL_MAX(s->now_s, arena->segments[0].ready_s);
    return SL_OK;
}
