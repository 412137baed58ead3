/*
 * The states of an object's bytes. Its content is valid in one tier, in both, or in none: then it was dropped and is
 * recomputed before its next use. Bytes in a tier are allocated before they are written and are freed with a record of
 * the last actions that touch them, so the next owner knows its dependencies.
 */
#include "plan/schedule/sweep.h"

#include <string.h>

int32_t sl_sweep_new_residency(sl_sweep *s, int32_t object, sl_tier tier, size_t bytes)
{
    int32_t index = s->n_residencies++;
    sl_residency *residency = &s->residencies[index];
    memset(residency, 0xff, sizeof *residency); /* -1 for every action */
    residency->place = (sl_allocation){.object = object, .tier = tier, .bytes = bytes, .first = -1, .last = -1};
    residency->permanent = false;
    return index;
}

void sl_sweep_release(sl_sweep *s, int32_t index)
{
    sl_residency *residency = &s->residencies[index];
    size_t rounded = SL_ROUND_UP(SL_MAX(residency->place.bytes, (size_t) 1), (size_t) SL_ALIGN);
    if (!s->bounded && !residency->permanent && residency->place.tier == SL_TIER_DEVICE)
        s->live -= (double) rounded;
    if (residency->permanent || !s->bounded)
        return;
    double ready = 0;
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        if (residency->last[r] >= 0)
            ready = SL_MAX(ready, s->actions[residency->last[r]].end_s);
    sl_arena_release(&s->arena[residency->place.tier], residency->place.address - s->base[residency->place.tier],
                     residency->last, ready, s->now_s);
}

void sl_sweep_forget(sl_sweep *s, int32_t object, sl_tier tier)
{
    sl_object_state *state = &s->objects[object];
    state->valid[tier] = false;
    if (state->residency[tier] < 0 || s->residencies[state->residency[tier]].permanent)
        return;
    sl_sweep_release(s, state->residency[tier]);
    state->residency[tier] = -1;
}

void sl_sweep_forget_others(sl_sweep *s, int32_t object, sl_tier tier)
{
    for (int other = 0; other < SL_TIER_COUNT; other++)
        if (other != (int) tier)
            sl_sweep_forget(s, object, (sl_tier) other);
}

/* Space in the tier `to` unless the object has it there, then a copy. */
static sl_status copy(sl_sweep *s, int32_t object, sl_tier from, sl_tier to, bool force, bool low, bool *done)
{
    sl_object_state *state = &s->objects[object];
    if (state->residency[to] < 0)
        SL_TRY(sl_sweep_make_space(s, object, s->a->program->objects[object].bytes, to, force, low,
                                   &state->residency[to]));
    *done = state->residency[to] >= 0;
    if (*done) {
        SL_TRY(sl_sweep_reserve(s));
        sl_sweep_issue_copy(s, object, from, to);
        state->valid[to] = true;
    }
    return SL_OK;
}

sl_status sl_sweep_write_back(sl_sweep *s, int32_t object, sl_tier tier, bool *done)
{
    *done = true;
    return s->objects[object].valid[tier] ? SL_OK : copy(s, object, SL_TIER_DEVICE, tier, false, true, done);
}

sl_status sl_sweep_evict(sl_sweep *s, int32_t object, bool prefer_drop, bool *done)
{
    sl_object_state *state = &s->objects[object];
    bool droppable = sl_sweep_can_drop(s, object), dropped = false;
    *done = false;
    if (s->residencies[state->residency[SL_TIER_DEVICE]].permanent)
        return SL_OK;
    *done = true;
    if (!sl_state_backed(state)) {
        dropped = prefer_drop && droppable;
        if (!dropped)
            SL_TRY(sl_sweep_write_back(s, object, SL_TIER_HOST, done));
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

bool sl_sweep_can_drop(const sl_sweep *s, int32_t object)
{
    const sl_object_state *state = &s->objects[object];
    return state->gap >= 0 && !state->wanted && s->a->entries[state->gap].can_drop;
}

sl_status sl_sweep_fetch(sl_sweep *s, int32_t object, bool force, bool *done)
{
    const sl_object_state *state = &s->objects[object];
    SL_ASSERT(sl_state_backed(state) && !sl_state_resident(state));
    bool low = state->residency[SL_TIER_DEVICE] < 0 && sl_sweep_goes_low(s, state->cursor);
    return copy(s, object, sl_state_backing(state), SL_TIER_DEVICE, force, low, done);
}

sl_status sl_sweep_clear(sl_sweep *s, bool *done)
{
    sl_arena *arena = &s->arena[SL_TIER_DEVICE];
    *done = true;
    for (int32_t i = 0; i < arena->count; i++) {
        int32_t residency = arena->segments[i].place;
        if (residency < 0)
            continue;
        SL_ASSERT(s->residencies[residency].place.object >= 0);
        SL_TRY(sl_sweep_reserve(s));
        SL_TRY(sl_sweep_evict(s, s->residencies[residency].place.object, false, done));
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
    /* The next allocation waits for all of it, since the purpose is one contiguous free range. */
    s->now_s = SL_MAX(s->now_s, arena->segments[0].ready_s);
    return SL_OK;
}
