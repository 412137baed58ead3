/*
 * Attention forward for every launch that neither Hopper's kernels nor cuDNN take (f32, odd head dims, on older GPUs packed sequences
 * of different lengths), in f32 arithmetic: a block has 32 or 64 queries of a head and walks over the keys that any of them sees, tile
 * by tile, with the softmax of Milakov and Gimelshein: the maximum so far, the sum so far and the output so far, scaled down whenever
 * the maximum grows. Scores are kept in units of log 2.
 *
 *   K(t) is here    fetch V(t)      S = Q K^T, mask, softmax, P
 *   V(t) is here    fetch K(t+1)    O += P V
 *
 * Each fetch has a product to hide behind, and a tile takes two barriers.
 */
#include "device/cuda/attention/attention_plain.cuh"
#include "ops/attention.h"

using namespace attention_plain;

/* Keys of a tile: what leaves shared memory for three blocks a multiprocessor (E = 128 and 256: two). */
__host__ __device__ static constexpr int tile(int e)
{
    return e <= 64 ? 64 : e == 128 ? 48 : 32;
}
static constexpr int residents(int e, int ra)
{
    return e == 256 ? 2 : (e == 128 ? 2 : 3) + (ra == 4);
}

/* One tile's step of the softmax: S becomes P. */
template <int RA, int RB, int C>
__device__ __forceinline__ void softmax_step(float (&x)[RA][RB], float (&most)[RA], float (&total)[RA],
                                             float (&acc)[RA][C])
{
#pragma unroll
    for (int r = 0; r < RA; r++) {
        float top = most[r], sum = 0;
#pragma unroll
        for (int k = 0; k < RB; k++)
            top = fmaxf(top, x[r][k]);
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
        float base = top == -INFINITY ? 0.0f : top, fade = exp2f(most[r] - base); /* nothing seen so far: fade 0 */
#pragma unroll
        for (int k = 0; k < RB; k++) {
            x[r][k] = exp2f(x[r][k] - base);
            sum += x[r][k];
        }
        most[r] = top;
        total[r] = fmaf(total[r], fade, sum); /* of this thread's columns; all columns' at the end */
#pragma unroll
        for (int c = 0; c < C; c++)
            acc[r][c] *= fade;
    }
}

template <typename T, int E, int RA>
__global__ void __launch_bounds__(THREADS, residents(E, RA))
    attention_forward(shape s, const T *__restrict__ q, const T *__restrict__ kv, const int32_t *__restrict__ bounds,
                      T *__restrict__ o, float *__restrict__ lse)
{
    constexpr int ROWS = 8 * RA, B = tile(E), RB = B / 16, C = columns<E>::count;
    extern __shared__ float4 shared[];
    float *q_tile = (float *) shared, *k_tile = q_tile + ROWS * stride(E), *v_tile = k_tile + B * stride(E),
          *p_tile = v_tile + B * stride(E);
    interval *seen = (interval *) (p_tile + ROWS * p_stride(B));
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    turn mine = turn_of(s, s.heads, ROWS, s.causal);
    const T *k_at = kv + (int64_t) (mine.head / (s.heads / s.kv_heads)) * s.e,
            *v_at = k_at + (int64_t) s.kv_heads * s.e;
    fetch<E, ROWS>(s, q + (int64_t) mine.head * s.e, s.width, mine.first, {0, s.n}, q_tile);
    if (threadIdx.x < ROWS)
        seen[threadIdx.x] = keys_of(s, bounds, min(mine.first + (int) threadIdx.x, s.n - 1));
    __syncthreads();
    interval any = {seen[0].low, seen[ROWS - 1].high}, all = {seen[ROWS - 1].low, seen[0].high};
    float most[RA], total[RA] = {}, acc[RA][C] = {};
#pragma unroll
    for (int r = 0; r < RA; r++)
        most[r] = -INFINITY;
    int j = any.low / B * B;
    fetch<E, B>(s, k_at, s.kv_width, j, any, k_tile);
    for (; j < any.high; j += B) {
        float x[RA][RB];
        settle();
        fetch<E, B>(s, v_at, s.kv_width, j, any, v_tile);
        rows_by_rows<E>(q_tile + ty * stride(E), k_tile + tx * stride(E), x);
#pragma unroll
        for (int r = 0; r < RA; r++)
#pragma unroll
            for (int k = 0; k < RB; k++)
                x[r][k] *= s.scale * LOG2_E;
        if (s.cap > 0) {
            float slope;
#pragma unroll
            for (int r = 0; r < RA; r++)
#pragma unroll
                for (int k = 0; k < RB; k++)
                    x[r][k] = capped(x[r][k], s.cap, &slope);
        }
        if (j < all.low || j + B > all.high)
            hide(seen + ty, j + tx, -INFINITY, x);
        softmax_step(x, most, total, acc);
        put_rows<B>(p_tile + ty * p_stride(B) + tx, x);
        settle();
        if (j + B < any.high)
            fetch<E, B>(s, k_at, s.kv_width, j + B, any, k_tile);
        rows_by_columns<E, B>(p_tile + ty * p_stride(B), v_tile + tx * columns<E>::group, acc);
    }
#pragma unroll
    for (int r = 0; r < RA; r++) {
        int i = mine.first + ty + 8 * r;
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2)
            total[r] += __shfl_xor_sync(0xffffffffu, total[r], offset);
        if (i >= s.n)
            continue;
#pragma unroll
        for (int c = 0; c < C; c++)
            acc[r][c] /= total[r];
        put_row<E>(s, o + i * s.o_width + (int64_t) mine.head * s.e, tx, false, acc[r]);
        if (tx == 0)
            lse[(int64_t) mine.head * s.n + i] = fmaf(most[r], LN_2, logf(total[r]));
    }
}

template <typename T, int E, int RA>
static sl_status run(sl_cuda *cuda, const sl_launch *launch, const sl_attention_layout *at, shape s,
                     cudaStream_t stream)
{
    constexpr size_t shared = shared_bytes(E, RA, tile(E), 1, 2);
    const T *kv = (const T *) sl_attention_kv(at, &launch->in[0], &launch->in[1]);
    unsigned blocks = blocks_of(&s, s.n, s.heads, 8 * RA, s.q_offset ? 0 : sl_attention_attrs(&launch->attrs)->uniform);
    SL_TRY(allow_shared(cuda, (const void *) attention_forward<T, E, RA>, shared, s.e));
    attention_forward<T, E, RA><<<blocks, THREADS, shared, stream>>>(
        s, (const T *) launch->in[0].data, kv, (const int32_t *) launch->in[2].data, (T *) launch->out[0].data,
        (float *) launch->out[1].data);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" size_t sl_cuda_attention_plain_shared(int head_dim, bool backward)
{
    size_t bytes = 0;
    SL_ATTENTION_DISPATCH(head_dim, E, {
        constexpr int rows = variants<bf16, E>::least; /* f32 takes no more */
        bytes = backward ? shared_bytes(E, rows, bwd_tile(E), 2, 2) : shared_bytes(E, rows, tile(E), 1, 2);
    });
    return bytes;
}

extern "C" sl_status sl_cuda_attention_plain(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    sl_attention_layout at = sl_attention_places(&launch->attrs, &launch->in[0].type, &launch->in[1].type);
    shape s = shape_of(launch, &at, launch->in[0].type.dim[0], &launch->in[2].type);
    SL_DISPATCH(launch->in[0].type.dtype, T, SL_ATTENTION_DISPATCH(s.e, E, {
                    using ra = variants<T, E>;
                    if (wants_more_blocks(cuda, s.n, s.heads, ra::spreads, shared_bytes(E, ra::most, tile(E), 1, 2)))
                        return run<T, E, ra::least>(cuda, launch, &at, s, stream);
                    return run<T, E, ra::most>(cuda, launch, &at, s, stream);
                }));
    return SL_OK;
}
