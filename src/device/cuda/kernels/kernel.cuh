/*
 * What the CUDA kernels share: 16-byte accesses, f32 arithmetic on f32 or bf16 storage, block reductions in a fixed order, and
 * the choice of template by dtype and alignment. Every reduction here is a fixed tree: the same bits on every run.
 */
#ifndef SL_DEVICE_CUDA_KERNEL_CUH
#define SL_DEVICE_CUDA_KERNEL_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "device/cuda/runtime/cuda.h"

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ float to_f32(float x)
{
    return x;
}
__device__ __forceinline__ float to_f32(bf16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ void from_f32(float x, float *y)
{
    *y = x;
}
__device__ __forceinline__ void from_f32(float x, bf16 *y)
{
    *y = __float2bfloat16_rn(x);
}

/* W elements as they lie in memory, moved by accesses of up to 16 bytes, and held in registers until they are needed as f32: x[j]. A
 * bf16 is the upper half of its f32, so one instruction makes either element of a word; through the type's own conversion it
 * takes two, and a choice between two structs of 16-bit elements is made element by element. */
template <typename T, int W> struct alignas(sizeof(T) * W > 16 ? 16 : sizeof(T) * W) raw {
    uint32_t word[sizeof(T) * W / 4];
    __device__ __forceinline__ float operator[](int j) const
    {
        if (sizeof(T) == 4)
            return __uint_as_float(word[j]);
        return __uint_as_float(j % 2 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
    }
};
template <> struct raw<bf16, 1> {
    uint16_t half;
    __device__ __forceinline__ float operator[](int) const
    {
        return __uint_as_float((uint32_t) half << 16);
    }
};

template <int W, typename T> __device__ __forceinline__ raw<T, W> load_raw(const T *from)
{
    return *reinterpret_cast<const raw<T, W> *>(from);
}

template <int W, typename T> __device__ __forceinline__ void load(const T *from, float (&to)[W])
{
    raw<T, W> x = load_raw<W>(from);
#pragma unroll
    for (int j = 0; j < W; j++)
        to[j] = x[j];
}

/* Rounded and packed: one f32, or two bf16. */
__device__ __forceinline__ uint32_t word_of(const float *, const float *from)
{
    return __float_as_uint(from[0]);
}
__device__ __forceinline__ uint32_t word_of(const bf16 *, const float *from)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(from[0], from[1]);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* KEPT: by an instruction that the compiler leaves alone even where another branch stores the same elements one by one (it would
 * merge the two, and AdamW's f32 states took twice as long), at the price that nothing is moved across it. */
template <bool KEPT, typename V> __device__ __forceinline__ void put(V *to, V value)
{
    if constexpr (KEPT)
        __stwb(to, value);
    else
        *to = value;
}

/* By CUDA's own vector types: a struct's copy is taken apart into stores of its elements more often. */
template <int W, bool KEPT = false, typename T> __device__ __forceinline__ void store(T *to, const float (&from)[W])
{
    constexpr int each = 4 / (int) sizeof(T), words = W / each, piece = words > 4 ? 4 : words;
    if constexpr (W % each != 0 || (piece != 4 && piece != 2)) {
#pragma unroll
        for (int j = 0; j < W; j++)
            from_f32(from[j], &to[j]);
    } else {
#pragma unroll
        for (int i = 0; i < words; i += piece) {
            uint32_t word[piece];
#pragma unroll
            for (int k = 0; k < piece; k++)
                word[k] = word_of(to, from + (i + k) * each);
            if constexpr (piece == 4)
                put<KEPT>(reinterpret_cast<uint4 *>(to + i * each), make_uint4(word[0], word[1], word[2], word[3]));
            else
                put<KEPT>(reinterpret_cast<uint2 *>(to + i * each), make_uint2(word[0], word[1]));
        }
    }
}

/* A piece of a row as it is, or added to what is there. */
template <int W, typename T> __device__ __forceinline__ void put_row(T *to, const raw<T, W> &piece, bool accumulate)
{
    if (!accumulate) {
        *reinterpret_cast<raw<T, W> *>(to) = piece;
        return;
    }
    float sum[W];
    load<W>(to, sum);
#pragma unroll
    for (int j = 0; j < W; j++)
        sum[j] += piece[j];
    store<W>(to, sum);
}

/* Sums of a piece, or these added to what is there. */
template <int W, typename T> __device__ __forceinline__ void put_sums(T *to, float (&sum)[W], bool accumulate)
{
    if (accumulate) {
        const raw<T, W> old = load_raw<W>(to);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += old[j];
    }
    store<W>(to, sum);
}

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* 2^x in one instruction; below 2^-126 it is 0. */
__device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* Sum (or maximum) over the block, the same in every thread. `scratch`: 33 floats of shared memory, free again after the call. */
template <bool MAXIMUM = false> __device__ __forceinline__ float block_reduce(float x, float *scratch)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = MAXIMUM ? warp_max(x) : warp_sum(x);
    __syncthreads();
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    if (warp == 0) {
        x = lane < warps ? scratch[lane] : (MAXIMUM ? -INFINITY : 0.0f);
        x = MAXIMUM ? warp_max(x) : warp_sum(x);
        if (lane == 0)
            scratch[32] = x;
    }
    __syncthreads();
    return scratch[32];
}

/* Attention's boundaries between sequences, or documents: the last one that begins at or before `row`, of those that begin one. */
__device__ __forceinline__ int sequence_of(const int32_t *bounds, int n_bounds, int row)
{
    int low = 0, high = n_bounds - 1;
    while (low + 1 < high) {
        int mid = (low + high) / 2;
        if (bounds[mid] <= row)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Runs the statement with T the storage type of `dtype`. */
#define SL_DISPATCH(dtype, T, ...) \
    do {                           \
        if ((dtype) == SL_BF16) {  \
            typedef bf16 T;        \
            __VA_ARGS__;           \
        } else {                   \
            typedef float T;       \
            __VA_ARGS__;           \
        }                          \
    } while (0)

/* Do all of them begin at multiples of 16 bytes? */
template <typename... Pointers> static inline bool sl_cuda_aligned(Pointers... pointers)
{
    return ((((uintptr_t) pointers & 15) == 0) && ...);
}

/* Blocks for `items` pieces of work at `per_block` each: enough to fill the machine, the kernel loops over the rest. */
static inline int sl_cuda_blocks(sl_cuda *cuda, int64_t items, int64_t per_block)
{
    int64_t blocks = (items + per_block - 1) / per_block, most = (int64_t) sl_cuda_get_info(cuda)->multiprocessors * 32;
    return (int) (blocks < 1 ? 1 : blocks < most ? blocks : most);
}

#define SL_CUDA_LAUNCHED() SL_CUDA(cudaGetLastError())

#endif
