/*
 * Loss head, a block of tokens at a time, so that only block x V logits ever exist:
 *
 *     logits = x W^T               f32, in the workspace
 *     loss   = sum of rows' losses, and logits become dlogits in place (bf16 in the front half of each row)
 *     dx     = dlogits W
 *     dW    += dlogits^T x         the first block writes unless the launch accumulates
 *
 * Rows' losses are kept as f64 and added in token order at the end, whatever thread computed them. With bf16 gradients
 * each block's dW is added in f32 and rounded once per block: the block size belongs to the program, so the bits are
 * fixed. A token whose target is ignored or lies outside the vocabulary, or whose weight is 0, has no loss and zero gradients.
 *
 * Forward only, the block changes no bits and is cut to FORWARD_BLOCK.
 */
#include "device/cpu/gemm/head_loss.h"
#include "ops/head_loss.h"

#include <string.h>

#define FORWARD_BLOCK 512

typedef struct head {
    const sl_head_isa *isa;
    const sl_launch *launch;
    int64_t n, d, vocabulary, block;
    int64_t leading; /* of logits: rows begin on cache lines, f32 and bf16 ones */
    bool backward;
    const float *weights; /* NULL: all are 1 */
    sl_dtype dtype;
    float *logits;  /* [block, leading] */
    double *losses; /* [n] */
    char *gemm_workspace;
    int64_t first, count; /* tokens of the block at work */
} head;

static head head_of(const sl_head_isa *isa, const sl_launch *launch)
{
    head at = {.isa = isa, .launch = launch, .dtype = launch->in[0].type.dtype};
    at.n = launch->in[0].type.dim[0];
    at.d = launch->in[0].type.dim[1];
    at.vocabulary = launch->in[1].type.dim[0];
    at.leading = SL_ROUND_UP(at.vocabulary, 32);
    at.backward = launch->op == SL_OP_HEAD_LOSS_BWD;
    at.weights = launch->in[at.backward ? 4 : 3].data;
    at.block = sl_head_block(launch);
    if (!at.backward)
        at.block = SL_MIN(at.block, FORWARD_BLOCK);
    return at;
}

static const void *token_rows(const head *at, const void *data)
{
    return data ? (const char *) data + (size_t) (at->first * at->d) * sl_dtype_bytes(at->dtype) : NULL;
}

static sl_gemm logits_product(const head *at)
{
    sl_gemm gemm = {.m = at->count, .n = at->vocabulary, .k = at->d, .c = at->logits, .c_leading = at->leading};
    gemm.a = (sl_gemm_matrix){token_rows(at, at->launch->in[0].data), at->d, at->dtype, false};
    gemm.b = (sl_gemm_matrix){at->launch->in[1].data, at->d, at->dtype, true};
    gemm.c_dtype = SL_F32;
    return gemm;
}

/* dlogits [count, vocabulary]: a bf16 row starts where its f32 row did. */
static sl_gemm_matrix dlogits(const head *at, bool transposed)
{
    const int64_t leading = at->dtype == SL_BF16 ? 2 * at->leading : at->leading;
    return (sl_gemm_matrix){at->logits, leading, at->dtype, transposed};
}

static sl_gemm dx_product(const head *at)
{
    char *dx = at->launch->out[1].data;
    sl_gemm gemm = {.m = at->count, .n = at->d, .k = at->vocabulary, .c_leading = at->d, .c_dtype = at->dtype};
    gemm.a = dlogits(at, false);
    gemm.b = (sl_gemm_matrix){at->launch->in[1].data, at->d, at->dtype, false};
    gemm.c = dx ? dx + (size_t) (at->first * at->d) * sl_dtype_bytes(at->dtype) : NULL;
    return gemm;
}

static sl_gemm dw_product(const head *at)
{
    sl_gemm gemm = {.m = at->vocabulary, .n = at->d, .k = at->count, .c_leading = at->d, .c_dtype = at->dtype};
    gemm.a = dlogits(at, true);
    gemm.b = (sl_gemm_matrix){token_rows(at, at->launch->in[0].data), at->d, at->dtype, false};
    gemm.c = at->launch->out[2].data;
    gemm.accumulate = at->first > 0 || (at->launch->accumulate & 4);
    return gemm;
}

/* Workspace of the GEMMs of a block of `count` tokens; a smaller block may be divided differently and need more. */
static size_t products_workspace(head at, int64_t count, int threads)
{
    at.count = count;
    const sl_gemm logits = logits_product(&at), dx = dx_product(&at), dw = dw_product(&at);
    size_t bytes = sl_gemm_workspace(at.isa->gemm, &logits, threads);
    if (at.backward) {
        bytes = SL_MAX(bytes, sl_gemm_workspace(at.isa->gemm, &dx, threads));
        bytes = SL_MAX(bytes, sl_gemm_workspace(at.isa->gemm, &dw, threads));
    }
    return bytes;
}

static size_t logits_bytes(const head *at)
{
    return (size_t) (at->block * at->leading) * 4;
}
static size_t losses_bytes(const head *at)
{
    return SL_ROUND_UP((size_t) at->n * 8, 64);
}

size_t sl_head_loss_workspace(const sl_head_isa *isa, const sl_launch *launch, int threads)
{
    const head at = head_of(isa, launch);
    if (!at.n)
        return 0;
    const size_t whole = products_workspace(at, at.block, threads);
    const size_t last = products_workspace(at, at.n % at.block ? at.n % at.block : at.block, threads);
    return logits_bytes(&at) + losses_bytes(&at) + SL_MAX(whole, last);
}

static void row_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const head *at = context;
    const int64_t token = at->first + tile;
    const int32_t target = ((const int32_t *) at->launch->in[2].data)[token];
    const float weight = at->weights ? at->weights[token] : 1;
    const struct sl_head_attrs *attrs = sl_head_attrs(&at->launch->attrs);
    float *row = at->logits + tile * at->leading;
    at->losses[token] = 0;
    if (target == attrs->ignore || target < 0 || target >= at->vocabulary || weight == 0) {
        if (at->backward)
            memset(row, 0, (size_t) at->vocabulary * sl_dtype_bytes(at->dtype));
    } else if (at->backward) {
        const float scale = sl_loss_scale(at->launch->in[3].data, attrs->loss) * weight;
        at->losses[token] =
            weight * at->isa->loss_and_gradient(row, at->vocabulary, target, scale, attrs->cap, at->dtype == SL_BF16);
    } else {
        at->losses[token] = weight * at->isa->loss(row, at->vocabulary, target, attrs->cap);
    }
}

static void run_block(head *at, sl_pool *pool)
{
    const sl_gemm logits = logits_product(at);
    sl_gemm_run(at->isa->gemm, &logits, at->gemm_workspace, pool);
    sl_pool_run(pool, row_tile, at, at->count);
    if (!at->backward)
        return;
    const sl_gemm dx = dx_product(at), dw = dw_product(at);
    if (dx.c)
        sl_gemm_run(at->isa->gemm, &dx, at->gemm_workspace, pool);
    if (dw.c)
        sl_gemm_run(at->isa->gemm, &dw, at->gemm_workspace, pool);
}

void sl_head_loss_run(const sl_head_isa *isa, const sl_launch *launch, sl_pool *pool)
{
    head at = head_of(isa, launch);
    double loss = 0;
    if (at.n) {
        at.logits = launch->workspace;
        at.losses = (double *) (void *) ((char *) launch->workspace + logits_bytes(&at));
        at.gemm_workspace = (char *) at.losses + losses_bytes(&at);
        for (at.first = 0; at.first < at.n; at.first += at.block) {
            at.count = SL_MIN(at.block, at.n - at.first);
            run_block(&at, pool);
        }
        for (int64_t i = 0; i < at.n; i++)
            loss += at.losses[i];
    }
    *(float *) launch->out[0].data = (float) loss;
}
