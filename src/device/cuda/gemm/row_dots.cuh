/*
 * Rows of a matrix times one vector, for kernels that read a matrix once and compute next to nothing with it: the time is that of
 * reading. A warp takes R rows at a time and its lanes share the columns. Each lane has AT_ONCE pieces of 16 bytes of every row under
 * way before it uses the first, so that enough bytes are in flight to keep memory busy even where a matrix has few rows.
 */
#ifndef SL_DEVICE_CUDA_ROW_DOTS_CUH
#define SL_DEVICE_CUDA_ROW_DOTS_CUH

#include "device/cuda/kernels/kernel.cuh"

/* In every lane: sums[r] = rows[r] . x over d elements, d a multiple of W, added in an order that depends on d alone. */
template <int W, int R, typename T>
__device__ __forceinline__ void row_dots(const T *const (&rows)[R], const T *x, int64_t d, float (&sums)[R])
{
    constexpr int AT_ONCE = 4, STRIDE = 32 * W;
    float parts[R][AT_ONCE] = {};
    for (int64_t c = (int64_t) (threadIdx.x & 31) * W; c < d; c += AT_ONCE * STRIDE) {
        raw<T, W> a[R][AT_ONCE], b[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (c + i * STRIDE < d) {
                b[i] = load_raw<W>(x + c + i * STRIDE);
#pragma unroll
                for (int r = 0; r < R; r++)
                    a[r][i] = load_raw<W>(rows[r] + c + i * STRIDE);
            }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (c + i * STRIDE < d)
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int j = 0; j < W; j++)
                        parts[r][i] = fmaf(a[r][i][j], b[i][j], parts[r][i]);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        sums[r] = warp_sum((parts[r][0] + parts[r][1]) + (parts[r][2] + parts[r][3]));
}

#endif
