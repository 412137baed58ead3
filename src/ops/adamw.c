/*
 * AdamW (Loshchilov and Hutter, 2019), as PyTorch computes it: decoupled weight decay, bias-corrected moments.
 *     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2     p = p (1 - lr wd) - lr/bias1 * m / (sqrt(v)/sqrt(bias2) + eps)
 * The exact operations, and why they are bit-equal everywhere, are in ops/optimizer.h. sqrt(v) is multiplied by 1/sqrt(bias2)
 * inside one fma rather than divided: it saves a division per element and a rounding.
 *
 * With bf16 moments and beta2 = .999, rounding to nearest freezes v (a change of .1 % is under half an ulp): hence stochastic
 * rounding, whose noise is drawn by the element's place.
 */
#include "ops/common.h"
#include "ops/optimizer.h"

static sl_status adamw_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("adamw", "g", &in[0], 1));
    SL_TRY(sl_expect_step("adamw", &in[1]));
    if (in[2].rank)
        SL_TRY(sl_expect("adamw", "gate", &in[2], sl_type_1d(SL_F32, 4)));
    if (attrs->adamw.decayed < 0 || attrs->adamw.decayed > in[0].dim[0])
        return sl_fail(SL_E_INTERNAL, "adamw: decayed is %lld but there are %lld elements",
                       (long long) attrs->adamw.decayed, (long long) in[0].dim[0]);
    out[0] = out[1] = out[2] = in[0];
    out[3] = (sl_type){0};
    return SL_OK;
}

/* Stores one element of out[k], which is the tensor `which` of the noise. */
static void put_rounded(const sl_launch *launch, int k, int64_t i, float value)
{
    const sl_operand *y = &launch->out[k];
    if (y->type.dtype == SL_BF16 && launch->attrs.adamw.stochastic)
        ((sl_bf16 *) y->data)[i] =
            sl_f32_to_bf16_stochastic(value, sl_rounding_noise(launch->in[1].data, launch->attrs.adamw.stream, k, i));
    else
        sl_put(y, i, value);
}

static void adamw_reference(const sl_launch *launch)
{
    const sl_operand *master = &launch->out[3];
    const float *gate = launch->in[2].data;
    if (gate && gate[2] != 0)
        return;
    sl_adamw_scalars s = sl_adamw_prepare(&launch->attrs, launch->in[1].data, gate);
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++) {
        float p = sl_present(master) ? sl_get(master, i) : sl_get(&launch->out[0], i);
        float m = sl_get(&launch->out[1], i), v = sl_get(&launch->out[2], i);
        float decay = i < launch->attrs.adamw.decayed ? s.decay : 1;
        sl_adamw_element(&s, decay, sl_get(&launch->in[0], i), &p, &m, &v);
        put_rounded(launch, 1, i, m);
        put_rounded(launch, 2, i, v);
        if (sl_present(master)) {
            sl_put(master, i, p);
            sl_put(&launch->out[0], i, p); /* nearest: the master remembers what is cut off */
        } else {
            put_rounded(launch, 0, i, p);
        }
    }
}

#define ATTRS(n_decayed, is_stochastic)   \
    .attrs.adamw = {.beta1 = 0.9f,        \
                    .beta2 = 0.999f,      \
                    .eps = 1e-8f,         \
                    .weight_decay = 0.1f, \
                    .decayed = n_decayed, \
                    .stream = 7,          \
                    .stochastic = is_stochastic}
#define GATE SL_T1(SL_F32, 4)
static const sl_op_case adamw_cases[] = {
    {.name = "f32", .in = {SL_T1(SL_F32, 1000), SL_STEP_TYPE}, ATTRS(600, 0)},
    {.name = "f32 gate, tail", .in = {SL_T1(SL_F32, 777), SL_STEP_TYPE, GATE}, ATTRS(777, 0)},
    {.name = "f32 skip", .in = {SL_T1(SL_F32, 100), SL_STEP_TYPE, GATE}, ATTRS(60, 0), .not_finite = true},
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1), SL_STEP_TYPE}, ATTRS(0, 0)},
    {.name = "bf16 nearest", .in = {SL_T1(SL_BF16, 1000), SL_STEP_TYPE}, ATTRS(601, 0)},
    {.name = "bf16 stochastic", .in = {SL_T1(SL_BF16, 5000), SL_STEP_TYPE}, ATTRS(4097, 1)},
    {.name = "bf16 stochastic, gate, tail", .in = {SL_T1(SL_BF16, 20003), SL_STEP_TYPE, GATE}, ATTRS(10001, 1)},
    {.name = "bf16 skip", .in = {SL_T1(SL_BF16, 300), SL_STEP_TYPE, GATE}, ATTRS(60, 1), .not_finite = true},
    {.name = "bf16 master", .in = {SL_T1(SL_BF16, 5000), SL_STEP_TYPE}, ATTRS(4097, 1), .optional_out = true},
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

const sl_op_def sl_op_adamw = {
    .name = "adamw",
    .category = SL_CAT_OPTIMIZER,
    .n_in = 3,
    .n_out = 4,
    .optional_in = 1u << 2,
    .optional_out = 1u << 3,
    .updates = 0xf,
    .infer = adamw_infer,
    .work = sl_work_bytes,
    .reference = adamw_reference,
    .cases = adamw_cases,
    .n_cases = SL_COUNT(adamw_cases),
    .tolerance = {0, 0},
};
