/*
 * Language model head and softmax cross-entropy in one op, so that the logits (tokens x vocabulary, the largest tensor of
 * a step by far) never exist whole:
 *     logits = x W^T      loss = sum over tokens with target != ignore of  weight (log sum exp(logits) - logits[target])
 * where weights are absent all are 1. With a cap (Gemma 2), logits become cap tanh(logits / cap) first. The loss is a plain sum. Its gradients dx and dW are those of loss * loss scale (one over the
 * weights of the step's targets), so sums over chunks and rounds come out as the mean over the step.
 *
 * head_loss_bwd takes `block` tokens at a time (0: all), in order. For each block: logits in f32, softmax in f32,
 *     dlogits = (softmax - onehot) * weight * loss scale * slope, rounded to the operands' dtype,
 *     dx = dlogits W,  dW += dlogits^T x
 * with slope = 1 - (logits / cap)^2 of capped logits, else 1; and dW is rounded to its own dtype after each block (the first one writes it unless the launch accumulates). The block
 * is therefore part of the numerics: it belongs to the program, not to the device. Since logits need W anyway, the backward
 * gives the loss as well, and a training step never runs the forward.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/head_loss.h"
#include "ops/shapes.h"

enum { WEIGHTS = 3, WEIGHTS_BWD = 4 }; /* operands */

/* `weights`: which operand they are. */
static sl_status check(const char *op, const sl_type *in, int weights)
{
    SL_TRY(sl_expect_float(op, "x", &in[0], 2));
    SL_TRY(sl_expect_float(op, "W", &in[1], 2));
    SL_TRY(sl_expect(op, "W", &in[1], sl_type_2d(in[0].dtype, in[1].dim[0], in[0].dim[1])));
    SL_TRY(sl_expect(op, "targets", &in[2], sl_type_1d(SL_I32, in[0].dim[0])));
    return sl_expect_weights(op, &in[weights], in[0].dim[0]);
}

static double forward_flops(const sl_launch *launch)
{
    const sl_type *x = &launch->in[0].type, *w = &launch->in[1].type;
    return 2.0 * (double) x->dim[0] * (double) x->dim[1] * (double) w->dim[0];
}

static float logit(const sl_launch *launch, int64_t token, int64_t word)
{
    int64_t d = launch->in[0].type.dim[1];
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += (double) sl_get(&launch->in[0], token * d + c) * sl_get(&launch->in[1], word * d + c);
    const float cap = sl_head_attrs(&launch->attrs)->cap;
    return (float) (cap > 0 ? cap * tanh(sum / cap) : sum);
}

/* The derivative of a logit by what it was before the cap. */
static double slope_of(const sl_launch *launch, double logit)
{
    const float cap = sl_head_attrs(&launch->attrs)->cap;
    return cap > 0 ? 1 - logit / cap * (logit / cap) : 1;
}

static double log_sum_exp(const float *logits, int64_t count)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t v = 0; v < count; v++)
        largest = fmax(largest, logits[v]);
    for (int64_t v = 0; v < count; v++)
        sum += exp(logits[v] - largest);
    return largest + log(sum);
}

static sl_status head_loss_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(check("head_loss", in, WEIGHTS));
    out[0] = sl_type_1d(SL_F32, 1);
    return SL_OK;
}

static void head_loss_work(const sl_launch *launch, sl_work *work)
{
    sl_work_flops(launch, forward_flops(launch), work);
}

static size_t head_loss_workspace(const sl_launch *launch)
{
    return (size_t) launch->in[1].type.dim[0] * sizeof(float); /* one token's logits */
}

static void head_loss_reference(const sl_launch *launch)
{
    int64_t n = launch->in[0].type.dim[0], vocabulary = launch->in[1].type.dim[0];
    float *logits = launch->workspace;
    SL_ASSERT(launch->workspace_bytes >= head_loss_workspace(launch));
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t target = sl_get_i32(&launch->in[2], i);
        float weight = sl_get_weight(&launch->in[WEIGHTS], i);
        if (target == sl_head_attrs(&launch->attrs)->ignore || weight == 0)
            continue;
        for (int64_t v = 0; v < vocabulary; v++)
            logits[v] = logit(launch, i, v);
        loss += weight * (log_sum_exp(logits, vocabulary) - logits[target]);
    }
    sl_put_out(launch, 0, 0, loss);
}

static void head_loss_number(sl_attrs *attrs, int32_t loss)
{
    sl_head_set(attrs)->loss = loss;
}

static sl_status head_loss_gradient(sl_gradient *gradient)
{
    const bool *need = gradient->need;
    if (!need[0] && !need[1])
        return SL_OK;
    sl_value in[] = {gradient->in[0], gradient->in[1], gradient->in[2], gradient->step, gradient->in[WEIGHTS]};
    int targets[] = {SL_TARGET_LOSS, need[0] ? 0 : SL_TARGET_NONE, need[1] ? 1 : SL_TARGET_NONE};
    return gradient->emit(gradient, SL_OP_HEAD_LOSS_BWD, gradient->attrs, in, 5, targets, 3);
}

/* Forward and backward: X(name, dtype, tokens, dim, vocabulary, targets are below, block, ignored target, accumulate). */
#define CASES(X)                                                               \
    X("f32", SL_F32, 13, 24, 50, 50, 4, -100, 0)                               \
    X("f32 one token", SL_F32, 1, 7, 3, 3, 1, -100, 0)                         \
    X("f32 ignore, blocks, accumulate", SL_F32, 70, 33, 259, 40, 32, 7, 4)     \
    X("f32 one block", SL_F32, 40, 128, 520, 520, 0, -100, 0)                  \
    X("bf16", SL_BF16, 37, 64, 300, 300, 16, -100, 0)                          \
    X("bf16 ignore, one block, accumulate", SL_BF16, 64, 96, 1031, 8, 0, 3, 4) \
    X("f32 many words", SL_F32, 5, 16, 17003, 17003, 2, -100, 0)               \
    X("bf16 many words", SL_BF16, 5, 16, 17003, 17003, 2, -100, 0)

static const sl_op_case head_loss_cases[] = {
#define X(label, t, n, d, vocabulary, range, block, ignored, acc)       \
    {.name = label,                                                     \
     .in = {SL_T2(t, n, d), SL_T2(t, vocabulary, d), SL_T1(SL_I32, n)}, \
     .index_range = range,                                              \
     .attrs = SL_ATTRS(head, block, ignored, 0, 0)},
    CASES(X)
#undef X
        {.name = "f32 weights, ignore",
         .in = {SL_T2(SL_F32, 33, 24), SL_T2(SL_F32, 50, 24), SL_T1(SL_I32, 33), SL_T1(SL_F32, 33)},
         .index_range = 12,
         .attrs = SL_ATTRS(head, 16, 5, 0, 0)},
    {.name = "bf16 weights",
     .in = {SL_T2(SL_BF16, 37, 64), SL_T2(SL_BF16, 300, 64), SL_T1(SL_I32, 37), SL_T1(SL_F32, 37)},
     .index_range = 300,
     .attrs = SL_ATTRS(head, 16, -100, 0, 0)},
    {.name = "f32 cap, ignore",
     .in = {SL_T2(SL_F32, 33, 24), SL_T2(SL_F32, 50, 24), SL_T1(SL_I32, 33)},
     .index_range = 12,
     .attrs = SL_ATTRS(head, 16, 5, 0, 2)},
    {.name = "bf16 cap",
     .in = {SL_T2(SL_BF16, 37, 64), SL_T2(SL_BF16, 300, 64), SL_T1(SL_I32, 37)},
     .index_range = 300,
     .attrs = SL_ATTRS(head, 16, -100, 0, 1.5f)},
    {.name = "f32 cap, many words",
     .in = {SL_T2(SL_F32, 5, 16), SL_T2(SL_F32, 17003, 16), SL_T1(SL_I32, 5)},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100, 0, 3)},
};

/* Logits of unit variance. */
static void head_loss_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *w = &launch->in[1];
    int64_t range = how->op_case && how->op_case->index_range ? how->op_case->index_range : w->type.dim[0];
    sl_fill_normal(w, how->seed, 1, 1 / sqrtf((float) w->type.dim[1]));
    sl_fill_index(&launch->in[2], how->seed, 2, range);
    sl_fill_weights(&launch->in[launch->op == SL_OP_HEAD_LOSS ? WEIGHTS : WEIGHTS_BWD], how->seed, 3);
}

static sl_status head_loss_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_type step = SL_STEP_TYPE, none = {0};
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), sl_shapes_matrix(shapes, s->v, s->d),
                                       sl_type_1d(SL_I32, s->n), shapes->op == SL_OP_HEAD_LOSS_BWD ? step : none},
                                .attrs = SL_ATTRS(head, .block = SL_MIN(s->n, 1024), .ignore = SL_TARGET_IGNORED)};
    return sl_shapes_add(shapes, "", &op_case);
}

/* One block's logits in f32, which their gradients overwrite: what both need as a rule, and the backward's reference. */
static size_t logits_bytes(const sl_launch *launch)
{
    return (size_t) sl_head_block(launch) * (size_t) launch->in[1].type.dim[0] * sizeof(float);
}

const sl_op_def sl_op_head_loss = {
    SL_OP_PARTS(head_loss),
    .category = SL_CAT_DOT_PRODUCT,
    .n_in = 4,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_head_attrs),
    .optional_in = 1u << WEIGHTS,
    .work = head_loss_work,
    .estimate_workspace = logits_bytes,
    .gradient = head_loss_gradient,
    .tolerance = {2e-6, 2e-6},
    .workspace = head_loss_workspace,
    .yields_loss = true,
    .loss_targets = 2,
    .loss_weights = WEIGHTS,
    .number_loss = head_loss_number,
    .fill = head_loss_fill,
    .shapes = head_loss_shapes,
};

static sl_status head_loss_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("head_loss_bwd", in, WEIGHTS_BWD));
    SL_TRY(sl_expect_step("head_loss_bwd", &in[3]));
    if (sl_head_attrs(attrs)->block < 0)
        return sl_fail(SL_E_INTERNAL, "head_loss_bwd: attribute block must not be negative but is %lld",
                       (long long) sl_head_attrs(attrs)->block);
    out[0] = sl_type_1d(SL_F32, 1);
    out[1] = in[0];
    out[2] = in[1];
    return SL_OK;
}

static void head_loss_bwd_work(const sl_launch *launch, sl_work *work)
{
    sl_work_flops(launch, 3 * forward_flops(launch), work);
}

/* Turns one token's logits into its dlogits, as the operands' dtype holds them; returns its loss. */
static double token_loss(const sl_launch *launch, int64_t token, float *logits)
{
    int64_t vocabulary = launch->in[1].type.dim[0];
    const struct sl_head_attrs *attrs = sl_head_attrs(&launch->attrs);
    float weight = sl_get_weight(&launch->in[WEIGHTS_BWD], token);
    float scale = sl_loss_scale(launch->in[3].data, attrs->loss) * weight;
    int32_t target = sl_get_i32(&launch->in[2], token);
    bool counts = target != attrs->ignore && weight != 0;
    double lse = log_sum_exp(logits, vocabulary), loss = counts ? weight * (lse - logits[target]) : 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        double slope = slope_of(launch, logits[v]);
        float dlogit = counts ? (float) ((exp(logits[v] - lse) - (v == target)) * scale * slope) : 0;
        logits[v] = launch->in[0].type.dtype == SL_BF16 ? sl_bf16_to_f32(sl_f32_to_bf16(dlogit)) : dlogit;
    }
    return loss;
}

static void head_loss_bwd_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *w = &launch->in[1], *dw = &launch->out[2];
    int64_t n = x->type.dim[0], d = x->type.dim[1], vocabulary = w->type.dim[0], block = sl_head_block(launch);
    float *dlogits = launch->workspace; /* [block, vocabulary] */
    SL_ASSERT(launch->workspace_bytes >= logits_bytes(launch));
    double loss = 0;
    for (int64_t first = 0; first < n; first += block) {
        int64_t count = SL_MIN(block, n - first);
        for (int64_t i = 0; i < count; i++) {
            for (int64_t v = 0; v < vocabulary; v++)
                dlogits[i * vocabulary + v] = logit(launch, first + i, v);
            loss += token_loss(launch, first + i, dlogits + i * vocabulary);
        }
        for (int64_t i = 0; i < count; i++)
            for (int64_t c = 0; c < d; c++) {
                double sum = 0;
                for (int64_t v = 0; v < vocabulary; v++)
                    sum += (double) dlogits[i * vocabulary + v] * sl_get(w, v * d + c);
                sl_put_out(launch, 1, (first + i) * d + c, sum);
            }
        for (int64_t v = 0; sl_present(dw) && v < vocabulary; v++)
            for (int64_t c = 0; c < d; c++) {
                double sum = first > 0 || sl_accumulates(launch, 2) ? sl_get(dw, v * d + c) : 0;
                for (int64_t i = 0; i < count; i++)
                    sum += (double) dlogits[i * vocabulary + v] * sl_get(x, (first + i) * d + c);
                sl_put(dw, v * d + c, (float) sum);
            }
    }
    sl_put_out(launch, 0, 0, loss);
}

static const sl_op_case head_loss_bwd_cases[] = {
#define X(label, t, n, d, vocabulary, range, block, ignored, acc)                     \
    {.name = label,                                                                   \
     .in = {SL_T2(t, n, d), SL_T2(t, vocabulary, d), SL_T1(SL_I32, n), SL_STEP_TYPE}, \
     .index_range = range,                                                            \
     .attrs = SL_ATTRS(head, block, ignored, 0, 0),                                   \
     .accumulate = acc},
    CASES(X)
#undef X
        {.name = "f32 weights, ignore, accumulate, second loss",
         .in = {SL_T2(SL_F32, 33, 24), SL_T2(SL_F32, 50, 24), SL_T1(SL_I32, 33), SL_STEP_TYPE, SL_T1(SL_F32, 33)},
         .index_range = 12,
         .attrs = SL_ATTRS(head, 16, 5, 1, 0),
         .accumulate = 4},
    {.name = "bf16 weights",
     .in = {SL_T2(SL_BF16, 37, 64), SL_T2(SL_BF16, 300, 64), SL_T1(SL_I32, 37), SL_STEP_TYPE, SL_T1(SL_F32, 37)},
     .index_range = 300,
     .attrs = SL_ATTRS(head, 16, -100, 0, 0)},
    {.name = "f32 weights, many words, third loss",
     .in = {SL_T2(SL_F32, 5, 16), SL_T2(SL_F32, 17003, 16), SL_T1(SL_I32, 5), SL_STEP_TYPE, SL_T1(SL_F32, 5)},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100, 2, 0)},
    {.name = "f32 cap, ignore, blocks, accumulate",
     .in = {SL_T2(SL_F32, 33, 24), SL_T2(SL_F32, 50, 24), SL_T1(SL_I32, 33), SL_STEP_TYPE},
     .index_range = 12,
     .attrs = SL_ATTRS(head, 16, 5, 0, 2),
     .accumulate = 4},
    {.name = "f32 cap, weights",
     .in = {SL_T2(SL_F32, 33, 24), SL_T2(SL_F32, 51, 24), SL_T1(SL_I32, 33), SL_STEP_TYPE, SL_T1(SL_F32, 33)},
     .index_range = 51,
     .attrs = SL_ATTRS(head, 0, -100, 0, 30)},
    {.name = "bf16 cap",
     .in = {SL_T2(SL_BF16, 37, 64), SL_T2(SL_BF16, 300, 64), SL_T1(SL_I32, 37), SL_STEP_TYPE},
     .index_range = 300,
     .attrs = SL_ATTRS(head, 16, -100, 0, 1.5f)},
    {.name = "f32 cap, many words",
     .in = {SL_T2(SL_F32, 5, 16), SL_T2(SL_F32, 17003, 16), SL_T1(SL_I32, 5), SL_STEP_TYPE},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100, 0, 3)},
};
#undef CASES

static void head_loss_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    sl_fill_step(&launch->in[3], how->seed, launch->in[0].type.dim[0]);
    head_loss_fill(launch, how);
}

const sl_op_def sl_op_head_loss_bwd = {
    SL_OP_PARTS(head_loss_bwd),
    .category = SL_CAT_DOT_PRODUCT,
    .n_in = 5,
    .n_out = 3,
    .attrs_bytes = sizeof(struct sl_head_attrs),
    .optional_in = 1u << WEIGHTS_BWD,
    .can_accumulate = 4,
    .work = head_loss_bwd_work,
    .estimate_workspace = logits_bytes,
    .tolerance = {5e-6, 0.012},
    .workspace = logits_bytes,
    .fill = head_loss_bwd_fill,
    .shapes = head_loss_shapes,
};
