/* Sums of squares over whole tensors in the order of ops/reduce.h: a kernel adds up pieces, and each thread block of the kernel that
 * needs a tensor's sum adds up its pieces again, which takes less time than another launch. */
#ifndef SL_DEVICE_CUDA_PIECES_CUH
#define SL_DEVICE_CUDA_PIECES_CUH

#include "device/cuda/kernels/optimizer.cuh"
#include "device/cuda/kernels/pieces.h"

static constexpr int SUM_THREADS = SL_PIECE / SL_SUM_BLOCK * SL_SUM_LANES; /* one per lane */
static constexpr int SUM_BLOCKS = 4;     /* per multiprocessor: no more, so that registers hold all loads under way */
static constexpr int AT_ONCE = 2 * EACH; /* elements per thread under way */

/* Element i of a tensor that ends at `end`, another one behind: loads without branches, so that all of a thread's are under way at
 * once. */
template <typename T> __device__ __forceinline__ raw<T, 1> load_one(const T *from, int i, int end)
{
    return load_raw<1>(from + min(i, end - 1));
}

/* The sums of one piece, of which `left` elements exist, by one thread block. `values` sets x[k][j] to sum k's value of element
 * i + j * SL_SUM_LANES, where that is below `end`. */
template <int SUMS, typename Values> __device__ __forceinline__ void sum_piece(int64_t left, float *to, Values values)
{
    __shared__ float upper[SUMS][SUM_THREADS / 2], blocks[SUMS][SL_PIECE / SL_SUM_BLOCK];
    const int block = threadIdx.x / SL_SUM_LANES, lane = threadIdx.x % SL_SUM_LANES;
    const int end = (int) min(left, (int64_t) (block + 1) * SL_SUM_BLOCK);
    float sum[SUMS] = {};
#pragma unroll 1
    for (int i = block * SL_SUM_BLOCK + lane; i < end; i += AT_ONCE * SL_SUM_LANES) {
        float x[SUMS][AT_ONCE];
        values(i, end, x);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j * SL_SUM_LANES < end)
#pragma unroll
                for (int k = 0; k < SUMS; k++)
                    sum[k] = __fmaf_rn(x[k][j], x[k][j], sum[k]);
    }
#pragma unroll
    for (int k = 0; k < SUMS; k++)
        if (lane >= 32)
            upper[k][block * 32 + lane - 32] = sum[k];
    __syncthreads();
    if (lane < 32) {
#pragma unroll
        for (int k = 0; k < SUMS; k++) {
            sum[k] += upper[k][block * 32 + lane];
#pragma unroll
            for (int half = 16; half > 0; half /= 2)
                sum[k] += __shfl_down_sync(0xffffffffu, sum[k], half);
            if (lane == 0)
                blocks[k][block] = sum[k];
        }
    }
    __syncthreads();
    if (threadIdx.x < SUMS)
        to[threadIdx.x] = blocks[threadIdx.x][0] + (left > SL_SUM_BLOCK ? blocks[threadIdx.x][1] : 0.0f);
}

/* The sums of a tensor from those of its pieces, the same in all THREADS threads of the block. */
template <int SUMS> __device__ __forceinline__ void sum_pieces(const float *sums, int64_t pieces, float (&total)[SUMS])
{
    __shared__ float warps[SUMS][THREADS / 32];
    static_assert(THREADS / 32 == SL_PAIRS, "one fold adds the sums of the warps");
    const int64_t share = sl_sum_share(pieces, THREADS), first = threadIdx.x * share;
    const int threads = (int) ((pieces + share - 1) / share), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads(); /* the last call's sums are read */
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        float sum = first < pieces ? sl_sum_part(sums + k, SUMS, first, min(first + share, pieces)) : 0.0f;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float right = __shfl_down_sync(0xffffffffu, sum, step);
            if (lane + step < threads - warp * 32)
                sum += right;
        }
        if (lane == 0)
            warps[k][warp] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        float s[SL_PAIRS];
#pragma unroll
        for (int i = 0; i < SL_PAIRS; i++)
            s[i] = warps[k][i];
        total[k] = sl_add_pairs(s, (threads + 31) / 32);
    }
}

#endif
