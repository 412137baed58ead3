/*
 * One task of the walk. Before it, its operands are brought to the tier it runs in: evicted operands are fetched if
 * they were not prefetched, dropped ones are recomputed by their producer, recursively with the producer's own
 * operands. After it, the choice of each operand's gap is carried out: kept, written back and forgotten, or dropped.
 *
 * A write-back starts right after the last write before its gap, while later readers may still be running.
 *
 * Where operands and workspace fit only into an empty arena, everything else is evicted first. This last resort makes the
 * smallest budget exact.
 */
#include "plan/schedule/sweep.h"

#define MAX_CLONE_DEPTH 256

static sl_status run_on_device(sl_sweep *s, int32_t t, bool clone, int depth);

/* ---- what happens to an object after a use --------------------------------------------------------------------- */

/* Its placement is a tier behind the device. */
static bool has_far_placement(const sl_sweep *s, int32_t object)
{
    return s->placement[object] >= 0 && s->residencies[s->placement[object]].place.tier != SL_TIER_DEVICE;
}

/* Whether the content written at `entry` will be wanted in host memory before it is written again. */
static bool leaves_later(const sl_sweep *s, int32_t entry)
{
    const sl_analysis *a = s->a;
    for (int32_t e = entry;;) {
        int32_t next = a->entries[e].next;
        if (next < 0)
            return has_far_placement(s, a->entries[e].object);
        if (a->entries[next].flags & SL_ENTRY_FRESH)
            return false;
        bool stays = s->placement[a->entries[e].object] >= 0 && !has_far_placement(s, a->entries[e].object);
        if ((s->choice->gap[e] == SL_GAP_EVICT && !stays) || sl_sweep_on_host(s, a->entries[next].task))
            return true;
        if (s->choice->gap[e] == SL_GAP_DROP || a->entries[next].flags & SL_ENTRY_WRITE)
            return false;
        e = next;
    }
}

/* The object has had its use `entry` on the device or the host; its gap begins. */
static sl_status after_use(sl_sweep *s, int32_t entry)
{
    const sl_entry *e = &s->a->entries[entry];
    int32_t o = e->object;
    sl_object_state *state = &s->objects[o];
    bool done = true, device = sl_state_resident(state);
    state->gap = entry;
    state->cursor = e->next;
    state->transient = false;
    if (s->actual)
        s->actual[entry] = SL_GAP_KEEP;
    if (device && !sl_state_backed(state) && leaves_later(s, entry))
        SL_TRY(sl_sweep_write_back(s, o, SL_TIER_HOST, &done));
    bool dead = e->next < 0 || s->a->entries[e->next].flags & SL_ENTRY_FRESH;
    if (dead) {
        bool at_placement =
            s->placement[o] < 0 || e->next >= 0 || state->valid[s->residencies[s->placement[o]].place.tier];
        for (int tier = 0; tier < SL_TIER_COUNT && at_placement; tier++)
            if (e->next >= 0 || s->placement[o] < 0 || s->residencies[s->placement[o]].place.tier != (sl_tier) tier)
                sl_sweep_forget(s, o, (sl_tier) tier);
        return SL_OK;
    }
    if (device && s->choice->gap[entry] == SL_GAP_DROP && e->can_drop && s->placement[o] < 0 && !state->wanted)
        sl_sweep_forget_others(s, o, SL_TIER_DEVICE); /* a copy from an earlier gap would only waste host memory */
    if (device && s->choice->gap[entry] != SL_GAP_KEEP)
        return sl_sweep_evict(s, o, s->choice->gap[entry] == SL_GAP_DROP, &done);
    /* Kept: releases a copy in host memory that nothing will read. */
    if (device && sl_state_backed(state) && s->placement[o] < 0 && !leaves_later(s, entry))
        sl_sweep_forget_others(s, o, SL_TIER_DEVICE);
    return SL_OK;
}

/* Whether a recomputation for the current task serves the object's next use too. */
static bool serves_next(const sl_sweep *s, int32_t o)
{
    const sl_object_state *state = &s->objects[o];
    if (state->cursor < 0 || s->a->entries[state->cursor].flags & SL_ENTRY_FRESH)
        return false;
    const sl_program *p = s->a->program;
    const sl_task *next = &p->tasks[s->a->entries[state->cursor].task], *cause = &p->tasks[s->task];
    return next->block == cause->block && next->chunk == cause->chunk && next->phase == cause->phase;
}

/* After a recomputation, operands that were brought only for it are released, unless the task that caused it belongs to
 * the same piece of the backward as the object's next use: then one recomputation serves both. */
static void after_clone(sl_sweep *s, int32_t o)
{
    sl_object_state *state = &s->objects[o];
    if (!state->transient || state->wanted || !sl_state_resident(state) || serves_next(s, o))
        return;
    state->transient = false;
    sl_sweep_forget(s, o, SL_TIER_DEVICE);
}

/* ---- operands -------------------------------------------------------------------------------------------------- */

/* Where each recomputation needs others that were dropped as well, their number can double from layer to layer. Such a walk ends early: its
 * plan would be of no use, and finding that out could take all memory. */
enum { FREE_CLONES = 4096, CLONES_PER_TASK = 8 };

static bool too_many_clones(sl_sweep *s)
{
    return s->n_clones++ > FREE_CLONES + (int64_t) CLONES_PER_TASK * s->a->program->n_tasks;
}

/* Rematerializes content that is in no tier. */
static sl_status materialize(sl_sweep *s, int32_t o, int depth)
{
    sl_object_state *state = &s->objects[o];
    if (sl_state_resident(state) || sl_state_backed(state) || !state->defined)
        return SL_OK;
    int32_t producer = s->a->program->objects[o].producer;
    if (producer < 0 || !s->a->can_clone[producer] || depth > MAX_CLONE_DEPTH || too_many_clones(s)) {
        sl_sweep_stuck(s);
        return SL_OK;
    }
    return run_on_device(s, producer, true, depth + 1);
}

/* An output with several writers is rewritten by a recomputation with the same bytes, so it must be present as a whole. */
static bool needs_content(const sl_sweep *s, const sl_entry *e, bool clone)
{
    if (e->flags & SL_ENTRY_READ)
        return true;
    const sl_object_state *state = &s->objects[e->object];
    return clone && (sl_state_resident(state) || sl_state_backed(state)) &&
           s->a->program->objects[e->object].producer != e->task;
}

/* All operands on the device, and space for outputs and workspace. *done false: no space. */
static sl_status gather(sl_sweep *s, int32_t t, bool clone, int32_t *workspace, bool *done)
{
    const sl_analysis *a = s->a;
    *done = true;
    *workspace = -1;
    for (int32_t i = a->first[t]; i < a->first[t + 1] && *done; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        if (sl_state_resident(state))
            continue;
        SL_TRY(sl_sweep_reserve(s));
        if (needs_content(s, e, clone) && sl_state_backed(state)) {
            if (!s->bounded)
                sl_sweep_note_fetch(s, e->object, clone);
            SL_TRY(sl_sweep_fetch(s, e->object, true, done));
            state->transient = clone;
        } else if (state->residency[SL_TIER_DEVICE] < 0) {
            bool low = sl_sweep_goes_low(s, clone ? -1 : i);
            if (clone && serves_next(s, e->object))
                sl_sweep_foresee(s, state->cursor);
            int32_t *residency = &state->residency[SL_TIER_DEVICE];
            SL_TRY(sl_sweep_make_space(s, e->object, s->a->program->objects[e->object].bytes, SL_TIER_DEVICE, true, low,
                                       residency));
            *done = *residency >= 0;
            state->transient = clone;
        }
    }
    size_t bytes = a->costs->workspace[SL_TIER_DEVICE][a->program->tasks[t].signature];
    if (*done && bytes) {
        SL_TRY(sl_sweep_make_space(s, -1, bytes, SL_TIER_DEVICE, true, false, workspace));
        *done = *workspace >= 0;
    }
    return SL_OK;
}

static void pin(sl_sweep *s, int32_t t, int by)
{
    for (int32_t i = s->a->first[t]; i < s->a->first[t + 1]; i++)
        s->objects[s->a->entries[i].object].pins += by;
}

static void want(sl_sweep *s, int32_t t, bool clone, int by)
{
    for (int32_t i = s->a->first[t]; i < s->a->first[t + 1]; i++)
        if (clone || s->a->entries[i].flags & SL_ENTRY_READ)
            s->objects[s->a->entries[i].object].wanted += by;
}

/* Releases outputs that have space but no content yet. */
static void ungather(sl_sweep *s, int32_t t, int32_t workspace)
{
    for (int32_t i = s->a->first[t]; i < s->a->first[t + 1]; i++) {
        int32_t o = s->a->entries[i].object;
        if (s->objects[o].residency[SL_TIER_DEVICE] >= 0 && !sl_state_resident(&s->objects[o]))
            sl_sweep_forget(s, o, SL_TIER_DEVICE);
    }
    if (workspace >= 0)
        sl_sweep_release(s, workspace);
}

/* The same, from an empty arena where the operands do not fit otherwise. */
static sl_status gather_or_clear(sl_sweep *s, int32_t t, bool clone, int32_t *workspace)
{
    bool done;
    SL_TRY(gather(s, t, clone, workspace, &done));
    if (done)
        return SL_OK;
    ungather(s, t, *workspace);
    s->outcome->forced = true;
    SL_TRY(sl_sweep_clear(s, &done));
    if (done)
        SL_TRY(gather(s, t, clone, workspace, &done));
    if (!done)
        sl_sweep_stuck(s);
    return SL_OK;
}

/* All operands in a tier behind the device. Operands that are already there are not evicted for the others. */
static sl_status gather_behind(sl_sweep *s, int32_t t, sl_tier tier)
{
    const sl_analysis *a = s->a;
    for (int32_t i = a->first[t]; i < a->first[t + 1] && s->outcome->feasible; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        bool done = true;
        SL_TRY(sl_sweep_reserve(s));
        if (e->flags & SL_ENTRY_READ) {
            SL_TRY(materialize(s, e->object, 0));
            if (sl_state_resident(state))
                SL_TRY(sl_sweep_write_back(s, e->object, tier, &done));
        }
        if (done && state->residency[tier] < 0) {
            SL_TRY(sl_sweep_make_space(s, e->object, a->program->objects[e->object].bytes, tier, false, true,
                                       &state->residency[tier]));
            done = state->residency[tier] >= 0;
        }
        if (!done)
            sl_sweep_stuck(s);
        state->pins++;
    }
    return SL_OK;
}

/* ---- the task -------------------------------------------------------------------------------------------------- */

static sl_status run_on_device(sl_sweep *s, int32_t t, bool clone, int depth)
{
    const sl_analysis *a = s->a;
    int32_t workspace = -1;
    want(s, t, clone, 1);
    for (int32_t i = a->first[t]; i < a->first[t + 1] && s->outcome->feasible; i++)
        if (a->entries[i].flags & SL_ENTRY_READ)
            SL_TRY(materialize(s, a->entries[i].object, depth));
    pin(s, t, 1);
    if (s->outcome->feasible)
        SL_TRY(gather_or_clear(s, t, clone, &workspace));
    if (s->outcome->feasible) {
        SL_TRY(sl_sweep_reserve(s));
        sl_sweep_issue_task(s, t, SL_TIER_DEVICE, clone, workspace);
    }
    pin(s, t, -1);
    want(s, t, clone, -1);
    for (int32_t i = a->first[t]; i < a->first[t + 1] && s->outcome->feasible; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        state->valid[SL_TIER_DEVICE] = state->defined = true;
        SL_TRY(sl_sweep_reserve(s));
        if (clone) {
            after_clone(s, e->object);
            continue;
        }
        if (e->flags & SL_ENTRY_WRITE)
            sl_sweep_forget_others(s, e->object, SL_TIER_DEVICE);
        SL_TRY(after_use(s, i));
    }
    return SL_OK;
}

/* Beside the memory of a tier behind the device. */
static sl_status run_behind(sl_sweep *s, int32_t t, sl_tier tier)
{
    const sl_analysis *a = s->a;
    int32_t workspace = -1;
    want(s, t, false, 1);
    SL_TRY(gather_behind(s, t, tier));
    want(s, t, false, -1);
    size_t bytes = a->costs->workspace[tier][a->program->tasks[t].signature];
    if (s->outcome->feasible && bytes) {
        SL_TRY(sl_sweep_make_space(s, -1, bytes, tier, false, true, &workspace));
        if (workspace < 0)
            sl_sweep_stuck(s);
    }
    if (!s->outcome->feasible)
        return SL_OK;
    SL_TRY(sl_sweep_reserve(s));
    sl_sweep_issue_task(s, t, tier, false, workspace);
    pin(s, t, -1);
    for (int32_t i = a->first[t]; i < a->first[t + 1]; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        SL_TRY(sl_sweep_reserve(s));
        state->valid[tier] = state->defined = true;
        if (e->flags & SL_ENTRY_WRITE)
            sl_sweep_forget_others(s, e->object, tier);
        SL_TRY(after_use(s, i));
    }
    return SL_OK;
}

sl_status sl_sweep_run_task(sl_sweep *s, int32_t task)
{
    return sl_sweep_on_host(s, task) ? run_behind(s, task, SL_TIER_HOST) : run_on_device(s, task, false, 0);
}
