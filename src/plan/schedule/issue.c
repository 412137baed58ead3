/*
 * Actions and their order. A new action must wait for the last actions that touched its bytes (`need`, one per stream:
 * streams run in order, so the latest stands for all). Dependencies that have certainly
 * ended are omitted: every action carries a vector clock, the latest action of each stream that has ended when it
 * starts, and an older dependency is redundant.
 */
#include "plan/schedule/sweep.h"

#include <string.h>

#define OPERANDS (SL_MAX_IN + SL_MAX_OUT)

#define GROW(array, count, capacity, extra)                                 \
    do {                                                                    \
        if ((count) + (extra) > (capacity)) {                               \
            int32_t grown_ = (capacity) *2 + (extra) + 256;                 \
            SL_TRY(sl_grow(&(array), (capacity), grown_, sizeof *(array))); \
            (capacity) = grown_;                                            \
        }                                                                   \
    } while (0)

sl_status sl_sweep_reserve(sl_sweep *s)
{
    GROW(s->residencies, s->n_residencies, s->capacity_residencies, 8);
    GROW(s->deps, s->n_deps, s->capacity_deps, 4 * SL_STREAM_COUNT);
    GROW(s->use_allocations, s->n_use_allocations, s->capacity_use_places, OPERANDS);
    GROW(s->fetches, s->n_fetches, s->capacity_fetches, 4);
    if (s->n_actions + 4 > s->capacity_actions) {
        int32_t grown = s->capacity_actions * 2 + 256;
        SL_TRY(sl_grow(&s->clock, s->capacity_actions, grown, sizeof *s->clock));
        SL_TRY(sl_grow(&s->actions, s->capacity_actions, grown, sizeof *s->actions));
        s->capacity_actions = grown;
    }
    return SL_OK;
}

static void after(sl_sweep *s, int32_t action)
{
    if (action >= 0) {
        sl_stream stream = s->actions[action].stream;
        s->need[stream] = SL_MAX(s->need[stream], action);
    }
}

static void after_all(sl_sweep *s, const int32_t last[SL_STREAM_COUNT])
{
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        s->need[r] = SL_MAX(s->need[r], last[r]);
}

/* Appends the action, with the dependencies collected in `need`, which is emptied. */
static int32_t issue(sl_sweep *s, const sl_action *action, double seconds)
{
    int32_t index = s->n_actions++, before = s->stream_last[action->stream];
    sl_action *a = &s->actions[index];
    int32_t *clock = s->clock[index];
    *a = *action;
    a->first_dep = s->n_deps;
    a->n_deps = 0;
    for (int r = 0; r < SL_STREAM_COUNT; r++)
        clock[r] = before >= 0 ? s->clock[before][r] : -1;
    clock[a->stream] = before;
    double start = s->stream_free_s[a->stream];
    /* Latest first, so that dependencies implied by a later one are omitted. */
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        int32_t dep = -1;
        for (int r = 0; r < SL_STREAM_COUNT; r++)
            if (r != (int) a->stream && s->need[r] > clock[r] && s->need[r] > dep)
                dep = s->need[r];
        if (dep < 0)
            break;
        sl_stream r = s->actions[dep].stream;
        s->deps[s->n_deps++] = dep;
        a->n_deps++;
        for (int q = 0; q < SL_STREAM_COUNT; q++)
            clock[q] = SL_MAX(clock[q], s->clock[dep][q]);
        clock[r] = SL_MAX(clock[r], dep);
        start = SL_MAX(start, s->actions[dep].end_s);
    }
    memset(s->need, 0xff, sizeof s->need);
    a->start_s = start;
    a->end_s = start + seconds;
    s->stream_free_s[a->stream] = a->end_s;
    s->stream_last[a->stream] = index;
    if (a->stream == SL_STREAM_COMPUTE)
        s->now_s = a->end_s;
    return index;
}

static void touch(sl_residency *residency, sl_stream stream, int32_t action, bool write)
{
    if (!residency->permanent) {
        if (residency->place.first < 0)
            residency->place.first = action;
        residency->place.last = action;
    }
    residency->last[stream] = action;
    if (write)
        residency->writer = action;
}

void sl_sweep_issue_copy(sl_sweep *s, int32_t object, sl_tier from, sl_tier to)
{
    sl_object_state *state = &s->objects[object];
    sl_residency *source = &s->residencies[state->residency[from]], *target = &s->residencies[state->residency[to]];
    const sl_link link = sl_link_between(from, to);
    sl_action action = {.kind = SL_ACTION_COPY,
                        .stream = sl_links[link].stream,
                        .task = -1,
                        .object = object,
                        .from = state->residency[from],
                        .to = state->residency[to],
                        .workspace = -1};
    /* At the rate beside an opposite copy, which may be issued later and still run at the same time. A shorter estimate makes fetches late,
     * and a late fetch occupies its space for longer. */
    double seconds = sl_costs_copy_s(s->a->costs, link, source->place.bytes, true);
    if (!s->bounded && to < from)
        seconds = 0; /* the dry walk learns deadlines: arrivals must not shift them */
    after(s, source->writer);
    after_all(s, target->last);
    int32_t index = issue(s, &action, seconds);
    touch(source, action.stream, index, false);
    touch(target, action.stream, index, true);
}

void sl_sweep_issue_task(sl_sweep *s, int32_t t, sl_tier tier, bool clone, int32_t workspace)
{
    const sl_analysis *a = s->a;
    const sl_stream stream = sl_stream_on(tier);
    sl_action action = {.kind = SL_ACTION_TASK,
                        .stream = stream,
                        .task = t,
                        .recompute = clone,
                        .object = -1,
                        .from = -1,
                        .to = -1,
                        .first_use = s->n_use_allocations,
                        .workspace = workspace};
    for (int i = 0; i < OPERANDS; i++) {
        int32_t e = a->operand_entry[(int64_t) t * OPERANDS + i];
        s->use_allocations[s->n_use_allocations++] = e < 0 ? -1 : s->objects[a->entries[e].object].residency[tier];
    }
    for (int32_t i = a->first[t]; i < a->first[t + 1]; i++) {
        const sl_residency *residency = &s->residencies[s->objects[a->entries[i].object].residency[tier]];
        after(s, residency->writer);
        if (a->entries[i].flags & SL_ENTRY_WRITE || residency->place.first < 0)
            after_all(s, residency->last);
    }
    if (workspace >= 0)
        after_all(s, s->residencies[workspace].last);
    int32_t index = issue(s, &action, sl_costs_on(a->costs, tier)[a->program->tasks[t].signature]);
    for (int32_t i = a->first[t]; i < a->first[t + 1]; i++)
        touch(&s->residencies[s->objects[a->entries[i].object].residency[tier]], stream, index,
              a->entries[i].flags & SL_ENTRY_WRITE);
    if (workspace >= 0) {
        touch(&s->residencies[workspace], stream, index, true);
        sl_sweep_release(s, workspace);
    }
}
