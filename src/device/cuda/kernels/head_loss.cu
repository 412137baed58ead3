/*
 * Head and cross-entropy, a block of tokens at a time: f32 logits in the workspace through cuBLASLt, one kernel per block that turns a
 * row of logits into the row's loss and, in place, its dlogits, then two more matmuls.
 *
 * In place: dlogits in bf16 take half the bytes of f32 logits. A row's bf16 values are written over the front of its own f32
 * values, behind the reads, so the next matmuls see a bf16 matrix with twice the row stride.
 *
 * The last words. A vocabulary such as GPT-2's 50,257 is no multiple of 8, and products over it run at a sixth of the speed. So
 * the words beyond the last multiple of 8 are products of their own, and since three more small products per block add up, they
 * are taken once for all tokens: their logits are a second, narrow matrix [n, 8].
 *
 *     words        0 ........................ even .. vocabulary
 *     logits of    a block of tokens [block, stride] | all tokens [n, 8]
 */
#include <cooperative_groups.h>

#include "device/cuda/kernels/total.cuh"
#include "ops/head_loss.h"

static constexpr int THREADS = 1024;
static constexpr int W = 4, TILES = 4; /* logits per access, accesses in flight */
static constexpr int CLUSTER = 8;      /* blocks that share a row */
static constexpr int HELD = 8;         /* accesses whose logits a thread keeps */
static constexpr int LAST = 8;         /* floats per token of the last words */
static constexpr int64_t MOST_SHARED = (int64_t) CLUSTER * THREADS * HELD * W;

/* What the rows of a block are compared with. */
struct row_targets {
    const int32_t *target;
    const float *weight;        /* what each counts; NULL: 1 */
    const sl_step_params *step; /* NULL forward */
    int32_t ignore, loss;
    float cap; /* of logits; 0: none */
};

/* Where logits lie: all of a block's, or, moved to it, one token's. */
struct logits_view {
    float *row, *last;
    int64_t stride;
    int even, vocabulary;
};

__device__ __forceinline__ logits_view view_token(const logits_view &block, int64_t token)
{
    return {block.row + token * block.stride, block.last + token * LAST, block.stride, block.even, block.vocabulary};
}

/* Word v as storage type T: f32 logits, or what was put over them. W words from a multiple of W on lie together. */
template <typename T> __device__ __forceinline__ T *at(const logits_view &view, int v)
{
    return reinterpret_cast<T *>(v < view.even ? view.row : view.last) + (v < view.even ? v : v - view.even);
}

/* A logit as the softmax sees it. CAP: under the soft cap. */
template <bool CAP> __device__ __forceinline__ float logit_of(float x, float cap)
{
    return CAP ? cap * tanhf(x / cap) : x;
}

/* The derivative of a capped logit by what it was before. */
template <bool CAP> __device__ __forceinline__ float slope_of(float logit, float cap)
{
    float t = CAP ? logit / cap : 0.0f;
    return fmaf(-t, t, 1.0f);
}

/* W logits; what lies beyond the vocabulary counts as minus infinity. */
template <bool CAP>
__device__ __forceinline__ void read_logits(const logits_view &view, int v, float cap, float (&x)[W])
{
    if (v < view.vocabulary) /* rows of both matrices are multiples of W, so reading is safe */
        load<W>(at<float>(view, v), x);
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = v + j < view.vocabulary ? logit_of<CAP>(x[j], cap) : -INFINITY;
}

/* What a token counts: 0 where its target is ignored or no word. */
__device__ __forceinline__ float weight_of(const row_targets &rows, int64_t token, int32_t target, int vocabulary)
{
    bool counts = target != rows.ignore && target >= 0 && target < vocabulary;
    return !counts ? 0.0f : rows.weight ? rows.weight[token] : 1.0f;
}

/* The same of the exponential 2^(logit LOG2_E - base); where that is 0, so is the gradient, whatever the slope. */
__device__ __forceinline__ float exp_slope(float power, float base, float cap)
{
    float logit = (__log2f(fmaxf(power, 1.17549435e-38f)) + base) * LN_2;
    return slope_of<true>(logit, cap);
}

/*
 * One token per cluster of blocks: every logit is read once and stays in a register of its thread. The row's maximum and sum of
 * exponentials meet in shared memory: each warp sends its own pair to all blocks of the cluster, and each warp folds all pairs in
 * the same order. Several clusters live on a multiprocessor, so that some read while others fold.
 *
 * Reading at full speed leaves few instructions per logit. So exponentials are powers of two, relative to a whole number near
 * the warp's maximum (which makes the fold's factors exact); and the target, one word of many, is left to the thread that has it.
 * A capped logit's slope follows from its exponential's logarithm: registers hold one of the two.
 *
 * Nothing is written over the row before the barrier behind which all of it has been read.
 */
template <typename T, bool BACKWARD, bool CAP>
__global__ void __launch_bounds__(THREADS) shared_row_kernel(const __grid_constant__ logits_view block,
                                                             const __grid_constant__ row_targets rows, float *losses)
{
#if __CUDA_ARCH__ >= 900
    __shared__ float2 pairs[CLUSTER * THREADS / 32];
    __shared__ float4
        aim; /* the target: its logit, its word or -1 if it does not count, the gradient's factor, its weight */
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    __cluster_barrier_arrive_relaxed(); /* no memory to show yet, so no fence either */
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, rank = (int) cluster.block_rank();
    int64_t token = blockIdx.x / CLUSTER;
    logits_view view = view_token(block, token);
    int begin = (rank * (int) blockDim.x + (int) threadIdx.x) * W, ahead = CLUSTER * (int) blockDim.x * W;
    int even = view.even, last = view.vocabulary - even - begin; /* words of the narrow matrix from `begin` on */
    float most = -INFINITY, sum = 0, x[HELD][W], y[W];
#pragma unroll
    for (int k = 0; k < HELD; k++)
        if (begin + k * ahead < even)
            load<W>(view.row + begin + k * ahead, x[k]);
        else
            x[k][0] = x[k][1] = x[k][2] = x[k][3] = -INFINITY;
#pragma unroll
    for (int j = 0; j < W; j++)
        y[j] = j < last ? logit_of<CAP>(view.last[begin + j], rows.cap) : -INFINITY;
    if (CAP)
#pragma unroll
        for (int k = 0; k < HELD; k++)
#pragma unroll
            for (int j = 0; j < W; j++)
                if (begin + k * ahead < even)
                    x[k][j] = logit_of<CAP>(x[k][j], rows.cap);
    float4 found = {};
    if (rank == 0 && warp == 0) { /* one warp alone waits for the target */
        int32_t target = rows.target[token];
        float weight = weight_of(rows, token, target, view.vocabulary);
        bool counted = weight != 0.0f;
        found = make_float4(counted ? logit_of<CAP>(*at<float>(view, target), rows.cap) : 0.0f,
                            __int_as_float(counted ? target : -1),
                            BACKWARD && counted ? sl_loss_scale(rows.step, rows.loss) * weight : 0.0f, weight);
    }
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            most = fmaxf(most, x[k][j]);
    most = fmaxf(fmaxf(fmaxf(most, y[0]), fmaxf(y[1], y[2])), y[3]);
    most = rintf(warp_max(most) * LOG2_E);
    float base = most == -INFINITY ? 0.0f : most; /* a warp without words: 2^(-inf - 0) = 0 */
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += x[k][j] = fast_exp2(fmaf(x[k][j], LOG2_E, -base));
#pragma unroll
    for (int j = 0; j < W; j++)
        sum += y[j] = fast_exp2(fmaf(y[j], LOG2_E, -base));
    sum = warp_sum(sum);
    __cluster_barrier_wait(); /* the others' shared memory exists */
    if (lane < CLUSTER) {
        *cluster.map_shared_rank(&pairs[rank * warps + warp], lane) = make_float2(most, sum);
        if (rank == 0 && warp == 0)
            *cluster.map_shared_rank(&aim, lane) = found;
    }
    __syncwarp();
    cluster.sync();
    float top = -INFINITY, total = 0;
#pragma unroll 1
    for (int i = lane; i < CLUSTER * warps; i += 32)
        top = fmaxf(top, pairs[i].x);
    top = warp_max(top);
#pragma unroll 1
    for (int i = lane; i < CLUSTER * warps; i += 32)
        total += pairs[i].y * fast_exp2(pairs[i].x - top);
    total = warp_sum(total);
    float wanted = aim.x, factor = aim.z;
    int target = __float_as_int(aim.y);
    if (begin == 0)
        losses[token] = target >= 0 ? aim.w * (fmaf(top, LN_2, logf(total)) - wanted) : 0.0f;
    if (!BACKWARD)
        return;
    float inverse = __frcp_rn(total), share = fast_exp2(base - top) * inverse * factor;
    T *to = reinterpret_cast<T *>(view.row) + begin, *to_last = reinterpret_cast<T *>(view.last) + begin;
    bool owner = target >= even && (unsigned) (target - even - begin) < W;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        int v = begin + k * ahead;
#pragma unroll
        for (int j = 0; j < W; j++)
            x[k][j] *= CAP ? share * exp_slope(x[k][j], base, rows.cap) : share;
        if (v < even)
            store<W, true>(to + k * ahead, x[k]);
        owner |= target < even && (unsigned) (target - v) < W;
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        if (j < last)
            from_f32(y[j] * (CAP ? share * exp_slope(y[j], base, rows.cap) : share), to_last + j);
    if (owner) /* over what it has just written there */
        from_f32((fast_exp2(fmaf(wanted, LOG2_E, -top)) * inverse - 1.0f) * factor * slope_of<CAP>(wanted, rows.cap),
                 at<T>(view, target));
#endif
}

/* Where there are no clusters, or the vocabulary is beyond their registers (or a few words only): one token per block, and two
 * passes, maximum and sum of exponentials (online, one read), then dlogits (one read, one write). */
template <typename T, bool BACKWARD, bool CAP>
__global__ void __launch_bounds__(THREADS)
    row_kernel(const __grid_constant__ logits_view block, const __grid_constant__ row_targets rows,
               float *__restrict__ losses)
{
    __shared__ float scratch[33];
    int64_t token = blockIdx.x;
    logits_view view = view_token(block, token);
    int32_t target = rows.target[token];
    float weight = weight_of(rows, token, target, view.vocabulary);
    bool counted = weight != 0.0f;
    float most = -INFINITY, sum = 0;
#pragma unroll 4
    for (int v = (int) threadIdx.x * W; v < view.vocabulary; v += THREADS * W) {
        float x[W], peak = most;
        read_logits<CAP>(view, v, rows.cap, x);
#pragma unroll
        for (int j = 0; j < W; j++)
            peak = fmaxf(peak, x[j]);
        if (peak == -INFINITY)
            continue;
        sum *= __expf(most - peak);
        most = peak;
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += __expf(x[j] - most);
    }
    float top = block_reduce<true>(most, scratch);
    float total = block_reduce(most == -INFINITY ? 0.0f : sum * expf(most - top), scratch);
    if (threadIdx.x == 0)
        losses[token] =
            counted ? weight * (logf(total) + top - logit_of<CAP>(*at<float>(view, target), rows.cap)) : 0.0f;
    if (!BACKWARD)
        return;
    __syncthreads();
    float factor = counted ? sl_loss_scale(rows.step, rows.loss) * weight : 0.0f, inverse = 1.0f / total;
    for (int base = 0; base < view.vocabulary; base += THREADS * W * TILES) {
        float x[TILES][W];
#pragma unroll
        for (int t = 0; t < TILES; t++)
            read_logits<CAP>(view, base + (t * THREADS + (int) threadIdx.x) * W, rows.cap, x[t]);
        __syncthreads(); /* every read of these tiles is done before their bytes, or earlier ones, are written */
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            int v = base + (t * THREADS + (int) threadIdx.x) * W;
#pragma unroll
            for (int j = 0; j < W; j++)
                x[t][j] = (__expf(x[t][j] - top) * inverse - (v + j == target ? 1.0f : 0.0f)) *
                          (CAP && v + j < view.vocabulary ? factor * slope_of<CAP>(x[t][j], rows.cap) : factor);
            if (v < view.vocabulary)
                store<W, true>(at<T>(view, v), x[t]); /* zeros beyond the vocabulary */
        }
    }
}

/* Logits' rows begin on 256 bytes whatever the vocabulary: matmul and 16-byte accesses want it so. */
static int64_t stride_of(const sl_launch *launch)
{
    return (launch->in[1].type.dim[0] + 63) / 64 * 64;
}

/* Words that are products block by block; the rest, if any, are taken for all tokens at once. */
static int64_t even_of(const sl_launch *launch)
{
    int64_t vocabulary = launch->in[1].type.dim[0];
    return vocabulary < LAST ? vocabulary : vocabulary / LAST * LAST;
}

/* The products of some tokens with some words. */
typedef struct products {
    sl_cuda_gemm logits, dx, dw;
} products;

static products products_of(const sl_launch *launch, int64_t rows, int64_t words, int64_t stride, bool add_dx,
                            bool add_dw)
{
    int64_t d = launch->in[0].type.dim[1];
    int32_t dtype = (int32_t) launch->in[0].type.dtype;
    int64_t dstride = stride * (int64_t) (sizeof(float) / sl_dtype_bytes((sl_dtype) dtype));
    products p = {
        .logits = {rows, words, d, d, d, stride, 0, 1, dtype, SL_F32, 0, 0},
        .dx = {rows, d, words, dstride, d, d, 0, 0, dtype, dtype, 0, add_dx},
        .dw = {words, d, rows, dstride, d, d, 1, 0, dtype, dtype, 0, add_dw},
    };
    return p;
}

static products block_products(const sl_launch *launch, int64_t rows, bool add_dw)
{
    return products_of(launch, rows, even_of(launch), stride_of(launch), false, add_dw);
}

static products last_products(const sl_launch *launch)
{
    return products_of(launch, launch->in[0].type.dim[0], launch->in[1].type.dim[0] - even_of(launch), LAST, true,
                       launch->accumulate >> 2 & 1);
}

/* Bytes of [matmul's own | logits of a block | logits of the last words of all tokens | losses of all tokens]. */
typedef struct room {
    size_t products, rows, last, losses;
} room;

static size_t products_bytes(const products *p)
{
    size_t logits = sl_cuda_gemm_workspace(&p->logits), dx = sl_cuda_gemm_workspace(&p->dx),
           dw = sl_cuda_gemm_workspace(&p->dw), most = logits > dx ? logits : dx;
    return most > dw ? most : dw;
}

static room room_of(const sl_launch *launch)
{
    int64_t n = launch->in[0].type.dim[0], block = sl_head_block(launch);
    bool last = even_of(launch) < launch->in[1].type.dim[0];
    const products all[] = {block_products(launch, block, true),
                            block_products(launch, n % block ? n % block : block, true), last_products(launch)};
    room bytes = {0, sl_cuda_align((size_t) (block * stride_of(launch)) * sizeof(float)),
                  last ? sl_cuda_align((size_t) (n * LAST) * sizeof(float)) : 0,
                  sl_cuda_align((size_t) n * sizeof(float))};
    for (int i = 0; i < (last ? 3 : 2); i++)
        if (products_bytes(&all[i]) > bytes.products)
            bytes.products = sl_cuda_align(products_bytes(&all[i]));
    return bytes;
}

static size_t head_workspace(const sl_launch *launch)
{
    room bytes = room_of(launch);
    return bytes.products + bytes.rows + bytes.last + bytes.losses;
}

static void prepare(sl_cuda *cuda, const products *p, bool backward)
{
    sl_cuda_gemm_prepare(cuda, &p->logits);
    if (backward)
        sl_cuda_gemm_prepare(cuda, &p->dx);
    if (backward)
        sl_cuda_gemm_prepare(cuda, &p->dw);
}

/* Chooses all algorithms a launch will need. */
static void prepare_products(sl_cuda *cuda, const sl_launch *launch, bool backward)
{
    int64_t n = launch->in[0].type.dim[0], block = sl_head_block(launch);
    bool adds = launch->accumulate >> 2 & 1;
    for (int tail = 0; tail <= (n % block != 0); tail++)
        for (int add = adds; add <= (adds || n > block); add++) {
            products p = block_products(launch, tail ? n % block : block, add);
            prepare(cuda, &p, backward);
        }
    if (even_of(launch) < launch->in[1].type.dim[0]) {
        products p = last_products(launch);
        prepare(cuda, &p, backward);
    }
}

static size_t head_loss_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    prepare_products(cuda, launch, false);
    return head_workspace(launch);
}

static size_t head_loss_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    prepare_products(cuda, launch, true);
    return head_workspace(launch);
}

template <typename T, bool BACKWARD, bool CAP>
static sl_status rows_launch(sl_cuda *cuda, const logits_view *view, const row_targets *targets, float *losses,
                             int64_t rows, cudaStream_t stream)
{
    if (sl_cuda_get_info(cuda)->capability >= 90 && view->even <= MOST_SHARED && view->even % W == 0) {
        constexpr int64_t each = CLUSTER * HELD * W; /* words of one thread of each block */
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {CLUSTER, 1, 1};
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned) (rows * CLUSTER));
        config.blockDim = dim3((unsigned) ((view->even + each * 32 - 1) / (each * 32) * 32));
        config.stream = stream;
        config.attrs = &attribute, config.numAttrs = 1;
        SL_CUDA(cudaLaunchKernelEx(&config, shared_row_kernel<T, BACKWARD, CAP>, *view, *targets, losses));
        return SL_OK;
    }
    row_kernel<T, BACKWARD, CAP><<<(unsigned) rows, THREADS, 0, stream>>>(*view, *targets, losses);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

template <typename T, bool BACKWARD>
static sl_status rows_any(sl_cuda *cuda, const logits_view *view, const row_targets *targets, float *losses,
                          int64_t rows, cudaStream_t stream)
{
    if (targets->cap > 0)
        return rows_launch<T, BACKWARD, true>(cuda, view, targets, losses, rows, stream);
    return rows_launch<T, BACKWARD, false>(cuda, view, targets, losses, rows, stream);
}

/* A launch's operands and workspace as the steps below want them. */
typedef struct head_at {
    const sl_launch *launch;
    int64_t n, d;
    size_t size; /* of an element */
    const char *x, *w;
    char *dx, *dw, *space;
    logits_view view;
    float *losses;
} head_at;

static head_at head_of(const sl_launch *launch)
{
    room bytes = room_of(launch);
    head_at h = {.launch = launch, .n = launch->in[0].type.dim[0], .d = launch->in[0].type.dim[1]};
    h.size = sl_dtype_bytes(launch->in[0].type.dtype);
    h.x = (const char *) launch->in[0].data, h.w = (const char *) launch->in[1].data;
    h.dx = (char *) launch->out[1].data, h.dw = (char *) launch->out[2].data;
    h.space = (char *) launch->workspace;
    char *rows = h.space + bytes.products;
    h.view = {(float *) rows, (float *) (rows + bytes.rows), stride_of(launch), (int) even_of(launch),
              (int) launch->in[1].type.dim[0]};
    h.losses = (float *) (rows + bytes.rows + bytes.last);
    return h;
}

/* dx and dW of the tokens from `token` on and the words from `word` on, whose dlogits lie at `dlogits`. */
static sl_status gradients(sl_cuda *cuda, const head_at *h, const products *p, const float *dlogits, int64_t token,
                           int64_t word, cudaStream_t stream)
{
    size_t x_at = (size_t) (token * h->d) * h->size, w_at = (size_t) (word * h->d) * h->size;
    if (h->dx)
        SL_TRY(
            sl_cuda_gemm_run(cuda, &p->dx, dlogits, h->w + w_at, NULL, h->dx + x_at, h->dx + x_at, h->space, stream));
    if (h->dw)
        SL_TRY(
            sl_cuda_gemm_run(cuda, &p->dw, dlogits, h->x + x_at, NULL, h->dw + w_at, h->dw + w_at, h->space, stream));
    return SL_OK;
}

/* Tokens [at, at + rows): logits, losses and, backward, what follows from them. */
static sl_status head_block(sl_cuda *cuda, const head_at *h, int64_t token, int64_t rows, bool backward,
                            cudaStream_t stream)
{
    const sl_launch *launch = h->launch;
    const float *weights = (const float *) launch->in[backward ? 4 : 3].data;
    const row_targets targets = {(const int32_t *) launch->in[2].data + token,
                                 weights ? weights + token : NULL,
                                 backward ? (const sl_step_params *) launch->in[3].data : NULL,
                                 sl_head_attrs(&launch->attrs)->ignore,
                                 sl_head_attrs(&launch->attrs)->loss,
                                 sl_head_attrs(&launch->attrs)->cap};
    products p = block_products(launch, rows, token > 0 || (launch->accumulate >> 2 & 1));
    logits_view view = h->view;
    view.last += token * LAST;
    SL_TRY(sl_cuda_gemm_run(cuda, &p.logits, h->x + (size_t) (token * h->d) * h->size, h->w, NULL, NULL, view.row,
                            h->space, stream));
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        SL_TRY(((backward ? rows_any<T, true> : rows_any<T, false>) (cuda, &view, &targets, h->losses + token, rows,
                                                                     stream)));
    });
    return backward ? gradients(cuda, h, &p, view.row, token, 0, stream) : SL_OK;
}

static sl_status head(sl_cuda *cuda, const sl_launch *launch, bool backward, cudaStream_t stream)
{
    head_at h = head_of(launch);
    int64_t block = sl_head_block(launch), even = h.view.even;
    bool last = even < h.view.vocabulary;
    products p = last_products(launch);
    if (last)
        SL_TRY(sl_cuda_gemm_run(cuda, &p.logits, h.x, h.w + (size_t) (even * h.d) * h.size, NULL, NULL, h.view.last,
                                h.space, stream));
    for (int64_t token = 0; token < h.n; token += block)
        SL_TRY(head_block(cuda, &h, token, h.n - token < block ? h.n - token : block, backward, stream));
    if (last && backward)
        SL_TRY(gradients(cuda, &h, &p, h.view.last, 0, even, stream));
    total_kernel<<<1, 256, 0, stream>>>(h.losses, h.n, (float *) launch->out[0].data, launch->accumulate & 1);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status head_loss_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    return head(cuda, launch, false, stream);
}
static sl_status head_loss_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    return head(cuda, launch, true, stream);
}
extern "C" const sl_cuda_kernel sl_cuda_head_loss = {SL_OP_HEAD_LOSS, NULL, head_loss_workspace, head_loss_run};
extern "C" const sl_cuda_kernel sl_cuda_head_loss_bwd = {SL_OP_HEAD_LOSS_BWD, NULL, head_loss_bwd_workspace,
                                                         head_loss_bwd_run};
