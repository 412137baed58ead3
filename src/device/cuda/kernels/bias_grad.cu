/*
 * A bias's gradient: the sum of dy's columns, bounded by reading dy once (column_sum.cuh says how). A thread has eight 16-byte
 * loads in flight.
 */
#include "device/cuda/kernels/column_sum.cuh"

template <typename T, int W>
__global__ void __launch_bounds__(SUM_LANES *SUM_DEPTH, 4)
    bias_grad_kernel(const T *__restrict__ dy, float *__restrict__ partial, int64_t n, int64_t d)
{
    int64_t c = ((int64_t) blockIdx.x * SUM_LANES + threadIdx.x) * W, stride = (int64_t) gridDim.y * SUM_DEPTH;
    float sum[W] = {};
    if (c < d) {
        int64_t row = (int64_t) blockIdx.y * SUM_DEPTH + threadIdx.y;
        for (; row + 7 * stride < n; row += 8 * stride) {
            raw<T, W> p[8];
#pragma unroll
            for (int k = 0; k < 8; k++)
                p[k] = load_raw<W>(dy + (row + k * stride) * d + c);
#pragma unroll
            for (int k = 0; k < 8; k++)
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += p[k][j];
        }
        for (; row < n; row += stride) {
            float v[W];
            load<W>(dy + row * d + c, v);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
    }
    sum_block(sum, partial, d);
}

static size_t bias_grad_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (sum_groups(&launch->in[0].type) * launch->in[0].type.dim[1]) * sizeof(float);
}

template <typename T, int W> static void bias_grad(const sl_launch *launch, int64_t groups, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    bias_grad_kernel<T, W><<<sum_grid<W>(d, groups), dim3(SUM_LANES, SUM_DEPTH), 0, stream>>>(
        (const T *) launch->in[0].data, (float *) launch->workspace, n, d);
}

static sl_status bias_grad_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t d = launch->in[0].type.dim[1], groups = sum_groups(&launch->in[0].type);
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (d % W == 0 && sl_cuda_aligned(launch->in[0].data))
            bias_grad<T, W>(launch, groups, stream);
        else
            bias_grad<T, 1>(launch, groups, stream);
        column_sums<T> to = {{(T *) launch->out[0].data}, {(launch->accumulate & 1) != 0}};
        column_sum<T>(launch->workspace, groups, d, 1, to, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_bias_grad = {SL_OP_BIAS_GRAD, NULL, bias_grad_workspace, bias_grad_run};
