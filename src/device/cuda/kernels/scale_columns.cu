/*
 * Columns times their own factors, forward and backward. A thread keeps its piece of columns and their factors in registers and walks
 * rows, AHEAD of them under way. Backward, the sums for dw are taken on the way (column_sum.cuh).
 */
#include "device/cuda/kernels/column_sum.cuh"

static constexpr int AHEAD = 4;

/* to (+)= from * w; SUMS: partial sums of from * x, with `to` NULL where only those are wanted. */
template <typename T, int W, bool SUMS>
__global__ void __launch_bounds__(SUM_LANES *SUM_DEPTH)
    scale_columns_kernel(const T *__restrict__ from, const T *__restrict__ w, const T *__restrict__ x, T *to,
                         float *__restrict__ partial, int64_t n, int64_t d, bool accumulate)
{
    const int64_t c = ((int64_t) blockIdx.x * SUM_LANES + threadIdx.x) * W, stride = (int64_t) gridDim.y * SUM_DEPTH;
    float sum[W] = {}, factor[W] = {};
    if (c < d) {
        if (to)
            load<W>(w + c, factor);
        for (int64_t row = (int64_t) blockIdx.y * SUM_DEPTH + threadIdx.y; row < n; row += AHEAD * stride) {
            raw<T, W> a[AHEAD], b[AHEAD], old[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (row + k * stride < n) {
                    const int64_t at = (row + k * stride) * d + c;
                    a[k] = load_raw<W>(from + at);
                    if (SUMS)
                        b[k] = load_raw<W>(x + at);
                    if (to && accumulate)
                        old[k] = load_raw<W>(to + at);
                }
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (row + k * stride < n) {
                    float y[W];
#pragma unroll
                    for (int j = 0; j < W; j++) {
                        y[j] = to && accumulate ? fmaf(a[k][j], factor[j], old[k][j]) : a[k][j] * factor[j];
                        if (SUMS)
                            sum[j] = fmaf(a[k][j], b[k][j], sum[j]);
                    }
                    if (to)
                        store<W>(to + (row + k * stride) * d + c, y);
                }
        }
    }
    if constexpr (SUMS)
        sum_block(sum, partial, d);
}

template <typename T, int W, bool SUMS>
static void start(const sl_launch *launch, const sl_operand *w, int64_t groups, cudaStream_t stream)
{
    const int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    scale_columns_kernel<T, W, SUMS><<<sum_grid<W>(d, groups), dim3(SUM_LANES, SUM_DEPTH), 0, stream>>>(
        (const T *) launch->in[0].data, (const T *) w->data, SUMS ? (const T *) launch->in[1].data : NULL,
        (T *) launch->out[0].data, (float *) launch->workspace, n, d, (launch->accumulate & 1) != 0);
}

template <typename T, bool SUMS>
static sl_status scale_columns(const sl_launch *launch, const sl_operand *w, int64_t groups, cudaStream_t stream)
{
    constexpr int W = 16 / sizeof(T);
    if (launch->in[0].type.dim[1] % W == 0 &&
        sl_cuda_aligned(launch->in[0].data, w->data, SUMS ? launch->in[1].data : NULL, launch->out[0].data))
        start<T, W, SUMS>(launch, w, groups, stream);
    else
        start<T, 1, SUMS>(launch, w, groups, stream);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* Nothing is summed forward, so the rows may be divided finely: four for every thread. */
static int64_t forward_groups(const sl_launch *launch)
{
    const int64_t n = launch->in[0].type.dim[0], groups = (n + AHEAD * SUM_DEPTH - 1) / (AHEAD * SUM_DEPTH);
    return groups < 65535 ? groups : 65535;
}

static sl_status scale_columns_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T,
                return (scale_columns<T, false>(launch, &launch->in[1], forward_groups(launch), stream)));
}

static size_t scale_columns_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const sl_type *dy = &launch->in[0].type;
    return launch->out[1].type.rank ? (size_t) (sum_groups(dy) * dy->dim[1]) * sizeof(float) : 0;
}

static sl_status scale_columns_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    const int64_t groups = sum_groups(&launch->in[0].type), d = launch->in[0].type.dim[1];
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        if (!launch->out[1].data)
            return (scale_columns<T, false>(launch, &launch->in[2], forward_groups(launch), stream));
        SL_TRY((scale_columns<T, true>(launch, &launch->in[2], groups, stream)));
        const column_sums<T> to = {{(T *) launch->out[1].data}, {(launch->accumulate & 2) != 0}};
        column_sum<T>(launch->workspace, groups, d, 1, to, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_scale_columns = {SL_OP_SCALE_COLUMNS, NULL, NULL, scale_columns_run};
extern "C" const sl_cuda_kernel sl_cuda_scale_columns_bwd = {SL_OP_SCALE_COLUMNS_BWD, NULL, scale_columns_bwd_workspace,
                                                             scale_columns_bwd_run};
