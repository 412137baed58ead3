/*
 * The second half of every sum over rows: partial[group][c], left by blocks that each took a group of rows, is added up in an
 * order that the shape fixes. 32 columns and 32 rows of threads per block: thread row y takes groups y, y + 32, ..., then the
 * thread rows are added in order. A handful of loads per thread, all in flight at once, so the launch costs hardly more than its
 * latency.
 */
#ifndef SL_DEVICE_CUDA_COLUMN_SUM_CUH
#define SL_DEVICE_CUDA_COLUMN_SUM_CUH

#include "device/cuda/kernel.cuh"

static constexpr int COLUMN_SUM_ROWS = 32;

/* Up to two sums at a time (gradients of weight and bias), the second one's partials behind the first one's. */
template <typename T> struct column_sums {
    T *out[2]; /* NULL: not wanted */
    bool accumulate[2];
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
