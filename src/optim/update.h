/* What the references and test cases of optimizers have in common: in = g, step, gate; out = p, moments, master. */
#ifndef SL_OPTIM_UPDATE_H
#define SL_OPTIM_UPDATE_H

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"
#include "optim/codes.h"
#include "optim/element.h"
#include "optim/optimizer.h"

/* What the ops of optimizers with so many states have alike. */
#define SL_UPDATE_PARTS(states)                                                             \
    .category = SL_CAT_OPTIMIZER, .n_in = 3, .n_out = (states) + 2, .optional_in = 1u << 2, \
    .optional_out = 1u << ((states) + 1), .updates = (1u << ((states) + 2)) - 1, .fill = sl_update_fill

/* Parameter and moments are like the gradient, the master is optional and last. */
static inline sl_status sl_update_operands(const char *op, const sl_type *in, sl_type *out, int moments)
{
    SL_TRY(sl_expect_float(op, "g", &in[0], 1));
    SL_TRY(sl_expect_step(op, &in[1]));
    if (in[2].rank)
        SL_TRY(sl_expect(op, "gate", &in[2], sl_type_1d(SL_F32, 4)));
    for (int k = 0; k <= moments; k++)
        out[k] = in[0];
    out[moments + 1] = (sl_type){0};
    return SL_OK;
}

static inline sl_status sl_update_infer(const char *op, int64_t decayed, const sl_type *in, sl_type *out, int moments)
{
    SL_TRY(sl_update_operands(op, in, out, moments));
    if (decayed < 0 || decayed > in[0].dim[0])
        return sl_fail(SL_E_INTERNAL, "%s: decayed is %lld but there are %lld elements", op, (long long) decayed,
                       (long long) in[0].dim[0]);
    return SL_OK;
}

/* How bf16 is rounded where there is no master. */
typedef struct sl_update_rounding {
    bool stochastic;
    uint64_t stream;
    int64_t first; /* element of the operands that is the stream's element 0 */
} sl_update_rounding;

/* Stores one element of out[k], which is tensor k of the noise. */
static inline void sl_update_put(const sl_launch *launch, sl_update_rounding rounding, int k, int64_t i, float value)
{
    const sl_operand *y = &launch->out[k];
    if (y->type.dtype == SL_BF16 && rounding.stochastic)
        ((sl_bf16 *) y->data)[i] = sl_f32_to_bf16_stochastic(
            value, sl_rounding_noise(launch->in[1].data, rounding.stream, k, i - rounding.first));
    else
        sl_put(y, i, value);
}

/* The parameter: the master's where there is one. */
static inline float sl_update_get_parameter(const sl_launch *launch, const sl_operand *master, int64_t i)
{
    return sl_get(sl_present(master) ? master : &launch->out[0], i);
}
static inline void sl_update_put_parameter(const sl_launch *launch, sl_update_rounding rounding,
                                           const sl_operand *master, int64_t i, float value)
{
    if (sl_present(master)) {
        sl_put(master, i, value);
        sl_put(&launch->out[0], i, value); /* nearest: the master remembers what is cut off */
    } else {
        sl_update_put(launch, rounding, 0, i, value);
    }
}

/* Options that optimizers share. */
#define SL_OPTION_MOMENTUM(value)                                       \
    {                                                                   \
        "momentum", value, 0, 0.9999999, "momentum", "Momentum factor." \
    }
#define SL_OPTION_BETA1(value)                                                   \
    {                                                                            \
        "beta1", value, 0, 0.9999999, "beta1", "Decay rate of the first moment." \
    }
#define SL_OPTION_BETA2(value)                                                    \
    {                                                                             \
        "beta2", value, 0, 0.9999999, "beta2", "Decay rate of the second moment." \
    }
#define SL_OPTION_EPS(value)                                                               \
    {                                                                                      \
        "eps", value, 0, 1, "optimizer epsilon", "Added to the root of the second moment." \
    }

/* Corrections of moments: 1 - beta^t, for options that begin with the two betas. */
static inline void sl_moments_correct(const float *options, double updates, float corrections[2])
{
    for (int k = 0; k < 2; k++)
        corrections[k] = (float) (1 - pow((double) options[k], updates));
}

/* Any bytes are codes; scales are those of moments, some of them zero. */
static inline void sl_update_fill_codes(const sl_operand *state, uint64_t seed)
{
    for (int64_t at = 0; at < state->type.dim[0]; at += SL_CODES_BYTES) {
        uint8_t *block = (uint8_t *) state->data + at;
        const float scale = at / SL_CODES_BYTES % 5 == 4 ? 0 : 1e-6f * (float) (1 + at % 11);
        for (int64_t j = 0; j < SL_CODES_BYTES; j++)
            block[j] = (uint8_t) sl_philox(seed, (uint64_t) (at + j), SL_MAX_IN).v[0];
        memcpy(block, &scale, sizeof scale);
    }
}

/* Gradient, step, gate, parameter, moments and master, which belong together. */
static inline void sl_update_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *g = &launch->in[0], *p = &launch->out[0];
    const int last = sl_op(launch->op)->n_out - 1;
    const sl_operand *master = &launch->out[last];
    const bool not_finite = how->op_case && how->op_case->not_finite;
    sl_fill_normal(g, how->seed, 0, 0.1f);
    sl_fill_step(&launch->in[1], how->seed, 1);
    sl_fill_gate(&launch->in[2], not_finite);
    for (int64_t i = 0; not_finite && i < g->type.dim[0]; i += 13)
        sl_put(g, i, i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY);
    sl_fill_normal(p, how->seed, SL_MAX_IN, 1);
    if (launch->out[1].type.dtype == SL_U8) {
        sl_update_fill_codes(&launch->out[1], how->seed);
        sl_update_fill_codes(&launch->out[2], how->seed + 1);
    } else {
        sl_fill_normal(&launch->out[1], how->seed, SL_MAX_IN + 1, 0.1f);
        if (last == 3)
            sl_fill_squares(&launch->out[2], how->seed, SL_MAX_IN + 2, 0.1f); /* a mean of squares */
    }
    if (!sl_present(master))
        return;
    sl_fill_normal(master, how->seed, SL_MAX_IN + last, 1);
    for (int64_t i = 0; i < sl_type_count(&p->type); i++)
        sl_put(p, i, sl_get(master, i));
}

/* With everything in the dtype, or (`master`) with f32 moments and master weights. */
static inline sl_status sl_update_shapes(sl_op_shapes *shapes, bool master, const void *attrs)
{
    const sl_op_case op_case = {
        .in = {sl_type_1d(shapes->dtype, shapes->sizes.p), SL_STEP_TYPE}, .attrs = attrs, .optional_out = master};
    return sl_shapes_add(shapes, master ? "master" : "", &op_case);
}

/* ATTRS(elements, decayed, stochastic) names the op's attributes. */
#define SL_UPDATE_GATE SL_T1(SL_F32, 4)
#define SL_UPDATE_CASES(ATTRS)                                                                                    \
    {.name = "f32", .in = {SL_T1(SL_F32, 1000), SL_STEP_TYPE}, ATTRS(1000, 600, 0)},                              \
        {.name = "f32 gate, tail", .in = {SL_T1(SL_F32, 777), SL_STEP_TYPE, SL_UPDATE_GATE}, ATTRS(777, 777, 0)}, \
        {.name = "f32 skip",                                                                                      \
         .in = {SL_T1(SL_F32, 100), SL_STEP_TYPE, SL_UPDATE_GATE},                                                \
         ATTRS(100, 60, 0),                                                                                       \
         .not_finite = true},                                                                                     \
        {.name = "f32 one element", .in = {SL_T1(SL_F32, 1), SL_STEP_TYPE}, ATTRS(1, 0, 0)},                      \
        {.name = "bf16 nearest", .in = {SL_T1(SL_BF16, 1000), SL_STEP_TYPE}, ATTRS(1000, 601, 0)},                \
        {.name = "bf16 stochastic", .in = {SL_T1(SL_BF16, 5000), SL_STEP_TYPE}, ATTRS(5000, 4097, 1)},            \
        {.name = "bf16 stochastic, gate, tail",                                                                   \
         .in = {SL_T1(SL_BF16, 20003), SL_STEP_TYPE, SL_UPDATE_GATE},                                             \
         ATTRS(20003, 10001, 1)},                                                                                 \
        {.name = "bf16 skip",                                                                                     \
         .in = {SL_T1(SL_BF16, 300), SL_STEP_TYPE, SL_UPDATE_GATE},                                               \
         ATTRS(300, 60, 1),                                                                                       \
         .not_finite = true},                                                                                     \
        {.name = "bf16 master",                                                                                   \
         .in = {SL_T1(SL_BF16, 5000), SL_STEP_TYPE},                                                              \
         ATTRS(5000, 4097, 1),                                                                                    \
         .optional_out = true},                                                                                   \
        {.name = "bf16 master, gate, tail",                                                                       \
         .in = {SL_T1(SL_BF16, 777), SL_STEP_TYPE, SL_UPDATE_GATE},                                               \
         ATTRS(777, 5, 0),                                                                                        \
         .optional_out = true},                                                                                   \
        {.name = "f32, gradients that are not finite",                                                            \
         .in = {SL_T1(SL_F32, 777), SL_STEP_TYPE},                                                                \
         ATTRS(777, 600, 0),                                                                                      \
         .not_finite = true},                                                                                     \
        {.name = "bf16, gradients that are not finite",                                                           \
         .in = {SL_T1(SL_BF16, 5003), SL_STEP_TYPE},                                                              \
         ATTRS(5003, 4097, 1),                                                                                    \
         .not_finite = true},                                                                                     \
    {                                                                                                             \
        .name = "bf16 master, gradients that are not finite", .in = {SL_T1(SL_BF16, 777), SL_STEP_TYPE},          \
        ATTRS(777, 5, 0), .optional_out = true, .not_finite = true                                                \
    }

#endif
