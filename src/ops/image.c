/*
 * Pixels as activations: y = fma(x, scale, bias) with the scale and bias of the pixel's channel, rounded once. Bytes are a quarter of
 * the memory and of the copies of f32 images, so data arrives as such and is normalized where it is used. A sample's channels come one
 * after the other, [n, c, p]; y is [n, c*p], a row per sample. Images are inputs: no gradient flows through.
 */
#include <math.h>

#include "ops/common.h"
#include "ops/image.h"
#include "ops/shapes.h"

static sl_status image_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    const sl_type *x = &in[0];
    sl_dtype dtype = (sl_dtype) sl_image_attrs(attrs)->dtype;
    char text[96];
    bool good = (x->dtype == SL_U8 || x->dtype == SL_F32) && (x->rank == 2 || x->rank == 3);
    for (int32_t i = 0; good && i < x->rank; i++)
        good = x->dim[i] >= 1;
    if (!good || (x->rank == 3 && x->dim[1] > SL_MAX_CHANNELS))
        return sl_fail(SL_E_INTERNAL,
                       "image: operand x must be u8 or f32 [n, pixels] or [n, at most %d, pixels] but is %s",
                       SL_MAX_CHANNELS, sl_type_format(x, text));
    if (dtype != SL_F32 && dtype != SL_BF16)
        return sl_fail(SL_E_INTERNAL, "image: attribute dtype must be f32 or bf16 but is %s", sl_dtype_name(dtype));
    out[0] = sl_type_2d(dtype, x->dim[0], x->dim[1] * (x->rank == 3 ? x->dim[2] : 1));
    return SL_OK;
}

static void image_reference(const sl_launch *launch)
{
    const sl_type *type = &launch->in[0].type;
    const struct sl_image_attrs *attrs = sl_image_attrs(&launch->attrs);
    int64_t channels = type->rank == 3 ? type->dim[1] : 1, pixels = type->dim[type->rank - 1];
    for (int64_t i = 0; i < sl_type_count(type); i++) {
        int64_t channel = i / pixels % channels;
        sl_put(&launch->out[0], i, fmaf(sl_get(&launch->in[0], i), attrs->scale[channel], attrs->bias[channel]));
    }
}

#define THIRDS                         \
    {1 / 58.4f, 1 / 57.1f, 1 / 57.4f}, \
    {                                  \
        -2.1f, -2.0f, -1.8f            \
    }
static const sl_op_case image_cases[] = {
    {.name = "u8 to f32", .in = {SL_T2(SL_U8, 5, 64)}, .attrs = SL_ATTRS(image, SL_F32, {1 / 255.0f}, {0.25f})},
    {.name = "u8 to f32, three channels", .in = {SL_T3(SL_U8, 3, 3, 121)}, .attrs = SL_ATTRS(image, SL_F32, THIRDS)},
    {.name = "u8 to bf16, three channels",
     .in = {SL_T3(SL_U8, 17, 3, 1024)},
     .attrs = SL_ATTRS(image, SL_BF16, THIRDS)},
    {.name = "u8 to bf16, one pixel", .in = {SL_T2(SL_U8, 1, 1)}, .attrs = SL_ATTRS(image, SL_BF16, {2}, {-1})},
    {.name = "f32 to f32, two channels",
     .in = {SL_T3(SL_F32, 4, 2, 33)},
     .attrs = SL_ATTRS(image, SL_F32, {1, 0.5f}, {0, 1})},
    {.name = "f32 to bf16", .in = {SL_T2(SL_F32, 100, 512)}, .attrs = SL_ATTRS(image, SL_BF16, {1}, {0})},
};

static sl_status image_shapes(sl_op_shapes *shapes)
{
    const sl_type wide = sl_shapes_wide(shapes);
    const sl_op_case op_case = {.in = {sl_type_2d(SL_U8, wide.dim[0], wide.dim[1])},
                                .attrs = SL_ATTRS(image, (int32_t) shapes->dtype, {1 / 255.0f}, {0})};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_image = {
    .name = "image",
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_image_attrs),
    .infer = image_infer,
    .work = sl_work_bytes,
    .reference = image_reference,
    .cases = image_cases,
    .n_cases = SL_COUNT(image_cases),
    .tolerance = {0, 0},
    .any_values = true,
    .shapes = image_shapes,
};
