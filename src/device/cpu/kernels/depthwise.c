/*
 * Depthwise convolution (ops/depthwise.c), a vector of channels at a time. Forward, a tile is some windows; for dx it is some places of
 * images; for dw it is PARTIAL_ROWS windows, whose sums for every place and channel go to a partial row (column_sums.h).
 */
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"
#include "ops/window.h"

typedef struct depthwise_job {
    const void *x, *w, *dy;
    void *to;        /* y, or dx */
    float *partials; /* [parts][places * channels] */
    const struct sl_window_attrs *attrs;
    int64_t rows, channels; /* rows: of `to` */
    int64_t windows;        /* of all images */
    int32_t window_rows, window_columns;
    bool accumulate, bf16;
} depthwise_job;

/* Where window `row` begins in its image, and what of it lies inside. */
typedef struct window_place {
    int64_t image; /* first row of the image */
    int32_t top, left;
    sl_window_span y, x;
} window_place;

SL_INLINE window_place place_of(const depthwise_job *job, int64_t row)
{
    const struct sl_window_attrs *a = job->attrs;
    const int64_t windows = (int64_t) job->window_rows * job->window_columns, window = row % windows;
    window_place p = {.image = row / windows * a->height * a->width};
    p.top = (int32_t) (window / job->window_columns) * a->stride_h - a->pad_h;
    p.left = (int32_t) (window % job->window_columns) * a->stride_w - a->pad_w;
    p.y = sl_window_inside(p.top, a->kernel_h, a->height);
    p.x = sl_window_inside(p.left, a->kernel_w, a->width);
    return p;
}

SL_INLINE int64_t row_at(const depthwise_job *job, const window_place *p, int32_t ky, int32_t kx)
{
    return p->image + (int64_t) (p->top + ky) * job->attrs->width + p->left + kx;
}

SL_INLINE void forward_row(const depthwise_job *job, int64_t row, bool bf16)
{
    const int64_t channels = job->channels;
    const window_place p = place_of(job, row);
    for (int64_t c = 0; c < channels; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, channels - c);
        vf sum = vf_zero();
        for (int32_t ky = p.y.first; ky < p.y.end; ky++)
            for (int32_t kx = p.x.first; kx < p.x.end; kx++) {
                const int64_t place = (int64_t) ky * job->attrs->kernel_w + kx;
                sum = vf_fma(vf_get(job->x, row_at(job, &p, ky, kx) * channels + c, lanes, bf16),
                             vf_get(job->w, place * channels + c, lanes, bf16), sum);
            }
        vf_put(job->to, row * channels + c, sum, lanes, bf16);
    }
}

SL_INLINE void gather_row(const depthwise_job *job, int64_t row, bool bf16)
{
    const struct sl_window_attrs *a = job->attrs;
    const int64_t channels = job->channels, pixels = (int64_t) a->height * a->width;
    const int32_t iy = (int32_t) (row % pixels / a->width), ix = (int32_t) (row % pixels % a->width);
    const sl_window_span y = sl_window_covering(iy, a->kernel_h, a->stride_h, a->pad_h, job->window_rows);
    const sl_window_span x = sl_window_covering(ix, a->kernel_w, a->stride_w, a->pad_w, job->window_columns);
    const int64_t first = row / pixels * job->window_rows;
    for (int64_t c = 0; c < channels; c += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, channels - c);
        vf sum = vf_zero();
        for (int32_t oy = y.first; oy < y.end; oy++)
            for (int32_t ox = x.first; ox < x.end; ox++) {
                const int32_t ky = iy + a->pad_h - oy * a->stride_h, kx = ix + a->pad_w - ox * a->stride_w;
                const int64_t window = (first + oy) * job->window_columns + ox;
                const int64_t place = (int64_t) ky * a->kernel_w + kx;
                sum = vf_fma(vf_get(job->dy, window * channels + c, lanes, bf16),
                             vf_get(job->w, place * channels + c, lanes, bf16), sum);
            }
        vf_put_add(job->to, row * channels + c, sum, lanes, bf16, job->accumulate);
    }
}

SL_INLINE void rows_of_tile(const depthwise_job *job, int64_t tile, bool bf16, bool backward)
{
    const int64_t rows = tile_rows(job->channels);
    for (int64_t row = tile * rows; row < SL_MIN((tile + 1) * rows, job->rows); row++)
        if (backward)
            gather_row(job, row, bf16);
        else
            forward_row(job, row, bf16);
}

SL_CPU_TILES(forward_tile, depthwise_job, rows_of_tile(job, tile, bf16, false))

SL_CPU_TILES(gather_tile, depthwise_job, rows_of_tile(job, tile, bf16, true))

SL_INLINE void sum_tile_rows(const depthwise_job *job, int64_t tile, bool bf16)
{
    const int64_t channels = job->channels, places = (int64_t) job->attrs->kernel_h * job->attrs->kernel_w;
    const int64_t end = SL_MIN((tile + 1) * PARTIAL_ROWS, job->windows);
    float *sums = job->partials + tile * places * channels;
    memset(sums, 0, (size_t) (places * channels) * sizeof *sums);
    for (int64_t row = tile * PARTIAL_ROWS; row < end; row++) {
        const window_place p = place_of(job, row);
        for (int32_t ky = p.y.first; ky < p.y.end; ky++)
            for (int32_t kx = p.x.first; kx < p.x.end; kx++) {
                const int64_t from = row_at(job, &p, ky, kx) * channels;
                float *sum = sums + ((int64_t) ky * job->attrs->kernel_w + kx) * channels;
                for (int64_t c = 0; c < channels; c += VF_LANES) {
                    const int lanes = (int) SL_MIN(VF_LANES, channels - c);
                    vf_store(sum + c,
                             vf_fma(vf_get(job->dy, row * channels + c, lanes, bf16),
                                    vf_get(job->x, from + c, lanes, bf16), vf_load(sum + c, lanes)),
                             lanes);
                }
            }
    }
}

SL_CPU_TILES(sum_tile, depthwise_job, sum_tile_rows(job, tile, bf16))

static depthwise_job unpack(const sl_launch *launch)
{
    const struct sl_window_attrs *a = sl_window_attrs(&launch->attrs);
    return (depthwise_job){
        .to = launch->out[0].data,
        .attrs = a,
        .rows = launch->out[0].type.dim[0],
        .channels = launch->in[0].type.dim[1],
        .window_rows = sl_window_rows(a),
        .window_columns = sl_window_columns(a),
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
}

static void depthwise_run(const sl_launch *launch, sl_pool *pool)
{
    depthwise_job job = unpack(launch);
    job.x = launch->in[0].data;
    job.w = launch->in[1].data;
    sl_pool_run(pool, forward_tile, &job, tile_count(job.rows, tile_rows(job.channels)));
}

static size_t depthwise_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    const int64_t parts = tile_count(launch->in[0].type.dim[0], PARTIAL_ROWS);
    return (size_t) (parts * sl_type_count(&launch->out[1].type)) * sizeof(float); /* 0 where dw is absent */
}

static void depthwise_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    depthwise_job job = unpack(launch);
    job.dy = launch->in[0].data;
    job.x = launch->in[1].data;
    job.w = launch->in[2].data;
    job.windows = launch->in[0].type.dim[0];
    if (job.to)
        sl_pool_run(pool, gather_tile, &job, tile_count(job.rows, tile_rows(job.channels)));
    if (launch->out[1].data) {
        const int64_t parts = tile_count(job.windows, PARTIAL_ROWS);
        job.partials = launch->workspace;
        sl_pool_run(pool, sum_tile, &job, parts);
        column_sums_finish(pool, job.partials, parts, sl_type_count(&launch->out[1].type), &launch->out[1],
                           launch->accumulate >> 1 & 1u);
    }
}

SL_CPU_KERNEL(depthwise, SL_OP_DEPTHWISE, .run = depthwise_run);
SL_CPU_KERNEL(depthwise_bwd, SL_OP_DEPTHWISE_BWD, .workspace = depthwise_bwd_workspace, .run = depthwise_bwd_run);
