/* What AdamW and its form with 8-bit moments have in common: attributes, options, test cases, costs. */
#ifndef SL_OPTIM_ADAMW_H
#define SL_OPTIM_ADAMW_H

#include "ops/shapes.h"
#include "optim/element.h"
#include "optim/update.h"

#define SL_ADAMW_CASE(n, n_decayed, is_stochastic)                                                                     \
    .attrs = SL_ATTRS(adamw, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f, .decayed = n_decayed, \
                      .stream = 7, .stochastic = is_stochastic)

/* Members of an op. */
#define SL_ADAMW_COSTS \
    .clear_stream = sl_adamw_clear_stream, .linear = true, .shorten = sl_adamw_shorten, .shapes = sl_adamw_shapes

/* Members of an optimizer. */
#define SL_ADAMW_OPTIONS                                                                                 \
    .n_options = 3, .options = {SL_OPTION_BETA1("0.9"), SL_OPTION_BETA2("0.95"), SL_OPTION_EPS("1e-8")}, \
    .set_attrs = sl_adamw_describe, .correct = sl_moments_correct

static inline void sl_adamw_clear_stream(sl_attrs *attrs)
{
    sl_adamw_set(attrs)->stream = 0;
}

static inline void sl_adamw_shorten(sl_attrs *attrs, int64_t count)
{
    sl_adamw_set(attrs)->decayed = SL_MIN(sl_adamw_attrs(attrs)->decayed, count);
}

static inline sl_status sl_adamw_shapes(sl_op_shapes *shapes)
{
    for (int master = 0; master < (shapes->dtype == SL_BF16 ? 2 : 1); master++)
        SL_TRY(
            sl_update_shapes(shapes, master,
                             SL_ATTRS(adamw, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f,
                                      .decayed = shapes->sizes.p, .stochastic = shapes->dtype == SL_BF16 && !master)));
    return SL_OK;
}

static inline void sl_adamw_describe(const sl_update *update, sl_attrs *attrs)
{
    *sl_adamw_set(attrs) =
        *SL_ATTRS(adamw, .beta1 = update->options[0], .beta2 = update->options[1], .eps = update->options[2],
                  .weight_decay = update->weight_decay, .decayed = update->decayed, .stream = update->stream,
                  .stochastic = update->stochastic, .corrections = update->corrections);
}

#endif
