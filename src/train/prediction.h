/* What `sluice plan` tells, for code that prints it: the figures behind sl_prediction_json(). */
#ifndef SL_TRAIN_PREDICTION_H
#define SL_TRAIN_PREDICTION_H

#include "plan/plan.h"
#include "train/job.h"

typedef struct sl_prediction_view {
    bool feasible;
    const char *why_not;                   /* one sentence when not feasible */
    size_t min_bytes[SL_TIER_COUNT];       /* smallest budget of each tier with the other as given; 0: none would do */
    size_t both_bytes[SL_TIER_COUNT];      /* where neither would: budgets that do together; else 0 */
    size_t budget_bytes[SL_TIER_COUNT];    /* SIZE_MAX: not limited */
    size_t unlimited_bytes[SL_TIER_COUNT]; /* what the job takes without budgets, where one is a share of it; else 0 */
    sl_summary predicted;                  /* peak_bytes[HOST] counts the heap beside the arena too */
    double lower_bound_s, plan_ms;
    const char *limit; /* what holds the step back most, in words */
    const char *costs; /* "roofline h200", "measured cpu avx512" */
    const char *device, *precision;
    const sl_model *model;
    int64_t parameters, trained;       /* of the model; of it or of its adapters */
    int64_t seqlen, sequences, tokens; /* per step */
    int64_t chunk_tokens, chunks, chunks_per_round, rounds, tasks, actions;
    double
        gib_more[SL_TIER_COUNT]; /* predicted tokens/s with one GiB more of that tier, relative to now; 0: not asked */
} sl_prediction_view;

/* Points into the prediction. */
void sl_prediction_view_of(const sl_prediction *prediction, sl_prediction_view *view);

#endif
