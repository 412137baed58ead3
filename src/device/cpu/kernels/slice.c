/* Slices and concatenations: copies of rectangles, row by row. A tile is a number of rows of the target. */
#include "ops/slice.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

/* A rectangle of the target is written: `part`, an area of it, from the source, the rest with zeros. */
typedef struct slice_job {
    const void *from;
    void *to;
    int64_t from_stride, to_stride, rows, columns;
    struct {
        int64_t first_row, rows, first_column, columns;
    } part;
    bool bf16, accumulate;
} slice_job;

static void slice_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const slice_job *job = context;
    const size_t size = job->bf16 ? 2 : 4, bytes = (size_t) job->part.columns * size;
    const int64_t per_tile = tile_rows(job->columns), end = SL_MIN((tile + 1) * per_tile, job->rows);
    const int64_t behind = job->part.first_column + job->part.columns;
    for (int64_t row = tile * per_tile; row < end; row++) {
        char *to = element(job->to, row * job->to_stride, job->bf16),
             *part = to + (size_t) job->part.first_column * size;
        const int64_t from_row = row - job->part.first_row;
        const void *from = element_const(job->from, from_row * job->from_stride, job->bf16);
        if (from_row < 0 || from_row >= job->part.rows) {
            memset(to, 0, (size_t) job->columns * size);
            continue;
        }
        memset(to, 0, (size_t) job->part.first_column * size);
        if (job->accumulate)
            vf_add_elements(part, from, job->part.columns, job->bf16);
        else
            memcpy(part, from, bytes);
        memset(part + bytes, 0, (size_t) (job->columns - behind) * size);
    }
}

/* The whole target rectangle is the source's. */
static slice_job slice_whole(const sl_launch *launch, const sl_operand *from, int64_t rows, int64_t columns)
{
    return (slice_job){
        .from = from->data,
        .to = launch->out[0].data,
        .from_stride = from->type.dim[1],
        .to_stride = launch->out[0].type.dim[1],
        .rows = rows,
        .columns = columns,
        .part = {0, rows, 0, columns},
        .bf16 = from->type.dtype == SL_BF16,
        .accumulate = launch->accumulate & 1u,
    };
}

static void slice_start(slice_job *job, sl_pool *pool)
{
    sl_pool_run(pool, slice_tile, job, tile_count(job->rows, tile_rows(job->columns)));
}

static void slice_run(const sl_launch *launch, sl_pool *pool)
{
    const struct sl_slice_attrs *a = sl_slice_attrs(&launch->attrs);
    slice_job job = slice_whole(launch, &launch->in[0], a->rows, a->columns);
    job.from = element_const(job.from, a->first_row * job.from_stride + a->first_column, job.bf16);
    slice_start(&job, pool);
}

static void slice_bwd_run(const sl_launch *launch, sl_pool *pool)
{
    const struct sl_slice_attrs *a = sl_slice_attrs(&launch->attrs);
    const sl_type *dy = &launch->in[0].type;
    slice_job job = slice_whole(launch, &launch->in[0], dy->dim[0], dy->dim[1]);
    if (job.accumulate) { /* the rest stays as it is */
        job.to = element(job.to, a->first_row * job.to_stride + a->first_column, job.bf16);
    } else {
        job.rows = a->rows;
        job.columns = a->columns;
        job.part.first_row = a->first_row;
        job.part.first_column = a->first_column;
    }
    slice_start(&job, pool);
}

static void concat_run(const sl_launch *launch, sl_pool *pool)
{
    int64_t first = 0;
    for (int i = 0; i < SL_MAX_IN; i++) {
        const sl_type *x = &launch->in[i].type;
        if (!x->rank)
            continue;
        slice_job job = slice_whole(launch, &launch->in[i], x->dim[0], x->dim[1]);
        job.to = element(job.to, first, job.bf16);
        slice_start(&job, pool);
        first += x->dim[1];
    }
}

static void reshape_run(const sl_launch *launch, sl_pool *pool)
{
    const sl_type *y = &launch->out[0].type;
    slice_job job = slice_whole(launch, &launch->in[0], y->dim[0], y->dim[1]);
    job.from_stride = job.to_stride;
    slice_start(&job, pool);
}

SL_CPU_KERNEL(slice, SL_OP_SLICE, .run = slice_run);
SL_CPU_KERNEL(slice_bwd, SL_OP_SLICE_BWD, .run = slice_bwd_run);
SL_CPU_KERNEL(concat, SL_OP_CONCAT, .run = concat_run);
SL_CPU_KERNEL(reshape, SL_OP_RESHAPE, .run = reshape_run);
