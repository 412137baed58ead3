/*
 * Other rows and columns for the same elements in the same order: y[count / columns, columns]. The graph makes y a view of x, so that
 * nothing runs; only where it cannot (context of a sliced sequence) does a launch copy.
 */
#include "ops/reshape.h"
#include "ops/common.h"
#include "ops/shapes.h"

static sl_status reshape_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    int64_t columns = sl_reshape_attrs(attrs)->columns, count = sl_type_count(&in[0]);
    SL_TRY(sl_expect_float("reshape", "x", &in[0], 0));
    if (columns < 1 || count % columns)
        return sl_fail(SL_E_INTERNAL, "reshape: %lld elements do not fill rows of %lld", (long long) count,
                       (long long) columns);
    out[0] = sl_type_2d(in[0].dtype, count / columns, columns);
    return SL_OK;
}

static void reshape_reference(const sl_launch *launch)
{
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++)
        sl_put_out(launch, 0, i, sl_get(&launch->in[0], i));
}

static sl_status reshape_gradient(sl_gradient *gradient)
{
    if (!gradient->need[0] || gradient->d_out[0] == SL_NO_VALUE)
        return SL_OK;
    return gradient->pass(gradient, 0, gradient->d_out[0]);
}

static int64_t reshape_view(const sl_attrs *attrs, const sl_type *in)
{
    (void) attrs, (void) in;
    return 0;
}

static const sl_op_case reshape_cases[] = {
    {.name = "f32 wider", .in = {SL_T2(SL_F32, 6, 35)}, .attrs = SL_ATTRS(reshape, 70)},
    {.name = "f32 a vector", .in = {SL_T1(SL_F32, 21)}, .attrs = SL_ATTRS(reshape, 3)},
    {.name = "f32 one column", .in = {SL_T2(SL_F32, 1, 5)}, .attrs = SL_ATTRS(reshape, 1)},
    {.name = "bf16 heads", .in = {SL_T2(SL_BF16, 40, 512)}, .attrs = SL_ATTRS(reshape, 64)},
};

static sl_status reshape_shapes(sl_op_shapes *shapes)
{
    const sl_op_case op_case = {.in = {sl_shapes_hidden(shapes)}, .attrs = SL_ATTRS(reshape, shapes->sizes.e)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_reshape = {
    .name = "reshape",
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_reshape_attrs),
    .infer = reshape_infer,
    .work = sl_work_bytes,
    .reference = reshape_reference,
    .gradient = reshape_gradient,
    .view = reshape_view,
    .cases = reshape_cases,
    .n_cases = SL_COUNT(reshape_cases),
    .tolerance = {0, 0},
    .any_values = true,
    .shapes = reshape_shapes,
};
