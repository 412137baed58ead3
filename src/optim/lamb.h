/*
 * LAMB's attributes, and one element of it, written once: see optim/element.h for why all kernels give the same bits.
 *
 *     g' = g * factor     m = fma(beta1, m, rest1 * g')     v = fma(beta2, v, rest2 * (g' * g'))
 *     u  = fma(decay, p, m * inv_bias1 / fma(sqrt(v), inv_sqrt_bias2, eps))            decay: weight decay, or 0
 *     p  = fma(-rate, u, p)                                                            rate: sl_lamb_rate, of the tensor
 */
#ifndef SL_OPTIM_LAMB_H
#define SL_OPTIM_LAMB_H

#include "optim/element.h"
#include "optim/optimizer.h"

struct SL_ATTRS_TYPE sl_lamb_attrs {
    float beta1, beta2, eps, weight_decay;
    uint64_t stream;                       /* of the first tensor's rounding noise; tensor k has stream + k */
    uint32_t count[SL_MAX_UPDATE_TENSORS]; /* elements of each tensor; where it begins: sl_update_next */
    uint8_t tensors;
    uint8_t decayed; /* bit k: tensor k gets weight decay, and a rate of its own */
    uint8_t stochastic, corrections;
    int32_t unused;
};
SL_ATTRS_OF(lamb)

/* The first element of tensor k. */
static inline SL_HD int64_t sl_lamb_first(const struct sl_lamb_attrs *attrs, sl_dtype parameter, int k)
{
    int64_t first = 0;
    for (int i = 0; i < k; i++)
        first = sl_update_next(parameter, first + (int64_t) attrs->count[i]);
    return first;
}

/* What is the same for all elements of a tensor. */
typedef struct sl_lamb_scalars {
    float factor, beta1, rest1, beta2, rest2, inv_bias1, inv_sqrt_bias2, eps, decay, learning_rate;
} sl_lamb_scalars;

static inline SL_HD sl_lamb_scalars sl_lamb_prepare(const sl_attrs *attrs, int tensor, const sl_step_params *step,
                                                    const float *gate)
{
    const struct sl_lamb_attrs *a = sl_lamb_attrs(attrs);
    const float *bias = step->corrections[a->corrections];
    return (sl_lamb_scalars){
        .factor = gate ? gate[0] : 1.0f,
        .beta1 = a->beta1,
        .rest1 = 1.0f - a->beta1,
        .beta2 = a->beta2,
        .rest2 = 1.0f - a->beta2,
        .inv_bias1 = 1.0f / bias[0],
        .inv_sqrt_bias2 = 1.0f / sqrtf(bias[1]),
        .eps = a->eps,
        .decay = a->decayed >> tensor & 1 ? a->weight_decay : 0.0f,
        .learning_rate = step->learning_rate,
    };
}

/* Moves the moments and returns u. */
static inline float sl_lamb_element(const sl_lamb_scalars *s, float g, float p, float *m, float *v)
{
    g = g * s->factor;
    *m = fmaf(s->beta1, *m, s->rest1 * g);
    *v = fmaf(s->beta2, *v, s->rest2 * (g * g));
    return fmaf(s->decay, p, *m * s->inv_bias1 / fmaf(sqrtf(*v), s->inv_sqrt_bias2, s->eps));
}

/* The tensor's learning rate from the sums of squares of p and u; NaN: u is not finite, so nothing of the tensor changes. */
static inline SL_HD float sl_lamb_rate(const sl_lamb_scalars *s, float p_squares, float u_squares)
{
    if (!isfinite(u_squares))
        return NAN;
    const bool trusted = s->decay != 0 && p_squares > 0 && u_squares > 0;
    return trusted ? s->learning_rate * (sqrtf(p_squares) / sqrtf(u_squares)) : s->learning_rate;
}

#endif
