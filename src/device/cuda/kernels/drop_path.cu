/* DropPath: a warp per row, which learns its sample's factor once. A dropped row is not read. */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/drop_path.h"

static constexpr int THREADS = 256;

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    drop_path_kernel(const T *__restrict__ x, T *y, const sl_step_params *__restrict__ step,
                     const __grid_constant__ struct sl_drop_path_attrs attrs, int64_t n, int64_t d, bool accumulate)
{
    const int64_t row = (int64_t) blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= n)
        return;
    const float factor = sl_drop_path_factor(&attrs, step, row);
    if (factor == 0 && accumulate)
        return;
    for (int64_t i = row * d + threadIdx.x % 32 * W; i < (row + 1) * d; i += 32 * W) {
        float out[W] = {};
        if (factor != 0) {
            load<W>(x + i, out);
            raw<T, W> old;
            if (accumulate)
                old = load_raw<W>(y + i);
#pragma unroll
            for (int j = 0; j < W; j++)
                out[j] = accumulate ? fmaf(out[j], factor, old[j]) : out[j] * factor;
        }
        store<W>(y + i, out);
    }
}

static sl_status drop_path_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    const unsigned blocks = (unsigned) ((n + THREADS / 32 - 1) / (THREADS / 32));
    const struct sl_drop_path_attrs attrs = *sl_drop_path_attrs(&launch->attrs);
    const bool accumulate = (launch->accumulate & 1) != 0;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        const T *x = (const T *) launch->in[0].data;
        T *y = (T *) launch->out[0].data;
        const sl_step_params *step = (const sl_step_params *) launch->in[1].data;
        if (d % W == 0 && sl_cuda_aligned(x, y))
            drop_path_kernel<T, W><<<blocks, THREADS, 0, stream>>>(x, y, step, attrs, n, d, accumulate);
        else
            drop_path_kernel<T, 1><<<blocks, THREADS, 0, stream>>>(x, y, step, attrs, n, d, accumulate);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_drop_path = {SL_OP_DROP_PATH, NULL, NULL, drop_path_run};
