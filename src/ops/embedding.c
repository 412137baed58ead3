/*
 * Embedding: y[i] = W[tokens[i]], a gather of rows from any matrix. embedding_bwd is the scatter, and each is the other's gradient. It
 * sums the rows of dy that share a token, in f32 and in the order of i, and rounds once per launch: adding token by token in bf16
 * would lose small gradients of frequent tokens.
 *
 * Without accumulate every row of dW is written (zeros where no token points); with it only the rows that occur are touched,
 * which is also what work() counts.
 */
#include "ops/embedding.h"
#include "ops/common.h"
#include "ops/fill.h"
#include "ops/shapes.h"

static sl_status embedding_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    (void) attrs;
    SL_TRY(sl_expect_float("embedding", "W", &in[0], 2));
    SL_TRY(sl_expect_index("embedding", "tokens", &in[1], 1));
    out[0] = sl_type_2d(in[0].dtype, in[1].dim[0], in[0].dim[1]);
    return SL_OK;
}

static void embedding_work(const sl_launch *launch, sl_work *work)
{
    sl_work_bytes(launch, work);
    /* Of W only the gathered rows. */
    work->read_bytes += (double) sl_type_bytes(&launch->out[0].type) - (double) sl_type_bytes(&launch->in[0].type);
}

static void embedding_reference(const sl_launch *launch)
{
    int64_t n = launch->out[0].type.dim[0], d = launch->out[0].type.dim[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < d; c++)
            sl_put_out(launch, 0, i * d + c, sl_get(&launch->in[0], sl_get_i32(&launch->in[1], i) * d + c));
}

/* Of the scatter: dy's own gradient is the rows of d dW that its tokens name. */
static sl_status embedding_bwd_gradient(sl_gradient *gradient)
{
    const sl_value in[] = {gradient->d_out[0], gradient->in[1]};
    return sl_gradient_emit(gradient, SL_OP_EMBEDDING, &(const sl_attrs){0}, in, 2, 1);
}

static sl_status embedding_gradient(sl_gradient *gradient)
{
    sl_attrs attrs = {0};
    sl_embedding_set(&attrs)->rows = gradient->in_type[0].dim[0];
    sl_value in[] = {gradient->d_out[0], gradient->in[1]};
    return sl_gradient_emit(gradient, SL_OP_EMBEDDING_BWD, &attrs, in, 2, 1);
}

static const sl_op_case embedding_cases[] = {
    {.name = "f32", .in = {SL_T2(SL_F32, 50, 33), SL_T1(SL_I32, 19)}, .index_range = 50},
    {.name = "bf16", .in = {SL_T2(SL_BF16, 50, 33), SL_T1(SL_I32, 19)}, .index_range = 50},
    {.name = "one row", .in = {SL_T2(SL_F32, 3, 1), SL_T1(SL_I32, 1)}, .index_range = 3},
    {.name = "bf16 wide", .in = {SL_T2(SL_BF16, 1000, 256), SL_T1(SL_I32, 300)}, .index_range = 1000},
    {.name = "f32 accumulate", .in = {SL_T2(SL_F32, 30, 72), SL_T1(SL_I32, 41)}, .index_range = 30, .accumulate = 1},
    {.name = "bf16 accumulate, odd",
     .in = {SL_T2(SL_BF16, 30, 333), SL_T1(SL_I32, 41)},
     .index_range = 30,
     .accumulate = 1},
};

static int64_t range_or(const sl_fill_rule *how, int64_t all)
{
    return how->op_case && how->op_case->index_range ? how->op_case->index_range : all;
}

static void embedding_fill(sl_launch *launch, const sl_fill_rule *how)
{
    sl_fill_index(&launch->in[1], how->seed, 1, range_or(how, launch->in[0].type.dim[0]));
}

static sl_status embedding_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    return sl_shapes_add(shapes, "",
                         &(const sl_op_case){.in = {sl_shapes_matrix(shapes, s->v, s->d), sl_type_1d(SL_I32, s->n)}});
}

const sl_op_def sl_op_embedding = {
    SL_OP_PARTS(embedding),
    .category = SL_CAT_ELEMENTWISE,
    .n_in = 2,
    .n_out = 1,
    .can_accumulate = 1,
    .work = embedding_work,
    .gradient = embedding_gradient,
    .tolerance = {0, 0},
    .fill = embedding_fill,
    .shapes = embedding_shapes,
};

static sl_status embedding_bwd_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out)
{
    SL_TRY(sl_expect_float("embedding_bwd", "dy", &in[0], 2));
    SL_TRY(sl_expect("embedding_bwd", "tokens", &in[1], sl_type_1d(SL_I32, in[0].dim[0])));
    if (sl_embedding_attrs(attrs)->rows < 1)
        return sl_fail(SL_E_INTERNAL, "embedding_bwd: attribute rows (the vocabulary) must be positive but is %lld",
                       (long long) sl_embedding_attrs(attrs)->rows);
    out[0] = sl_type_2d(in[0].dtype, sl_embedding_attrs(attrs)->rows, in[0].dim[1]);
    return SL_OK;
}

static void embedding_bwd_work(const sl_launch *launch, sl_work *work)
{
    sl_work_bytes(launch, work);
    if (sl_accumulates(launch, 0)) {
        double rows = (double) sl_type_count(&launch->in[0].type) * (double) sl_dtype_bytes(launch->out[0].type.dtype);
        work->read_bytes += rows - (double) sl_type_bytes(&launch->out[0].type);
        work->write_bytes = rows;
    }
}

static bool occurs_before(const sl_operand *tokens, int64_t i)
{
    for (int64_t j = 0; j < i; j++)
        if (sl_get_i32(tokens, j) == sl_get_i32(tokens, i))
            return true;
    return false;
}

static void embedding_bwd_reference(const sl_launch *launch)
{
    const sl_operand *dy = &launch->in[0], *tokens = &launch->in[1];
    int64_t n = dy->type.dim[0], d = dy->type.dim[1];
    if (!sl_accumulates(launch, 0))
        for (int64_t i = 0; i < sl_type_count(&launch->out[0].type); i++)
            sl_put(&launch->out[0], i, 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t token = sl_get_i32(tokens, i);
        if (occurs_before(tokens, i))
            continue;
        for (int64_t c = 0; c < d; c++) {
            float sum = 0;
            for (int64_t j = i; j < n; j++)
                if (sl_get_i32(tokens, j) == token)
                    sum += sl_get(dy, j * d + c);
            sl_put_out(launch, 0, token * d + c, sum);
        }
    }
}

static const sl_op_case embedding_bwd_cases[] = {
#define CASE(label, t, n, d, vocabulary, range, acc)                                                               \
    {                                                                                                              \
        .name = label, .in = {SL_T2(t, n, d), SL_T1(SL_I32, n)}, .attrs = SL_ATTRS(embedding, .rows = vocabulary), \
        .index_range = range, .accumulate = acc                                                                    \
    }
    CASE("f32", SL_F32, 19, 33, 50, 50, 0),
    CASE("f32 accumulate, repeated tokens", SL_F32, 67, 20, 9, 5, 1),
    CASE("bf16", SL_BF16, 19, 33, 50, 50, 0),
    CASE("bf16 accumulate, repeated tokens", SL_BF16, 300, 64, 256, 20, 1),
    CASE("one row", SL_F32, 1, 1, 3, 3, 0),
    CASE("f32 accumulate, few words of many tokens", SL_F32, 1000, 24, 70000, 5, 1),
    CASE("bf16 one word", SL_BF16, 200, 40, 7, 1, 0),
#undef CASE
};

static void embedding_bwd_fill(sl_launch *launch, const sl_fill_rule *how)
{
    sl_fill_index(&launch->in[1], how->seed, 1, range_or(how, sl_embedding_attrs(&launch->attrs)->rows));
}

static sl_status embedding_bwd_shapes(sl_op_shapes *shapes)
{
    const sl_op_sizes *s = &shapes->sizes;
    const sl_op_case op_case = {.in = {sl_shapes_wide(shapes), sl_type_1d(SL_I32, s->n)},
                                .attrs = SL_ATTRS(embedding, .rows = s->v)};
    return sl_shapes_add(shapes, "", &op_case);
}

/* Tokens sorted by id, and two f32 rows for every 32 of them. */
static size_t embedding_bwd_estimate(const sl_launch *launch)
{
    const sl_type *dy = &launch->in[0].type;
    size_t rows = (size_t) SL_MAX(dy->dim[0], (int64_t) 1);
    return rows * 16 + SL_DIV_UP(rows, (size_t) 32) * 8 * (size_t) SL_MAX(dy->dim[1], (int64_t) 1);
}

const sl_op_def sl_op_embedding_bwd = {
    SL_OP_PARTS(embedding_bwd),
    .category = SL_CAT_REDUCTION,
    .n_in = 2,
    .n_out = 1,
    .attrs_bytes = sizeof(struct sl_embedding_attrs),
    .can_accumulate = 1,
    .work = embedding_bwd_work,
    .estimate_workspace = embedding_bwd_estimate,
    .gradient = embedding_bwd_gradient,
    .tolerance = {1e-6, SL_BF16_ULP},
    .fill = embedding_bwd_fill,
    .shapes = embedding_bwd_shapes,
};
