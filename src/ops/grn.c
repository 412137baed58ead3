/*
 * Global response normalization (ConvNeXt V2): channels of a sample compete by their length over its tokens.
 *
 *     g[c] = |x[:, c]|     n[c] = g[c] / (mean(g) + eps)     y = x + gamma n x + beta
 *
 * Backward, for one sample with S[c] = sum over tokens of dy x and r = 1 / (mean(g) + eps):
 *     dg[c] = r (gamma[c] S[c] - mean(gamma S n))            dx = dy (1 + gamma n) + x dg / g, without the second part where g is 0
 *     dgamma = sum over samples of n S                       dbeta = sum of dy
 * The lengths are f32 and kept from the forward: they are few.
 */
#include "ops/grn.h"

#include <math.h>

#include "ops/common.h"
#include "ops/shapes.h"

enum { LENGTHS = 1, LENGTHS_BWD = 3 }; /* operands */

static sl_status check(const char *op, const sl_attrs *attrs, int64_t rows)
{
    const struct sl_grn_attrs *a = sl_grn_attrs(attrs);
    if (a->sample_rows < 1 || !(a->eps > 0) || rows % a->sample_rows)
        return sl_fail(SL_E_INTERNAL,
                       "%s: needs eps > 0 and whole samples but has %g and %lld rows for samples of %lld", op,
                       (double) a->eps, (long long) rows, (long long) a->sample_rows);
    return SL_OK;
}

static sl_status grn_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("grn", "x", &in[0], 2));
    SL_TRY(check("grn", attrs, in[0].dim[0]));
    SL_TRY(sl_expect("grn", "gamma", &in[1], sl_type_1d(in[0].dtype, in[0].dim[1])));
    SL_TRY(sl_expect("grn", "beta", &in[2], in[1]));
    out[0] = in[0];
    out[LENGTHS] = sl_type_2d(SL_F32, in[0].dim[0] / sl_grn_attrs(attrs)->sample_rows, in[0].dim[1]);
    return SL_OK;
}

static double mean_length(const sl_operand *lengths, int64_t sample)
{
    const int64_t d = lengths->type.dim[1];
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += sl_get(lengths, sample * d + c);
    return sum / (double) d;
}

static void grn_reference(const sl_launch *launch)
{
    const struct sl_grn_attrs *a = sl_grn_attrs(&launch->attrs);
    const sl_operand *x = &launch->in[0], *lengths = &launch->out[LENGTHS];
    const int64_t d = x->type.dim[1], samples = x->type.dim[0] / a->sample_rows, size = a->sample_rows * d;
    for (int64_t s = 0; s < samples; s++) {
        for (int64_t c = 0; c < d; c++) {
            double squares = 0;
            for (int64_t i = s * size + c; i < (s + 1) * size; i += d)
                squares += (double) sl_get(x, i) * sl_get(x, i);
            sl_put(lengths, s * d + c, (float) sqrt(squares));
        }
        const double r = 1 / (mean_length(lengths, s) + a->eps);
        for (int64_t i = s * size; i < (s + 1) * size; i++) {
            const double n = sl_get(lengths, s * d + i % d) * r, value = sl_get(x, i);
            sl_put_out(launch, 0, i, value + sl_get(&launch->in[1], i % d) * n * value + sl_get(&launch->in[2], i % d));
        }
    }
}

static sl_status grn_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[0], gradient->in[1], gradient->out[LENGTHS]};
    return sl_gradient_emit(gradient, SL_OP_GRN_BWD, gradient->attrs, in, 4, 3);
}

#define ATTRS(rows) .attrs = SL_ATTRS(grn, rows, 1e-6f, 0)
#define FWD(t, n, d) .in = {SL_T2(t, n, d), SL_T1(t, d), SL_T1(t, d)}
static const sl_op_case grn_cases[] = {
    {.name = "f32", FWD(SL_F32, 12, 64), ATTRS(6)},
    {.name = "f32 tail", FWD(SL_F32, 21, 37), ATTRS(7)},
    {.name = "f32 one token, few channels", FWD(SL_F32, 3, 3), ATTRS(1)},
    {.name = "bf16", FWD(SL_BF16, 420, 384), ATTRS(210)},
    {.name = "bf16 tail", FWD(SL_BF16, 35, 333), ATTRS(7)},
};
#undef FWD

static int64_t rows_of(const sl_op_sizes *s)
{
    return s->sequence > 0 && s->n % s->sequence == 0 ? s->sequence : s->n;
}

static sl_status grn_shapes(sl_op_shapes *shapes)
{
    const sl_type w = sl_type_1d(shapes->dtype, shapes->sizes.d);
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), w, w}, ATTRS(rows_of(&shapes->sizes))};
    return sl_shapes_add(shapes, "", &op_case);
}

/* Of forward and backward: four sums or factors for each channel of each sample at most. */
static size_t grn_estimate(const sl_launch *launch)
{
    const int64_t samples = launch->in[0].type.dim[0] / sl_grn_attrs(&launch->attrs)->sample_rows;
    return (size_t) (samples * launch->in[0].type.dim[1]) * 4 * sizeof(float);
}

const sl_op_def sl_op_grn = {
    SL_OP_PARTS(grn),
    .category = SL_CAT_REDUCTION,
    .n_in = 3,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_grn_attrs),
    .work = sl_work_bytes,
    .gradient = grn_gradient,
    .estimate_workspace = grn_estimate,
    .tolerance = {2e-6, SL_BF16_ULP},
    .any_values = true,
    .shapes = grn_shapes,
};

static sl_status grn_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("grn_bwd", "dy", &in[0], 2));
    SL_TRY(check("grn_bwd", attrs, in[0].dim[0]));
    SL_TRY(sl_expect("grn_bwd", "x", &in[1], in[0]));
    SL_TRY(sl_expect("grn_bwd", "gamma", &in[2], sl_type_1d(in[0].dtype, in[0].dim[1])));
    const int64_t samples = in[0].dim[0] / sl_grn_attrs(attrs)->sample_rows;
    SL_TRY(sl_expect("grn_bwd", "lengths", &in[LENGTHS_BWD], sl_type_2d(SL_F32, samples, in[0].dim[1])));
    out[0] = in[0];
    out[1] = out[2] = in[2];
    return SL_OK;
}

/* S of a channel of a sample, or its sum of dy alone. */
static double token_sum(const sl_launch *launch, int64_t sample, int64_t c, bool times_x)
{
    const int64_t d = launch->in[0].type.dim[1], size = sl_grn_attrs(&launch->attrs)->sample_rows * d;
    double sum = 0;
    for (int64_t i = sample * size + c; i < (sample + 1) * size; i += d)
        sum += (double) sl_get(&launch->in[0], i) * (times_x ? sl_get(&launch->in[1], i) : 1);
    return sum;
}

static void grn_bwd_sample(const sl_launch *launch, int64_t sample)
{
    const struct sl_grn_attrs *a = sl_grn_attrs(&launch->attrs);
    const sl_operand *dy = &launch->in[0], *x = &launch->in[1], *gamma = &launch->in[2];
    const sl_operand *lengths = &launch->in[LENGTHS_BWD];
    const int64_t d = x->type.dim[1], size = a->sample_rows * d;
    const double r = 1 / (mean_length(lengths, sample) + a->eps);
    double mean = 0;
    for (int64_t c = 0; c < d; c++)
        mean +=
            sl_get(gamma, c) * token_sum(launch, sample, c, true) * sl_get(lengths, sample * d + c) * r / (double) d;
    for (int64_t c = 0; c < d; c++) {
        const double g = sl_get(lengths, sample * d + c);
        const double dg = r * (sl_get(gamma, c) * token_sum(launch, sample, c, true) - mean);
        for (int64_t i = sample * size + c; i < (sample + 1) * size; i += d)
            sl_put_out(launch, 0, i,
                       sl_get(dy, i) * (1 + sl_get(gamma, c) * g * r) + (g > 0 ? sl_get(x, i) * (dg / g) : 0));
    }
}

static void grn_bwd_reference(const sl_launch *launch)
{
    const struct sl_grn_attrs *a = sl_grn_attrs(&launch->attrs);
    const sl_operand *lengths = &launch->in[LENGTHS_BWD];
    const int64_t d = lengths->type.dim[1], samples = lengths->type.dim[0];
    for (int64_t s = 0; s < samples && sl_present(&launch->out[0]); s++)
        grn_bwd_sample(launch, s);
    for (int64_t c = 0; c < d; c++) {
        double dgamma = 0, dbeta = 0;
        for (int64_t s = 0; s < samples; s++) {
            dgamma += sl_get(lengths, s * d + c) / (mean_length(lengths, s) + a->eps) * token_sum(launch, s, c, true);
            dbeta += token_sum(launch, s, c, false);
        }
        sl_put_out(launch, 1, c, dgamma);
        sl_put_out(launch, 2, c, dbeta);
    }
}

#define BWD(t, n, d, samples) .in = {SL_T2(t, n, d), SL_T2(t, n, d), SL_T1(t, d), SL_T2(SL_F32, samples, d)}
static const sl_op_case grn_bwd_cases[] = {
    {.name = "f32", BWD(SL_F32, 12, 64, 2), ATTRS(6)},
    {.name = "f32 tail, accumulate all", BWD(SL_F32, 21, 37, 3), ATTRS(7), .accumulate = 7},
    {.name = "f32 one token, few channels", BWD(SL_F32, 3, 3, 3), ATTRS(1)},
    {.name = "bf16, accumulate dgamma and dbeta", BWD(SL_BF16, 420, 384, 2), ATTRS(210), .accumulate = 6},
    {.name = "bf16 tail, accumulate dx", BWD(SL_BF16, 35, 333, 5), ATTRS(7), .accumulate = 1},
};
#undef BWD

/* The lengths of x; one channel of the first sample is empty, where there are several. */
static void grn_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_operand *x = &launch->in[1], *lengths = &launch->in[LENGTHS_BWD];
    const int64_t d = x->type.dim[1], rows = sl_grn_attrs(&launch->attrs)->sample_rows;
    (void) how;
    for (int64_t i = 0; i < sl_type_count(&lengths->type); i++) {
        double squares = 0;
        for (int64_t row = i / d * rows; row < (i / d + 1) * rows; row++) {
            if (i == 1)
                sl_put(x, row * d + 1, 0);
            squares += (double) sl_get(x, row * d + i % d) * sl_get(x, row * d + i % d);
        }
        sl_put(lengths, i, (float) sqrt(squares));
    }
}

static sl_status grn_bwd_shapes(sl_op_shapes *shapes)
{
    const int64_t rows = rows_of(&shapes->sizes), d = shapes->sizes.d;
    const sl_type x = sl_shapes_wide(shapes), w = sl_type_1d(shapes->dtype, d);
    const sl_op_case op_case = {.in = {x, x, w, sl_type_2d(SL_F32, shapes->sizes.n / rows, d)}, ATTRS(rows)};
    return sl_shapes_add(shapes, "", &op_case);
}
#undef ATTRS

const sl_op_def sl_op_grn_bwd = {
    SL_OP_PARTS(grn_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 4,
    .n_out = 3,
    .attrs_bytes = sizeof(struct sl_grn_attrs),
    .can_accumulate = 7,
    .work = sl_work_bytes,
    .estimate_workspace = grn_estimate,
    .tolerance = {2e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .fill = grn_bwd_fill,
    .shapes = grn_bwd_shapes,
};
