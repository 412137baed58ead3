/*
 * Slices and concatenations: copies of rectangles. A warp per row of the target, with several pieces of 16 bytes under way; bandwidth
 * is the only limit.
 */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/slice.h"

static constexpr int THREADS = 128;
static constexpr int AT_ONCE = 4; /* pieces under way per thread */

/* A rectangle of the target is written: its area `part` from the source, the rest with zeros. Numbers of elements. */
struct rectangle {
    int64_t from, to; /* where they begin */
    int64_t from_stride, to_stride, rows, columns;
    int64_t part_row, part_rows, part_column, part_columns;
    bool accumulate;
};

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) copy_kernel(const T *__restrict__ source, T *target, rectangle r)
{
    typedef raw<T, W> piece;
    int64_t row = (int64_t) blockIdx.x * (THREADS / 32) + threadIdx.x / 32, from_row = row - r.part_row;
    if (row >= r.rows)
        return;
    const bool reads = from_row >= 0 && from_row < r.part_rows;
    const T *from = source + r.from + from_row * r.from_stride - r.part_column;
    T *to = target + r.to + row * r.to_stride;
    for (int64_t base = (int64_t) (threadIdx.x % 32) * W; base < r.columns; base += AT_ONCE * 32 * W) {
        piece p[AT_ONCE];
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++) {
            const int64_t c = base + q * 32 * W;
            p[q] = piece{};
            if (reads && c >= r.part_column && c < r.part_column + r.part_columns)
                p[q] = load_raw<W>(from + c);
        }
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++)
            if (base + q * 32 * W < r.columns)
                put_row<W>(to + base + q * 32 * W, p[q], r.accumulate);
    }
}

template <typename T>
static sl_status copy(const sl_launch *launch, const sl_operand *source, const rectangle *r, cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    const int64_t places[] = {r->from,    r->to,          r->from_stride, r->to_stride,
                              r->columns, r->part_column, r->part_columns};
    const unsigned blocks = (unsigned) ((r->rows + THREADS / 32 - 1) / (THREADS / 32));
    bool whole = sl_cuda_aligned(source->data, launch->out[0].data);
    for (int64_t place : places)
        whole = whole && place % W == 0;
    if (whole)
        copy_kernel<T, W><<<blocks, THREADS, 0, stream>>>((const T *) source->data, (T *) launch->out[0].data, *r);
    else
        copy_kernel<T, 1><<<blocks, THREADS, 0, stream>>>((const T *) source->data, (T *) launch->out[0].data, *r);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* The whole target rectangle is the source's. */
static rectangle whole_rectangle(const sl_launch *launch, const sl_operand *source, int64_t rows, int64_t columns)
{
    return {0, 0,       source->type.dim[1],          launch->out[0].type.dim[1], rows, columns, 0, rows,
            0, columns, (launch->accumulate & 1) != 0};
}

static sl_status start(const sl_launch *launch, int input, const rectangle *r, cudaStream_t stream)
{
    SL_DISPATCH(launch->out[0].type.dtype, T, return copy<T>(launch, &launch->in[input], r, stream));
}

static sl_status slice_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const struct sl_slice_attrs *a = sl_slice_attrs(&launch->attrs);
    rectangle r = whole_rectangle(launch, &launch->in[0], a->rows, a->columns);
    r.from = a->first_row * r.from_stride + a->first_column;
    return start(launch, 0, &r, stream);
}

static sl_status slice_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const struct sl_slice_attrs *a = sl_slice_attrs(&launch->attrs);
    const sl_type *dy = &launch->in[0].type;
    rectangle r = whole_rectangle(launch, &launch->in[0], dy->dim[0], dy->dim[1]);
    if (r.accumulate) { /* the rest stays as it is */
        r.to = a->first_row * r.to_stride + a->first_column;
    } else {
        r.rows = a->rows, r.columns = a->columns;
        r.part_row = a->first_row, r.part_column = a->first_column;
    }
    return start(launch, 0, &r, stream);
}

static sl_status concat_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t first = 0;
    for (int i = 0; i < SL_MAX_IN; i++) {
        const sl_type *x = &launch->in[i].type;
        if (!x->rank)
            continue;
        rectangle r = whole_rectangle(launch, &launch->in[i], x->dim[0], x->dim[1]);
        r.to = first;
        SL_TRY(start(launch, i, &r, stream));
        first += x->dim[1];
    }
    return SL_OK;
}

static sl_status reshape_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const sl_type *y = &launch->out[0].type;
    rectangle r = whole_rectangle(launch, &launch->in[0], y->dim[0], y->dim[1]);
    r.from_stride = r.to_stride;
    return start(launch, 0, &r, stream);
}

extern "C" const sl_cuda_kernel sl_cuda_slice = {SL_OP_SLICE, NULL, NULL, slice_run};
extern "C" const sl_cuda_kernel sl_cuda_slice_bwd = {SL_OP_SLICE_BWD, NULL, NULL, slice_bwd_run};
extern "C" const sl_cuda_kernel sl_cuda_concat = {SL_OP_CONCAT, NULL, NULL, concat_run};
extern "C" const sl_cuda_kernel sl_cuda_reshape = {SL_OP_RESHAPE, NULL, NULL, reshape_run};
