/*
 * GELU.   exact: y = x * Phi(x),  Phi(x) = (1 + erf(x / sqrt 2)) / 2,   dy/dx = Phi(x) + x * phi(x)
 *         tanh (GPT-2's "gelu_new"): y = x (1 + tanh u) / 2,  u = sqrt(2/pi) (x + .044715 x^3)
 */
#include <math.h>

#include "ops/common.h"
#include "ops/gelu.h"
#include "ops/shapes.h"

#define SQRT_HALF 0.7071067811865476
#define SQRT_2_BY_PI 0.7978845608028654
#define INV_SQRT_2PI 0.3989422804014327

static sl_status gelu_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("gelu", "x", &in[0], 0));
    out[0] = in[0];
    return SL_OK;
}

static void gelu_reference(const sl_launch *launch)
{
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++) {
        double x = sl_get(&launch->in[0], i);
        double cdf = sl_gelu_attrs(&launch->attrs)->tanh ? 0.5 * (1 + tanh(SQRT_2_BY_PI * (x + 0.044715 * x * x * x)))
                                                         : 0.5 * (1 + erf(x * SQRT_HALF));
        sl_put_out(launch, 0, i, x * cdf);
    }
}

static sl_status gelu_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[0]};
    return sl_gradient_emit(gradient, SL_OP_GELU_BWD, gradient->attrs, in, 2, 1);
}

#define TANH .attrs = SL_ATTRS(gelu, .tanh = 1)
static const sl_op_case gelu_cases[] = {
    {.name = "f32 exact", .in = {SL_T2(SL_F32, 5, 64)}},
    {.name = "f32 exact, tail", .in = {SL_T2(SL_F32, 7, 37)}},
    {.name = "f32 tanh", .in = {SL_T2(SL_F32, 5, 64)}, TANH},
    {.name = "f32 tanh, one element", .in = {SL_T2(SL_F32, 1, 1)}, TANH},
    {.name = "bf16 exact", .in = {SL_T2(SL_BF16, 33, 512)}},
    {.name = "bf16 tanh, tail", .in = {SL_T2(SL_BF16, 7, 333)}, TANH},
};

static sl_status gelu_shapes(sl_op_shapes *shapes)
{
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {sl_shapes_hidden(shapes)}});
}

const sl_op_def sl_op_gelu = {
    SL_OP_PARTS(gelu),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_gelu_attrs),
    .work = sl_work_bytes,
    .gradient = gelu_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = gelu_shapes,
};

static sl_status gelu_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("gelu_bwd", "dy", &in[0], 0));
    SL_TRY(sl_expect("gelu_bwd", "x", &in[1], in[0]));
    out[0] = in[0];
    return SL_OK;
}

static double slope(double x, bool tanh_form)
{
    if (tanh_form) {
        double t = tanh(SQRT_2_BY_PI * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_BY_PI * (1 + 3 * 0.044715 * x * x);
    }
    return 0.5 * (1 + erf(x * SQRT_HALF)) + x * INV_SQRT_2PI * exp(-0.5 * x * x);
}

static void gelu_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *dx = &launch->out[0];
    int64_t d = dy->type.dim[dy->type.rank - 1], n = sl_type_count(&dy->type) / d;
    for (int64_t c = 0; c < d; c++) {
        double sum = 0;
        for (int64_t i = c; i < n * d; i += d) {
            double value = sl_get(dy, i) * slope(sl_get(x, i), sl_gelu_attrs(&launch->attrs)->tanh);
            sum += value + (sl_accumulates(launch, 0) ? sl_get(dx, i) : 0);
            sl_put_out(launch, 0, i, value);
        }
        sl_put_out(launch, 1, c, sum);
    }
}

#define PAIR(t, n, d)                  \
    {                                  \
        SL_T2(t, n, d), SL_T2(t, n, d) \
    }
static const sl_op_case gelu_bwd_cases[] = {
    {.name = "f32 exact", .in = PAIR(SL_F32, 5, 64)},
    {.name = "f32 exact, tail, accumulate", .in = PAIR(SL_F32, 7, 37), .accumulate = 1},
    {.name = "f32 tanh", .in = PAIR(SL_F32, 5, 64), TANH},
    {.name = "f32 tanh, one element", .in = PAIR(SL_F32, 1, 1), TANH},
    {.name = "bf16 exact", .in = PAIR(SL_BF16, 33, 512)},
    {.name = "bf16 tanh, tail, accumulate", .in = PAIR(SL_BF16, 7, 333), TANH, .accumulate = 1},
    {.name = "f32 exact, sums", .in = PAIR(SL_F32, 37, 64), .optional_out = true},
    {.name = "f32 tanh, tail, sums, accumulate both",
     .in = PAIR(SL_F32, 530, 101),
     TANH,
     .optional_out = true,
     .accumulate = 3},
    {.name = "f32 one element, sums", .in = PAIR(SL_F32, 1, 1), .optional_out = true},
    {.name = "bf16 tanh, sums, accumulated",
     .in = PAIR(SL_BF16, 2100, 776),
     TANH,
     .optional_out = true,
     .accumulate = 2},
    {.name = "bf16 exact, tail, sums, dx accumulates",
     .in = PAIR(SL_BF16, 70, 333),
     .optional_out = true,
     .accumulate = 1},
};
#undef PAIR
#undef TANH

static sl_status gelu_bwd_shapes(sl_op_shapes *shapes)
{
    sl_op_case op_case = {.in = {sl_shapes_hidden(shapes), sl_shapes_hidden(shapes)}};
    SL_TRY(sl_shapes_add(shapes, "", &op_case));
    op_case.optional_out = true;
    return sl_shapes_add(shapes, "with sums", &op_case);
}

const sl_op_def sl_op_gelu_bwd = {
    SL_OP_PARTS(gelu_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_gelu_attrs),
    .optional_out = 1u << 1,
    .can_accumulate = 3,
    .sums_after = 1,
    .work = sl_work_bytes,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = gelu_bwd_shapes,
};
