/* Softmax over rows and its backward: the baseline that fused attention is measured against, one block per row. The forward reads
 * a row twice (maximum and sum together, then the result), the backward too. */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/softmax.h"

static constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    softmax_kernel(const T *__restrict__ x, T *y, int64_t columns, float scale, bool causal, bool accumulate)
{
    __shared__ float scratch[33];
    int64_t row = blockIdx.x, end = causal ? row + 1 : columns;
    const T *from = x + row * columns;
    T *to = y + row * columns;
    float most = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j < end; j += THREADS) {
        float v = scale * to_f32(from[j]), peak = fmaxf(most, v);
        sum = sum * expf(most - peak) + expf(v - peak);
        most = peak;
    }
    float top = block_reduce<true>(most, scratch);
    float total = block_reduce(most == -INFINITY ? 0.0f : sum * expf(most - top), scratch);
    for (int64_t j = threadIdx.x; j < columns; j += THREADS) {
        float v = j < end ? expf(scale * to_f32(from[j]) - top) / total : 0.0f;
        from_f32(accumulate ? to_f32(to[j]) + v : v, &to[j]);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    softmax_bwd_kernel(const T *__restrict__ dy, const T *__restrict__ y, T *dx, int64_t columns, float scale,
                       bool causal, bool accumulate)
{
    __shared__ float scratch[33];
    int64_t row = blockIdx.x, end = causal ? row + 1 : columns;
    dy += row * columns, y += row * columns, dx += row * columns;
    float dot = 0;
    for (int64_t j = threadIdx.x; j < end; j += THREADS)
        dot = fmaf(to_f32(y[j]), to_f32(dy[j]), dot);
    dot = block_reduce(dot, scratch);
    for (int64_t j = threadIdx.x; j < columns; j += THREADS) {
        float v = j < end ? scale * to_f32(y[j]) * (to_f32(dy[j]) - dot) : 0.0f;
        from_f32(accumulate ? to_f32(dx[j]) + v : v, &dx[j]);
    }
}

static sl_status softmax_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_type *type = &launch->in[0].type;
    SL_DISPATCH(type->dtype, T,
                (softmax_kernel<T><<<(unsigned) type->dim[0], THREADS, 0, stream>>>(
                    (const T *) launch->in[0].data, (T *) launch->out[0].data, type->dim[1],
                    sl_softmax_attrs(&launch->attrs)->scale, sl_softmax_attrs(&launch->attrs)->causal,
                    launch->accumulate & 1)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static sl_status softmax_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_type *type = &launch->in[0].type;
    SL_DISPATCH(type->dtype, T,
                (softmax_bwd_kernel<T><<<(unsigned) type->dim[0], THREADS, 0, stream>>>(
                    (const T *) launch->in[0].data, (const T *) launch->in[1].data, (T *) launch->out[0].data,
                    type->dim[1], sl_softmax_attrs(&launch->attrs)->scale, sl_softmax_attrs(&launch->attrs)->causal,
                    launch->accumulate & 1)));
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_softmax = {SL_OP_SOFTMAX, NULL, NULL, softmax_run};
extern "C" const sl_cuda_kernel sl_cuda_softmax_bwd = {SL_OP_SOFTMAX_BWD, NULL, NULL, softmax_bwd_run};
