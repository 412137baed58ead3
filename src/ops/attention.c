/*
 * Attention with grouped K/V heads over packed sequences and earlier context.
 *
 *   q[n, h*e]   kv[m, 2g*e], a row holding K of all g heads, then V; query head a uses K/V head a / (h/g)
 *   (or qkv[n, (h+2g)*e] for q, and no kv: all three as one GEMM wrote them; dqkv for dq, and no dkv)
 *   s_ij = scale * q_i . k_j   over the rows j that query i sees: its sequence, those up to its own if causal, those inside the
 *                              sliding window if there is one (ops/attention.h)
 *   s_ij = cap * tanh(s_ij / cap)   where there is a soft cap
 *   lse_i = log sum_j exp(s_ij)       o_i = sum_j exp(s_ij - lse_i) v_j       lse[h, n], natural logarithm, f32
 *
 * A slice of a long sequence is queries that stand at rows q_offset.. of a context that begins at the sequence's start:
 *
 *        rows of kv   0 ............ q_offset ......... q_offset+n (.. m)
 *        queries                     [ 0 ......... n )
 *
 * Backward, with D_i = do_i . o_i and p_ij = exp(s_ij - lse_i):
 *     dv_j = sum_i p_ij do_i     ds_ij = p_ij (do_i . v_j - D_i)     dq_i = scale sum_j ds_ij k_j     dk_j = scale sum_i ds_ij q_i
 * and ds_ij times 1 - tanh^2 where there is a soft cap.
 * dkv covers all m rows: with accumulate it is added to (slices taken in reverse add into their context), without it every
 * row is written, zeros where no query attends. It may be f32 beside bf16 operands, so that many slices sum without
 * rounding.
 *
 * Cost. Causal attention counts half of the square: a slice is n*(2*q_offset + n) half-pairs, and the slices of a sequence of S
 * sum to S*S exactly. A window counts the pairs inside it, so that work falls with it. The types of packed sequences give neither
 * their number (boundaries are padded) nor their lengths, and documents inside a sequence must not change the metric, so the
 * program sets the length of a sequence (attrs.sequence).
 */
#include "ops/attention.h"

#include <math.h>

#include "ops/attention_cases.h"
#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static sl_status check(const char *op, const sl_attrs *attrs, const sl_type *q, const sl_type *kv,
                       const sl_type *segments)
{
    int heads = sl_attention_attrs(attrs)->heads, kv_heads = sl_attention_attrs(attrs)->kv_heads,
        e = sl_attention_attrs(attrs)->head_dim;
    long long offset = sl_attention_attrs(attrs)->q_offset;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads || e < 1 || e > SL_ATTENTION_MAX_HEAD_DIM)
        return sl_fail(
            SL_E_INTERNAL,
            "%s: needs heads a multiple of kv_heads and head_dim in 1..%d but has %d heads, %d kv_heads, head_dim %d",
            op, SL_ATTENTION_MAX_HEAD_DIM, heads, kv_heads, e);
    if (sl_attention_attrs(attrs)->window < 0 || !(sl_attention_attrs(attrs)->cap >= 0))
        return sl_fail(SL_E_INTERNAL, "%s: window and soft cap must be positive, or 0 for none, but are %lld and %g",
                       op, (long long) sl_attention_attrs(attrs)->window, (double) sl_attention_attrs(attrs)->cap);
    SL_TRY(sl_expect_float(op, kv->rank ? "q" : "qkv", q, 2));
    if (kv->rank)
        SL_TRY(sl_expect_float(op, "kv", kv, 2));
    sl_attention_layout at = sl_attention_places(attrs, q, kv);
    SL_TRY(sl_expect(op, kv->rank ? "q" : "qkv", q, sl_type_2d(q->dtype, q->dim[0], at.q_stride)));
    if (kv->rank)
        SL_TRY(sl_expect(op, "kv", kv, sl_type_2d(q->dtype, at.m, at.kv_stride)));
    SL_TRY(sl_expect_index(op, "segments", segments, 2));
    if (offset < 0 || offset + q->dim[0] > at.m)
        return sl_fail(SL_E_INTERNAL, "%s: queries stand at rows %lld..%lld but kv has %lld rows", op, offset,
                       offset + (long long) q->dim[0], (long long) at.m);
    return SL_OK;
}

/* Twice the pairs of a sequence's first r queries and the rows they see, pairs on the diagonal counted half: r*r without a
 * window. Where a query sees all `m` rows of its sequence (full), a window takes from them those before it. */
static double double_pairs_until(const sl_attrs *attrs, double r, double m)
{
    double window = (double) sl_attention_attrs(attrs)->window, beyond = window > 0 && r > window ? r - window : 0;
    if (!sl_attention_attrs(attrs)->causal)
        return 2 * r * m - beyond * (beyond + 1);
    return beyond > 0 ? window * window + beyond * (2 * window - 1) : r * r;
}

static double double_pairs(const sl_attrs *attrs, const sl_type *q, const sl_type *kv, const sl_type *segments)
{
    double n = (double) q->dim[0], m = (double) (kv->rank ? kv : q)->dim[0],
           offset = (double) sl_attention_attrs(attrs)->q_offset;
    double sequence = (double) sl_attention_attrs(attrs)->sequence;
    if (sequence == 0)
        sequence = m / (double) (segments->dim[0] - 1);
    if (sequence < n) /* packed: n / sequence of them */
        return n * (double_pairs_until(attrs, sequence, sequence) / sequence);
    return double_pairs_until(attrs, offset + n, m) - double_pairs_until(attrs, offset, m);
}

static sl_status attention_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("attention", attrs, &in[0], &in[1], &in[2]));
    out[0] = sl_type_2d(in[0].dtype, in[0].dim[0], sl_attention_places(attrs, &in[0], &in[1]).o_stride);
    out[1] = sl_type_2d(SL_F32, sl_attention_attrs(attrs)->heads, in[0].dim[0]);
    return SL_OK;
}

static double width(const sl_attrs *attrs)
{
    return (double) sl_attention_attrs(attrs)->heads * sl_attention_attrs(attrs)->head_dim;
}

static void attention_work(const sl_launch *launch, sl_work *work)
{
    const sl_type *q = &launch->in[0].type;
    double pairs = double_pairs(&launch->attrs, q, &launch->in[1].type, &launch->in[2].type);
    sl_work_flops(launch, 2 * pairs * width(&launch->attrs), work); /* q.k and p.v, a multiply-add each */
}

/* Places of one query head: where its parts lie in q (and dq), in kv (and dkv), and in o (and do). */
typedef struct head_view {
    int64_t e, q_width, kv_width, o_width, head, k_head, v_head;
} head_view;

static head_view view_head(const sl_attrs *attrs, const sl_type *q, const sl_type *kv, int64_t head)
{
    int64_t e = sl_attention_attrs(attrs)->head_dim, h = sl_attention_attrs(attrs)->heads,
            g = sl_attention_attrs(attrs)->kv_heads;
    int64_t kv_head = head / (h / g);
    sl_attention_layout at = sl_attention_places(attrs, q, kv);
    head_view view = {e,
                      at.q_stride,
                      at.kv_stride,
                      at.o_stride,
                      head * e,
                      at.kv_first + kv_head * e,
                      at.kv_first + (g + kv_head) * e};
    return view;
}

/* The operand that holds k and v. */
static const sl_operand *holds_kv(const sl_operand *q, const sl_operand *kv)
{
    return sl_present(kv) ? kv : q;
}

static double dot(const sl_operand *x, int64_t i, const sl_operand *y, int64_t j, int64_t count)
{
    double sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += (double) sl_get(x, i + c) * sl_get(y, j + c);
    return sum;
}

/* The score of query and key, of which `product` is the dot product; *slope (if wanted): its derivative by scale * product. */
static double score(const sl_attrs *attrs, double product, double *slope)
{
    double s = sl_attention_attrs(attrs)->scale * product, cap = sl_attention_attrs(attrs)->cap;
    double squashed = cap > 0 ? tanh(s / cap) : 0;
    if (slope)
        *slope = 1 - squashed * squashed;
    return cap > 0 ? cap * squashed : s;
}

static void attention_reference(const sl_launch *launch)
{
    const sl_operand *q = &launch->in[0], *kv = holds_kv(q, &launch->in[1]), *segments = &launch->in[2];
    int64_t n = q->type.dim[0], m = kv->type.dim[0];
    const sl_attrs *attrs = &launch->attrs;
    for (int64_t head = 0; head < sl_attention_attrs(&launch->attrs)->heads; head++) {
        head_view at = view_head(&launch->attrs, &q->type, &launch->in[1].type, head);
        for (int64_t i = 0; i < n; i++) {
            int64_t first, end, query = i * at.q_width + at.head;
            sl_attention_rows(&launch->attrs, segments->data, segments->type.dim[0], m, i, &first, &end);
            double largest = -INFINITY, sum = 0;
            for (int64_t j = first; j < end; j++)
                largest = fmax(largest, score(attrs, dot(q, query, kv, j * at.kv_width + at.k_head, at.e), NULL));
            double o[SL_ATTENTION_MAX_HEAD_DIM] = {0};
            for (int64_t j = first; j < end; j++) {
                double p = exp(score(attrs, dot(q, query, kv, j * at.kv_width + at.k_head, at.e), NULL) - largest);
                sum += p;
                for (int64_t c = 0; c < at.e; c++)
                    o[c] += p * sl_get(kv, j * at.kv_width + at.v_head + c);
            }
            for (int64_t c = 0; c < at.e; c++)
                sl_put_out(launch, 0, i * at.o_width + at.head + c, o[c] / sum);
            sl_put_out(launch, 1, head * n + i, largest + log(sum));
        }
    }
}

static sl_status attention_gradient(sl_gradient *gradient)
{
    const bool *need = gradient->need;
    bool apart = gradient->in[1] != SL_NO_VALUE;
    if (gradient->d_out[0] == SL_NO_VALUE || (!need[0] && !(apart && need[1])))
        return SL_OK;
    sl_value in[] = {gradient->d_out[0], gradient->in[0],  gradient->in[1],
                     gradient->out[0],   gradient->out[1], gradient->in[2]};
    int targets[] = {need[0] ? 0 : SL_TARGET_NONE, apart && need[1] ? 1 : SL_TARGET_NONE};
    return gradient->emit(gradient, SL_OP_ATTENTION_BWD, gradient->attrs, in, 6, targets, 2);
}

static void attention_place(sl_attrs *attrs, const sl_chunk_position *place)
{
    sl_attention_set(attrs)->q_offset = place->slice_offset;
    sl_attention_set(attrs)->sequence = place->seqlen;
    sl_attention_set(attrs)->uniform = place->segment_rows;
}

static int64_t attention_clear_slice(sl_attrs *attrs)
{
    const int64_t offset = sl_attention_attrs(attrs)->q_offset, window = sl_attention_attrs(attrs)->window;
    sl_attention_set(attrs)->q_offset = 0;
    sl_attention_set(attrs)->uniform = 0;                /* where it gives the slice's end */
    return window > 0 ? SL_MIN(offset, window) : offset; /* behind the window time stays as it is */
}

/* Boundaries over m rows. For a case every other one is moved, so that lengths differ; the last is repeated. */
static void fill_segments(sl_launch *launch, const sl_fill_rule *how, int segments, int q)
{
    const sl_operand *x = &launch->in[segments], *kv = holds_kv(&launch->in[q], &launch->in[q + 1]);
    const int64_t m = kv->type.dim[0], boundaries = x->type.dim[0] - 1;
    const int64_t wanted = how->op_case         ? SL_MAX(how->op_case->segments, 1)
                           : how->sequences > 0 ? how->sequences
                                                : boundaries;
    const int64_t sequences = SL_MIN(wanted, boundaries);
    const bool unequal = how->op_case && !sl_attention_attrs(&launch->attrs)->uniform;
    for (int64_t j = 0; j <= boundaries; j++) {
        int64_t row = j < sequences ? m * j / sequences : m;
        if (unequal && j % 2 && j < sequences)
            row += m / (3 * sequences);
        ((int32_t *) x->data)[j] = (int32_t) row;
    }
}

static void attention_fill(sl_launch *launch, const sl_fill_rule *how)
{
    fill_segments(launch, how, 2, 0);
}

/* Attributes at a model's sizes. */
static sl_attrs attrs_of(const sl_op_sizes *s)
{
    sl_attrs attrs = {{0}};
    *sl_attention_set(&attrs) = *SL_ATTRS(
        attention, .heads = (int32_t) s->h, .kv_heads = (int32_t) s->g, .head_dim = (int32_t) s->e, .causal = 1,
        .scale = (float) (1 / sqrt((double) s->e)), .sequence = s->sequence, .uniform = s->sequence);
    return attrs;
}

static sl_status attention_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_attrs attrs = attrs_of(s);
    const sl_type q = sl_shapes_matrix(shapes, s->n, s->h * s->e), kv = sl_shapes_matrix(shapes, s->n, 2 * s->g * s->e);
    const sl_type segments = sl_type_1d(SL_I32, s->n / s->sequence + 1);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {q, kv, segments}, .attrs = &attrs});
}

const sl_op_def sl_op_attention = {
    SL_OP_PARTS(attention),
    .category = SL_CAT_ATTENTION,
    .n_in = 3,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_attention_attrs),
    .optional_in = 1u << 1,
    .work = attention_work,
    .gradient = attention_gradient,
    .joined_in = 1,
    .tolerance = {5e-6, 0.01},
    .segments = 2,
    .context_in = 1u << 1,
    .place = attention_place,
    .clear_slice = attention_clear_slice,
    .representative = true,
    .fill = attention_fill,
    .shapes = attention_shapes,
};

static sl_status attention_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(check("attention_bwd", attrs, &in[1], &in[2], &in[5]));
    sl_type o = sl_type_2d(in[1].dtype, in[1].dim[0], sl_attention_places(attrs, &in[1], &in[2]).o_stride);
    SL_TRY(sl_expect("attention_bwd", "do", &in[0], o));
    SL_TRY(sl_expect("attention_bwd", "o", &in[3], o));
    SL_TRY(
        sl_expect("attention_bwd", "lse", &in[4], sl_type_2d(SL_F32, sl_attention_attrs(attrs)->heads, in[1].dim[0])));
    out[0] = in[1];
    out[1] = in[2];
    return SL_OK;
}

static void attention_bwd_work(const sl_launch *launch, sl_work *work)
{
    const sl_type *q = &launch->in[1].type;
    double pairs = double_pairs(&launch->attrs, q, &launch->in[2].type, &launch->in[5].type);
    sl_work_flops(launch, 4 * pairs * width(&launch->attrs), work); /* do.v, dv, dq, dk */
    work->hardware_flops = 5 * pairs * width(&launch->attrs);       /* and the scores again */
}

/* p_ij and ds_ij (without the outer scale) of one head. */
static void pair(const sl_launch *launch, head_view at, int64_t head, int64_t i, int64_t j, double *p, double *ds)
{
    const sl_operand *d_o = &launch->in[0], *q = &launch->in[1], *kv = holds_kv(q, &launch->in[2]), *o = &launch->in[3];
    int64_t query = i * at.q_width + at.head, result = i * at.o_width + at.head, row = j * at.kv_width,
            n = q->type.dim[0];
    double slope, s = score(&launch->attrs, dot(q, query, kv, row + at.k_head, at.e), &slope);
    *p = exp(s - sl_get(&launch->in[4], head * n + i));
    *ds = *p * (dot(d_o, result, kv, row + at.v_head, at.e) - dot(d_o, result, o, result, at.e)) * slope;
}

static void attention_bwd_dq(const sl_launch *launch)
{
    const sl_operand *q = &launch->in[1], *kv = holds_kv(q, &launch->in[2]), *segments = &launch->in[5];
    for (int64_t head = 0; head < sl_attention_attrs(&launch->attrs)->heads; head++) {
        head_view at = view_head(&launch->attrs, &q->type, &launch->in[2].type, head);
        for (int64_t i = 0; i < q->type.dim[0]; i++) {
            int64_t first, end;
            sl_attention_rows(&launch->attrs, segments->data, segments->type.dim[0], kv->type.dim[0], i, &first, &end);
            double dq[SL_ATTENTION_MAX_HEAD_DIM] = {0}, p, ds;
            for (int64_t j = first; j < end; j++) {
                pair(launch, at, head, i, j, &p, &ds);
                for (int64_t c = 0; c < at.e; c++)
                    dq[c] += ds * sl_get(kv, j * at.kv_width + at.k_head + c);
            }
            for (int64_t c = 0; c < at.e; c++)
                sl_put_out(launch, 0, i * at.q_width + at.head + c, sl_attention_attrs(&launch->attrs)->scale * dq[c]);
        }
    }
}

/* Row j of one K/V head: all query heads of its group, all queries that see it. */
static void attention_bwd_dkv_row(const sl_launch *launch, int64_t kv_head, int64_t j)
{
    const sl_operand *d_o = &launch->in[0], *q = &launch->in[1], *kv = &launch->in[2], *segments = &launch->in[5];
    int64_t group = sl_attention_attrs(&launch->attrs)->heads / sl_attention_attrs(&launch->attrs)->kv_heads;
    int64_t m = holds_kv(q, kv)->type.dim[0];
    int dkv = sl_present(kv) ? 1 : 0; /* the output */
    head_view at = view_head(&launch->attrs, &q->type, &kv->type, kv_head * group);
    double dk[SL_ATTENTION_MAX_HEAD_DIM] = {0}, dv[SL_ATTENTION_MAX_HEAD_DIM] = {0}, p, ds;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        at = view_head(&launch->attrs, &q->type, &kv->type, head);
        for (int64_t i = 0; i < q->type.dim[0]; i++) {
            int64_t first, end, query = i * at.q_width + at.head, result = i * at.o_width + at.head;
            sl_attention_rows(&launch->attrs, segments->data, segments->type.dim[0], m, i, &first, &end);
            if (j < first || j >= end)
                continue;
            pair(launch, at, head, i, j, &p, &ds);
            for (int64_t c = 0; c < at.e; c++) {
                dk[c] += ds * sl_get(q, query + c);
                dv[c] += p * sl_get(d_o, result + c);
            }
        }
    }
    for (int64_t c = 0; c < at.e; c++) {
        sl_put_out(launch, dkv, j * at.kv_width + at.k_head + c, sl_attention_attrs(&launch->attrs)->scale * dk[c]);
        sl_put_out(launch, dkv, j * at.kv_width + at.v_head + c, dv[c]);
    }
}

static void attention_bwd_reference(const sl_launch *launch)
{
    attention_bwd_dq(launch);
    for (int64_t kv_head = 0; kv_head < sl_attention_attrs(&launch->attrs)->kv_heads; kv_head++)
        for (int64_t j = 0; j < holds_kv(&launch->in[1], &launch->in[2])->type.dim[0]; j++)
            attention_bwd_dkv_row(launch, kv_head, j);
}

static void attention_bwd_place(sl_attrs *attrs, const sl_chunk_position *place)
{
    attention_place(attrs, place);
    sl_attention_set(attrs)->nondeterministic = place->nondeterministic;
}

/* o and lse of the forward. */
static void fill_result(sl_launch *backward)
{
    sl_launch forward = {.op = SL_OP_ATTENTION, .attrs = backward->attrs};
    forward.in[0] = backward->in[1];
    forward.in[1] = backward->in[2];
    forward.in[2] = backward->in[5];
    forward.out[0] = backward->in[3];
    forward.out[1] = backward->in[4];
    attention_reference(&forward);
}

/* Scores of unit variance over r rows: lse is about log r + 1/2, and o an average. */
static void fill_plausible(sl_launch *backward, uint64_t seed)
{
    const sl_operand *lse = &backward->in[4], *segments = &backward->in[5];
    int64_t heads = lse->type.dim[0], n = lse->type.dim[1], first, end;
    int64_t m = sl_attention_places(&backward->attrs, &backward->in[1].type, &backward->in[2].type).m;
    sl_fill_normal(&backward->in[3], seed, 3, 0.1f);
    for (int64_t i = 0; i < n; i++) {
        sl_attention_rows(&backward->attrs, segments->data, segments->type.dim[0], m, i, &first, &end);
        for (int64_t head = 0; head < heads; head++)
            sl_put(lse, head * n + i, (float) (log((double) (end - first)) + 0.5));
    }
}

static void attention_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    fill_segments(launch, how, 5, 1);
    if (how->op_case)
        fill_result(launch);
    else
        fill_plausible(launch, how->seed);
}

static sl_status attention_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_attrs attrs = attrs_of(s);
    const sl_type q = sl_shapes_matrix(shapes, s->n, s->h * s->e), kv = sl_shapes_matrix(shapes, s->n, 2 * s->g * s->e);
    const sl_type segments = sl_type_1d(SL_I32, s->n / s->sequence + 1), lse = sl_type_2d(SL_F32, s->h, s->n);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {q, q, kv, q, lse, segments}, .attrs = &attrs});
}

const sl_op_def sl_op_attention_bwd = {
    SL_OP_PARTS(attention_bwd),
    .category = SL_CAT_ATTENTION,
    .n_in = 6,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_attention_attrs),
    .optional_in = 1u << 2,
    .optional_out = 1u << 1,
    .can_accumulate = 2,
    .work = attention_bwd_work,
    .tolerance = {1e-5, 0.012},
    .backward = true,
    .segments = 5,
    .context_in = 1u << 2,
    .context_out = 1u << 1,
    .place = attention_bwd_place,
    .clear_slice = attention_clear_slice,
    .fill = attention_bwd_fill,
    .shapes = attention_bwd_shapes,
};
