/*
 * A bias's gradient: the sum of dy's columns, bounded by reading dy once. A block takes 32 pieces of columns and a group of rows;
 * its eight rows of threads each walk every eighth row with eight 16-byte loads in flight, and are added in order at the end.
 * How many groups there are follows from the shape alone: about as many blocks as keep a large part busy at once, and no more, so
 * that few partial sums are left for the second kernel.
 */
#include "device/cuda/column_sum.cuh"

static constexpr int LANES = 32, DEPTH = 8;
static constexpr int64_t BLOCKS = 528; /* four per multiprocessor of the largest part, whatever the machine */

template <typename T, int W>
__global__ void __launch_bounds__(LANES *DEPTH, 4)
    bias_grad_kernel(const T *__restrict__ dy, float *__restrict__ partial, int64_t n, int64_t d)
{
    __shared__ float part[DEPTH][LANES * W];
    int64_t c = ((int64_t) blockIdx.x * LANES + threadIdx.x) * W, stride = (int64_t) gridDim.y * DEPTH;
    float sum[W] = {};
    if (c < d) {
        int64_t row = (int64_t) blockIdx.y * DEPTH + threadIdx.y;
        for (; row + 7 * stride < n; row += 8 * stride) {
            raw<T, W> p[8];
#pragma unroll
            for (int k = 0; k < 8; k++)
                p[k] = load_raw<W>(dy + (row + k * stride) * d + c);
#pragma unroll
            for (int k = 0; k < 8; k++)
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += p[k][j];
        }
        for (; row < n; row += stride) {
            float v[W];
            load<W>(dy + row * d + c, v);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        part[threadIdx.y][j * LANES + threadIdx.x] = sum[j];
    __syncthreads();
    for (int i = threadIdx.y * LANES + threadIdx.x; i < LANES * W; i += LANES * DEPTH) {
        int64_t column = (int64_t) blockIdx.x * LANES * W + i;
        float total = 0;
#pragma unroll
        for (int y = 0; y < DEPTH; y++)
            total += part[y][i % W * LANES + i / W];
        if (column < d)
            partial[blockIdx.y * d + column] = total;
    }
}

static int64_t groups_of(const sl_type *dy)
{
    int64_t wide = 16 / (int64_t) sl_dtype_bytes(dy->dtype), columns = LANES * (dy->dim[1] % wide == 0 ? wide : 1);
    int64_t across = (dy->dim[1] + columns - 1) / columns, groups = (BLOCKS + across - 1) / across;
    int64_t most = (dy->dim[0] + 4 * DEPTH - 1) / (4 * DEPTH); /* at least four rows for every thread */
    return groups < most ? groups : most;
}

static size_t bias_grad_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (groups_of(&launch->in[0].type) * launch->in[0].type.dim[1]) * sizeof(float);
}

template <typename T, int W> static void bias_grad(const sl_launch *launch, int64_t groups, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    dim3 grid((unsigned) ((d + LANES * W - 1) / (LANES * W)), (unsigned) groups);
    bias_grad_kernel<T, W>
        <<<grid, dim3(LANES, DEPTH), 0, stream>>>((const T *) launch->in[0].data, (float *) launch->workspace, n, d);
}

static sl_status bias_grad_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t d = launch->in[0].type.dim[1], groups = groups_of(&launch->in[0].type);
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (d % W == 0 && sl_cuda_aligned(launch->in[0].data))
            bias_grad<T, W>(launch, groups, stream);
        else
            bias_grad<T, 1>(launch, groups, stream);
        column_sums<T> to = {{(T *) launch->out[0].data, NULL}, {(launch->accumulate & 1) != 0, false}};
        column_sum<T>(launch->workspace, groups, d, 1, to, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_bias_grad = {SL_OP_BIAS_GRAD, NULL, bias_grad_workspace, bias_grad_run};
