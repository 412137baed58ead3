/* Rows divided by their length, and the backward. A warp per row, which reads it twice, the second time from the cache: these are heads
 * and channels, at most a few KB. Its sums are a fixed tree. */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/norm.h"

static constexpr int THREADS = 256;

/* Backward, y is dx, and r is read instead of written. */
template <typename T, int W, bool BACKWARD>
__global__ void __launch_bounds__(THREADS) l2_norm_kernel(const T *__restrict__ x, const T *__restrict__ dy, T *y,
                                                          float *r_of, int64_t n, int64_t d, float eps, bool accumulate)
{
    const int64_t row = (int64_t) blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int first = (int) (threadIdx.x % 32) * W;
    if (row >= n)
        return;
    x += row * d, dy += BACKWARD ? row * d : 0, y += row * d;
    float sum = 0;
    for (int64_t i = first; i < d; i += 32 * W) {
        const raw<T, W> a = load_raw<W>(x + i), b = BACKWARD ? load_raw<W>(dy + i) : a;
#pragma unroll
        for (int j = 0; j < W; j++)
            sum = fmaf(a[j], b[j], sum);
    }
    sum = warp_sum(sum);
    float r, along = 0;
    if (BACKWARD) {
        r = r_of[row];
        along = r < 1.0f / eps ? r * sum : 0.0f;
    } else {
        const float length = sqrtf(sum);
        r = 1.0f / (length < eps ? eps : length);
        if (first == 0)
            r_of[row] = r;
    }
    const float back = -(r * along) * r;
    for (int64_t i = first; i < d; i += 32 * W) {
        const raw<T, W> a = load_raw<W>(x + i);
        raw<T, W> b, old;
        float out[W];
        if (BACKWARD)
            b = load_raw<W>(dy + i);
        if (BACKWARD && accumulate)
            old = load_raw<W>(y + i);
#pragma unroll
        for (int j = 0; j < W; j++) {
            out[j] = BACKWARD ? fmaf(a[j], back, b[j] * r) : a[j] * r;
            if (BACKWARD && accumulate)
                out[j] += old[j];
        }
        store<W>(y + i, out);
    }
}

template <typename T, int W, bool BACKWARD> static void start(const sl_launch *launch, cudaStream_t stream)
{
    const int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    l2_norm_kernel<T, W, BACKWARD><<<(unsigned) ((n + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0, stream>>>(
        (const T *) launch->in[BACKWARD].data, BACKWARD ? (const T *) launch->in[0].data : NULL,
        (T *) launch->out[0].data, (float *) (BACKWARD ? launch->in[2].data : launch->out[1].data), n, d,
        sl_norm_attrs(&launch->attrs)->eps, (launch->accumulate & 1) != 0);
}

template <bool BACKWARD> static sl_status l2_norm_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->in[0].type.dim[1] % W == 0 &&
            sl_cuda_aligned(launch->in[0].data, launch->in[BACKWARD].data, launch->out[0].data))
            start<T, W, BACKWARD>(launch, stream);
        else
            start<T, 1, BACKWARD>(launch, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_l2_norm = {SL_OP_L2_NORM, NULL, NULL, l2_norm_run<false>};
extern "C" const sl_cuda_kernel sl_cuda_l2_norm_bwd = {SL_OP_L2_NORM_BWD, NULL, NULL, l2_norm_run<true>};
