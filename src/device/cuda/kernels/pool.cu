/*
 * Pooling over windows of images (ops/pool.c), forward and backward. A thread has a piece of W channels of one window, or backward of one
 * place, and adds up in the order of the window; neighbouring threads have neighbouring channels. Overlapping windows meet in the
 * cache. Blocks of threads take pieces of one image, so that their numbers fit 32 bits and division is cheap.
 */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/window.h"

static constexpr int THREADS = 256;

template <int W> struct alignas(W) choices {
    uint8_t place[W];
};

struct pool_sizes {
    struct sl_window_attrs window;
    int32_t window_rows, window_columns;
    uint32_t pieces; /* W channels each */
    int64_t images;
    bool accumulate;
};

template <typename T, int W, bool MAX>
__global__ void __launch_bounds__(THREADS) pool_kernel(const __grid_constant__ pool_sizes s, const T *__restrict__ x,
                                                       T *__restrict__ y, uint8_t *__restrict__ choice)
{
    const struct sl_window_attrs &a = s.window;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x, window = item / s.pieces;
    const int64_t channels = (int64_t) s.pieces * W, c = (int64_t) (item % s.pieces) * W;
    const int32_t oy = (int32_t) (window / s.window_columns), ox = (int32_t) (window % s.window_columns);
    if (oy >= s.window_rows)
        return;
    const int32_t top = oy * a.stride_h - a.pad_h, left = ox * a.stride_w - a.pad_w;
    const sl_window_span sy = sl_window_inside(top, a.kernel_h, a.height);
    const sl_window_span sx = sl_window_inside(left, a.kernel_w, a.width);
    for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
        const T *from = x + image * a.height * a.width * channels + c;
        const int64_t to = (image * s.window_rows * s.window_columns + window) * channels + c;
        float all[W] = {};
        choices<W> chosen = {};
        bool first = true;
        for (int32_t ky = sy.first; ky < sy.end; ky++)
            for (int32_t kx = sx.first; kx < sx.end; kx++) {
                const raw<T, W> value = load_raw<W>(from + ((int64_t) (top + ky) * a.width + left + kx) * channels);
                const uint8_t place = (uint8_t) (ky * a.kernel_w + kx);
#pragma unroll
                for (int j = 0; j < W; j++) {
                    if (!MAX)
                        all[j] += value[j];
                    else if (first || value[j] > all[j] || value[j] != value[j])
                        all[j] = value[j], chosen.place[j] = place;
                }
                first = false;
            }
        if (!MAX) {
            const float divisor = (float) sl_window_divisor(&a, sy, sx);
#pragma unroll
            for (int j = 0; j < W; j++)
                all[j] /= divisor;
        }
        store<W>(y + to, all);
        if (MAX && choice)
            *reinterpret_cast<choices<W> *>(choice + to) = chosen;
    }
}

template <typename T, int W, bool MAX>
__global__ void __launch_bounds__(THREADS)
    pool_bwd_kernel(const __grid_constant__ pool_sizes s, const T *__restrict__ dy, const uint8_t *__restrict__ choice,
                    T *dx)
{
    const struct sl_window_attrs &a = s.window;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x, pixel = item / s.pieces;
    const int64_t channels = (int64_t) s.pieces * W, c = (int64_t) (item % s.pieces) * W;
    const int32_t iy = (int32_t) (pixel / a.width), ix = (int32_t) (pixel % a.width);
    if (iy >= a.height)
        return;
    const sl_window_span y = sl_window_covering(iy, a.kernel_h, a.stride_h, a.pad_h, s.window_rows);
    const sl_window_span x = sl_window_covering(ix, a.kernel_w, a.stride_w, a.pad_w, s.window_columns);
    for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
        const int64_t first = image * s.window_rows * s.window_columns;
        T *to = dx + (image * a.height * a.width + pixel) * channels + c;
        float sum[W] = {};
        for (int32_t oy = y.first; oy < y.end; oy++)
            for (int32_t ox = x.first; ox < x.end; ox++) {
                const int32_t top = oy * a.stride_h - a.pad_h, left = ox * a.stride_w - a.pad_w;
                const int64_t at = (first + (int64_t) oy * s.window_columns + ox) * channels + c;
                const raw<T, W> g = load_raw<W>(dy + at);
                if (MAX) {
                    const choices<W> chosen = *reinterpret_cast<const choices<W> *>(choice + at);
                    const int32_t place = (iy - top) * a.kernel_w + ix - left;
#pragma unroll
                    for (int j = 0; j < W; j++)
                        if (chosen.place[j] == place)
                            sum[j] += g[j];
                } else {
                    const float divisor = (float) sl_window_divisor(&a, sl_window_inside(top, a.kernel_h, a.height),
                                                                    sl_window_inside(left, a.kernel_w, a.width));
#pragma unroll
                    for (int j = 0; j < W; j++)
                        sum[j] += g[j] / divisor;
                }
            }
        put_sums<W>(to, sum, s.accumulate);
    }
}

template <typename T, int W, bool MAX> static void start(const sl_launch *launch, bool backward, cudaStream_t stream)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int64_t channels = launch->in[0].type.dim[1], rows = launch->out[0].type.dim[0];
    pool_sizes s = {
        *a, sl_window_rows(a), sl_window_columns(a), (uint32_t) (channels / W), 0, (launch->accumulate & 1) != 0};
    const int64_t places = backward ? (int64_t) a->height * a->width : (int64_t) s.window_rows * s.window_columns;
    s.images = rows / places;
    const dim3 blocks((unsigned) ((places * s.pieces + THREADS - 1) / THREADS),
                      (unsigned) (s.images < 65535 ? s.images : 65535));
    const T *from = (const T *) launch->in[0].data;
    T *to = (T *) launch->out[0].data;
    if (backward)
        pool_bwd_kernel<T, W, MAX>
            <<<blocks, THREADS, 0, stream>>>(s, from, MAX ? (const uint8_t *) launch->in[1].data : NULL, to);
    else
        pool_kernel<T, W, MAX>
            <<<blocks, THREADS, 0, stream>>>(s, from, to, MAX ? (uint8_t *) launch->out[1].data : NULL);
}

static sl_status pool_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    if ((int64_t) a->height * a->width * launch->in[0].type.dim[1] * 2 > UINT32_MAX)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "pool on CUDA takes images of up to 2^31 elements, not %d x %d x %lld",
                            a->height, a->width, (long long) launch->in[0].type.dim[1]);
    return SL_OK;
}

static sl_status pool_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const bool backward = launch->op == SL_OP_POOL_BWD;
    const bool max = sl_window_attrs(&launch->attrs)->mode == SL_POOL_MAX;
    const void *choice = !max ? NULL : backward ? launch->in[1].data : launch->out[1].data;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        const bool wide =
            launch->in[0].type.dim[1] % W == 0 && sl_cuda_aligned(launch->in[0].data, launch->out[0].data, choice);
        if (wide && max)
            start<T, W, true>(launch, backward, stream);
        else if (wide)
            start<T, W, false>(launch, backward, stream);
        else if (max)
            start<T, 1, true>(launch, backward, stream);
        else
            start<T, 1, false>(launch, backward, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_pool = {SL_OP_POOL, pool_supports, NULL, pool_run};
extern "C" const sl_cuda_kernel sl_cuda_pool_bwd = {SL_OP_POOL_BWD, pool_supports, NULL, pool_run};
