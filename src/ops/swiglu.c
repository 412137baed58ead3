/*
 * SwiGLU and GeGLU: gu holds gate and up side by side (one projection makes both). With the logistic function sigma,
 *
 *     s = g sigma(z) * up        SiLU: z = g        GELU, tanh form: z = 2 sqrt(2/pi) (g + .044715 g^3)
 *
 * since (1 + tanh u) / 2 = sigma(2u). Backward, with sigma at z and z' = dz/dg:
 *     d gate = ds * up * sigma * (1 + g z' (1 - sigma))        d up = ds * g sigma        and, if requested, s again
 */
#include "ops/swiglu.h"

#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"

#define GELU_2K 1.5957691216057308 /* 2 sqrt(2/pi) */

/* sigma(z) of a gate; *slope: z'. */
static double gate_sigma(const sl_launch *launch, double gate, double *slope)
{
    bool gelu = sl_swiglu_attrs(&launch->attrs)->gelu;
    double z = gelu ? GELU_2K * (gate + 0.044715 * gate * gate * gate) : gate;
    *slope = gelu ? GELU_2K * (1 + 3 * 0.044715 * gate * gate) : 1;
    return 1 / (1 + exp(-z));
}

static sl_status swiglu_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("swiglu", "gu", &in[0], 2));
    if (in[0].dim[1] % 2)
        return sl_fail(SL_E_INTERNAL, "swiglu: gu holds gate and up side by side but has an odd width of %lld",
                       (long long) in[0].dim[1]);
    out[0] = sl_type_2d(in[0].dtype, in[0].dim[0], in[0].dim[1] / 2);
    return SL_OK;
}

static void swiglu_reference(const sl_launch *launch)
{
    int64_t n = launch->out[0].type.dim[0], f = launch->out[0].type.dim[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < f; c++) {
            double gate = sl_get(&launch->in[0], i * 2 * f + c), up = sl_get(&launch->in[0], i * 2 * f + f + c), slope;
            sl_put_out(launch, 0, i * f + c, gate * gate_sigma(launch, gate, &slope) * up);
        }
}

static sl_status swiglu_gradient(sl_gradient *gradient)
{
    sl_value in[] = {gradient->d_out[0], gradient->in[0]};
    return sl_gradient_emit(gradient, SL_OP_SWIGLU_BWD, gradient->attrs, in, 2, 1);
}

#define GELU .attrs = SL_ATTRS(swiglu, .gelu = 1)
static const sl_op_case swiglu_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 128)}},
    {.name = "f32 tail", .in = {SL_T2(SL_F32, 7, 74)}},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 2)}},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 33, 1024)}},
    {.name = "bf16 tail", .in = {SL_T2(SL_BF16, 7, 90)}},
    {.name = "f32 GELU, tail", .in = {SL_T2(SL_F32, 7, 74)}, GELU},
    {.name = "f32 GELU, one element", .in = {SL_T2(SL_F32, 1, 2)}, GELU},
    {.name = "bf16 GELU", .in = {SL_T2(SL_BF16, 33, 1024)}, GELU},
};

static sl_status swiglu_shapes(sl_op_shapes *shapes)
{
    const sl_type gate_up = sl_shapes_matrix(shapes, shapes->sizes.n, 2 * shapes->sizes.f);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {gate_up}});
}

const sl_op_def sl_op_swiglu = {
    SL_OP_PARTS(swiglu),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_swiglu_attrs),
    .backward_rematerializes = true,
    .work = sl_work_bytes,
    .gradient = swiglu_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = swiglu_shapes,
};

static sl_status swiglu_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("swiglu_bwd", "ds", &in[0], 2));
    SL_TRY(sl_expect("swiglu_bwd", "gu", &in[1], sl_type_2d(in[0].dtype, in[0].dim[0], 2 * in[0].dim[1])));
    out[0] = in[1];
    return SL_OK;
}

static void swiglu_bwd_reference(const sl_launch *launch)
{
    int64_t n = launch->in[0].type.dim[0], f = launch->in[0].type.dim[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < f; c++) {
            double ds = sl_get(&launch->in[0], i * f + c);
            double gate = sl_get(&launch->in[1], i * 2 * f + c), up = sl_get(&launch->in[1], i * 2 * f + f + c);
            double slope, sigma = gate_sigma(launch, gate, &slope);
            sl_put_out(launch, 0, i * 2 * f + c, ds * up * sigma * (1 + gate * slope * (1 - sigma)));
            sl_put_out(launch, 0, i * 2 * f + f + c, ds * gate * sigma);
            sl_put_out(launch, 1, i * f + c, gate * sigma * up);
        }
}

static const sl_op_case swiglu_bwd_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 128)}},
    {.name = "f32 tail", .in = {SL_T2(SL_F32, 7, 37), SL_T2(SL_F32, 7, 74)}},
    {.name = "f32 one element", .in = {SL_T2(SL_F32, 1, 1), SL_T2(SL_F32, 1, 2)}},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 33, 512), SL_T2(SL_BF16, 33, 1024)}},
    {.name = "bf16 tail", .in = {SL_T2(SL_BF16, 7, 45), SL_T2(SL_BF16, 7, 90)}},
    {.name = "f32 again", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 128)}, .optional_out = true},
    {.name = "f32 tail, again", .in = {SL_T2(SL_F32, 7, 37), SL_T2(SL_F32, 7, 74)}, .optional_out = true},
    {.name = "bf16 again", .in = {SL_T2(SL_BF16, 33, 512), SL_T2(SL_BF16, 33, 1024)}, .optional_out = true},
    {.name = "bf16 tail, again", .in = {SL_T2(SL_BF16, 7, 45), SL_T2(SL_BF16, 7, 90)}, .optional_out = true},
    {.name = "f32 GELU, tail", .in = {SL_T2(SL_F32, 7, 37), SL_T2(SL_F32, 7, 74)}, GELU},
    {.name = "f32 GELU, again", .in = {SL_T2(SL_F32, 5, 64), SL_T2(SL_F32, 5, 128)}, GELU, .optional_out = true},
    {.name = "bf16 GELU", .in = {SL_T2(SL_BF16, 33, 512), SL_T2(SL_BF16, 33, 1024)}, GELU},
    {.name = "bf16 GELU, tail, again",
     .in = {SL_T2(SL_BF16, 7, 45), SL_T2(SL_BF16, 7, 90)},
     GELU,
     .optional_out = true},
};
#undef GELU

static sl_status swiglu_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_type gate_up = sl_shapes_matrix(shapes, shapes->sizes.n, 2 * shapes->sizes.f);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {sl_shapes_hidden(shapes), gate_up}});
}

const sl_op_def sl_op_swiglu_bwd = {
    SL_OP_PARTS(swiglu_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_swiglu_attrs),
    .optional_out = 1u << 1,
    .rematerialized_out = 1,
    .work = sl_work_bytes,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = swiglu_bwd_shapes,
};
