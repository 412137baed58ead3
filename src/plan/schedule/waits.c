/*
 * Attributes the time of a step from the start and end of its actions, with one definition for predictions and measurements.
 *
 * The compute stream waits while it is idle although an action is left. It waits for the last action to end among the next action's
 * dependencies and predecessor. The chain is followed back, since a fetch may have waited for a copy out. When none of these ran, the
 * device had a gap, which is attributed to no stream.
 */
#include <string.h>

#include "plan/plan.h"

typedef struct sl_times {
    const sl_plan *plan;
    const sl_span *spans;
} sl_times;

static sl_span span_of(const sl_times *t, int32_t action)
{
    const sl_action *a = &t->plan->actions[action];
    return t->spans ? t->spans[action] : (sl_span){a->start_s, a->end_s};
}

static bool ends_later(const sl_times *t, int32_t action, int32_t than)
{
    return than < 0 || span_of(t, action).end > span_of(t, than).end;
}

/* What `action` waited for last: a dependency, or the action before it on its stream. -1: nothing. */
static int32_t waited_for(const sl_times *t, int32_t action)
{
    const sl_action *actions = t->plan->actions, *a = &actions[action];
    int32_t latest = action - 1;
    while (latest >= 0 && actions[latest].stream != a->stream)
        latest--;
    for (int32_t d = 0; d < a->n_deps; d++)
        if (ends_later(t, t->plan->deps[a->first_dep + d], latest))
            latest = t->plan->deps[a->first_dep + d];
    return latest;
}

/* The compute stream was idle from `begin` to `end`, when `cause` ended. */
static void attribute(const sl_times *t, int32_t cause, double begin, double end, sl_summary *summary)
{
    for (; cause >= 0 && span_of(t, cause).end > begin; cause = waited_for(t, cause)) {
        const sl_span span = span_of(t, cause);
        summary->wait_s[t->plan->actions[cause].stream] += SL_MAX(SL_MIN(span.end, end) - SL_MAX(span.start, begin), 0);
        end = SL_MIN(span.start, end);
    }
}

void sl_summary_times(const sl_plan *plan, const sl_span *spans, sl_summary *summary)
{
    const sl_times t = {plan, spans};
    double compute_end = 0;
    int32_t last = -1; /* to end */
    memset(summary->busy_s, 0, sizeof summary->busy_s);
    memset(summary->wait_s, 0, sizeof summary->wait_s);
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_span span = span_of(&t, i);
        const sl_stream stream = plan->actions[i].stream;
        if (ends_later(&t, i, last))
            last = i;
        summary->busy_s[stream] += span.end - span.start;
        if (stream != SL_STREAM_COMPUTE)
            continue;
        if (span.start > compute_end)
            attribute(&t, waited_for(&t, i), compute_end, span.start, summary);
        compute_end = span.end;
    }
    summary->step_s = last < 0 ? 0 : span_of(&t, last).end;
    attribute(&t, last, compute_end, summary->step_s, summary); /* copies and updates behind the last task */
}
