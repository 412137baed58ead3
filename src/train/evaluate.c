/*
 * Evaluation: the validation program over all of the data, without anything that training keeps. There is no optimizer state and no
 * gradient, so weights are the only persistent objects, and where the budget does not hold them they are streamed as in training.
 */
#include <math.h>

#include "core/clock.h"
#include "train/run.h"

static sl_status evaluate_batch(sl_trainer *t, int64_t position, double sums[SL_MAX_LOSSES],
                                double counts[SL_MAX_LOSSES], sl_evaluation *result)
{
    const sl_run_side *side = &t->train;
    double start = sl_clock_s();
    if (atomic_load_explicit(&t->stop, memory_order_relaxed))
        return sl_fail(SL_E_INTERRUPTED, "stopped as asked after %lld of %lld sequences", (long long) position,
                       (long long) t->source->sequences[SL_SPLIT_VALIDATION]);
    SL_TRY(sl_run_fill(t, side, SL_SPLIT_VALIDATION, position));
    result->bytes = t->text_bytes < 0 || result->bytes < 0 ? -1 : result->bytes + t->text_bytes;
    SL_TRY(sl_run_engine(t, side));
    SL_TRY(sl_run_losses(t, side, sums, counts));
    if (result->steps++ == 0)
        t->first_time = sl_clock_s() - start;
    else
        t->times[t->n_times++ % SL_TIMES_KEPT] = sl_clock_s() - start;
    return SL_OK;
}

sl_status sl_trainer_evaluate(sl_trainer *t, sl_evaluation *out)
{
    sl_evaluation result = {.sequences = t->source->sequences[SL_SPLIT_VALIDATION]};
    double start = sl_clock_s(), sums[SL_MAX_LOSSES] = {0}, counts[SL_MAX_LOSSES] = {0};
    int64_t each = t->setup.program.chunking.sequences;
    if (!t->setup.program.forward_only)
        return sl_fail(SL_E_USAGE, "the job trains: its evaluation is sl_trainer_validate");
    for (int64_t first = 0; first < result.sequences; first += each) {
        sl_hooks_progress(&t->job.hooks, SL_STAGE_VALIDATION, (double) first / (double) result.sequences);
        SL_TRY(evaluate_batch(t, first, sums, counts, &result));
    }
    sl_hooks_progress(&t->job.hooks, SL_STAGE_VALIDATION, 1);
    result.loss = sl_run_mean_losses(t, t->train.program, sums, counts);
    result.nats = sums[0];
    result.targets = counts[0];
    result.text_unknown = sl_run_text_unknown(t, SL_SPLIT_VALIDATION);
    result.seconds = sl_clock_s() - start;
    if (!isfinite(result.loss))
        return sl_fail(SL_E_NOT_FINITE, "the loss is not finite (%g): the weights, or the precision, do not suit",
                       result.loss);
    *out = result;
    return SL_OK;
}
