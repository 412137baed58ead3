/*
 * Attention of new tokens over the K/V of all tokens so far, which are kept from step to step: generation.
 *
 *   q[n, h*e]   kv[n, 2g*e]   positions[n]   ->   o[n, h*e]   cache[rows, 2g*e]
 *
 *   count = positions[n-1] - positions[0] + 1                       the rows that are tokens (ops/cached_attention.h)
 *   cache[positions[0] + i] = kv[i]                                 for i < count; all other rows stay as they are
 *   o_i = attention of q_i over cache[first .. positions[0] + i]    for i < count, as in ops/attention.c; 0 for the others
 *
 *        cache   0 ........ positions[0] .... positions[0] + count ........ rows
 *                  earlier      the new ones          never read
 *
 * Where the tokens stand is an operand, since launches never change between steps: one program serves every position of a text. Time
 * depends on it; the cost is that of a full cache. It is for inference alone and has no gradient.
 */
#include "ops/cached_attention.h"

#include <math.h>

#include "ops/attention.h"
#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static sl_status cached_attention_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    static const char op[] = "cached_attention";
    const struct sl_cached_attention_attrs *a = sl_cached_attention_attrs(attrs);
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads || a->head_dim < 1 ||
        a->head_dim > SL_ATTENTION_MAX_HEAD_DIM)
        return sl_fail(
            SL_E_INTERNAL,
            "%s: needs heads a multiple of kv_heads and head_dim in 1..%d but has %d heads, %d kv_heads, head_dim %d",
            op, SL_ATTENTION_MAX_HEAD_DIM, a->heads, a->kv_heads, a->head_dim);
    if (a->window < 0 || !(a->cap >= 0))
        return sl_fail(SL_E_INTERNAL, "%s: window and soft cap must be positive, or 0 for none, but are %lld and %g",
                       op, (long long) a->window, (double) a->cap);
    SL_TRY(sl_expect_float(op, "q", &in[0], 2));
    const int64_t n = in[0].dim[0], q = (int64_t) a->heads * a->head_dim, kv = 2 * (int64_t) a->kv_heads * a->head_dim;
    SL_TRY(sl_expect(op, "q", &in[0], sl_type_2d(in[0].dtype, n, q)));
    SL_TRY(sl_expect(op, "kv", &in[1], sl_type_2d(in[0].dtype, n, kv)));
    SL_TRY(sl_expect(op, "positions", &in[2], sl_type_1d(SL_I32, n)));
    if (a->rows < n)
        return sl_fail(SL_E_INTERNAL, "%s: %lld new rows do not fit a cache of %lld", op, (long long) n,
                       (long long) a->rows);
    out[0] = in[0];
    out[1] = sl_type_2d(in[0].dtype, a->rows, kv);
    return SL_OK;
}

/* Rows that all queries of a launch see where the cache is full. */
static double full_pairs(const sl_launch *launch)
{
    const struct sl_cached_attention_attrs *a = sl_cached_attention_attrs(&launch->attrs);
    double pairs = 0, n = (double) launch->in[0].type.dim[0];
    for (double i = 0; i < n; i++) {
        double seen = (double) a->rows - n + i + 1;
        pairs += a->window > 0 ? fmin(seen, (double) a->window) : seen;
    }
    return pairs;
}

static void cached_attention_work(const sl_launch *launch, sl_work *work)
{
    const struct sl_cached_attention_attrs *a = sl_cached_attention_attrs(&launch->attrs);
    const double new_bytes = (double) sl_type_bytes(&launch->in[1].type);
    const double cache = (double) sl_type_bytes(&launch->out[1].type), rows = (double) a->rows;
    sl_work_flops(launch, 4 * full_pairs(launch) * (double) a->heads * a->head_dim, work);
    work->read_bytes = (double) sl_type_bytes(&launch->in[0].type) + new_bytes +
                       cache * (a->window > 0 ? fmin(1, (double) a->window / rows) : 1);
    work->write_bytes = (double) sl_type_bytes(&launch->out[0].type) + new_bytes;
}

/* One head of a query: its row of q and o, and its K/V head. */
static void attend(const sl_launch *launch, int64_t i, int64_t position, int64_t head)
{
    const struct sl_cached_attention_attrs *a = sl_cached_attention_attrs(&launch->attrs);
    const sl_operand *q = &launch->in[0], *cache = &launch->out[1];
    const int64_t e = a->head_dim, width = 2 * a->kv_heads * e, query = (i * a->heads + head) * e;
    const int64_t k = head / (a->heads / a->kv_heads) * e, v = k + a->kv_heads * e;
    double largest = -INFINITY, sum = 0, o[SL_ATTENTION_MAX_HEAD_DIM] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = sl_cached_first(&launch->attrs, position); j <= position; j++) {
            double s = 0, cap = a->cap;
            for (int64_t c = 0; c < e; c++)
                s += (double) sl_get(q, query + c) * sl_get(cache, j * width + k + c);
            s = cap > 0 ? cap * tanh(a->scale * s / cap) : a->scale * s;
            if (pass == 0) {
                largest = fmax(largest, s);
                continue;
            }
            sum += exp(s - largest);
            for (int64_t c = 0; c < e; c++)
                o[c] += exp(s - largest) * sl_get(cache, j * width + v + c);
        }
    for (int64_t c = 0; c < e; c++)
        sl_put_out(launch, 0, query + c, o[c] / sum);
}

static void cached_attention_reference(const sl_launch *launch)
{
    const sl_operand *kv = &launch->in[1];
    const int32_t *positions = launch->in[2].data;
    const int64_t n = launch->in[0].type.dim[0], width = kv->type.dim[1], heads = launch->in[0].type.dim[1];
    const int64_t count = sl_cached_count(positions, n);
    for (int64_t i = 0; i < count * width; i++)
        sl_put_out(launch, 1, positions[0] * width + i, sl_get(kv, i));
    for (int64_t i = 0; i < count; i++)
        for (int64_t head = 0; head < sl_cached_attention_attrs(&launch->attrs)->heads; head++)
            attend(launch, i, positions[0] + i, head);
    for (int64_t i = count * heads; i < n * heads; i++)
        sl_put_out(launch, 0, i, 0);
}

/* A case's `index_range` is the first position, its `segments` the rows that are tokens (0: all). */
static void cached_attention_fill(sl_launch *launch, const sl_fill_rule *how)
{
    const int64_t n = launch->in[2].type.dim[0], rows = launch->out[1].type.dim[0];
    const int64_t first = how->op_case ? how->op_case->index_range : rows - n;
    const int64_t count = how->op_case && how->op_case->segments ? how->op_case->segments : n;
    for (int64_t i = 0; i < n; i++)
        ((int32_t *) launch->in[2].data)[i] = (int32_t) (first + SL_MIN(i, count - 1));
}

#define CASE(label, t, n, held, first, tokens, h, g, e, ...)                                                     \
    {                                                                                                            \
        .name = label, .in = {SL_T2(t, n, (h) * (e)), SL_T2(t, n, 2 * (g) * (e)), SL_T1(SL_I32, n)},             \
        .index_range = first, .segments = tokens,                                                                \
        .attrs = SL_ATTRS(cached_attention, .heads = h, .kv_heads = g, .head_dim = e, .rows = held, __VA_ARGS__) \
    }
static const sl_op_case cached_attention_cases[] = {
    CASE("f32 one token", SL_F32, 1, 40, 25, 0, 4, 2, 16, .scale = 0.25f),
    CASE("f32 the first token", SL_F32, 1, 9, 0, 0, 3, 3, 24, .scale = 0.2f),
    CASE("f32 the last row", SL_F32, 1, 130, 129, 0, 4, 1, 64, .scale = 0.125f),
    CASE("f32 many", SL_F32, 70, 200, 99, 0, 4, 2, 32, .scale = 0.17f),
    CASE("f32 many, from the first", SL_F32, 70, 100, 0, 0, 2, 2, 20, .scale = 0.2f),
    CASE("f32 fewer tokens than rows", SL_F32, 16, 64, 7, 5, 4, 2, 16, .scale = 0.25f),
    CASE("f32 a token of many rows", SL_F32, 8, 64, 40, 1, 4, 4, 8, .scale = 0.35f),
    CASE("f32 window", SL_F32, 9, 64, 30, 0, 4, 2, 16, .scale = 0.25f, .window = 12),
    CASE("f32 window, cap", SL_F32, 1, 300, 290, 0, 4, 2, 16, .scale = 0.5f, .window = 100, .cap = 2),
    CASE("bf16 one token", SL_BF16, 1, 600, 555, 0, 8, 2, 128, .scale = 0.088f),
    CASE("bf16 many", SL_BF16, 33, 300, 200, 0, 8, 2, 64, .scale = 0.125f),
    CASE("bf16 fewer tokens, odd head, window", SL_BF16, 12, 90, 60, 9, 3, 1, 20, .scale = 0.2f, .window = 33),
};
#undef CASE

/* One token at a model's sizes. */
static sl_status cached_attention_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    sl_attrs attrs = {{0}};
    *sl_cached_attention_set(&attrs) =
        *SL_ATTRS(cached_attention, .heads = (int32_t) s->h, .kv_heads = (int32_t) s->g, .head_dim = (int32_t) s->e,
                  .scale = (float) (1 / sqrt((double) s->e)), .rows = s->n);
    const sl_type q = sl_shapes_matrix(shapes, 1, s->h * s->e), kv = sl_shapes_matrix(shapes, 1, 2 * s->g * s->e);
    return sl_shapes_add(shapes, "", &(const sl_op_case){.in = {q, kv, sl_type_1d(SL_I32, 1)}, .attrs = &attrs});
}

const sl_op_def sl_op_cached_attention = {
    SL_OP_PARTS(cached_attention),
    .category = SL_CAT_ATTENTION,
    .n_in = 3,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_cached_attention_attrs),
    .updates = 1u << 1,
    .work = cached_attention_work,
    .tolerance = {5e-6, 0.01},
    .makes_cache = 1u << 1,
    .fill = cached_attention_fill,
    .shapes = cached_attention_shapes,
};
