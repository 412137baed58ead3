/*
 * Attention: through cuDNN where it can be (attention_graph.c), else through the plain kernels. On Hopper, with heads of 64 and 128,
 * through kernels of our own (attention_hopper.cu): the backward, where they are faster and want less memory, most forwards, and both
 * ways where sequences have documents in them.
 *
 * cuDNN takes bf16 with head dims that are multiples of 8 up to 128, when every sequence of the chunk has the same length
 * (attrs.uniform) or the chunk is one slice of a sequence, causal masks aligned bottom-right. Sliding windows and soft caps go
 * through the plain kernels.
 *
 * cuDNN's backward of a causal slice is two: against what lies before it, which it sees whole, and against itself. In one piece cuDNN
 * would go through the half of the diagonal square that the mask hides: at 65,536 tokens in slices of 8,192 a tenth of the time.
 *
 *            keys  0 ............ q_offset ...... m
 *      queries     [    whole     |  triangle \  ]        dQ is the sum of both parts, dK and dV are apart
 *
 * Its deterministic backward wants a workspace of 2 bytes per pair of query and key: 4 GiB for 32 heads of 8,192 tokens. Where that
 * is more than the launch may have, it goes through the K/V heads in groups, two at a time on two streams so that the end of one
 * and the beginning of the next overlap. Heads do not meet in any sum, so groups change no bit.
 */
#include <math.h>
#include <string.h>

#include "device/cuda/attention/attention.h"
#include "device/cuda/attention/attention_graph.h"
#include "device/cuda/attention/attention_hopper.h"
#include "ops/attention.h"

static bool shape_of(const sl_launch *launch, bool backward, sl_graph_shape *s)
{
    const sl_type *q = &launch->in[backward ? 1 : 0].type, *kv = &launch->in[backward ? 2 : 1].type;
    sl_attention_layout at = sl_attention_places(&launch->attrs, q, kv);
    memset(s, 0, sizeof *s);
    int64_t uniform = sl_attention_attrs(&launch->attrs)->uniform;
    s->rows = q->dim[0];
    s->heads = sl_attention_attrs(&launch->attrs)->heads, s->kv_heads = sl_attention_attrs(&launch->attrs)->kv_heads;
    s->head_dim = sl_attention_attrs(&launch->attrs)->head_dim, s->causal = sl_attention_attrs(&launch->attrs)->causal,
    s->backward = backward;
    s->nondeterministic = backward && sl_attention_attrs(&launch->attrs)->nondeterministic;
    int64_t window = sl_attention_attrs(&launch->attrs)->window;
    if ((window > 0 && window < (uniform > 0 ? uniform : at.m)) || sl_attention_attrs(&launch->attrs)->cap > 0)
        return false; /* the plain kernels alone have windows and soft caps */
    if (q->dtype != SL_BF16 || s->head_dim % 8 || s->head_dim > 128)
        return false;
    if (backward && (!launch->out[0].type.rank || (kv->rank && !launch->out[1].type.rank)))
        return false; /* dq without dkv or the other way round: only the plain kernels can */
    if (uniform <= 0) {
        if (at.m != sl_attention_attrs(&launch->attrs)->q_offset + q->dim[0])
            return false;
        s->batch = 1, s->q_rows = q->dim[0], s->kv_rows = at.m;
        s->bounds = (int32_t) launch->in[backward ? 5 : 2].type.dim[0];
    } else if (at.m > uniform || sl_attention_attrs(&launch->attrs)->q_offset == 0) {
        if (at.m != q->dim[0] || at.m % uniform || sl_attention_attrs(&launch->attrs)->q_offset)
            return false;
        s->batch = at.m / uniform, s->q_rows = s->kv_rows = uniform;
    } else {
        if (at.m != sl_attention_attrs(&launch->attrs)->q_offset + q->dim[0])
            return false;
        s->batch = 1, s->q_rows = q->dim[0], s->kv_rows = at.m;
    }
    /* A single query sees all there is. cuDNN takes it for a decoder's, where a mask and shared heads do not go together. */
    if (s->q_rows == 1)
        s->causal = 0;
    s->width = at.q_stride, s->o_width = at.o_stride, s->kv_width = at.kv_stride;
    return true;
}

static sl_status attention_supports(sl_cuda *cuda, const sl_launch *launch)
{
    int e = sl_attention_attrs(&launch->attrs)->head_dim;
    size_t has = sl_cuda_get_info(cuda)->shared_bytes;
    if (e > SL_CUDA_ATTENTION_MOST_HEAD_DIM)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "attention on CUDA takes head dims up to %d, not %d",
                            SL_CUDA_ATTENTION_MOST_HEAD_DIM, e);
    size_t takes = sl_cuda_attention_plain_shared(e, launch->op == SL_OP_ATTENTION_BWD);
    if (takes > has)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "attention with a head dim of %d takes %zu bytes of shared memory and this GPU has %zu: "
                            "use a smaller head dim",
                            e, takes, has);
    return SL_OK;
}

/* Whether our own kernels for Hopper take it: the backward; the forward where it is faster than cuDNN's, or cuDNN has none. The largest
 * score must have the largest weight. */
static bool is_own(sl_cuda *cuda, const sl_launch *launch, const sl_graph_shape *s)
{
    if (!sl_attention_hopper_takes(cuda, s))
        return false;
    return s->backward ||
           (sl_attention_attrs(&launch->attrs)->scale > 0 && (s->bounds || s->head_dim == 128 || s->kv_rows >= 8192));
}

/* ---- forward ---- */

static size_t attention_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    sl_graph_shape s;
    sl_dnn_graph *graph;
    if (!shape_of(launch, false, &s))
        return 0;
    if (is_own(cuda, launch, &s))
        return sl_attention_hopper_workspace(&s);
    if (sl_attention_graph(cuda, &s, &graph) != SL_OK || !graph)
        return 0;
    return graph->workspace_bytes;
}

/* Bytes of a row's k, behind which its v lies. */
static size_t k_bytes(const sl_launch *launch)
{
    return (size_t) (sl_attention_attrs(&launch->attrs)->kv_heads * sl_attention_attrs(&launch->attrs)->head_dim) * 2;
}

static sl_status attention_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    sl_graph_shape s;
    sl_dnn_graph *graph = NULL;
    if (shape_of(launch, false, &s)) {
        if (is_own(cuda, launch, &s))
            return sl_attention_hopper_run(cuda, &s, launch, stream);
        SL_TRY(sl_attention_graph(cuda, &s, &graph));
    }
    if (!graph)
        return sl_cuda_attention_plain(cuda, launch, stream);
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[0].type, &launch->in[1].type);
    float scale = sl_attention_attrs(&launch->attrs)->scale, masked = -INFINITY;
    int32_t len_q = (int32_t) s.rows, len_kv = (int32_t) at.m;
    char *k = sl_attention_kv(&at, &launch->in[0], &launch->in[1]), *v = k + k_bytes(launch);
    int64_t ids[] = {SL_ID_Q,     SL_ID_K,      SL_ID_V,     SL_ID_O,     SL_ID_STATS,
                     SL_ID_SCALE, SL_ID_MASKED, SL_ID_LEN_Q, SL_ID_LEN_KV};
    void *pointers[] = {
        launch->in[0].data, k, v, launch->out[0].data, launch->out[1].data, &scale, &masked, &len_q, &len_kv};
    int count = s.causal ? s.q_rows != s.kv_rows ? 9 : 7 : 6;
    return sl_dnn_run(cuda, graph, ids, pointers, count, launch->workspace, stream);
}

/* ---- backward ---- */

/* How one part of a backward goes through the K/V heads. */
typedef struct course {
    sl_graph_shape s; /* of a group */
    sl_dnn_graph *graph;
    int64_t first_key;
    int32_t groups, lanes; /* in all; at a time */
    size_t lane_bytes;     /* workspace of each lane: [dQ in f32, for any order | cuDNN's own] */
} course;

/* What lies before a slice is taken in parts of so many keys: the scores of one K/V head against 524,288 keys are 17 GB. */
enum { PART_KEYS = 131072, MOST_PARTS = 65 };

/* [D | dK and dV in bf16 where the output is f32 or accumulated | dQ of a part but the first | the lanes of the largest part] */
typedef struct backward {
    course parts[MOST_PARTS]; /* the keys before the slice, in order, then the slice itself */
    int n_parts;              /* 0: the plain kernels */
    size_t sums_bytes, staging_bytes, dq_bytes, bytes;
} backward;

static bool needs_staging(const sl_launch *launch)
{
    return launch->out[1].type.rank && ((launch->accumulate >> 1 & 1) || launch->out[1].type.dtype != SL_BF16);
}

static size_t dq_sum_bytes(const sl_graph_shape *s)
{
    return s->nondeterministic ? sl_cuda_align((size_t) (s->batch * s->heads * s->q_rows * s->head_dim) * sizeof(float))
                               : 0;
}

/* All heads in one piece if `most` bytes are enough for it; else the largest groups of which two fit; at the least one group of one
 * K/V head. */
static sl_status choose_course(sl_cuda *cuda, const sl_graph_shape *all, size_t most, course *out)
{
    size_t scores = all->nondeterministic ? 0 : 2 * (size_t) (all->batch * all->q_rows * all->kv_rows); /* of a head */
    for (int32_t kv_heads = all->kv_heads, lanes = 1; kv_heads > 0; kv_heads--, lanes = 2) {
        course c = {.s = *all, .lanes = lanes};
        if (all->kv_heads % kv_heads)
            continue;
        c.s.kv_heads = kv_heads;
        c.s.heads = all->heads / all->kv_heads * kv_heads;
        c.groups = all->kv_heads / kv_heads;
        if (kv_heads > 1 && (size_t) (lanes * c.s.heads) * scores > most)
            continue;
        SL_TRY(sl_attention_graph(cuda, &c.s, &c.graph));
        if (!c.graph)
            return SL_OK;
        c.lane_bytes = dq_sum_bytes(&c.s) + sl_cuda_align(c.graph->workspace_bytes);
        if ((size_t) lanes * c.lane_bytes > most)
            c.lanes = 1;
        *out = c;
        if ((size_t) lanes * c.lane_bytes <= most)
            break;
    }
    return SL_OK;
}

static sl_status choose_backward(sl_cuda *cuda, const sl_launch *launch, backward *out)
{
    sl_graph_shape all;
    *out = (backward){.bytes = sl_cuda_attention_plain_bwd_workspace(launch)};
    if (!shape_of(launch, true, &all))
        return SL_OK;
    const int64_t before = all.causal ? all.kv_rows - all.q_rows : 0;
    if (before > (int64_t) (MOST_PARTS - 1) * PART_KEYS)
        return SL_OK;
    backward b = {.n_parts = (int) SL_DIV_UP(before, (int64_t) PART_KEYS) + 1};
    b.sums_bytes = sl_cuda_align((size_t) (all.rows * all.heads) * sizeof(float));
    b.staging_bytes = needs_staging(launch) ? sl_cuda_align((size_t) sl_type_count(&launch->out[1].type) * 2) : 0;
    b.dq_bytes = b.n_parts > 1 ? sl_cuda_align((size_t) sl_type_count(&launch->out[0].type) * 2) : 0;
    size_t fixed = b.sums_bytes + b.staging_bytes + b.dq_bytes, largest = 0;
    size_t most =
        !launch->workspace_bytes ? SIZE_MAX : launch->workspace_bytes - SL_MIN(fixed, launch->workspace_bytes);
    for (int i = 0; i < b.n_parts; i++) {
        const bool is_slice = i == b.n_parts - 1;
        const int64_t first_key = is_slice ? before : (int64_t) i * PART_KEYS;
        sl_graph_shape part = all;
        if (b.n_parts > 1)
            part.kv_rows = is_slice ? all.q_rows : SL_MIN((int64_t) PART_KEYS, before - first_key),
            part.causal = is_slice;
        SL_TRY(choose_course(cuda, &part, most, &b.parts[i]));
        b.parts[i].first_key = first_key;
        if (!b.parts[i].graph)
            return SL_OK;
        largest = SL_MAX(largest, (size_t) b.parts[i].lanes * b.parts[i].lane_bytes);
    }
    b.bytes = fixed + largest;
    *out = b;
    return SL_OK;
}

static size_t attention_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    sl_graph_shape s;
    backward b;
    if (shape_of(launch, true, &s) && is_own(cuda, launch, &s))
        return sl_attention_hopper_workspace(&s);
    return choose_backward(cuda, launch, &b) == SL_OK ? b.bytes : 0;
}

/* Where the tensors of a part lie: its first group's first row. */
typedef struct places {
    char *d_o, *q, *k, *v, *o, *dq, *dk, *dv, *sums, *lanes;
    float *stats;
} places;

static sl_status run_group(sl_cuda *cuda, const sl_launch *launch, const course *c, const places *at, int32_t group,
                           char *workspace, cudaStream_t stream)
{
    const sl_graph_shape *s = &c->s;
    float scale = sl_attention_attrs(&launch->attrs)->scale, masked = -INFINITY, one = 1.0f;
    size_t head = (size_t) group * (size_t) (s->heads * s->head_dim) * 2, /* of q, o and their gradients, bf16 */
        kv_head = (size_t) group * (size_t) (s->kv_heads * s->head_dim) * 2,
           row = (size_t) group * (size_t) (s->heads * s->rows); /* of stats and sums, f32 */
    /* Those that not every graph has come last. */
    int64_t ids[14] = {SL_ID_Q,   SL_ID_K,   SL_ID_V,  SL_ID_O,  SL_ID_STATS, SL_ID_SCALE,
                       SL_ID_ONE, SL_ID_SUM, SL_ID_DO, SL_ID_DQ, SL_ID_DK,    SL_ID_DV};
    void *pointers[14] = {at->q + head,
                          at->k + kv_head,
                          at->v + kv_head,
                          at->o + head,
                          at->stats + row,
                          &scale,
                          &one,
                          at->sums + row * sizeof(float),
                          at->d_o + head,
                          at->dq + head,
                          at->dk + kv_head,
                          at->dv + kv_head};
    int count = 12;
    if (s->causal)
        ids[count] = SL_ID_MASKED, pointers[count++] = &masked;
    if (s->nondeterministic) {
        if (cudnnGetVersion() < 90600) /* later ones do it themselves */
            SL_CUDA(cudaMemsetAsync(workspace, 0, dq_sum_bytes(s), stream));
        ids[count] = SL_ID_DQ_SUM, pointers[count++] = workspace;
    }
    return sl_dnn_run(cuda, c->graph, ids, pointers, count, workspace + dq_sum_bytes(s), stream);
}

static sl_status run_part(sl_cuda *cuda, const sl_launch *launch, const course *c, const places *at,
                          cudaStream_t stream)
{
    cudaStream_t lane[2] = {stream, stream};
    if (c->lanes > 1)
        SL_TRY(sl_cuda_fork(cuda, stream, &lane[1]));
    for (int32_t group = 0; group < c->groups; group++) {
        int32_t side = group % c->lanes;
        SL_TRY(run_group(cuda, launch, c, at, group, at->lanes + (size_t) side * c->lane_bytes, lane[side]));
    }
    return c->lanes > 1 ? sl_cuda_join(cuda, stream) : SL_OK;
}

/* to (+)= from, which is bf16. */
static sl_status add(sl_cuda *cuda, void *from, const sl_operand *to, bool accumulate, cudaStream_t stream)
{
    sl_launch launch = {.op = SL_OP_CAST, .accumulate = accumulate};
    launch.in[0] = (sl_operand){from, to->type};
    launch.in[0].type.dtype = SL_BF16;
    launch.out[0] = *to;
    return sl_cuda_kernel_find(SL_OP_CAST)->run(cuda, &launch, stream);
}

static sl_status attention_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    sl_graph_shape s;
    backward b;
    if (shape_of(launch, true, &s) && is_own(cuda, launch, &s))
        return sl_attention_hopper_run(cuda, &s, launch, stream);
    SL_TRY(choose_backward(cuda, launch, &b));
    if (!b.n_parts)
        return sl_cuda_attention_plain_bwd(cuda, launch, stream);
    sl_attention_layout layout = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    char *k = sl_attention_kv(&layout, &launch->in[1], &launch->in[2]);
    char *staging = (char *) launch->workspace + b.sums_bytes, *own_dq = staging + b.staging_bytes;
    char *dk = needs_staging(launch) ? staging : sl_attention_kv(&layout, &launch->out[0], &launch->out[1]);
    for (int i = 0; i < b.n_parts; i++) {
        size_t keys = (size_t) (b.parts[i].first_key * b.parts[i].s.kv_width) * 2;
        places at = {.d_o = launch->in[0].data,
                     .q = launch->in[1].data,
                     .k = k + keys,
                     .v = k + keys + k_bytes(launch),
                     .o = launch->in[3].data,
                     .stats = launch->in[4].data,
                     .dq = i ? own_dq : launch->out[0].data,
                     .dk = dk + keys,
                     .dv = dk + keys + k_bytes(launch),
                     .sums = launch->workspace,
                     .lanes = own_dq + b.dq_bytes};
        SL_TRY(run_part(cuda, launch, &b.parts[i], &at, stream));
        if (i)
            SL_TRY(add(cuda, own_dq, &launch->out[0], true, stream));
    }
    return needs_staging(launch) ? add(cuda, staging, &launch->out[1], launch->accumulate >> 1 & 1, stream) : SL_OK;
}

const sl_cuda_kernel sl_cuda_attention = {SL_OP_ATTENTION, attention_supports, attention_workspace, attention_run};
const sl_cuda_kernel sl_cuda_attention_bwd = {SL_OP_ATTENTION_BWD, attention_supports, attention_bwd_workspace,
                                              attention_bwd_run};
