/*
 * Embedding rows out, and their gradient back in.
 *
 * The gradient adds the rows of equal tokens in a fixed order, and some words stand in every twentieth place. So the places are
 * sorted by token (stable: places of one token stay in order) and the sorted list is cut into windows of equal length, whatever
 * tokens lie in them:
 *
 *     tokens   a a a b | b b b b | b c d d | d e ...        a, c: whole runs, written to dW
 *     left       b     |    b    |  b   d  |  d             pieces of runs, as f32 rows
 *
 * A window leaves at most two pieces, of the run it ends and of the run it begins. A second kernel adds each run's pieces in order,
 * in the window where the run begins. Work is even, every row of dW has one writer, and the order of each sum depends on the tokens
 * alone. (Letting a token's first place look for the others needs no memory, and took 4 ms for 65,536 tokens.)
 */
#include <cub/device/device_radix_sort.cuh>

#include "device/cuda/kernels/kernel.cuh"

static constexpr int THREADS = 128;
static constexpr int AT_ONCE = 4; /* pieces under way per thread */

/* A warp per row. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const T *__restrict__ table, const int32_t *__restrict__ tokens, T *__restrict__ y, int64_t n,
                  int64_t d, bool accumulate)
{
    typedef raw<T, W> piece;
    int64_t row = (int64_t) blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= n)
        return;
    const T *from = table + (int64_t) tokens[row] * d;
    T *to = y + row * d;
    for (int64_t c = (int64_t) (threadIdx.x % 32) * W; c < d; c += AT_ONCE * 32 * W) {
        piece p[AT_ONCE];
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++)
            if (c + q * 32 * W < d)
                p[q] = load_raw<W>(from + c + q * 32 * W);
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++)
            if (c + q * 32 * W < d)
                put_row<W>(to + c + q * 32 * W, p[q], accumulate);
    }
}

template <typename T, int W> static void gather(const sl_launch *launch, cudaStream_t stream)
{
    int64_t n = launch->out[0].type.dim[0], d = launch->out[0].type.dim[1], rows = THREADS / 32;
    gather_kernel<T, W><<<(unsigned) ((n + rows - 1) / rows), THREADS, 0, stream>>>(
        (const T *) launch->in[0].data, (const int32_t *) launch->in[1].data, (T *) launch->out[0].data, n, d,
        launch->accumulate & 1);
}

static sl_status embedding_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    SL_DISPATCH(launch->out[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (launch->out[0].type.dim[1] % W == 0 && sl_cuda_aligned(launch->in[0].data, launch->out[0].data))
            gather<T, W>(launch, stream);
        else
            gather<T, 1>(launch, stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}

/* ---- backward ---- */

static constexpr int WINDOW = 32;

__global__ void keys_kernel(const int32_t *__restrict__ tokens, uint64_t *__restrict__ keys, int64_t n)
{
    int64_t i = (int64_t) blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        keys[i] = (uint64_t) (uint32_t) tokens[i] << 32 | (uint64_t) i;
}

__device__ __forceinline__ int32_t token_of(uint64_t key)
{
    return (int32_t) (key >> 32);
}

/* One block per window and slice of columns. pieces[2w]: what window w adds to the run that began before it; pieces[2w + 1]: its
 * part of the run that begins in it and goes on. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS, 8)
    window_kernel(const T *__restrict__ dy, const uint64_t *__restrict__ keys, T *__restrict__ table,
                  float *__restrict__ pieces, int64_t n, int64_t d, bool accumulate)
{
    typedef raw<T, W> piece;
    __shared__ int32_t token[WINDOW + 2]; /* of the place before, the window's, and the place behind; -1: none */
    __shared__ int32_t place[WINDOW];
    int64_t first = (int64_t) blockIdx.x * WINDOW, c = ((int64_t) blockIdx.y * blockDim.x + threadIdx.x) * W;
    int count = (int) (n - first < WINDOW ? n - first : WINDOW);
    for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
        int64_t at = first + i - 1;
        token[i] = at >= 0 && at < n ? token_of(keys[at]) : -1;
        if (i > 0 && i <= count)
            place[i - 1] = (int32_t) keys[at];
    }
    __syncthreads();
    if (c >= d)
        return;
    float *left = pieces + 2 * (int64_t) blockIdx.x * d + c, sum[W] = {};
    for (int base = 0; base < count; base += AT_ONCE) {
        piece from[AT_ONCE], old[AT_ONCE];
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++) {
            int k = base + q;
            if (k < count) {
                from[q] = load_raw<W>(dy + (int64_t) place[k] * d + c);
                if (accumulate && token[k + 1] != token[k + 2] && token[k + 1] != token[0])
                    old[q] = load_raw<W>(table + (int64_t) token[k + 1] * d + c);
            }
        }
#pragma unroll
        for (int q = 0; q < AT_ONCE; q++) {
            int k = base + q;
            if (k >= count)
                break;
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += from[q][j];
            if (token[k + 1] == token[k + 2]) /* the run goes on, perhaps in the next window */
                continue;
            if (token[k + 1] == token[0]) {
                store<W>(left, sum);
            } else {
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[j] += accumulate ? old[q][j] : 0.0f;
                store<W>(table + (int64_t) token[k + 1] * d + c, sum);
            }
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] = 0;
        }
    }
    if (token[count] == token[count + 1])
        store<W>(token[count] == token[0] ? left : left + d, sum);
}

/* First place behind `from` whose token is greater than `token`. */
__device__ __forceinline__ int64_t run_end(const uint64_t *__restrict__ keys, int64_t from, int64_t n, int32_t token)
{
    int64_t low = from, high = n; /* keys before low belong to the run, keys from high on do not */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (token_of(keys[middle]) == token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One block per window and slice of columns: the pieces of the run that begins in the window and goes on. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    join_kernel(const uint64_t *__restrict__ keys, const float *__restrict__ pieces, T *__restrict__ table, int64_t n,
                int64_t d, bool accumulate)
{
    int64_t window = blockIdx.x, first = window * WINDOW, next = first + WINDOW;
    int64_t c = ((int64_t) blockIdx.y * blockDim.x + threadIdx.x) * W;
    if (c >= d || next >= n)
        return;
    int32_t token = token_of(keys[next - 1]);
    if (token_of(keys[next]) != token || (first > 0 && token_of(keys[first - 1]) == token))
        return;
    int64_t last = (run_end(keys, next, n, token) - 1) / WINDOW;
    float sum[W];
    load<W>(pieces + (2 * window + 1) * d + c, sum);
#pragma unroll 8
    for (int64_t w = window + 1; w <= last; w++) {
        float v[W];
        load<W>(pieces + 2 * w * d + c, v);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += v[j];
    }
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

/* The workspace: two lists of keys to sort between, the pieces, and what the sort wants. */
struct layout {
    int64_t n, d, windows;
    int bits; /* of a token */
    size_t keys[2], pieces, sort, sort_bytes, bytes;
};

static sl_status lay_out(const sl_launch *launch, layout *l)
{
    int64_t rows = launch->out[0].type.dim[0];
    l->n = launch->in[0].type.dim[0], l->d = launch->in[0].type.dim[1];
    l->windows = (l->n + WINDOW - 1) / WINDOW;
    for (l->bits = 1; (int64_t) 1 << l->bits < rows;)
        l->bits++;
    cub::DoubleBuffer<uint64_t> keys(NULL, NULL);
    SL_CUDA(cub::DeviceRadixSort::SortKeys(NULL, l->sort_bytes, keys, (int) l->n, 32, 32 + l->bits));
    size_t sizes[] = {(size_t) l->n * sizeof(uint64_t), (size_t) l->n * sizeof(uint64_t),
                      (size_t) (2 * l->windows * l->d) * sizeof(float), l->sort_bytes};
    size_t *offsets[] = {&l->keys[0], &l->keys[1], &l->pieces, &l->sort};
    l->bytes = 0;
    for (int i = 0; i < 4; i++) {
        *offsets[i] = l->bytes;
        l->bytes += (sizes[i] + 255) / 256 * 256;
    }
    return SL_OK;
}

static size_t embedding_bwd_workspace(sl_cuda *cuda, const sl_launch *launch)
{
    (void) cuda;
    layout l;
    return lay_out(launch, &l) == SL_OK ? l.bytes : 0;
}

template <typename T, int W>
static void scatter(const sl_launch *launch, const layout *l, const uint64_t *keys, cudaStream_t stream)
{
    int64_t across = ((l->d + W - 1) / W + 31) / 32 * 32, threads = across < THREADS ? across : THREADS;
    dim3 grid((unsigned) l->windows, (unsigned) ((across + threads - 1) / threads));
    float *pieces = (float *) ((char *) launch->workspace + l->pieces);
    T *table = (T *) launch->out[0].data;
    window_kernel<T, W><<<grid, (unsigned) threads, 0, stream>>>((const T *) launch->in[0].data, keys, table, pieces,
                                                                 l->n, l->d, launch->accumulate & 1);
    join_kernel<T, W><<<grid, (unsigned) threads, 0, stream>>>(keys, pieces, table, l->n, l->d, launch->accumulate & 1);
}

static sl_status embedding_bwd_run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) cuda;
    layout l;
    SL_TRY(lay_out(launch, &l));
    char *workspace = (char *) launch->workspace;
    cub::DoubleBuffer<uint64_t> keys((uint64_t *) (workspace + l.keys[0]), (uint64_t *) (workspace + l.keys[1]));
    if (!(launch->accumulate & 1))
        SL_CUDA(cudaMemsetAsync(launch->out[0].data, 0, sl_type_bytes(&launch->out[0].type), stream));
    keys_kernel<<<(unsigned) ((l.n + 255) / 256), 256, 0, stream>>>((const int32_t *) launch->in[1].data,
                                                                    keys.Current(), l.n);
    SL_CUDA_LAUNCHED();
    SL_CUDA(cub::DeviceRadixSort::SortKeys(workspace + l.sort, l.sort_bytes, keys, (int) l.n, 32, 32 + l.bits, stream));
    SL_DISPATCH(launch->in[0].type.dtype, T, {
        constexpr int W = 16 / sizeof(T);
        if (l.d % W == 0 && sl_cuda_aligned(launch->in[0].data, launch->out[0].data))
            scatter<T, W>(launch, &l, keys.Current(), stream);
        else
            scatter<T, 1>(launch, &l, keys.Current(), stream);
    });
    SL_CUDA_LAUNCHED();
    return SL_OK;
}
extern "C" const sl_cuda_kernel sl_cuda_embedding = {SL_OP_EMBEDDING, NULL, NULL, embedding_run};
extern "C" const sl_cuda_kernel sl_cuda_embedding_bwd = {SL_OP_EMBEDDING_BWD, NULL, embedding_bwd_workspace,
                                                         embedding_bwd_run};
