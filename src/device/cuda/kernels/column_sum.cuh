/*
 * Sums over rows, in two halves and an order that the shape fixes.
 *
 * First half: a block takes SUM_LANES pieces of columns and a group of rows. Its SUM_DEPTH rows of threads each walk every
 * SUM_DEPTH-th row of the group and are added in order at the end: partial[group][c]. How many groups there are follows from the
 * shape alone: as many blocks as a large part runs at once, and no more, so that none comes late and few partial sums are left.
 *
 * Second half: 32 columns and 32 rows of threads per block: thread row y takes groups y, y + 32, ..., then the thread rows are
 * added in order. A handful of loads per thread, all in flight at once, so the launch costs hardly more than its latency.
 */
#ifndef SL_DEVICE_CUDA_COLUMN_SUM_CUH
#define SL_DEVICE_CUDA_COLUMN_SUM_CUH

#include "device/cuda/kernels/kernel.cuh"

static constexpr int SUM_LANES = 32, SUM_DEPTH = 8;
static constexpr int64_t SUM_BLOCKS = 528; /* four per multiprocessor of the largest part, whatever the machine */

/* Groups of rows for an x[n, d] whose rows are walked in 16-byte pieces where they divide d. */
static inline int64_t sum_groups(const sl_type *x)
{
    int64_t d = x->dim[x->rank - 1], n = sl_type_count(x) / d;
    int64_t wide = 16 / (int64_t) sl_dtype_bytes(x->dtype), columns = SUM_LANES * (d % wide == 0 ? wide : 1);
    int64_t across = (d + columns - 1) / columns, groups = across < SUM_BLOCKS ? SUM_BLOCKS / across : 1;
    int64_t most = (n + 4 * SUM_DEPTH - 1) / (4 * SUM_DEPTH); /* at least four rows for every thread */
    return groups < most ? groups : most;
}

template <int W> static dim3 sum_grid(int64_t d, int64_t groups)
{
    return dim3((unsigned) ((d + SUM_LANES * W - 1) / (SUM_LANES * W)), (unsigned) groups);
}

/* Every thread's sums of its piece of columns, (blockIdx.x * SUM_LANES + threadIdx.x) * W and on, become the block's partial row. */
template <int W>
__device__ __forceinline__ void sum_block(const float (&sum)[W], float *__restrict__ partial, int64_t d)
{
    __shared__ float part[SUM_DEPTH][SUM_LANES * W];
#pragma unroll
    for (int j = 0; j < W; j++)
        part[threadIdx.y][j * SUM_LANES + threadIdx.x] = sum[j];
    __syncthreads();
    for (int i = threadIdx.y * SUM_LANES + threadIdx.x; i < SUM_LANES * W; i += SUM_LANES * SUM_DEPTH) {
        int64_t column = (int64_t) blockIdx.x * SUM_LANES * W + i;
        float total = 0;
#pragma unroll
        for (int y = 0; y < SUM_DEPTH; y++)
            total += part[y][i % W * SUM_LANES + i / W];
        if (column < d)
            partial[blockIdx.y * d + column] = total;
    }
}

static constexpr int COLUMN_SUM_ROWS = 32;

/* Up to three sums at a time (gradients of weight and bias, and what was there before), each one's partials behind the last one's. */
template <typename T> struct column_sums {
    T *out[3]; /* NULL: not wanted */
    bool accumulate[3];
};

template <typename T>
__global__ void __launch_bounds__(32 * COLUMN_SUM_ROWS)
    column_sum_kernel(const float *__restrict__ partial, const __grid_constant__ column_sums<T> to, int64_t groups,
                      int64_t d)
{
    __shared__ float part[COLUMN_SUM_ROWS][32];
    T *out = to.out[blockIdx.y];
    int64_t c = (int64_t) blockIdx.x * 32 + threadIdx.x;
    if (!out)
        return;
    partial += blockIdx.y * groups * d;
    float sum = 0;
    if (c < d)
#pragma unroll 8
        for (int64_t g = threadIdx.y; g < groups; g += COLUMN_SUM_ROWS)
            sum += partial[g * d + c];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < d) {
#pragma unroll
        for (int k = 1; k < COLUMN_SUM_ROWS; k++)
            sum += part[k][threadIdx.x];
        if (to.accumulate[blockIdx.y])
            sum += to_f32(out[c]);
        from_f32(sum, &out[c]);
    }
}

template <typename T>
static void column_sum(const void *partial, int64_t groups, int64_t d, int count, const column_sums<T> &to,
                       cudaStream_t stream)
{
    column_sum_kernel<T><<<dim3((unsigned) ((d + 31) / 32), (unsigned) count), dim3(32, COLUMN_SUM_ROWS), 0, stream>>>(
        (const float *) partial, to, groups, d);
}

#endif
