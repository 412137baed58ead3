/* The last step in figures, from the spans of its actions. Step time is the end of the last action: what the device did, without
 * the host's own preparations before and after. */
#include "engine/internal.h"

void sl_engine_summary(const sl_engine *engine, sl_summary *summary)
{
    const sl_plan *plan = engine->plan;
    double hardware_flops;
    *summary = (sl_summary){0};
    sl_summary_times(plan, engine->spans, summary);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        summary->peak_bytes[tier] = engine->peak_bytes[tier];
        summary->budget_bytes[tier] = plan->predicted.budget_bytes[tier];
    }
    sl_summary_count(engine->program, plan, summary, &hardware_flops);
    sl_summary_rates(engine->program, engine->peak_flops, hardware_flops, summary);
}
