/*
 * Fetches ahead of their use. The dry walk records them with their deadlines. Then they are packed on the link, backwards
 * from these deadlines:
 *
 *   link   |-- a --|--- b ---|-- c --|     |-- d --|
 *   used                    a b      c             d
 *
 * so that each is issued as late as the link allows, because it occupies space from then on. The bounded walk issues them
 * in this order, each before the task it was packed to or, while there is no space, before a later one. Objects that
 * were evicted to make space in the meantime are added.
 */
#include "plan/schedule/sweep.h"

#include <math.h>

#define ADMITTED 0.95 /* share of the device's bytes that prefetches may fill: the rest allows for fragmentation */

/* ---- which, and when ------------------------------------------------------------------------------------------- */

void sl_sweep_note_fetch(sl_sweep *s, int32_t object, bool clone)
{
    const sl_object_state *state = &s->objects[object];
    int32_t writer = s->residencies[state->residency[sl_state_backing(state)]].writer;
    sl_fetch *fetch = &s->fetches[s->n_fetches++];
    *fetch = (sl_fetch){.object = object, .task = s->task, .clone = clone, .deadline_s = s->now_s};
    fetch->earliest_s = writer >= 0 ? s->actions[writer].end_s : 0;
    /* not before it left */
    fetch->issue = state->gap >= 0 ? s->a->entries[state->gap].task + 1 : 0;
}

/* The choice may say when it is issued. */
static void obey_lead(sl_sweep *s, sl_fetch *fetch)
{
    const sl_analysis *a = s->a;
    for (int32_t e = a->first[fetch->task]; e < a->first[fetch->task + 1]; e++)
        if (a->entries[e].object == fetch->object) {
            s->touched[e] |= SL_TOUCHED_LEAD;
            if (s->choice->lead[e] >= 0)
                fetch->issue = SL_MIN(s->choice->lead[e], fetch->task);
        }
}

/* Backwards from the deadlines: each fetch ends when the next one on the link must start, or when it is needed. */
void sl_sweep_pack_fetches(sl_sweep *s)
{
    double limit = INFINITY;
    int32_t n_tasks = s->a->program->n_tasks, at = n_tasks - 1;
    const sl_costs *costs = s->a->costs;
    for (int32_t i = s->n_fetches - 1; i >= 0; i--) {
        sl_fetch *fetch = &s->fetches[i];
        double seconds = sl_costs_copy_s(costs, SL_LINK_IN, s->a->bytes[fetch->object], true);
        double end = SL_MIN(fetch->deadline_s - s->choice->slack * seconds, limit);
        double start = SL_MAX(end - seconds, fetch->earliest_s);
        limit = SL_MIN(end - seconds, limit);
        at = SL_MIN(at, fetch->task);
        while (at > 0 && s->task_start_s[at] > start)
            at--;
        int32_t issue = at;
        if (start > s->task_start_s[at]) /* clipped: it cannot start that early */
            while (issue < fetch->task && s->task_start_s[issue + 1] <= start)
                issue++;
        fetch->issue = SL_MIN(SL_MAX(issue, fetch->issue), fetch->task);
        obey_lead(s, fetch);
    }
}

sl_status sl_sweep_note_again(sl_sweep *s, int32_t object)
{
    const sl_object_state *state = &s->objects[object];
    if (!(s->choice->fit & SL_FIT_FORESEE) || !sl_state_backed(state) || state->cursor < 0)
        return SL_OK;
    if (s->n_again == s->capacity_again) {
        int32_t capacity = s->capacity_again * 2 + 64;
        SL_TRY(sl_grow(&s->again, s->capacity_again, capacity, sizeof *s->again));
        s->capacity_again = capacity;
    }
    s->again[s->n_again++] = (sl_fetch){.object = object, .task = s->a->entries[state->cursor].task};
    return SL_OK;
}

/* ---- the bounded walk ------------------------------------------------------------------------------------------ */

/* Whether a fetch for task `until` may be issued now: the tasks up to then must still find the space they need. */
static bool may_come(const sl_sweep *s, double bytes, int32_t until)
{
    if (!(s->choice->fit & SL_FIT_FORESEE) || until <= s->task)
        return true;
    const sl_tier tier = SL_TIER_DEVICE;
    double space =
        ADMITTED * (double) (s->budget[tier] - s->base[tier]) - bytes - sl_arena_leaving(&s->arena[tier], s->now_s);
    for (int32_t t = s->task; t < until; t++)
        if (s->committed[t] > space)
            return false;
    return true;
}

/* *done false: no space yet. */
static sl_status come(sl_sweep *s, int32_t object, int32_t until, bool clone, bool *done)
{
    double bytes = (double) s->a->bytes[object];
    *done = may_come(s, bytes, until);
    if (!*done)
        return SL_OK;
    SL_TRY(sl_sweep_reserve(s));
    SL_TRY(sl_sweep_fetch(s, object, false, done));
    s->objects[object].transient = *done && clone;
    for (int32_t t = s->task; t < until && *done; t++)
        s->committed[t] += bytes;
    return SL_OK;
}

/* Objects that were evicted to make space are prefetched like the rest, not when their task already waits. */
static sl_status fetch_again(sl_sweep *s)
{
    double backlog_s = fmax(0, s->stream_free_s[sl_links[SL_LINK_IN].stream] - s->now_s);
    for (int32_t i = 0; i < s->n_again; i++) {
        sl_fetch fetch = s->again[i];
        const sl_object_state *state = &s->objects[fetch.object];
        double lead_s =
            3 * (double) s->a->bytes[fetch.object] / s->a->costs->link_bytes_per_s_both[SL_LINK_IN] + backlog_s;
        bool over = fetch.task < s->task || !sl_state_backed(state) || sl_state_resident(state);
        if (!over && s->task_start_s[fetch.task] - s->task_start_s[s->task] < lead_s)
            SL_TRY(come(s, fetch.object, fetch.task, false, &over));
        if (over)
            s->again[i--] = s->again[--s->n_again];
    }
    return SL_OK;
}

sl_status sl_sweep_fetch_ahead(sl_sweep *s)
{
    SL_TRY(fetch_again(s));
    while (s->next_fetch < s->n_fetches && s->fetches[s->next_fetch].issue <= s->task) {
        const sl_fetch *fetch = &s->fetches[s->next_fetch];
        const sl_object_state *state = &s->objects[fetch->object];
        bool done = true;
        if (fetch->task >= s->task && sl_state_backed(state) && !sl_state_resident(state))
            SL_TRY(come(s, fetch->object, fetch->task, fetch->clone, &done));
        if (!done)
            break;
        s->next_fetch++;
    }
    return SL_OK;
}
