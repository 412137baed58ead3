/*
 * SGD with momentum, as PyTorch computes it (no dampening, no Nesterov; weight decay joins the gradient):
 *     g = g + wd p     b = mu b + g     p = p - lr b
 * The exact operations are in ops/optimizer.h, the rules of rounding are AdamW's.
 */
#include "ops/common.h"
#include "ops/optimizer.h"

static sl_status sgd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("sgd", "g", &in[0], 1));
    SL_TRY(sl_expect_step("sgd", &in[1]));
    if (in[2].rank)
        SL_TRY(sl_expect("sgd", "gate", &in[2], sl_type_1d(SL_F32, 4)));
    if (attrs->sgd.decayed < 0 || attrs->sgd.decayed > in[0].dim[0])
        return sl_fail(SL_E_INTERNAL, "sgd: decayed is %lld but there are %lld elements",
                       (long long) attrs->sgd.decayed, (long long) in[0].dim[0]);
    out[0] = out[1] = in[0];
    out[2] = (sl_type){0};
    return SL_OK;
}

static void put_rounded(const sl_launch *launch, int k, int64_t i, float value)
{
    const sl_operand *y = &launch->out[k];
    if (y->type.dtype == SL_BF16 && launch->attrs.sgd.stochastic)
        ((sl_bf16 *) y->data)[i] =
            sl_f32_to_bf16_stochastic(value, sl_rounding_noise(launch->in[1].data, launch->attrs.sgd.stream, k, i));
    else
        sl_put(y, i, value);
}

static void sgd_reference(const sl_launch *launch)
{
    const sl_operand *master = &launch->out[2];
    const float *gate = launch->in[2].data;
    if (gate && gate[2] != 0)
        return;
    sl_sgd_scalars s = sl_sgd_prepare(&launch->attrs, launch->in[1].data, gate);
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++) {
        float p = sl_present(master) ? sl_get(master, i) : sl_get(&launch->out[0], i), b = sl_get(&launch->out[1], i);
        float decay = i < launch->attrs.sgd.decayed ? s.weight_decay : 0;
        sl_sgd_element(&s, decay, sl_get(&launch->in[0], i), &p, &b);
        put_rounded(launch, 1, i, b);
        if (sl_present(master)) {
            sl_put(master, i, p);
            sl_put(&launch->out[0], i, p);
        } else {
            put_rounded(launch, 0, i, p);
        }
    }
}

#define ATTRS(n_decayed, is_stochastic) \
    .attrs.sgd = {                      \
        .momentum = 0.9f, .weight_decay = 0.01f, .decayed = n_decayed, .stream = 3, .stochastic = is_stochastic}
#define GATE SL_T1(SL_F32, 4)
static const sl_op_case sgd_cases[] = {
    {.name = "f32", .in = {SL_T1(SL_F32, 1000), SL_STEP_TYPE}, ATTRS(600, 0)},
    {.name = "f32 gate, tail", .in = {SL_T1(SL_F32, 777), SL_STEP_TYPE, GATE}, ATTRS(777, 0)},
    {.name = "f32 skip", .in = {SL_T1(SL_F32, 100), SL_STEP_TYPE, GATE}, ATTRS(60, 0), .not_finite = true},
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1), SL_STEP_TYPE}, ATTRS(0, 0)},
    {.name = "bf16 nearest", .in = {SL_T1(SL_BF16, 1000), SL_STEP_TYPE}, ATTRS(601, 0)},
    {.name = "bf16 stochastic, gate, tail", .in = {SL_T1(SL_BF16, 20003), SL_STEP_TYPE, GATE}, ATTRS(10001, 1)},
    {.name = "bf16 skip", .in = {SL_T1(SL_BF16, 300), SL_STEP_TYPE, GATE}, ATTRS(60, 1), .not_finite = true},
    {.name = "bf16 master, gate, tail",
     .in = {SL_T1(SL_BF16, 777), SL_STEP_TYPE, GATE},
     ATTRS(5, 0),
     .optional_out = true},
    {.name = "f32, gradients that are not finite",
     .in = {SL_T1(SL_F32, 777), SL_STEP_TYPE},
     ATTRS(600, 0),
     .not_finite = true},
    {.name = "bf16, gradients that are not finite",
     .in = {SL_T1(SL_BF16, 5003), SL_STEP_TYPE},
     ATTRS(4097, 1),
     .not_finite = true},
    {.name = "bf16 master, gradients that are not finite",
     .in = {SL_T1(SL_BF16, 777), SL_STEP_TYPE},
     ATTRS(5, 0),
     .optional_out = true,
     .not_finite = true},
};
#undef ATTRS
#undef GATE

const sl_op_def sl_op_sgd = {
    .name = "sgd",
    .category = SL_CAT_OPTIMIZER,
    .n_in = 3,
    .n_out = 3,
    .optional_in = 1u << 2,
    .optional_out = 1u << 2,
    .updates = 7,
    .infer = sgd_infer,
    .work = sl_work_bytes,
    .reference = sgd_reference,
    .cases = sgd_cases,
    .n_cases = SL_COUNT(sgd_cases),
    .tolerance = {0, 0},
};
