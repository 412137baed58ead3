/*
 * Random operands. Floats are the sum of a random word's four bytes, centred and scaled to variance one: near enough to normal
 * (no tails beyond 3.5 sigma, which suits comparisons relative to the largest value), and free of libm, so the same everywhere.
 */
#include "ops/fill.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"
#include "ops/attention.h"
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
    launch->attrs = op_case->attrs;
    launch->accumulate = op_case->accumulate;
    for (int i = 0; i < def->n_in; i++)
        launch->in[i].type = op_case->in[i];
    SL_TRY(def->infer(&op_case->attrs, op_case->in, out));
    if (op_case->optional_out && (def->sums_after || def->sums_before)) {
        out[SL_MAX(def->sums_after, def->sums_before)] = sl_column_sums_type(&out[0]);
    } else if (op_case->optional_out && def->makes_again) {
        out[def->makes_again] = op_case->in[0]; /* as its gradient */
    } else if (op_case->optional_out) {         /* the master, and f32 moments with it */
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

static void fill_normal(const sl_operand *x, uint64_t seed, int operand, float scale)
{
    int64_t count = SL_MIN(sl_type_count(&x->type), (int64_t) PERIOD);
    for (int64_t i = 0; i < count; i += 4) {
        sl_rng4 words = random_words(seed, operand, i / 4);
        for (int64_t j = i; j < SL_MIN(i + 4, count); j++)
            sl_put(x, j, scale * normal(words.v[j - i]));
    }
    repeat(x);
}

static void fill_squares(const sl_operand *x, uint64_t seed, int operand, float scale)
{
    fill_normal(x, seed, operand, scale);
    for (int64_t i = 0; i < SL_MIN(sl_type_count(&x->type), (int64_t) PERIOD); i++)
        sl_put(x, i, sl_get(x, i) * sl_get(x, i));
    repeat(x);
}

static void fill_index(const sl_operand *x, uint64_t seed, int operand, int64_t range)
{
    for (int64_t i = 0; i < x->type.dim[0]; i++)
        ((int32_t *) x->data)[i] = (int32_t) (random_words(seed, operand, i).v[0] % (uint64_t) range);
}

/* Random places when a range is given; a chunk of one sequence, as in training, when not. */
static void fill_positions(const sl_operand *x, uint64_t seed, int operand, int64_t range)
{
    if (range > 0)
        fill_index(x, seed, operand, range);
    for (int64_t i = 0; range <= 0 && i < x->type.dim[0]; i++)
        ((int32_t *) x->data)[i] = (int32_t) i;
}

/* `sequences` of them over m rows (every other boundary moved, so that lengths differ), the last boundary repeated. */
static void fill_segments(const sl_operand *x, int64_t m, int64_t sequences, bool unequal)
{
    int32_t *boundary = x->data;
    for (int64_t j = 0; j < x->type.dim[0]; j++) {
        int64_t row = j < sequences ? m * j / sequences : m;
        if (unequal && j % 2 && j < sequences)
            row += m / (3 * sequences);
        boundary[j] = (int32_t) row;
    }
}

static void fill_step(const sl_operand *x, uint64_t seed, int64_t tokens)
{
    sl_step_params step = {
        .learning_rate = 0.01f,
        .bias1 = 0.271f, /* beta1 = .9, third step */
        .bias2 = 0.002997001f,
        .loss_scale = 1.0f / (float) tokens,
        .clip = 1,
        .step = 3,
        .seed_lo = (uint32_t) seed * 2654435761u + 1,
        .seed_hi = (uint32_t) (seed >> 32) + 5,
    };
    memcpy(x->data, &step, sizeof step);
}

static void fill_gate(const sl_operand *gate, bool skip)
{
    const float values[4] = {skip ? 0 : 0.7f, skip ? INFINITY : 1.43f, skip, 0};
    if (sl_present(gate))
        memcpy(gate->data, values, sizeof values);
}

/* mean and rstd of x's rows; mean absent for RMSNorm. */
static void fill_statistics(const sl_operand *x, const sl_operand *mean, const sl_operand *rstd, float eps)
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

/* o and lse of attention_bwd: the forward's own. */
static void fill_attention_result(sl_launch *backward)
{
    sl_launch forward = {.op = SL_OP_ATTENTION, .attrs = backward->attrs};
    forward.in[0] = backward->in[1];
    forward.in[1] = backward->in[2];
    forward.in[2] = backward->in[5];
    forward.out[0] = backward->in[3];
    forward.out[1] = backward->in[4];
    sl_op(SL_OP_ATTENTION)->reference(&forward);
}

/* Scores of unit variance over r rows: lse is about log r + 1/2, and o an average. */
static void fill_attention_plausible(sl_launch *backward, uint64_t seed)
{
    const sl_operand *lse = &backward->in[4], *segments = &backward->in[5];
    int64_t heads = lse->type.dim[0], n = lse->type.dim[1], first, end;
    int64_t m = sl_attention_places(&backward->attrs, &backward->in[1].type, &backward->in[2].type).m;
    fill_normal(&backward->in[3], seed, 3, 0.1f);
    for (int64_t i = 0; i < n; i++) {
        sl_attention_rows(&backward->attrs, segments->data, segments->type.dim[0], m, i, &first, &end);
        for (int64_t head = 0; head < heads; head++)
            sl_put(lse, head * n + i, (float) (log((double) (end - first)) + 0.5));
    }
}

static void fill_attention(sl_launch *launch, int segments, int q, const sl_op_case *op_case)
{
    const sl_operand *kv = sl_present(&launch->in[q + 1]) ? &launch->in[q + 1] : &launch->in[q];
    const sl_operand *x = &launch->in[segments];
    int64_t boundaries = x->type.dim[0] - 1, sequences = op_case ? SL_MAX(op_case->segments, 1) : boundaries;
    fill_segments(x, kv->type.dim[0], SL_MIN(sequences, boundaries), op_case && !launch->attrs.attention.uniform);
}

/* p, moments and master; the last moment of AdamW is a mean of squares. */
static void fill_optimizer(sl_launch *launch, uint64_t seed, const sl_op_case *op_case)
{
    int master = sl_op(launch->op)->n_out - 1;
    fill_normal(&launch->in[0], seed, 0, 0.1f);
    fill_step(&launch->in[1], seed, 1);
    fill_gate(&launch->in[2], op_case && op_case->not_finite);
    for (int64_t i = 0; op_case && op_case->not_finite && i < launch->in[0].type.dim[0]; i += 13)
        sl_put(&launch->in[0], i, i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY);
    fill_normal(&launch->out[0], seed, SL_MAX_IN, 1);
    fill_normal(&launch->out[1], seed, SL_MAX_IN + 1, 0.1f);
    if (launch->op == SL_OP_ADAMW)
        fill_squares(&launch->out[2], seed, SL_MAX_IN + 2, 0.1f);
    if (!sl_present(&launch->out[master]))
        return;
    fill_normal(&launch->out[master], seed, SL_MAX_IN + master, 1);
    for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++)
        sl_put(&launch->out[0], i, sl_get(&launch->out[master], i));
}

static void fill_special(sl_launch *launch, uint64_t seed, const sl_op_case *op_case)
{
    sl_operand *in = launch->in;
    int64_t range = op_case ? op_case->index_range : 0;
    switch (launch->op) {
    case SL_OP_EMBEDDING:
        fill_index(&in[1], seed, 1, range ? range : in[0].type.dim[0]);
        break;
    case SL_OP_EMBEDDING_BWD:
        fill_index(&in[1], seed, 1, range ? range : launch->attrs.embedding.rows);
        break;
    case SL_OP_RMSNORM_BWD:
        fill_statistics(&in[1], NULL, &in[3], launch->attrs.norm.eps);
        break;
    case SL_OP_LAYERNORM_BWD:
        fill_statistics(&in[1], &in[3], &in[4], launch->attrs.norm.eps);
        break;
    case SL_OP_ROPE:
        fill_positions(&in[1], seed, 1, range);
        break;
    case SL_OP_ROPE_BWD:
        fill_positions(&in[2], seed, 2, range);
        break;
    case SL_OP_ATTENTION:
        fill_attention(launch, 2, 0, op_case);
        break;
    case SL_OP_ATTENTION_BWD:
        fill_attention(launch, 5, 1, op_case);
        if (op_case)
            fill_attention_result(launch);
        else
            fill_attention_plausible(launch, seed);
        break;
    case SL_OP_DROPOUT:
        fill_step(&in[1], seed, 1);
        break;
    case SL_OP_HEAD_LOSS_BWD:
        fill_step(&in[3], seed, in[0].type.dim[0]);
        /* fall through */
    case SL_OP_HEAD_LOSS:
        fill_normal(&in[1], seed, 1, 1 / sqrtf((float) in[0].type.dim[1])); /* logits of unit variance */
        fill_index(&in[2], seed, 2, range ? range : in[1].type.dim[0]);
        break;
    case SL_OP_GRAD_GATE:
        fill_squares(&in[0], seed, 0, 1);
        fill_step(&in[1], seed, 1);
        if (op_case && op_case->not_finite)
            sl_put(&in[0], in[0].type.dim[0] / 2, INFINITY);
        break;
    case SL_OP_ADAMW:
    case SL_OP_SGD:
        fill_optimizer(launch, seed, op_case);
        break;
    default:
        break;
    }
}

sl_status sl_op_fill(sl_launch *launch, uint64_t seed, const sl_op_case *op_case)
{
    const sl_op_def *def = sl_op(launch->op);
    uint32_t reads_out = sl_op_reads_out(launch);
    for (int i = 0; i < def->n_in; i++) {
        if (launch->in[i].type.rank && !launch->in[i].data)
            return sl_fail(SL_E_INTERNAL, "%s: input %d has a type but no data to fill", def->name, i);
        if (launch->in[i].type.rank && launch->in[i].type.dtype != SL_I32)
            fill_normal(&launch->in[i], seed, i, 1);
    }
    for (int k = 0; k < def->n_out; k++) {
        if (launch->out[k].type.rank && !launch->out[k].data)
            return sl_fail(SL_E_INTERNAL, "%s: output %d has a type but no data to fill", def->name, k);
        if (reads_out >> k & 1u)
            fill_normal(&launch->out[k], seed, SL_MAX_IN + k, 1);
    }
    fill_special(launch, seed, op_case);
    return SL_OK;
}
