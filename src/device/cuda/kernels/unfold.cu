/*
 * Windows of images as rows, and back (ops/unfold.c). A thread has a piece of W elements. Those of unfold lie within a line of a window,
 * which is a part of a line of the image: a patch of three channels moves in 16-byte pieces, too, where nothing is padded at its sides.
 * fold takes W channels of a place and adds up its windows in order.
 */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/window.h"

static constexpr int THREADS = 256;

struct unfold_sizes {
    struct sl_window_attrs window;
    int32_t window_rows, window_columns;
    int32_t channels;
    uint32_t pieces; /* unfold: of a window's row; fold: of a place's channels */
    int64_t images;
    bool accumulate;
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    unfold_kernel(const __grid_constant__ unfold_sizes s, const T *__restrict__ x, T *y)
{
    const struct sl_window_attrs &a = s.window;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x, window = item / s.pieces;
    const uint32_t line = (uint32_t) (a.kernel_w * s.channels), e = item % s.pieces * W;
    const int32_t oy = (int32_t) (window / s.window_columns), ox = (int32_t) (window % s.window_columns);
    if (oy >= s.window_rows)
        return;
    const int32_t iy = oy * a.stride_h - a.pad_h + (int32_t) (e / line), left = ox * a.stride_w - a.pad_w;
    const int32_t along = (int32_t) (e % line), ix = left + along / s.channels;
    const bool inside = iy >= 0 && iy < a.height && ix >= 0 && ix < a.width;
    if (!inside && s.accumulate)
        return;
    for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
        raw<T, W> piece = {};
        if (inside)
            piece = load_raw<W>(x + ((image * a.height + iy) * a.width + left) * s.channels + along);
        const int64_t row = image * s.window_rows * s.window_columns + window;
        put_row<W>(y + (row * s.pieces) * W + e, piece, s.accumulate);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    fold_kernel(const __grid_constant__ unfold_sizes s, const T *__restrict__ y, T *x)
{
    const struct sl_window_attrs &a = s.window;
    const uint32_t item = blockIdx.x * THREADS + threadIdx.x, pixel = item / s.pieces, c = item % s.pieces * W;
    const int32_t iy = (int32_t) (pixel / a.width), ix = (int32_t) (pixel % a.width);
    if (iy >= a.height)
        return;
    const sl_window_span oys = sl_window_covering(iy, a.kernel_h, a.stride_h, a.pad_h, s.window_rows);
    const sl_window_span oxs = sl_window_covering(ix, a.kernel_w, a.stride_w, a.pad_w, s.window_columns);
    for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y) {
        T *to = x + (image * a.height * a.width + pixel) * s.channels + c;
        float sum[W] = {};
        for (int32_t oy = oys.first; oy < oys.end; oy++)
            for (int32_t ox = oxs.first; ox < oxs.end; ox++) {
                const int32_t ky = iy + a.pad_h - oy * a.stride_h, kx = ix + a.pad_w - ox * a.stride_w;
                const int64_t window = (image * s.window_rows + oy) * s.window_columns + ox;
                const int64_t place = window * (a.kernel_h * a.kernel_w) + ky * a.kernel_w + kx;
                const raw<T, W> piece = load_raw<W>(y + place * s.channels + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += piece[j];
            }
        put_sums<W>(to, sum, s.accumulate);
    }
}

template <typename T, int W> static void start(const sl_launch *launch, int64_t channels, cudaStream_t stream)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const bool fold = launch->op == SL_OP_FOLD;
    unfold_sizes s = {
        *a, sl_window_rows(a), sl_window_columns(a), (int32_t) channels, 0, 0, (launch->accumulate & 1) != 0};
    const int64_t places = fold ? (int64_t) a->height * a->width : (int64_t) s.window_rows * s.window_columns;
    s.pieces = (uint32_t) ((fold ? channels : channels * a->kernel_h * a->kernel_w) / W);
    s.images = launch->out[0].type.dim[0] / places;
    const dim3 blocks((unsigned) ((places * s.pieces + THREADS - 1) / THREADS),
                      (unsigned) (s.images < 65535 ? s.images : 65535));
    const T *from = (const T *) launch->in[0].data;
    T *to = (T *) launch->out[0].data;
    if (fold)
        fold_kernel<T, W><<<blocks, THREADS, 0, stream>>>(s, from, to);
    else
        unfold_kernel<T, W><<<blocks, THREADS, 0, stream>>>(s, from, to);
}

/* Do pieces of W lie within one place, or at least within a line of the window and of the image? */
static bool whole_pieces(const sl_launch *launch, int64_t channels, int64_t w)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    if (!sl_cuda_aligned(launch->in[0].data, launch->out[0].data))
        return false;
    return channels % w == 0 || (launch->op == SL_OP_UNFOLD && a->pad_w == 0 && a->kernel_w * channels % w == 0 &&
                                 a->width * channels % w == 0 && a->stride_w * channels % w == 0);
}

static sl_status unfold_supports(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    const int64_t channels = launch->op == SL_OP_FOLD ? launch->out[0].type.dim[1] : launch->in[0].type.dim[1];
    const int64_t windows = (int64_t) sl_window_rows(a) * sl_window_columns(a) * a->kernel_h * a->kernel_w;
    const int64_t pixels = (int64_t) a->height * a->width, most = windows > pixels ? windows : pixels;
    if (most * channels > INT32_MAX)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "unfold and fold on CUDA take images of up to 2^31 elements, not %lld",
                            (long long) (most * channels));
    return SL_OK;
}

static sl_status unfold_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const int64_t channels = launch->op == SL_OP_FOLD ? launch->out[0].type.dim[1] : launch->in[0].type.dim[1];
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (whole_pieces(launch, channels, W))
            start<T, W>(launch, channels, stream);
        else
            start<T, 1>(launch, channels, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_unfold = {SL_OP_UNFOLD, unfold_supports, NULL, unfold_run};
extern "C" const sl_cuda_kernel sl_cuda_fold = {SL_OP_FOLD, unfold_supports, NULL, unfold_run};
