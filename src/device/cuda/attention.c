/*
 * Attention through cuDNN's graph API: the score matrix is an intermediate of the graph and never exists in memory.
 *
 *   forward    S = Q K^T scale, masked;  P = softmax(S);  O = P V;  lse kept
 *   backward   D = rowsum(dO O);  P = exp(S - lse);  dV = P^T dO;  dS = P (dO V^T - D) scale;  dK = dS^T Q;  dQ = dS K
 *
 * cuDNN takes bf16 with head dims that are multiples of 8 up to 128, when every sequence of the chunk has the same length
 * (attrs.uniform) or the chunk is one slice of a sequence, causal masks aligned bottom-right. Everything else goes to the plain
 * kernels. K/V heads shared by several query heads are summed inside the graph. q, k and v are read, and their gradients written,
 * where they lie, in rows of their own or side by side: it is all strides to cuDNN.
 *
 * The graph without an accumulator for dQ is the deterministic one; cuDNN's faster variant adds into dQ with atomics, whose
 * order, and so whose last bits, change from run to run. On Hopper the deterministic one writes dS to its workspace: 2 bytes for
 * each pair of query and key of each head, 4 GiB for 32 heads of 8,192 tokens. Where that is more than the launch may have, the
 * backward goes through the K/V heads in groups, two at a time on two streams so that the end of one and the beginning of the
 * next overlap. Heads do not meet in any sum, so groups change no bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/attention.h"
#include "device/cuda/dnn.h"
#include "ops/attention.h"

enum {
    ID_Q = 1,
    ID_K,
    ID_V,
    ID_O,
    ID_STATS,
    ID_SCALE,
    ID_MASKED,
    ID_LEN_Q,
    ID_LEN_KV,
    ID_DO,
    ID_DQ,
    ID_DK,
    ID_DV,
    ID_SUM,
    ID_ONE
};

/* What the graph depends on; the key of the cache, so zeroed before it is filled. */
typedef struct shape {
    int64_t batch, q_rows, kv_rows, rows; /* per sequence; rows = all queries of the chunk */
    int64_t width, o_width, kv_width;     /* elements from row to row of q, of o, of k and v; gradients too */
    int32_t heads, kv_heads;              /* of one run of the graph: all of them, or a group */
    int32_t groups, head_dim, causal, backward;
} shape;

typedef struct attention_plan {
    sl_cuda_cached base;
    sl_dnn_graph graph;
    bool refused; /* cuDNN did not take it: use the plain kernels */
} attention_plan;

static void plan_destroy(sl_cuda_cached *cached)
{
    sl_dnn_destroy(&((attention_plan *) cached)->graph);
    free(cached);
}

static bool shape_of(const sl_launch *launch, bool backward, shape *s)
{
    const sl_type *q = &launch->in[backward ? 1 : 0].type, *kv = &launch->in[backward ? 2 : 1].type;
    sl_attention_layout at = sl_attention_places(&launch->attrs, q, kv);
    memset(s, 0, sizeof *s);
    int64_t uniform = launch->attrs.attention.uniform;
    s->rows = q->dim[0];
    s->heads = launch->attrs.attention.heads, s->kv_heads = launch->attrs.attention.kv_heads;
    s->head_dim = launch->attrs.attention.head_dim, s->causal = launch->attrs.attention.causal, s->backward = backward;
    if (q->dtype != SL_BF16 || s->head_dim % 8 || s->head_dim > 128 || uniform <= 0)
        return false;
    if (at.m > uniform || launch->attrs.attention.q_offset == 0) {
        if (at.m != q->dim[0] || at.m % uniform || launch->attrs.attention.q_offset)
            return false;
        s->batch = at.m / uniform, s->q_rows = s->kv_rows = uniform;
    } else {
        if (at.m != launch->attrs.attention.q_offset + q->dim[0])
            return false;
        s->batch = 1, s->q_rows = q->dim[0], s->kv_rows = at.m;
    }
    s->groups = 1, s->width = at.q_stride, s->o_width = at.o_stride, s->kv_width = at.kv_stride;
    return true;
}

/* ---- the graphs ---- */

typedef struct builder {
    sl_dnn_graph *g;
    const shape *s;
    sl_dnn_shape q, o, k, k_t, v, v_t, scores, scores_t, row, stats;
} builder;

static sl_dnn_shape make(int64_t b, int64_t h, int64_t m, int64_t n, int64_t sb, int64_t sh, int64_t sm, int64_t sn)
{
    sl_dnn_shape x = {{b, h, m, n}, {sb, sh, sm, sn}};
    return x;
}

static builder begin(sl_dnn_graph *g, const shape *s)
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
        row = integer(x, CUDNN_POINTWISE_ADD, 3, row, sl_dnn_scalar(x->g, ID_LEN_KV, CUDNN_DATA_INT32));
        row = integer(x, CUDNN_POINTWISE_SUB, 3, row, sl_dnn_scalar(x->g, ID_LEN_Q, CUDNN_DATA_INT32));
    }
    sl_dnn_tensor keep = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_BOOLEAN),
                  y = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL, keep);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores,
                     sl_dnn_scalar(x->g, ID_MASKED, CUDNN_DATA_FLOAT), keep, y);
    return y;
}

static void build_forward(builder *x)
{
    sl_dnn_tensor q = sl_dnn_bound(x->g, ID_Q, &x->q, CUDNN_DATA_BFLOAT16),
                  k = sl_dnn_bound(x->g, ID_K, &x->k_t, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor v = sl_dnn_bound(x->g, ID_V, &x->v, CUDNN_DATA_BFLOAT16),
                  o = sl_dnn_bound(x->g, ID_O, &x->o, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor stats = sl_dnn_bound(x->g, ID_STATS, &x->stats, CUDNN_DATA_FLOAT);
    sl_dnn_tensor raw = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, q, k, raw);
    sl_dnn_tensor s =
        mask(x, point(x, CUDNN_POINTWISE_MUL, raw, sl_dnn_scalar(x->g, ID_SCALE, CUDNN_DATA_FLOAT), &x->scores));
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
    const shape *s = x->s;
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
    sl_dnn_tensor q = sl_dnn_bound(x->g, ID_Q, &x->q, CUDNN_DATA_BFLOAT16),
                  k = sl_dnn_bound(x->g, ID_K, &x->k_t, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor v = sl_dnn_bound(x->g, ID_V, &x->v_t, CUDNN_DATA_BFLOAT16),
                  o = sl_dnn_bound(x->g, ID_O, &x->o, CUDNN_DATA_BFLOAT16);
    sl_dnn_tensor d_o = sl_dnn_bound(x->g, ID_DO, &x->o, CUDNN_DATA_BFLOAT16),
                  stats = sl_dnn_bound(x->g, ID_STATS, &x->stats, CUDNN_DATA_FLOAT);
    sl_dnn_tensor scale = sl_dnn_scalar(x->g, ID_SCALE, CUDNN_DATA_FLOAT),
                  one = sl_dnn_scalar(x->g, ID_ONE, CUDNN_DATA_FLOAT);
    /* D = rowsum(dO * O); cuDNN wants it through memory, and through a multiplication (by one: there is no dropout). */
    sl_dnn_tensor sum = sl_dnn_virtual(x->g, &x->row, CUDNN_DATA_FLOAT),
                  d = sl_dnn_bound(x->g, ID_SUM, &x->row, CUDNN_DATA_FLOAT);
    sl_dnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, point(x, CUDNN_POINTWISE_MUL, d_o, o, &x->o), sum);
    sl_dnn_pointwise(x->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum, one, NULL, d);
    sl_dnn_tensor raw = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, q, k, raw);
    sl_dnn_tensor s = point(x, CUDNN_POINTWISE_SUB, mask(x, point(x, CUDNN_POINTWISE_MUL, raw, scale, &x->scores)),
                            stats, &x->scores);
    sl_dnn_tensor p = point(x, CUDNN_POINTWISE_EXP, s, NULL, &x->scores);
    key_gradient(x, p, d_o, ID_DV);
    sl_dnn_tensor dp = sl_dnn_virtual(x->g, &x->scores, CUDNN_DATA_FLOAT);
    sl_dnn_matmul(x->g, d_o, v, dp);
    sl_dnn_tensor ds = point(x, CUDNN_POINTWISE_MUL, point(x, CUDNN_POINTWISE_SUB, dp, d, &x->scores), p, &x->scores);
    ds = point(x, CUDNN_POINTWISE_MUL, ds, scale, &x->scores);
    key_gradient(x, ds, q, ID_DK);
    sl_dnn_tensor key = sl_dnn_virtual(x->g, &x->k, CUDNN_DATA_BFLOAT16);
    sl_dnn_reshape(x->g, k, key);
    sl_dnn_matmul(x->g, ds, key, sl_dnn_bound(x->g, ID_DQ, &x->q, CUDNN_DATA_BFLOAT16));
}

/* The plan for a shape; NULL: use the plain kernels. */
static sl_status prepare(sl_cuda *cuda, const shape *s, sl_dnn_graph **out)
{
    *out = NULL;
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
        plan->refused =
            sl_dnn_finish(cuda, &plan->graph, s->backward ? "this attention backward" : "this attention") != SL_OK;
        sl_cuda_cache_add(cuda, SL_OP_ATTENTION, s, sizeof *s, &plan->base);
    }
    *out = plan->refused ? NULL : &plan->graph;
    return SL_OK;
}

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static sl_status attention_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    int e = launch->attrs.attention.head_dim;
    if (e > SL_CUDA_ATTENTION_MOST_HEAD_DIM)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "attention on CUDA takes head dims up to %d, not %d",
                            SL_CUDA_ATTENTION_MOST_HEAD_DIM, e);
    return SL_OK;
}

static size_t attention_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    shape s;
    sl_dnn_graph *graph;
    if (!shape_of(launch, false, &s) || prepare(cuda, &s, &graph) != SL_OK || !graph)
        return 0;
    return graph->workspace_bytes;
}

/* Bytes of a row's k, behind which its v lies. */
static size_t k_bytes(const sl_launch *launch)
{
    return (size_t) (launch->attrs.attention.kv_heads * launch->attrs.attention.head_dim) * 2;
}

static sl_status attention_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    shape s;
    sl_dnn_graph *graph = NULL;
    if (shape_of(launch, false, &s))
        SL_TRY(prepare(cuda, &s, &graph));
    if (!graph)
        return sl_cuda_attention_plain(cuda, launch, stream);
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[0].type, &launch->in[1].type);
    float scale = launch->attrs.attention.scale, masked = -INFINITY;
    int32_t len_q = (int32_t) s.rows, len_kv = (int32_t) at.m;
    char *k = sl_attention_kv(&at, &launch->in[0], &launch->in[1]), *v = k + k_bytes(launch);
    int64_t ids[] = {ID_Q, ID_K, ID_V, ID_O, ID_STATS, ID_SCALE, ID_MASKED, ID_LEN_Q, ID_LEN_KV};
    void *pointers[] = {
        launch->in[0].data, k, v, launch->out[0].data, launch->out[1].data, &scale, &masked, &len_q, &len_kv};
    int count = launch->attrs.attention.causal ? launch->attrs.attention.q_offset ? 9 : 7 : 6;
    return sl_dnn_run(cuda, graph, ids, pointers, count, launch->workspace, stream);
}

/* [row sums | dK and dV in bf16 where the output is f32 or accumulated | cuDNN's own, for one group or two] */
static size_t sums_bytes(const sl_launch *launch)
{
    return align((size_t) (launch->in[1].type.dim[0] * launch->attrs.attention.heads) * sizeof(float));
}

static bool needs_staging(const sl_launch *launch)
{
    return launch->out[1].type.rank && ((launch->accumulate >> 1 & 1) || launch->out[1].type.dtype != SL_BF16);
}

static size_t staging_bytes(const sl_launch *launch)
{
    return needs_staging(launch) ? align((size_t) sl_type_count(&launch->out[1].type) * 2) : 0;
}

/* How a backward goes through the K/V heads. */
typedef struct course {
    shape s;             /* of a group */
    sl_dnn_graph *graph; /* NULL: the plain kernels */
    int32_t lanes;       /* groups at a time */
    size_t bytes;        /* workspace in all */
} course;

/* All heads in one piece if the launch may have the workspace for it; else the largest groups of which two fit; at the least one
 * group of one K/V head. */
static sl_status choose_course(sl_cuda *cuda, const sl_launch *launch, course *out)
{
    shape all;
    *out = (course){.lanes = 1, .bytes = sl_cuda_attention_plain_bwd_workspace(launch)};
    if (!shape_of(launch, true, &all))
        return SL_OK;
    size_t most = launch->workspace_bytes ? launch->workspace_bytes : SIZE_MAX;
    size_t fixed = sums_bytes(launch) + staging_bytes(launch);
    size_t scores = 2 * (size_t) (all.batch * all.q_rows * all.kv_rows); /* of a head */
    for (int32_t kv_heads = all.kv_heads, lanes = 1; kv_heads > 0; kv_heads--, lanes = 2) {
        course c = {.s = all, .lanes = lanes};
        if (all.kv_heads % kv_heads)
            continue;
        c.s.kv_heads = kv_heads;
        c.s.heads = all.heads / all.kv_heads * kv_heads;
        c.s.groups = all.kv_heads / kv_heads;
        if (kv_heads > 1 && fixed + (size_t) (lanes * c.s.heads) * scores > most)
            continue;
        SL_TRY(prepare(cuda, &c.s, &c.graph));
        if (!c.graph)
            return SL_OK;
        if (fixed + (size_t) lanes * align(c.graph->workspace_bytes) > most)
            c.lanes = 1;
        c.bytes = fixed + (size_t) c.lanes * align(c.graph->workspace_bytes);
        *out = c;
        if (c.bytes <= most && c.lanes == lanes)
            break;
    }
    return SL_OK;
}

static size_t attention_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    course c;
    return choose_course(cuda, launch, &c) == SL_OK ? c.bytes : 0;
}

static sl_status attention_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    course c;
    SL_TRY(choose_course(cuda, launch, &c));
    if (!c.graph)
        return sl_cuda_attention_plain_bwd(cuda, launch, stream);
    const sl_type *kv = &launch->in[2].type;
    sl_attention_layout layout = sl_attention_places(&launch->attrs, &launch->in[1].type, kv);
    float scale = launch->attrs.attention.scale, masked = -INFINITY, one = 1.0f;
    int32_t len_q = (int32_t) c.s.rows, len_kv = (int32_t) layout.m;
    size_t half = k_bytes(launch);
    char *k = sl_attention_kv(&layout, &launch->in[1], &launch->in[2]);
    char *sums = launch->workspace, *staging = sums + sums_bytes(launch);
    char *dk = needs_staging(launch) ? staging : sl_attention_kv(&layout, &launch->out[0], &launch->out[1]);
    int64_t ids[] = {ID_Q,  ID_K,  ID_V,  ID_O,  ID_STATS,  ID_SCALE, ID_ONE,   ID_SUM,
                     ID_DO, ID_DQ, ID_DK, ID_DV, ID_MASKED, ID_LEN_Q, ID_LEN_KV};
    int count = launch->attrs.attention.causal ? launch->attrs.attention.q_offset ? 15 : 13 : 12;
    char *space = staging + staging_bytes(launch);
    cudaStream_t lane[2] = {stream, stream};
    if (c.lanes > 1)
        SL_TRY(sl_cuda_fork(cuda, stream, &lane[1]));
    for (int32_t group = 0; group < c.s.groups; group++) {
        size_t at = (size_t) group * (size_t) (c.s.heads * c.s.head_dim) * 2; /* of q, o and their gradients, bf16 */
        size_t kv_at = (size_t) group * (size_t) (c.s.kv_heads * c.s.head_dim) * 2;
        size_t row_at = (size_t) group * (size_t) (c.s.heads * c.s.rows); /* of stats and sums, f32 */
        int32_t side = group % c.lanes;
        void *pointers[] = {(char *) launch->in[1].data + at,
                            k + kv_at,
                            k + half + kv_at,
                            (char *) launch->in[3].data + at,
                            (float *) launch->in[4].data + row_at,
                            &scale,
                            &one,
                            sums + row_at * sizeof(float),
                            (char *) launch->in[0].data + at,
                            (char *) launch->out[0].data + at,
                            dk + kv_at,
                            dk + half + kv_at,
                            &masked,
                            &len_q,
                            &len_kv};
        SL_TRY(sl_dnn_run(cuda, c.graph, ids, pointers, count, space + (size_t) side * align(c.graph->workspace_bytes),
                          lane[side]));
    }
    if (c.lanes > 1)
        SL_TRY(sl_cuda_join(cuda, stream));
    if (!needs_staging(launch))
        return SL_OK;
    sl_launch add = {.op = SL_OP_CAST, .accumulate = launch->accumulate >> 1 & 1};
    add.in[0] = (sl_operand){staging, *kv};
    add.out[0] = launch->out[1];
    return sl_cuda_kernel_find(SL_OP_CAST)->run(cuda, &add, stream);
}

const sl_cuda_kernel sl_cuda_attention = {SL_OP_ATTENTION, attention_supports, attention_workspace, attention_run};
const sl_cuda_kernel sl_cuda_attention_bwd = {SL_OP_ATTENTION_BWD, attention_supports, attention_bwd_workspace,
                                              attention_bwd_run};
