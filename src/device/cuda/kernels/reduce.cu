/*
 * sum, sum_squares and grad_gate in the order of ops/reduce.h: blocks of 4096, 64 lanes, folded by halves, block sums
 * added in neighbouring pairs. A thread has as many neighbouring lanes as fit 16 bytes, 8 of them (16 for f32) make a
 * block of elements, and a warp has several blocks: all accesses are wide, and the lanes fold between threads by
 * shuffles, then within the thread.
 */
#include "device/cuda/kernels/kernel.cuh"
#include "ops/reduce.h"

static constexpr int THREADS = 128;
static constexpr int AT_ONCE = 16; /* loads under way per thread */
static constexpr int PAIRS = 1024; /* block sums one thread block folds */

template <bool SQUARES> __device__ __forceinline__ float add(float sum, float x)
{
    return SQUARES ? fmaf(x, x, sum) : sum + x;
}

template <typename T, bool SQUARES>
__global__ void __launch_bounds__(THREADS, 5)
    block_sums_kernel(const T *__restrict__ x, float *__restrict__ sums, int64_t n, bool aligned)
{
    constexpr int W = 16 / sizeof(T), SPAN = SL_SUM_LANES / W;
    int64_t block = ((int64_t) blockIdx.x * THREADS + threadIdx.x) / SPAN, first = block * SL_SUM_BLOCK;
    int lane = threadIdx.x % SPAN * W; /* the first of W */
    float sum[W] = {};
    if (aligned && first + SL_SUM_BLOCK <= n) {
        const T *from = x + first + lane;
#pragma unroll 1
        for (int i = 0; i < SL_SUM_BLOCK; i += AT_ONCE * SL_SUM_LANES) {
            raw<T, W> p[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                p[k] = load_raw<W>(from + i + k * SL_SUM_LANES);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] = add<SQUARES>(sum[j], p[k][j]);
        }
    } else {
        int64_t end = first + SL_SUM_BLOCK < n ? first + SL_SUM_BLOCK : n;
        for (int64_t i = first + lane; i < end; i += SL_SUM_LANES)
#pragma unroll
            for (int j = 0; j < W; j++)
                if (i + j < end)
                    sum[j] = add<SQUARES>(sum[j], to_f32(x[i + j]));
    }
#pragma unroll
    for (int offset = SPAN / 2; offset > 0; offset /= 2)
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += __shfl_down_sync(0xffffffffu, sum[j], offset, SPAN);
#pragma unroll
    for (int half = W / 2; half > 0; half /= 2)
#pragma unroll
        for (int j = 0; j < half; j++)
            sum[j] += sum[j + half];
    if (lane == 0 && first < n)
        sums[block] = sum[0];
}

/* One aligned subtree of PAIRS leaves per block; a missing right neighbour moves its left one up unchanged. */
__global__ void pair_kernel(const float *__restrict__ from, float *__restrict__ to, int64_t count)
{
    __shared__ float s[PAIRS];
    int64_t first = (int64_t) blockIdx.x * PAIRS;
    int here = (int) (count - first < PAIRS ? count - first : PAIRS);
    for (int i = threadIdx.x; i < here; i += blockDim.x)
        s[i] = from[first + i];
    __syncthreads();
    while (here > 1) {
        int half = (here + 1) / 2;
        float pair = 0;
        int i = threadIdx.x;
        if (i < half)
            pair = 2 * i + 1 < here ? s[2 * i] + s[2 * i + 1] : s[2 * i];
        __syncthreads();
        if (i < half)
            s[i] = pair;
        __syncthreads();
        here = half;
    }
    if (threadIdx.x == 0)
        to[blockIdx.x] = s[0];
}

static int64_t sums_of(int64_t n)
{
    return (n + SL_SUM_BLOCK - 1) / SL_SUM_BLOCK;
}

/* Block sums, then the levels of the tree, PAIRS at a time, between two halves of the workspace; the last writes `out`. */
template <typename T, bool SQUARES>
static sl_status fixed_sum(const void *x, int64_t n, float *out, float *workspace, cudaStream_t stream)
{
    int64_t count = sums_of(n);
    float *from = workspace, *to = workspace + count;
    int64_t threads = count * (SL_SUM_LANES * (int64_t) sizeof(T) / 16);
    block_sums_kernel<T, SQUARES><<<(unsigned) ((threads + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        (const T *) x, from, n, sl_cuda_aligned(x));
    SL_CUDA_LAUNCHED();
    do {
        int64_t next = (count + PAIRS - 1) / PAIRS;
        pair_kernel<<<(unsigned) next, PAIRS / 2, 0, stream>>>(from, next == 1 ? out : to, count);
        float *swap = from;
        from = to, to = swap, count = next;
    } while (count > 1);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

static size_t sum_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (2 * sums_of(sl_type_count(&launch->in[0].type)) + 1) * sizeof(float);
}

static sl_status sum_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    return fixed_sum<float, false>(launch->in[0].data, sl_type_count(&launch->in[0].type),
                                   (float *) launch->out[0].data, (float *) launch->workspace, stream);
}

static sl_status sum_squares_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->in[0].type.dtype, T,
                return (fixed_sum<T, true>(launch->in[0].data, sl_type_count(&launch->in[0].type),
                                           (float *) launch->out[0].data, (float *) launch->workspace, stream)));
}

__global__ void gate_kernel(const float *sum, const sl_step_params *step, float *gate)
{
    float norm = __fsqrt_rn(*sum), clip = step->clip;
    bool skip = !isfinite(norm);
    gate[0] = skip ? 0.0f : clip > 0 && norm > clip ? __fdiv_rn(clip, norm) : 1.0f;
    gate[1] = norm;
    gate[2] = skip;
    gate[3] = 0;
}

static sl_status grad_gate_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t n = sl_type_count(&launch->in[0].type);
    float *total = (float *) launch->workspace + 2 * sums_of(n);
    SL_TRY((fixed_sum<float, false>(launch->in[0].data, n, total, (float *) launch->workspace, stream)));
    gate_kernel<<<1, 1, 0, stream>>>(total, (const sl_step_params *) launch->in[1].data, (float *) launch->out[0].data);
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_sum = {SL_OP_SUM, NULL, sum_workspace, sum_run};
extern "C" const sl_cuda_kernel sl_cuda_sum_squares = {SL_OP_SUM_SQUARES, NULL, sum_workspace, sum_squares_run};
extern "C" const sl_cuda_kernel sl_cuda_grad_gate = {SL_OP_GRAD_GATE, NULL, sum_workspace, grad_gate_run};
