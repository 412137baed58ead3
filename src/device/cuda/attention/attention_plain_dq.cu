/*
 * Attention backward for every launch that neither Hopper's kernels nor cuDNN take, in f32 arithmetic and without atomics: every sum
 * has one owner and a fixed order. The scores are recomputed by both owners, which makes seven products of five.
 *
 *   D = rowsum(dO O)      a warp per query and head
 *   dQ                    here: a block has 32 or 64 queries of a head, and over the keys they see dQ += dS K
 *   dK, dV                attention_plain_dkv.cu
 *
 * with P = exp(scale S - lse), dS = P (dO V^T - D), and the scale on dQ and dK at the end. The steps of a tile, each fetch behind a
 * product:
 *
 *   V(t) is here    fetch K(t)      dP = dO V^T
 *   K(t) is here    fetch V(t+1)    S = Q K^T, dS, dQ += dS K
 */
#include "device/cuda/attention/attention_plain.cuh"
#include "ops/attention.h"

using namespace attention_plain;

static constexpr int WARPS = 4; /* of the kernel that computes D */

/* delta[h, i] = sum of do * o over the head's columns. */
template <typename T>
__global__ void delta_kernel(shape s, const T *__restrict__ d_o, const T *__restrict__ o, float *__restrict__ delta)
{
    int lane = threadIdx.x & 31, head = (int) (blockIdx.x % s.heads);
    int64_t i = (int64_t) (blockIdx.x / s.heads) * WARPS + (threadIdx.x >> 5),
            at = i * s.o_width + (int64_t) head * s.e;
    if (i >= s.n)
        return;
    float sum = 0;
    for (int c = lane; c < s.e; c += 32)
        sum = fmaf(to_f32(d_o[at + c]), to_f32(o[at + c]), sum);
    sum = warp_sum(sum);
    if (lane == 0)
        delta[(int64_t) head * s.n + i] = sum;
}

template <typename T, int E, int RA>
__global__ void __launch_bounds__(THREADS, bwd_residents(E, RA))
    dq_kernel(shape s, const T *__restrict__ d_o, const T *__restrict__ q, const T *__restrict__ kv,
              const float *__restrict__ lse, const float *__restrict__ delta, const int32_t *__restrict__ bounds,
              T *__restrict__ dq)
{
    constexpr int ROWS = 8 * RA, B = bwd_tile(E), RB = B / 16, C = columns<E>::count;
    extern __shared__ float4 shared[];
    float *q_tile = (float *) shared, *do_tile = q_tile + ROWS * stride(E), *k_tile = do_tile + ROWS * stride(E),
          *v_tile = k_tile + B * stride(E), *p_tile = v_tile + B * stride(E);
    interval *seen = (interval *) (p_tile + ROWS * p_stride(B));
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    turn mine = turn_of(s, s.heads, ROWS, s.causal);
    const T *k_at = kv + (int64_t) (mine.head / (s.heads / s.kv_heads)) * s.e,
            *v_at = k_at + (int64_t) s.kv_heads * s.e;
    fetch<E, ROWS>(s, q + (int64_t) mine.head * s.e, s.width, mine.first, {0, s.n}, q_tile);
    fetch<E, ROWS>(s, d_o + (int64_t) mine.head * s.e, s.o_width, mine.first, {0, s.n}, do_tile);
    if (threadIdx.x < ROWS)
        seen[threadIdx.x] = keys_of(s, bounds, min(mine.first + (int) threadIdx.x, s.n - 1));
    __syncthreads();
    interval any = {seen[0].low, seen[ROWS - 1].high}, all = {seen[ROWS - 1].low, seen[0].high};
    float stats[RA], d[RA], acc[RA][C] = {};
#pragma unroll
    for (int r = 0; r < RA; r++) {
        int64_t i = (int64_t) mine.head * s.n + min(mine.first + ty + 8 * r, s.n - 1);
        stats[r] = lse[i] * LOG2_E;
        d[r] = delta[i];
    }
    int j = any.low / B * B;
    fetch<E, B>(s, v_at, s.kv_width, j, any, v_tile);
    for (; j < any.high; j += B) {
        float x[RA][RB], dp[RA][RB];
        settle();
        fetch<E, B>(s, k_at, s.kv_width, j, any, k_tile);
        rows_by_rows<E>(do_tile + ty * stride(E), v_tile + tx * stride(E), dp);
        settle();
        if (j + B < any.high)
            fetch<E, B>(s, v_at, s.kv_width, j + B, any, v_tile);
        rows_by_rows<E>(q_tile + ty * stride(E), k_tile + tx * stride(E), x);
        if (s.cap > 0)
#pragma unroll
            for (int r = 0; r < RA; r++)
#pragma unroll
                for (int k = 0; k < RB; k++) {
                    float slope, score = capped(x[r][k] * (s.scale * LOG2_E), s.cap, &slope);
                    x[r][k] = exp2f(score - stats[r]) * (dp[r][k] - d[r]) * slope;
                }
        else
#pragma unroll
            for (int r = 0; r < RA; r++)
#pragma unroll
                for (int k = 0; k < RB; k++)
                    x[r][k] = exp2f(fmaf(x[r][k], s.scale * LOG2_E, -stats[r])) * (dp[r][k] - d[r]);
        if (j < all.low || j + B > all.high)
            hide(seen + ty, j + tx, 0, x);
        put_rows<B>(p_tile + ty * p_stride(B) + tx, x);
        __syncwarp();
        rows_by_columns<E, B>(p_tile + ty * p_stride(B), k_tile + tx * columns<E>::group, acc);
    }
#pragma unroll
    for (int r = 0; r < RA; r++) {
        int i = mine.first + ty + 8 * r;
        if (i >= s.n)
            continue;
#pragma unroll
        for (int c = 0; c < C; c++)
            acc[r][c] *= s.scale;
        put_row<E>(s, dq + i * s.width + (int64_t) mine.head * s.e, tx, false, acc[r]);
    }
}

template <typename T, int E, int RA>
static sl_status run(sl_cuda *cuda, const sl_launch *launch, const sl_attention_layout *at, shape s,
                     cudaStream_t stream)
{
    constexpr size_t shared = shared_bytes(E, RA, bwd_tile(E), 2, 2);
    unsigned blocks = blocks_of(&s, s.n, s.heads, 8 * RA, s.q_offset ? 0 : sl_attention_attrs(&launch->attrs)->uniform);
    SL_TRY(allow_shared(cuda, (const void *) dq_kernel<T, E, RA>, shared, s.e));
    dq_kernel<T, E, RA><<<blocks, THREADS, shared, stream>>>(
        s, (const T *) launch->in[0].data, (const T *) launch->in[1].data,
        (const T *) sl_attention_kv(at, &launch->in[1], &launch->in[2]), (const float *) launch->in[4].data,
        (const float *) launch->workspace, (const int32_t *) launch->in[5].data, (T *) launch->out[0].data);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status run_dq(sl_cuda *cuda, const sl_launch *launch, const sl_attention_layout *at, shape s,
                        cudaStream_t stream)
{
    SL_DISPATCH(
        launch->in[0].type.dtype, T, SL_ATTENTION_DISPATCH(s.e, E, {
            using ra = variants<T, E>;
            if (wants_more_blocks(cuda, s.n, s.heads, ra::spreads, shared_bytes(E, ra::most, bwd_tile(E), 2, 2)))
                return run<T, E, ra::least>(cuda, launch, at, s, stream);
            return run<T, E, ra::most>(cuda, launch, at, s, stream);
        }));
    return SL_OK;
}

/* D alone. */
extern "C" size_t sl_cuda_attention_plain_bwd_workspace(const sl_launch *launch)
{
    return (size_t) (launch->in[0].type.dim[0] * sl_attention_attrs(&launch->attrs)->heads) * sizeof(float);
}

extern "C" sl_status sl_cuda_attention_plain_bwd(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    shape s = shape_of(launch, &at, launch->in[1].type.dim[0], &launch->in[5].type);
    unsigned blocks = (unsigned) ((s.n + WARPS - 1) / WARPS * s.heads);
    SL_DISPATCH(launch->in[0].type.dtype, T,
                (delta_kernel<T><<<blocks, WARPS * 32, 0, stream>>>(
                    s, (const T *) launch->in[0].data, (const T *) launch->in[3].data, (float *) launch->workspace)));
    SL_CUDA_LAUNCHED();
    if (launch->out[0].data)
        SL_TRY(run_dq(cuda, launch, &at, s, stream));
    return sl_cuda_attention_plain_dkv(cuda, launch, stream);
}
