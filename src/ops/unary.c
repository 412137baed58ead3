/*
 * Functions of one element: y = f(x), dx = dy f'(x). One op for all of them, with the function as an attribute and a line per function in
 * the table below, because shapes, gradient rule and costs are the same. The backward reads x and not y: sine and SiLU cannot be
 * turned around, and a bf16 y would have lost what the slope of a sigmoid needs.
 */
#include "ops/unary.h"

#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double sigmoid_slope(double x)
{
    return sigmoid(x) * sigmoid(-x);
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double silu_slope(double x)
{
    return sigmoid(x) + x * sigmoid_slope(x);
}

static double tanh_slope(double x)
{
    return 1 / (cosh(x) * cosh(x));
}

static double relu(double x)
{
    return x > 0 || isnan(x) ? x : 0;
}

static double relu_slope(double x)
{
    return x > 0;
}

static const struct {
    double (*value)(double), (*slope)(double);
} functions[SL_UNARY_COUNT] = {
    [SL_UNARY_SINE] = {sin, cos},         [SL_UNARY_SIGMOID] = {sigmoid, sigmoid_slope},
    [SL_UNARY_SILU] = {silu, silu_slope}, [SL_UNARY_TANH] = {tanh, tanh_slope},
    [SL_UNARY_RELU] = {relu, relu_slope},
};

static sl_status check(const char *op, const sl_attrs *attrs)
{
    const int32_t function = sl_unary_attrs(attrs)->function;
    return function >= 0 && function < SL_UNARY_COUNT ? SL_OK
                                                      : sl_fail(SL_E_INTERNAL, "%s: unknown function %d", op, function);
}

static sl_status unary_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("unary", attrs));
    SL_TRY(sl_expect_float("unary", "x", &in[0], 0));
    out[0] = in[0];
    return SL_OK;
}

static void unary_reference(const sl_launch *launch)
{
    for (int64_t i = 0; i < sl_type_count(&launch->in[0].type); i++)
        sl_put_out(launch, 0, i, functions[sl_unary_attrs(&launch->attrs)->function].value(sl_get(&launch->in[0], i)));
}

static sl_status unary_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[0]};
    return sl_gradient_emit(gradient, SL_OP_UNARY_BWD, gradient->attrs, in, 2, 1);
}

#define F(name) .attrs = SL_ATTRS(unary, SL_UNARY_##name)
static const sl_op_case unary_cases[] = {
    {.name = "f32 sine", .in = {SL_T2(SL_F32, 5, 64)}, F(SINE)},
    {.name = "f32 sine, tail", .in = {SL_T2(SL_F32, 27, 37)}, F(SINE)},
    {.name = "f32 sigmoid", .in = {SL_T2(SL_F32, 7, 37)}, F(SIGMOID)},
    {.name = "f32 silu", .in = {SL_T2(SL_F32, 7, 37)}, F(SILU)},
    {.name = "f32 silu, one element", .in = {SL_T1(SL_F32, 1)}, F(SILU)},
    {.name = "f32 tanh", .in = {SL_T2(SL_F32, 7, 37)}, F(TANH)},
    {.name = "f32 relu", .in = {SL_T2(SL_F32, 7, 37)}, F(RELU)},
    {.name = "bf16 sine", .in = {SL_T2(SL_BF16, 33, 512)}, F(SINE)},
    {.name = "bf16 sigmoid, tail", .in = {SL_T2(SL_BF16, 7, 333)}, F(SIGMOID)},
    {.name = "bf16 silu", .in = {SL_T2(SL_BF16, 33, 512)}, F(SILU)},
    {.name = "bf16 tanh, tail", .in = {SL_T2(SL_BF16, 7, 333)}, F(TANH)},
    {.name = "bf16 relu", .in = {SL_T2(SL_BF16, 33, 512)}, F(RELU)},
};

/* Several turns for the sine; and finite differences may not step over the kink of ReLU. */
static void fill(const sl_launch *launch, const sl_operand *x, int operand, uint64_t seed)
{
    const int32_t function = sl_unary_attrs(&launch->attrs)->function;
    if (function == SL_UNARY_SINE)
        sl_fill_normal(x, seed, operand, 20);
    for (int64_t i = 0; function == SL_UNARY_RELU && i < sl_type_count(&x->type); i++)
        sl_put(x, i, sl_get(x, i) + copysignf(0.125f, sl_get(x, i)));
}

static void unary_fill(sl_launch *launch, const sl_fill_rule *how)
{
    fill(launch, &launch->in[0], 0, how->seed);
}

/* The sine takes longest, SiLU occurs most. */
static sl_status unary_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_hidden(shapes);
    SL_TRY(sl_shapes_add(shapes, "silu", &(const sl_op_case){.in = {x}, F(SILU)}));
    return sl_shapes_add(shapes, "sine", &(const sl_op_case){.in = {x}, F(SINE)});
}

const sl_op_def sl_op_unary = {
    SL_OP_PARTS(unary),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_unary_attrs),
    .work = sl_work_bytes,
    .gradient = unary_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .any_values = true,
    .fill = unary_fill,
    .shapes = unary_shapes,
};

static sl_status unary_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("unary_bwd", attrs));
    SL_TRY(sl_expect_float("unary_bwd", "dy", &in[0], 0));
    SL_TRY(sl_expect("unary_bwd", "x", &in[1], in[0]));
    out[0] = in[0];
    return SL_OK;
}

static void unary_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1];
    for (int64_t i = 0; i < sl_type_count(&x->type); i++)
        sl_put_out(launch, 0, i,
                   sl_get(dy, i) * functions[sl_unary_attrs(&launch->attrs)->function].slope(sl_get(x, i)));
}

#define PAIR(t, n, d) .in = {SL_T2(t, n, d), SL_T2(t, n, d)}
static const sl_op_case unary_bwd_cases[] = {
    {.name = "f32 sine", PAIR(SL_F32, 5, 64), F(SINE)},
    {.name = "f32 sine, tail, accumulate", PAIR(SL_F32, 27, 37), F(SINE), .accumulate = 1},
    {.name = "f32 sigmoid", PAIR(SL_F32, 7, 37), F(SIGMOID)},
    {.name = "f32 silu, accumulate", PAIR(SL_F32, 7, 37), F(SILU), .accumulate = 1},
    {.name = "f32 tanh", PAIR(SL_F32, 7, 37), F(TANH)},
    {.name = "f32 relu, one element", PAIR(SL_F32, 1, 1), F(RELU)},
    {.name = "f32 relu, accumulate", PAIR(SL_F32, 7, 37), F(RELU), .accumulate = 1},
    {.name = "bf16 sine", PAIR(SL_BF16, 33, 512), F(SINE)},
    {.name = "bf16 sigmoid, tail", PAIR(SL_BF16, 7, 333), F(SIGMOID)},
    {.name = "bf16 silu, accumulate", PAIR(SL_BF16, 33, 512), F(SILU), .accumulate = 1},
    {.name = "bf16 tanh, tail, accumulate", PAIR(SL_BF16, 7, 333), F(TANH), .accumulate = 1},
    {.name = "bf16 relu", PAIR(SL_BF16, 33, 512), F(RELU)},
};
#undef PAIR

static void unary_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    fill(launch, &launch->in[1], 1, how->seed);
}

static sl_status unary_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_shapes_hidden(shapes);
    SL_TRY(sl_shapes_add(shapes, "silu", &(const sl_op_case){.in = {x, x}, F(SILU)}));
    return sl_shapes_add(shapes, "sine", &(const sl_op_case){.in = {x, x}, F(SINE)});
}
#undef F

const sl_op_def sl_op_unary_bwd = {
    SL_OP_PARTS(unary_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_unary_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .fill = unary_bwd_fill,
    .shapes = unary_bwd_shapes,
};
