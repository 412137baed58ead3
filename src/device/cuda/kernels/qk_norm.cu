/*
 * RMSNorm of queries and keys in the rows of qkv, and its backward. Head by head, a warp has one head at a time, its lanes neighbouring
 * elements, MOST_EACH at most; v is copied by the warps as further heads. Over whole widths, a block has a row's queries, its keys,
 * or its v to copy (blockIdx.y), its threads neighbouring elements, EACH at most.
 *
 * Backward: a block walks rows blockIdx.x, blockIdx.x + gridDim.x, ..., its warp w the heads w, w + WARPS, ... of each. The warp keeps
 * its sums for dwq and dwk in registers; the block adds its warps' in order and leaves one partial row of each (column_sum.cuh). Over
 * whole widths each thread's sums are the block's already. So every sum's tree follows from the shape alone.
 */
#include "device/cuda/kernels/column_sum.cuh"
#include "ops/qk_norm.h"

static constexpr int WARPS = 8, MOST_EACH = 8; /* head dims up to 256 */
static constexpr int64_t MOST_BLOCKS = 528;
static constexpr int WHOLE_THREADS = 512, MOST_WHOLE = 16; /* widths up to 8192 */
static constexpr int64_t MOST_WHOLE_BLOCKS = 264;

struct heads_shape {
    int64_t n;
    int heads, normed, all, e; /* query heads; those and the key heads; those and v's */
    float eps, offset;
};

static heads_shape shape_of(const sl_launch *launch, int64_t n)
{
    const struct sl_qk_norm_attrs *a = sl_qk_norm_attrs(&launch->attrs);
    return {n, a->heads, a->heads + a->kv_heads, a->heads + 2 * a->kv_heads, a->head_dim, a->eps, a->offset};
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
    qk_norm_kernel(heads_shape s, const T *__restrict__ x, const T *__restrict__ wq, const T *__restrict__ wk,
                   T *__restrict__ y, float *__restrict__ rstd)
{
    const int lane = threadIdx.x & 31;
    const int64_t item = (int64_t) blockIdx.x * WARPS + (threadIdx.x >> 5), row = item / s.all;
    const int head = (int) (item - row * s.all);
    if (row >= s.n)
        return;
    float keep[MOST_EACH], squares = 0;
#pragma unroll
    for (int k = 0; k < MOST_EACH; k++) {
        keep[k] = lane + 32 * k < s.e ? to_f32(x[item * s.e + lane + 32 * k]) : 0.0f;
        squares = fmaf(keep[k], keep[k], squares);
    }
    const bool normed = head < s.normed;
    const float r = normed ? rsqrtf(warp_sum(squares) / (float) s.e + s.eps) : 1.0f;
    const T *w = head < s.heads ? wq : wk;
#pragma unroll
    for (int k = 0; k < MOST_EACH; k++)
        if (lane + 32 * k < s.e)
            from_f32(normed ? keep[k] * r * (to_f32(w[lane + 32 * k]) + s.offset) : keep[k],
                     &y[item * s.e + lane + 32 * k]);
    if (normed && lane == 0)
        rstd[row * s.normed + head] = r;
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
    qk_norm_bwd_kernel(heads_shape s, const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ wq,
                       const T *__restrict__ wk, const float *__restrict__ rstd, T *__restrict__ dx,
                       float *__restrict__ partial)
{
    __shared__ float shared[WARPS][32 * MOST_EACH];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float dw[2][MOST_EACH] = {};
    for (int64_t row = blockIdx.x; row < s.n; row += gridDim.x) {
        for (int head = warp; head < s.all; head += WARPS) {
            const int64_t at = (row * s.all + head) * s.e + lane;
            const bool normed = head < s.normed, key = head >= s.heads;
            const T *w = key ? wk : wq;
            const float r = normed ? rstd[row * s.normed + head] : 0.0f;
            float g[MOST_EACH], h[MOST_EACH], dot = 0;
#pragma unroll
            for (int k = 0; k < MOST_EACH; k++) {
                const bool present = lane + 32 * k < s.e;
                g[k] = present ? to_f32(dy[at + 32 * k]) : 0.0f;
                h[k] = present && normed ? to_f32(x[at + 32 * k]) * r : 0.0f;
                if (normed) {
                    dw[0][k] = fmaf(g[k], key ? 0.0f : h[k], dw[0][k]);
                    dw[1][k] = fmaf(g[k], key ? h[k] : 0.0f, dw[1][k]);
                    g[k] *= present ? to_f32(w[lane + 32 * k]) + s.offset : 0.0f;
                }
                dot = fmaf(g[k], h[k], dot);
            }
            const float mean = warp_sum(dot) / (float) s.e;
#pragma unroll
            for (int k = 0; k < MOST_EACH; k++)
                if (dx && lane + 32 * k < s.e)
                    from_f32(normed ? r * fmaf(-h[k], mean, g[k]) : g[k], &dx[at + 32 * k]);
        }
    }
#pragma unroll
    for (int side = 0; side < 2; side++) {
#pragma unroll
        for (int k = 0; k < MOST_EACH; k++)
            shared[warp][lane + 32 * k] = dw[side][k];
        __syncthreads();
        for (int c = threadIdx.x; c < s.e; c += WARPS * 32) {
            float sum = 0;
            for (int k = 0; k < WARPS; k++)
                sum += shared[k][c];
            partial[((int64_t) side * gridDim.x + blockIdx.x) * s.e + c] = sum;
        }
        __syncthreads();
    }
}

/* Of queries (0), keys (1) or v (2): where they begin in a row, and how many elements they have. */
__device__ __forceinline__ int2 side_of(const heads_shape &s, int side)
{
    const int kv = s.normed - s.heads;
    return make_int2((side == 0 ? 0 : side == 1 ? s.heads : s.normed) * s.e, (side == 0 ? s.heads : kv) * s.e);
}

template <typename T>
__global__ void __launch_bounds__(WHOLE_THREADS)
    qk_norm_whole_kernel(heads_shape s, const T *__restrict__ x, const T *__restrict__ wq, const T *__restrict__ wk,
                         T *__restrict__ y, float *__restrict__ rstd)
{
    __shared__ float scratch[33];
    const int side = blockIdx.y;
    const int2 part = side_of(s, side);
    const int64_t row = blockIdx.x, at = row * s.all * s.e + part.x;
    const T *w = side ? wk : wq;
    float squares = 0, r = 1;
    if (side < 2) {
        for (int c = threadIdx.x; c < part.y; c += WHOLE_THREADS)
            squares = fmaf(to_f32(x[at + c]), to_f32(x[at + c]), squares);
        r = rsqrtf(block_reduce(squares, scratch) / (float) part.y + s.eps);
        if (threadIdx.x == 0)
            rstd[2 * row + side] = r;
    }
    for (int c = threadIdx.x; c < part.y; c += WHOLE_THREADS)
        from_f32(side < 2 ? to_f32(x[at + c]) * r * (to_f32(w[c]) + s.offset) : to_f32(x[at + c]), &y[at + c]);
}

/* Partial rows of q lie in front of those of k. */
template <typename T, int EACH>
__global__ void __launch_bounds__(WHOLE_THREADS)
    qk_norm_whole_bwd_kernel(heads_shape s, const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ wq,
                             const T *__restrict__ wk, const float *__restrict__ rstd, T *__restrict__ dx,
                             float *__restrict__ partial)
{
    __shared__ float scratch[33];
    const int side = blockIdx.y;
    const int2 part = side_of(s, side);
    const T *w = side ? wk : wq;
    float dw[EACH] = {};
    for (int64_t row = blockIdx.x; row < s.n; row += gridDim.x) {
        const int64_t at = row * s.all * s.e + part.x;
        if (side == 2) {
            for (int c = threadIdx.x; dx && c < part.y; c += WHOLE_THREADS)
                dx[at + c] = dy[at + c];
            continue;
        }
        const float r = rstd[2 * row + side];
        float u[EACH], h[EACH], dot = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int c = threadIdx.x + WHOLE_THREADS * k;
            u[k] = h[k] = 0;
            if (c < part.y) {
                const float g = to_f32(dy[at + c]);
                h[k] = to_f32(x[at + c]) * r;
                u[k] = g * (to_f32(w[c]) + s.offset);
                dw[k] = fmaf(g, h[k], dw[k]);
                dot = fmaf(u[k], h[k], dot);
            }
        }
        const float mean = block_reduce(dot, scratch) / (float) part.y;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int c = threadIdx.x + WHOLE_THREADS * k;
            if (dx && c < part.y)
                from_f32(r * fmaf(-h[k], mean, u[k]), &dx[at + c]);
        }
    }
    if (side == 2)
        return;
    partial += side ? (int64_t) gridDim.x * s.heads * s.e : 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int c = threadIdx.x + WHOLE_THREADS * k;
        if (c < part.y)
            partial[(int64_t) blockIdx.x * part.y + c] = dw[k];
    }
}

static bool is_whole(const sl_launch *launch)
{
    return sl_qk_norm_attrs(&launch->attrs)->whole != 0;
}

/* The wider of queries and keys. */
static int64_t width_of(const sl_launch *launch)
{
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    return parts.dim[0] > parts.dim[1] ? parts.dim[0] : parts.dim[1];
}

/* Partial rows of a backward. */
static int64_t blocks_for(const sl_launch *launch)
{
    int64_t n = launch->in[1].type.dim[0], most = is_whole(launch) ? MOST_WHOLE_BLOCKS : MOST_BLOCKS;
    return n < most ? n : most;
}

static sl_status qk_norm_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    int e = sl_qk_norm_attrs(&launch->attrs)->head_dim;
    int64_t width = width_of(launch);
    if (is_whole(launch) && width > WHOLE_THREADS * MOST_WHOLE)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "norms of queries and keys on CUDA take widths up to %d, not %lld",
                            WHOLE_THREADS * MOST_WHOLE, (long long) width);
    if (!is_whole(launch) && e > 32 * MOST_EACH)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "norms of query and key heads on CUDA take head dims up to %d, not %d",
                            32 * MOST_EACH, e);
    return SL_OK;
}

static sl_status qk_norm_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    heads_shape s = shape_of(launch, in[0].type.dim[0]);
    SL_DISPATCH(in[0].type.dtype, T, {
        const T *x = (const T *) in[0].data, *wq = (const T *) in[1].data, *wk = (const T *) in[2].data;
        T *y = (T *) out[0].data;
        float *rstd = (float *) out[1].data;
        if (is_whole(launch))
            qk_norm_whole_kernel<T><<<dim3((unsigned) s.n, 3), WHOLE_THREADS, 0, stream>>>(s, x, wq, wk, y, rstd);
        else
            qk_norm_kernel<T>
                <<<(unsigned) ((s.n * s.all + WARPS - 1) / WARPS), WARPS * 32, 0, stream>>>(s, x, wq, wk, y, rstd);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static size_t qk_norm_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    return (size_t) (blocks_for(launch) * (parts.dim[0] + parts.dim[1])) * sizeof(float);
}

template <typename T, int EACH>
static void whole_bwd(const heads_shape &s, const sl_launch *launch, int64_t blocks, cudaStream_t stream)
{
    const sl_operand *in = launch->in, *out = launch->out;
    qk_norm_whole_bwd_kernel<T, EACH><<<dim3((unsigned) blocks, 3), WHOLE_THREADS, 0, stream>>>(
        s, (const T *) in[0].data, (const T *) in[1].data, (const T *) in[2].data, (const T *) in[3].data,
        (const float *) in[4].data, (T *) out[0].data, (float *) launch->workspace);
}

/* Elements per thread are a template argument, so that sums stay in registers. */
template <typename T>
static void whole_bwd_any(const heads_shape &s, const sl_launch *launch, int64_t blocks, cudaStream_t stream)
{
    const int64_t width = width_of(launch);
    if (width <= 4 * WHOLE_THREADS)
        whole_bwd<T, 4>(s, launch, blocks, stream);
    else if (width <= 8 * WHOLE_THREADS)
        whole_bwd<T, 8>(s, launch, blocks, stream);
    else
        whole_bwd<T, MOST_WHOLE>(s, launch, blocks, stream);
}

static sl_status qk_norm_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    heads_shape s = shape_of(launch, in[1].type.dim[0]);
    const sl_qk_parts parts = sl_qk_norm_parts(&launch->attrs);
    const int64_t blocks = blocks_for(launch);
    float *partial = (float *) launch->workspace;
    SL_DISPATCH(in[0].type.dtype, T, {
        T *dwq = (T *) out[1].data, *dwk = (T *) out[2].data;
        const bool add_q = (launch->accumulate & 2) != 0, add_k = (launch->accumulate & 4) != 0;
        if (is_whole(launch))
            whole_bwd_any<T>(s, launch, blocks, stream);
        else
            qk_norm_bwd_kernel<T><<<(unsigned) blocks, WARPS * 32, 0, stream>>>(
                s, (const T *) in[0].data, (const T *) in[1].data, (const T *) in[2].data, (const T *) in[3].data,
                (const float *) in[4].data, (T *) out[0].data, partial);
        if ((dwq || dwk) && parts.dim[0] == parts.dim[1]) {
            column_sum<T>(partial, blocks, parts.dim[0], 2, {{dwq, dwk}, {add_q, add_k}}, stream);
        } else {
            if (dwq)
                column_sum<T>(partial, blocks, parts.dim[0], 1, {{dwq}, {add_q}}, stream);
            if (dwk)
                column_sum<T>(partial + blocks * parts.dim[0], blocks, parts.dim[1], 1, {{dwk}, {add_k}}, stream);
        }
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_qk_norm = {SL_OP_QK_NORM, qk_norm_supports, NULL, qk_norm_run};
extern "C" const sl_cuda_kernel sl_cuda_qk_norm_bwd = {SL_OP_QK_NORM_BWD, qk_norm_supports, qk_norm_bwd_workspace,
                                                       qk_norm_bwd_run};
