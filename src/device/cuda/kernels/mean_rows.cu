/* Means over the rows of a sample: a block of threads per sample and 32 pieces of its columns, whose rows of threads each walk every
 * DEPTH-th row and are added in order at the end. Backward, a warp per row of dx. */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/mean_rows.h"

static constexpr int LANES = 32, DEPTH = 8, THREADS = LANES * DEPTH;

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) mean_rows_kernel(const T *__restrict__ x, T *__restrict__ y, int64_t d,
                                                            int64_t sample_rows, int64_t first, int64_t count)
{
    __shared__ float part[DEPTH][LANES * W];
    const int64_t sample = blockIdx.x, c = ((int64_t) blockIdx.y * LANES + threadIdx.x) * W;
    float sum[W] = {};
    if (c < d) {
        x += (sample * sample_rows + first) * d + c;
#pragma unroll 4
        for (int64_t row = threadIdx.y; row < count; row += DEPTH) {
            const raw<T, W> p = load_raw<W>(x + row * d);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += p[j];
        }
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        part[threadIdx.y][j * LANES + threadIdx.x] = sum[j];
    __syncthreads();
    if (threadIdx.y == 0 && c < d) {
#pragma unroll
        for (int j = 0; j < W; j++) {
#pragma unroll
            for (int k = 1; k < DEPTH; k++)
                sum[j] += part[k][j * LANES + threadIdx.x];
            sum[j] /= (float) count;
        }
        store<W>(y + sample * d + c, sum);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    mean_rows_bwd_kernel(const T *__restrict__ dy, T *dx, int64_t n, int64_t d, int64_t sample_rows, int64_t first,
                         int64_t count, bool accumulate)
{
    const int64_t row = (int64_t) blockIdx.x * DEPTH + threadIdx.y;
    if (row >= n)
        return;
    const int64_t of = row % sample_rows - first;
    const bool counts = of >= 0 && of < count;
    if (!counts && accumulate)
        return;
    dy += row / sample_rows * d, dx += row * d;
    for (int64_t c = threadIdx.x * W; c < d; c += LANES * W) {
        float out[W] = {};
        if (counts) {
            load<W>(dy + c, out);
            raw<T, W> old;
            if (accumulate)
                old = load_raw<W>(dx + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                out[j] /= (float) count;
                if (accumulate)
                    out[j] += old[j];
            }
        }
        store<W>(dx + c, out);
    }
}

template <typename T, int W> static void start(const sl_launch *launch, bool backward, cudaStream_t stream)
{
    const struct sl_mean_rows_attrs *a = sl_mean_rows_attrs(&launch->attrs);
    const int64_t n = launch->out[0].type.dim[0], d = launch->in[0].type.dim[1];
    const T *from = (const T *) launch->in[0].data;
    T *to = (T *) launch->out[0].data;
    const dim3 threads(LANES, DEPTH);
    if (backward)
        mean_rows_bwd_kernel<T, W><<<(unsigned) ((n + DEPTH - 1) / DEPTH), threads, 0, stream>>>(
            from, to, n, d, a->sample_rows, a->first, a->count, (launch->accumulate & 1) != 0);
    else
        mean_rows_kernel<T, W>
            <<<dim3((unsigned) n, (unsigned) ((d + LANES * W - 1) / (LANES * W))), threads, 0, stream>>>(
                from, to, d, a->sample_rows, a->first, a->count);
}

static sl_status mean_rows_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const bool backward = launch->op == SL_OP_MEAN_ROWS_BWD;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->in[0].type.dim[1] % W == 0 && sl_cuda_aligned(launch->in[0].data, launch->out[0].data))
            start<T, W>(launch, backward, stream);
        else
            start<T, 1>(launch, backward, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_mean_rows = {SL_OP_MEAN_ROWS, NULL, NULL, mean_rows_run};
extern "C" const sl_cuda_kernel sl_cuda_mean_rows_bwd = {SL_OP_MEAN_ROWS_BWD, NULL, NULL, mean_rows_run};
