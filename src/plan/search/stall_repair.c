/*
 * Where the compute stream still waits for a copy, something that crossed the link shortly before could have been
 * recomputed instead: a stall of many milliseconds against a recomputation of few. The prices do not know these
 * stalls, which result from the order of copies and from fragmentation, but the simulated timeline shows them.
 */
#include "plan/search/search.h"

#include <math.h>
#include <string.h>

#define WINDOW 48 /* copies before a stall that may be its cause */

typedef struct sl_arrival {
    int32_t entry;  /* of the gap it ended */
    double seconds; /* on the link */
    double again_s; /* to recompute instead; INFINITY: cannot */
} sl_arrival;

/* The gap that a fetch at task `at` ends: the last use before it. */
static int32_t gap_before(const sl_analysis *a, int32_t object, int32_t at)
{
    int32_t e = a->object_first[object];
    if (e < 0 || a->entries[e].task >= at)
        return -1;
    while (a->entries[e].next >= 0 && a->entries[a->entries[e].next].task < at)
        e = a->entries[e].next;
    return e;
}

static sl_arrival arrival_of(const sl_analysis *a, const sl_action *copy, int32_t at)
{
    const sl_object *object = &a->program->objects[copy->object];
    sl_arrival arrival = {
        .entry = gap_before(a, copy->object, at), .seconds = copy->end_s - copy->start_s, .again_s = INFINITY};
    if (arrival.entry >= 0 && a->entries[arrival.entry].drops_near)
        arrival.again_s = a->costs->device_s[a->program->tasks[object->producer].signature];
    return arrival;
}

/* Drops the arrival that frees most link time for its recomputation, if that is less than the stall. */
static bool drop_one(sl_arrival *window, double *stall_s, uint8_t *gap)
{
    sl_arrival *best = NULL;
    for (int i = 0; i < WINDOW; i++) {
        sl_arrival *x = &window[i];
        if (x->entry < 0 || x->again_s >= fmin(x->seconds, *stall_s) || gap[x->entry] != SL_GAP_EVICT)
            continue;
        if (!best || fmin(x->seconds, *stall_s) - x->again_s > fmin(best->seconds, *stall_s) - best->again_s)
            best = x;
    }
    if (!best)
        return false;
    gap[best->entry] = SL_GAP_DROP;
    *stall_s -= best->seconds;
    best->entry = -1;
    return true;
}

/* A copy to the device. */
static bool is_arrival(const sl_action *action)
{
    return action->kind == SL_ACTION_COPY && sl_streams[action->stream].to == SL_TIER_DEVICE;
}

int32_t sl_stall_repair(const sl_analysis *a, const sl_action *actions, int32_t n_actions, const int32_t *deps,
                        uint8_t *gap)
{
    sl_arrival window[WINDOW];
    int32_t next = 0, at = 0, changed = 0;
    double end_s = 0;
    for (int i = 0; i < WINDOW; i++)
        window[i].entry = -1;
    for (int32_t i = 0; i < n_actions; i++) {
        const sl_action *action = &actions[i];
        if (is_arrival(action))
            window[next++ % WINDOW] = arrival_of(a, action, at);
        if (action->stream != SL_STREAM_COMPUTE)
            continue;
        double stall_s = action->start_s - end_s;
        bool copy = false;
        for (int32_t k = 0; k < action->n_deps; k++) {
            const sl_action *dep = &actions[deps[action->first_dep + k]];
            copy = copy || (is_arrival(dep) && dep->end_s >= action->start_s * (1 - 1e-12));
        }
        while (copy && stall_s > 0 && drop_one(window, &stall_s, gap))
            changed++;
        end_s = action->end_s;
        if (!action->recompute)
            at = action->task + 1;
    }
    return changed;
}
