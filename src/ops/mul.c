/* Elementwise product: y = a * b, or y = fma(a, b, y) where the launch accumulates. One rounding per element, so every kernel gives
 * the reference's bits. Its gradient is two products with dy. */
#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"

static sl_status mul_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("mul", "a", &in[0], 0));
    SL_TRY(sl_expect("mul", "b", &in[1], in[0]));
    out[0] = in[0];
    return SL_OK;
}

static void mul_reference(const sl_launch *launch)
{
    const sl_operand *a = &launch->in[0], *b = &launch->in[1], *y = &launch->out[0];
    for (int64_t i = 0; i < sl_type_count(&y->type); i++)
        sl_put(y, i,
               sl_accumulates(launch, 0) ? fmaf(sl_get(a, i), sl_get(b, i), sl_get(y, i))
                                         : sl_get(a, i) * sl_get(b, i));
}

static sl_status mul_gradient(sl_gradient *gradient)
{
    for (int i = 0; i < 2 && gradient->d_out[0] != SL_NO_VALUE; i++) {
        const sl_value in[] = {gradient->d_out[0], gradient->in[1 - i]};
        if (gradient->need[i])
            SL_TRY(gradient->emit(gradient, SL_OP_MUL, &(const sl_attrs){0}, in, 2, &i, 1));
    }
    return SL_OK;
}

static const sl_op_case mul_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 64)}},
    {.name = "f32 tail, accumulate", .in = {SL_T2(SL_F32, 7, 37), SL_T2(SL_F32, 7, 37)}, .accumulate = 1},
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1), SL_T1(SL_F32, 1)}},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 100, 512), SL_T2(SL_BF16, 100, 512)}},
    {.name = "bf16 tail, accumulate", .in = {SL_T2(SL_BF16, 7, 333), SL_T2(SL_BF16, 7, 333)}, .accumulate = 1},
};

const sl_op_def sl_op_mul = {
    SL_OP_PARTS(mul),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 1,
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = mul_gradient,
    .tolerance = {0, 0},
    .any_values = true,
    .shapes = sl_shapes_binary,
};
