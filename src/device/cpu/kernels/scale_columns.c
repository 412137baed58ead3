/* Columns times their own factors. Backward, a tile is PARTIAL_ROWS rows and adds up dy x in a partial row (column_sums.h). */
#include "device/cpu/kernels/column_sums.h"
#include "device/cpu/kernels/kernel.h"

typedef struct scale_job {
    const void *from, *w, *x; /* from: x forward, dy backward; x: backward only */
    void *to;                 /* NULL: not wanted */
    float *partials;          /* [parts][width], NULL: not wanted */
    int64_t rows, width, tile_rows;
    bool accumulate, bf16;
} scale_job;

SL_INLINE void scale_step(const scale_job *job, int64_t at, int64_t c, int lanes, float *sum, bool bf16)
{
    const vf from = vf_get(job->from, at + c, lanes, bf16);
    if (job->to) {
        const vf w = vf_get(job->w, c, lanes, bf16);
        const vf y = job->accumulate ? vf_fma(from, w, vf_get(job->to, at + c, lanes, bf16)) : vf_mul(from, w);
        vf_put(job->to, at + c, y, lanes, bf16);
    }
    if (sum)
        vf_store(sum + c, vf_fma(from, vf_get(job->x, at + c, lanes, bf16), vf_load(sum + c, lanes)), lanes);
}

SL_INLINE void scale_rows(const scale_job *job, int64_t tile, bool bf16)
{
    const int64_t width = job->width, end = SL_MIN((tile + 1) * job->tile_rows, job->rows);
    float *sum = job->partials ? job->partials + tile * width : NULL;
    if (sum)
        memset(sum, 0, (size_t) width * sizeof *sum);
    for (int64_t row = tile * job->tile_rows; row < end; row++) {
        int64_t c = 0;
        for (; c + VF_LANES <= width; c += VF_LANES)
            scale_step(job, row * width, c, VF_LANES, sum, bf16);
        if (c < width)
            scale_step(job, row * width, c, (int) (width - c), sum, bf16);
    }
}

SL_CPU_TILES(scale_tile, scale_job, scale_rows(job, tile, bf16))

static scale_job unpack(const sl_launch *launch)
{
    return (scale_job){
        .from = launch->in[0].data,
        .to = launch->out[0].data,
        .rows = launch->in[0].type.dim[0],
        .width = launch->in[0].type.dim[1],
        .accumulate = launch->accumulate & 1u,
        .bf16 = launch->in[0].type.dtype == SL_BF16,
    };
}

static void scale_columns_run(const sl_launch *launch, sl_pool *pool)
{
    scale_job job = unpack(launch);
    job.w = launch->in[1].data;
    job.tile_rows = tile_rows(job.width);
    sl_pool_run(pool, scale_tile, &job, tile_count(job.rows, job.tile_rows));
}

static size_t scale_columns_bwd_workspace(const sl_launch *launch, int threads)
{
    (void) threads;
    const sl_type *dy = &launch->in[0].type;
    return launch->out[1].type.rank ? (size_t) (tile_count(dy->dim[0], PARTIAL_ROWS) * dy->dim[1]) * sizeof(float) : 0;
}

static void scale_columns_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    scale_job job = unpack(launch);
    job.x = launch->in[1].data;
    job.w = launch->in[2].data;
    job.tile_rows = PARTIAL_ROWS;
    job.partials = launch->out[1].data ? launch->workspace : NULL;
    const int64_t parts = tile_count(job.rows, PARTIAL_ROWS);
    sl_pool_run(pool, scale_tile, &job, parts);
    column_sums_finish(pool, job.partials, parts, job.width, &launch->out[1], launch->accumulate >> 1 & 1u);
}

SL_CPU_KERNEL(scale_columns, SL_OP_SCALE_COLUMNS, .run = scale_columns_run);
SL_CPU_KERNEL(scale_columns_bwd, SL_OP_SCALE_COLUMNS_BWD, .workspace = scale_columns_bwd_workspace,
              .run = scale_columns_bwd_run);
