/*
 * AdamW (Loshchilov and Hutter, 2019), as PyTorch computes it: decoupled weight decay, bias-corrected moments.
 *     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2     p = p (1 - lr wd) - lr/bias1 * m / (sqrt(v)/sqrt(bias2) + eps)
 * The exact operations, and why they are bit-equal everywhere, are in optim/element.h. sqrt(v) is multiplied by 1/sqrt(bias2)
 * inside one fma rather than divided: it saves a division per element and a rounding.
 *
 * With bf16 moments and beta2 = .999, rounding to nearest freezes v (a change of .1 % is under half an ulp): hence stochastic
 * rounding, whose noise is drawn by the element's place.
 */
#include "ops/shapes.h"
#include "optim/element.h"
#include "optim/update.h"

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

#define ATTRS(n, n_decayed, is_stochastic)                                                                             \
    .attrs = SL_ATTRS(adamw, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f, .decayed = n_decayed, \
                      .stream = 7, .stochastic = is_stochastic)
static const sl_op_case adamw_cases[] = {SL_UPDATE_CASES(ATTRS)};
#undef ATTRS

static void adamw_clear_stream(sl_attrs *attrs)
{
    sl_adamw_set(attrs)->stream = 0;
}

static void adamw_shorten(sl_attrs *attrs, int64_t count)
{
    sl_adamw_set(attrs)->decayed = SL_MIN(sl_adamw_attrs(attrs)->decayed, count);
}

static sl_status adamw_shapes(sl_op_shapes *shapes)
{
    for (int master = 0; master < (shapes->dtype == SL_BF16 ? 2 : 1); master++)
        SL_TRY(
            sl_update_shapes(shapes, master,
                             SL_ATTRS(adamw, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f,
                                      .decayed = shapes->sizes.p, .stochastic = shapes->dtype == SL_BF16 && !master)));
    return SL_OK;
}

const sl_op_def sl_op_adamw = {
    SL_OP_PARTS(adamw),
    SL_UPDATE_PARTS(2),
    .attrs_bytes = sizeof(struct sl_adamw_attrs),
    .work = sl_work_bytes,
    .tolerance = {0, 0}, /* bit for bit */
    .clear_stream = adamw_clear_stream,
    .linear = true,
    .shorten = adamw_shorten,
    .shapes = adamw_shapes,
};

enum { BETA1, BETA2, EPS };

static void set_attrs(const sl_update *update, sl_attrs *attrs)
{
    *sl_adamw_set(attrs) =
        *SL_ATTRS(adamw, .beta1 = update->options[BETA1], .beta2 = update->options[BETA2], .eps = update->options[EPS],
                  .weight_decay = update->weight_decay, .decayed = update->decayed, .stream = update->stream,
                  .stochastic = update->stochastic, .corrections = update->corrections);
}

const sl_optimizer_def sl_optimizer_adamw = {
    .name = "adamw",
    .help = "AdamW (decoupled weight decay)",
    .op = SL_OP_ADAMW,
    .n_states = 2,
    .n_options = 3,
    .options = {[BETA1] = SL_OPTION_BETA1("0.9"), [BETA2] = SL_OPTION_BETA2("0.95"), [EPS] = SL_OPTION_EPS("1e-8")},
    .set_attrs = set_attrs,
    .correct = sl_moments_correct,
};
