/*
 * Global sums and the gate in front of the optimizer.
 *   sum          y = sum of x
 *   sum_squares  y = sum of x^2, the part of one tensor in the global gradient norm
 *   grad_gate    norm = sqrt(sum of the parts);  gate = {factor, norm, skip, 0}
 *                factor = clip / norm where clip > 0 and norm > clip, else 1;  norm not finite: skip = 1 and factor = 0
 * A sum depends on its order, and every weight depends on these sums, so their order is fixed (ops/reduce.h) and all
 * kernels are bit-equal.
 */
#include "ops/reduce.h"

#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static float block_sum(const sl_operand *x, int64_t first, int64_t count, bool squares)
{
    float lane[SL_SUM_LANES] = {0};
    for (int64_t i = 0; i < count; i++) {
        float value = sl_get(x, first + i), *sum = &lane[i % SL_SUM_LANES];
        *sum = squares ? fmaf(value, value, *sum) : *sum + value;
    }
    return sl_sum_fold(lane);
}

static float fixed_sum(const sl_operand *x, bool squares)
{
    sl_sum_tree tree = {0};
    int64_t n = sl_type_count(&x->type);
    for (int64_t first = 0; first < n; first += SL_SUM_BLOCK)
        sl_sum_tree_add(&tree, block_sum(x, first, SL_MIN(n - first, SL_SUM_BLOCK), squares));
    return sl_sum_tree_end(&tree);
}

static sl_status sum_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("sum", "x", &in[0], 0));
    sl_type f32 = in[0];
    f32.dtype = SL_F32;
    SL_TRY(sl_expect("sum", "x", &in[0], f32));
    out[0] = sl_type_1d(SL_F32, 1);
    return SL_OK;
}

static void sum_reference(const sl_launch *launch)
{
    sl_put(&launch->out[0], 0, fixed_sum(&launch->in[0], false));
}

static const sl_op_case sum_cases[] = {
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1)}},
    {.name = "f32 short", .in = {SL_T1(SL_F32, 77)}},
    {.name = "f32 three blocks and a tail", .in = {SL_T1(SL_F32, 3 * SL_SUM_BLOCK + 133)}},
    {.name = "f32 many blocks", .in = {SL_T1(SL_F32, 150 * SL_SUM_BLOCK + 1)}},
};

/* Of both sums: more partial sums than blocks of threads. */
static size_t sums_estimate(const sl_launch *launch)
{
    (void) launch;
    return (size_t) 1 << 16;
}

const sl_op_def sl_op_sum = {
    SL_OP_PARTS(sum),      .category = SL_CAT_REDUCTION,        .n_in = 1,           .n_out = 1,
    .work = sl_work_bytes, .estimate_workspace = sums_estimate, .tolerance = {0, 0},
};

static sl_status sum_squares_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("sum_squares", "x", &in[0], 0));
    out[0] = sl_type_1d(SL_F32, 1);
    return SL_OK;
}

static void sum_squares_reference(const sl_launch *launch)
{
    sl_put(&launch->out[0], 0, fixed_sum(&launch->in[0], true));
}

static const sl_op_case sum_squares_cases[] = {
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1)}},
    {.name = "f32 short", .in = {SL_T1(SL_F32, 77)}},
    {.name = "f32 seven blocks and a tail", .in = {SL_T1(SL_F32, 7 * SL_SUM_BLOCK + 133)}},
    {.name = "f32 many blocks", .in = {SL_T1(SL_F32, 150 * SL_SUM_BLOCK + 1)}},
    {.name = "bf16 one element", .in = {SL_T1(SL_BF16, 1)}},
    {.name = "bf16 two blocks", .in = {SL_T2(SL_BF16, 2, SL_SUM_BLOCK)}},
    {.name = "bf16 many blocks", .in = {SL_T1(SL_BF16, 133 * SL_SUM_BLOCK + 77)}},
};

static sl_status sum_squares_shapes(sl_op_shapes *shapes)
{
    const sl_type x = sl_type_1d(shapes->dtype, shapes->sizes.p);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {x}});
}

const sl_op_def sl_op_sum_squares = {
    SL_OP_PARTS(sum_squares),
    .category = SL_CAT_REDUCTION,
    .n_in = 1,
    .n_out = 1,
    .work = sl_work_bytes,
    .estimate_workspace = sums_estimate,
    .tolerance = {0, 0},
    .any_values = true,
    .role = SL_ROLE_SUM_SQUARES,
    .linear = true,
    .shapes = sum_squares_shapes,
};

static sl_status grad_gate_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("grad_gate", "partial", &in[0], 1));
    SL_TRY(sl_expect("grad_gate", "partial", &in[0], sl_type_1d(SL_F32, in[0].dim[0])));
    SL_TRY(sl_expect_step("grad_gate", &in[1]));
    out[0] = sl_type_1d(SL_F32, 4);
    return SL_OK;
}

static void grad_gate_reference(const sl_launch *launch)
{
    const sl_step_params *step = launch->in[1].data;
    float norm = sqrtf(fixed_sum(&launch->in[0], false));
    float factor = step->clip > 0 && norm > step->clip ? step->clip / norm : 1;
    bool skip = !isfinite(norm);
    sl_put(&launch->out[0], 0, skip ? 0 : factor);
    sl_put(&launch->out[0], 1, norm);
    sl_put(&launch->out[0], 2, skip);
    sl_put(&launch->out[0], 3, 0);
}

static const sl_op_case grad_gate_cases[] = {
    {.name = "one part", .in = {SL_T1(SL_F32, 1), SL_STEP_TYPE}},
    {.name = "many parts", .in = {SL_T1(SL_F32, 131), SL_STEP_TYPE}},
    {.name = "more parts than a block", .in = {SL_T1(SL_F32, SL_SUM_BLOCK + 9), SL_STEP_TYPE}},
    {.name = "an infinite part", .in = {SL_T1(SL_F32, 20), SL_STEP_TYPE}, .not_finite = true},
};

static void grad_gate_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *partial = &launch->in[0];
    sl_fill_squares(partial, how->seed, 0, 1);
    sl_fill_step(&launch->in[1], how->seed, 1);
    if (how->op_case && how->op_case->not_finite)
        sl_put(partial, partial->type.dim[0] / 2, INFINITY);
}

const sl_op_def sl_op_grad_gate = {
    SL_OP_PARTS(grad_gate),
    .category = SL_CAT_REDUCTION,
    .n_in = 2,
    .n_out = 1,
    .work = sl_work_bytes,
    .tolerance = {0, 0},
    .role = SL_ROLE_GRAD_GATE,
    .fill = grad_gate_fill,
};
