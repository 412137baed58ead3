/*
 * SGD with momentum, as PyTorch computes it (no dampening, no Nesterov; weight decay joins the gradient):
 *     g = g + wd p     b = mu b + g     p = p - lr b
 * The exact operations are in optim/element.h, the rules of rounding are AdamW's.
 */
#include "ops/shapes.h"
#include "optim/element.h"
#include "optim/update.h"

static sl_status sgd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    return sl_update_infer("sgd", sl_sgd_attrs(attrs)->decayed, in, out, 1);
}

static void sgd_reference(const sl_launch *launch)
{
    const sl_operand *master = &launch->out[2];
    const float *gate = launch->in[2].data;
    const sl_update_rounding rounding = {sl_sgd_attrs(&launch->attrs)->stochastic != 0,
                                         sl_sgd_attrs(&launch->attrs)->stream, 0};
    if (sl_gate_skips(gate))
        return;
    sl_sgd_scalars s = sl_sgd_prepare(&launch->attrs, launch->in[1].data, gate);
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++) {
        float p = sl_update_get_parameter(launch, master, i), b = sl_get(&launch->out[1], i);
        float decay = i < sl_sgd_attrs(&launch->attrs)->decayed ? s.weight_decay : 0;
        sl_sgd_element(&s, decay, sl_get(&launch->in[0], i), &p, &b);
        sl_update_put(launch, rounding, 1, i, b);
        sl_update_put_parameter(launch, rounding, master, i, p);
    }
}

#define ATTRS(n, n_decayed, is_stochastic)                                                             \
    .attrs = SL_ATTRS(sgd, .momentum = 0.9f, .weight_decay = 0.01f, .decayed = n_decayed, .stream = 3, \
                      .stochastic = is_stochastic)
static const sl_op_case sgd_cases[] = {SL_UPDATE_CASES(ATTRS)};
#undef ATTRS

static void sgd_clear_stream(sl_attrs *attrs)
{
    sl_sgd_set(attrs)->stream = 0;
}

static void sgd_shorten(sl_attrs *attrs, int64_t count)
{
    sl_sgd_set(attrs)->decayed = SL_MIN(sl_sgd_attrs(attrs)->decayed, count);
}

static sl_status sgd_shapes(sl_op_shapes *shapes)
{
    for (int master = 0; master < (shapes->dtype == SL_BF16 ? 2 : 1); master++)
        SL_TRY(sl_update_shapes(shapes, master,
                                SL_ATTRS(sgd, .momentum = 0.9f, .weight_decay = 0.1f, .decayed = shapes->sizes.p,
                                         .stochastic = shapes->dtype == SL_BF16 && !master)));
    return SL_OK;
}

const sl_op_def sl_op_sgd = {
    SL_OP_PARTS(sgd),
    SL_UPDATE_PARTS(1),
    .attrs_bytes = sizeof(struct sl_sgd_attrs),
    .work = sl_work_bytes,
    .tolerance = {0, 0}, /* bit for bit */
    .clear_stream = sgd_clear_stream,
    .linear = true,
    .shorten = sgd_shorten,
    .shapes = sgd_shapes,
};

static void set_attrs(const sl_update *update, sl_attrs *attrs)
{
    *sl_sgd_set(attrs) =
        *SL_ATTRS(sgd, .momentum = update->options[0], .weight_decay = update->weight_decay, .decayed = update->decayed,
                  .stream = update->stream, .stochastic = update->stochastic);
}

const sl_optimizer_def sl_optimizer_sgd = {
    .name = "sgd",
    .help = "SGD with momentum",
    .op = SL_OP_SGD,
    .n_states = 1,
    .n_options = 1,
    .options = {SL_OPTION_MOMENTUM("0.9")},
    .set_attrs = set_attrs,
};
