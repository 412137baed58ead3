/*
 * A matmul of one row, which generation consists of: y[n] = x[k] W[n,k]^T + bias[n] + c[n]. It needs no workspace, where the general
 * product asks for 32 MiB.
 */
#include "device/cuda/gemm/matvec.h"
#include "device/cuda/gemm/row_dots.cuh"

static constexpr int WARPS = 8, ROWS = 2; /* warps of a block, rows of a warp at a time */

/* `c` may be `y`. */
template <typename T, int W>
__global__ void __launch_bounds__(32 * WARPS)
    matvec_kernel(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias, const T *c, T *y,
                  int64_t n, int64_t k, int64_t stride)
{
    const int lane = threadIdx.x & 31;
    for (int64_t first = ((int64_t) blockIdx.x * WARPS + threadIdx.x / 32) * ROWS; first < n;
         first += (int64_t) gridDim.x * WARPS * ROWS) {
        const T *rows[ROWS];
        float sums[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) /* behind the last row it again, for nothing */
            rows[r] = w + (first + r < n ? first + r : n - 1) * stride;
        row_dots<W>(rows, x, k, sums);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (lane == r && first + r < n) {
                float sum = sums[r];
                if (bias)
                    sum += to_f32(bias[first + r]);
                if (c)
                    sum += to_f32(c[first + r]);
                from_f32(sum, &y[first + r]);
            }
    }
}

template <typename T, int W>
static void matvec_launch(sl_cuda *cuda, const sl_cuda_gemm *g, const void *x, const void *w, const void *bias,
                          const void *c, void *y, cudaStream_t stream)
{
    const int blocks = sl_cuda_blocks(cuda, g->n, WARPS * ROWS);
    matvec_kernel<T, W><<<blocks, 32 * WARPS, 0, stream>>>((const T *) x, (const T *) w, (const T *) bias,
                                                           (const T *) c, (T *) y, g->n, g->k, g->ldb);
}

extern "C" bool sl_cuda_is_matvec(const sl_cuda_gemm *g)
{
    return g->m == 1 && !g->trans_a && g->trans_b && !g->batch && g->in == g->out;
}

extern "C" sl_status sl_cuda_matvec_run(sl_cuda *cuda, const sl_cuda_gemm *g, const void *x, const void *w,
                                        const void *bias, const void *c, void *y, cudaStream_t stream)
{
    SL_DISPATCH(g->in, T, {
        constexpr int W = 16 / sizeof(T);
        if (g->k % W == 0 && g->ldb % W == 0 && sl_cuda_aligned(x, w))
            matvec_launch<T, W>(cuda, g, x, w, bias, c, y, stream);
        else
            matvec_launch<T, 1>(cuda, g, x, w, bias, c, y, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
