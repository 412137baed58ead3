/*
 * Muon's attributes, and what all kernels share. X is one matrix [rows, columns], n the number of its elements:
 *
 *     g' = g * factor     m = fma(momentum, m, rest * g')     u = fma(momentum, m, rest * g')          rest = 1 - momentum
 *     X  = u / max(|u|, 1e-7)                 |u| from the sum of squares by ops/reduce.h; not finite: nothing changes
 *     five times, with S the shorter side of X:
 *         A = X X^T or X^T X  [S, S]     B = b A + c A A     X = a X + B X or a X + X B
 *     p  = fma(-rate, X, p * decay)           rate = learning rate * scale * .2 sqrt(max(rows, columns))
 *
 * X, A and B are stored in the dtype of the gradient, products are summed in f32 and rounded once.
 */
#ifndef SL_OPTIM_MUON_H
#define SL_OPTIM_MUON_H

#include "optim/element.h"
#include "optim/optimizer.h"

struct SL_ATTRS_TYPE sl_muon_attrs {
    float momentum, weight_decay;
    float scale;        /* of the learning rate */
    int32_t stochastic; /* bf16 parameters (without master) and momenta are rounded stochastically */
    uint64_t stream;
    int64_t rows, columns, matrices; /* of one shape, one after the other */
};
SL_ATTRS_OF(muon)

#define SL_MUON_A 3.4445f
#define SL_MUON_B -4.7750f
#define SL_MUON_C 2.0315f
enum { SL_MUON_ITERATIONS = 5 };

typedef struct sl_muon_scalars {
    float factor, momentum, rest, rate, decay;
} sl_muon_scalars;

static inline SL_HD sl_muon_scalars sl_muon_prepare(const sl_attrs *attrs, const sl_step_params *step,
                                                    const float *gate)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(attrs);
    const float longest = (float) (a->rows > a->columns ? a->rows : a->columns);
    return (sl_muon_scalars){
        .factor = gate ? gate[0] : 1.0f,
        .momentum = a->momentum,
        .rest = 1.0f - a->momentum,
        .rate = step->learning_rate * (a->scale * (0.2f * sqrtf(longest))),
        .decay = fmaf(-step->learning_rate, a->weight_decay, 1.0f),
    };
}

/* Moves the momentum and returns u. */
static inline SL_HD float sl_muon_element(const sl_muon_scalars *s, float g, float *m)
{
    g = s->rest * (g * s->factor);
    *m = fmaf(s->momentum, *m, g);
    return fmaf(s->momentum, *m, g);
}

/* What u is multiplied by; NaN: nothing of the matrix changes. */
static inline SL_HD float sl_muon_normalize(float squares)
{
    return isfinite(squares) ? 1.0f / fmaxf(sqrtf(squares), 1e-7f) : NAN;
}

#endif
