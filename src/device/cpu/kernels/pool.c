/* Pooling over windows of images (ops/pool.c), a vector of channels at a time. A tile is some windows, or backward some places of
 * images; each adds up in the order of the window, so tiles and threads do not matter. */
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"
#include "ops/window.h"

typedef struct pool_job {
    const void *from;
    void *to;
    uint8_t *choice_out;   /* forward, of a maximum; NULL: not wanted */
    const uint8_t *choice; /* backward, of a maximum */
    const struct sl_window_attrs *attrs;
    int64_t rows, channels; /* rows: of `to` */
    int32_t window_rows, window_columns;
    bool max, accumulate, bf16;
} pool_job;

SL_INLINE vi load_choice(const uint8_t *from, int lanes)
{
    uint8_t few[VF_LANES] = {0};
    memcpy(few, from, (size_t) lanes);
    return vi_load_u8(few);
}

SL_INLINE void store_choice(uint8_t *to, vi choice, int lanes)
{
    uint8_t few[VF_LANES];
    vi_store_u8(few, choice);
    memcpy(to, few, (size_t) lanes);
}

/* The channels from c on of window `row`. */
SL_INLINE void pool_step(const pool_job *job, int64_t image, int32_t top, int32_t left, sl_window_span y,
                         sl_window_span x, int64_t to, int64_t c, int lanes, bool max, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    vf all = vf_zero();
    vi choice = vi_set1(0);
    bool first = true;
    for (int32_t ky = y.first; ky < y.end; ky++)
        for (int32_t kx = x.first; kx < x.end; kx++) {
            const int64_t row = image + (int64_t) (top + ky) * a->width + left + kx;
            const vf value = vf_get(job->from, row * job->channels + c, lanes, bf16);
            const vi place = vi_set1(ky * a->kernel_w + kx);
            if (!max) {
                all = vf_add(all, value);
            } else if (first) {
                all = value, choice = place;
            } else {
                const vm more = vf_gt(value, all), nan = vf_is_nan(value);
                all = vf_select(nan, value, vf_select(more, value, all));
                choice = vi_select(nan, place, vi_select(more, place, choice));
            }
            first = false;
        }
    if (!max)
        all = vf_div(all, vf_set1((float) sl_window_divisor(a, y, x)));
    vf_put(job->to, to + c, all, lanes, bf16);
    if (max && job->choice_out)
        store_choice(job->choice_out + to + c, choice, lanes);
}

SL_INLINE void pool_row(const pool_job *job, int64_t row, bool max, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    const int64_t windows = (int64_t) job->window_rows * job->window_columns, window = row % windows;
    const int32_t top = (int32_t) (window / job->window_columns) * a->stride_h - a->pad_h;
    const int32_t left = (int32_t) (window % job->window_columns) * a->stride_w - a->pad_w;
    const sl_window_span y = sl_window_inside(top, a->kernel_h, a->height);
    const sl_window_span x = sl_window_inside(left, a->kernel_w, a->width);
    const int64_t image = row / windows * a->height * a->width;
    for (int64_t c = 0; c < job->channels; c += VF_LANES)
        pool_step(job, image, top, left, y, x, row * job->channels, c, (int) SL_MIN(VF_LANES, job->channels - c), max,
                  bf16);
}

SL_INLINE void pool_rows(const pool_job *job, int64_t tile, bool bf16)
{
    const int64_t rows = tile_rows(job->channels);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++)
        if (job->max)
            pool_row(job, row, true, bf16);
        else
            pool_row(job, row, false, bf16);
}

SL_CPU_TILES(pool_tile, pool_job, pool_rows(job, tile, bf16))

/* What the windows [y) x [x) pass on to the channels from c on of place (iy, ix). */
SL_INLINE vf gather(const pool_job *job, int64_t first, int32_t iy, int32_t ix, sl_window_span y, sl_window_span x,
                    int64_t c, int lanes, bool max, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    vf sum = vf_zero();
    for (int32_t oy = y.first; oy < y.end; oy++)
        for (int32_t ox = x.first; ox < x.end; ox++) {
            const int32_t top = oy * a->stride_h - a->pad_h, left = ox * a->stride_w - a->pad_w;
            const int64_t at = (first + (int64_t) oy * job->window_columns + ox) * job->channels + c;
            const vf dy = vf_get(job->from, at, lanes, bf16);
            if (max) {
                const vi place = vi_set1((iy - top) * a->kernel_w + ix - left);
                const vm chosen = vi_eq(load_choice(job->choice + at, lanes), place);
                sum = vf_select(chosen, vf_add(sum, dy), sum);
            } else {
                const sl_window_span in_y = sl_window_inside(top, a->kernel_h, a->height);
                const sl_window_span in_x = sl_window_inside(left, a->kernel_w, a->width);
                sum = vf_add(sum, vf_div(dy, vf_set1((float) sl_window_divisor(a, in_y, in_x))));
            }
        }
    return sum;
}

SL_INLINE void gather_row(const pool_job *job, int64_t row, bool max, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    const int64_t pixels = (int64_t) a->height * a->width, pixel = row % pixels;
    const int32_t iy = (int32_t) (pixel / a->width), ix = (int32_t) (pixel % a->width);
    const sl_window_span y = sl_window_covering(iy, a->kernel_h, a->stride_h, a->pad_h, job->window_rows);
    const sl_window_span x = sl_window_covering(ix, a->kernel_w, a->stride_w, a->pad_w, job->window_columns);
    const int64_t first = row / pixels * job->window_rows * job->window_columns;
    for (int64_t c = 0; c < job->channels; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, job->channels - c);
        vf_put_add(job->to, row * job->channels + c, gather(job, first, iy, ix, y, x, c, lanes, max, bf16), lanes, bf16,
                   job->accumulate);
    }
}

SL_INLINE void gather_rows(const pool_job *job, int64_t tile, bool bf16)
{
    const int64_t rows = tile_rows(job->channels);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++)
        if (job->max)
            gather_row(job, row, true, bf16);
        else
            gather_row(job, row, false, bf16);
}

SL_CPU_TILES(gather_tile, pool_job, gather_rows(job, tile, bf16))

static void pool_run(const sl_launch *launch, sl_pool *pool)
{
    const bool backward = launch->op == SL_OP_POOL_BWD;
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    pool_job job = {
        .from = launch->in[0].data,
        .to = launch->out[0].data,
        .choice_out = backward ? NULL : launch->out[1].data,
        .choice = backward ? launch->in[1].data : NULL,
        .attrs = a,
        .rows = launch->out[0].type.dim[0],
        .channels = launch->in[0].type.dim[1],
        .window_rows = sl_window_rows(a),
        .window_columns = sl_window_columns(a),
        .max = a->mode == SL_POOL_MAX,
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
    sl_pool_run(pool, backward ? gather_tile : pool_tile, &job, tile_count(job.rows, tile_rows(job.channels)));
}

SL_CPU_KERNEL(pool, SL_OP_POOL, .run = pool_run);
SL_CPU_KERNEL(pool_bwd, SL_OP_POOL_BWD, .run = pool_run);
