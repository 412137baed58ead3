#include "bench/op_shapes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/fill.h"

typedef struct builder {
    sl_op_id op;
    sl_dtype dtype;
    const sl_op_sizes *s;
    sl_op_variant *out;
    int count;
} builder;

static sl_type matrix(const builder *b, int64_t rows, int64_t columns)
{
    return sl_type_2d(b->dtype, rows, columns);
}

static sl_type vector(sl_dtype dtype, int64_t n)
{
    return sl_type_1d(dtype, n);
}

/* Output types come from the op's own rule. */
static sl_status add(builder *b, const char *suffix, const sl_op_case *c)
{
    sl_op_variant *v = &b->out[b->count];
    SL_TRY(sl_op_case_launch(b->op, c, &v->launch));
    snprintf(v->name, sizeof v->name, "%s%s%s", sl_op(b->op)->name, suffix[0] ? " " : "", suffix);
    b->count++;
    return SL_OK;
}

static sl_status add_matmul(builder *b, const char *suffix, int64_t m, int64_t n, int64_t k, int ta, int tb,
                            uint32_t accumulate)
{
    sl_op_case c = {.accumulate = accumulate};
    c.attrs.matmul.trans_a = ta;
    c.attrs.matmul.trans_b = tb;
    c.in[0] = ta ? matrix(b, k, m) : matrix(b, m, k);
    c.in[1] = tb ? matrix(b, n, k) : matrix(b, k, n);
    return add(b, suffix, &c);
}

static sl_status add_norm(builder *b, bool backward, bool layernorm)
{
    const sl_op_sizes *s = b->s;
    sl_op_case c = {.attrs.norm.eps = 1e-5f};
    sl_type x = matrix(b, s->n, s->d), w = vector(b->dtype, s->d), row = vector(SL_F32, s->n);
    int i = 0;
    if (backward)
        c.in[i++] = x; /* dy */
    c.in[i++] = x;
    c.in[i++] = w;
    if (layernorm && !backward)
        c.in[i++] = w;
    if (layernorm && backward)
        c.in[i++] = row;
    if (backward)
        c.in[i++] = row;
    SL_TRY(add(b, "", &c));
    if (!backward || !layernorm)
        return SL_OK;
    c.optional_out = true;
    c.accumulate = 1;
    return add(b, "added, with sums", &c);
}

static sl_status add_rope(builder *b, bool backward)
{
    const sl_op_sizes *s = b->s;
    sl_op_case c = {.attrs.rope = {.heads = (int32_t) s->h,
                                   .kv_heads = (int32_t) s->g,
                                   .head_dim = (int32_t) s->e,
                                   .style = SL_ROPE_HALF,
                                   .theta = 10000}};
    sl_type positions = vector(SL_I32, s->n), q = matrix(b, s->n, s->h * s->e), kv = matrix(b, s->n, 2 * s->g * s->e);
    c.in[0] = backward ? q : matrix(b, s->n, (s->h + 2 * s->g) * s->e);
    c.in[1] = backward ? kv : positions;
    if (backward)
        c.in[2] = positions;
    return add(b, "", &c);
}

static sl_status add_attention(builder *b, bool backward)
{
    const sl_op_sizes *s = b->s;
    sl_op_case c = {.attrs.attention = {.heads = (int32_t) s->h,
                                        .kv_heads = (int32_t) s->g,
                                        .head_dim = (int32_t) s->e,
                                        .causal = 1,
                                        .scale = (float) (1 / sqrt((double) s->e)),
                                        .sequence = s->sequence,
                                        .uniform = s->sequence}};
    sl_type q = matrix(b, s->n, s->h * s->e), kv = matrix(b, s->n, 2 * s->g * s->e);
    sl_type segments = vector(SL_I32, s->n / s->sequence + 1), lse = sl_type_2d(SL_F32, s->h, s->n);
    int i = 0;
    if (backward)
        c.in[i++] = q; /* do */
    c.in[i++] = q;
    c.in[i++] = kv;
    if (backward) {
        c.in[i++] = q; /* o */
        c.in[i++] = lse;
    }
    c.in[i] = segments;
    return add(b, "", &c);
}

static sl_status add_head(builder *b, bool backward)
{
    const sl_op_sizes *s = b->s;
    sl_op_case c = {.attrs.head = {.block = SL_MIN(s->n, 1024), .ignore = -100}};
    c.in[0] = matrix(b, s->n, s->d);
    c.in[1] = matrix(b, s->v, s->d);
    c.in[2] = vector(SL_I32, s->n);
    if (backward)
        c.in[3] = vector(SL_I32, SL_STEP_WORDS);
    return add(b, "", &c);
}

/* With everything in the dtype, and for bf16 also with f32 moments and master weights. */
static sl_status add_optimizer(builder *b)
{
    for (int master = 0; master < (b->dtype == SL_BF16 ? 2 : 1); master++) {
        sl_op_case c = {.optional_out = master};
        if (b->op == SL_OP_ADAMW) {
            c.attrs.adamw.beta1 = 0.9f, c.attrs.adamw.beta2 = 0.95f, c.attrs.adamw.eps = 1e-8f;
            c.attrs.adamw.weight_decay = 0.1f, c.attrs.adamw.decayed = b->s->p;
            c.attrs.adamw.stochastic = b->dtype == SL_BF16 && !master;
        } else {
            c.attrs.sgd.momentum = 0.9f, c.attrs.sgd.weight_decay = 0.1f, c.attrs.sgd.decayed = b->s->p;
            c.attrs.sgd.stochastic = b->dtype == SL_BF16 && !master;
        }
        c.in[0] = vector(b->dtype, b->s->p);
        c.in[1] = vector(SL_I32, SL_STEP_WORDS);
        SL_TRY(add(b, master ? "master" : "", &c));
    }
    return SL_OK;
}

/* For an op that came after this file. */
static sl_status add_largest_case(builder *b)
{
    const sl_op_def *def = sl_op(b->op);
    const sl_op_case *largest = NULL;
    size_t most = 0;
    for (int64_t c = 0; c < def->n_cases; c++) {
        size_t bytes = 0;
        for (int i = 0; i < def->n_in; i++)
            bytes += sl_type_bytes(&def->cases[c].in[i]);
        if (def->cases[c].in[0].dtype == b->dtype && bytes > most)
            most = bytes, largest = &def->cases[c];
    }
    return largest ? add(b, "(test shape)", largest) : SL_OK;
}

static sl_status build(builder *b)
{
    const sl_op_sizes *s = b->s;
    sl_op_case c = {.name = NULL};
    sl_type wide = matrix(b, s->n, s->d), hidden = matrix(b, s->n, s->f), tokens = vector(SL_I32, s->n);
    switch (b->op) {
    case SL_OP_EMBEDDING:
        c.in[0] = matrix(b, s->v, s->d);
        c.in[1] = tokens;
        return add(b, "", &c);
    case SL_OP_EMBEDDING_BWD:
        c.in[0] = wide;
        c.in[1] = tokens;
        c.attrs.embedding.rows = s->v;
        return add(b, "", &c);
    case SL_OP_RMSNORM:
    case SL_OP_RMSNORM_BWD:
        return add_norm(b, b->op == SL_OP_RMSNORM_BWD, false);
    case SL_OP_LAYERNORM:
    case SL_OP_LAYERNORM_BWD:
        return add_norm(b, b->op == SL_OP_LAYERNORM_BWD, true);
    case SL_OP_MATMUL:
        SL_TRY(add_matmul(b, "x W^T", s->n, 2 * s->f, s->d, 0, 1, 0));
        SL_TRY(add_matmul(b, "dy W", s->n, s->d, s->f, 0, 0, 0));
        return add_matmul(b, "dy^T x, added", s->f, s->d, s->n, 1, 0, 1);
    case SL_OP_BIAS_GRAD:
    case SL_OP_SCALE:
        c.in[0] = wide;
        if (b->op == SL_OP_SCALE)
            c.attrs.scale.value = 0.5f;
        return add(b, "", &c);
    case SL_OP_CAST:
        c.in[0] = wide;
        return add(b, b->dtype == SL_F32 ? "to bf16" : "to f32", &c);
    case SL_OP_ROPE:
    case SL_OP_ROPE_BWD:
        return add_rope(b, b->op == SL_OP_ROPE_BWD);
    case SL_OP_ATTENTION:
    case SL_OP_ATTENTION_BWD:
        return add_attention(b, b->op == SL_OP_ATTENTION_BWD);
    case SL_OP_SWIGLU:
        c.in[0] = matrix(b, s->n, 2 * s->f);
        return add(b, "", &c);
    case SL_OP_SWIGLU_BWD:
        c.in[0] = hidden;
        c.in[1] = matrix(b, s->n, 2 * s->f);
        return add(b, "", &c);
    case SL_OP_GELU:
        c.in[0] = hidden;
        return add(b, "", &c);
    case SL_OP_GELU_BWD:
        c.in[0] = c.in[1] = hidden;
        SL_TRY(add(b, "", &c));
        c.optional_out = true;
        return add(b, "with sums", &c);
    case SL_OP_ADD:
        c.in[0] = c.in[1] = wide;
        return add(b, "", &c);
    case SL_OP_SOFTMAX:
    case SL_OP_SOFTMAX_BWD:
        c.in[0] = matrix(b, s->sequence, s->sequence);
        if (b->op == SL_OP_SOFTMAX_BWD)
            c.in[1] = c.in[0];
        c.attrs.softmax.scale = 0.125f;
        c.attrs.softmax.causal = 1;
        return add(b, "", &c);
    case SL_OP_DROPOUT:
        c.in[0] = wide;
        c.in[1] = vector(SL_I32, SL_STEP_WORDS);
        c.attrs.dropout.probability = 0.1f;
        return add(b, "", &c);
    case SL_OP_HEAD_LOSS:
    case SL_OP_HEAD_LOSS_BWD:
        return add_head(b, b->op == SL_OP_HEAD_LOSS_BWD);
    case SL_OP_SUM_SQUARES:
        c.in[0] = vector(b->dtype, s->p);
        return add(b, "", &c);
    case SL_OP_ADAMW:
    case SL_OP_SGD:
        return add_optimizer(b);
    default:
        return add_largest_case(b);
    }
}

sl_status sl_op_variants(sl_op_id op, sl_dtype dtype, const sl_op_sizes *sizes, sl_op_variant out[SL_MOST_VARIANTS],
                         int *count)
{
    builder b = {.op = op, .dtype = dtype, .s = sizes, .out = out};
    memset(out, 0, SL_MOST_VARIANTS * sizeof *out);
    SL_TRY(build(&b));
    *count = b.count;
    return SL_OK;
}
