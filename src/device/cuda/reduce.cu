/*
 * sum, sum_squares and grad_gate to the law of ops/reduce.h: blocks of 4096, 64 lanes, folded by halves, block sums added in
 * neighbouring pairs. 64 threads are the 64 lanes of a block of elements, so every access is coalesced and the order is the law's.
 */
#include "device/cuda/kernel.cuh"
#include "ops/reduce.h"

static constexpr int SEGMENTS = 4; /* blocks of elements per thread block */
static constexpr int PAIRS = 1024; /* block sums one thread block folds */

template <typename T, bool SQUARES>
__global__ void block_sums_kernel(const T *__restrict__ x, float *__restrict__ sums, int64_t n)
{
    __shared__ float lanes[SEGMENTS][SL_SUM_LANES];
    int lane = threadIdx.x % SL_SUM_LANES, segment = threadIdx.x / SL_SUM_LANES;
    int64_t block = (int64_t) blockIdx.x * SEGMENTS + segment, first = block * SL_SUM_BLOCK;
    float sum = 0;
    if (first + SL_SUM_BLOCK <= n) {
#pragma unroll 16
        for (int i = lane; i < SL_SUM_BLOCK; i += SL_SUM_LANES) {
            float v = to_f32(x[first + i]);
            sum = SQUARES ? fmaf(v, v, sum) : sum + v;
        }
    } else {
        for (int64_t i = first + lane; i < n; i += SL_SUM_LANES) {
            float v = to_f32(x[i]);
            sum = SQUARES ? fmaf(v, v, sum) : sum + v;
        }
    }
    lanes[segment][lane] = sum;
    for (int half = SL_SUM_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            lanes[segment][lane] += lanes[segment][lane + half];
    }
    if (lane == 0 && first < n)
        sums[block] = lanes[segment][0];
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
    block_sums_kernel<T, SQUARES>
        <<<(unsigned) ((count + SEGMENTS - 1) / SEGMENTS), SEGMENTS * SL_SUM_LANES, 0, stream>>>((const T *) x, from,
                                                                                                 n);
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
