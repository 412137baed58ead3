/*
 * Depthwise convolution (ops/depthwise.c). Forward and for dx a thread has a piece of W channels of one window, or of one place of the
 * image, and adds up in a fixed order; windows that overlap meet in the cache. Blocks of threads take pieces of one image, so that
 * numbers fit 32 bits and division is cheap.
 *
 * For dw a thread keeps the sums of its channels for PLACES places in registers and walks windows; column_sum.cuh adds up what blocks
 * leave. Kernels of nine places, the usual ones, are done in one pass over dy; others take a pass for each place.
 */
#include "device/cuda/kernels/column_sum.cuh"
#include "ops/window.h"

static constexpr int THREADS = 256;

struct depthwise_sizes {
    struct sl_window_attrs window;
    int32_t window_rows, window_columns;
    uint32_t pieces; /* W channels each */
    int64_t images;
    bool accumulate;
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    depthwise_kernel(const __grid_constant__ depthwise_sizes s, const T *__restrict__ x, const T *__restrict__ w,
                     T *__restrict__ y)
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
        float sum[W] = {};
        for (int32_t ky = sy.first; ky < sy.end; ky++)
            for (int32_t kx = sx.first; kx < sx.end; kx++) {
                const raw<T, W> value = load_raw<W>(from + ((int64_t) (top + ky) * a.width + left + kx) * channels);
                const raw<T, W> weight = load_raw<W>(w + (int64_t) (ky * a.kernel_w + kx) * channels + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] = fmaf(value[j], weight[j], sum[j]);
            }
        store<W>(y + (image * s.window_rows * s.window_columns + window) * channels + c, sum);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) depthwise_dx_kernel(const __grid_constant__ depthwise_sizes s,
                                                               const T *__restrict__ dy, const T *__restrict__ w, T *dx)
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
        T *to = dx + (image * a.height * a.width + pixel) * channels + c;
        float sum[W] = {};
        for (int32_t oy = y.first; oy < y.end; oy++)
            for (int32_t ox = x.first; ox < x.end; ox++) {
                const int32_t ky = iy + a.pad_h - oy * a.stride_h, kx = ix + a.pad_w - ox * a.stride_w;
                const int64_t window = (image * s.window_rows + oy) * s.window_columns + ox;
                const raw<T, W> g = load_raw<W>(dy + window * channels + c);
                const raw<T, W> weight = load_raw<W>(w + (int64_t) (ky * a.kernel_w + kx) * channels + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] = fmaf(g[j], weight[j], sum[j]);
            }
        put_sums<W>(to, sum, s.accumulate);
    }
}

/* partial[group][place][channel]: PLACES places from blockIdx.z * PLACES on, over the group's windows. */
template <typename T, int W, int PLACES>
__global__ void __launch_bounds__(SUM_LANES *SUM_DEPTH)
    depthwise_dw_kernel(const __grid_constant__ depthwise_sizes s, const T *__restrict__ dy, const T *__restrict__ x,
                        float *__restrict__ partial, int64_t n, int64_t channels)
{
    const struct sl_window_attrs &a = s.window;
    const int64_t c = ((int64_t) blockIdx.x * SUM_LANES + threadIdx.x) * W;
    const int64_t windows = (int64_t) s.window_rows * s.window_columns, stride = (int64_t) gridDim.y * SUM_DEPTH;
    const int32_t first = (int32_t) blockIdx.z * PLACES;
    float sum[PLACES][W] = {};
    for (int64_t row = (int64_t) blockIdx.y * SUM_DEPTH + threadIdx.y; row < n && c < channels; row += stride) {
        const int64_t image = row / windows;
        const int32_t window = (int32_t) (row - image * windows);
        const int32_t top = window / s.window_columns * a.stride_h - a.pad_h;
        const int32_t left = window % s.window_columns * a.stride_w - a.pad_w;
        const raw<T, W> g = load_raw<W>(dy + row * channels + c);
#pragma unroll
        for (int p = 0; p < PLACES; p++) {
            const int32_t iy = top + (first + p) / a.kernel_w, ix = left + (first + p) % a.kernel_w;
            if (iy >= 0 && iy < a.height && ix >= 0 && ix < a.width) {
                const raw<T, W> value = load_raw<W>(x + ((image * a.height + iy) * a.width + ix) * channels + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[p][j] = fmaf(g[j], value[j], sum[p][j]);
            }
        }
    }
    /* sum_block leaves a group's rows one behind the other: here each has the other places' between. */
    const int64_t others = ((int64_t) a.kernel_h * a.kernel_w - 1) * channels * blockIdx.y;
#pragma unroll
    for (int p = 0; p < PLACES; p++) {
        sum_block(sum[p], partial + others + (first + p) * channels, channels);
        __syncthreads(); /* its shared memory is free for the next place */
    }
}

static depthwise_sizes sizes_of(const sl_launch *launch, int w, bool backward)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    depthwise_sizes s = {*a,
                         sl_window_rows(a),
                         sl_window_columns(a),
                         (uint32_t) (launch->in[0].type.dim[1] / w),
                         0,
                         (launch->accumulate & 1) != 0};
    const int64_t rows = launch->in[0].type.dim[0];
    s.images = rows / (backward ? (int64_t) s.window_rows * s.window_columns : (int64_t) a->height * a->width);
    return s;
}

static dim3 blocks_for(const depthwise_sizes &s, int64_t places)
{
    return dim3((unsigned) ((places * s.pieces + THREADS - 1) / THREADS),
                (unsigned) (s.images < 65535 ? s.images : 65535));
}

template <typename T, int W> static void forward(const sl_launch *launch, cudaStream_t stream)
{
    const depthwise_sizes s = sizes_of(launch, W, false);
    depthwise_kernel<T, W><<<blocks_for(s, (int64_t) s.window_rows * s.window_columns), THREADS, 0, stream>>>(
        s, (const T *) launch->in[0].data, (const T *) launch->in[1].data, (T *) launch->out[0].data);
}

template <typename T, int W> static void backward_x(const sl_launch *launch, cudaStream_t stream)
{
    const depthwise_sizes s = sizes_of(launch, W, true);
    depthwise_dx_kernel<T, W><<<blocks_for(s, (int64_t) s.window.height * s.window.width), THREADS, 0, stream>>>(
        s, (const T *) launch->in[0].data, (const T *) launch->in[2].data, (T *) launch->out[0].data);
}

template <typename T, int W> static void backward_w(const sl_launch *launch, int64_t groups, cudaStream_t stream)
{
    const depthwise_sizes s = sizes_of(launch, W, true);
    const int64_t n = launch->in[0].type.dim[0], channels = launch->in[0].type.dim[1];
    const int places = s.window.kernel_h * s.window.kernel_w;
    const T *dy = (const T *) launch->in[0].data, *x = (const T *) launch->in[1].data;
    const dim3 threads(SUM_LANES, SUM_DEPTH);
    dim3 blocks = sum_grid<W>(channels, groups);
    if (places == 9) {
        depthwise_dw_kernel<T, W, 9>
            <<<blocks, threads, 0, stream>>>(s, dy, x, (float *) launch->workspace, n, channels);
    } else {
        blocks.z = (unsigned) places;
        depthwise_dw_kernel<T, W, 1>
            <<<blocks, threads, 0, stream>>>(s, dy, x, (float *) launch->workspace, n, channels);
    }
}

static sl_status depthwise_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int64_t channels = launch->in[0].type.dim[1], windows = (int64_t) sl_window_rows(a) * sl_window_columns(a);
    const int64_t pixels = (int64_t) a->height * a->width, most = windows > pixels ? windows : pixels;
    if (most * channels > INT32_MAX || (int64_t) a->kernel_h * a->kernel_w > 65535)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "depthwise on CUDA takes images of up to 2^31 elements and kernels of up to 65,535 places, "
                            "not %lld and %d x %d",
                            (long long) (most * channels), a->kernel_h, a->kernel_w);
    return SL_OK;
}

static sl_status depthwise_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->in[0].type.dim[1] % W == 0 &&
            sl_cuda_aligned(launch->in[0].data, launch->in[1].data, launch->out[0].data))
            forward<T, W>(launch, stream);
        else
            forward<T, 1>(launch, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static size_t depthwise_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (sum_groups(&launch->in[0].type) * sl_type_count(&launch->out[1].type)) * sizeof(float);
}

static sl_status depthwise_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const int64_t channels = launch->in[0].type.dim[1], groups = sum_groups(&launch->in[0].type);
    const bool aligned =
        sl_cuda_aligned(launch->in[0].data, launch->in[1].data, launch->in[2].data, launch->out[0].data);
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->out[0].data && channels % W == 0 && aligned)
            backward_x<T, W>(launch, stream);
        else if (launch->out[0].data)
            backward_x<T, 1>(launch, stream);
        SL_CUDA_LAUNCHED();
        if (launch->out[1].data) {
            /* Four channels, so that nine places' sums stay in registers. */
            if (channels % W == 0 && aligned)
                backward_w<T, 4>(launch, groups, stream);
            else
                backward_w<T, 1>(launch, groups, stream);
            SL_CUDA_LAUNCHED();
            const column_sums<T> to = {{(T *) launch->out[1].data}, {(launch->accumulate & 2) != 0}};
            column_sum<T>(launch->workspace, groups, sl_type_count(&launch->out[1].type), 1, to, stream);
        }
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_depthwise = {SL_OP_DEPTHWISE, depthwise_supports, NULL, depthwise_run};
extern "C" const sl_cuda_kernel sl_cuda_depthwise_bwd = {SL_OP_DEPTHWISE_BWD, depthwise_supports,
                                                         depthwise_bwd_workspace, depthwise_bwd_run};
