/*
 * SGD with momentum, as PyTorch computes it (no dampening, no Nesterov; weight decay joins the gradient):
 *     g = g + wd p     b = mu b + g     p = p - lr b
 * The exact operations are in ops/optimizer.h, the rules of rounding are AdamW's.
 */
#include "ops/update.h"

static sl_status sgd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    return sl_update_infer("sgd", attrs->sgd.decayed, in, out, 1);
}

static void sgd_reference(const sl_launch *launch)
{
    const sl_operand *master = &launch->out[2];
    const float *gate = launch->in[2].data;
    const sl_update_rounding rounding = {launch->attrs.sgd.stochastic != 0, launch->attrs.sgd.stream};
    if (sl_gate_skips(gate))
        return;
    sl_sgd_scalars s = sl_sgd_prepare(&launch->attrs, launch->in[1].data, gate);
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++) {
        float p = sl_update_get_parameter(launch, master, i), b = sl_get(&launch->out[1], i);
        float decay = i < launch->attrs.sgd.decayed ? s.weight_decay : 0;
        sl_sgd_element(&s, decay, sl_get(&launch->in[0], i), &p, &b);
        sl_update_put(launch, rounding, 1, i, b);
        sl_update_put_parameter(launch, rounding, master, i, p);
    }
}

#define ATTRS(n_decayed, is_stochastic) \
    .attrs.sgd = {                      \
        .momentum = 0.9f, .weight_decay = 0.01f, .decayed = n_decayed, .stream = 3, .stochastic = is_stochastic}
static const sl_op_case sgd_cases[] = {SL_UPDATE_CASES(ATTRS)};
#undef ATTRS

static void sgd_clear_stream(sl_attrs *attrs)
{
    attrs->sgd.stream = 0;
}

static void sgd_shorten(sl_attrs *attrs, int64_t count)
{
    attrs->sgd.decayed = SL_MIN(attrs->sgd.decayed, count);
}

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
    .clear_stream = sgd_clear_stream,
    .linear = true,
    .shorten = sgd_shorten,
    .fill = sl_update_fill,
};
