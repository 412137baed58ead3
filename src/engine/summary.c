/* The last step in figures, from the spans of its actions. Step time is the end of the last action: what the device did, without
 * the host's own preparations before and after. */
#include "engine/internal.h"

/* Why the compute stream stood still before `action`: whichever of its dependencies ended last. */
static void blame(const sl_engine *engine, const sl_action *action, double idle, sl_summary *summary)
{
    const sl_plan *plan = engine->plan;
    double latest = -1;
    sl_stream stream = SL_STREAM_COMPUTE;
    for (int32_t d = 0; d < action->n_deps; d++) {
        int32_t dep = plan->deps[action->first_dep + d];
        if (engine->spans[dep].end <= latest || plan->actions[dep].stream == SL_STREAM_COMPUTE)
            continue;
        latest = engine->spans[dep].end;
        stream = plan->actions[dep].stream;
    }
    if (stream == SL_STREAM_IN)
        summary->wait_in_s += idle;
    else if (stream == SL_STREAM_OUT)
        summary->wait_out_s += idle;
    else if (stream == SL_STREAM_HOST)
        summary->wait_host_s += idle;
}

void sl_engine_summary(const sl_engine *engine, sl_summary *summary)
{
    const sl_plan *plan = engine->plan;
    const sl_program *program = engine->program;
    double compute_end = 0, hardware_flops;
    *summary = (sl_summary){0};
    for (int32_t i = 0; i < plan->n_actions; i++) {
        const sl_action *action = &plan->actions[i];
        const sl_span *span = &engine->spans[i];
        summary->step_s = SL_MAX(summary->step_s, span->end);
        summary->busy_s[action->stream] += span->end - span->start;
        if (action->stream == SL_STREAM_COMPUTE) {
            if (span->start > compute_end)
                blame(engine, action, span->start - compute_end, summary);
            compute_end = span->end;
        }
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        summary->peak_bytes[tier] = engine->peak_bytes[tier];
        summary->budget_bytes[tier] = plan->predicted.budget_bytes[tier];
    }
    sl_summary_count(program, plan, summary, &hardware_flops);
    sl_summary_rates(program, engine->peak_flops, hardware_flops, summary);
}
