/*
 * AdamW (Loshchilov and Hutter, 2019), as PyTorch computes it: decoupled weight decay, bias-corrected moments.
 *     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2     p = p (1 - lr wd) - lr/bias1 * m / (sqrt(v)/sqrt(bias2) + eps)
 * The exact operations, and why they are bit-equal everywhere, are in optim/element.h. sqrt(v) is multiplied by 1/sqrt(bias2)
 * inside one fma rather than divided: it saves a division per element and a rounding.
 *
 * With bf16 moments and beta2 = .999, rounding to nearest freezes v (a change of .1 % is under half an ulp): hence stochastic
 * rounding, whose noise is drawn by the element's place.
 */
#include "optim/adamw.h"

static sl_status adamw_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    return sl_update_infer("adamw", sl_adamw_attrs(attrs)->decayed, in, out, 2);
}

static void adamw_reference(const sl_launch *launch)
{
    const sl_operand *master = &launch->out[3];
    const float *gate = launch->in[2].data;
    const sl_update_rounding rounding = {sl_adamw_attrs(&launch->attrs)->stochastic != 0,
                                         sl_adamw_attrs(&launch->attrs)->stream, 0};
    if (sl_gate_skips(gate))
        return;
    sl_adamw_scalars s = sl_adamw_prepare(&launch->attrs, launch->in[1].data, gate);
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++) {
        float p = sl_update_get_parameter(launch, master, i);
        float m = sl_get(&launch->out[1], i), v = sl_get(&launch->out[2], i);
        float decay = i < sl_adamw_attrs(&launch->attrs)->decayed ? s.decay : 1;
        sl_adamw_element(&s, decay, sl_get(&launch->in[0], i), &p, &m, &v);
        sl_update_put(launch, rounding, 1, i, m);
        sl_update_put(launch, rounding, 2, i, v);
        sl_update_put_parameter(launch, rounding, master, i, p);
    }
}

static const sl_op_case adamw_cases[] = {SL_UPDATE_CASES(SL_ADAMW_CASE)};

const sl_op_def sl_op_adamw = {
    SL_OP_PARTS(adamw),    SL_UPDATE_PARTS(2),  .attrs_bytes = sizeof(struct sl_adamw_attrs),
    .work = sl_work_bytes, .tolerance = {0, 0}, /* bit for bit */
    SL_ADAMW_COSTS,
};

const sl_optimizer_def sl_optimizer_adamw = {
    .name = "adamw",
    .help = "AdamW (decoupled weight decay)",
    .op = SL_OP_ADAMW,
    .n_states = 2,
    SL_ADAMW_OPTIONS,
};
