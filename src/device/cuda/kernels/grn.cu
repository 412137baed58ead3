/*
 * Global response normalization (ops/grn.c) in three kernels: sums of 32 pieces of a sample's columns per block of threads, whose rows of
 * threads each walk every DEPTH-th token and are added in order; a block per sample for what follows from them; the elements. With s
 * the sample, the workspace holds factor[s][c], and backward slope[s][c] and sums[2][s][c] of n dy x and of dy.
 */
#include "device/cuda/kernels/column_sum.cuh"
#include "ops/grn.h"

static constexpr int LANES = 32, DEPTH = 8, THREADS = LANES * DEPTH;

template <typename T> struct grn_args {
    const T *x, *dy, *gamma, *beta;
    T *to;
    float *lengths; /* written forward */
    float *factor, *slope, *sums;
    int64_t samples, rows, d;
    float eps;
    bool accumulate;
};

/* All threads of the block's column: their sums over the rows of threads, in the first of these. */
template <int W> __device__ __forceinline__ void add_rows(float (&sum)[W], float (&part)[DEPTH][LANES * W])
{
    __syncthreads();
#pragma unroll
    for (int j = 0; j < W; j++)
        part[threadIdx.y][j * LANES + threadIdx.x] = sum[j];
    __syncthreads();
    if (threadIdx.y == 0)
#pragma unroll
        for (int j = 0; j < W; j++)
#pragma unroll
            for (int k = 1; k < DEPTH; k++)
                sum[j] += part[k][j * LANES + threadIdx.x];
}

template <typename T, int W, bool BACKWARD>
__global__ void __launch_bounds__(THREADS) grn_sums_kernel(const __grid_constant__ grn_args<T> g)
{
    __shared__ float part[DEPTH][LANES * W];
    const int64_t sample = blockIdx.x, c = ((int64_t) blockIdx.y * LANES + threadIdx.x) * W;
    float product[W] = {}, plain[W] = {};
    if (c < g.d) {
        const int64_t first = sample * g.rows * g.d + c;
#pragma unroll 4
        for (int64_t row = threadIdx.y; row < g.rows; row += DEPTH) {
            const raw<T, W> x = load_raw<W>(g.x + first + row * g.d);
            const raw<T, W> dy = BACKWARD ? load_raw<W>(g.dy + first + row * g.d) : x;
#pragma unroll
            for (int j = 0; j < W; j++) {
                product[j] = fmaf(dy[j], x[j], product[j]);
                if (BACKWARD)
                    plain[j] += dy[j];
            }
        }
    }
    add_rows<W>(product, part);
    if (BACKWARD)
        add_rows<W>(plain, part);
    if (threadIdx.y == 0 && c < g.d)
#pragma unroll
        for (int j = 0; j < W; j++) {
            if (BACKWARD) {
                g.sums[sample * g.d + c + j] = product[j];
                g.sums[(g.samples + sample) * g.d + c + j] = plain[j];
            } else {
                g.lengths[sample * g.d + c + j] = sqrtf(product[j]);
            }
        }
}

template <typename T, bool BACKWARD>
__global__ void __launch_bounds__(THREADS) grn_channels_kernel(const __grid_constant__ grn_args<T> g)
{
    __shared__ float scratch[33];
    const float *lengths = g.lengths + (int64_t) blockIdx.x * g.d;
    float *factor = g.factor + (int64_t) blockIdx.x * g.d, total = 0, mean = 0;
    for (int64_t c = threadIdx.x; c < g.d; c += THREADS)
        total += lengths[c];
    const float r = 1.0f / (block_reduce(total, scratch) / (float) g.d + g.eps);
    for (int64_t c = threadIdx.x; c < g.d; c += THREADS) {
        const float weight = to_f32(g.gamma[c]), n = lengths[c] * r;
        factor[c] = fmaf(weight, n, 1.0f);
        if (BACKWARD)
            mean = fmaf(weight * g.sums[(int64_t) blockIdx.x * g.d + c], n, mean);
    }
    if (!BACKWARD)
        return;
    mean = block_reduce(mean, scratch) / (float) g.d;
    for (int64_t c = threadIdx.x; c < g.d; c += THREADS) {
        float *sum = &g.sums[(int64_t) blockIdx.x * g.d + c];
        const float dg = r * fmaf(to_f32(g.gamma[c]), *sum, -mean);
        g.slope[(int64_t) blockIdx.x * g.d + c] = lengths[c] > 0 ? dg / lengths[c] : 0.0f;
        *sum *= lengths[c] * r;
    }
}

template <typename T, int W, bool BACKWARD>
__global__ void __launch_bounds__(THREADS) grn_elements_kernel(const __grid_constant__ grn_args<T> g)
{
    const int64_t row = (int64_t) blockIdx.x * DEPTH + threadIdx.y;
    if (row >= g.samples * g.rows)
        return;
    const float *factor = g.factor + row / g.rows * g.d, *slope = BACKWARD ? g.slope + row / g.rows * g.d : NULL;
    for (int64_t c = threadIdx.x * W; c < g.d; c += LANES * W) {
        const int64_t i = row * g.d + c;
        float x[W], other[W], out[W];
        raw<T, W> old;
        load<W>(g.x + i, x);
        load<W>(BACKWARD ? g.dy + i : g.beta + c, other);
        if (BACKWARD && g.accumulate)
            old = load_raw<W>(g.to + i);
#pragma unroll
        for (int j = 0; j < W; j++) {
            out[j] =
                BACKWARD ? fmaf(x[j], slope[c + j], other[j] * factor[c + j]) : fmaf(x[j], factor[c + j], other[j]);
            if (BACKWARD && g.accumulate)
                out[j] += old[j];
        }
        store<W>(g.to + i, out);
    }
}

template <typename T, int W, bool BACKWARD> static sl_status start(const grn_args<T> &g, cudaStream_t stream)
{
    const dim3 threads(LANES, DEPTH);
    grn_sums_kernel<T, W, BACKWARD>
        <<<dim3((unsigned) g.samples, (unsigned) ((g.d + LANES * W - 1) / (LANES * W))), threads, 0, stream>>>(g);
    SL_CUDA_LAUNCHED();
    grn_channels_kernel<T, BACKWARD><<<(unsigned) g.samples, THREADS, 0, stream>>>(g);
    SL_CUDA_LAUNCHED();
    if (g.to)
        grn_elements_kernel<T, W, BACKWARD>
            <<<(unsigned) ((g.samples * g.rows + DEPTH - 1) / DEPTH), threads, 0, stream>>>(g);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static size_t grn_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    const int64_t samples = launch->in[0].type.dim[0] / sl_grn_attrs(&launch->attrs)->sample_rows;
    return (size_t) (samples * launch->in[0].type.dim[1]) * sizeof(float) * (launch->op == SL_OP_GRN ? 1 : 4);
}

template <typename T> static grn_args<T> args_of(const sl_launch *launch)
{
    const bool backward = launch->op == SL_OP_GRN_BWD;
    const sl_type *type = &launch->in[0].type;
    const int64_t rows = sl_grn_attrs(&launch->attrs)->sample_rows, samples = type->dim[0] / rows, d = type->dim[1];
    float *space = (float *) launch->workspace;
    return {(const T *) launch->in[backward ? 1 : 0].data,
            backward ? (const T *) launch->in[0].data : NULL,
            (const T *) launch->in[backward ? 2 : 1].data,
            backward ? NULL : (const T *) launch->in[2].data,
            (T *) launch->out[0].data,
            (float *) (backward ? launch->in[3].data : launch->out[1].data),
            space,
            backward ? space + samples * d : NULL,
            backward ? space + 2 * samples * d : NULL,
            samples,
            rows,
            d,
            sl_grn_attrs(&launch->attrs)->eps,
            (launch->accumulate & 1) != 0};
}

template <bool BACKWARD> static sl_status grn_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        const grn_args<T> g = args_of<T>(launch);
        if (g.d % W == 0 && sl_cuda_aligned(g.x, g.dy, g.beta, g.to))
            SL_TRY((start<T, W, BACKWARD>(g, stream)));
        else
            SL_TRY((start<T, 1, BACKWARD>(g, stream)));
        if (BACKWARD) {
            const column_sums<T> to = {{(T *) launch->out[1].data, (T *) launch->out[2].data},
                                       {(launch->accumulate & 2) != 0, (launch->accumulate & 4) != 0}};
            column_sum<T>(g.sums, g.samples, g.d, 2, to, stream);
        }
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

extern "C" const sl_cuda_kernel sl_cuda_grn = {SL_OP_GRN, NULL, grn_workspace, grn_run<false>};
extern "C" const sl_cuda_kernel sl_cuda_grn_bwd = {SL_OP_GRN_BWD, NULL, grn_workspace, grn_run<true>};
