/*
 * dK and dV of the attention backward (attention_plain_dq.cu): a block has 32 or 64 keys of a K/V head and goes over the query heads
 * that share it, and the queries that see any of its keys, both ascending; so it alone adds to its rows of dK and dV.
 *
 *   dO(t) is here    fetch Q(t)       dP^T = V dO^T
 *   Q(t)  is here                     S^T = K Q^T, P^T, dS^T, dV += P^T dO
 *   dO(t) is free    fetch dO(t+1)    dK += dS^T Q
 */
#include "device/cuda/attention/attention_plain.cuh"
#include "ops/attention.h"

using namespace attention_plain;

/* dk and dv as f32 beside bf16 operands, or as the operands are. */
struct destination {
    void *dkv;
    bool wide, accumulate;
};

template <typename T, int E>
__device__ __forceinline__ void put_gradient(const shape &s, destination to, int64_t at, int tx,
                                             const float (&x)[columns<E>::count])
{
    if (sizeof(T) == sizeof(float) || to.wide)
        put_row<E>(s, (float *) to.dkv + at, tx, to.accumulate, x);
    else
        put_row<E>(s, (T *) to.dkv + at, tx, to.accumulate, x);
}

template <typename T, int E, int RA>
__global__ void __launch_bounds__(THREADS, bwd_residents(E, RA))
    dkv_kernel(shape s, const T *__restrict__ d_o, const T *__restrict__ q, const T *__restrict__ kv,
               const float *__restrict__ lse, const float *__restrict__ delta, const int32_t *__restrict__ bounds,
               destination to)
{
    constexpr int ROWS = 8 * RA, B = bwd_tile(E), RB = B / 16, C = columns<E>::count;
    extern __shared__ float4 shared[];
    float *k_tile = (float *) shared, *v_tile = k_tile + ROWS * stride(E), *q_tile = v_tile + ROWS * stride(E),
          *do_tile = q_tile + B * stride(E), *p_tile = do_tile + B * stride(E);
    interval *seen = (interval *) (p_tile + ROWS * p_stride(B));
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4, share = s.heads / s.kv_heads;
    turn mine = turn_of(s, s.kv_heads, ROWS, false);
    int64_t k_first = (int64_t) mine.head * s.e, v_first = (int64_t) (s.kv_heads + mine.head) * s.e;
    if (threadIdx.x < ROWS)
        seen[threadIdx.x] = queries_of(s, bounds, min(mine.first + (int) threadIdx.x, s.m - 1));
    __syncthreads();
    interval any = {seen[0].low, seen[ROWS - 1].high}, all = {seen[ROWS - 1].low, seen[0].high};
    float dk[RA][C] = {}, dv[RA][C] = {};
    int start = any.low / B * B, head = mine.head * share, last_head = head + share - 1, i = start;
    fetch<E, ROWS>(s, kv + k_first, s.kv_width, mine.first, {0, s.m}, k_tile);
    fetch<E, ROWS>(s, kv + v_first, s.kv_width, mine.first, {0, s.m}, v_tile);
    fetch<E, B>(s, d_o + (int64_t) head * s.e, s.o_width, i, any, do_tile);
    while (any.low < any.high) {
        float x[RA][RB], ds[RA][RB], stats[RB], d[RB];
        settle();
        fetch<E, B>(s, q + (int64_t) head * s.e, s.width, i, any, q_tile);
#pragma unroll
        for (int k = 0; k < RB; k++) {
            int64_t at = (int64_t) head * s.n + min(i + tx + 16 * k, s.n - 1);
            stats[k] = lse[at] * LOG2_E;
            d[k] = delta[at];
        }
        rows_by_rows<E>(v_tile + ty * stride(E), do_tile + tx * stride(E), ds);
        settle();
        rows_by_rows<E>(k_tile + ty * stride(E), q_tile + tx * stride(E), x);
        if (s.cap > 0)
#pragma unroll
            for (int r = 0; r < RA; r++)
#pragma unroll
                for (int k = 0; k < RB; k++) {
                    float slope, score = capped(x[r][k] * (s.scale * LOG2_E), s.cap, &slope);
                    x[r][k] = exp2f(score - stats[k]);
                    ds[r][k] = x[r][k] * (ds[r][k] - d[k]) * slope;
                }
        else
#pragma unroll
            for (int r = 0; r < RA; r++)
#pragma unroll
                for (int k = 0; k < RB; k++) {
                    x[r][k] = exp2f(fmaf(x[r][k], s.scale * LOG2_E, -stats[k]));
                    ds[r][k] = x[r][k] * (ds[r][k] - d[k]);
                }
        if (i < all.low || i + B > all.high) {
            hide(seen + ty, i + tx, 0, x);
            hide(seen + ty, i + tx, 0, ds);
        }
        put_rows<B>(p_tile + ty * p_stride(B) + tx, x);
        __syncwarp();
        rows_by_columns<E, B>(p_tile + ty * p_stride(B), do_tile + tx * columns<E>::group, dv);
        __syncthreads(); /* dO and P are free */
        put_rows<B>(p_tile + ty * p_stride(B) + tx, ds);
        __syncwarp();
        bool last = i + B >= any.high;
        int next = last ? head + 1 : head;
        i = last ? start : i + B;
        if (next <= last_head)
            fetch<E, B>(s, d_o + (int64_t) next * s.e, s.o_width, i, any, do_tile);
        rows_by_columns<E, B>(p_tile + ty * p_stride(B), q_tile + tx * columns<E>::group, dk);
        if (next > last_head)
            break;
        head = next;
    }
#pragma unroll
    for (int r = 0; r < RA; r++) {
        int j = mine.first + ty + 8 * r;
        if (j >= s.m)
            continue;
#pragma unroll
        for (int c = 0; c < C; c++)
            dk[r][c] *= s.scale;
        put_gradient<T, E>(s, to, j * s.kv_width + k_first, tx, dk[r]);
        put_gradient<T, E>(s, to, j * s.kv_width + v_first, tx, dv[r]);
    }
}

template <typename T, int E, int RA>
static sl_status run(sl_cuda *cuda, const sl_launch *launch, const sl_attention_layout *at, shape s,
                     cudaStream_t stream)
{
    constexpr size_t shared = shared_bytes(E, RA, bwd_tile(E), 2, 2);
    unsigned blocks =
        blocks_of(&s, s.m, s.kv_heads, 8 * RA, s.q_offset ? 0 : sl_attention_attrs(&launch->attrs)->uniform);
    destination to = {sl_attention_kv(at, &launch->out[0], &launch->out[1]),
                      launch->out[at->kv_first ? 0 : 1].type.dtype == SL_F32, (launch->accumulate >> 1 & 1) != 0};
    if (!to.dkv)
        return SL_OK;
    SL_TRY(allow_shared(cuda, (const void *) dkv_kernel<T, E, RA>, shared, s.e));
    dkv_kernel<T, E, RA><<<blocks, THREADS, shared, stream>>>(
        s, (const T *) launch->in[0].data, (const T *) launch->in[1].data,
        (const T *) sl_attention_kv(at, &launch->in[1], &launch->in[2]), (const float *) launch->in[4].data,
        (const float *) launch->workspace, (const int32_t *) launch->in[5].data, to);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" sl_status sl_cuda_attention_plain_dkv(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[1].type, &launch->in[2].type);
    shape s = shape_of(launch, &at, launch->in[1].type.dim[0], &launch->in[5].type);
    SL_DISPATCH(
        launch->in[0].type.dtype, T, SL_ATTENTION_DISPATCH(s.e, E, {
            using ra = variants<T, E>;
            if (wants_more_blocks(cuda, s.m, s.kv_heads, ra::spreads, shared_bytes(E, ra::most, bwd_tile(E), 2, 2)))
                return run<T, E, ra::least>(cuda, launch, &at, s, stream);
            return run<T, E, ra::most>(cuda, launch, &at, s, stream);
        }));
    return SL_OK;
}
