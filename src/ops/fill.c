/*
 * Random operands. Floats are the sum of a random word's four bytes, centred and scaled to variance one: near enough to normal
 * (no tails beyond 3.5 sigma, which suits comparisons relative to the largest value), and free of libm, so the same everywhere.
 */
#include "ops/fill.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"
#include "ops/common.h"

#define SIGMA_OF_BYTES 147.80 /* of the sum of four uniform bytes */

/* Operands longer than this repeat themselves: drawing a large matrix of an 8B model would take longer than timing it, and no
 * kernel can tell. */
enum { PERIOD = 1 << 22 };

sl_status sl_op_case_launch(sl_op_id op, const sl_op_case *op_case, sl_launch *launch)
{
    const sl_op_def *def = sl_op(op);
    sl_type out[SL_MAX_OUT] = {{0}};
    memset(launch, 0, sizeof *launch);
    launch->op = op;
    launch->attrs = sl_op_attrs(op, op_case->attrs);
    launch->constants = op_case->constants;
    launch->accumulate = op_case->accumulate;
    for (int i = 0; i < def->n_in; i++)
        launch->in[i].type = op_case->in[i];
    SL_TRY(def->infer(&launch->attrs, op_case->in, out));
    if (op_case->optional_out && (def->sums_after || def->sums_before)) {
        out[SL_MAX(def->sums_after, def->sums_before)] = sl_column_sums_type(&out[0]);
    } else if (op_case->optional_out && def->rematerialized_out) {
        out[def->rematerialized_out] = op_case->in[0]; /* as its gradient */
    } else if (op_case->optional_out) {                /* the master, and f32 moments with it */
        int master = def->n_out - 1;
        for (int k = 1; k <= master; k++)
            out[k] = sl_type_1d(SL_F32, out[0].dim[0]);
    }
    if (op_case->wide_out)
        out[1].dtype = SL_F32;
    for (int k = 0; k < def->n_out; k++)
        launch->out[k].type = out[k];
    return SL_OK;
}

static sl_rng4 random_words(uint64_t seed, int operand, int64_t i)
{
    return sl_philox(seed, (uint64_t) i, (uint64_t) operand);
}

static float normal(uint32_t word)
{
    int sum = (int) (word & 255) + (int) (word >> 8 & 255) + (int) (word >> 16 & 255) + (int) (word >> 24);
    return (float) ((sum - 510) / SIGMA_OF_BYTES);
}

/* Copies the first PERIOD elements to the places behind them. */
static void repeat(const sl_operand *x)
{
    size_t width = sl_dtype_bytes(x->type.dtype), bytes = sl_type_bytes(&x->type);
    for (size_t done = PERIOD * width; done < bytes; done += PERIOD * width)
        memcpy((char *) x->data + done, x->data, SL_MIN(bytes - done, PERIOD * width));
}

void sl_fill_normal(const sl_operand *x, uint64_t seed, int operand, float scale)
{
    int64_t count = SL_MIN(sl_type_count(&x->type), (int64_t) PERIOD);
    for (int64_t i = 0; i < count; i += 4) {
        sl_rng4 words = random_words(seed, operand, i / 4);
        for (int64_t j = i; j < SL_MIN(i + 4, count); j++)
            sl_put(x, j, scale * normal(words.v[j - i]));
    }
    repeat(x);
}

void sl_fill_squares(const sl_operand *x, uint64_t seed, int operand, float scale)
{
    sl_fill_normal(x, seed, operand, scale);
    for (int64_t i = 0; i < SL_MIN(sl_type_count(&x->type), (int64_t) PERIOD); i++)
        sl_put(x, i, sl_get(x, i) * sl_get(x, i));
    repeat(x);
}

void sl_fill_index(const sl_operand *x, uint64_t seed, int operand, int64_t range)
{
    for (int64_t i = 0; i < x->type.dim[0]; i++)
        ((int32_t *) x->data)[i] = (int32_t) (random_words(seed, operand, i).v[0] % (uint64_t) range);
}

void sl_fill_weights(const sl_operand *x, uint64_t seed, int operand)
{
    if (!sl_present(x))
        return;
    sl_fill_squares(x, seed, operand, 1);
    for (int64_t i = 1; i < sl_type_count(&x->type); i += 4)
        sl_put(x, i, 0);
}

static void fill_bytes(const sl_operand *x, uint64_t seed, int operand)
{
    for (int64_t i = 0; i < sl_type_count(&x->type); i++)
        ((uint8_t *) x->data)[i] = (uint8_t) random_words(seed, operand, i).v[0];
}

void sl_fill_step(const sl_operand *x, uint64_t seed, int64_t tokens)
{
    sl_step_params step = {
        .learning_rate = 0.01f,
        .corrections = {{0.271f, 0.002997001f},
                        {0.142625f, 0.002997001f}}, /* beta1 = .9 and .95, beta2 = .999, third step */
        .loss_scale = 1.0f / (float) tokens,
        .clip = 1,
        .step = 3,
        .seed_lo = (uint32_t) seed * 2654435761u + 1,
        .seed_hi = (uint32_t) (seed >> 32) + 5,
        .further_loss_scales = {0.5f / (float) tokens, 2.0f / (float) tokens, 3.0f / (float) tokens},
    };
    memcpy(x->data, &step, sizeof step);
}

void sl_fill_gate(const sl_operand *gate, bool skip)
{
    const float values[4] = {skip ? 0 : 0.7f, skip ? INFINITY : 1.43f, skip, 0};
    if (sl_present(gate))
        memcpy(gate->data, values, sizeof values);
}

/* mean and rstd of x's rows; mean absent for RMSNorm. */
void sl_fill_statistics(const sl_operand *x, const sl_operand *mean, const sl_operand *rstd, float eps)
{
    int64_t n = x->type.dim[0], d = x->type.dim[1];
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < d; c++)
            sum += sl_get(x, i * d + c) / (double) d;
        double center = mean ? sum : 0;
        for (int64_t c = 0; c < d; c++)
            squares += (sl_get(x, i * d + c) - center) * (sl_get(x, i * d + c) - center) / (double) d;
        if (mean)
            sl_put(mean, i, (float) center);
        sl_put(rstd, i, (float) (1 / sqrt(squares + eps)));
    }
}

static sl_status fill(sl_launch *launch, const sl_fill_rule *how)
{
    const sl_op_def *def = sl_op(launch->op);
    uint32_t reads_out = sl_op_reads_out(launch);
    for (int i = 0; i < def->n_in; i++) {
        if (launch->in[i].type.rank && !launch->in[i].data)
            return sl_fail(SL_E_INTERNAL, "%s: input %d has a type but no data to fill", def->name, i);
        if (launch->in[i].type.rank && sl_dtype_is_float(launch->in[i].type.dtype))
            sl_fill_normal(&launch->in[i], how->seed, i, 1);
        if (launch->in[i].type.rank && launch->in[i].type.dtype == SL_U8)
            fill_bytes(&launch->in[i], how->seed, i);
    }
    for (int k = 0; k < def->n_out; k++) {
        if (launch->out[k].type.rank && !launch->out[k].data)
            return sl_fail(SL_E_INTERNAL, "%s: output %d has a type but no data to fill", def->name, k);
        if (reads_out >> k & 1u)
            sl_fill_normal(&launch->out[k], how->seed, SL_MAX_IN + k, 1);
    }
    if (def->fill)
        def->fill(launch, how);
    return SL_OK;
}

sl_status sl_op_fill(sl_launch *launch, uint64_t seed, const sl_op_case *op_case)
{
    return fill(launch, &(const sl_fill_rule){.seed = seed, .op_case = op_case});
}

sl_status sl_op_fill_timed(sl_launch *launch, int64_t sequences)
{
    return fill(launch, &(const sl_fill_rule){.seed = 1, .sequences = sequences});
}
