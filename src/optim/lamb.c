/*
 * LAMB (You et al., 2020): AdamW's direction, scaled for each tensor so that its step is a fixed share of the tensor's own norm.
 *     m = b1 m + (1-b1) g     v = b2 v + (1-b2) g^2     u = (m/bias1) / (sqrt(v/bias2) + eps) + wd p
 *     p = p - lr * |p|/|u| * u          without weight decay, or where a norm is zero:  p = p - lr * u
 * Apex's FusedLAMB also divides the gradient by max(1, |all gradients| / max_grad_norm), which here is --clip.
 *
 * The norms are of whole tensors, so every element is computed twice: once for the norms and once to be stored. Keeping u between the
 * passes would take as many bytes of workspace as a parameter in f32. The sums follow ops/reduce.h.
 */
#include "optim/lamb.h"

#include "ops/reduce.h"
#include "optim/update.h"

static sl_status lamb_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_lamb_attrs *a = sl_lamb_attrs(attrs);
    SL_TRY(sl_update_operands("lamb", in, out, 2));
    const int last = a->tensors - 1;
    const int64_t end =
        last < 0 || last >= SL_MAX_UPDATE_TENSORS ? -1 : sl_lamb_first(a, in[0].dtype, last) + (int64_t) a->count[last];
    if (end != in[0].dim[0])
        return sl_fail(SL_E_INTERNAL, "lamb: %d tensors end at element %lld of %lld", a->tensors, (long long) end,
                       (long long) in[0].dim[0]);
    return SL_OK;
}

/* One tensor of a launch. */
typedef struct lamb_tensor {
    const sl_launch *launch;
    const sl_operand *parameter; /* the master where there is one */
    sl_lamb_scalars s;
    int64_t first, count;
} lamb_tensor;

static float element(const lamb_tensor *t, int64_t i, float *p, float *m, float *v)
{
    i += t->first;
    *p = sl_get(t->parameter, i), *m = sl_get(&t->launch->out[1], i), *v = sl_get(&t->launch->out[2], i);
    return sl_lamb_element(&t->s, sl_get(&t->launch->in[0], i), *p, m, v);
}

static float rate(const lamb_tensor *t)
{
    sl_sum_tree tree[2] = {{.blocks = 0}};
    for (int64_t first = 0; first < t->count; first += SL_SUM_BLOCK) {
        float lane[2][SL_SUM_LANES] = {{0}}, p, m, v;
        for (int64_t i = first; i < SL_MIN(first + SL_SUM_BLOCK, t->count); i++) {
            float u = element(t, i, &p, &m, &v), *sum = &lane[0][i % SL_SUM_LANES];
            *sum = fmaf(p, p, *sum);
            sum += SL_SUM_LANES;
            *sum = fmaf(u, u, *sum);
        }
        for (int k = 0; k < 2; k++)
            sl_sum_tree_add(&tree[k], sl_sum_fold(lane[k]));
    }
    return sl_lamb_rate(&t->s, sl_sum_tree_end(&tree[0]), sl_sum_tree_end(&tree[1]));
}

static void lamb_reference(const sl_launch *launch)
{
    const struct sl_lamb_attrs *a = sl_lamb_attrs(&launch->attrs);
    const sl_operand *master = &launch->out[3];
    const float *gate = launch->in[2].data;
    if (sl_gate_skips(gate))
        return;
    for (int k = 0; k < a->tensors; k++) {
        const lamb_tensor t = {.launch = launch,
                               .parameter = sl_present(master) ? master : &launch->out[0],
                               .s = sl_lamb_prepare(&launch->attrs, k, launch->in[1].data, gate),
                               .first = sl_lamb_first(a, launch->in[0].type.dtype, k),
                               .count = (int64_t) a->count[k]};
        const sl_update_rounding rounding = {a->stochastic != 0, a->stream + (uint64_t) k, t.first};
        const float step = rate(&t);
        for (int64_t i = 0; i < t.count && !isnan(step); i++) {
            float p, m, v, u = element(&t, i, &p, &m, &v);
            sl_update_put(launch, rounding, 1, t.first + i, m);
            sl_update_put(launch, rounding, 2, t.first + i, v);
            sl_update_put_parameter(launch, rounding, master, t.first + i, fmaf(-step, u, p));
        }
    }
}

/* A span of three tensors where there is space for them: what is in between belongs to none. */
#define ATTRS(is_stochastic, ...)                                                                             \
    .attrs = SL_ATTRS(lamb, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.05f, .stream = 7, \
                      .stochastic = is_stochastic, .decayed = 5, __VA_ARGS__)
#define ONE(n, n_decayed, is_stochastic) ATTRS(is_stochastic, .tensors = 1, .count = {n})
static const sl_op_case lamb_cases[] = {
    SL_UPDATE_CASES(ONE),
    {.name = "f32 three tensors",
     .in = {SL_T1(SL_F32, 64 + 9000), SL_STEP_TYPE, SL_UPDATE_GATE},
     ATTRS(0, .tensors = 3, .count = {3, 8192, 808})},
    {.name = "f32 eight tensors",
     .in = {SL_T1(SL_F32, 7 * 128 + 1), SL_STEP_TYPE},
     ATTRS(0, .tensors = 8, .count = {65, 66, 67, 68, 69, 70, 128, 1})},
    {.name = "f32 many blocks",
     .in = {SL_T1(SL_F32, 70 * SL_SUM_BLOCK + 5), SL_STEP_TYPE},
     ONE(70 * SL_SUM_BLOCK + 5, 1, 0)},
    {.name = "bf16 three tensors, one of them not decayed",
     .in = {SL_T1(SL_BF16, 5120 + 4096 + 777), SL_STEP_TYPE},
     ATTRS(1, .tensors = 3, .count = {5000, 4096, 777})},
    {.name = "bf16 three tensors, the second of them finite",
     .in = {SL_T1(SL_BF16, 384 + 70), SL_STEP_TYPE},
     ATTRS(1, .tensors = 3, .count = {200, 4, 70}),
     .not_finite = true},
    {.name = "bf16 master, three tensors",
     .in = {SL_T1(SL_BF16, 5120 + 4096 + 777), SL_STEP_TYPE},
     ATTRS(0, .tensors = 3, .count = {5000, 4096, 777}),
     .optional_out = true},
};

static void lamb_clear_stream(sl_attrs *attrs)
{
    sl_lamb_set(attrs)->stream = 0;
}

/* Gradient, parameter and moments once more, for the norms. */
static void lamb_work(const sl_launch *launch, sl_work *work)
{
    sl_work_bytes(launch, work);
    work->read_bytes *= 2;
}

static sl_status lamb_shapes(sl_op_shapes *shapes)
{
    for (int master = 0; master < (shapes->dtype == SL_BF16 ? 2 : 1); master++)
        SL_TRY(sl_update_shapes(shapes, master,
                                SL_ATTRS(lamb, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.05f,
                                         .tensors = 1, .decayed = 1, .count = {(uint32_t) shapes->sizes.p},
                                         .stochastic = shapes->dtype == SL_BF16 && !master)));
    return SL_OK;
}

/* Two sums for each block of elements. */
static size_t lamb_estimate(const sl_launch *launch)
{
    return (size_t) (sl_type_count(&launch->in[0].type) / SL_SUM_BLOCK + 2 * SL_MAX_UPDATE_TENSORS) * 4 * sizeof(float);
}

const sl_op_def sl_op_lamb = {
    SL_OP_PARTS(lamb),
    SL_UPDATE_PARTS(2),
    .attrs_bytes = sizeof(struct sl_lamb_attrs),
    .work = lamb_work,
    .estimate_workspace = lamb_estimate,
    .tolerance = {0, 0},
    .clear_stream = lamb_clear_stream,
    .shapes = lamb_shapes,
};

enum { BETA1, BETA2, EPS };

static void set_attrs(const sl_update *update, sl_attrs *attrs)
{
    struct sl_lamb_attrs *a = sl_lamb_set(attrs);
    *a = *SL_ATTRS(lamb, .beta1 = update->options[BETA1], .beta2 = update->options[BETA2], .eps = update->options[EPS],
                   .weight_decay = update->weight_decay, .stream = update->stream, .stochastic = update->stochastic,
                   .tensors = (uint8_t) update->n_tensors, .corrections = (uint8_t) update->corrections);
    for (int k = 0; k < update->n_tensors; k++) {
        a->count[k] = (uint32_t) (update->tensors[k].rows * update->tensors[k].columns);
        a->decayed |= (uint8_t) (update->tensors[k].decayed << k);
    }
}

const sl_optimizer_def sl_optimizer_lamb = {
    .name = "lamb",
    .help = "LAMB (AdamW's direction with a trust ratio per tensor; usual with --clip 1)",
    .op = SL_OP_LAMB,
    .granularity = SL_UPDATE_TENSOR,
    .n_states = 2,
    .n_options = 3,
    .options = {[BETA1] = SL_OPTION_BETA1("0.9"), [BETA2] = SL_OPTION_BETA2("0.999"), [EPS] = SL_OPTION_EPS("1e-6")},
    .set_attrs = set_attrs,
    .correct = sl_moments_correct,
};
