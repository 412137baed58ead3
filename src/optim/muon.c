/*
 * Muon (Jordan et al., 2024), as torch.optim.Muon computes it with "match_rms_adamw": the update is the momentum's nearest
 * semi-orthogonal matrix, found by five Newton-Schulz iterations of a polynomial of fifth degree, with the root mean square that
 * AdamW's updates have. So learning rate and weight decay are AdamW's, which updates embeddings, head and vectors. One state instead
 * of two. The exact operations are in optim/muon.h.
 *
 * An iteration is three matrix products, 4 S^2 L + 2 S^3 flops for sides S <= L, so the update is a GEMM like others: its bits are the
 * device's own. In f32 everything is f32; PyTorch iterates in bf16 always.
 */
#include "optim/muon.h"

#include "ops/reduce.h"
#include "optim/update.h"

static sl_status muon_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(attrs);
    SL_TRY(sl_update_operands("muon", in, out, 1));
    if (a->rows < 1 || a->columns < 1 || a->matrices < 1 || a->rows * a->columns * a->matrices != in[0].dim[0])
        return sl_fail(SL_E_INTERNAL, "muon: %lld matrices of %lld x %lld are not %lld elements",
                       (long long) a->matrices, (long long) a->rows, (long long) a->columns, (long long) in[0].dim[0]);
    return SL_OK;
}

/* ---- reference ---- */

/* c [m,n] = alpha * op(a) op(b) + beta * d, sums in f64, rounded once. */
typedef struct operand {
    const float *data;
    int64_t stride;
    bool transposed;
} operand;

static void product(int64_t m, int64_t n, int64_t k, operand a, operand b, float alpha, float beta, const float *d,
                    float *c, bool round)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double) a.data[a.transposed ? l * a.stride + i : i * a.stride + l] *
                       (double) b.data[b.transposed ? j * b.stride + l : l * b.stride + j];
            float value = (float) ((double) alpha * sum + (beta != 0 ? (double) beta * (double) d[i * n + j] : 0));
            c[i * n + j] = round ? sl_bf16_to_f32(sl_f32_to_bf16(value)) : value;
        }
}

static void orthogonalize(int64_t rows, int64_t columns, float *x, float *work, bool round)
{
    const bool wide = rows <= columns;
    const int64_t s = wide ? rows : columns, count = rows * columns;
    float *a = work, *b = a + s * s, *y = b + s * s;
    const operand all = {x, columns, false}, turned = {x, columns, true}, gram = {a, s, false}, poly = {b, s, false};
    for (int i = 0; i < SL_MUON_ITERATIONS; i++) {
        product(s, s, wide ? columns : rows, wide ? all : turned, wide ? turned : all, 1, 0, NULL, a, round);
        product(s, s, s, gram, gram, SL_MUON_C, SL_MUON_B, a, b, round);
        product(rows, columns, s, wide ? poly : all, wide ? all : poly, 1, SL_MUON_A, x, y, round);
        memcpy(x, y, (size_t) count * sizeof *x);
    }
}

static void update_matrix(const sl_launch *launch, const sl_muon_scalars *s, int64_t first)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(&launch->attrs);
    const sl_operand *g = &launch->in[0], *momentum = &launch->out[1], *master = &launch->out[2];
    const bool round = g->type.dtype == SL_BF16;
    const int64_t n = a->rows * a->columns;
    float *x = launch->workspace;
    sl_sum_tree tree = {0};
    for (int64_t block = 0; block < n; block += SL_SUM_BLOCK) {
        float lane[SL_SUM_LANES] = {0};
        for (int64_t i = block; i < SL_MIN(block + SL_SUM_BLOCK, n); i++) {
            float m = sl_get(momentum, first + i), *sum = &lane[i % SL_SUM_LANES];
            x[i] = sl_muon_element(s, sl_get(g, first + i), &m);
            *sum = fmaf(x[i], x[i], *sum);
        }
        sl_sum_tree_add(&tree, sl_sum_fold(lane));
    }
    const float scale = sl_muon_normalize(sl_sum_tree_end(&tree));
    const sl_update_rounding rounding = {a->stochastic != 0, a->stream, 0};
    if (isnan(scale))
        return;
    for (int64_t i = 0; i < n; i++) {
        float m = sl_get(momentum, first + i);
        sl_muon_element(s, sl_get(g, first + i), &m);
        sl_update_put(launch, rounding, 1, first + i, m);
        x[i] = round ? sl_bf16_to_f32(sl_f32_to_bf16(x[i] * scale)) : x[i] * scale;
    }
    orthogonalize(a->rows, a->columns, x, x + n, round);
    for (int64_t i = 0; i < n; i++) {
        float p = sl_update_get_parameter(launch, master, first + i);
        sl_update_put_parameter(launch, rounding, master, first + i, fmaf(-s->rate, x[i], p * s->decay));
    }
}

static void muon_reference(const sl_launch *launch)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(&launch->attrs);
    const float *gate = launch->in[2].data;
    const sl_muon_scalars s = sl_muon_prepare(&launch->attrs, launch->in[1].data, gate);
    for (int64_t k = 0; k < a->matrices && !sl_gate_skips(gate); k++)
        update_matrix(launch, &s, k * a->rows * a->columns);
}

static size_t muon_workspace(const sl_launch *launch)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(&launch->attrs);
    const int64_t s = SL_MIN(a->rows, a->columns);
    return (size_t) (2 * a->rows * a->columns + 2 * s * s) * sizeof(float);
}

/* X twice, A and B, for all matrices, and the library's share. */
static size_t muon_estimate(const sl_launch *launch)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(&launch->attrs);
    const int64_t s = SL_MIN(a->rows, a->columns);
    return (size_t) a->matrices * (size_t) (a->rows * a->columns + s * s) * 2 *
               sl_dtype_bytes(launch->in[0].type.dtype) +
           ((size_t) 33 << 20);
}

/* ---- cases ---- */

/* With scales at which the update is as large as the parameter, so that an error of one shows in the other. */
#define CASE(dtype, r, c, n, is_stochastic)                                                                 \
    .in = {SL_T1(dtype, (r) * (c) * (n)), SL_STEP_TYPE},                                                    \
    .attrs = SL_ATTRS(muon, .momentum = 0.95f, .weight_decay = 0.1f, .scale = 500, .rows = r, .columns = c, \
                      .matrices = n, .stream = 7, .stochastic = is_stochastic)
#define GATED(dtype, r, c, n, is_stochastic)                                                             \
    .in = {SL_T1(dtype, (r) * (c) * (n)), SL_STEP_TYPE, SL_UPDATE_GATE},                                 \
    .attrs = SL_ATTRS(muon, .momentum = 0.9f, .weight_decay = 0, .scale = 1000, .rows = r, .columns = c, \
                      .matrices = n, .stream = 3, .stochastic = is_stochastic)
static const sl_op_case muon_cases[] = {
    {.name = "f32 square", CASE(SL_F32, 64, 64, 1, 0)},
    {.name = "f32 wide, gate", GATED(SL_F32, 48, 130, 1, 0)},
    {.name = "f32 tall, three", CASE(SL_F32, 80, 24, 3, 0)},
    {.name = "f32 one row", CASE(SL_F32, 1, 100, 1, 0)},
    {.name = "f32 one element", CASE(SL_F32, 1, 1, 2, 0)},
    {.name = "f32 skip", GATED(SL_F32, 16, 16, 1, 0), .not_finite = true},
    {.name = "f32, gradients that are not finite", CASE(SL_F32, 16, 24, 2, 0), .not_finite = true},
    {.name = "bf16 square, stochastic", CASE(SL_BF16, 96, 96, 2, 1)},
    {.name = "bf16 wide, nearest", CASE(SL_BF16, 64, 200, 1, 0)},
    {.name = "bf16 tall, gate, stochastic", GATED(SL_BF16, 192, 64, 1, 1)},
    {.name = "bf16 odd", CASE(SL_BF16, 37, 51, 2, 1)},
    {.name = "bf16, gradients that are not finite", CASE(SL_BF16, 32, 32, 2, 1), .not_finite = true},
    {.name = "bf16, every other matrix finite", CASE(SL_BF16, 2, 3, 4, 1), .not_finite = true},
    {.name = "bf16 master, two", CASE(SL_BF16, 64, 96, 2, 0), .optional_out = true},
};

static void muon_clear_stream(sl_attrs *attrs)
{
    sl_muon_set(attrs)->stream = 0;
}

static void muon_work(const sl_launch *launch, sl_work *work)
{
    const struct sl_muon_attrs *a = sl_muon_attrs(&launch->attrs);
    const double s = (double) SL_MIN(a->rows, a->columns), l = (double) SL_MAX(a->rows, a->columns);
    sl_work_flops(launch, (double) a->matrices * SL_MUON_ITERATIONS * (4 * s * s * l + 2 * s * s * s), work);
    work->flops = 0; /* none of the model's */
}

static sl_status muon_shapes(sl_op_shapes *shapes)
{
    const int64_t d = shapes->sizes.d, f = shapes->sizes.f;
    const struct sl_muon_attrs attrs = {
        .momentum = 0.95f, .scale = 1, .rows = f, .columns = d, .matrices = 1, .stochastic = shapes->dtype == SL_BF16};
    return sl_shapes_add(shapes, "",
                         &(const sl_op_case){.in = {sl_type_1d(shapes->dtype, f * d), SL_STEP_TYPE}, .attrs = &attrs});
}

const sl_op_def sl_op_muon = {
    SL_OP_PARTS(muon),
    SL_UPDATE_PARTS(1),
    .attrs_bytes = sizeof(struct sl_muon_attrs),
    .work = muon_work,
    .workspace = muon_workspace,
    .estimate_workspace = muon_estimate,
    .tolerance = {1e-5, 2e-2},
    .narrow_inside = true, /* X, A and B in bf16 */
    .clear_stream = muon_clear_stream,
    .shapes = muon_shapes,
};

enum { MOMENTUM, SCALE };

static void set_attrs(const sl_update *update, sl_attrs *attrs)
{
    *sl_muon_set(attrs) =
        *SL_ATTRS(muon, .momentum = update->options[MOMENTUM], .scale = update->options[SCALE],
                  .weight_decay = update->tensors[0].decayed ? update->weight_decay : 0,
                  .rows = update->tensors[0].rows, .columns = update->tensors[0].columns, .matrices = update->n_tensors,
                  .stream = update->stream, .stochastic = update->stochastic);
}

const sl_optimizer_def sl_optimizer_muon = {
    .name = "muon",
    .help = "Muon for weight matrices inside the layers with AdamW for embeddings, head and vectors",
    .op = SL_OP_MUON,
    .granularity = SL_UPDATE_MATRIX,
    .others = SL_OPTIMIZER_ADAMW,
    .device_only = true,
    .n_states = 1,
    .n_options = 2,
    .options = {[MOMENTUM] = SL_OPTION_MOMENTUM("0.95"),
                [SCALE] = {"muon-scale", "1", 1e-6, 1e6, "learning-rate scale",
                           "Learning rate of Muon as a multiple of --lr."}},
    .set_attrs = set_attrs,
};
