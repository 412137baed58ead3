/*
 * Rotary embedding by a table of cosines and sines, and the split of the fused projection, as rope does it (ops/rope.c). rope computes
 * its angles from a position; a table serves where they follow no such formula: grids of two or three axes, tokens that are not
 * turned, several bases in one sequence.
 *
 *     table row:  [ cosines: e | sines: e ]        row t is for the t-th token of every sample, so rows of x come in whole samples
 *
 * A head is cut into blocks, one for each axis. Element c of a block's first half has partner p = c + block/2 and y = x[c] cos[c] -
 * x[p] sin[c]; of its second half p = c - block/2 and y = x[c] cos[c] + x[p] sin[c]. The two of a pair have angles of their own, since
 * ViT-5 gives them different ones; so this is no rotation in general, and the backward is its transpose:
 *     first half  dx = dy[c] cos[c] + dy[p] sin[p]        second half  dx = dy[c] cos[c] - dy[p] sin[p]
 *
 * The table is f32 whatever the activations are, and no gradient flows to it.
 */
#include "ops/rope_table.h"

#include "ops/common.h"
#include "ops/shapes.h"

static sl_status check(const char *op, const sl_attrs *attrs, const sl_type *table, int64_t rows)
{
    const struct sl_rope_table_attrs *a = sl_rope_table_attrs(attrs);
    if (a->heads < 1 || a->kv_heads < 1 || a->head_dim < 1 || a->block < 2 || a->block % 2 || a->head_dim % a->block)
        return sl_fail(SL_E_INTERNAL,
                       "%s: needs positive heads and kv_heads, and a head_dim of whole blocks of an even number of "
                       "elements, but they are %d, %d, %d and %d",
                       op, a->heads, a->kv_heads, a->head_dim, a->block);
    SL_TRY(sl_expect_float(op, "table", table, 2));
    SL_TRY(sl_expect(op, "table", table, sl_type_2d(SL_F32, table->dim[0], 2 * (int64_t) a->head_dim)));
    return rows % table->dim[0] == 0
               ? SL_OK
               : sl_fail(SL_E_INTERNAL, "%s: %lld rows are no whole samples of the table's %lld rows", op,
                         (long long) rows, (long long) table->dim[0]);
}

static int64_t q_width(const sl_attrs *attrs)
{
    return (int64_t) sl_rope_table_attrs(attrs)->heads * sl_rope_table_attrs(attrs)->head_dim;
}

static int64_t kv_width(const sl_attrs *attrs)
{
    return 2 * (int64_t) sl_rope_table_attrs(attrs)->kv_heads * sl_rope_table_attrs(attrs)->head_dim;
}

static sl_status rope_table_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("rope_table", "qkv", &in[0], 2));
    SL_TRY(check("rope_table", attrs, &in[1], in[0].dim[0]));
    const int64_t n = in[0].dim[0], q = q_width(attrs), kv = kv_width(attrs);
    SL_TRY(sl_expect("rope_table", "qkv", &in[0], sl_type_2d(in[0].dtype, n, q + kv)));
    out[0] = sl_type_2d(in[0].dtype, n, q);
    out[1] = sl_type_2d(in[0].dtype, n, kv);
    return SL_OK;
}

/* One head of one row. */
static void turn(const sl_launch *launch, const sl_operand *table, const sl_operand *x, int64_t from,
                 const sl_operand *y, int64_t to, int64_t row, bool transposed)
{
    const int64_t e = sl_rope_table_attrs(&launch->attrs)->head_dim, block = sl_rope_table_attrs(&launch->attrs)->block;
    const int64_t cosines = row % table->type.dim[0] * 2 * e, sines = cosines + e;
    for (int64_t c = 0; c < e; c++) {
        const bool first = c % block < block / 2;
        const int64_t partner = first ? c + block / 2 : c - block / 2;
        double sine = sl_get(table, sines + (transposed ? partner : c));
        sine = first == transposed ? sine : -sine;
        sl_put(y, to + c,
               (float) ((double) sl_get(x, from + c) * sl_get(table, cosines + c) + sl_get(x, from + partner) * sine));
    }
}

static void rope_table_reference(const sl_launch *launch)
{
    const sl_operand *qkv = &launch->in[0], *table = &launch->in[1], *q = &launch->out[0], *kv = &launch->out[1];
    const int64_t e = sl_rope_table_attrs(&launch->attrs)->head_dim;
    const int64_t q_columns = q->type.dim[1], kv_columns = kv->type.dim[1];
    for (int64_t i = 0; i < qkv->type.dim[0]; i++) {
        const int64_t row = i * (q_columns + kv_columns);
        for (int64_t c = 0; c < q_columns; c += e)
            turn(launch, table, qkv, row + c, q, i * q_columns + c, i, false);
        for (int64_t c = 0; c < kv_columns / 2; c += e)
            turn(launch, table, qkv, row + q_columns + c, kv, i * kv_columns + c, i, false);
        for (int64_t c = kv_columns / 2; c < kv_columns; c++)
            sl_put(kv, i * kv_columns + c, sl_get(qkv, row + q_columns + c));
    }
}

static sl_status rope_table_gradient(sl_gradient *gradient)
{
    if (gradient->need[1])
        return sl_fail(SL_E_INTERNAL, "rope_table: the table has no gradient; freeze it");
    if (!gradient->need[0] || (gradient->d_out[0] == SL_NO_VALUE && gradient->d_out[1] == SL_NO_VALUE))
        return SL_OK;
    if (gradient->d_out[0] == SL_NO_VALUE || gradient->d_out[1] == SL_NO_VALUE)
        return sl_fail(SL_E_INTERNAL,
                       "rope_table: its gradient needs those of both q and kv; use both outputs in the model");
    const sl_value in[] = {gradient->d_out[0], gradient->d_out[1], gradient->in[1]};
    return gradient->emit(gradient, SL_OP_ROPE_TABLE_BWD, gradient->attrs, in, 3, (const int[]){0}, 1);
}

#define ATTRS(h, g, e, block) .attrs = SL_ATTRS(rope_table, h, g, e, block)
#define CASE(label, t, n, samples, h, g, e, block)                                                      \
    {                                                                                                   \
        .name = label, .in = {SL_T2(t, (n) * (samples), (h + 2 * g) * (e)), SL_T2(SL_F32, n, 2 * (e))}, \
        ATTRS(h, g, e, block)                                                                           \
    }
static const sl_op_case rope_table_cases[] = {
    CASE("f32 two axes", SL_F32, 7, 2, 4, 2, 16, 8),          CASE("f32 one axis", SL_F32, 5, 3, 2, 2, 32, 32),
    CASE("f32 three axes, tail", SL_F32, 3, 1, 3, 1, 66, 22), CASE("f32 pairs", SL_F32, 1, 4, 1, 1, 2, 2),
    CASE("bf16 two axes", SL_BF16, 201, 2, 6, 6, 64, 32),     CASE("bf16 tail", SL_BF16, 9, 2, 2, 1, 20, 10),
};
#undef CASE

static sl_status rope_table_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_type qkv = sl_shapes_matrix(shapes, s->n, (s->h + 2 * s->g) * s->e);
    const sl_op_case op_case = {.in = {qkv, sl_type_2d(SL_F32, s->n, 2 * s->e)},
                                ATTRS((int32_t) s->h, (int32_t) s->g, (int32_t) s->e, (int32_t) s->e)};
    return sl_shapes_add(shapes, "", &op_case);
}

const sl_op_def sl_op_rope_table = {
    SL_OP_PARTS(rope_table),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 2,
    .attrs_bytes = sizeof(struct sl_rope_table_attrs),
    .work = sl_work_bytes,
    .gradient = rope_table_gradient,
    .fixed_in = 1u << 1,
    .tolerance = {1e-6, SL_BF16_ULP},
    .any_values = true,
    .makes_context = 1u << 1,
    .shapes = rope_table_shapes,
};

static sl_status rope_table_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("rope_table_bwd", "dq", &in[0], 2));
    SL_TRY(check("rope_table_bwd", attrs, &in[2], in[0].dim[0]));
    const int64_t n = in[0].dim[0], q = q_width(attrs), kv = kv_width(attrs);
    SL_TRY(sl_expect("rope_table_bwd", "dq", &in[0], sl_type_2d(in[0].dtype, n, q)));
    SL_TRY(sl_expect("rope_table_bwd", "dkv", &in[1], sl_type_2d(in[1].dtype == SL_F32 ? SL_F32 : in[0].dtype, n, kv)));
    out[0] = sl_type_2d(in[0].dtype, n, q + kv);
    return SL_OK;
}

static void rope_table_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dq = &launch->in[0], *dkv = &launch->in[1], *table = &launch->in[2], *dqkv = &launch->out[0];
    const int64_t e = sl_rope_table_attrs(&launch->attrs)->head_dim;
    const int64_t q_columns = dq->type.dim[1], kv_columns = dkv->type.dim[1];
    for (int64_t i = 0; i < dq->type.dim[0]; i++) {
        const int64_t row = i * (q_columns + kv_columns);
        for (int64_t c = 0; c < q_columns; c += e)
            turn(launch, table, dq, i * q_columns + c, dqkv, row + c, i, true);
        for (int64_t c = 0; c < kv_columns / 2; c += e)
            turn(launch, table, dkv, i * kv_columns + c, dqkv, row + q_columns + c, i, true);
        for (int64_t c = kv_columns / 2; c < kv_columns; c++)
            sl_put(dqkv, row + q_columns + c, sl_get(dkv, i * kv_columns + c));
    }
}

#define CASE(label, t, tkv, n, samples, h, g, e, block)                                          \
    {                                                                                            \
        .name = label,                                                                           \
        .in = {SL_T2(t, (n) * (samples), (h) * (e)), SL_T2(tkv, (n) * (samples), 2 * (g) * (e)), \
               SL_T2(SL_F32, n, 2 * (e))},                                                       \
        ATTRS(h, g, e, block)                                                                    \
    }
static const sl_op_case rope_table_bwd_cases[] = {
    CASE("f32 two axes", SL_F32, SL_F32, 7, 2, 4, 2, 16, 8),
    CASE("f32 three axes, tail", SL_F32, SL_F32, 3, 1, 3, 1, 66, 22),
    CASE("bf16 two axes", SL_BF16, SL_BF16, 201, 2, 6, 6, 64, 32),
    CASE("bf16 two axes, dkv f32", SL_BF16, SL_F32, 33, 2, 4, 2, 32, 16),
    CASE("bf16 tail, dkv f32", SL_BF16, SL_F32, 9, 2, 2, 1, 20, 10),
};
#undef CASE

static sl_status rope_table_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_type q = sl_shapes_matrix(shapes, s->n, s->h * s->e), kv = sl_shapes_matrix(shapes, s->n, 2 * s->g * s->e);
    const sl_op_case op_case = {.in = {q, kv, sl_type_2d(SL_F32, s->n, 2 * s->e)},
                                ATTRS((int32_t) s->h, (int32_t) s->g, (int32_t) s->e, (int32_t) s->e)};
    return sl_shapes_add(shapes, "", &op_case);
}
#undef ATTRS

const sl_op_def sl_op_rope_table_bwd = {
    SL_OP_PARTS(rope_table_bwd),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 3,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_rope_table_attrs),
    .work = sl_work_bytes,
    .tolerance = {1e-6, SL_BF16_ULP},
    .backward = true,
    .any_values = true,
    .shapes = rope_table_bwd_shapes,
};
