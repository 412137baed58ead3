/*
 * RMSNorm of the query and key heads in the rows of qkv, and its backward. A warp has one head at a time, its lanes neighbouring
 * elements, MOST_EACH at most; v is copied by the warps as further heads.
 *
 * Backward: a block walks rows blockIdx.x, blockIdx.x + gridDim.x, ..., its warp w the heads w, w + WARPS, ... of each. The warp keeps
 * its sums for dwq and dwk in registers; the block adds its warps' in order and leaves one partial row of each (column_sum.cuh). So
 * every sum's tree follows from the shape alone.
 */
#include "device/cuda/kernels/column_sum.cuh"
#include "ops/qk_norm.h"

static constexpr int WARPS = 8, MOST_EACH = 8; /* head dims up to 256 */
static constexpr int64_t MOST_BLOCKS = 528;

struct heads_shape {
    int64_t n;
    int heads, normed, all, e; /* query heads; those and the key heads; those and v's */
    float eps;
};

static heads_shape shape_of(const sl_launch *launch, int64_t n)
{
    const struct sl_qk_norm_attrs *a = sl_qk_norm_attrs(&launch->attrs);
    return {n, a->heads, a->heads + a->kv_heads, a->heads + 2 * a->kv_heads, a->head_dim, a->eps};
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
            from_f32(normed ? keep[k] * r * to_f32(w[lane + 32 * k]) : keep[k], &y[item * s.e + lane + 32 * k]);
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
                    g[k] *= present ? to_f32(w[lane + 32 * k]) : 0.0f;
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

static int64_t blocks_for(int64_t n)
{
    return n < MOST_BLOCKS ? n : MOST_BLOCKS;
}

static sl_status qk_norm_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    int e = sl_qk_norm_attrs(&launch->attrs)->head_dim;
    if (e > 32 * MOST_EACH)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "norms of query and key heads on CUDA take head dims up to %d, not %d",
                            32 * MOST_EACH, e);
    return SL_OK;
}

static sl_status qk_norm_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    heads_shape s = shape_of(launch, in[0].type.dim[0]);
    SL_DISPATCH(in[0].type.dtype, T,
                (qk_norm_kernel<T><<<(unsigned) ((s.n * s.all + WARPS - 1) / WARPS), WARPS * 32, 0, stream>>>(
                    s, (const T *) in[0].data, (const T *) in[1].data, (const T *) in[2].data, (T *) out[0].data,
                    (float *) out[1].data)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static size_t qk_norm_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (2 * blocks_for(launch->in[1].type.dim[0]) * launch->in[2].type.dim[0]) * sizeof(float);
}

static sl_status qk_norm_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_operand *in = launch->in, *out = launch->out;
    heads_shape s = shape_of(launch, in[1].type.dim[0]);
    const int64_t blocks = blocks_for(s.n);
    SL_DISPATCH(in[0].type.dtype, T, {
        column_sums<T> to = {{(T *) out[1].data, (T *) out[2].data, NULL},
                             {(launch->accumulate & 2) != 0, (launch->accumulate & 4) != 0, false}};
        qk_norm_bwd_kernel<T><<<(unsigned) blocks, WARPS * 32, 0, stream>>>(
            s, (const T *) in[0].data, (const T *) in[1].data, (const T *) in[2].data, (const T *) in[3].data,
            (const float *) in[4].data, (T *) out[0].data, (float *) launch->workspace);
        if (to.out[0] || to.out[1])
            column_sum<T>(launch->workspace, blocks, s.e, 2, to, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_qk_norm = {SL_OP_QK_NORM, qk_norm_supports, NULL, qk_norm_run};
extern "C" const sl_cuda_kernel sl_cuda_qk_norm_bwd = {SL_OP_QK_NORM_BWD, qk_norm_supports, qk_norm_bwd_workspace,
                                                       qk_norm_bwd_run};
