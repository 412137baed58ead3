/*
 * One element of AdamW and of SGD, written once: the reference loops over it, kernels are vector forms of the same operations,
 * and because every product that meets a sum is an explicit fma, division and square root are IEEE and the rounding noise is
 * counter-based (ops/noise.h), all of them give the same bits: near host memory, on the device, with any instruction set.
 *
 * bf16 parameters and moments are read exactly, updated in f32 and stored once: to nearest, or stochastically where
 * attrs say so. With a master copy (f32) the master is updated, the moments are f32, and the parameter is the master's nearest
 * bf16. The update of the parameter uses the moments before they are rounded.
 *
 * A gate (grad_gate's output) multiplies the gradient by its factor, and with skip set nothing changes at all. Without a gate
 * nobody knows yet whether the step is finite: an element whose gradient is not stays as it is, so that the weights can tell which
 * task began it when the trainer, which looks at loss and norm, repeats the step.
 */
#ifndef SL_OPTIM_ELEMENT_H
#define SL_OPTIM_ELEMENT_H

#include <math.h>

#include "ops/noise.h"

struct SL_ATTRS_TYPE sl_adamw_attrs {
    float beta1, beta2, eps, weight_decay;
    int64_t decayed;    /* elements [0, decayed) get weight decay, the rest (norms, biases) do not */
    uint64_t stream;    /* rounding noise: which parameter group this is */
    int32_t stochastic; /* 1: bf16 parameters (without master) and moments are rounded stochastically */
    int32_t corrections;
};
SL_ATTRS_OF(adamw)
struct SL_ATTRS_TYPE sl_sgd_attrs {
    float momentum, weight_decay;
    int64_t decayed;
    uint64_t stream;
    int32_t stochastic;
    int32_t unused;
};
SL_ATTRS_OF(sgd)

/* Whether a gate says that nothing changes; NULL: there is none. */
static inline SL_HD bool sl_gate_skips(const float *gate)
{
    return gate && gate[2] != 0;
}

/* What is the same for all elements of a launch. */
typedef struct sl_adamw_scalars {
    float factor;       /* of the gate; 1 without */
    float beta1, rest1; /* rest = 1 - beta */
    float beta2, rest2;
    float decay;          /* 1 - learning_rate * weight_decay, for elements < decayed; the others use 1 */
    float step_size;      /* learning_rate / bias1 */
    float inv_sqrt_bias2; /* 1 / sqrt(bias2) */
    float eps;
} sl_adamw_scalars;

static inline SL_HD sl_adamw_scalars sl_adamw_prepare(const sl_attrs *attrs, const sl_step_params *step,
                                                      const float *gate)
{
    const float *bias = step->corrections[sl_adamw_attrs(attrs)->corrections];
    sl_adamw_scalars s = {
        .factor = gate ? gate[0] : 1.0f,
        .beta1 = sl_adamw_attrs(attrs)->beta1,
        .rest1 = 1.0f - sl_adamw_attrs(attrs)->beta1,
        .beta2 = sl_adamw_attrs(attrs)->beta2,
        .rest2 = 1.0f - sl_adamw_attrs(attrs)->beta2,
        .decay = fmaf(-step->learning_rate, sl_adamw_attrs(attrs)->weight_decay, 1.0f),
        .step_size = step->learning_rate / bias[0],
        .inv_sqrt_bias2 = 1.0f / sqrtf(bias[1]),
        .eps = sl_adamw_attrs(attrs)->eps,
    };
    return s;
}

/*  g' = g * factor; if it is not finite, nothing changes
 *  m  = fma(beta1, m, rest1 * g')
 *  v  = fma(beta2, v, rest2 * (g' * g'))
 *  p  = fma(-step_size, m / fma(sqrt(v), inv_sqrt_bias2, eps), p * decay)        decay = 1 for elements >= decayed */
static inline void sl_adamw_element(const sl_adamw_scalars *s, float decay, float g, float *p, float *m, float *v)
{
    g = g * s->factor;
    if (!isfinite(g))
        return;
    *m = fmaf(s->beta1, *m, s->rest1 * g);
    *v = fmaf(s->beta2, *v, s->rest2 * (g * g));
    float ratio = *m / fmaf(sqrtf(*v), s->inv_sqrt_bias2, s->eps);
    *p = fmaf(-s->step_size, ratio, *p * decay);
}

typedef struct sl_sgd_scalars {
    float factor, learning_rate, momentum, weight_decay;
} sl_sgd_scalars;

static inline SL_HD sl_sgd_scalars sl_sgd_prepare(const sl_attrs *attrs, const sl_step_params *step, const float *gate)
{
    sl_sgd_scalars s = {gate ? gate[0] : 1.0f, step->learning_rate, sl_sgd_attrs(attrs)->momentum,
                        sl_sgd_attrs(attrs)->weight_decay};
    return s;
}

/*  g' = fma(decay, p, g * factor)          decay = weight_decay, or 0 for elements >= decayed; if g * factor is not finite,
 *                                          nothing changes
 *  b  = fma(momentum, b, g')
 *  p  = fma(-learning_rate, b, p) */
static inline void sl_sgd_element(const sl_sgd_scalars *s, float decay, float g, float *p, float *b)
{
    g = g * s->factor;
    if (!isfinite(g))
        return;
    g = fmaf(decay, *p, g);
    *b = fmaf(s->momentum, *b, g);
    *p = fmaf(-s->learning_rate, *b, *p);
}

#endif
