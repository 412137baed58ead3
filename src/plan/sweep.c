/*
 * The walk. Tasks are taken in program order; before each, its operands are brought to the tier it runs in (dropped
 * ones by running their producers again, evicted ones by copies that were issued ahead if there was room), after it,
 * the choice of each operand's gap is carried out. Everything is decided with a coarse clock; exact times come from the
 * timeline later.
 *
 *   dry walk      endless memory, arrivals take no time: which fetches, for which tasks, at which times
 *   packing       fetches are laid end to end backwards from their deadlines on the link: when each should be issued
 *   bounded walk  the real thing: addresses, evictions where room is short, actions and dependencies
 *
 * A write-back starts right after the last write before its gap, while later readers may still be running.
 */
#include "plan/sweep.h"

#include <math.h>
#include <string.h>

#define OPERANDS (SL_MAX_IN + SL_MAX_OUT)
#define MAX_CLONE_DEPTH 256
#define LARGE(room) ((room) / 32) /* workspaces above are large */

static sl_status run_on_device(sl_sweep *s, int32_t t, bool clone, int depth);

static bool on_host(const sl_sweep *s, int32_t task)
{
    return s->choice->on_host[task] && s->a->program->tasks[task].host_allowed;
}

static void stuck(sl_sweep *s, sl_tier tier)
{
    if (s->outcome->feasible) {
        s->outcome->feasible = false;
        s->outcome->stuck_task = s->task;
        s->outcome->stuck_tier = tier;
    }
}

/* ---- what happens to an object after a use --------------------------------------------------------------------- */

static bool has_host_home(const sl_sweep *s, int32_t object)
{
    return s->home[object] >= 0 && s->spots[s->home[object]].place.tier == SL_TIER_HOST;
}

/* Whether the content written at `entry` will be wanted in host memory before it is written again. */
static bool leaves_later(const sl_sweep *s, int32_t entry)
{
    const sl_analysis *a = s->a;
    for (int32_t e = entry;;) {
        int32_t next = a->entries[e].next;
        if (next < 0)
            return has_host_home(s, a->entries[e].object);
        if (a->entries[next].flags & SL_ENTRY_FRESH)
            return false;
        bool stays = s->home[a->entries[e].object] >= 0 && !has_host_home(s, a->entries[e].object);
        if ((s->choice->gap[e] == SL_GAP_EVICT && !stays) || on_host(s, a->entries[next].task))
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
    bool done = true, device = state->valid[SL_TIER_DEVICE];
    state->gap = entry;
    state->cursor = e->next;
    state->transient = false;
    if (s->actual)
        s->actual[entry] = SL_GAP_KEEP;
    if (device && !state->valid[SL_TIER_HOST] && leaves_later(s, entry))
        SL_TRY(sl_sweep_write_back(s, o, &done));
    bool dead = e->next < 0 || s->a->entries[e->next].flags & SL_ENTRY_FRESH;
    if (dead) {
        bool at_home = s->home[o] < 0 || e->next >= 0 || state->valid[s->spots[s->home[o]].place.tier];
        for (int tier = 0; tier < SL_TIER_COUNT && at_home; tier++)
            if (e->next >= 0 || s->home[o] < 0 || s->spots[s->home[o]].place.tier != (sl_tier) tier)
                sl_sweep_forget(s, o, (sl_tier) tier);
        return SL_OK;
    }
    if (device && s->choice->gap[entry] == SL_GAP_DROP && e->can_drop && s->home[o] < 0 && !state->wanted)
        sl_sweep_forget(s, o, SL_TIER_HOST); /* a copy from an earlier gap would only fill host memory */
    if (device && s->choice->gap[entry] != SL_GAP_KEEP)
        return sl_sweep_evict(s, o, s->choice->gap[entry] == SL_GAP_DROP, &done);
    /* Kept: a copy in host memory that nobody will read is given up. */
    if (device && state->valid[SL_TIER_HOST] && s->home[o] < 0 && !leaves_later(s, entry))
        sl_sweep_forget(s, o, SL_TIER_HOST);
    return SL_OK;
}

/* Whether what is recomputed for the task at hand serves the object's next use too. */
static bool serves_next(const sl_sweep *s, int32_t o)
{
    const sl_object_state *state = &s->objects[o];
    if (state->cursor < 0 || s->a->entries[state->cursor].flags & SL_ENTRY_FRESH)
        return false;
    const sl_program *p = s->a->program;
    const sl_task *next = &p->tasks[s->a->entries[state->cursor].task], *cause = &p->tasks[s->task];
    return next->block == cause->block && next->chunk == cause->chunk && next->phase == cause->phase;
}

/* After a recomputation: what was brought only for it goes again, unless the task that caused it belongs to the same
 * piece of backward as the object's next use: then one recomputation serves both. */
static sl_status after_clone(sl_sweep *s, int32_t o)
{
    sl_object_state *state = &s->objects[o];
    if (!state->transient || state->wanted || !state->valid[SL_TIER_DEVICE])
        return SL_OK;
    if (serves_next(s, o))
        return SL_OK;
    state->transient = false;
    sl_sweep_forget(s, o, SL_TIER_DEVICE);
    return SL_OK;
}

/* ---- operands -------------------------------------------------------------------------------------------------- */

/* Content that is nowhere is made again. */
static sl_status materialize(sl_sweep *s, int32_t o, int depth)
{
    sl_object_state *state = &s->objects[o];
    if (state->valid[SL_TIER_DEVICE] || state->valid[SL_TIER_HOST] || !state->defined)
        return SL_OK;
    int32_t producer = s->a->program->objects[o].producer;
    if (producer < 0 || !s->a->can_clone[producer] || depth > MAX_CLONE_DEPTH) {
        stuck(s, SL_TIER_HOST);
        return SL_OK;
    }
    return run_on_device(s, producer, true, depth + 1);
}

/* In a recomputation, an output that others write too is only rewritten with the same bytes: it must be there whole. */
static bool needs_content(const sl_sweep *s, const sl_entry *e, bool clone)
{
    if (e->flags & SL_ENTRY_READ)
        return true;
    const sl_object_state *state = &s->objects[e->object];
    return clone && (state->valid[SL_TIER_DEVICE] || state->valid[SL_TIER_HOST]) &&
           s->a->program->objects[e->object].producer != e->task;
}

static void note_fetch(sl_sweep *s, int32_t object, bool clone)
{
    const sl_object_state *state = &s->objects[object];
    int32_t writer = s->spots[state->spot[SL_TIER_HOST]].writer;
    sl_fetch *fetch = &s->fetches[s->n_fetches++];
    *fetch = (sl_fetch){.object = object, .task = s->task, .clone = clone, .deadline_s = s->now_s};
    fetch->earliest_s = writer >= 0 ? s->actions[writer].end_s : 0;
    /* not before it left */
    fetch->issue = state->gap >= 0 ? s->a->entries[state->gap].task + 1 : 0;
}

/* All operands on the device, and room for outputs and workspace. *done false: no room. */
static sl_status gather(sl_sweep *s, int32_t t, bool clone, int32_t *workspace, bool *done)
{
    const sl_analysis *a = s->a;
    *done = true;
    *workspace = -1;
    for (int32_t i = a->first[t]; i < a->first[t + 1] && *done; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        if (state->valid[SL_TIER_DEVICE])
            continue;
        SL_TRY(sl_sweep_reserve(s));
        if (needs_content(s, e, clone) && state->valid[SL_TIER_HOST]) {
            if (!s->bounded)
                note_fetch(s, e->object, clone);
            SL_TRY(sl_sweep_fetch(s, e->object, true, done));
            state->transient = clone;
        } else if (state->spot[SL_TIER_DEVICE] < 0) {
            bool low = sl_sweep_goes_low(s, clone ? -1 : i);
            if (clone && serves_next(s, e->object))
                sl_sweep_foresee(s, state->cursor);
            SL_TRY(sl_sweep_make_room(s, e->object, s->a->program->objects[e->object].bytes, SL_TIER_DEVICE, true, low,
                                      &state->spot[SL_TIER_DEVICE]));
            *done = state->spot[SL_TIER_DEVICE] >= 0;
            state->transient = clone;
        }
    }
    size_t bytes = a->costs->workspace[SL_TIER_DEVICE][a->program->tasks[t].kind];
    if (*done && bytes) {
        SL_TRY(sl_sweep_make_room(s, -1, bytes, SL_TIER_DEVICE, true, false, workspace));
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

/* Outputs that got room but no content yet are given back. */
static void ungather(sl_sweep *s, int32_t t, int32_t workspace)
{
    for (int32_t i = s->a->first[t]; i < s->a->first[t + 1]; i++) {
        int32_t o = s->a->entries[i].object;
        if (s->objects[o].spot[SL_TIER_DEVICE] >= 0 && !s->objects[o].valid[SL_TIER_DEVICE])
            sl_sweep_forget(s, o, SL_TIER_DEVICE);
    }
    if (workspace >= 0)
        sl_sweep_release(s, workspace);
}

/* ---- tasks ----------------------------------------------------------------------------------------------------- */

static void use_spot(sl_spot *spot, sl_stream stream, int32_t action, bool write)
{
    if (spot->place.first < 0 && !spot->permanent)
        spot->place.first = action;
    if (!spot->permanent)
        spot->place.last = action;
    spot->last[stream] = action;
    if (write)
        spot->writer = action;
}

static int32_t issue_task(sl_sweep *s, int32_t t, sl_stream stream, sl_tier tier, bool clone, int32_t workspace)
{
    const sl_analysis *a = s->a;
    const sl_task *task = &a->program->tasks[t];
    sl_action action = {.kind = SL_ACTION_TASK,
                        .stream = stream,
                        .task = t,
                        .recompute = clone,
                        .object = -1,
                        .from = -1,
                        .to = -1,
                        .first_use = s->n_use_places,
                        .workspace = workspace};
    for (int i = 0; i < OPERANDS; i++) {
        int32_t e = a->operand_entry[(int64_t) t * OPERANDS + i];
        s->use_places[s->n_use_places++] = e < 0 ? -1 : s->objects[a->entries[e].object].spot[tier];
    }
    for (int32_t i = a->first[t]; i < a->first[t + 1]; i++) {
        const sl_spot *spot = &s->spots[s->objects[a->entries[i].object].spot[tier]];
        sl_sweep_after(s, spot->writer);
        if (a->entries[i].flags & SL_ENTRY_WRITE || spot->place.first < 0)
            sl_sweep_after_all(s, spot->last);
    }
    if (workspace >= 0)
        sl_sweep_after_all(s, s->spots[workspace].last);
    double seconds = stream == SL_STREAM_HOST ? a->costs->host_s[task->kind] : a->costs->device_s[task->kind];
    int32_t index = sl_sweep_issue(s, &action, seconds);
    for (int32_t i = a->first[t]; i < a->first[t + 1]; i++)
        use_spot(&s->spots[s->objects[a->entries[i].object].spot[tier]], stream, index,
                 a->entries[i].flags & SL_ENTRY_WRITE);
    if (workspace >= 0) {
        use_spot(&s->spots[workspace], stream, index, true);
        sl_sweep_release(s, workspace);
    }
    return index;
}

static sl_status run_on_device(sl_sweep *s, int32_t t, bool clone, int depth)
{
    const sl_analysis *a = s->a;
    want(s, t, clone, 1);
    for (int32_t i = a->first[t]; i < a->first[t + 1] && s->outcome->feasible; i++)
        if (a->entries[i].flags & SL_ENTRY_READ)
            SL_TRY(materialize(s, a->entries[i].object, depth));
    pin(s, t, 1);
    int32_t workspace = -1;
    bool done = s->outcome->feasible;
    if (done)
        SL_TRY(gather(s, t, clone, &workspace, &done));
    if (!done && s->outcome->feasible) { /* the pieces fit, but not between each other: start from an empty arena */
        ungather(s, t, workspace);
        s->outcome->forced = true;
        SL_TRY(sl_sweep_clear(s, &done));
        if (done)
            SL_TRY(gather(s, t, clone, &workspace, &done));
        if (!done)
            stuck(s, sl_analysis_need(a, t, SL_TIER_DEVICE) > s->budget[SL_TIER_DEVICE] - s->base[SL_TIER_DEVICE]
                         ? SL_TIER_DEVICE
                         : SL_TIER_HOST);
    }
    if (s->outcome->feasible) {
        SL_TRY(sl_sweep_reserve(s));
        issue_task(s, t, SL_STREAM_COMPUTE, SL_TIER_DEVICE, clone, workspace);
    }
    pin(s, t, -1);
    want(s, t, clone, -1);
    for (int32_t i = a->first[t]; i < a->first[t + 1] && s->outcome->feasible; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        state->valid[SL_TIER_DEVICE] = state->defined = true;
        SL_TRY(sl_sweep_reserve(s));
        if (clone) {
            SL_TRY(after_clone(s, e->object));
            continue;
        }
        if (e->flags & SL_ENTRY_WRITE)
            sl_sweep_forget(s, e->object, SL_TIER_HOST);
        SL_TRY(after_use(s, i));
    }
    return SL_OK;
}

static sl_status run_on_host(sl_sweep *s, int32_t t)
{
    const sl_analysis *a = s->a;
    int32_t workspace = -1;
    want(s, t, false, 1);
    for (int32_t i = a->first[t]; i < a->first[t + 1] && s->outcome->feasible; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        bool done = true;
        SL_TRY(sl_sweep_reserve(s));
        if (e->flags & SL_ENTRY_READ) {
            SL_TRY(materialize(s, e->object, 0));
            if (state->valid[SL_TIER_DEVICE])
                SL_TRY(sl_sweep_write_back(s, e->object, &done));
        }
        if (done && state->spot[SL_TIER_HOST] < 0) {
            SL_TRY(sl_sweep_make_room(s, e->object, a->program->objects[e->object].bytes, SL_TIER_HOST, false, true,
                                      &state->spot[SL_TIER_HOST]));
            done = state->spot[SL_TIER_HOST] >= 0;
        }
        if (!done)
            stuck(s, SL_TIER_HOST);
        state->pins++; /* nothing that is there already makes room for the rest */
    }
    want(s, t, false, -1);
    size_t bytes = a->costs->workspace[SL_TIER_HOST][a->program->tasks[t].kind];
    if (s->outcome->feasible && bytes) {
        SL_TRY(sl_sweep_make_room(s, -1, bytes, SL_TIER_HOST, false, true, &workspace));
        if (workspace < 0)
            stuck(s, SL_TIER_HOST);
    }
    if (!s->outcome->feasible)
        return SL_OK;
    SL_TRY(sl_sweep_reserve(s));
    issue_task(s, t, SL_STREAM_HOST, SL_TIER_HOST, false, workspace);
    pin(s, t, -1);
    for (int32_t i = a->first[t]; i < a->first[t + 1]; i++) {
        const sl_entry *e = &a->entries[i];
        sl_object_state *state = &s->objects[e->object];
        SL_TRY(sl_sweep_reserve(s));
        state->valid[SL_TIER_HOST] = state->defined = true;
        if (e->flags & SL_ENTRY_WRITE)
            sl_sweep_forget(s, e->object, SL_TIER_DEVICE);
        SL_TRY(after_use(s, i));
    }
    return SL_OK;
}

/* ---- fetches ahead --------------------------------------------------------------------------------------------- */

/* Backwards from the deadlines: each fetch ends when the next one on the link must start, or when it is needed. */
static void pack_fetches(sl_sweep *s)
{
    double limit = INFINITY;
    int32_t n_tasks = s->a->program->n_tasks, at = n_tasks - 1;
    const sl_costs *costs = s->a->costs;
    for (int32_t i = s->n_fetches - 1; i >= 0; i--) {
        sl_fetch *fetch = &s->fetches[i];
        double seconds = costs->link_latency_s + (double) s->a->bytes[fetch->object] / costs->link_bytes_per_s_both[0];
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
        for (int32_t e = s->a->first[fetch->task]; e < s->a->first[fetch->task + 1]; e++)
            if (s->a->entries[e].object == fetch->object) {
                s->touched[e] |= SL_TOUCHED_LEAD;
                if (s->choice->lead[e] >= 0)
                    fetch->issue = SL_MIN(s->choice->lead[e], fetch->task);
            }
    }
}

#define ADMITTED 0.95 /* share of the device's bytes that fetches ahead may fill: the rest is for holes */

/* Whether a fetch for task `until` may come now: beside it, the tasks up to then must find the room they need. */
static bool may_come(const sl_sweep *s, double bytes, int32_t until)
{
    if (!(s->choice->fit & SL_FIT_FORESEE) || until <= s->task)
        return true;
    double room = ADMITTED * (double) (s->budget[SL_TIER_DEVICE] - s->base[SL_TIER_DEVICE]) - bytes -
                  sl_arena_leaving(&s->arena[SL_TIER_DEVICE], s->now_s);
    for (int32_t t = s->task; t < until; t++)
        if (s->committed[t] > room)
            return false;
    return true;
}

/* *done false: no room yet. */
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

/* What had to leave before its time comes back ahead of its use like the rest, not when its task already waits. */
static sl_status fetch_again(sl_sweep *s)
{
    double backlog_s = fmax(0, s->stream_free_s[SL_STREAM_IN] - s->now_s);
    for (int32_t i = 0; i < s->n_again; i++) {
        sl_fetch fetch = s->again[i];
        const sl_object_state *state = &s->objects[fetch.object];
        double lead_s = 3 * (double) s->a->bytes[fetch.object] / s->a->costs->link_bytes_per_s_both[0] + backlog_s;
        bool over = fetch.task < s->task || !state->valid[SL_TIER_HOST] || state->valid[SL_TIER_DEVICE];
        if (!over && s->task_start_s[fetch.task] - s->task_start_s[s->task] < lead_s)
            SL_TRY(come(s, fetch.object, fetch.task, false, &over));
        if (over)
            s->again[i--] = s->again[--s->n_again];
    }
    return SL_OK;
}

static sl_status fetch_ahead(sl_sweep *s)
{
    SL_TRY(fetch_again(s));
    while (s->next_fetch < s->n_fetches && s->fetches[s->next_fetch].issue <= s->task) {
        const sl_fetch *fetch = &s->fetches[s->next_fetch];
        const sl_object_state *state = &s->objects[fetch->object];
        bool done = true;
        if (fetch->task >= s->task && state->valid[SL_TIER_HOST] && !state->valid[SL_TIER_DEVICE])
            SL_TRY(come(s, fetch->object, fetch->task, fetch->clone, &done));
        if (!done)
            break;
        s->next_fetch++;
    }
    return SL_OK;
}

/* ---- the whole walk -------------------------------------------------------------------------------------------- */

/* A workspace of a gigabyte finds no hole among what stays, however much is free: the highest addresses are for the largest, and
 * for what leaves before a task with a large one. */
static size_t fence_off(sl_sweep *s, size_t room)
{
    const sl_program *p = s->a->program;
    const size_t *workspace = s->a->costs->workspace[SL_TIER_DEVICE];
    size_t largest = 0, large = LARGE(room);
    int32_t next = p->n_tasks;
    for (int32_t t = p->n_tasks - 1; t >= 0; t--) {
        size_t bytes = on_host(s, t) ? 0 : workspace[p->tasks[t].kind];
        if (bytes > large)
            next = t;
        largest = SL_MAX(largest, bytes);
        s->next_large[t] = next;
    }
    return largest > large ? room - SL_MIN(room, SL_ROUND_UP(largest, (size_t) SL_ALIGN)) : SIZE_MAX;
}

static sl_status begin(sl_sweep *s)
{
    const sl_program *p = s->a->program;
    s->n_spots = s->n_actions = s->n_deps = s->n_use_places = s->next_fetch = 0;
    s->now_s = s->live = 0;
    s->n_again = 0;
    memset(s->need, 0xff, sizeof s->need);
    memset(s->stream_last, 0xff, sizeof s->stream_last);
    memset(s->stream_free_s, 0, sizeof s->stream_free_s);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        s->base[tier] = s->fixed ? s->fixed->end[tier] : 0;
    for (int pass = 0; pass < 2; pass++) /* what survives the step first, then data and results */
        for (int32_t o = 0; o < p->n_objects; o++) {
            const sl_object *object = &p->objects[o];
            bool io = object->class == SL_CLASS_DATA || object->class == SL_CLASS_RESULT;
            if (pass == 0) {
                s->objects[o] = (sl_object_state){.spot = {-1, -1}, .gap = -1, .cursor = s->a->object_first[o]};
                s->home[o] = -1;
            }
            if (!(pass == 0 ? object->persistent : io && !object->persistent))
                continue;
            SL_TRY(sl_sweep_reserve(s));
            sl_tier tier = io ? SL_TIER_HOST : (sl_tier) s->choice->home[o];
            int32_t spot = sl_sweep_new_spot(s, o, tier, object->bytes);
            s->spots[spot].permanent = true;
            if (pass == 0 && s->fixed)
                s->spots[spot].place.address = s->fixed->address[o];
            else {
                s->spots[spot].place.address = s->base[tier];
                s->base[tier] += s->a->bytes[o];
            }
            s->home[o] = s->objects[o].spot[tier] = spot;
            s->objects[o].valid[tier] = s->objects[o].defined = object->class != SL_CLASS_RESULT;
        }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (s->base[tier] > s->budget[tier])
            stuck(s, (sl_tier) tier);
        size_t room = s->budget[tier] - SL_MIN(s->base[tier], s->budget[tier]), fence = SIZE_MAX;
        if (tier == SL_TIER_DEVICE && s->bounded && s->choice->fit & SL_FIT_FORESEE && room != SIZE_MAX)
            fence = fence_off(s, room / SL_ALIGN * SL_ALIGN);
        SL_TRY(sl_arena_reset(&s->arena[tier], room, fence));
    }
    return SL_OK;
}

/* Persistent objects and results end where they live. */
static sl_status finish(sl_sweep *s)
{
    const sl_program *p = s->a->program;
    for (int32_t o = 0; o < p->n_objects && s->outcome->feasible; o++) {
        if (s->home[o] < 0 || !s->objects[o].defined)
            continue;
        bool done = true;
        SL_TRY(sl_sweep_reserve(s));
        sl_tier tier = s->spots[s->home[o]].place.tier;
        if (s->objects[o].valid[tier])
            continue;
        if (tier == SL_TIER_HOST)
            SL_TRY(sl_sweep_write_back(s, o, &done));
        else
            SL_TRY(sl_sweep_fetch(s, o, true, &done));
        SL_ASSERT(done);
    }
    return SL_OK;
}

/* Rounds are alike: who is behind after a few of them stays behind. */
static void keep_pace(sl_sweep *s)
{
    const double behind = 1.004;
    s->clock_s[s->task] = s->now_s;
    if (s->paced && s->task > s->a->program->n_tasks / 4 && s->now_s > behind * s->pace_s[s->task]) {
        stuck(s, SL_TIER_DEVICE);
        s->outcome->behind = true;
    }
}

static sl_status walk(sl_sweep *s)
{
    const sl_program *p = s->a->program;
    SL_TRY(begin(s));
    if (!s->bounded)
        s->n_fetches = 0;
    for (s->task = 0; s->task < p->n_tasks && s->outcome->feasible; s->task++) {
        if (s->bounded) {
            keep_pace(s);
            SL_TRY(fetch_ahead(s));
        } else {
            s->task_start_s[s->task] = s->now_s;
            s->committed[s->task] = s->live;
        }
        SL_TRY(sl_sweep_reserve(s));
        if (on_host(s, s->task))
            SL_TRY(run_on_host(s, s->task));
        else
            SL_TRY(run_on_device(s, s->task, false, 0));
    }
    return s->outcome->feasible ? finish(s) : SL_OK;
}

/* Endless memory: fills in the fetches and when to issue them. */
static sl_status dry_walk(sl_sweep *s)
{
    s->actual = NULL;
    s->bounded = false;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        s->budget[tier] = SIZE_MAX;
    SL_TRY(walk(s));
    pack_fetches(s);
    return SL_OK;
}

static sl_status bounded_walk(sl_sweep *s, const size_t budget[SL_TIER_COUNT], uint8_t *actual)
{
    s->bounded = true;
    s->actual = actual;
    s->outcome->forced = false;
    memcpy(s->budget, budget, sizeof s->budget);
    SL_TRY(walk(s));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        s->outcome->peak[tier] = s->base[tier] + s->arena[tier].peak;
    return SL_OK;
}

/* As long as its gaps are kept: up to the use after which it leaves. */
static void foresee_stays(sl_sweep *s)
{
    const sl_analysis *a = s->a;
    for (int32_t e = a->n_entries - 1; e >= 0; e--) {
        int32_t next = a->entries[e].next;
        bool kept = s->choice->gap[e] == SL_GAP_KEEP && next >= 0 && !(a->entries[next].flags & SL_ENTRY_FRESH);
        s->stays[e] = kept ? s->stays[next] : e;
    }
}

/* Whether the dry walk never had more on the device than there is. */
static bool fits_as_it_is(const sl_sweep *s, const size_t budget[SL_TIER_COUNT])
{
    double most = 0;
    for (int32_t t = 0; t < s->a->program->n_tasks; t++)
        most = fmax(most, s->committed[t]);
    return most + (double) s->base[SL_TIER_DEVICE] <= (double) budget[SL_TIER_DEVICE];
}

sl_status sl_sweep_run(sl_sweep *s, const sl_choice *choice, const size_t budget[SL_TIER_COUNT], uint8_t *actual,
                       sl_outcome *outcome)
{
    *outcome = (sl_outcome){.feasible = true, .stuck_task = -1};
    s->choice = choice;
    s->outcome = outcome;
    s->n_fetches = 0;
    foresee_stays(s);
    memset(s->touched, 0, (size_t) s->a->n_entries);
    if (choice->on_demand)
        memset(s->task_start_s, 0, (size_t) s->a->program->n_tasks * sizeof *s->task_start_s);
    else
        SL_TRY(dry_walk(s));
    if (outcome->feasible && choice->as_it_is && !fits_as_it_is(s, budget))
        stuck(s, SL_TIER_DEVICE);
    if (outcome->feasible)
        SL_TRY(bounded_walk(s, budget, actual));
    if (outcome->feasible)
        outcome->step_s = sl_timeline_run(s->a->program, s->a->costs, s->actions, s->n_actions, s->deps, NULL);
    return SL_OK;
}

sl_status sl_sweep_create(const sl_analysis *analysis, const sl_fixed_homes *fixed, sl_sweep **sweep)
{
    sl_sweep *s;
    const sl_program *p = analysis->program;
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->a = analysis;
    s->fixed = fixed;
    sl_status status;
    SL_TRY_GOTO(sl_alloc(&s->objects, p->n_objects + 1, sizeof *s->objects), destroy);
    SL_TRY_GOTO(sl_alloc(&s->task_start_s, p->n_tasks + 1, sizeof *s->task_start_s), destroy);
    SL_TRY_GOTO(sl_alloc(&s->clock_s, p->n_tasks + 1, sizeof *s->clock_s), destroy);
    SL_TRY_GOTO(sl_alloc(&s->pace_s, p->n_tasks + 1, sizeof *s->pace_s), destroy);
    SL_TRY_GOTO(sl_alloc(&s->stays, analysis->n_entries + 1, sizeof *s->stays), destroy);
    SL_TRY_GOTO(sl_alloc(&s->next_large, p->n_tasks + 1, sizeof *s->next_large), destroy);
    SL_TRY_GOTO(sl_alloc(&s->committed, p->n_tasks + 1, sizeof *s->committed), destroy);
    SL_TRY_GOTO(sl_alloc(&s->home, p->n_objects + 1, sizeof *s->home), destroy);
    SL_TRY_GOTO(sl_alloc(&s->touched, analysis->n_entries + 1, 1), destroy);
    *sweep = s;
    return SL_OK;
destroy:
    sl_sweep_destroy(s);
    return status;
}

void sl_sweep_destroy(sl_sweep *s)
{
    if (!s)
        return;
    sl_free(s->objects);
    sl_free(s->touched);
    sl_free(s->task_start_s);
    sl_free(s->clock_s);
    sl_free(s->pace_s);
    sl_free(s->stays);
    sl_free(s->next_large);
    sl_free(s->committed);
    sl_free(s->again);
    sl_free(s->home);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        sl_arena_free(&s->arena[tier]);
    sl_free(s->spots);
    sl_free(s->actions);
    sl_free(s->clock);
    sl_free(s->deps);
    sl_free(s->use_places);
    sl_free(s->fetches);
    sl_free(s->costs);
    sl_free(s);
}

const uint8_t *sl_sweep_touched(const sl_sweep *s)
{
    return s->touched;
}

void sl_sweep_set_pace(sl_sweep *s)
{
    double *before = s->pace_s;
    s->pace_s = s->clock_s;
    s->clock_s = before;
    s->paced = true;
}

double sl_sweep_round_end_s(const sl_sweep *s, int32_t round)
{
    double end_s = 0;
    for (int32_t i = 0; i < s->n_actions; i++) {
        const sl_action *a = &s->actions[i];
        if (a->stream == SL_STREAM_COMPUTE && s->a->program->tasks[a->task].round == round)
            end_s = fmax(end_s, a->end_s);
    }
    return end_s;
}

sl_status sl_sweep_export(const sl_sweep *s, sl_plan **plan)
{
    const sl_program *p = s->a->program;
    sl_region *region;
    sl_plan *out;
    SL_TRY(sl_region_create(&region));
    sl_status status;
    SL_TRY_GOTO(sl_region_alloc(region, &out, 1, sizeof *out), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->places, s->n_spots + 1, sizeof *out->places), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->actions, s->n_actions + 1, sizeof *out->actions), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->deps, s->n_deps + 1, sizeof *out->deps), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->use_places, s->n_use_places + 1, sizeof *out->use_places), destroy);
    SL_TRY_GOTO(sl_region_alloc(region, &out->home, p->n_objects + 1, sizeof *out->home), destroy);
    out->region = region;
    out->n_places = s->n_spots;
    out->n_actions = s->n_actions;
    out->n_deps = s->n_deps;
    out->n_use_places = s->n_use_places;
    for (int32_t i = 0; i < s->n_spots; i++) {
        out->places[i] = s->spots[i].place;
        if (s->spots[i].permanent)
            out->places[i].last = s->n_actions;
    }
    memcpy(out->actions, s->actions, (size_t) s->n_actions * sizeof *s->actions);
    memcpy(out->deps, s->deps, (size_t) s->n_deps * sizeof *s->deps);
    memcpy(out->use_places, s->use_places, (size_t) s->n_use_places * sizeof *s->use_places);
    memcpy(out->home, s->home, (size_t) p->n_objects * sizeof *s->home);
    *plan = out;
    return SL_OK;
destroy:
    sl_region_destroy(region);
    return status;
}
