/* The public figures of plans and runs: parts of the views that the command line prints. */
#include <math.h>

#include "core/sized.h"
#include "train/prediction.h"
#include "train/run.h"

sl_status sl_prediction_get(const sl_prediction *prediction, sl_prediction_figures *out)
{
    sl_prediction_view v;
    sl_prediction_view_of(prediction, &v);
    const sl_summary *p = &v.predicted;
    sl_prediction_figures figures = {
        .feasible = v.feasible,
        .why_not = v.why_not,
        .device_budget_bytes = v.budget_bytes[SL_TIER_DEVICE],
        .host_budget_bytes = v.budget_bytes[SL_TIER_HOST],
        .device_peak_bytes = p->peak_bytes[SL_TIER_DEVICE],
        .host_peak_bytes = p->peak_bytes[SL_TIER_HOST],
        .device_min_bytes = v.min_bytes[SL_TIER_DEVICE],
        .host_min_bytes = v.min_bytes[SL_TIER_HOST],
        .device_both_bytes = v.both_bytes[SL_TIER_DEVICE],
        .host_both_bytes = v.both_bytes[SL_TIER_HOST],
        .step_s = p->step_s,
        .tokens_per_s = p->tokens_per_s,
        .mfu = p->mfu,
        .lower_bound_s = v.lower_bound_s,
        .limit = v.limit,
        .host_to_device_bytes = p->link_bytes[SL_LINK_IN],
        .device_to_host_bytes = p->link_bytes[SL_LINK_OUT],
        .recomputed = p->recompute_fraction,
        .plan_s = v.plan_ms / 1e3,
        .costs = v.costs,
        .device = v.device,
        .precision = v.precision,
        .parameters = v.parameters,
        .seqlen = v.seqlen,
        .tokens_per_step = v.tokens,
        .chunks = v.chunks,
        .rounds = v.rounds,
    };
    return sl_sized_put(out, &figures, sizeof figures, "sl_prediction_figures");
}

sl_status sl_trainer_get(const sl_trainer *t, sl_trainer_figures *out)
{
    sl_trainer_view v;
    sl_trainer_look(t, &v);
    int64_t run = v.step - v.first_step;
    sl_trainer_figures figures = {
        .first_step = v.first_step,
        .step = v.step,
        .steps = v.steps,
        .skipped = v.skipped,
        .loss = run > 0 ? t->loss[run - 1] : (double) NAN,
        .val_loss = v.val_step >= 0 ? v.val_loss : (double) NAN,
        .val_step = v.val_step,
        .checkpoint_step = v.checkpoint_step,
        .checkpoint = v.checkpoint,
        .interrupted = v.interrupted,
        .parameters = v.parameters,
        .tokens_per_step = v.tokens,
        .epoch = v.epoch,
        .step_s = v.measured.step_s,
        .tokens_per_s = run > 0 ? v.measured.tokens_per_s : 0,
        .mfu = run > 0 ? v.measured.mfu : 0,
        .seconds_left = v.seconds_left,
        .predicted_step_s = v.predicted.step_s,
        .predicted_tokens_per_s = v.predicted.tokens_per_s,
        .device_budget_bytes = v.budget_bytes[SL_TIER_DEVICE],
        .host_budget_bytes = v.budget_bytes[SL_TIER_HOST],
        .device_peak_bytes = v.measured.peak_bytes[SL_TIER_DEVICE],
        .host_peak_bytes = v.measured.peak_bytes[SL_TIER_HOST],
        .weights = v.weights,
        .device = v.device,
        .precision = sl_precision_name(t->setup.program.precision),
        .costs = v.costs,
        .limit = v.limit,
        .sample_step = v.sample_step,
        .sample = v.sample,
    };
    return sl_sized_put(out, &figures, sizeof figures, "sl_trainer_figures");
}
