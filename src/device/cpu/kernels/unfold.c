/* Windows of images as rows, and back (ops/unfold.c). Places of a window beside each other lie beside each other in the image, too, so
 * unfold copies whole lines of a window. fold takes a vector of channels of a place and adds up its windows in order. */
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"
#include "ops/window.h"

typedef struct unfold_job {
    const void *from;
    void *to;
    const struct sl_window_attrs *attrs;
    int64_t rows, channels; /* rows: of `to`; channels: of the image */
    int32_t window_rows, window_columns;
    bool accumulate, bf16;
} unfold_job;

SL_INLINE void put_zeros(const unfold_job *job, int64_t to, int64_t count, bool bf16)
{
    if (!job->accumulate)
        memset(element(job->to, to, bf16), 0, (size_t) count * (bf16 ? 2 : 4));
}

SL_INLINE void unfold_row(const unfold_job *job, int64_t row, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    const int64_t windows = (int64_t) job->window_rows * job->window_columns, window = row % windows;
    const int64_t c = job->channels, line = a->kernel_w * c, image = row / windows * a->height;
    const int32_t top = (int32_t) (window / job->window_columns) * a->stride_h - a->pad_h;
    const int32_t left = (int32_t) (window % job->window_columns) * a->stride_w - a->pad_w;
    const sl_window_span x = sl_window_inside(left, a->kernel_w, a->width);
    for (int32_t ky = 0; ky < a->kernel_h; ky++) {
        const int64_t to = (row * a->kernel_h + ky) * line, y = top + ky;
        if (y < 0 || y >= a->height) {
            put_zeros(job, to, line, bf16);
            continue;
        }
        const int64_t from = ((image + y) * a->width + left + x.first) * c, count = (x.end - x.first) * c;
        put_zeros(job, to, x.first * c, bf16);
        if (job->accumulate)
            vf_add_elements(element(job->to, to + x.first * c, bf16), element_const(job->from, from, bf16), count,
                            bf16);
        else
            memcpy(element(job->to, to + x.first * c, bf16), element_const(job->from, from, bf16),
                   (size_t) count * (bf16 ? 2 : 4));
        put_zeros(job, to + x.end * c, line - x.end * c, bf16);
    }
}

SL_INLINE void unfold_rows(const unfold_job *job, int64_t tile, bool bf16)
{
    const int64_t rows = tile_rows(job->channels * job->attrs->kernel_h * job->attrs->kernel_w);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++)
        unfold_row(job, row, bf16);
}

SL_CPU_TILES(unfold_tile, unfold_job, unfold_rows(job, tile, bf16))

SL_INLINE void fold_row(const unfold_job *job, int64_t row, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    const int64_t pixels = (int64_t) a->height * a->width, pixel = row % pixels;
    const int32_t iy = (int32_t) (pixel / a->width), ix = (int32_t) (pixel % a->width);
    const sl_window_span y = sl_window_covering(iy, a->kernel_h, a->stride_h, a->pad_h, job->window_rows);
    const sl_window_span x = sl_window_covering(ix, a->kernel_w, a->stride_w, a->pad_w, job->window_columns);
    const int64_t first = row / pixels * job->window_rows * job->window_columns, places = a->kernel_h * a->kernel_w;
    for (int64_t c = 0; c < job->channels; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, job->channels - c);
        vf sum = vf_zero();
        for (int32_t oy = y.first; oy < y.end; oy++)
            for (int32_t ox = x.first; ox < x.end; ox++) {
                const int32_t ky = iy + a->pad_h - oy * a->stride_h, kx = ix + a->pad_w - ox * a->stride_w;
                const int64_t window = first + (int64_t) oy * job->window_columns + ox;
                const int64_t place = window * places + ky * a->kernel_w + kx;
                sum = vf_add(sum, vf_get(job->from, place * job->channels + c, lanes, bf16));
            }
        vf_put_add(job->to, row * job->channels + c, sum, lanes, bf16, job->accumulate);
    }
}

SL_INLINE void fold_rows(const unfold_job *job, int64_t tile, bool bf16)
{
    const int64_t rows = tile_rows(job->channels);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++)
        fold_row(job, row, bf16);
}

SL_CPU_TILES(fold_tile, unfold_job, fold_rows(job, tile, bf16))

static unfold_job unpack(const sl_launch *launch, int64_t channels)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    return (unfold_job){
        .from = launch->in[0].data,
        .to = launch->out[0].data,
        .attrs = a,
        .rows = launch->out[0].type.dim[0],
        .channels = channels,
        .window_rows = sl_window_rows(a),
        .window_columns = sl_window_columns(a),
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
}

static void unfold_run(const sl_launch *launch, sl_pool *pool)
{
    unfold_job job = unpack(launch, launch->in[0].type.dim[1]);
    sl_pool_run(pool, unfold_tile, &job, tile_count(job.rows, tile_rows(launch->out[0].type.dim[1])));
}

static void fold_run(const sl_launch *launch, sl_pool *pool)
{
    unfold_job job = unpack(launch, launch->out[0].type.dim[1]);
    sl_pool_run(pool, fold_tile, &job, tile_count(job.rows, tile_rows(job.channels)));
}

SL_CPU_KERNEL(unfold, SL_OP_UNFOLD, .run = unfold_run);
SL_CPU_KERNEL(fold, SL_OP_FOLD, .run = fold_run);
