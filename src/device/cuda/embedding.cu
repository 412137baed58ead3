/*
 * Embedding rows out, and their gradient back in.
 *
 * The gradient must add the rows of equal tokens in a fixed order. Sorting would do; with a chunk's few thousand tokens every
 * block can look through all of them as fast, so a token's first place finds the others itself: no workspace, every row of dW is
 * written by one block, its sum in the order of the places.
 */
#include "device/cuda/kernel.cuh"

template <typename T, int W>
__global__ void gather_kernel(const T *__restrict__ table, const int32_t *__restrict__ tokens, T *__restrict__ y,
                              int64_t d)
{
    const T *from = table + (int64_t) tokens[blockIdx.x] * d;
    T *to = y + (int64_t) blockIdx.x * d;
    for (int64_t c = (int64_t) threadIdx.x * W; c < d; c += (int64_t) blockDim.x * W)
        *reinterpret_cast<pack<T, W> *>(to + c) = *reinterpret_cast<const pack<T, W> *>(from + c);
}

static sl_status embedding_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t n = launch->out[0].type.dim[0], d = launch->out[0].type.dim[1];
    SL_DISPATCH(launch->out[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (d % W == 0 && sl_cuda_aligned(launch->in[0].data) && sl_cuda_aligned(launch->out[0].data))
            gather_kernel<T, W><<<(unsigned) n, 256, 0, stream>>>(
                (const T *) launch->in[0].data, (const int32_t *) launch->in[1].data, (T *) launch->out[0].data, d);
        else
            gather_kernel<T, 1><<<(unsigned) n, 256, 0, stream>>>(
                (const T *) launch->in[0].data, (const int32_t *) launch->in[1].data, (T *) launch->out[0].data, d);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* One block per place and slice of columns. A place whose token occurred before has nothing to do: the token's first place
 * collects all of them, a tile of places at a time, in order. */
static constexpr int THREADS = 128;

/* Has one of the places before `place` the token? */
__device__ __forceinline__ bool occurs_before(const int32_t *__restrict__ tokens, int64_t place, int32_t token)
{
    for (int64_t base = 0; base < place; base += THREADS) {
        int64_t i = base + threadIdx.x;
        if (__syncthreads_or(i < place && tokens[i] == token))
            return true;
    }
    return false;
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) scatter_kernel(const T *__restrict__ dy, const int32_t *__restrict__ tokens,
                                                          T *table, int64_t n, int64_t d, bool accumulate)
{
    __shared__ int32_t list[THREADS];
    __shared__ int warp_count[THREADS / 32];
    int32_t token = tokens[blockIdx.x];
    if (occurs_before(tokens, blockIdx.x, token))
        return;
    int64_t c = ((int64_t) blockIdx.y * THREADS + threadIdx.x) * W;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum[W] = {};
    for (int64_t base = blockIdx.x; base < n; base += THREADS) {
        int64_t i = base + threadIdx.x;
        bool match = i < n && tokens[i] == token;
        unsigned votes = __ballot_sync(0xffffffffu, match);
        if (lane == 0)
            warp_count[warp] = __popc(votes);
        __syncthreads();
        int before = 0, count = 0;
        for (int w = 0; w < THREADS / 32; w++) {
            before += w < warp ? warp_count[w] : 0;
            count += warp_count[w];
        }
        if (match)
            list[before + __popc(votes & ((1u << lane) - 1))] = (int32_t) i;
        __syncthreads();
        if (c < d) {
#pragma unroll 4
            for (int k = 0; k < count; k++) {
                float v[W];
                load<W>(dy + (int64_t) list[k] * d + c, v);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += v[j];
            }
        }
        __syncthreads();
    }
    if (c >= d)
        return;
    T *row = table + (int64_t) token * d + c;
    if (accumulate) {
        float old[W];
        load<W>(row, old);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += old[j];
    }
    store<W>(row, sum);
}

template <typename T, int W> static void scatter(const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1];
    dim3 grid((unsigned) n, (unsigned) ((d + THREADS * W - 1) / (THREADS * W)));
    scatter_kernel<T, W><<<grid, THREADS, 0, stream>>>((const T *) launch->in[0].data,
                                                       (const int32_t *) launch->in[1].data, (T *) launch->out[0].data,
                                                       n, d, launch->accumulate & 1);
}

static sl_status embedding_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    if (!(launch->accumulate & 1))
        SL_CUDA(cudaMemsetAsync(launch->out[0].data, 0, sl_type_bytes(&launch->out[0].type), stream));
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->in[0].type.dim[1] % W == 0 && sl_cuda_aligned(launch->in[0].data) &&
            sl_cuda_aligned(launch->out[0].data))
            scatter<T, W>(launch, stream);
        else
            scatter<T, 1>(launch, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_embedding = {SL_OP_EMBEDDING, NULL, NULL, embedding_run};
extern "C" const sl_cuda_kernel sl_cuda_embedding_bwd = {SL_OP_EMBEDDING_BWD, NULL, NULL, embedding_bwd_run};
