/*
 * DropPath (stochastic depth): a branch of the model is dropped for whole samples. With a sample's rows side by side,
 *     y = keep ? x * (1 / (1 - p)) : 0        accumulating: y = fma(x, 1 / (1 - p), y), or y as it is
 * and keep the same for all `sample_rows` rows of a sample. The noise is dropout's (ops/noise.h), with the number of the sample in the
 * whole batch for the element, so it does not depend on how the batch is cut into chunks. It is its own gradient, as dropout is. A
 * factor per sample as an operand was not taken: it would be an object to plan and to move.
 */
#include "ops/drop_path.h"

#include <math.h>

#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static sl_status drop_path_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const struct sl_drop_path_attrs *a = sl_drop_path_attrs(attrs);
    SL_TRY(sl_expect_float("drop_path", "x", &in[0], 2));
    SL_TRY(sl_expect_step("drop_path", &in[1]));
    if (!(a->probability >= 0 && a->probability < 1) || a->sample_rows < 1)
        return sl_fail(SL_E_INTERNAL,
                       "drop_path: probability must be in [0, 1) and sample_rows positive but they are %g and %lld",
                       (double) a->probability, (long long) a->sample_rows);
    out[0] = in[0];
    return SL_OK;
}

static void drop_path_reference(const sl_launch *launch)
{
    const sl_operand *x = &launch->in[0], *y = &launch->out[0];
    const int64_t d = x->type.dim[1];
    for (int64_t i = 0; i < sl_type_count(&x->type); i++) {
        float factor = sl_drop_path_factor(sl_drop_path_attrs(&launch->attrs), launch->in[1].data, i / d);
        if (factor != 0)
            sl_put(y, i, sl_accumulates(launch, 0) ? fmaf(sl_get(x, i), factor, sl_get(y, i)) : sl_get(x, i) * factor);
        else if (!sl_accumulates(launch, 0))
            sl_put(y, i, 0);
    }
}

static sl_status drop_path_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[1]};
    return sl_gradient_emit(gradient, SL_OP_DROP_PATH, gradient->attrs, in, 2, 1);
}

#define CASE(t, n, d, ...) .in = {SL_T2(t, n, d), SL_STEP_TYPE}, .attrs = SL_ATTRS(drop_path, __VA_ARGS__)
static const sl_op_case drop_path_cases[] = {
    {.name = "f32", CASE(SL_F32, 12, 64, 0.5f, 3, 2, 0)},
    {.name = "f32 tail, later samples, accumulate", CASE(SL_F32, 21, 37, 0.5f, 1, 3, 11), .accumulate = 1},
    {.name = "f32 keep all", CASE(SL_F32, 3, 16, 0, 1, 1, 1)},
    {.name = "f32 one element", CASE(SL_F32, 1, 1, 0.1f, 0, 1, 0)},
    {.name = "bf16", CASE(SL_BF16, 804, 384, 0.3f, 3, 201, 64)},
    {.name = "bf16 tail, accumulate", CASE(SL_BF16, 70, 333, 0.4f, 3, 10, 0), .accumulate = 1},
};
#undef CASE

/* A sample is a sequence of the program, though it may have other rows here. The rows of a slice are all of one sample. */
static void drop_path_place(sl_attrs *attrs, const sl_chunk_position *place)
{
    sl_drop_path_set(attrs)->first = place->first_row / place->seqlen;
}

static void drop_path_clear_stream(sl_attrs *attrs)
{
    sl_drop_path_set(attrs)->stream = 0;
    sl_drop_path_set(attrs)->first = 0;
}

static void drop_path_fill(sl_launch *launch, const sl_fill_rule *how)
{
    sl_fill_step(&launch->in[1], how->seed, 1);
}

static sl_status drop_path_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {
        .in = {sl_shapes_wide(shapes), SL_STEP_TYPE},
        .attrs = SL_ATTRS(drop_path, .probability = 0.1f, .sample_rows = SL_MAX(1, shapes->sizes.sequence))};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_drop_path = {
    SL_OP_PARTS(drop_path),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_drop_path_attrs),
    .can_accumulate = 1,
    .work = sl_work_bytes,
    .gradient = drop_path_gradient,
    .tolerance = {0, 0},
    .place = drop_path_place,
    .clear_stream = drop_path_clear_stream,
    .fill = drop_path_fill,
    .shapes = drop_path_shapes,
};
