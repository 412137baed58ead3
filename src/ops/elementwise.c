/*
 * Add, scale, cast and dropout. One operation and one rounding per element, so every kernel gives the reference's bits:
 *   add      c = a + b
 *   scale    y = x * value             accumulating: y = fma(x, value, y)
 *   cast     f32 to bf16 (to nearest) or bf16 to f32 (exact)
 *   dropout  y = keep ? x * (1 / (1 - p)) : 0        accumulating: y = fma(x, 1 / (1 - p), y), or y as it is
 * The noise of dropout depends on the element's index in the whole batch (first_row) and not in its chunk: see
 * ops/noise.h. It is linear in x with a mask that can be generated again, so it is its own gradient and no mask is
 * stored.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/dropout.h"
#include "ops/fill.h"
#include "ops/noise.h"
#include "ops/scale.h"
#include "ops/shapes.h"

/* y = x * factor, or y = fma(x, factor, y). */
static void put_product(const sl_launch *launch, int64_t i, float x, float factor)
{
    const sl_operand *y = &launch->out[0];
    sl_put(y, i, sl_accumulates(launch, 0) ? fmaf(x, factor, sl_get(y, i)) : x * factor);
}

static sl_status add_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("add", "a", &in[0], 0));
    SL_TRY(sl_expect("add", "b", &in[1], in[0]));
    out[0] = in[0];
    return SL_OK;
}

static void add_reference(const sl_launch *launch)
{
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++)
        sl_put(&launch->out[0], i, sl_get(&launch->in[0], i) + sl_get(&launch->in[1], i));
}

static sl_status add_gradient(sl_gradient *gradient)
{
    for (int i = 0; i < 2; i++)
        if (gradient->need[i] && gradient->d_out[0] != SL_NO_VALUE)
            SL_TRY(gradient->pass(gradient, i, gradient->d_out[0]));
    return SL_OK;
}

static const sl_op_case add_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 64)}},
    {.name = "f32 tail", .in = {SL_T2(SL_F32, 7, 37), SL_T2(SL_F32, 7, 37)}},
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1), SL_T1(SL_F32, 1)}},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 100, 512), SL_T2(SL_BF16, 100, 512)}},
    {.name = "bf16 tail", .in = {SL_T2(SL_BF16, 7, 333), SL_T2(SL_BF16, 7, 333)}},
};

const sl_op_def sl_op_add = {
    SL_OP_PARTS(add),      .category = SL_CAT_ELEMENTWISE, .n_in = 2,           .n_out = 1,
    .work = sl_work_bytes, .gradient = add_gradient,       .tolerance = {0, 0}, .any_values = true,
    .role = SL_ROLE_ADD,   .shapes = sl_shapes_binary,
};

static sl_status scale_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("scale", "x", &in[0], 0));
    out[0] = in[0];
    return SL_OK;
}

static void scale_reference(const sl_launch *launch)
{
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++)
        put_product(launch, i, sl_get(&launch->in[0], i), sl_scale_attrs(&launch->attrs)->value);
}

static sl_status scale_gradient(sl_gradient *gradient)
{
    return sl_gradient_emit(gradient, SL_OP_SCALE, gradient->attrs, &gradient->d_out[0], 1, 1);
}

static const sl_op_case scale_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64)}, .attrs = SL_ATTRS(scale, .value = 0.37f)},
    {.name = "f32 tail, accumulate",
     .in = {SL_T2(SL_F32, 7, 37)},
     .attrs = SL_ATTRS(scale, .value = -1.7f),
     .accumulate = 1},
    {.name = "f32 one element", .in = {SL_T1(SL_F32, 1)}, .attrs = SL_ATTRS(scale, .value = 3)},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 100, 512)}, .attrs = SL_ATTRS(scale, .value = 0.37f)},
    {.name = "bf16 tail, accumulate",
     .in = {SL_T2(SL_BF16, 7, 333)},
     .attrs = SL_ATTRS(scale, .value = 0.37f),
     .accumulate = 1},
};

static sl_status scale_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes)}, .attrs = SL_ATTRS(scale, .value = 0.5f)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_scale = {
    SL_OP_PARTS(scale),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_scale_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = scale_gradient,
    .tolerance = {0, 0},
    .any_values = true,
    .role = SL_ROLE_ACCUMULATE,
    .role_attrs = SL_ATTRS(scale, .value = 1),
    .shapes = scale_shapes,
};

static sl_status cast_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("cast", "x", &in[0], 0));
    out[0] = in[0];
    out[0].dtype = in[0].dtype == SL_F32 ? SL_BF16 : SL_F32;
    return SL_OK;
}

static void cast_reference(const sl_launch *launch)
{
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++)
        sl_put(&launch->out[0], i, sl_get(&launch->in[0], i));
}

static sl_status cast_gradient(sl_gradient *gradient)
{
    return sl_gradient_emit(gradient, SL_OP_CAST, &(const sl_attrs){0}, &gradient->d_out[0], 1, 1);
}

static const sl_op_case cast_cases[] = {
    {.name = "f32 to bf16", .in = {SL_T2(SL_F32, 100, 512)}},
    {.name = "f32 to bf16, tail", .in = {SL_T1(SL_F32, 333)}},
    {.name = "f32 to bf16, one element", .in = {SL_T1(SL_F32, 1)}},
    {.name = "bf16 to f32", .in = {SL_T2(SL_BF16, 100, 512)}},
    {.name = "bf16 to f32, tail", .in = {SL_T1(SL_BF16, 333)}},
};

static sl_status cast_shapes(sl_op_shapes *shapes)
{
    return sl_shapes_add(shapes, shapes->dtype == SL_F32 ? "to bf16" : "to f32",
                         &(const sl_op_case){.in = {sl_shapes_wide(shapes)}});
}

const sl_op_def sl_op_cast = {
    SL_OP_PARTS(cast),     .category = SL_CAT_ELEMENTWISE, .n_in = 1,           .n_out = 1,
    .work = sl_work_bytes, .gradient = cast_gradient,      .tolerance = {0, 0}, .any_values = true,
    .shapes = cast_shapes,
};

static sl_status dropout_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("dropout", "x", &in[0], 2));
    SL_TRY(sl_expect_step("dropout", &in[1]));
    if (!(sl_dropout_attrs(attrs)->probability >= 0 && sl_dropout_attrs(attrs)->probability < 1))
        return sl_fail(SL_E_INTERNAL, "dropout: probability must be in [0, 1) but is %g",
                       (double) sl_dropout_attrs(attrs)->probability);
    out[0] = in[0];
    return SL_OK;
}

static void dropout_reference(const sl_launch *launch)
{
    const sl_step_params *step = launch->in[1].data;
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    float p = sl_dropout_attrs(&launch->attrs)->probability, factor = 1 / (1 - p);
    for (int64_t i = 0; i < n * d; i++) {
        int64_t element = sl_dropout_attrs(&launch->attrs)->first_row * d + i;
        if (sl_dropout_uniform(step, sl_dropout_attrs(&launch->attrs)->stream, element) >= p)
            put_product(launch, i, sl_get(&launch->in[0], i), factor);
        else if (!sl_accumulates(launch, 0))
            sl_put(&launch->out[0], i, 0);
    }
}

static sl_status dropout_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[1]};
    return sl_gradient_emit(gradient, SL_OP_DROPOUT, gradient->attrs, in, 2, 1);
}

static const sl_op_case dropout_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64), SL_STEP_TYPE}, .attrs = SL_ATTRS(dropout, 0.1f, 3, 0)},
    {.name = "f32 tail, later rows, accumulate",
     .in = {SL_T2(SL_F32, 7, 37), SL_STEP_TYPE},
     .attrs = SL_ATTRS(dropout, 0.5f, 1, 13),
     .accumulate = 1},
    {.name = "f32 keep all", .in = {SL_T2(SL_F32, 3, 16), SL_STEP_TYPE}, .attrs = SL_ATTRS(dropout, 0, 1, 1)},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 33, 512), SL_STEP_TYPE}, .attrs = SL_ATTRS(dropout, 0.1f, 3, 4096)},
    {.name = "bf16 tail, accumulate",
     .in = {SL_T2(SL_BF16, 7, 333), SL_STEP_TYPE},
     .attrs = SL_ATTRS(dropout, 0.2f, 3, 5),
     .accumulate = 1},
};

static void dropout_place(sl_attrs *attrs, const sl_chunk_position *place)
{
    sl_dropout_set(attrs)->first_row = place->first_row;
}

static void dropout_clear_stream(sl_attrs *attrs)
{
    sl_dropout_set(attrs)->stream = 0;
    sl_dropout_set(attrs)->first_row = 0;
}

static void dropout_fill(sl_launch *launch, const sl_fill_rule *how)
{
    sl_fill_step(&launch->in[1], how->seed, 1);
}

static sl_status dropout_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), SL_STEP_TYPE},
                                .attrs = SL_ATTRS(dropout, .probability = 0.1f)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_dropout = {
    SL_OP_PARTS(dropout),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_dropout_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = dropout_gradient,
    .tolerance = {0, 0},
    .place = dropout_place,
    .clear_stream = dropout_clear_stream,
    .fill = dropout_fill,
    .shapes = dropout_shapes,
};
