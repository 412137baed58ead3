/*
 * Cross-entropy with soft targets: a row of targets t holds what each class counts, not one class.
 *     loss = sum over rows of  weight sum over classes of  t (log sum exp(logits) - logits)
 * Where weights are absent all are 1. A row of zeros counts for nothing. As of head_loss, the loss is a plain sum and the gradient that
 * of loss * loss scale:
 *     dlogits = (softmax * sum of t - t) * weight * loss scale
 * The logits are few (classes of a classifier, not words), so they are an operand and not made here block by block.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"
#include "ops/soft_loss.h"

enum { WEIGHTS = 2, STEP_BWD = 2, WEIGHTS_BWD = 3 }; /* operands */

static sl_status check(const char *op, const sl_type *in, int weights)
{
    SL_TRY(sl_expect_float(op, "logits", &in[0], 2));
    SL_TRY(sl_expect(op, "targets", &in[1], sl_type_2d(SL_F32, in[0].dim[0], in[0].dim[1])));
    return sl_expect_weights(op, &in[weights], in[0].dim[0]);
}

/* What a row comes to; its softmax is exp(logits - largest) / sum. */
typedef struct row_sums {
    double largest, sum, targets, loss;
} row_sums;

static row_sums sum_row(const sl_launch *launch, int64_t row)
{
    const sl_operand *logits = &launch->in[0], *targets = &launch->in[1];
    int64_t classes = logits->type.dim[1];
    row_sums s = {.largest = -INFINITY};
    for (int64_t i = row * classes; i < (row + 1) * classes; i++)
        s.largest = fmax(s.largest, sl_get(logits, i));
    for (int64_t i = row * classes; i < (row + 1) * classes; i++) {
        s.sum += exp(sl_get(logits, i) - s.largest);
        s.targets += sl_get(targets, i);
        s.loss += sl_get(targets, i) * (s.largest - sl_get(logits, i));
    }
    s.loss += s.targets * log(s.sum);
    return s;
}

static sl_status soft_loss_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(check("soft_loss", in, WEIGHTS));
    out[0] = sl_type_1d(SL_F32, 1);
    return SL_OK;
}

static void soft_loss_reference(const sl_launch *launch)
{
    double loss = 0;
    for (int64_t i = 0; i < launch->in[0].type.dim[0]; i++)
        loss += sl_get_weight(&launch->in[WEIGHTS], i) * sum_row(launch, i).loss;
    sl_put_out(launch, 0, 0, loss);
}

static void soft_loss_number(sl_attrs *attrs, int32_t loss)
{
    sl_soft_loss_set(attrs)->loss = loss;
}

static sl_status soft_loss_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->in[0], gradient->in[1], gradient->step, gradient->in[WEIGHTS]};
    if (!gradient->need[0])
        return SL_OK;
    return gradient->emit(gradient, SL_OP_SOFT_LOSS_BWD, gradient->attrs, in, 4, (const int[]){SL_TARGET_LOSS, 0}, 2);
}

#define SOFT(t, n, classes) SL_T2(t, n, classes), SL_T2(SL_F32, n, classes)
static const sl_op_case soft_loss_cases[] = {
    {.name = "f32", .in = {SOFT(SL_F32, 5, 64)}},
    {.name = "f32 one class", .in = {SOFT(SL_F32, 1, 1)}},
    {.name = "f32 tail, weights", .in = {SOFT(SL_F32, 7, 37), SL_T1(SL_F32, 7)}},
    {.name = "f32 many rows and classes", .in = {SOFT(SL_F32, 300, 1003)}},
    {.name = "bf16", .in = {SOFT(SL_BF16, 33, 512)}},
    {.name = "bf16 tail, weights", .in = {SOFT(SL_BF16, 7, 333), SL_T1(SL_F32, 7)}},
};

/* Targets that add up to about 1, and some rows of zeros. */
static void soft_loss_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *targets = &launch->in[1];
    int64_t classes = targets->type.dim[1];
    sl_fill_squares(targets, how->seed, 1, 1 / sqrtf((float) classes));
    for (int64_t i = 2; i < targets->type.dim[0]; i += 5)
        for (int64_t c = 0; c < classes; c++)
            sl_put(targets, i * classes + c, 0);
    if (launch->op == SL_OP_SOFT_LOSS_BWD)
        sl_fill_step(&launch->in[STEP_BWD], how->seed, targets->type.dim[0]);
    sl_fill_weights(&launch->in[launch->op == SL_OP_SOFT_LOSS ? WEIGHTS : WEIGHTS_BWD], how->seed, 3);
}

static sl_status soft_loss_shapes(sl_op_shapes *shapes)
{
    const sl_type logits = sl_shapes_wide(shapes), step = SL_STEP_TYPE, none = {0};
    const sl_op_case op_case = {.in = {logits, sl_type_2d(SL_F32, logits.dim[0], logits.dim[1]),
                                       shapes->op == SL_OP_SOFT_LOSS_BWD ? step : none}};
    return sl_shapes_add(shapes, "", &op_case);
}

/* Of forward and backward: every row's loss, which are then added in order. */
static size_t losses_estimate(const sl_launch *launch)
{
    return (size_t) launch->in[0].type.dim[0] * sizeof(float);
}

const sl_op_def sl_op_soft_loss = {
    .name = "soft_loss",
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_soft_loss_attrs),
    .optional_in = 1u << WEIGHTS,
    .infer = soft_loss_infer,
    .work = sl_work_bytes,
    .reference = soft_loss_reference,
    .estimate_workspace = losses_estimate,
    .gradient = soft_loss_gradient,
    .cases = soft_loss_cases,
    .n_cases = SL_COUNT(soft_loss_cases),
    .tolerance = {2e-6, 2e-6},
    .yields_loss = true,
    .loss_targets = 1,
    .loss_weights = WEIGHTS,
    .number_loss = soft_loss_number,
    .fill = soft_loss_fill,
    .shapes = soft_loss_shapes,
};

static sl_status soft_loss_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(check("soft_loss_bwd", in, WEIGHTS_BWD));
    SL_TRY(sl_expect_step("soft_loss_bwd", &in[STEP_BWD]));
    out[0] = sl_type_1d(SL_F32, 1);
    out[1] = in[0];
    return SL_OK;
}

static void soft_loss_bwd_reference(const sl_launch *launch)
{
    int64_t classes = launch->in[0].type.dim[1];
    float scale = sl_loss_scale(launch->in[STEP_BWD].data, sl_soft_loss_attrs(&launch->attrs)->loss);
    double loss = 0;
    for (int64_t row = 0; row < launch->in[0].type.dim[0]; row++) {
        const row_sums s = sum_row(launch, row);
        const float weight = sl_get_weight(&launch->in[WEIGHTS_BWD], row);
        for (int64_t i = row * classes; i < (row + 1) * classes; i++) {
            double share = exp(sl_get(&launch->in[0], i) - s.largest) / s.sum;
            sl_put_out(launch, 1, i, (share * s.targets - sl_get(&launch->in[1], i)) * (double) (weight * scale));
        }
        loss += weight * s.loss;
    }
    sl_put_out(launch, 0, 0, loss);
}

static const sl_op_case soft_loss_bwd_cases[] = {
    {.name = "f32", .in = {SOFT(SL_F32, 5, 64), SL_STEP_TYPE}},
    {.name = "f32 one class", .in = {SOFT(SL_F32, 1, 1), SL_STEP_TYPE}},
    {.name = "f32 tail, weights, second loss",
     .in = {SOFT(SL_F32, 7, 37), SL_STEP_TYPE, SL_T1(SL_F32, 7)},
     .attrs = SL_ATTRS(soft_loss, 1)},
    {.name = "f32 many rows and classes", .in = {SOFT(SL_F32, 300, 1003), SL_STEP_TYPE}},
    {.name = "bf16", .in = {SOFT(SL_BF16, 33, 512), SL_STEP_TYPE}},
    {.name = "bf16 tail, weights, fourth loss",
     .in = {SOFT(SL_BF16, 7, 333), SL_STEP_TYPE, SL_T1(SL_F32, 7)},
     .attrs = SL_ATTRS(soft_loss, 3)},
};
#undef SOFT

const sl_op_def sl_op_soft_loss_bwd = {
    .name = "soft_loss_bwd",
    .category = SL_CAT_REDUCTION,
    .n_in = 4,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_soft_loss_attrs),
    .optional_in = 1u << WEIGHTS_BWD,
    .infer = soft_loss_bwd_infer,
    .work = sl_work_bytes,
    .reference = soft_loss_bwd_reference,
    .estimate_workspace = losses_estimate,
    .cases = soft_loss_bwd_cases,
    .n_cases = SL_COUNT(soft_loss_bwd_cases),
    .tolerance = {4e-6, SL_BF16_ULP},
    .fill = soft_loss_fill,
    .shapes = soft_loss_shapes,
};
