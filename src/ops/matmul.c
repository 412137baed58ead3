/*
 * Matrix multiply, the op that takes most of the time:  C = op(A) op(B) + bias + residual,  C[M,N], inner dimension K.
 * op(X) is X or, where attrs say so, its transpose. bias[N] is added to every row, residual[M,N] elementwise; both before
 * the one rounding of the result.
 *
 * A linear layer y = x W^T with W[out,in] is trans_b = 1. The gradient is two more matrix multiplies:
 *     d op(A) = dC op(B)^T        d op(B) = op(A)^T dC
 * and a transposed operand uses the transpose of its equation, so no matrix is ever transposed in memory.
 */
#include "ops/matmul.h"
#include "ops/common.h"
#include "ops/shapes.h"

typedef struct matmul_dims {
    int64_t m, n, k;
} matmul_dims;

static matmul_dims dims_of(const sl_attrs *attrs, const sl_type *a, const sl_type *b)
{
    matmul_dims dims = {a->dim[sl_matmul_attrs(attrs)->trans_a ? 1 : 0],
                        b->dim[sl_matmul_attrs(attrs)->trans_b ? 0 : 1],
                        a->dim[sl_matmul_attrs(attrs)->trans_a ? 0 : 1]};
    return dims;
}

static sl_status matmul_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("matmul", "A", &in[0], 2));
    SL_TRY(sl_expect_float("matmul", "B", &in[1], 2));
    matmul_dims dims = dims_of(attrs, &in[0], &in[1]);
    sl_type b = sl_matmul_attrs(attrs)->trans_b ? sl_type_2d(in[0].dtype, dims.n, dims.k)
                                                : sl_type_2d(in[0].dtype, dims.k, dims.n);
    sl_type c = sl_type_2d(in[0].dtype, dims.m, dims.n);
    SL_TRY(sl_expect("matmul", "B", &in[1], b));
    if (in[2].rank)
        SL_TRY(sl_expect("matmul", "bias", &in[2], sl_type_1d(in[0].dtype, dims.n)));
    if (in[3].rank)
        SL_TRY(sl_expect("matmul", "residual", &in[3], c));
    out[0] = c;
    return SL_OK;
}

static void matmul_work(const sl_launch *launch, sl_work *work)
{
    matmul_dims dims = dims_of(&launch->attrs, &launch->in[0].type, &launch->in[1].type);
    sl_work_flops(launch, 2.0 * (double) dims.m * (double) dims.n * (double) dims.k, work);
}

static void matmul_reference(const sl_launch *launch)
{
    const sl_operand *a = &launch->in[0], *b = &launch->in[1], *bias = &launch->in[2], *residual = &launch->in[3];
    bool trans_a = sl_matmul_attrs(&launch->attrs)->trans_a, trans_b = sl_matmul_attrs(&launch->attrs)->trans_b;
    matmul_dims dims = dims_of(&launch->attrs, &a->type, &b->type);
    for (int64_t i = 0; i < dims.m; i++)
        for (int64_t j = 0; j < dims.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < dims.k; k++)
                sum += (double) sl_get(a, trans_a ? k * dims.m + i : i * dims.k + k) *
                       sl_get(b, trans_b ? j * dims.k + k : k * dims.n + j);
            if (sl_present(bias))
                sum += sl_get(bias, j);
            if (sl_present(residual))
                sum += sl_get(residual, i * dims.n + j);
            sl_put_out(launch, 0, i * dims.n + j, sum);
        }
}

static sl_status emit_matmul(sl_gradient *gradient, sl_value a, sl_value b, int32_t trans_a, int32_t trans_b,
                             int target)
{
    sl_attrs attrs = {0};
    sl_matmul_set(&attrs)->trans_a = trans_a;
    sl_matmul_set(&attrs)->trans_b = trans_b;
    return gradient->emit(gradient, SL_OP_MATMUL, &attrs, (const sl_value[]){a, b}, 2, &target, 1);
}

static sl_status matmul_gradient(sl_gradient *gradient)
{
    int32_t trans_a = sl_matmul_attrs(gradient->attrs)->trans_a, trans_b = sl_matmul_attrs(gradient->attrs)->trans_b;
    sl_value a = gradient->in[0], b = gradient->in[1], dc = gradient->d_out[0];
    if (dc == SL_NO_VALUE)
        return SL_OK;
    if (gradient->need[0] && !trans_a)
        SL_TRY(emit_matmul(gradient, dc, b, 0, !trans_b, 0));
    if (gradient->need[0] && trans_a)
        SL_TRY(emit_matmul(gradient, b, dc, trans_b, 1, 0));
    if (gradient->need[1] && !trans_b)
        SL_TRY(emit_matmul(gradient, a, dc, !trans_a, 0, 1));
    if (gradient->need[1] && trans_b)
        SL_TRY(emit_matmul(gradient, dc, a, 1, trans_a, 1));
    if (gradient->in[2] != SL_NO_VALUE && gradient->need[2])
        SL_TRY(gradient->emit(gradient, SL_OP_BIAS_GRAD, &(const sl_attrs){0}, &dc, 1, (const int[]){2}, 1));
    if (gradient->in[3] != SL_NO_VALUE && gradient->need[3])
        SL_TRY(gradient->pass(gradient, 3, dc));
    return SL_OK;
}

/* Sizes: a single element, tails of every tile size in use, and shapes beyond the blocks of rows, columns and depth. */
#define NN(t, m, n, k) SL_T2(t, m, k), SL_T2(t, k, n)
#define NT(t, m, n, k) SL_T2(t, m, k), SL_T2(t, n, k)
#define TN(t, m, n, k) SL_T2(t, k, m), SL_T2(t, k, n)
#define TT(t, m, n, k) SL_T2(t, k, m), SL_T2(t, n, k)
#define BOTH(t, label)                                                                                                \
    {.name = label " one element", .in = {NN(t, 1, 1, 1)}}, {.name = label " nn", .in = {NN(t, 37, 53, 29)}},         \
        {.name = label " nt", .in = {NT(t, 37, 53, 29)}, .attrs = SL_ATTRS(matmul, 0, 1)},                            \
        {.name = label " tn", .in = {TN(t, 37, 53, 29)}, .attrs = SL_ATTRS(matmul, 1, 0)},                            \
        {.name = label " tt", .in = {TT(t, 37, 53, 29)}, .attrs = SL_ATTRS(matmul, 1, 1)},                            \
        {.name = label " nt accumulate",                                                                              \
         .in = {NT(t, 65, 130, 48)},                                                                                  \
         .attrs = SL_ATTRS(matmul, 0, 1),                                                                             \
         .accumulate = 1},                                                                                            \
        {.name = label " tn accumulate",                                                                              \
         .in = {TN(t, 65, 130, 48)},                                                                                  \
         .attrs = SL_ATTRS(matmul, 1, 0),                                                                             \
         .accumulate = 1},                                                                                            \
        {.name = label " nt bias", .in = {NT(t, 19, 71, 33), SL_T1(t, 71)}, .attrs = SL_ATTRS(matmul, 0, 1)},         \
        {.name = label " nt residual",                                                                                \
         .in = {NT(t, 64, 96, 32), {t, 0, {0}}, SL_T2(t, 64, 96)},                                                    \
         .attrs = SL_ATTRS(matmul, 0, 1)},                                                                            \
        {.name = label " nn bias residual accumulate",                                                                \
         .in = {NN(t, 33, 47, 40), SL_T1(t, 47), SL_T2(t, 33, 47)},                                                   \
         .accumulate = 1},                                                                                            \
        {.name = label " one row", .in = {NT(t, 1, 200, 128)}, .attrs = SL_ATTRS(matmul, 0, 1)},                      \
        {.name = label " one column", .in = {NN(t, 100, 1, 130)}},                                                    \
        {.name = label " shallow", .in = {TN(t, 70, 66, 1)}, .attrs = SL_ATTRS(matmul, 1, 0)},                        \
        {.name = label " nt deep", .in = {NT(t, 50, 34, 1537)}, .attrs = SL_ATTRS(matmul, 0, 1)},                     \
        {.name = label " nn tall", .in = {NN(t, 517, 66, 70)}},                                                       \
        {.name = label " nt wide", .in = {NT(t, 31, 1061, 70)}, .attrs = SL_ATTRS(matmul, 0, 1)},                     \
        {.name = label " tn blocks", .in = {TN(t, 193, 289, 385)}, .attrs = SL_ATTRS(matmul, 1, 0), .accumulate = 1}, \
        {.name = label " one row odd", .in = {NT(t, 1, 71, 33)}, .attrs = SL_ATTRS(matmul, 0, 1), .accumulate = 1},   \
        {.name = label " one row bias residual",                                                                      \
         .in = {NT(t, 1, 130, 2056), SL_T1(t, 130), SL_T2(t, 1, 130)},                                                \
         .attrs = SL_ATTRS(matmul, 0, 1)},                                                                            \
    {                                                                                                                 \
        .name = label " tt blocks", .in = {TT(t, 193, 161, 289)}, .attrs = SL_ATTRS(matmul, 1, 1)                     \
    }

static const sl_op_case matmul_cases[] = {BOTH(SL_F32, "f32"), BOTH(SL_BF16, "bf16")};
#undef NN
#undef NT
#undef TN
#undef TT
#undef BOTH

static sl_status matmul_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_op_case x_w = {.in = {sl_shapes_wide(shapes), sl_shapes_matrix(shapes, 2 * s->f, s->d)},
                            .attrs = SL_ATTRS(matmul, .trans_b = 1)};
    const sl_op_case dy_w = {.in = {sl_shapes_hidden(shapes), sl_shapes_matrix(shapes, s->f, s->d)}};
    const sl_op_case dy_x = {.in = {sl_shapes_hidden(shapes), sl_shapes_wide(shapes)},
                             .attrs = SL_ATTRS(matmul, .trans_a = 1),
                             .accumulate = 1};
    SL_TRY(sl_shapes_add(shapes, "x W^T", &x_w));
    SL_TRY(sl_shapes_add(shapes, "dy W", &dy_w));
    return sl_shapes_add(shapes, "dy^T x, added", &dy_x);
}

const sl_op_def sl_op_matmul = {
    SL_OP_PARTS(matmul),
    .category = SL_CAT_DOT_PRODUCT,
    .n_in = 4,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_matmul_attrs),
    .optional_in = 1u << 2 | 1u << 3,
    .can_accumulate = 1,
    .work = matmul_work,
    .gradient = matmul_gradient,
    .maps_in = 1u << 1,
    .adds_in = 3,
    .tolerance = {5e-6, SL_BF16_ULP},
    .any_values = true,
    .representative = true,
    .shapes = matmul_shapes,
};

/* The gradient of a bias: column sums. */

static sl_status bias_grad_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("bias_grad", "dy", &in[0], 2));
    out[0] = sl_type_1d(in[0].dtype, in[0].dim[1]);
    return SL_OK;
}

static void bias_grad_reference(const sl_launch *launch)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    for (int64_t c = 0; c < d; c++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += sl_get(&launch->in[0], i * d + c);
        sl_put_out(launch, 0, c, sum);
    }
}

static const sl_op_case bias_grad_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 37, 65)}},
    {.name = "f32 accumulate", .in = {SL_T2(SL_F32, 530, 100)}, .accumulate = 1},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 1)}},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 37, 65)}},
    {.name = "bf16 accumulate", .in = {SL_T2(SL_BF16, 530, 768)}, .accumulate = 1},
};

const sl_op_def sl_op_bias_grad = {
    SL_OP_PARTS(bias_grad),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 1,
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .estimate_workspace = sl_estimate_column_sums,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .role = SL_ROLE_COLUMN_SUMS,
    .shapes = sl_shapes_unary,
};
