/*
 * Language model head and softmax cross-entropy in one op, so that the logits (tokens x vocabulary, the largest tensor of
 * a step by far) never exist whole:
 *     logits = x W^T      loss = sum over tokens with target != ignore of  log sum exp(logits) - logits[target]
 * The loss is a plain sum. Its gradients dx and dW are those of loss * step.loss_scale (one over the step's target tokens), so
 * sums over chunks and rounds come out as the mean over the step.
 *
 * head_loss_bwd takes `block` tokens at a time (0: all), in order. For each block: logits in f32, softmax in f32,
 *     dlogits = (softmax - onehot) * loss_scale, rounded to the operands' dtype,
 *     dx = dlogits W,  dW += dlogits^T x
 * and dW is rounded to its own dtype after each block (the first one writes it unless the launch accumulates). The block
 * is therefore part of the numerics: it belongs to the program, not to the device. Since logits need W anyway, the backward
 * gives the loss as well, and a training step never runs the forward.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/head_loss.h"
#include "ops/shapes.h"

static sl_status check(const char *op, const sl_type *in)
{
    SL_TRY(sl_expect_float(op, "x", &in[0], 2));
    SL_TRY(sl_expect_float(op, "W", &in[1], 2));
    SL_TRY(sl_expect(op, "W", &in[1], sl_type_2d(in[0].dtype, in[1].dim[0], in[0].dim[1])));
    return sl_expect(op, "targets", &in[2], sl_type_1d(SL_I32, in[0].dim[0]));
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
    return (float) sum;
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
    SL_TRY(check("head_loss", in));
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
        if (target == sl_head_attrs(&launch->attrs)->ignore)
            continue;
        for (int64_t v = 0; v < vocabulary; v++)
            logits[v] = logit(launch, i, v);
        loss += log_sum_exp(logits, vocabulary) - logits[target];
    }
    sl_put_out(launch, 0, 0, loss);
}

static sl_status head_loss_gradient(sl_gradient *gradient)
{
    const bool *need = gradient->need;
    if (!need[0] && !need[1])
        return SL_OK;
    sl_value in[] = {gradient->in[0], gradient->in[1], gradient->in[2], gradient->step};
    int targets[] = {SL_TARGET_LOSS, need[0] ? 0 : SL_TARGET_NONE, need[1] ? 1 : SL_TARGET_NONE};
    return gradient->emit(gradient, SL_OP_HEAD_LOSS_BWD, gradient->attrs, in, 4, targets, 3);
}

#define HEAD(t, n, d, vocabulary) SL_T2(t, n, d), SL_T2(t, vocabulary, d), SL_T1(SL_I32, n)
static const sl_op_case head_loss_cases[] = {
    {.name = "f32", .in = {HEAD(SL_F32, 13, 24, 50)}, .index_range = 50, .attrs = SL_ATTRS(head, 4, -100)},
    {.name = "f32 one token", .in = {HEAD(SL_F32, 1, 7, 3)}, .index_range = 3, .attrs = SL_ATTRS(head, 1, -100)},
    {.name = "f32 ignore, blocks",
     .in = {HEAD(SL_F32, 70, 33, 259)},
     .index_range = 40,
     .attrs = SL_ATTRS(head, 32, 7)},
    {.name = "bf16", .in = {HEAD(SL_BF16, 37, 64, 300)}, .index_range = 300, .attrs = SL_ATTRS(head, 16, -100)},
    {.name = "bf16 ignore, one block",
     .in = {HEAD(SL_BF16, 64, 96, 1031)},
     .index_range = 8,
     .attrs = SL_ATTRS(head, 0, 3)},
    {.name = "f32 many words",
     .in = {HEAD(SL_F32, 5, 16, 17003)},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100)},
    {.name = "bf16 many words",
     .in = {HEAD(SL_BF16, 5, 16, 17003)},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100)},
};

/* Logits of unit variance. */
static void head_loss_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *w = &launch->in[1];
    int64_t range = how->op_case && how->op_case->index_range ? how->op_case->index_range : w->type.dim[0];
    sl_fill_normal(w, how->seed, 1, 1 / sqrtf((float) w->type.dim[1]));
    sl_fill_index(&launch->in[2], how->seed, 2, range);
}

static sl_status head_loss_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_type step = SL_STEP_TYPE, none = {0};
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), sl_shapes_matrix(shapes, s->v, s->d),
                                       sl_type_1d(SL_I32, s->n), sl_op(shapes->op)->n_in > 3 ? step : none},
                                .attrs = SL_ATTRS(head, .block = SL_MIN(s->n, 1024), .ignore = SL_TARGET_IGNORED)};
    return sl_shapes_add(shapes, "", &op_case);
}

/* Of forward and backward: one block's logits in f32; their gradients overwrite them. */
static size_t logits_estimate(const sl_launch *launch)
{
    return (size_t) sl_head_block(launch) * (size_t) launch->in[1].type.dim[0] * sizeof(float);
}

const sl_op_def sl_op_head_loss = {
    .name = "head_loss",
    .category = SL_CAT_DOT_PRODUCT,
    .n_in = 3,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_head_attrs),
    .infer = head_loss_infer,
    .work = head_loss_work,
    .reference = head_loss_reference,
    .estimate_workspace = logits_estimate,
    .gradient = head_loss_gradient,
    .cases = head_loss_cases,
    .n_cases = SL_COUNT(head_loss_cases),
    .tolerance = {2e-6, 2e-6},
    .workspace = head_loss_workspace,
    .yields_loss = true,
    .fill = head_loss_fill,
    .shapes = head_loss_shapes,
};

static sl_status head_loss_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("head_loss_bwd", in));
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

static size_t head_loss_bwd_workspace(const sl_launch *launch)
{
    return (size_t) (sl_head_block(launch) * launch->in[1].type.dim[0]) * sizeof(float); /* a block's logits */
}

/* Turns one token's logits into its dlogits, as the operands' dtype holds them; returns its loss. */
static double token_loss(const sl_launch *launch, int64_t token, float *logits)
{
    int64_t vocabulary = launch->in[1].type.dim[0];
    float scale = ((const sl_step_params *) launch->in[3].data)->loss_scale;
    int32_t target = sl_get_i32(&launch->in[2], token);
    bool counts = target != sl_head_attrs(&launch->attrs)->ignore;
    double lse = log_sum_exp(logits, vocabulary), loss = counts ? lse - logits[target] : 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        float dlogit = counts ? (float) ((exp(logits[v] - lse) - (v == target)) * scale) : 0;
        logits[v] = launch->in[0].type.dtype == SL_BF16 ? sl_bf16_to_f32(sl_f32_to_bf16(dlogit)) : dlogit;
    }
    return loss;
}

static void head_loss_bwd_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *w = &launch->in[1], *dw = &launch->out[2];
    int64_t n = x->type.dim[0], d = x->type.dim[1], vocabulary = w->type.dim[0], block = sl_head_block(launch);
    float *dlogits = launch->workspace; /* [block, vocabulary] */
    SL_ASSERT(launch->workspace_bytes >= head_loss_bwd_workspace(launch));
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
    {.name = "f32",
     .in = {HEAD(SL_F32, 13, 24, 50), SL_STEP_TYPE},
     .index_range = 50,
     .attrs = SL_ATTRS(head, 4, -100)},
    {.name = "f32 one token",
     .in = {HEAD(SL_F32, 1, 7, 3), SL_STEP_TYPE},
     .index_range = 3,
     .attrs = SL_ATTRS(head, 1, -100)},
    {.name = "f32 ignore, blocks, accumulate",
     .in = {HEAD(SL_F32, 70, 33, 259), SL_STEP_TYPE},
     .index_range = 40,
     .attrs = SL_ATTRS(head, 32, 7),
     .accumulate = 4},
    {.name = "f32 one block",
     .in = {HEAD(SL_F32, 40, 128, 520), SL_STEP_TYPE},
     .index_range = 520,
     .attrs = SL_ATTRS(head, 0, -100)},
    {.name = "bf16",
     .in = {HEAD(SL_BF16, 37, 64, 300), SL_STEP_TYPE},
     .index_range = 300,
     .attrs = SL_ATTRS(head, 16, -100)},
    {.name = "bf16 ignore, one block, accumulate",
     .in = {HEAD(SL_BF16, 64, 96, 1031), SL_STEP_TYPE},
     .index_range = 8,
     .attrs = SL_ATTRS(head, 0, 3),
     .accumulate = 4},
    {.name = "f32 many words",
     .in = {HEAD(SL_F32, 5, 16, 17003), SL_STEP_TYPE},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100)},
    {.name = "bf16 many words",
     .in = {HEAD(SL_BF16, 5, 16, 17003), SL_STEP_TYPE},
     .index_range = 17003,
     .attrs = SL_ATTRS(head, 2, -100)},
};
#undef HEAD

static void head_loss_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    sl_fill_step(&launch->in[3], how->seed, launch->in[0].type.dim[0]);
    head_loss_fill(launch, how);
}

const sl_op_def sl_op_head_loss_bwd = {
    .name = "head_loss_bwd",
    .category = SL_CAT_DOT_PRODUCT,
    .n_in = 4,
    .n_out = 3,
    .attrs_bytes = sizeof(struct sl_head_attrs),
    .can_accumulate = 4,
    .infer = head_loss_bwd_infer,
    .work = head_loss_bwd_work,
    .reference = head_loss_bwd_reference,
    .estimate_workspace = logits_estimate,
    .cases = head_loss_bwd_cases,
    .n_cases = SL_COUNT(head_loss_bwd_cases),
    .tolerance = {5e-6, 0.012},
    .workspace = head_loss_bwd_workspace,
    .fill = head_loss_bwd_fill,
    .shapes = head_loss_shapes,
};
