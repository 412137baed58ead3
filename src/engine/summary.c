/* The last step in figures, from the spans of its actions. Step time is the end of the last action: what the device did, without
 * the host's own preparations before and after. */
#include "engine/internal.h"

static void add_wait(sl_summary *summary, sl_stream stream, double seconds)
{
    if (stream == SL_STREAM_IN)
        summary->wait_in_s += seconds;
    else if (stream == SL_STREAM_OUT)
        summary->wait_out_s += seconds;
    else if (stream == SL_STREAM_HOST)
        summary->wait_host_s += seconds;
}

static bool ends_later(const sl_engine *engine, int32_t action, int32_t than)
{
    return than < 0 || engine->spans[action].end > engine->spans[than].end;
}

/* What `action` waited for last: a dependency, or the action before it on its stream. -1: nothing. */
static int32_t waited_for(const sl_engine *engine, int32_t action)
{
    const sl_plan *plan = engine->plan;
    const sl_action *a = &plan->actions[action];
    int32_t latest = action - 1;
    while (latest >= 0 && plan->actions[latest].stream != a->stream)
        latest--;
    for (int32_t d = 0; d < a->n_deps; d++)
        if (ends_later(engine, plan->deps[a->first_dep + d], latest))
            latest = plan->deps[a->first_dep + d];
    return latest;
}

/* Why the compute stream stood still from `begin` to `end`, when `cause` let it go on: followed back from there, since a
 * fetch may have waited for a copy out itself. When nothing of that ran, the device had a gap: nobody's wait. */
static void attribute_wait(const sl_engine *engine, int32_t cause, double begin, double end, sl_summary *summary)
{
    while (cause >= 0 && engine->spans[cause].end > begin) {
        const sl_span *span = &engine->spans[cause];
        add_wait(summary, engine->plan->actions[cause].stream,
                 SL_MAX(SL_MIN(span->end, end) - SL_MAX(span->start, begin), 0));
        end = SL_MIN(span->start, end);
        cause = waited_for(engine, cause);
    }
}

void sl_engine_summary(const sl_engine *engine, sl_summary *summary)
{
    const sl_plan *plan = engine->plan;
    const sl_program *program = engine->program;
    double compute_end = 0, hardware_flops;
    int32_t last = -1; /* to end */
    *summary = (sl_summary){0};
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *action = &plan->actions[i];
        const sl_span *span = &engine->spans[i];
        if (ends_later(engine, i, last))
            last = i;
        summary->busy_s[action->stream] += span->end - span->start;
        if (action->stream == SL_STREAM_COMPUTE) {
            if (span->start > compute_end)
                attribute_wait(engine, waited_for(engine, i), compute_end, span->start, summary);
            compute_end = span->end;
        }
    }
    summary->step_s = last < 0 ? 0 : engine->spans[last].end;
    attribute_wait(engine, last, compute_end, summary->step_s, summary); /* copies and updates behind the last task */
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        summary->peak_bytes[tier] = engine->peak_bytes[tier];
        summary->budget_bytes[tier] = plan->predicted.budget_bytes[tier];
    }
    sl_summary_count(program, plan, summary, &hardware_flops);
    sl_summary_rates(program, engine->peak_flops, hardware_flops, summary);
}
