/*
 * Choosing the next token from logits. A draw depends on the seed and on the number of the token alone, through a counter-based
 * generator, so neither threads nor budgets nor what was drawn before change it.
 */
#ifndef SL_TEXT_SAMPLER_H
#define SL_TEXT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

typedef struct sl_sampling {
    double temperature; /* divides the logits; 0: the most likely token */
    int64_t top_k;      /* only so many of the most likely; 0: all */
    double top_p;       /* only the fewest of the most likely that make up this share; 1: all */
    uint64_t seed;
} sl_sampling;

sl_status sl_sampling_check(const sl_sampling *sampling);

typedef struct sl_sampler sl_sampler;
sl_status sl_sampler_create(const sl_sampling *sampling, int64_t words, sl_sampler **sampler);
void sl_sampler_destroy(sl_sampler *sampler);
/* `index`: of the token to be drawn, counted from 0. SL_E_NOT_FINITE where a logit is NaN or all are infinite. No allocation. */
sl_status sl_sampler_next(sl_sampler *sampler, const float *logits, int64_t index, int32_t *token);

#endif
