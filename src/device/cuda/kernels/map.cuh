/* Maps of elements to elements: a functor, and the kernel that applies it, 16 bytes at a time where alignment allows. */
#ifndef SL_DEVICE_CUDA_MAP_CUH
#define SL_DEVICE_CUDA_MAP_CUH

#include "device/cuda/kernels/kernel.cuh"

static constexpr int THREADS = 256;

/* One functor per op: f(a, b, index), and f.add(..., old) where the launch accumulates, rounded once. With one input a thread
 * loads two pieces at a time: one of 16 bytes per thread is too little to have in flight. */
template <typename F, typename T, typename U, int W>
__global__ void __launch_bounds__(THREADS) map_kernel(F f, const T *a, const T *b, U *y, int64_t count, bool accumulate)
{
    constexpr int PIECES = F::inputs > 1 ? 1 : 2, TILE = PIECES * THREADS * W;
    for (int64_t base = (int64_t) blockIdx.x * TILE; base < count; base += (int64_t) gridDim.x * TILE) {
        raw<T, W> va[PIECES], vb[PIECES];
        raw<U, W> old[PIECES];
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int64_t i = base + (p * THREADS + threadIdx.x) * W;
            if (i < count) {
                va[p] = load_raw<W>(a + i);
                if (F::inputs > 1)
                    vb[p] = load_raw<W>(b + i);
                if (accumulate)
                    old[p] = load_raw<W>(y + i);
            }
        }
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int64_t i = base + (p * THREADS + threadIdx.x) * W;
            if (i < count) {
                float vy[W];
#pragma unroll
                for (int j = 0; j < W; j++) {
                    if (accumulate)
                        vy[j] = f.add(va[p][j], F::inputs > 1 ? vb[p][j] : 0.0f, i + j, old[p][j]);
                    else
                        vy[j] = f(va[p][j], F::inputs > 1 ? vb[p][j] : 0.0f, i + j);
                }
                store<W>(y + i, vy);
            }
        }
    }
}

template <typename F, typename T, typename U>
static sl_status map(sl_cuda *cuda, F f, const sl_launch *launch, int second, cudaStream_t stream)
{
    const T *a = (const T *) launch->in[0].data;
    const T *b = F::inputs > 1 ? (const T *) launch->in[second].data : NULL;
    U *y = (U *) launch->out[0].data;
    int64_t count = sl_type_count(&launch->out[0].type), pieces = F::inputs > 1 ? 1 : 2;
    bool accumulate = launch->accumulate & 1;
    constexpr int W = 16 / (sizeof(T) < sizeof(U) ? sizeof(T) : sizeof(U));
    if (count % W == 0 && sl_cuda_aligned(a, b, y))
        map_kernel<F, T, U, W>
            <<<sl_cuda_blocks(cuda, count, pieces * THREADS * W), THREADS, 0, stream>>>(f, a, b, y, count, accumulate);
    else
        map_kernel<F, T, U, 1>
            <<<sl_cuda_blocks(cuda, count, pieces * THREADS), THREADS, 0, stream>>>(f, a, b, y, count, accumulate);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* Of functors whose result is added as it is. */
template <typename F> struct plain_add {
    __device__ float add(float a, float b, int64_t i, float old) const
    {
        return old + static_cast<const F &>(*this)(a, b, i);
    }
};

#endif
