/*
 * Embedding rows out, and their gradient back in.
 *
 * The gradient must add the rows of equal tokens in a fixed order. A sort would do; chains are simpler: one block walks the
 * tokens and links each place to the next one with the same token. Then one block per first place follows its chain in
 * ascending order, columns over threads: every row of dW is written by one block, its sum in the order of the places.
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

/* Places are handled in tiles of TILE tokens; last[v] holds the latest place of token v in the tiles done so far (-1: none).
 * next[i] = the following place of the same token (-1: none), first[i] = 1 if i is the token's first place. */
static constexpr int TILE = 1024;

__global__ void chain_kernel(const int32_t *__restrict__ tokens, int32_t *__restrict__ last, int32_t *__restrict__ next,
                             int32_t *__restrict__ first, int64_t n)
{
    __shared__ int32_t tile[TILE];
    for (int64_t base = 0; base < n; base += TILE) {
        int64_t i = base + threadIdx.x;
        tile[threadIdx.x] = i < n ? tokens[i] : -1;
        __syncthreads();
        int32_t before = -1, after = -1, mine = tile[threadIdx.x];
        if (i < n) {
            for (int j = (int) threadIdx.x - 1; j >= 0 && before < 0; j--)
                if (tile[j] == mine)
                    before = (int32_t) (base + j);
            for (int j = (int) threadIdx.x + 1; j < TILE && after < 0; j++)
                if (tile[j] == mine)
                    after = (int32_t) (base + j);
            next[i] = after;
            if (before < 0) { /* first of its token in this tile: continue the chain of earlier tiles */
                int32_t earlier = last[mine];
                first[i] = earlier < 0;
                if (earlier >= 0)
                    next[earlier] = (int32_t) i;
            } else
                first[i] = 0;
        }
        __syncthreads();
        if (i < n && after < 0)
            last[mine] = (int32_t) i;
        __syncthreads();
    }
}

template <typename T, int W>
__global__ void scatter_kernel(const T *__restrict__ dy, const int32_t *__restrict__ tokens,
                               const int32_t *__restrict__ next, const int32_t *__restrict__ first, T *table, int64_t d,
                               bool accumulate)
{
    if (!first[blockIdx.x])
        return;
    T *row = table + (int64_t) tokens[blockIdx.x] * d;
    for (int64_t c = (int64_t) threadIdx.x * W; c < d; c += (int64_t) blockDim.x * W) {
        float sum[W] = {};
        for (int64_t i = blockIdx.x; i >= 0; i = next[i]) {
            float v[W];
            load<W>(dy + i * d + c, v);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
        if (accumulate) {
            float old[W];
            load<W>(row + c, old);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += old[j];
        }
        store<W>(row + c, sum);
    }
}

static size_t embedding_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    return (size_t) (2 * launch->in[0].type.dim[0] + launch->out[0].type.dim[0]) * sizeof(int32_t);
}

static sl_status embedding_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    int64_t n = launch->in[0].type.dim[0], d = launch->in[0].type.dim[1], vocabulary = launch->out[0].type.dim[0];
    bool accumulate = launch->accumulate & 1;
    const int32_t *tokens = (const int32_t *) launch->in[1].data;
    int32_t *next = (int32_t *) launch->workspace, *first = next + n, *last = first + n;
    SL_CUDA(cudaMemsetAsync(last, 0xff, (size_t) vocabulary * sizeof *last, stream));
    if (!accumulate)
        SL_CUDA(cudaMemsetAsync(launch->out[0].data, 0, sl_type_bytes(&launch->out[0].type), stream));
    chain_kernel<<<1, TILE, 0, stream>>>(tokens, last, next, first, n);
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (d % W == 0 && sl_cuda_aligned(launch->in[0].data) && sl_cuda_aligned(launch->out[0].data))
            scatter_kernel<T, W><<<(unsigned) n, 256, 0, stream>>>((const T *) launch->in[0].data, tokens, next, first,
                                                                   (T *) launch->out[0].data, d, accumulate);
        else
            scatter_kernel<T, 1><<<(unsigned) n, 256, 0, stream>>>((const T *) launch->in[0].data, tokens, next, first,
                                                                   (T *) launch->out[0].data, d, accumulate);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_embedding = {SL_OP_EMBEDDING, NULL, NULL, embedding_run};
extern "C" const sl_cuda_kernel sl_cuda_embedding_bwd = {SL_OP_EMBEDDING_BWD, NULL, embedding_bwd_workspace,
                                                         embedding_bwd_run};
