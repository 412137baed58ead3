/*
 * Attention as cuDNN's graph API takes it: the score matrix is an intermediate of the graph and never exists in memory.
 *
 *   forward    S = Q K^T scale, masked;  P = softmax(S);  O = P V;  lse kept
 *   backward   D = rowsum(dO O);  P = exp(S - lse);  dV = P^T dO;  dS = P (dO V^T - D) scale;  dK = dS^T Q;  dQ = dS K
 *
 * K/V heads shared by several query heads are summed inside the graph. q, k and v are read, and their gradients written, where
 * they lie, in rows of their own or side by side: it is all strides to cuDNN.
 *
 * A graph that writes dQ in one piece is the deterministic one. On Hopper it writes dS to its workspace, 2 bytes for each pair of
 * query and key of each head, and multiplies by K afterwards. Where any order will do, an f32 dQ of its own takes what each block
 * of keys has to add, as atomics, and is rounded at the end.
 */
#include <stdlib.h>

#include "device/cuda/attention/attention_graph.h"

typedef struct attention_plan {
    sl_cuda_cached base;
    sl_dnn_graph graph;
    bool refused; /* cuDNN did not take it */
} attention_plan;

static void plan_destroy(sl_cuda_cached *cached)
{
    sl_dnn_destroy(&((attention_plan *) cached)->graph);
    free(cached);
}

typedef struct builder {
    sl_dnn_graph *g;
    const sl_graph_shape *s;
    sl_dnn_shape q, o, k, k_t, v, v_t, scores, scores_t, row, stats;
} builder;

static sl_dnn_shape make(int64_t b, int64_t h, int64_t m, int64_t n, int64_t sb, int64_t sh, int64_t sm, int64_t sn)
{
    sl_dnn_shape x = {{b, h, m, n}, {sb, sh, sm, sn}};
    return x;
}

static builder begin(sl_dnn_graph *g, const sl_graph_shape *s)
{
    int64_t b = s->batch, h = s->heads, kh = s->kv_heads, m = s->q_rows, n = s->kv_rows, e = s->head_dim, w = s->width,
            ow = s->o_width, kw = s->kv_width;
    builder x = {.g = g, .s = s};
    x.q = make(b, h, m, e, m * w, e, w, 1);
    x.o = make(b, h, m, e, m * ow, e, ow, 1);
    x.k = make(b, kh, n, e, n * kw, e, kw, 1);
    x.k_t = make(b, kh, e, n, n * kw, e, 1, kw);
    x.v = x.k, x.v_t = x.k_t;
    x.scores = make(b, h, m, n, h * m * n, m * n, n, 1);
    x.scores_t = make(b, h, n, m, h * m * n, m * n, 1, n);
    x.row = make(b, h, m, 1, h * m, m, 1, 1);
    x.stats = make(b, h, m, 1, m, s->rows, 1, 1); /* lse is [heads, rows of the chunk] */
    return x;
}

static sl_dnn_tensor point(builder *x, cudnnPointwiseMode_t mode, sl_dnn_tensor a, sl_dnn_tensor b,
                           const sl_dnn_shape *like)
{
    sl_dnn_tensor y = sl_dnn_virtual(x->g, like, CUDNN_DATA_FLOAT);
    sl_dnn_pointwise(x->g, mode, CUDNN_DATA_FLOAT, -1, a, b, NULL, y);
    return y;
}

static sl_dnn_tensor integer(builder *x, cudnnPointwiseMode_t mode, int64_t axis, sl_dnn_tensor a, sl_dnn_tensor b)
{
    sl_dnn_tensor y = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_INT32);
    sl_dnn_pointwise(x->g, mode, mode == CUDNN_POINTWISE_GEN_INDEX ? CUDNN_DATA_FLOAT : CUDNN_DATA_INT32, axis, a, b,
                     NULL, y);
    return y;
}

/* Keeps scores where row + kv_rows - q_rows >= column, puts a very negative number elsewhere. */
static sl_dnn_tensor mask(builder *x, sl_dnn_tensor scores)
{
    if (!x->s->causal)
        return scores;
    sl_dnn_tensor row = integer(x, CUDNN_POINTWISE_GEN_INDEX, 2, scores, NULL),
                  column = integer(x, CUDNN_POINTWISE_GEN_INDEX, 3, scores, NULL);
    if (x->s->q_rows != x->s->kv_rows) {
        row = integer(x, CUDNN_POINTWISE_ADD, 3, row, sl_dnn_scalar(x->g, SL_ID_LEN_KV, CUDNN_DATA_INT32));
        row = integer(x, CUDNN_POINTWISE_SUB, 3, row, sl_dnn_scalar(x->g, SL_ID_LEN_Q, CUDNN_DATA_INT32));
    }
    sl_dnn_tensor keep = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_BOOLEAN),
                  y = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL, keep);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores,
                     sl_dnn_scalar(x->g, SL_ID_MASKED, CUDNN_DATA_FLOAT), keep, y);
    return y;
}

static void build_forward(builder *x)
{
    sl_dnn_tensor q = sl_dnn_bound(x->g, SL_ID_Q, &x->q, CUDNN_DATA_BFLOAT16),
                  k = sl_dnn_bound(x->g, SL_ID_K, &x->k_t, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor v = sl_dnn_bound(x->g, SL_ID_V, &x->v, CUDNN_DATA_BFLOAT16),
                  o = sl_dnn_bound(x->g, SL_ID_O, &x->o, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor stats = sl_dnn_bound(x->g, SL_ID_STATS, &x->stats, CUDNN_DATA_FLOAT);
    sl_dnn_tensor raw = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, q, k, raw);
    sl_dnn_tensor s =
        mask(x, point(x, CUDNN_POINTWISE_MUL, raw, sl_dnn_scalar(x->g, SL_ID_SCALE, CUDNN_DATA_FLOAT), &x->scores));
    sl_dnn_tensor most = sl_dnn_virtual(x->g, &x->row, CUDNN_DATA_FLOAT),
                  total = sl_dnn_virtual(x->g, &x->row, CUDNN_DATA_FLOAT);
    sl_dnn_reduce(x->g, CUDNN_REDUCE_TENSOR_MAX, s, most);
    sl_dnn_tensor e =
        point(x, CUDNN_POINTWISE_EXP, point(x, CUDNN_POINTWISE_SUB, s, most, &x->scores), NULL, &x->scores);
    sl_dnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, e, total);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, most,
                     point(x, CUDNN_POINTWISE_LOG, total, NULL, &x->row), NULL, stats);
    sl_dnn_tensor p = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_BFLOAT16);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, e, total, NULL, p);
    sl_dnn_matmul(x->g, p, v, o);
}

/* d = transpose(weights) * rows, summed over the query heads that share a K/V head. */
static void key_gradient(builder *x, sl_dnn_tensor weights, sl_dnn_tensor rows, int64_t id)
{
    const sl_graph_shape *s = x->s;
    sl_dnn_tensor transposed = sl_dnn_virtual(x->g, &x->scores_t, CUDNN_DATA_BFLOAT16);
    sl_dnn_reshape(x->g, weights, transposed);
    sl_dnn_tensor d = sl_dnn_bound(x->g, id, &x->k, CUDNN_DATA_BFLOAT16);
    if (s->heads == s->kv_heads) {
        sl_dnn_matmul(x->g, transposed, rows, d);
        return;
    }
    sl_dnn_shape full = make(s->batch, s->heads, s->kv_rows, s->head_dim, s->heads * s->kv_rows * s->head_dim,
                             s->kv_rows * s->head_dim, s->head_dim, 1);
    sl_dnn_tensor all = sl_dnn_virtual(x->g, &full, CUDNN_DATA_BFLOAT16);
    sl_dnn_matmul(x->g, transposed, rows, all);
    sl_dnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, all, d);
}

static void build_backward(builder *x)
{
    sl_dnn_tensor q = sl_dnn_bound(x->g, SL_ID_Q, &x->q, CUDNN_DATA_BFLOAT16),
                  k = sl_dnn_bound(x->g, SL_ID_K, &x->k_t, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor v = sl_dnn_bound(x->g, SL_ID_V, &x->v_t, CUDNN_DATA_BFLOAT16),
                  o = sl_dnn_bound(x->g, SL_ID_O, &x->o, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor d_o = sl_dnn_bound(x->g, SL_ID_DO, &x->o, CUDNN_DATA_BFLOAT16),
                  stats = sl_dnn_bound(x->g, SL_ID_STATS, &x->stats, CUDNN_DATA_FLOAT);
    sl_dnn_tensor scale = sl_dnn_scalar(x->g, SL_ID_SCALE, CUDNN_DATA_FLOAT),
                  one = sl_dnn_scalar(x->g, SL_ID_ONE, CUDNN_DATA_FLOAT);
    /* D = rowsum(dO * O); cuDNN wants it through memory, and through a multiplication (by one: there is no dropout). */
    sl_dnn_tensor sum = sl_dnn_virtual(x->g, &x->row, CUDNN_DATA_FLOAT),
                  d = sl_dnn_bound(x->g, SL_ID_SUM, &x->row, CUDNN_DATA_FLOAT);
    sl_dnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, point(x, CUDNN_POINTWISE_MUL, d_o, o, &x->o), sum);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum, one, NULL, d);
    sl_dnn_tensor raw = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, q, k, raw);
    sl_dnn_tensor s = point(x, CUDNN_POINTWISE_SUB, mask(x, point(x, CUDNN_POINTWISE_MUL, raw, scale, &x->scores)),
                            stats, &x->scores);
    sl_dnn_tensor p = point(x, CUDNN_POINTWISE_EXP, s, NULL, &x->scores);
    key_gradient(x, p, d_o, SL_ID_DV);
    sl_dnn_tensor dp = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, d_o, v, dp);
    sl_dnn_tensor ds = point(x, CUDNN_POINTWISE_MUL, point(x, CUDNN_POINTWISE_SUB, dp, d, &x->scores), p, &x->scores);
    ds = point(x, CUDNN_POINTWISE_MUL, ds, scale, &x->scores);
    key_gradient(x, ds, q, SL_ID_DK);
    sl_dnn_tensor key = sl_dnn_virtual(x->g, &x->k, CUDNN_DATA_BFLOAT16);
    sl_dnn_reshape(x->g, k, key);
    sl_dnn_tensor dq = sl_dnn_bound(x->g, SL_ID_DQ, &x->q, CUDNN_DATA_BFLOAT16);
    if (!x->s->nondeterministic) {
        sl_dnn_matmul(x->g, ds, key, dq);
        return;
    }
    int64_t h = x->s->heads, m = x->s->q_rows, e = x->s->head_dim;
    sl_dnn_shape own = make(x->s->batch, h, m, e, h * m * e, m * e, e, 1);
    sl_dnn_tensor total = sl_dnn_bound(x->g, SL_ID_DQ_SUM, &own, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, ds, key, total);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, total, NULL, NULL, dq);
}

sl_status sl_attention_graph(sl_cuda *cuda, const sl_graph_shape *s, sl_dnn_graph **out)
{
    *out = NULL;
    if (s->bounds)
        return SL_OK;
    attention_plan *plan = (attention_plan *) sl_cuda_cache_find(cuda, SL_OP_ATTENTION, s, sizeof *s);
    if (!plan) {
        plan = calloc(1, sizeof *plan);
        if (!plan)
            return sl_cuda_fail(SL_E_MEMORY, "no memory for an attention plan");
        plan->base.destroy = plan_destroy;
        builder x = begin(&plan->graph, s);
        if (s->backward)
            build_backward(&x);
        else
            build_forward(&x);
        sl_status status =
            sl_dnn_finish(cuda, &plan->graph, s->backward ? "this attention backward" : "this attention");
        if (status != SL_OK && status != SL_E_UNSUPPORTED) { /* other kernels would give other bits, this time alone */
            plan_destroy(&plan->base);
            return status;
        }
        plan->refused = status != SL_OK;
        sl_cuda_cache_add(cuda, SL_OP_ATTENTION, s, sizeof *s, &plan->base);
    }
    *out = plan->refused ? NULL : &plan->graph;
    return SL_OK;
}
